"""How to train: one frozen dataclass. A YAML file in `recipes/` has its values, `--set recipe.x=y` overrides them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, Literal, get_type_hints

from emobench.core.errors import ConfigError, UnknownNameError
from emobench.core.settings import OPTIONAL, check_settings, convert, setting
from emobench.data.conversations import Responses
from emobench.data.packing import WEIGHTS
from emobench.models.device import AUTO

SET_BY = {
    "recipe.epochs": "num_train_epochs num_epochs n_epochs train_epochs",
    "recipe.max_tokens": "max_steps max_train_steps",
    "recipe.batch": "per_device_train_batch_size per_device_eval_batch_size batch_size train_batch_size "
    "micro_batch_size global_batch_size auto_find_batch_size",
    "recipe.accumulation": "gradient_accumulation_steps grad_accum_steps eval_accumulation_steps",
    "recipe.learning_rate": "learning_rate lr",
    "recipe.schedule": "lr_scheduler_type lr_scheduler scheduler",
    "recipe.warmup": "warmup_steps warmup_ratio",
    "recipe.weight_decay": "weight_decay wd",
    "recipe.clip": "max_grad_norm gradient_clipping gradient_clip_val clip_grad_norm",
    "recipe.max_length": "max_length max_seq_length max_seq_len seq_length seq_len sequence_len block_size cutoff_len "
    "model_max_length",
    "recipe.packing": "packing packing_strategy sample_packing padding_free",
    "recipe.template": "assistant_only_loss completion_only_loss train_on_responses_only chat_template "
    "chat_template_path",
    "recipe.optimizer": "optim",
    "recipe.precision": "bf16 fp16 bf16_full_eval fp16_full_eval half_precision_backend tf32 mixed_precision",
    "recipe.gradient_checkpointing": "gradient_checkpointing gradient_checkpointing_kwargs activation_checkpointing "
    "activation_checkpointing_kwargs",
    "recipe.compile": "torch_compile",
    "recipe.liger": "use_liger_kernel use_liger liger_kernel_config",
    "recipe.select": "eval_strategy eval_steps eval_delay eval_on_start save_strategy save_steps "
    "load_best_model_at_end metric_for_best_model greater_is_better",
    "recipe.lora": "use_peft peft_config use_lora",
    "recipe.lora.rank": "r lora_r lora_rank",
    "recipe.lora.alpha": "lora_alpha",
    "recipe.lora.dropout": "lora_dropout",
    "recipe.lora.targets": "target_modules lora_target_modules",
    "corpus": "dataset datasets dataset_name dataset_path dataset_text_field train_file train_dataset",
    "--dtype": "dtype torch_dtype model_dtype",
    "--objective label-smoothing": "label_smoothing_factor label_smoothing",
    "--objective": "loss loss_type",
    "--model": "model_name_or_path model_name base_model",
    "--seed": "seed data_seed full_determinism",
    "--device": "use_cpu no_cuda",
    "--launch": "deepspeed fsdp fsdp_config parallelism_config local_rank ddp_backend",
    "--track": "report_to run_name project trackio_space_id trackio_bucket_id trackio_static_space_id",
    "--runs": "output_dir logging_dir",
    "--data-dir": "data_dir",
    "--trust-remote-code": "trust_remote_code",
}
"""Names of transformers (TrainingArguments), TRL, peft and axolotl, by the setting or option of emobench that decides
the same. `recipe.trainer.*` refuses those that are arguments of TrainingArguments."""
PASSED_ON = frozenset({
    "adam_beta1", "adam_beta2", "adam_epsilon", "dataloader_in_order", "dataloader_multiprocessing_context",
    "dataloader_persistent_workers", "dataloader_pin_memory", "dataloader_prefetch_factor", "ddp_broadcast_buffers",
    "ddp_bucket_cap_mb", "ddp_static_graph", "ddp_timeout", "include_num_input_tokens_seen", "log_level",
    "log_level_replica", "log_on_each_node", "lr_scheduler_kwargs", "neftune_noise_alpha", "optim_args",
    "optim_target_modules", "skip_memory_metrics", "torch_compile_backend", "torch_compile_mode",
    "torch_empty_cache_steps", "use_cache",
})  # fmt: skip
"""Arguments of TrainingArguments that emobench leaves to `recipe.trainer.*`."""
OF_BATCHES = ("input_ids", "attention_mask", "position_ids", "labels", "row", "targets", WEIGHTS)
"""Names in a batch, which no column of the data may have."""
FIXED = frozenset({
    "accelerator_config", "average_tokens_across_devices", "batch_eval_metrics", "dataloader_drop_last",
    "dataloader_num_workers", "ddp_find_unused_parameters", "debug", "disable_tqdm", "do_eval", "do_predict",
    "do_train", "enable_jit_checkpoint", "eval_do_concat_batches", "eval_use_gather_object", "group_by_length",
    "hub_always_push", "hub_model_id", "hub_private_repo", "hub_revision", "hub_strategy", "hub_token",
    "ignore_data_skip", "include_for_metrics", "label_names", "length_column_name", "logging_first_step",
    "logging_nan_inf_filter", "logging_steps", "logging_strategy", "prediction_loss_only", "push_to_hub",
    "remove_unused_columns", "restore_callback_states_from_checkpoint", "resume_from_checkpoint", "save_on_each_node",
    "save_only_model", "save_total_limit", "train_sampling_strategy",
})  # fmt: skip
"""Arguments that emobench sets, or whose change it would not survive: data order, logs, checkpoints, uploads."""


def own_name(name: str) -> str | None:
    """Return the setting or option that has another name elsewhere: recipe.learning_rate for lr."""
    for own, others in SET_BY.items():
        if name in others.split():
            return own
    return None


def _trainer_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments for transformers' TrainingArguments, converted to their types.

    Raises UnknownNameError for another name, and ConfigError for a wrong type and for arguments that emobench sets.
    """
    if not given:
        return {}
    from transformers import TrainingArguments

    hints = get_type_hints(TrainingArguments)
    values: dict[str, Any] = {}
    for name, value in given.items():
        if owner := own_name(name):
            raise ConfigError(f"`trainer.{name}`: emobench sets this argument; use {owner} instead.")
        if name in FIXED:
            raise ConfigError(f"`trainer.{name}`: emobench sets this argument, and it cannot be changed; drop it.")
        if name not in TrainingArguments.__dataclass_fields__:
            known = [f"trainer.{argument}" for argument in PASSED_ON]
            raise UnknownNameError("argument of TrainingArguments", f"trainer.{name}", known)
        values[name] = convert(hints[name], value, f"`trainer.{name}`")
    return values


