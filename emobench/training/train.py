"""One training, from top to bottom: set up the objective, train step by step, write the selected weights.

`docs/plain_loop.py` is the same training as a plain PyTorch loop. Here transformers' Trainer is the loop; around it
are one division of the loss by all target tokens of a step, an exact validation MLE, and checkpoints with a seal.
The result is a plain Hugging Face folder:

FOLDER/model/          what AutoModelForCausalLM.from_pretrained loads, with its tokenizer
FOLDER/log.jsonl       each step: loss, its parts, gradient norm, learning rate, tokens per second; each validation
FOLDER/training.json   the summary: the selected step, tokens, seconds, memory

Legend: B sequences, T positions, M micro-batches of a step, P parts of a loss, V rows of the head.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments, get_scheduler, set_seed
from transformers.trainer_utils import EvalPrediction

from emobench.core.errors import ConfigError, NonFiniteLossError, RunError, first_line
from emobench.core.seals import SEAL, find_damage, write_seal
from emobench.core.settings import OPTIONAL, canonical_json
from emobench.data.oracle.language import HiddenMarkovLanguage
from emobench.data.packing import IGNORE
from emobench.models.device import free_memory, with_float64
from emobench.models.head import Head, probe_head
from emobench.models.suitability import require_next_token_loss
from emobench.objectives import GroundCost, ModelObjective, Objective
from emobench.objectives.base import SNAPSHOT
from emobench.objectives.engine.job import WEIGHT
from emobench.objectives.engine.linear import rows_for
from emobench.training.attach import AttachedObjective, attach
from emobench.training.checkpoints import last_checkpoint, restore_objective, seal_checkpoint, verify_checkpoint
from emobench.training.context import TrainingContext
from emobench.training.curves import LOG
from emobench.training.export import export, weight_digests
from emobench.training.memory import keepable_bytes, measured_peak, out_of_memory
from emobench.training.model_changes import liger_body, require_liger, require_separate_conversations, with_adapters
from emobench.training.parallel import (
    FilledRows,
    FilledSampler,
    Sharded,
    Zero,
    join_without_gpu,
    process_count,
    refuse_other_checkpoint,
    uses_deepspeed,
    uses_fsdp,
)
from emobench.training.recipe import Recipe, optimizer_of, require_a_rate, total_steps, warmup_steps
from emobench.training.trackers import Tracking, tracker_arguments

RESULT, CHECKPOINTS = "training.json", "checkpoints"
KEPT = {"mle": "eval_mle", "objective": "eval_objective"}
SCHEDULES = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}
ROWS = "row"
"""The batch column with the index of each row in the training data. Error messages about a loss name it."""
TARGETS = "targets"
"""The batch column of the targets, prepared on the host."""
SAVE_SECONDS = 600.0
"""A killed process loses at most this much of a training."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """The inputs of one training. `train` and `validation` contain rows with `input_ids`, `labels` and `row`."""

    model: Any
    tokenizer: Any
    objective: Objective
    recipe: Recipe
    train: Sized
    validation: Sized
    collate: Callable[[list[dict[str, Any]]], dict[str, Tensor]]
    seed: int
    folder: Path
    pretrained: bool = True
    device: str = "cpu"
    tracking: Tracking | None = None
    load_head: Callable[[str], Tensor]
    load_model: Callable[[str], Any] | None = None
    known_language: HiddenMarkovLanguage | None = None
    """The distribution of the training corpus, or None if it is not known."""
    progress: Callable[[dict[str, float]], None] | None = None
    note: Callable[[str], None] = lambda text: None
    """Receives messages: the checkpoint from which a training continues, and damaged checkpoints."""
    split: bool = False
    """Whether the recipe has smaller micro-batches than requested, because of the memory; the summary then says so."""


@dataclass(frozen=True, kw_only=True)
class TrainingSummary:
    """The result of a training and its cost."""

    steps: int
    tokens: int
    """Number of target tokens, over all epochs."""
    seconds: float
    """Time of all steps, also those before an interruption, without validation and saving."""
    peak_memory_bytes: int
    selected_by: str
    selected_step: int
    validation_mle: float | None
    """Validation MLE of the selected weights, in nats per token."""
    zero_cost_rows: int = 0
    """Number of rows of the frozen cost embedding that are 0, such as padding. Their cost to any other token is 1."""
    accumulation: int | None = field(default=None, metadata=OPTIONAL)
    """Micro-batches of a step on a device, if the recipe's did not fit into the memory."""
    weights: Mapping[str, Mapping[str, str]] | None = field(default=None, metadata=OPTIONAL)
    """`weight_digests` of the model before ("base") and after ("trained"). None in processes that do not write."""


