"""Train a model with an objective, a recipe and a seed. The result is a plain Hugging Face folder.

FOLDER/model/          what AutoModelForCausalLM.from_pretrained loads, with its tokenizer
FOLDER/log.jsonl       each step: loss, its parts, gradient norm, learning rate, tokens per second; each validation
FOLDER/training.json   the summary: the selected step, tokens, seconds, memory
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PrinterCallback, TrainingArguments, set_seed

from emobench.core.errors import ConfigError, StorageError
from emobench.core.seals import SEAL, find_damage, write_seal
from emobench.core.settings import OPTIONAL, canonical_json
from emobench.data.oracle.language import HiddenMarkovLanguage
from emobench.data.packing import IGNORE
from emobench.models.head import Head, probe_head
from emobench.models.own_loss import require_next_token_loss
from emobench.objectives import CostEmbedding, ModelObjective, Objective
from emobench.objectives.engine.linear import rows_for
from emobench.training.adapters import with_adapters
from emobench.training.attach import attach
from emobench.training.checkpoints import last_checkpoint, restore_objective
from emobench.training.context import TrainingContext
from emobench.training.curves import LOG
from emobench.training.digests import weight_digests
from emobench.training.export import export
from emobench.training.liger import liger_body, require_liger
from emobench.training.memory import keepable_bytes, peak_bytes, reset_peak
from emobench.training.packed import require_separate_conversations
from emobench.training.recipe import Recipe, optimizer_of, require_a_rate, total_steps, warmup_steps
from emobench.training.sharded import ShardedTrainer, uses_fsdp
from emobench.training.trackers import Tracking, tracker_arguments
from emobench.training.trainer import ObjectiveTrainer, SaveRegularly, StopOnRequest
from emobench.training.zero import ALONE, ZeroTrainer, join_without_gpu, uses_deepspeed, writer_of

RESULT, CHECKPOINTS = "training.json", "checkpoints"
KEPT = {"mle": "eval_mle", "objective": "eval_objective"}


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
    """Whether the recipe has smaller micro-batches than asked for, because of the memory; the summary then says so."""


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
    """Micro-batches of a step on a device, where those of the recipe did not fit the memory."""
    weights: Mapping[str, Mapping[str, str]] | None = field(default=None, metadata=OPTIONAL)
    """`weight_digests` of the model before ("base") and after ("trained"). None in processes that do not write."""


def train(job: Training) -> TrainingSummary:
    """Train, or continue from the last checkpoint in the folder, and write the selected weights.

    If the folder contains a finished training with a valid seal, return its summary.
    """
    _refuse_unusable(job)
    job = replace(job, recipe=job.recipe.resolved(job.device, str(job.model.dtype).removeprefix("torch.")))
    result = job.folder / RESULT
    if (job.folder / SEAL).exists() and find_damage(job.folder, full=True, leave_out=CHECKPOINTS) is None:
        shutil.rmtree(job.folder / CHECKPOINTS, ignore_errors=True)  # a killed process may have left them
        return TrainingSummary(**json.loads(result.read_text()))
    with nullcontext() if job.tracking is None else job.tracking.followed():
        return _train(job, result)


def _train(job: Training, result: Path) -> TrainingSummary:
    set_seed(job.seed)
    recipe = job.recipe
    base = weight_digests(job.model) if os.environ.get("RANK", "0") == "0" else {}
    head = probe_head(job.model, job.tokenizer)
    checkpoints = job.folder / CHECKPOINTS
    checkpoint = last_checkpoint(checkpoints, job.note)
    if checkpoint is not None:
        job.note(f"  going on from the checkpoint of step {checkpoint.name.split('-')[1]}")
    if recipe.packing == "conversations":
        require_separate_conversations(job.model)
    set_up(job, head, checkpoint)
    attached = attach(job.model, job.objective, head, engine=recipe.engine, evaluate_loss=recipe.select == "objective")
    model = job.model if recipe.adapters is None else with_adapters(job.model, recipe.adapters)
    job.folder.mkdir(parents=True, exist_ok=True)
    log = job.folder / LOG
    stop = StopOnRequest()

    def on_step(values: dict[str, float]) -> None:
        with log.open("a") as file:
            file.write(json.dumps(values) + "\n")
        if job.progress is not None:
            job.progress(values)

    made: Any = ShardedTrainer if uses_fsdp() else ObjectiveTrainer
    if uses_deepspeed():
        made = partial(ZeroTrainer, precision=recipe.precision)
    trainer: ObjectiveTrainer = made(
        model=model,
        args=training_arguments(job, checkpoints),
        train_dataset=job.train,
        eval_dataset=job.validation,
        data_collator=job.collate,
        callbacks=[stop, SaveRegularly()],
        attached=attached,
        on_step=on_step,
        log=log,
    )
    trainer.remove_callback(PrinterCallback)
    if job.tracking is not None:
        trainer.callback_handler.callbacks = job.tracking.guard(trainer.callback_handler.callbacks)
    if checkpoint is not None:
        _refuse_other_checkpoint(checkpoint, trainer)
    main = trainer.is_world_process_zero()
    if main:
        # The log of the checkpoint: the steps after it are trained again.
        log.write_bytes(b"" if checkpoint is None else (checkpoint / LOG).read_bytes())
    reset_peak(trainer.args.device)
    with _interruptible(stop), liger_body(job.model) if recipe.liger else nullcontext():
        steps = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None).global_step
    # Wait until every process has loaded the best weights and read the log: the main process deletes files below.
    trainer.accelerator.wait_for_everyone()
    summary = _summarise(job, trainer, steps)
    written = export(trainer, job.model, head, job.tokenizer, job.folder / "model")
    if main:
        summary = replace(summary, weights={"base": base, "trained": weight_digests(written)})
        result.write_text(canonical_json(summary) + "\n")
        write_seal(job.folder, leave_out=CHECKPOINTS)
        shutil.rmtree(checkpoints, ignore_errors=True)
    trainer.accelerator.wait_for_everyone()
    return summary


def training_arguments(job: Training, folder: Path) -> TrainingArguments:
    """Return the Trainer's arguments for a recipe. All others keep the Trainer's defaults."""
    recipe = job.recipe
    micro = recipe.micro_batch(torch_processes())
    schedules = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}
    steps = total_steps(recipe, len(job.train))
    zero = uses_deepspeed()
    configured = job.device == "cpu" and zero
    if configured:
        join_without_gpu()
    # With torch_compile, transformers lets float32 products of the whole process round to TF32.
    precise = torch.backends.fp32_precision  # type: ignore[attr-defined]
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=recipe.epochs,
        per_device_train_batch_size=micro,
        per_device_eval_batch_size=micro,
        gradient_accumulation_steps=recipe.accumulation,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type=schedules[recipe.schedule],
        warmup_steps=warmup_steps(recipe, steps),
        weight_decay=recipe.weight_decay,
        max_grad_norm=recipe.clip,
        optim=optimizer_of(job.device, recipe.optimizer),
        **(_checkpointing() if recipe.gradient_checkpointing else {}),
        seed=job.seed,
        data_seed=job.seed,
        bf16=recipe.precision == "bfloat16" and not zero,  # ZeroTrainer sets them
        fp16=recipe.precision == "float16" and not zero,
        use_cpu=job.device == "cpu" and not configured,
        torch_compile=recipe.compile,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=recipe.select != "last",
        metric_for_best_model=KEPT.get(recipe.select),
        greater_is_better=False,
        logging_steps=1,
        logging_nan_inf_filter=False,
        **tracker_arguments(job.tracking),
        remove_unused_columns=False,
        label_names=["labels"],
        # Copies from pinned memory then go on beside the host.
        accelerator_config={"non_blocking": job.device != "cpu", "use_configured_state": configured},
        disable_tqdm=True,
        dataloader_num_workers=0,
        ddp_find_unused_parameters=False,
    )
    torch.backends.fp32_precision = precise  # type: ignore[attr-defined]
    if not zero:  # else ACCELERATE_MIXED_PRECISION of the environment would decide
        arguments.mixed_precision = "fp16" if arguments.fp16 else "bf16" if arguments.bf16 else "no"
    # One GPU per process; use torchrun for more. DataParallel would copy the model without its attached objective.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments


def _checkpointing() -> dict[str, Any]:
    """Return the arguments of gradient checkpointing, which newer transformers calls activation checkpointing."""
    new = "activation_checkpointing" in TrainingArguments.__dataclass_fields__
    name = "activation_checkpointing" if new else "gradient_checkpointing"
    return {name: True, f"{name}_kwargs": {"use_reentrant": False}}


def torch_processes() -> int:
    """Return the number of processes that train together: 1 without torchrun."""
    if torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    return int(os.environ.get("WORLD_SIZE", "1"))


def _refuse_unusable(job: Training) -> None:
    require_a_rate(job.recipe, total_steps(job.recipe, len(job.train)))
    if job.recipe.precision == "float16" and job.device == "cpu":
        # The Trainer would compute in float32 without a warning.
        raise ConfigError("`precision` is float16, which needs a GPU; on a CPU set it to bfloat16 or float32.")
    if job.recipe.gradient_checkpointing and not job.model.supports_gradient_checkpointing:
        raise ConfigError(
            f"`gradient_checkpointing` is true, and {type(job.model).__name__} does not support it; set it to false."
        )
    if job.recipe.liger:
        require_liger(job.model, job.device)
    if job.recipe.select == "objective" and isinstance(job.objective, ModelObjective):
        raise ConfigError(
            f"`select` is objective, but {job.objective.name} has no loss of tokens to validate; set it to mle or last."
        )


def set_up(job: Training, head: Head, checkpoint: Path | None) -> None:
    """Set up the objective from the pre-trained weights. After a resume, restore its state from the checkpoint.

    Raises ModelError for a model whose own loss has a part that the objective would drop.
    """
    require_next_token_loss(job.model)
    steps = total_steps(job.recipe, len(job.train))
    job.objective.setup(
        TrainingContext(head, steps, job.pretrained, job.load_head, job.model, job.load_model, job.known_language)
    )
    _keep_costs(job)
    if checkpoint is not None:
        restore_objective(checkpoint, job.objective)


def _keep_costs(job: Training) -> None:
    """Keep the cost rows of the most frequent target tokens of the training data."""
    cost, recipe = _cost_embedding(job.objective), job.recipe
    if cost is None or recipe.engine == "reference":
        return
    device, head = cost.rows_VE.device, job.model.get_output_embeddings().weight
    dtype = head.dtype if recipe.precision == "float32" else getattr(torch, recipe.precision)
    row_bytes = len(cost) * rows_for(recipe.engine, device, dtype).cost_dtype(dtype).itemsize
    limit = recipe.cost_rows or keepable_bytes(device) // row_bytes
    counts = _target_counts(job.train, len(cost))
    most = np.argsort(-counts, kind="stable")[:limit]
    cost.keep(torch.from_numpy(most[counts[most] > 0]))


def _target_counts(rows: Any, vocabulary: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return how often each token is a target."""
    counts = np.zeros(vocabulary, dtype=np.int64)
    for start in range(0, len(rows), 1000):
        some = range(start, min(start + 1000, len(rows)))
        labels = np.concatenate([np.asarray(rows[i]["labels"])[1:] for i in some])
        counts += np.bincount(labels[labels != IGNORE], minlength=vocabulary)
    return counts


