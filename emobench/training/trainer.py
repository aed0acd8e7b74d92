"""The Trainer for an attached objective: one global division, exact validation MLE, sealed checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import EvalPrediction

from emobench.core.errors import NonFiniteLossError
from emobench.data.packing import WEIGHTS
from emobench.objectives.engine.job import WEIGHT
from emobench.training.attach import AttachedObjective
from emobench.training.checkpoints import seal_checkpoint, verify_checkpoint
from emobench.training.shares import FilledRows, FilledSampler

ROWS = "row"
"""The batch column with the index of each row in the training data. Error messages about a loss name it."""
TARGETS = "targets"
"""What the collator adds to a batch: its targets, prepared on the host."""


class ObjectiveTrainer(Trainer):
    """Trains a model with an attached objective. The loss is divided by the objective's total weight, which is summed
    over all devices and micro-batches.

    Each checkpoint contains a copy of the `log`, if one is given.
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
        self.add_callback(_AroundStep(self))

    def _prepared(self, rows: list[Any]) -> dict[str, Any]:
        """Return a batch with its targets. They are copied to the device together with it."""
        batch = self.collate(rows)
        dtype = self.attached.head.linear.weight.dtype
        if dtype != torch.float64 and (self.args.bf16 or self.args.fp16):
            dtype = torch.bfloat16 if self.args.bf16 else torch.float16
        targets = self.attached.targets_of(batch["labels"], device=self.args.device, dtype=dtype)
        return batch if targets is None else {**batch, TARGETS: targets}

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        if self.args.world_size == 1:
            return super()._get_train_sampler(train_dataset)
        together = self.args.train_batch_size * self.args.world_size
        self._order = FilledSampler(self.train_dataset, int(self.args.data_seed or 0), together)
        return self._order

    def begin_epoch(self, epoch: int) -> None:
        """Set the order of an epoch. After a resume within one, accelerate does not reach the sampler."""
        if self._order is not None:
            self._order.set_epoch(epoch)

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
        self.attached.weights = inputs.pop(WEIGHTS, None)  # as an argument of the model, they would be rounded too
        if self.args.torch_compile:
            with self.accelerator.autocast():  # the size of the chunks depends on the dtype of the products
                self.attached.prepare(inputs, num_items_in_batch, training=model.training)
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def find_best(self) -> None:
        """Set the current path of the best checkpoint after a resume: the folder may have been moved."""
        if self.args.load_best_model_at_end and self.state.best_global_step:
            self.state.best_model_checkpoint = str(self._checkpoint(self.state.best_global_step))

    def _load_best_model(self) -> None:
        # If the best checkpoint is missing, the Trainer would keep the last weights without an error.
        verify_checkpoint(Path(str(self.state.best_model_checkpoint)))
        super()._load_best_model()

    def _checkpoint(self, step: int) -> Path:
        return Path(str(self.args.output_dir)) / f"checkpoint-{step}"

    def start_clock(self) -> None:
        """Start the clock of a step. Validation and saving happen between steps and are not counted."""
        self._step_began = time.monotonic()

    def before_step(self) -> None:
        """Sum the parts of this step's micro-batches. Raises NonFiniteLossError before the weights change."""
        window, self.attached.window = self.attached.window, []
        rows, self._rows = self._rows, []
        names = list(window[0])
        sums_MP = torch.stack([torch.stack([part[n].double() for n in names]) for part in window])
        total_P = sums_MP.sum(0)
        if self.args.world_size > 1:
            # Reduce before the check, so that a non-finite value in one process stops all of them.
            total_P = self.accelerator.reduce(total_P, "sum")
        totals = dict(zip(names, total_P.tolist(), strict=True))  # type: ignore[union-attr]
        if _bad_names(totals):
            micro_batches = [dict(zip(names, sums_P, strict=True)) for sums_P in sums_MP.tolist()]
            raise NonFiniteLossError(self._not_finite(totals, micro_batches, [row_B.tolist() for row_B in rows]))
        self._parts = _means(totals)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the objective's parts, seconds and tokens per second to the log of a training step.

        Raises NonFiniteLossError for a non-finite validation loss, before the weights are saved.
        """
        bad = _bad_names({n: logs.get(n, 0.0) for n in ("eval_mle", "eval_objective")})
        if bad:
            message = f"The validation loss became {_not_a_number(logs[bad[0]])} at step {self.state.global_step}"
            raise NonFiniteLossError(f"{message}. {self._advice()}")
        if "loss" in logs and self._parts:
            seconds = time.monotonic() - self._step_began
            speed = self._parts["tokens"] / max(seconds, 1e-9)
            logs.update(self._parts, seconds=seconds, tokens_per_second=speed)
        super().log(logs, start_time)
        if self.is_world_process_zero():
            self._on_step({**logs, "step": self.state.global_step, "steps": self.state.max_steps})

    def prediction_step(
        self, model: Any, inputs: dict[str, Any], prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> Any:
        """Return sums per sequence: validation losses then do not depend on batches or devices."""
        with torch.no_grad():
            loss = self.compute_loss(model, self._prepare_inputs(inputs))
        sums = self.attached.evaluated
        assert sums is not None
        return loss.detach(), (sums.mle_B, sums.loss_B, sums.tokens_B), sums.tokens_B

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        if self.is_world_process_zero():
            seal_checkpoint(self._checkpoint(self.state.global_step), self.attached.objective, self._log)
        self.accelerator.wait_for_everyone()

    def _not_finite(
        self, totals: Mapping[str, float], micro_batches: list[dict[str, float]], rows: list[list[int]]
    ) -> str:
        step = self.state.global_step + 1
        micro = next((i for i, sums in enumerate(micro_batches) if _bad_names(sums)), None)
        sums = totals if micro is None else micro_batches[micro]
        bad = _bad_names(sums)
        what = "loss" if "loss" in bad else bad[0]
        where = " of another process" if micro is None else f" of training rows {rows[micro]}" if rows else ""
        means = ", ".join(f"{n} = {v / max(sums['tokens'], 1):g}" for n, v in sums.items() if n != "tokens")
        return (
            f"The {what} became {_not_a_number(sums[what])} at step {step}, in the micro-batch{where} "
            f"(means over its tokens: {means}). {self._advice()}"
        )

    def _advice(self) -> str:
        kept = any(Path(str(self.args.output_dir)).glob("checkpoint-*"))
        where = f"The last good checkpoint is kept in {self.args.output_dir}." if kept else "No checkpoint was due yet."
        return (
            f"{where} Try a lower --set recipe.learning_rate, --set recipe.clip=1, or --set recipe.precision=float32."
        )


class _AroundStep(TrainerCallback):
    def __init__(self, trainer: ObjectiveTrainer) -> None:
        self._trainer = trainer

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self._trainer.find_best()

    def on_epoch_begin(self, args: Any, state: Any, *others: Any, **kwargs: Any) -> None:
        self._trainer.begin_epoch(int(state.epoch or 0))

    def on_step_begin(self, args: Any, state: Any, *others: Any, **kwargs: Any) -> None:
        self._trainer.attached.objective.begin_step(state.global_step, state.max_steps)
        self._trainer.start_clock()

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        self._trainer.before_step()


class StopOnRequest(TrainerCallback):
    """After Ctrl-C: finish the step, save a checkpoint and stop. All processes stop at the same step."""

    def __init__(self) -> None:
        self.requested = False
        self._agreed = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._agreed = _any_process(args, self.requested)
        # At the end of an epoch, validate first: a resumed training would otherwise never have the result.
        if self._agreed and not _ends_epoch(state, control):
            control.should_save = True

    def on_evaluate(self, args: Any, *others: Any, **kwargs: Any) -> None:
        self._agreed = _any_process(args, self.requested)

    def on_save(self, *args: Any, **kwargs: Any) -> None:
        if self._agreed:
            raise KeyboardInterrupt


class SaveRegularly(TrainerCallback):
    """Saves a checkpoint every ten minutes, so that a killed process loses at most that. Results do not change."""

    def __init__(self, seconds: float = 600.0) -> None:
        self._seconds = seconds
        self._saved = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        due = _any_process(args, time.monotonic() - self._saved > self._seconds)
        if due and not _ends_epoch(state, control):
            control.should_save = True

    def on_save(self, *args: Any, **kwargs: Any) -> None:
        self._saved = time.monotonic()


def _ends_epoch(state: Any, control: Any) -> bool:
    return control.should_training_stop or float(state.epoch).is_integer()


def _any_process(args: Any, value: bool) -> bool:
    """Return whether `value` is true in any process. All processes must then act together, or they would deadlock."""
    if args.world_size == 1:
        return value
    largest = torch.tensor(float(value), device=args.device)
    torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX)
    return largest.item() > 0


def validation_losses(predictions: EvalPrediction) -> dict[str, float]:
    """Return validation MLE and the objective's loss in nats per token, averaged over the tokens of the split."""
    mle_B, loss_B, tokens_B = (np.asarray(p, dtype=np.float64) for p in predictions.predictions)
    tokens = max(float(tokens_B.sum()), 1.0)
    return {"mle": float(mle_B.sum() / tokens), "objective": float(loss_B.sum() / tokens)}


def _means(totals: Mapping[str, float]) -> dict[str, float]:
    tokens = max(totals["tokens"], 1.0)
    means = {n: v if n == "tokens" or n.endswith("_count") else v / tokens for n, v in totals.items()}
    return means if WEIGHT not in totals else {**means, "loss": totals["loss"] / (totals[WEIGHT] or 1.0)}


def _bad_names(values: Mapping[str, float]) -> list[str]:
    return [name for name, value in values.items() if not math.isfinite(value)]


def _not_a_number(value: float) -> str:
    return "NaN" if math.isnan(value) else "infinite"