def train_to_fit(prepare: Callable[[Recipe], Training], recipe: Recipe, note: Callable[[str], None]) -> TrainingSummary:
    """Train `prepare(recipe)`. If the memory runs out, halve the rows of its micro-batches and continue.

    The batch stays, and its loss is divided by all of its target tokens. The gradient is therefore the same, except for
    rounding and the masks of dropout. An attempt continues from the last checkpoint. Several processes train together
    or not at all: they raise the error.

    Raises RunError if one row does not fit.
    """
    while True:
        try:
            return train(prepare(recipe))
        except Exception as error:
            if not out_of_memory(error) or process_count() > 1:
                raise
            problem = first_line(error)
        # The error is gone here, and with it the frames that held the model.
        free_memory()
        smaller = recipe.in_less_memory()
        if smaller is None:
            raise RunError(
                f"There is not enough memory for one row of {recipe.max_length} tokens ({problem}). Take a smaller "
                "--model, --set recipe.max_length=N, or --set recipe.gradient_checkpointing=true."
            )
        note(
            f"  out of memory with {recipe.micro_batch(1)} rows at once: {smaller.micro_batch(1)} rows, "
            f"{smaller.accumulation} times a step, are the same batch"
        )
        recipe = smaller


def train(job: Training) -> TrainingSummary:
    """Train, or continue from the last checkpoint in the folder, and write the selected weights.

    If the folder contains a finished training with a valid seal, return its summary.
    """
    _refuse_unusable(job)
    recipe = job.recipe.resolved(job.device, str(job.model.dtype).removeprefix("torch."))
    job = replace(job, recipe=recipe)
    folder = job.folder
    checkpoints, log, result = folder / CHECKPOINTS, folder / LOG, folder / RESULT
    if (folder / SEAL).exists() and find_damage(folder, full=True, leave_out=CHECKPOINTS) is None:
        shutil.rmtree(checkpoints, ignore_errors=True)  # a killed process may have left them
        return TrainingSummary(**json.loads(result.read_text()))

    # The model, the objective, and the checkpoint of an interrupted training.
    set_seed(job.seed)
    base = weight_digests(job.model) if os.environ.get("RANK", "0") == "0" else {}
    head = probe_head(job.model, job.tokenizer)
    checkpoint = last_checkpoint(checkpoints, job.note)
    if checkpoint is not None:
        job.note(f"  going on from the checkpoint of step {checkpoint.name.split('-')[1]}")
    if recipe.packing == "conversations":
        require_separate_conversations(job.model)
    set_up(job, head, checkpoint)
    attached = attach(job.model, job.objective, head, engine=recipe.engine, evaluate_loss=recipe.select == "objective")
    model = job.model
    if recipe.adapters is not None:
        model = with_adapters(model, recipe.adapters)
    folder.mkdir(parents=True, exist_ok=True)

    # The steps.
    with nullcontext() if job.tracking is None else job.tracking.followed():
        trainer = _trainer_of(job, model, attached)
        if checkpoint is not None:
            refuse_other_checkpoint(checkpoint, trainer)
        main = trainer.is_world_process_zero()
        if main:
            # The log of the checkpoint: the steps after it are trained again.
            log.write_bytes(b"")
            if checkpoint is not None:
                shutil.copyfile(checkpoint / LOG, log)
        kernels = liger_body(job.model) if recipe.liger else nullcontext()
        with _interruptible(trainer), kernels, measured_peak(trainer.args.device) as peak:
            steps = trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint)).global_step

        # The result. Every process has loaded the best weights and read the log before the main process deletes files.
        trainer.accelerator.wait_for_everyone()
        summary = _summarise(job, trainer, steps, peak.bytes)
        written = export(trainer, job.model, head, job.tokenizer, folder / "model")
        if main:
            summary = replace(summary, weights={"base": base, "trained": weight_digests(written)})
            result.write_text(canonical_json(summary) + "\n")
            write_seal(folder, leave_out=CHECKPOINTS)
            shutil.rmtree(checkpoints, ignore_errors=True)
        trainer.accelerator.wait_for_everyone()
    return summary


