"""Attach an objective to a causal LM. Only two `forward` methods of the instance are replaced.

With labels, the model's forward runs the base model and then calls the head *as a module*. The head's forward runs the
objective. DDP, FSDP and ZeRO therefore gather the head's weight before the loss runs. `generate`, `save_pretrained` and
peft work as before. Attach after loading, and before peft and the Trainer.

torch.compile compiles the base model. The loss runs outside of the graph: it calls a plugin's Python, and its chunks
depend on the labels.

Legend: B sequences, T positions, D hidden width, V rows of the head.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping, MutableSequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import CausalLMOutputWithPast

from emobench.data.packing import WEIGHTS
from emobench.models.device import with_float64
from emobench.models.head import Head, final_hidden, require_unchanged
from emobench.models.suitability import refuse_auxiliary_loss
from emobench.objectives import (
    IGNORED,
    LossResult,
    ModelObjective,
    Objective,
    Targets,
    next_labels,
    objective_loss,
    prepare_for,
    token_statistics,
)
from emobench.objectives.engine.products import compute_dtype

LOSS = "loss"
uncompiled = cast(Any, torch.compiler.disable)  # its type hides a method


class SequenceSums(NamedTuple):
    """Sums over the target tokens of each sequence of an evaluated batch, (B,), float64."""

    mle_B: Tensor
    loss_B: Tensor
    """The objective's loss if `evaluate_loss` is set, else equal to `mle_B`."""
    tokens_B: Tensor


@dataclass
class AttachedObjective:
    """An objective and a head, attached to a model. It is not a module: it would become a child of the head."""

    objective: Objective
    head: Head
    engine: str = "chunked"
    evaluate_loss: bool = False
    """Whether evaluation computes the objective's loss in addition to MLE."""
    window: MutableSequence[dict[str, Tensor]] = field(default_factory=list)
    """For each training forward of this step: the sums of the loss and its parts, and `tokens`."""
    ready: Targets | None = None
    """The targets of the next micro-batch, if they were prepared with its batch; see `targets_of`."""
    columns: dict[str, Tensor] = field(default_factory=dict)
    """The columns of the next micro-batch that are not in the batch, (B, T): weights, and side data of the corpus."""
    report: frozenset[str] = frozenset()
    """Statistics of each token to compute in training, in addition to its loss; they cost a pass of the head."""
    reported: dict[str, Tensor] = field(default_factory=dict)
    """Those of the last training forward, and each token's `LOSS`, (B * T,), without gradients."""
    evaluated: SequenceSums | None = None
    """The result of the last forward in eval mode."""
    _prepared: _HeadCall | None = None

    def forward(self, model: Any, batch: dict[str, Tensor], denominator: Tensor | float | None) -> Tensor:
        """Return the loss of a micro-batch: the sum of its units' losses, divided by the denominator.

        Raises ModelError if the model's own loss would have a further part, or if its head changed.
        """
        inputs = dict(batch)
        for name in ("labels", WEIGHTS, *self.objective.side_names):
            inputs.pop(name, None)
        batch = {**batch, **self.columns}
        self.columns = {}
        self._begin(model, batch, denominator)
        if model.training and isinstance(self.objective, ModelObjective):
            return self._model_loss(model, batch, denominator)
        hidden_BTD = final_hidden(model, **inputs)
        return self._run_head(model, hidden_BTD)

    @uncompiled
    def _run_head(self, model: Any, hidden_BTD: Tensor) -> Tensor:
        return model.get_output_embeddings()(hidden_BTD, attached=self)

    @uncompiled
    def _begin(self, model: Any, batch: Mapping[str, Tensor], denominator: Tensor | float | None) -> None:
        require_unchanged(model, self.head)
        if model.training:
            refuse_auxiliary_loss(model, batch.get("output_router_logits"))
        self.prepare(batch, denominator, training=model.training)

    def targets_of(self, labels_BT: Tensor, *, device: torch.device, dtype: torch.dtype) -> Targets | None:
        """Return the targets of a batch's labels, which may be on another device than the loss will be.

        `dtype` is the dtype of the matrix products. None for an objective that runs outside the engine.
        """
        if isinstance(self.objective, ModelObjective):
            return None
        return prepare_for(
            self.objective,
            next_labels(labels_BT, IGNORED),
            vocabulary=self.head.tokens,
            dtype=dtype,
            impl=self.engine,
            device=device,
        )

    def prepare(self, batch: Mapping[str, Tensor], denominator: Tensor | float | None, *, training: bool) -> None:
        """Compute everything that depends only on the labels, unless it is `ready`, so that the loss never waits."""
        if training and isinstance(self.objective, ModelObjective):
            return
        labels_BT = batch["labels"]
        call = _HeadCall(next_labels(labels_BT, IGNORED), None, {}, denominator)
        ready, self.ready = self.ready, None
        if training and WEIGHTS in batch:
            call.weights_N = next_labels(batch[WEIGHTS], 0).flatten()
        if training or self.evaluate_loss:
            dtype = compute_dtype(labels_BT, self.head.linear.weight)
            if ready is None:
                ready = self.targets_of(labels_BT, device=labels_BT.device, dtype=dtype)
            call.targets = ready
            if self.objective.side_names:
                call.side = {n: next_labels(v, 0).flatten(0, 1) for n, v in self.objective.side_data(batch).items()}
        self._prepared = call

    def head_forward(self, linear: nn.Linear, hidden_BTD: Tensor) -> Tensor:
        """Return the loss of the prepared micro-batch, and store its parts.

        It runs inside the head's forward, where a sharded weight is gathered. Of a model with adapters, `linear` may be
        peft's copy of `head.linear`.
        """
        call, self._prepared = self._prepared, None
        assert call is not None
        head = replace(self.head, linear=linear)
        training = linear.training
        hidden_ND = hidden_BTD.flatten(0, 1)
        labels_N = call.labels_BT.flatten()
        if training:
            result = self._loss(hidden_ND, linear, call)
            tokens = torch.full((), result.count, device=hidden_ND.device)  # torch.tensor would copy from the host
            self.window.append({"loss": result.loss_sum, "tokens": tokens, **result.parts})
            if self.report:
                statistics = token_statistics(hidden_ND.detach(), head, labels_N, self.report)
                self.reported = {name: statistics[name] for name in self.report}
                self.reported[LOSS] = result.losses_N
            if call.denominator is not None:
                return result.total
            return result.total / divisor(None, result.weight)
        if self.evaluate_loss:
            result = self._loss(hidden_ND, linear, call)
            mle_N = -result.log_prob_N
            loss_N = result.losses_N
        else:
            mle_N = loss_N = -token_statistics(hidden_ND, head, labels_N).log_prob
        mle_B, loss_B = (with_float64(sums_N).double().view(call.labels_BT.shape).sum(1) for sums_N in (mle_N, loss_N))
        tokens_B = (call.labels_BT != IGNORED).sum(1)
        self.evaluated = SequenceSums(mle_B, loss_B, tokens_B)
        return mle_N.sum() / divisor(call.denominator, tokens_B.sum())

    def _loss(self, hidden_ND: Tensor, linear: nn.Linear, call: _HeadCall) -> LossResult:
        assert call.targets is not None
        return objective_loss(
            self.objective,
            hidden_ND,
            linear.weight,
            linear.bias,
            call.targets,
            logit_map=self.head.logit_map,
            side=call.side,
            weights_N=call.weights_N,
            denominator=call.denominator,
            vocabulary=self.head.tokens,
            impl=self.engine,
        )

    def _model_loss(self, model: Any, batch: Mapping[str, Tensor], denominator: Tensor | float | None) -> Tensor:
        assert isinstance(self.objective, ModelObjective)
        units = self.objective.loss(types.MethodType(type(model).forward, model), batch)
        total = (units.losses_U * units.weights_U).sum()
        weight = units.weights_U.sum()
        self.window.append({"loss": total.detach(), "tokens": weight.detach()})
        return total / divisor(denominator, weight)


