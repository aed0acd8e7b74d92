"""Objectives in a training of one's own: a loss for tensors, and one that is attached to a model.

    loss = emobench.objective("emo", model=model)
    loss(logits, labels).backward()                       # whole logits
    loss.linear(hidden, head_weight, labels).backward()   # never the logits of a whole batch
    emobench.attach(model, "emo")                         # transformers' Trainer, accelerate, TRL's SFTTrainer

An objective is named as on the command line: `emo`, `tailr(gamma=0.2)`, `0.5*emo + 0.5*mle`, `./my_loss.py:MyLoss`.

Legend: B sequences, T positions, N tokens, V vocabulary, D hidden width, C tokens of a chunk.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import TrainerCallback
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.utils.generic import ModelOutput

from emobench.errors import ConfigError, ModelError, PluginError
from emobench.models.catalog import find_model
from emobench.models.head import Head, base_model, probe_head
from emobench.models.load import load_model
from emobench.objectives import (
    GREEDY,
    IGNORED,
    LogitsObjective,
    Objective,
    StatisticsObjective,
    TokenStatistics,
    objective_loss,
)
from emobench.objectives.combination.schedules import Constant
from emobench.objectives.engine.job import frozen_cost
from emobench.objectives.statistics import statistics_from_logits
from emobench.registry.objectives import load_objective
from emobench.training.attach import LOSS, next_labels
from emobench.training.attach import attach as attach_objective
from emobench.training.attach import detach as detach_objective
from emobench.training.context import TrainingContext

ROWS = 256
"""Rows of logits whose loss is computed together, and again in the backward pass: few copies of the logits."""
KEPT = 1024
"""Micro-batches whose parts are kept until `parts` is read."""
PER_TOKEN = frozenset({"entropy", GREEDY})
"""Statistics that SFTTrainer logs."""


@dataclass
class PerTokenOutput(ModelOutput):
    """What the forward of a model returns to SFTTrainer; (B, T - 1) each, 0 where the label is no target."""

    loss: Tensor | None = None
    log_probs: Tensor | None = None
    entropy: Tensor | None = None
    is_top1: Tensor | None = None
    label_mask: Tensor | None = None


def objective(name: str | Objective, *, model: Any = None, head_weight: Tensor | None = None) -> ObjectiveLoss:
    """Return an objective as a loss of logits, or of hidden states.

    Objectives with a cost, such as `emo`, read the head of the pre-trained model once: give the `model` before it is
    trained, or the weight of its head, (V, D). Objectives with a teacher need the model.
    Raises UserError for a name or parameters that do not exist, and ConfigError for one that needs what is not given.
    """
    chosen = _chosen(name)
    if not isinstance(chosen, (StatisticsObjective, LogitsObjective)):
        raise PluginError(f"{chosen.name} runs the model by itself; use emobench.attach(model, '{name}').")
    if chosen.side_names:
        names = ", ".join(sorted(chosen.side_names))
        raise PluginError(f"{chosen.name} reads {names} of each batch; use emobench.attach(model, '{name}').")
    head = None
    if model is not None:
        head = probe_head(_bare(model))
    elif head_weight is not None:
        head = Head(_linear(head_weight))
    context: Any = _NoModel(chosen) if head is None else _context(head, model)
    chosen.setup(context)
    return ObjectiveLoss(chosen, head)


class ObjectiveLoss:
    """A loss in nats, the mean over target tokens. `objective` makes it.

    Labels of three-dimensional logits, (B, T, V), are those of the input, (B, T), as in transformers: position t
    predicts label t + 1. Of (N, V) they are the targets themselves, (N,). Labels of -100 are no targets.
    """

    def __init__(self, chosen: StatisticsObjective | LogitsObjective, head: Head | None) -> None:
        self.objective = chosen
        self._head = head
        self._sums: Mapping[str, Tensor] = {}
        self._count = 1

    @property
    def parts(self) -> dict[str, float]:
        """What the objective logs, such as `mle` and `demd`: means over the target tokens of the last call."""
        return {name: float(value) / max(self._count, 1) for name, value in self._sums.items()}

    def __call__(self, logits: Tensor, labels: Tensor, *, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """Return the loss of whole logits, (B, T, V) or (N, V), a scalar with gradients.

        `num_items_in_batch` takes the place of the number of target tokens, for gradient accumulation. Rows of padding
        of the head, which stand for no token, are left out where `objective` was given the model.
        """
        if getattr(self.objective, "adaptive_cost", False):
            raise ConfigError(
                f"{self.objective.name} reads the head as it is trained; use loss.linear(hidden, head_weight, labels)."
            )
        labels_N = _targets(logits, labels)
        places_M = (labels_N != IGNORED).nonzero()[:, 0]
        vocabulary = self._vocabulary(logits.shape[-1])
        logits_NV, sums = logits.reshape(-1, logits.shape[-1]), _Sums()
        total = logits.new_zeros((), dtype=torch.promote_types(logits.dtype, torch.float32))
        for places_C in places_M.split(ROWS):
            rows_CV, targets_C = logits_NV[places_C][:, :vocabulary], labels_N[places_C]
            total = total + checkpoint(self._sum_of_rows, rows_CV, targets_C, sums, use_reentrant=False)
        self._sums, self._count = sums.close(), len(places_M)
        return total / _divisor(num_items_in_batch, len(places_M))

    def linear(
        self,
        hidden: Tensor,
        head_weight: Tensor,
        labels: Tensor,
        *,
        bias: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """Return the loss of hidden states, (B, T, D) or (N, D), before a head, (V, D) and (V,): a scalar.

        The logits of a whole batch are never in memory. `backward` can run only once. A cap or factor between head and
        logits is taken from the model that `objective` was given.
        """
        labels_N = _targets(hidden, labels)
        found = objective_loss(
            self.objective,
            hidden.reshape(-1, hidden.shape[-1]),
            head_weight,
            bias,
            labels_N,
            logit_map=None if self._head is None else self._head.logit_map,
            denominator=_divisor(num_items_in_batch, int((labels_N != IGNORED).sum())),
            vocabulary=self._vocabulary(len(head_weight)),
        )
        self._sums, self._count = found.parts, found.count
        return found.total

    def _vocabulary(self, rows: int) -> int:
        return rows if self._head is None else min(rows, self._head.tokens)

    def _sum_of_rows(self, logits_CV: Tensor, targets_C: Tensor, sums: _Sums) -> Tensor:
        logits_CV = logits_CV.to(torch.promote_types(logits_CV.dtype, torch.float32))
        chosen = self.objective
        if isinstance(chosen, LogitsObjective):
            sums.add(lambda: chosen.parts(logits_CV.detach(), targets_C, {}))
            return chosen.loss(logits_CV, targets_C, {}).sum()
        cost = frozen_cost(chosen, logits_CV.T, logits_CV.shape[1])
        costs_CV = None if cost is None else cost.costs(targets_C).to(logits_CV)
        s = TokenStatistics(statistics_from_logits(logits_CV, targets_C, chosen.statistic_names, costs_CV), targets_C)
        sums.add(lambda: {"mle": -s.detach().log_prob, **chosen.parts(s.detach())})
        return chosen.loss(s).sum()


class _Sums:
    """Sums of what is logged; the second time that a chunk is computed, in the backward pass, adds nothing."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._closed = False

    def add(self, parts: Callable[[], Mapping[str, Tensor]]) -> None:
        if self._closed:
            return
        with torch.no_grad():
            for name, value_C in parts().items():
                self._sums[name] = self._sums.get(name, 0) + value_C.sum(dtype=torch.float64)

    def close(self) -> dict[str, Tensor]:
        self._closed = True
        return self._sums