@dataclass(frozen=True, kw_only=True)
class Lora:
    """Low-rank adapters (peft). The defaults are from the official EMO code for LLaMA."""

    rank: int = setting(32, low=1, high=8192)
    """Rank of the adapters' matrices."""
    alpha: int = setting(16, low=1, high=100_000)
    """Scale of the adapters: their output is multiplied by alpha / rank."""
    dropout: float = setting(0.05, low=0, high=0.99)
    """Share of the adapters' inputs that are dropped in training."""
    targets: tuple[str, ...] = ()
    """Module names to adapt. Empty: the default of peft for the architecture; without one, the plan is refused."""

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Every value that determines a training, except model, objective and seed.

    The defaults are section 4.1.1 of the EMO paper with the settings of its code.
    """

    name: str
    """The recipe's name."""
    corpus: str
    """The corpus to train on: a name, a file or folder as ./FILE:COLUMN, or a hub data set as ORG/NAME:COLUMN."""
    epochs: float = setting(3, above=0, high=100_000)
    """Passes over the corpus."""
    batch: int = setting(32, low=1, high=1_000_000)
    """Sequences per optimizer step, summed over devices and micro-batches."""
    accumulation: int = setting(1, low=1, high=1_000_000)
    """Gradient accumulation: micro-batches per optimizer step and device. It changes memory and speed alone."""
    learning_rate: float = setting(5e-5, above=0, high=100)
    """Largest learning rate of AdamW."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """Learning-rate schedule after the warm-up: to 0 (linear, cosine), or constant."""
    warmup: float = setting(0.0, low=0, high=1)
    """Share of the steps in which the learning rate grows from 0."""
    weight_decay: float = setting(0.0, low=0, high=1000)
    """Weight decay of AdamW."""
    clip: float = setting(0.0, low=0, high=1_000_000)
    """Largest gradient norm. 0: no clipping."""
    max_length: int = setting(256, low=2, high=2**20)
    """Number of tokens of a block, or the largest number of tokens of a row."""
    packing: Literal["blocks", "rows", "conversations"] = "blocks"
    """blocks: texts are concatenated and cut into blocks of max_length. rows: one text, or one conversation, per row.
    conversations: whole conversations, as many as fit into a row; none attends to the others."""
    template: Literal["none", "alpaca", "chat"] = setting("none", optional=True)
    """How conversations become tokens, with the loss on responses alone. alpaca: the prompt of Stanford Alpaca. chat:
    the tokenizer's chat template. none: the corpus holds texts, not conversations."""
    responses: Responses = setting("all", optional=True)
    """The responses of a conversation that carry loss: all, or the last."""
    weights: str = setting("", optional=True)
    """The field of the data with the weights of the loss, numbers of at least 0, such as "weight": one for the row, for
    each response or for each token. The loss is the weighted mean over target tokens. Empty: all weigh the same."""
    columns: tuple[str, ...] = setting((), optional=True)
    """Fields of the data with further numbers for tokens, which objectives read by these names, such as
    "behavior_log_prob"."""
    ends: bool = False
    """blocks: add an end-of-text token after each text. rows: add one before and one after each text."""
    mask_until: str = ""
    """rows: no loss on the text up to and including this marker, such as "### Response:". Empty: no masking."""
    max_tokens: int | None = setting(None, low=2, high=10**14)
    """Largest number of tokens of the corpus to train on, in each epoch. null: no limit."""
    validation_tokens: int | None = setting(None, low=2, high=10**14, optional=True)
    """Largest number of tokens of the validation split, which is read after each epoch. null: the whole split."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of the matrix products, by autocast. float32: no autocast. auto: as --dtype; without it, like the
    EMO paper's code, on a GPU float16 with LoRA and bfloat16 without, and float32 on a CPU."""
    weight_dtype: Literal["float32", "bfloat16", "float16"] = setting("float32", optional=True)
    """Data type of the weights while they are trained. Half precision takes half of the memory; without LoRA it rounds
    most updates away. LoRA's adapters are always float32, and are merged in float32."""
    lora: bool | Lora = False
    """Train low-rank adapters instead of all weights. true: the defaults of `recipe.lora.*`."""
    optimizer: Literal["auto", "adamw_torch", "adamw_torch_fused", "adafactor", "sgd", "adagrad", "rmsprop"] = setting(
        "auto", optional=True
    )
    """The optimizer, by transformers' name, with the Trainer's settings for it. auto: AdamW, on a GPU the fused one."""
    gradient_checkpointing: bool = setting(False, optional=True)
    """Compute the activations of each layer again in the backward pass: less memory, more time, the same gradient."""
    select: Literal["mle", "objective", "last"] = "mle"
    """The checkpoint to keep: lowest validation MLE, lowest validation loss (the official code), or the last one."""
    cost_rows: int = setting(0, low=0, high=10**7)
    """Keep the cost rows of this many of the most frequent target tokens. 0: as many as 1/32 of the memory holds. The
    result is the same, and other rows are computed for each micro-batch. A row takes 2 bytes per token of the
    vocabulary on a GPU in half precision, else 4."""
    liger: bool = setting(False, optional=True)
    """Train with Liger's kernels for RMSNorm, gated layers and rotary positions, on a GPU: more tokens a second, other
    rounding. Needs liger-kernel. Evaluation does not use them."""
    compile: bool = False
    """Compile the model with torch.compile. The loss runs outside of the graph."""
    engine: Literal["chunked", "torch", "triton", "reference"] = "chunked"
    """chunked: Triton kernels on a GPU, PyTorch elsewhere. reference: autograd on complete logits, large and slow."""
    trainer: Mapping[str, Any] | None = field(default=None, hash=False, metadata=OPTIONAL)
    """Further arguments of transformers' TrainingArguments, by name: recipe.trainer.adam_beta2=0.95."""

    def __post_init__(self) -> None:
        check_settings(self)
        for name in ("max_tokens", "validation_tokens"):
            tokens = getattr(self, name)
            if tokens is not None and tokens < self.max_length:
                raise ConfigError(f"`{name}` is {tokens}; expected at least max_length, {self.max_length}.")
        for name in self.columns:
            if name in OF_BATCHES:
                raise ConfigError(f"`columns` has {name!r}, which a batch has anyway; rename the field in the data.")
        object.__setattr__(self, "trainer", _trainer_arguments(self.trainer or {}) or None)
        if self.weight_dtype == "float16" and self.adapters is None:
            raise ConfigError(
                "`weight_dtype` is float16, whose gradients underflow; set it to float32 or bfloat16, or lora to true."
            )
        if self.packing == "blocks" and self.mask_until:
            raise ConfigError("`mask_until` belongs to packing=rows; set packing to rows, or drop it.")
        if self.template == "none":
            name = None
            if self.packing == "conversations":
                name = "packing=conversations"
            elif self.responses == "last":
                name = "responses=last"
            if name is not None:
                raise ConfigError(f"`{name}` is for conversations; set template to alpaca or chat, or drop it.")
            if self.fields and self.packing == "blocks":
                names = " and ".join(self.fields.values())
                raise ConfigError(f"{names} have numbers for whole texts, and blocks cut them; set packing to rows.")
            return
        if self.packing == "blocks":
            raise ConfigError(
                f"`template` is {self.template}, and blocks cut conversations; set packing to rows or conversations."
            )
        if self.mask_until or self.ends:
            name = "mask_until" if self.mask_until else "ends"
            raise ConfigError(f"`{name}` is for texts, and `template` decides it for conversations; drop one of them.")

    @property
    def fields(self) -> dict[str, str]:
        """The fields of the data with numbers for tokens, by the names of their columns in a batch."""
        fields = {name: name for name in self.columns}
        if self.weights:
            fields[WEIGHTS] = self.weights
        return fields

    @property
    def adapters(self) -> Lora | None:
        """The LoRA settings, or None without LoRA."""
        return Lora() if self.lora is True else (self.lora or None)

    def resolved(self, device: str, dtype: str = AUTO) -> Recipe:
        """Return the recipe with its precision chosen for a device and for `--dtype`, as far as it is "auto"."""
        if self.precision != "auto":
            return self
        chosen: Any = "float32"
        if self.weight_dtype != "float32":
            chosen = self.weight_dtype
        elif dtype in ("bfloat16", "float16"):
            chosen = dtype
        elif dtype == AUTO and device.startswith("cuda"):
            chosen = "bfloat16" if self.adapters is None else "float16"
        return replace(self, precision=chosen)

    def in_less_memory(self) -> Recipe | None:
        """Return the recipe with micro-batches of half the rows, and twice as many of them: the same batch.

        If half is no divisor of the batch, the next smaller one. None if a micro-batch has one row.
        """
        for count in range(2 * self.accumulation, self.batch + 1):
            if self.batch % count == 0:
                return replace(self, accumulation=count)
        return None

    def micro_batch(self, processes: int) -> int:
        """Return the number of sequences of one forward pass on one device."""
        micro, rest = divmod(self.batch, self.accumulation * processes)
        if rest or micro == 0:
            raise ConfigError(
                f"`batch` is {self.batch}; expected a multiple of accumulation x processes, "
                f"{self.accumulation} x {processes}, such as {max(1, micro) * self.accumulation * processes}."
            )
        return micro


