"""Objectives in a training of one's own: a loss for tensors, and one that is attached to a model.

    loss = emobench.objective("emo", model=model)
    loss(logits, labels).backward()                       # whole logits
    loss.linear(hidden, head_weight, labels).backward()   # never the logits of a whole batch
    emobench.attach(model, "emo")                         # transformers' Trainer, accelerate, TRL's SFTTrainer

An objective is named as on the command line: `emo`, `tailr(gamma=0.2)`, `0.5*emo + 0.5*mle`, `./my_loss.py:MyLoss`.

Legend: B sequences, T positions, N tokens, V vocabulary, D hidden width, C tokens of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoTokenizer

from emobench.core.errors import ConfigError, PluginError
from emobench.models.device import with_float64
from emobench.models.head import Head, probe_head, require_unchanged, token_count, unwrapped
from emobench.models.model import Model
from emobench.models.quiet import silent_libraries
from emobench.models.suitability import refuse_auxiliary_loss, require_next_token_loss
from emobench.objectives import (
    IGNORED,
    LogitsObjective,
    Objective,
    StatisticsObjective,
    TokenStatistics,
    next_labels,
    objective_loss,
)
from emobench.objectives.engine.job import frozen_cost
from emobench.objectives.engine.linear import require_labels
from emobench.objectives.statistics import statistics_from_logits
from emobench.registry import load_objective
from emobench.training.attach import divisor
from emobench.training.context import TrainingContext
from emobench.training.other_trainers import (
    Attached,
    LossFunction,
    count_targets_of,
    refuse_attached,
    require_ids,
)

ROWS = 256
"""Rows of logits whose loss is computed together, and again in the backward pass: few copies of the logits."""


def objective(
    name: str | Objective, *, model: Any = None, head_weight: Tensor | None = None, tokenizer: Any = None
) -> ObjectiveLoss:
    """Return an objective as a loss of logits, or of hidden states.

    Objectives with a cost, such as `emo`, read the head of the pre-trained model once: give the `model` before it is
    trained, or the weight of its head, (V, D). Objectives with a teacher need the model.

    Rows of the model's head that stand for no token of the `tokenizer` are padding, and have probability 0, as in
    `emobench run`. None takes the tokenizer in the folder that the model was loaded from; without one, all rows are
    tokens.
    Raises UserError for a name or parameters that do not exist, ConfigError for a missing model or head, and
    ModelError for a model whose loss has other parts.
    """
    chosen = _chosen(name)
    if not isinstance(chosen, (StatisticsObjective, LogitsObjective)):
        raise PluginError(f"{chosen.name} runs the model by itself; use emobench.attach(model, '{name}').")
    if chosen.side_names:
        names = ", ".join(sorted(chosen.side_names))
        raise PluginError(f"{chosen.name} reads {names} of each batch; use emobench.attach(model, '{name}').")
    head = bare = None
    if model is not None:
        bare = _bare(model)
        tokenizer = _tokenizer_of(bare, tokenizer)
        head = _measured_head(bare, tokenizer)
        count_targets_of(bare)
    elif head_weight is not None:
        linear = nn.Linear(head_weight.shape[1], head_weight.shape[0], bias=False, device="meta")
        linear.weight = nn.Parameter(head_weight.detach(), requires_grad=False)
        head = Head(linear)
    tokens = None if tokenizer is None else token_count(tokenizer)
    context: Any = _NoModel(chosen) if head is None else _context(head, model, tokenizer)
    chosen.setup(context)
    return ObjectiveLoss(chosen, head, bare, tokens)


class ObjectiveLoss:
    """A loss in nats, the mean over target tokens. `objective` makes it.

    Labels of three-dimensional logits, (B, T, V), are those of the input, (B, T), as in transformers: position t
    predicts label t + 1. Of (N, V) they are the targets themselves, (N,). Labels of -100 are no targets.
    """

    def __init__(
        self,
        chosen: StatisticsObjective | LogitsObjective,
        head: Head | None,
        model: Any,
        tokens: int | None,
    ) -> None:
        self.objective = chosen
        self._head = head
        self._model = model
        self._tokens = tokens
        self._sums: Mapping[str, Tensor] = {}
        self._count = 1

    @property
    def parts(self) -> dict[str, float]:
        """What the objective logs, such as `mle` and `demd`: means over the target tokens of the last call."""
        return {name: float(value) / max(self._count, 1) for name, value in self._sums.items()}

    def __call__(self, logits: Tensor, labels: Tensor, *, num_items_in_batch: Tensor | float | None = None) -> Tensor:
        """Return the loss of whole logits, (B, T, V) or (N, V), a scalar with gradients.

        `num_items_in_batch` takes the place of the number of target tokens, for gradient accumulation. Rows of padding
        of the head, which stand for no token, are left out where `objective` was given the model.
        """
        if self.objective.adaptive_cost:
            raise ConfigError(
                f"{self.objective.name} reads the head as it is trained; use loss.linear(hidden, head_weight, labels)."
            )
        if self._model is not None:
            refuse_auxiliary_loss(self._model)
        labels_N = _targets(logits, labels)
        places_M = (labels_N != IGNORED).nonzero()[:, 0]
        vocabulary = self._vocabulary(logits.shape[-1])
        require_labels(labels_N[places_M], vocabulary)
        logits_NV, sums = logits.reshape(-1, logits.shape[-1]), _Sums()
        total = logits.new_zeros((), dtype=torch.promote_types(logits.dtype, torch.float32))
        for places_C in places_M.split(ROWS):
            rows_CV, targets_C = logits_NV[places_C][:, :vocabulary], labels_N[places_C]
            total = total + checkpoint(self._sum_of_rows, rows_CV, targets_C, sums, use_reentrant=False)
        self._sums, self._count = sums.close(), len(places_M)
        return total / divisor(num_items_in_batch, len(places_M))

    def linear(
        self,
        hidden: Tensor,
        head_weight: Tensor,
        labels: Tensor,
        *,
        bias: Tensor | None = None,
        num_items_in_batch: Tensor | float | None = None,
    ) -> Tensor:
        """Return the loss of hidden states, (B, T, D) or (N, D), before a head, (V, D) and (V,): a scalar.

        The hidden states are `model.base_model(...)[0]`. The logits of a whole batch are never in memory. `backward`
        can run only once. The head's bias, and a cap or factor between hidden states and logits, are those of the model
        that `objective` was given. Raises ModelError if its head was replaced.
        """
        if self._model is not None and self._head is not None:
            refuse_auxiliary_loss(self._model)
            require_unchanged(self._model, self._head)
            # Not that of the head as it was measured: peft may train a copy.
            bias = self._model.get_output_embeddings().bias if bias is None else bias
        labels_N = _targets(hidden, labels)
        computed = objective_loss(
            self.objective,
            hidden.reshape(-1, hidden.shape[-1]),
            head_weight,
            bias,
            labels_N,
            logit_map=None if self._head is None else self._head.logit_map,
            denominator=divisor(num_items_in_batch, int((labels_N != IGNORED).sum())),
            vocabulary=self._vocabulary(len(head_weight)),
        )
        self._sums, self._count = computed.parts, computed.count
        return computed.total

    def _vocabulary(self, rows: int) -> int:
        limits = (rows, self._tokens, None if self._head is None else self._head.tokens)
        return min(limit for limit in limits if limit is not None)

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
                self._sums[name] = self._sums.get(name, 0) + with_float64(value_C).sum(dtype=torch.float64)

    def close(self) -> dict[str, Tensor]:
        self._closed = True
        return self._sums


def attach(model: Any, name: str | Objective, *, tokenizer: Any = None) -> Attached:
    """Let a causal LM of transformers compute an objective in place of its own loss, in training.

    Attach before the training begins, when the weights are those that it starts from; to the `trainer.model` of TRL's
    SFTTrainer, because SFTTrainer replaces the model's forward. Evaluation and generation stay as they are. Adapters of
    peft are kept. A trainer that passes the model's loss by is stopped at its first step with a ModelError.

    Trainers of transformers divide by the target tokens of all micro-batches of a step (`num_items_in_batch`); in a
    loop of your own, give the model that number, or each micro-batch has the mean over its own tokens.

    Rows of the head that stand for no token of the `tokenizer` are padding; see `objective`.
    Raises UserError for a name or parameters that do not exist, ConfigError for a model with an objective attached, and
    ModelError for one without a linear head, or whose loss has other parts.
    """
    bare, chosen = _bare(model), _chosen(name)
    refuse_attached(bare)
    tokenizer = _tokenizer_of(bare, tokenizer)
    head = _measured_head(bare, tokenizer)
    chosen.setup(_context(head, bare, tokenizer))
    return Attached(bare, chosen, head)


def compute_loss_func(name: str | Objective, *, model: Any, tokenizer: Any = None) -> LossFunction:
    """Return an objective as transformers' `Trainer(compute_loss_func=...)` takes it. It needs whole logits.

    `model` is the model before it is trained; `tokenizer` is as for `objective`. `attach` needs less memory.
    """
    return LossFunction(objective(name, model=model, tokenizer=tokenizer), _bare(model))


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


def _context(head: Head, model: Any, tokenizer: Any) -> TrainingContext:
    def load_model(name: str) -> Any:
        return Model(name).load().model

    def load_head(name: str) -> Tensor:
        return probe_head(load_model(name)).linear.weight.detach()

    return TrainingContext(head, 0, True, load_head, model, load_model, tokenizer=tokenizer)


def _bare(model: Any) -> Any:
    """Return the model without its wrapper of peft. Raises ConfigError for what is no model."""
    if not isinstance(model, nn.Module):
        raise ConfigError(f"The model is {model!r:.60}; expected one that transformers' from_pretrained returns.")
    return unwrapped(model)


def _tokenizer_of(bare: Any, given: Any) -> Any:
    """Return the given tokenizer, or else the one in the model's folder; None without one."""
    name = getattr(bare, "name_or_path", "")
    if given is None and name:
        # `tokenizers` raises bare Exceptions for files that it cannot read.
        with suppress(Exception), silent_libraries():
            return AutoTokenizer.from_pretrained(name, local_files_only=True)
    return given


def _measured_head(bare: Any, tokenizer: Any) -> Head:
    """Return a model's head, whose tokens are those of the tokenizer."""
    refuse_auxiliary_loss(bare)
    head = probe_head(bare, tokenizer)
    require_next_token_loss(bare)
    return head


def _targets(values: Tensor, labels: Tensor) -> Tensor:
    """Return the target of each row of logits or hidden states, (N,). Raises ConfigError for another shape."""
    require_ids(labels)
    if labels.shape != values.shape[:-1] or labels.dim() not in (1, 2):
        raise ConfigError(
            f"The labels have the shape {tuple(labels.shape)}, for {tuple(values.shape)}; expected (B, T) for "
            "(B, T, V), or (N,) for (N, V)."
        )
    return labels if labels.dim() == 1 else next_labels(labels, IGNORED).flatten()