def _refuse_unusable(job: Training) -> None:
    recipe = job.recipe
    require_a_rate(recipe, total_steps(recipe, len(job.train)))
    if recipe.precision == "float16" and job.device == "cpu":
        # The Trainer would compute in float32 without a warning.
        raise ConfigError("`precision` is float16, which needs a GPU; on a CPU set it to bfloat16 or float32.")
    if recipe.gradient_checkpointing and not job.model.supports_gradient_checkpointing:
        raise ConfigError(
            f"`gradient_checkpointing` is true, and {type(job.model).__name__} does not support it; set it to false."
        )
    if SNAPSHOT in job.objective.copies and (uses_fsdp() or uses_deepspeed()):
        raise ConfigError(
            f"{job.objective.name} copies the model's weights every few steps, and FSDP and DeepSpeed shard them; "
            "train with --launch ddp, or on one device."
        )
    if recipe.liger:
        require_liger(job.model, job.device)
    if recipe.select == "objective" and isinstance(job.objective, ModelObjective):
        raise ConfigError(
            f"`select` is objective, but {job.objective.name} has no loss of tokens to validate; set it to mle or last."
        )


def set_up(job: Training, head: Head, checkpoint: Path | None) -> None:
    """Set up the objective from the pre-trained weights. After a resume, restore its state from the checkpoint.

    Raises ModelError for a model whose own loss has a part that the objective would drop.
    """
    require_next_token_loss(job.model)
    steps = total_steps(job.recipe, len(job.train))
    context = TrainingContext(
        head, steps, job.pretrained, job.load_head, job.model, job.load_model, job.known_language, job.tokenizer
    )
    job.objective.setup(context)
    cost = getattr(job.objective, "cost_embedding", None)
    if cost is not None and job.recipe.engine != "reference":
        _keep_frequent_rows(cost, job)
    if checkpoint is not None:
        restore_objective(checkpoint, job.objective)


def _keep_frequent_rows(cost: GroundCost, job: Training) -> None:
    """Keep the cost rows of the most frequent target tokens of the training data. Those of all targets are checked."""
    rows: Any = job.train
    device = cost.rows_VE.device
    dtype = job.model.get_output_embeddings().weight.dtype
    if job.recipe.precision != "float32":
        dtype = getattr(torch, job.recipe.precision)
    row_dtype = cost.row_dtype(rows_for(job.recipe.engine, device, dtype).cost_dtype(dtype))
    row_bytes = len(cost) * row_dtype.itemsize
    limit = job.recipe.cost_rows or keepable_bytes(device) // row_bytes
    counts_V = np.zeros(len(cost), dtype=np.int64)
    for place in range(len(rows)):
        labels = np.asarray(rows[place]["labels"])[1:]
        np.add.at(counts_V, labels[labels != IGNORE], 1)
    cost.check(torch.from_numpy(np.flatnonzero(counts_V)))
    frequent = np.argsort(-counts_V, kind="stable")[:limit]
    cost.keep(torch.from_numpy(frequent[counts_V[frequent] > 0]))


ALWAYS: dict[str, Any] = {
    "eval_strategy": "epoch",
    "save_strategy": "epoch",
    "save_total_limit": 2,
    "greater_is_better": False,
    "logging_steps": 1,
    "logging_nan_inf_filter": False,
    "remove_unused_columns": False,
    "label_names": ["labels"],
    "disable_tqdm": True,
    "dataloader_num_workers": 0,
    "ddp_find_unused_parameters": False,
}
"""The Trainer's arguments that are the same for all recipes."""