@dataclass
class _HeadCall:
    labels_BT: Tensor
    targets: Targets | None
    side: dict[str, Tensor]
    denominator: Tensor | float | None
    weights_N: Tensor | None = None


def attach(
    model: Any, objective: Objective, head: Head, *, engine: str = "chunked", evaluate_loss: bool = False
) -> AttachedObjective:
    """Attach an objective to a Hugging Face causal LM without adapters. `head` comes from `probe_head`."""
    attached = AttachedObjective(objective, head, engine, evaluate_loss)

    signature = inspect.signature(type(model).forward)
    names = list(signature.parameters)[1:]

    def lm_forward(self: Any, *args: Any, num_items_in_batch: Tensor | float | None = None, **named: Any) -> Any:
        arguments = dict(zip(names, args, strict=False)) | named
        if arguments.get("labels") is None:
            return type(self).forward(self, *args, **named)
        batch = {k: v for k, v in arguments.items() if v is not None and k not in ("use_cache", "return_dict")}
        return CausalLMOutputWithPast(loss=attached.forward(self, batch, num_items_in_batch))  # type: ignore[arg-type]

    def head_forward(self: nn.Linear, hidden: Tensor, attached: AttachedObjective | None = None) -> Tensor:
        if attached is None:
            return nn.Linear.forward(self, hidden)
        return attached.head_forward(self, hidden)

    lm_forward.__signature__ = signature  # type: ignore[attr-defined]
    model.forward = types.MethodType(lm_forward, model)
    head.linear.forward = types.MethodType(head_forward, head.linear)
    # The Trainer then passes the global number of target tokens and does not divide the loss.
    model.accepts_loss_kwargs = True
    return attached


def detach(model: Any, head: Head) -> None:
    """Undo `attach`."""
    del model.forward, head.linear.forward, model.accepts_loss_kwargs


def divisor(num_items_in_batch: Tensor | float | None, weight: Tensor | float) -> Tensor | float:
    """Return the divisor of a sum over units of a total `weight`. A step without targets has loss 0 / 1, not 0 / 0."""
    total = weight if num_items_in_batch is None else num_items_in_batch
    if isinstance(total, Tensor):
        return torch.where(total == 0, 1, total)
    return total or 1