def _cost_embedding(objective: Objective) -> CostEmbedding | None:
    return getattr(objective, "cost_embedding", None)


def _refuse_other_checkpoint(checkpoint: Path, trainer: ObjectiveTrainer) -> None:
    """Refuse to go on from a checkpoint that this trainer cannot read: DeepSpeed's are for it alone."""
    before, now = writer_of(checkpoint), trainer.writer if isinstance(trainer, ZeroTrainer) else ALONE
    if before != now:
        raise StorageError(
            f"{checkpoint} was written {before}, and this training is run {now}; start it as it was started before, or "
            f"delete {checkpoint.parent} to train again."
        )


def _summarise(job: Training, trainer: ObjectiveTrainer, steps: int) -> TrainingSummary:
    lines = [json.loads(line) for line in (job.folder / LOG).read_text().splitlines()]
    validated = {line["step"]: line["eval_mle"] for line in lines if "eval_mle" in line}
    best = trainer.state.best_global_step if job.recipe.select != "last" else steps
    return TrainingSummary(
        steps=steps,
        tokens=int(sum(line.get("tokens", 0) for line in lines)),
        seconds=sum(line.get("seconds", 0.0) for line in lines),
        peak_memory_bytes=peak_bytes(trainer.args.device),
        selected_by=job.recipe.select,
        selected_step=best or steps,
        validation_mle=validated.get(best or steps),
        zero_cost_rows=0 if (cost := _cost_embedding(job.objective)) is None else cost.zero_rows,
        accumulation=job.recipe.accumulation if job.split else None,
    )


@contextmanager
def _interruptible(stop: StopOnRequest) -> Iterator[None]:
    """Handle Ctrl-C, SIGTERM (a scheduler) and SIGHUP (a lost terminal): stop after this step; the second time, now."""

    def request(signum: int, frame: Any) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True
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