def training_arguments(job: Training, folder: Path) -> TrainingArguments:
    """Return the Trainer's arguments for a recipe. All others keep the Trainer's defaults."""
    recipe, on_cpu, zero = job.recipe, job.device == "cpu", uses_deepspeed()
    micro = recipe.micro_batch(process_count())
    steps = total_steps(recipe, len(job.train))
    values = ALWAYS | tracker_arguments(job.tracking) | {"output_dir": str(folder)}
    values |= {
        "num_train_epochs": recipe.epochs,
        "per_device_train_batch_size": micro,
        "per_device_eval_batch_size": micro,
        "gradient_accumulation_steps": recipe.accumulation,
        "seed": job.seed,
        "data_seed": job.seed,
        "load_best_model_at_end": recipe.select != "last",
        "metric_for_best_model": KEPT.get(recipe.select),
    }
    values |= {
        "learning_rate": recipe.learning_rate,
        "lr_scheduler_type": SCHEDULES[recipe.schedule],
        "warmup_steps": warmup_steps(recipe, steps),
        "weight_decay": recipe.weight_decay,
        "max_grad_norm": recipe.clip,
        "optim": optimizer_of(job.device, recipe.optimizer),
    }
    if recipe.gradient_checkpointing:
        # Newer transformers calls it activation checkpointing.
        new = "activation_checkpointing" in TrainingArguments.__dataclass_fields__
        name = "activation_checkpointing" if new else "gradient_checkpointing"
        values |= {name: True, f"{name}_kwargs": {"use_reentrant": False}}
    configured = on_cpu and zero
    if configured:
        join_without_gpu()
    values |= {
        "bf16": recipe.precision == "bfloat16" and not zero,  # `Zero` sets them
        "fp16": recipe.precision == "float16" and not zero,
        "use_cpu": on_cpu and not configured,
        "torch_compile": recipe.compile,
        # Copies from pinned memory then continue beside the host.
        "accelerator_config": {"non_blocking": not on_cpu, "use_configured_state": configured},
    }
    # With torch_compile, transformers lets float32 products of the whole process round to TF32.
    precise = torch.backends.fp32_precision  # type: ignore[attr-defined]
    try:
        arguments = TrainingArguments(**values, **(recipe.trainer or {}))
        if recipe.trainer:  # an optimizer and a schedule for one weight check their arguments
            make, given = Trainer.get_optimizer_cls_and_kwargs(arguments)
            optimizer = make([torch.nn.Parameter(torch.zeros(1))], **given)
            specific: Any = arguments.lr_scheduler_kwargs
            get_scheduler(arguments.lr_scheduler_type, optimizer, 0, steps, scheduler_specific_kwargs=specific)
    except (ValueError, TypeError, ImportError) as error:
        if not recipe.trainer:
            raise
        refused = ", ".join(f"{name}={value}" for name, value in recipe.trainer.items())
        raise ConfigError(f"--set recipe.trainer: {refused} was refused: {first_line(error)}") from error
    torch.backends.fp32_precision = precise  # type: ignore[attr-defined]
    if not zero:  # else ACCELERATE_MIXED_PRECISION of the environment would decide
        arguments.mixed_precision = {"bfloat16": "bf16", "float16": "fp16"}.get(recipe.precision, "no")
    # One GPU per process; use torchrun for more. DataParallel would copy the model without its attached objective.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments


def _trainer_of(job: Training, model: Any, attached: AttachedObjective) -> ObjectiveTrainer:
    """Return the trainer of a job, which writes its log; `model` may have adapters around the job's model."""
    log = job.folder / LOG

    def on_step(line: dict[str, float]) -> None:
        with log.open("a") as file:
            file.write(json.dumps(line) + "\n")
        if job.progress is not None:
            job.progress(line)

    values: dict[str, Any] = {"model": model, "attached": attached, "on_step": on_step, "log": log}
    values |= {
        "train_dataset": job.train,
        "eval_dataset": job.validation,
        "data_collator": job.collate,
        "args": training_arguments(job, job.folder / CHECKPOINTS),
    }
    if uses_deepspeed():
        trainer: ObjectiveTrainer = ZeroTrainer(**values, precision=job.recipe.precision)
    elif uses_fsdp():
        trainer = ShardedTrainer(**values)
    else:
        trainer = ObjectiveTrainer(**values)
    trainer.remove_callback(PrinterCallback)
    if job.tracking is not None:
        trainer.callback_handler.callbacks = job.tracking.guard(trainer.callback_handler.callbacks)
    return trainer


class ObjectiveTrainer(Trainer, TrainerCallback):
    """Trains a model with an attached objective. The loss is divided by the objective's total weight, which is summed
    over all devices and micro-batches.

    Each checkpoint contains a copy of the `log`, if one is given. A checkpoint is saved every `SAVE_SECONDS`, and after
    a requested stop; all processes save and stop at the same step, and results do not change. The trainer is its own
    callback. The methods stand in the order of a step.
    """

    def __init__(
        self,
        *args: Any,
        attached: AttachedObjective,
        on_step: Callable[[dict[str, float]], None],
        log: Path | None = None,
        **kwargs: Any,
    ) -> None:
        self.attached = attached
        self.stop_requested = False
        """Whether to finish the step, save a checkpoint and stop."""
        self._stopping = False
        self._saved = time.monotonic()
        self._on_step = on_step
        self._log = log
        self._rows: list[Tensor] = []
        self._order: FilledSampler | None = None
        self._parts: dict[str, float] = {}
        self._step_began = time.monotonic()
        self.collate = kwargs.pop("data_collator")
        if kwargs["args"].world_size > 1:
            kwargs["train_dataset"] = FilledRows(kwargs["train_dataset"])
        super().__init__(*args, data_collator=self._prepared, compute_metrics=validation_losses, **kwargs)
        self.add_callback(self)

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        """Set the current path of the best checkpoint after a resume: the folder may have been moved."""
        if self.args.load_best_model_at_end and self.state.best_global_step:
            self.state.best_model_checkpoint = str(self._checkpoint(self.state.best_global_step))

    # Rows become a batch.

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        if self.args.world_size == 1:
            return super()._get_train_sampler(train_dataset)
        together = self.args.train_batch_size * self.args.world_size
        self._order = FilledSampler(self.train_dataset, int(self.args.data_seed or 0), together)
        return self._order

    def on_epoch_begin(self, *args: Any, **kwargs: Any) -> None:
        """Set the order of an epoch. After a resume within one, accelerate does not reach the sampler."""
        if self._order is not None:
            self._order.set_epoch(int(self.state.epoch or 0))

    def _prepared(self, rows: list[Any]) -> dict[str, Any]:
        """Return a batch with its targets. They are copied to the device together with it."""
        batch = self.collate(rows)
        dtype = self.attached.head.linear.weight.dtype
        if dtype != torch.float64 and (self.args.bf16 or self.args.fp16):
            dtype = torch.bfloat16 if self.args.bf16 else torch.float16
        targets = self.attached.targets_of(batch["labels"], device=self.args.device, dtype=dtype)
        if targets is None:
            return batch
        return {**batch, TARGETS: targets}

    # A batch becomes a loss: the sum over its units, divided by the weight of all units of the step.

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        """Tell the objective how far the training is, and start the clock. Validation and saving are not counted."""
        self.attached.objective.begin_step(self.state.global_step, self.state.max_steps)
        self._step_began = time.monotonic()

    def _get_num_items_in_batch(self, batch_samples: list[Mapping[str, Tensor]], device: torch.device) -> Any:
        # The objective defines its units. No tensor of floating point, which mixed precision would round.
        if not batch_samples:
            return None
        weights = [self.attached.objective.total_weight(batch) for batch in batch_samples]
        total = torch.stack([torch.as_tensor(w) for w in weights]).sum().to(device)
        if self.args.world_size > 1:
            total = self.accelerator.gather(total).sum()  # type: ignore[union-attr]
        if total.is_floating_point():
            return float(total) or 1.0
        return torch.where(total > 0, total, torch.ones_like(total))

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the divided loss of a micro-batch; see `AttachedObjective.forward`."""
        inputs = dict(inputs)
        rows = inputs.pop(ROWS, None)
        if model.training and rows is not None:
            self._rows.append(rows)
        self.attached.ready = inputs.pop(TARGETS, None)
        # As arguments of the model, numbers of the corpus would be rounded, too.
        columns = [name for name, value in inputs.items() if value.is_floating_point()]
        self.attached.columns = {name: inputs.pop(name) for name in columns}
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    # The gradient is complete: the weights move only if all sums are finite.

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Sum the parts of this step's micro-batches. Raises NonFiniteLossError before the weights change."""
        window, self.attached.window = self.attached.window, []
        rows, self._rows = self._rows, []
        names = list(window[0])
        # Sums are float64; on a device without it, they are added up on the CPU.
        sums_MP = torch.stack([torch.stack([with_float64(sums[name]).double() for name in names]) for sums in window])
        total_P = sums_MP.sum(0)
        if self.args.world_size > 1:
            # Reduce before the check, so that a non-finite value in one process stops all of them.
            total_P = self.accelerator.reduce(total_P, "sum")
        totals = dict(zip(names, total_P.tolist(), strict=True))  # type: ignore[union-attr]
        bad = [name for name, total in totals.items() if not math.isfinite(total)]
        if bad:
            part = "loss" if "loss" in bad else bad[0]
            where = " of another process"
            for row_B, sums_P in zip(rows, sums_MP, strict=False):
                if not sums_P.isfinite().all():
                    where = f" of training rows {row_B.tolist()}"
                    break
            raise self._diverged(part, totals[part], self.state.global_step + 1, f", in the micro-batch{where}")
        tokens = max(totals["tokens"], 1.0)
        self._parts = {}
        for name, total in totals.items():
            if name != "tokens" and not name.endswith("_count"):
                total /= tokens
            self._parts[name] = total
        if WEIGHT in totals:
            self._parts["loss"] = totals["loss"] / (totals[WEIGHT] or 1.0)

    def _diverged(self, what: str, value: float, step: int, where: str = "") -> NonFiniteLossError:
        kept = "No checkpoint was due yet."
        if any(Path(str(self.args.output_dir)).glob("checkpoint-*")):
            kept = f"The last good checkpoint is kept in {self.args.output_dir}."
        number = "NaN" if math.isnan(value) else "infinite"
        return NonFiniteLossError(
            f"The {what} became {number} at step {step}{where}. {kept} Try a lower --set recipe.learning_rate, --set "
            "recipe.clip=1, or --set recipe.precision=float32."
        )

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the objective's parts, seconds and tokens per second to the log of a training step.

        Raises NonFiniteLossError for a non-finite validation loss, before the weights are saved.
        """
        for name in KEPT.values():
            value = logs.get(name, 0.0)
            if not math.isfinite(value):
                raise self._diverged("validation loss", value, self.state.global_step)
        if "loss" in logs and self._parts:
            seconds = time.monotonic() - self._step_began
            speed = self._parts["tokens"] / max(seconds, 1e-9)
            logs.update(self._parts, seconds=seconds, tokens_per_second=speed)
        super().log(logs, start_time)
        if self.is_world_process_zero():
            self._on_step({**logs, "step": self.state.global_step, "steps": self.state.max_steps})

    # After a step or an epoch: validation, and a checkpoint.

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._stopping = self._any_process(self.stop_requested)
        due = self._any_process(time.monotonic() - self._saved > SAVE_SECONDS)
        # At the end of an epoch, validate first: a resumed training would otherwise never have the result.
        ends_epoch = control.should_training_stop or float(state.epoch).is_integer()
        if (self._stopping or due) and not ends_epoch:
            control.should_save = True

    def _any_process(self, value: bool) -> bool:
        """Return whether `value` is true in any process. All must then act together, or they would deadlock."""
        if self.args.world_size == 1:
            return value
        largest = torch.tensor(float(value), device=self.args.device)
        torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX)
        return largest.item() > 0

    def on_evaluate(self, *args: Any, **kwargs: Any) -> None:
        self._stopping = self._any_process(self.stop_requested)

    def prediction_step(
        self, model: Any, inputs: dict[str, Any], prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> Any:
        """Return sums per sequence: validation losses then do not depend on batches or devices."""
        with torch.no_grad():
            loss = self.compute_loss(model, self._prepare_inputs(inputs))
        sums = self.attached.evaluated
        assert sums is not None
        return loss.detach(), tuple(sums), sums.tokens_B

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        if self.is_world_process_zero():
            seal_checkpoint(self._checkpoint(self.state.global_step), self.attached.objective, self._log)
        self.accelerator.wait_for_everyone()

    def _checkpoint(self, step: int) -> Path:
        return Path(str(self.args.output_dir)) / f"checkpoint-{step}"

    def on_save(self, *args: Any, **kwargs: Any) -> None:
        self._saved = time.monotonic()
        if self._stopping:
            raise KeyboardInterrupt

    def _load_best_model(self) -> None:
        # If the best checkpoint is missing, the Trainer would keep the last weights without an error.
        verify_checkpoint(Path(str(self.state.best_model_checkpoint)))
        super()._load_best_model()


class ShardedTrainer(Sharded, ObjectiveTrainer):
    """Trains a model that FSDP2 shards."""


class ZeroTrainer(Zero, ObjectiveTrainer):
    """Trains a model with DeepSpeed."""


def validation_losses(predictions: EvalPrediction) -> dict[str, float]:
    """Return validation MLE and the objective's loss in nats per token, averaged over the tokens of the split."""
    mle_B, loss_B, tokens_B = (np.asarray(p, dtype=np.float64) for p in predictions.predictions)
    tokens = max(float(tokens_B.sum()), 1.0)
    return {"mle": float(mle_B.sum() / tokens), "objective": float(loss_B.sum() / tokens)}


