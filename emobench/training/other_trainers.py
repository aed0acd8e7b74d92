"""An objective that is attached to a model which another trainer trains: transformers', TRL's, or a loop of one's own.

Legend: B sequences, T positions.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.utils.generic import ModelOutput

from emobench.core.errors import ConfigError, ModelError
from emobench.models.head import Head, base_model, unwrapped
from emobench.models.suitability import refuse_auxiliary_loss
from emobench.objectives import GREEDY, IGNORED, Objective
from emobench.training.attach import LOSS, divisor
from emobench.training.attach import attach as attach_objective
from emobench.training.attach import detach as detach_objective

KEPT = 1024
"""Micro-batches whose parts are kept until `parts` is read."""
PER_TOKEN = frozenset({"entropy", GREEDY})
"""Statistics that SFTTrainer logs."""
NLL = "nll"
"""The `loss_type` with which SFTTrainer adds up the losses of the tokens as they are."""


@dataclass
class PerTokenOutput(ModelOutput):
    """The output of a model's forward for SFTTrainer; (B, T - 1) each, 0 at labels that are no targets."""

    loss: Tensor | None = None
    log_probs: Tensor | None = None
    entropy: Tensor | None = None
    is_top1: Tensor | None = None
    label_mask: Tensor | None = None


_ATTACHED: WeakKeyDictionary[nn.Module, Objective] = WeakKeyDictionary()
_GIVEN: WeakSet[nn.Module] = WeakSet()
"""Models with an objective: their trainers divide by the target tokens."""


@dataclass(frozen=True)
class LossFunction:
    """A `compute_loss_func` of transformers' Trainer: `loss(logits, labels, num_items_in_batch=...)`."""

    loss: Callable[..., Tensor]
    model: nn.Module

    def __call__(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | float | None = None) -> Tensor:
        """Return the loss of a model's outputs. Raises ConfigError without labels."""
        if labels is None:
            raise ConfigError(
                "The batch has no `labels`, which the loss needs; add them, such as by "
                "DataCollatorForLanguageModeling(tokenizer, mlm=False)."
            )
        refuse_auxiliary_loss(self.model, outputs.get("aux_loss") is not None)
        logits_BTV = outputs["logits"]
        added = logits_BTV.shape[1] - labels.shape[1]
        if added > 0:
            raise ConfigError(
                f"The logits have {added} positions more than the labels, as with the virtual tokens of prompt tuning; "
                "use emobench.attach(model, ...), which leaves them out."
            )
        return self.loss(logits_BTV, labels, num_items_in_batch=num_items_in_batch)


def count_targets_of(model: nn.Module) -> None:
    """Let Trainers of transformers, made before or after, divide the loss of a model by its target tokens."""
    _GIVEN.add(model)


def _count_targets(trainer: Any, batch_samples: list[Any], device: torch.device) -> Any:
    """Count the target tokens of a step, in place of `Trainer._get_num_items_in_batch`.

    No position predicts a row's first label. The Trainer counts it for classes without a loss type that it knows, such
    as GPT-2's, and their loss would be too small by a factor of (T - 1) / T. Classes whose forward takes no further
    arguments get no number from the Trainer, which would average the means of micro-batches.
    """
    model = trainer.accelerator.unwrap_model(trainer.model)
    bare = unwrapped(model)
    function = trainer.compute_loss_func
    given = bare in _GIVEN or isinstance(function, LossFunction)
    if bare in _ATTACHED or (given and function is not None):
        _refuse_other_terms(trainer.args)
    if bare in _ATTACHED:
        trainer.model_accepts_loss_kwargs = True
    if given:
        trainer._loss_shifts_labels = False
        # peft's prompt tuning puts tokens before a row, which predict its first label. Keys and values are no tokens.
        config = getattr(model, "active_peft_config", None)
        cached = ("PREFIX_TUNING", "CARTRIDGE")
        if config is None or not config.is_prompt_learning or config.peft_type in cached:
            batch_samples = [_without_first_labels(batch) for batch in batch_samples]
    return _COUNT(trainer, batch_samples, device)