def optimizer_of(device: str, name: str = "auto") -> str:
    """Return the Trainer's name of the optimizer. "auto" is AdamW: on a GPU, one kernel updates many weights."""
    if name != "auto":
        return name
    return "adamw_torch_fused" if device.startswith("cuda") else "adamw_torch"


def computed_with(device: str, *recipes: Recipe) -> dict[str, str]:
    """Return further facts that decide the weights of these trainings: on a GPU, the optimizer that "auto" means."""
    if device.startswith("cuda") and any(recipe.optimizer == "auto" for recipe in recipes):
        return {"optimizer": optimizer_of(device)}
    return {}


def total_steps(recipe: Recipe, rows: int) -> int:
    """Return the number of optimizer steps of a training on `rows` rows, by the Trainer's rule.

    Micro-batches and processes share a batch, and change nothing.
    """
    return math.ceil(recipe.epochs * max(math.ceil(rows / recipe.batch), 1))


def warmup_steps(recipe: Recipe, steps: int) -> int:
    """Return in how many of a training's steps the learning rate grows."""
    return math.ceil(recipe.warmup * steps)


def steps_at_rate_0(recipe: Recipe, steps: int) -> int:
    """Return how many steps of a training have a learning rate of 0: transformers' warm-up starts from 0."""
    return min(1, warmup_steps(recipe, steps))


def require_a_rate(recipe: Recipe, steps: int) -> None:
    """Raise ConfigError for a training that moves no weight, as the learning rate of all its steps is 0."""
    if steps_at_rate_0(recipe, steps) == steps:
        raise ConfigError(
            f"Recipe {recipe.name} has {steps} step on this corpus, and with `warmup` {recipe.warmup:g} its learning "
            "rate is 0: no weight would move. Use --set recipe.warmup=0, or train for more steps: more epochs, a "
            "smaller batch, or more text."
        )


def require_liger_on(device: str) -> None:
    """Raise ConfigError if no kernel of Liger can run on a device."""
    if not device.startswith("cuda"):
        raise ConfigError(f"`recipe.liger` is true, which needs a CUDA device, and --device is {device}; drop it.")
    if find_spec("liger_kernel") is None:
        raise ConfigError("`recipe.liger` is true, and liger-kernel is not installed: pip install liger-kernel")