@contextmanager
def _interruptible(trainer: ObjectiveTrainer) -> Iterator[None]:
    """Handle Ctrl-C, SIGTERM (a scheduler) and SIGHUP (a lost terminal): stop after this step; the second time, now."""

    def request(signum: int, frame: Any) -> None:
        if trainer.stop_requested:
            raise KeyboardInterrupt
        trainer.stop_requested = True
        with suppress(OSError):  # the terminal may be gone
            # Not `print`: the handler may run inside another print, which is not reentrant.
            os.write(2, b"\nStopping after this step, with a checkpoint; once more stops at once.\n")

    stops = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores it
        stops.append(signal.SIGHUP)
    try:
        before = {number: signal.signal(number, request) for number in stops}
    except ValueError:  # only the main thread can handle signals
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _summarise(job: Training, trainer: ObjectiveTrainer, steps: int, peak: int) -> TrainingSummary:
    tokens = 0.0
    seconds = 0.0
    validated: dict[int, float] = {}
    for text in (job.folder / LOG).read_text().splitlines():
        line = json.loads(text)
        tokens += line.get("tokens", 0)
        seconds += line.get("seconds", 0.0)
        if "eval_mle" in line:
            validated[line["step"]] = line["eval_mle"]
    selected = trainer.state.best_global_step or steps  # by `select` last, none is the best
    cost = getattr(job.objective, "cost_embedding", None)
    return TrainingSummary(
        steps=steps,
        tokens=int(tokens),
        seconds=seconds,
        peak_memory_bytes=peak,
        selected_by=job.recipe.select,
        selected_step=selected,
        validation_mle=validated.get(selected),
        zero_cost_rows=0 if cost is None else cost.zero_rows,
        accumulation=job.recipe.accumulation if job.split else None,
    )