_COUNT = Trainer._get_num_items_in_batch
Trainer._get_num_items_in_batch = _count_targets  # type: ignore[method-assign]


def _without_first_labels(batch: Any) -> Any:
    if "shift_labels" in batch:
        raise ModelError("`shift_labels` (context or sequence parallelism) is not supported by emobench's losses.")
    if "labels" not in batch:
        return batch
    return {**batch, "labels": batch["labels"][..., 1:]}


def _refuse_other_terms(args: Any) -> None:
    """Raise ConfigError for a trainer that would change the loss of an objective."""
    if args.label_smoothing_factor:
        raise ConfigError(
            f"`label_smoothing_factor` is {args.label_smoothing_factor}, which is no part of the objective's loss; set "
            "it to 0, or train with the objective `label-smoothing`."
        )
    kind = getattr(args, "loss_type", NLL)
    if kind != NLL:
        raise ConfigError(
            f"`loss_type` is '{kind}', with which SFTTrainer would change the objective's loss; set it to '{NLL}', and "
            "attach the objective that you want."
        )
    if args.n_gpu > 1:
        raise ConfigError(
            f"The trainer would copy the model to {args.n_gpu} GPUs in one process (DataParallel), which divides the "
            "loss otherwise. Start it with `torchrun --nproc-per-node`, or set CUDA_VISIBLE_DEVICES=0."
        )


def refuse_attached(model: Any) -> None:
    """Raise ConfigError for a model that has an objective attached."""
    if model in _ATTACHED:
        raise ConfigError(
            f"{type(model).__name__} has {_ATTACHED[model]} attached; first call detach() of what emobench.attach gave."
        )