_ATTACHED: WeakKeyDictionary[nn.Module, Objective] = WeakKeyDictionary()


def attach(model: Any, name: str | Objective) -> Attached:
    """Let a causal LM of transformers compute an objective in place of its own loss, in training.

    Attach before the training begins, when the weights are those that it starts from; to the `trainer.model` of TRL's
    SFTTrainer, because SFTTrainer replaces the model's forward. Evaluation and generation stay as they are. Adapters of
    peft are kept. A trainer that passes the model's loss by is stopped at its first step with a ModelError.

    Trainers of transformers divide by the tokens of all micro-batches of a step (`num_items_in_batch`); in a loop of
    your own, give the model that number, or each micro-batch has the mean over its own tokens.
    Raises UserError for a name or parameters that do not exist, ConfigError for a model with an objective attached, and
    ModelError for one without a linear head.
    """
    bare, chosen = _bare(model), _chosen(name)
    if bare in _ATTACHED:
        raise ConfigError(
            f"{type(bare).__name__} has {_ATTACHED[bare]} attached; first call detach() of what emobench.attach gave."
        )
    head = probe_head(bare)
    chosen.setup(_context(head, bare))
    return Attached(bare, chosen, head)


class Attached(TrainerCallback):
    """An objective that is attached to a model. Add it to a Trainer's callbacks where its weights have a schedule."""

    def __init__(self, model: Any, chosen: Objective, head: Head) -> None:
        self.objective = chosen
        self._model, self._head = model, head
        self._previous = model.forward
        self._patched = "forward" in vars(model)
        self._inside = False
        self._begun = False
        self._attached = attach_objective(model, chosen, head)
        self._attached.window = deque(maxlen=KEPT)
        model.forward = types.MethodType(self._forward_of(type(model)), model)
        self._guard = base_model(model).register_forward_pre_hook(self._refuse_other_losses)
        _ATTACHED[model] = chosen

    @property
    def parts(self) -> dict[str, float]:
        """What the objective logs: means over the target tokens of the micro-batches since the last time."""
        window = list(self._attached.window)
        self._attached.window.clear()
        tokens = max(sum(float(one["tokens"]) for one in window), 1.0)
        names = [name for name in (window[0] if window else ()) if name != "tokens"]
        return {name: sum(float(one[name]) for one in window) / tokens for name in names}

    def begin_step(self, step: int, total_steps: int) -> None:
        """Set how far the training is, before each optimizer step, for objectives with a schedule."""
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
        names = list(inspect.signature(cls.forward).parameters)[1:]

        @functools.wraps(cls.forward)
        def forward(model: Any, *args: Any, fused_lm_head: bool = False, **named: Any) -> Any:
            given = dict(zip(names, args, strict=False)) | named
            if given.get("labels") is None or not (model.training and torch.is_grad_enabled()):
                fused = {"fused_lm_head": True} if fused_lm_head else {}
                return self._previous(*args, **named, **fused)
            return self._trained(model, given, per_token=fused_lm_head)

        return forward

    def _trained(self, model: Any, given: dict[str, Any], *, per_token: bool) -> Any:
        if given.get("shift_labels") is not None:
            raise ModelError("`shift_labels` (context or sequence parallelism) is not supported by emobench.attach.")
        if not self._begun and _is_scheduled(self.objective):
            raise ConfigError(
                f"{self.objective} has a schedule; add what emobench.attach returned to the trainer's callbacks, or "
                "call its begin_step(step, total_steps) before each step."
            )
        count = given.pop("num_items_in_batch", None)
        batch = {k: v for k, v in given.items() if v is not None and k not in ("use_cache", "return_dict")}
        self._inside = True
        try:
            self._attached.report = PER_TOKEN if per_token else frozenset()
            loss = self._attached.forward(model, batch, count)
        finally:
            self._inside = False
        return CausalLMOutputWithPast(loss=loss) if not per_token else self._per_token(loss, batch["labels"], count)

    def _per_token(self, loss: Tensor, labels_BT: Tensor, count: Tensor | int | None) -> Any:
        """Return what SFTTrainer reads. It sums `log_probs`, so that these are the negative losses of the tokens."""
        mask_BT = labels_BT[:, 1:] != IGNORED
        reported = {name: value.view(labels_BT.shape)[:, :-1] for name, value in self._attached.reported.items()}
        losses_BT = reported[LOSS].clone()
        total = loss * _divisor(count, int(mask_BT.sum()))
        losses_BT[0, 0] += total - total.detach()  # of value 0, with the gradient of the sum
        return PerTokenOutput(
            loss=loss,
            log_probs=-losses_BT,
            entropy=reported["entropy"],
            is_top1=reported[GREEDY] * mask_BT,
            label_mask=mask_BT,
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


def compute_loss_func(name: str | Objective, *, model: Any) -> Callable[..., Tensor]:
    """Return an objective as transformers' `Trainer(compute_loss_func=...)` takes it. It needs whole logits.

    `model` is the model before it is trained. `attach` needs less memory.
    """
    loss = objective(name, model=model)

    def compute_loss(outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        return loss(outputs["logits"], labels, num_items_in_batch=num_items_in_batch)

    return compute_loss


class _NoModel:
    """What an objective reads in `setup` where no model was given."""

    total_steps = 0

    def __init__(self, chosen: Objective) -> None:
        self._chosen = chosen

    def __getattr__(self, name: str) -> NoReturn:
        raise ConfigError(
            f"{self._chosen} reads the pre-trained model; give emobench.objective(..., model=model), or "
            "head_weight=model.get_output_embeddings().weight."
        )


def _chosen(name: str | Objective) -> Objective:
    return name if isinstance(name, Objective) else load_objective(name).objective


def _context(head: Head, model: Any) -> TrainingContext:
    return TrainingContext(head, 0, True, _head_of, model, _model_of)


def _model_of(name: str) -> Any:
    return load_model(find_model(name, offline=False)).model


def _head_of(name: str) -> Tensor:
    return probe_head(_model_of(name)).linear.weight.detach()


def _bare(model: Any) -> Any:
    """Return the model without its wrapper of peft. Raises ConfigError for what is no model."""
    if not isinstance(model, nn.Module):
        what = f"'{model}'" if isinstance(model, str) else f"of the type {type(model).__name__}"
        raise ConfigError(f"The model is {what}; expected one that transformers' from_pretrained returns.")
    wrapped: Any = model
    return wrapped.get_base_model() if hasattr(model, "peft_config") else model


def _linear(weight_VD: Tensor) -> nn.Linear:
    linear = nn.Linear(weight_VD.shape[1], weight_VD.shape[0], bias=False, device="meta")
    linear.weight = nn.Parameter(weight_VD.detach(), requires_grad=False)
    return linear


def _targets(values: Tensor, labels: Tensor) -> Tensor:
    """Return the target of each row of logits or hidden states, (N,). Raises ConfigError for another shape."""
    if labels.shape != values.shape[:-1] or labels.dim() not in (1, 2):
        raise ConfigError(
            f"The labels have the shape {tuple(labels.shape)}, for {tuple(values.shape)}; expected (B, T) for "
            "(B, T, V), or (N,) for (N, V)."
        )
    return labels if labels.dim() == 1 else next_labels(labels, IGNORED).flatten()


def _divisor(num_items_in_batch: Tensor | int | None, count: int) -> Tensor | int:
    return max(count, 1) if num_items_in_batch is None else num_items_in_batch


def _is_scheduled(chosen: Objective) -> bool:
    weights = [term.weight for term in getattr(chosen, "terms", ())]
    return any(not isinstance(weight, Constant) for weight in weights) or (
        not weights and type(chosen).begin_step is not Objective.begin_step
    )