class Attached(TrainerCallback):
    """An objective that is attached to a model. Add it to a Trainer's callbacks where its weights have a schedule."""

    def __init__(self, model: Any, chosen: Objective, head: Head) -> None:
        self.objective = chosen
        self._model, self._head = model, head
        self._previous = model.forward
        self._patched = "forward" in vars(model)
        self._inside = False
        self._begun = False
        self._uncompiled: Any = torch.compiler.disable(self._trained)  # the chunks depend on the values of the labels
        self._attached = attach_objective(model, chosen, head)
        self._attached.window = deque(maxlen=KEPT)
        model.forward = types.MethodType(self._forward_of(type(model)), model)
        self._guard = base_model(model).register_forward_pre_hook(self._refuse_other_losses)
        _ATTACHED[model] = chosen
        count_targets_of(model)

    @property
    def parts(self) -> dict[str, float]:
        """The parts of the loss: means over the target tokens of the micro-batches since the last time."""
        sums: dict[str, float] = {}
        for micro_batch in self._attached.window:
            for name, value in micro_batch.items():
                sums[name] = sums.get(name, 0.0) + float(value)
        self._attached.window.clear()
        tokens = max(sums.pop("tokens", 0.0), 1.0)
        return {name: total / tokens for name, total in sums.items()}

    def begin_step(self, step: int, total_steps: int) -> None:
        """Set the progress of the training, before each optimizer step, for objectives with a schedule."""
        self._begun = True
        self.objective.begin_step(step, total_steps)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.begin_step(state.global_step, state.max_steps)

    def detach(self) -> None:
        """Give the model its own loss back."""
        self._guard.remove()
        _ATTACHED.pop(self._model, None)
        detach_objective(self._model, self._head)
        if self._patched:
            self._model.forward = self._previous

    def _forward_of(self, cls: type) -> Callable[..., Any]:
        """Return a forward that trains by the objective, and otherwise runs the model's own."""
        names = list(inspect.signature(cls.forward).parameters)[1:]

        @functools.wraps(cls.forward)
        def forward(model: Any, *args: Any, fused_lm_head: bool = False, **named: Any) -> Any:
            given = dict(zip(names, args, strict=False)) | named
            if given.get("labels") is not None and model.training and torch.is_grad_enabled():
                return self._uncompiled(model, given, per_token=fused_lm_head)
            # A copy of the model must not run the forward of this one.
            previous = self._previous if model is self._model else types.MethodType(cls.forward, model)
            if fused_lm_head:
                named["fused_lm_head"] = True
            outputs = previous(*args, **named)
            if given.get("labels") is not None and isinstance(outputs[0], Tensor) and outputs[0].requires_grad:
                outputs[0].register_hook(self._refuse_backward)
            return outputs

        return forward

    def _trained(self, model: Any, given: dict[str, Any], *, per_token: bool) -> Any:
        if given.get("shift_labels") is not None:
            raise ModelError("`shift_labels` (context or sequence parallelism) is not supported by emobench.attach.")
        if self.objective.scheduled and not self._begun:
            raise ConfigError(
                f"{self.objective} has a schedule; add what emobench.attach returned to the trainer's callbacks, or "
                "call its begin_step(step, total_steps) before each step."
            )
        labels_BT = given["labels"]
        require_ids(labels_BT)
        inputs = given.get("input_ids")
        expected = given["inputs_embeds"].shape[:2] if inputs is None else inputs.shape
        if labels_BT.shape != expected:
            raise ConfigError(
                f"The labels have the shape {tuple(labels_BT.shape)}; expected {tuple(expected)}, (B, T)."
            )
        ignored = given.pop("ignore_index", IGNORED)
        if ignored != IGNORED:
            raise ModelError(f"`ignore_index` is {ignored}; give labels of {IGNORED} to tokens that are no targets.")
        count = given.pop("num_items_in_batch", None)
        if count is not None:
            count = divisor(count, 0)
        batch = {k: v for k, v in given.items() if v is not None and k not in ("use_cache", "return_dict")}
        self._inside = True
        try:
            self._attached.report = PER_TOKEN if per_token else frozenset()
            loss = self._attached.forward(model, batch, count)
        finally:
            self._inside = False
        if per_token:
            return self._per_token(loss, batch["labels"], count)
        return CausalLMOutputWithPast(loss=loss)

    def _per_token(self, loss: Tensor, labels_BT: Tensor, count: Tensor | float | None) -> Any:
        """Return the output for SFTTrainer. It sums `log_probs`, so they are the negative losses of the tokens."""
        mask_BT = labels_BT[:, 1:] != IGNORED
        reported = {name: value.view(labels_BT.shape)[:, :-1] for name, value in self._attached.reported.items()}
        losses_BT = reported[LOSS].clone()
        total = loss * divisor(count, int(mask_BT.sum()))
        losses_BT[0, 0] += total - total.detach()  # of value 0, with the gradient of the sum
        top_BT = reported[GREEDY] * mask_BT
        return PerTokenOutput(loss, -losses_BT, reported["entropy"], top_BT, mask_BT)

    def _refuse_backward(self, _: Tensor) -> None:
        """Refuse the backward pass of the model's own loss: the model is in eval mode by mistake."""
        raise ModelError(
            f"The model is in eval mode, as from_pretrained returns it, and so computed its own loss and not "
            f"{self.objective}. Call model.train() before the training; detach() restores the model's own loss."
        )

    def _refuse_other_losses(self, module: Any, *_: Any) -> None:
        if module.training and torch.is_grad_enabled() and not self._inside:
            raise ModelError(
                f"{type(self._model).__name__} was called in training without its attached loss, {self.objective}. If "
                "the batch has no `labels`, add them, such as by DataCollatorForLanguageModeling(tokenizer, "
                "mlm=False). Otherwise this trainer computes a loss by itself: with TRL's SFTTrainer, attach to "
                "`trainer.model` after the trainer was made; with others, use emobench.compute_loss_func, or "
                "emobench.objective in a compute_loss of your own."
            )


def require_ids(labels: Tensor) -> None:
    """Raise ConfigError for labels that are no integers."""
    if labels.is_floating_point():
        raise ConfigError(f"The labels are {labels.dtype}; expected integers, the ids of tokens.")
