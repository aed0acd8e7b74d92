"""Attach an objective to a causal LM. Only two `forward` methods of the instance are replaced.

With labels, the model's forward runs the base model and then calls the head *as a module*. The head's forward runs the
objective. DDP, FSDP and ZeRO therefore gather the head's weight before the loss runs. `generate`, `save_pretrained` and
peft work as before. Attach after loading, and before peft and the Trainer.

In a model that torch.compile compiles, the loss is one opaque operator, without a graph break.

Legend: B sequences, T positions, D hidden width, V rows of the head.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping, MutableSequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import CausalLMOutputWithPast

from emobench.data.packing import WEIGHTS
from emobench.models.head import Head, final_hidden, require_unchanged
from emobench.models.suitability import refuse_auxiliary_loss
from emobench.objectives import (
    IGNORED,
    LossResult,
    ModelObjective,
    Objective,
    Targets,
    objective_loss,
    prepare_for,
    token_statistics,
)
from emobench.objectives.engine.products import compute_dtype

LOSS = "loss"


@dataclass
class SequenceSums:
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
    weights: Tensor | None = None
    """The weights of the next micro-batch's tokens, (B, T), if they are not in the batch."""
    report: frozenset[str] = frozenset()
    """Statistics of each token to compute in training, in addition to its loss; they cost a pass of the head."""
    reported: dict[str, Tensor] = field(default_factory=dict)
    """Those of the last training forward, and each token's `LOSS`, (B * T,), without gradients."""
    evaluated: SequenceSums | None = None
    """The result of the last forward in eval mode."""
    _prepared: _HeadCall | None = None
    _linear: nn.Linear | None = None
    """The head that was called last: of a model with adapters, it may be peft's copy of `head.linear`."""

    def __post_init__(self) -> None:
        self.number = id(self)
        _ATTACHED[self.number] = self

    def forward(self, model: Any, batch: dict[str, Tensor], denominator: Tensor | float | None) -> Tensor:
        """Return the loss of a micro-batch: the sum of its units' losses, divided by the denominator.

        Raises ModelError if the model's own loss would have a further part, or if its head changed.
        """
        if not torch.compiler.is_compiling():
            require_unchanged(model, self.head)
            if model.training:
                refuse_auxiliary_loss(model, batch.get("output_router_logits"))
        if model.training and isinstance(self.objective, ModelObjective):
            return self._model_loss(model, batch, denominator)
        if not torch.compiler.is_compiling():
            self.prepare(batch, denominator, training=model.training)
        inputs = {k: v for k, v in batch.items() if k not in ("labels", WEIGHTS, *self.objective.side_names)}
        hidden_BTD = final_hidden(model, **inputs)
        return model.get_output_embeddings()(hidden_BTD, attached=self)

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
        """Compute everything that depends only on the labels, unless it is `ready`, so that the loss never waits.

        `forward` calls it. For a compiled model, the caller must call it before each forward.
        """
        if training and isinstance(self.objective, ModelObjective):
            return
        labels_BT = batch["labels"]
        call = _HeadCall(next_labels(labels_BT, IGNORED), None, {}, denominator)
        ready, self.ready = self.ready, None
        weights_BT, self.weights = batch.get(WEIGHTS, self.weights), None
        if training and weights_BT is not None:
            call.weights_N = next_labels(weights_BT, 0).flatten()
        if training or self.evaluate_loss:
            dtype = compute_dtype(labels_BT, self.head.linear.weight)
            if ready is None:
                ready = self.targets_of(labels_BT, device=labels_BT.device, dtype=dtype)
            call.targets = ready
            if self.objective.side_names:
                call.side = {n: next_labels(v, 0).flatten(0, 1) for n, v in self.objective.side_data(batch).items()}
        self._prepared = call

    def head_forward(self, linear: nn.Linear, hidden_BTD: Tensor) -> Tensor:
        """Run the objective inside the head's forward, where a sharded weight is gathered. Return a scalar."""
        if torch.compiler.is_compiling():
            return compiled_loss(self.number, hidden_BTD, linear.weight, linear.bias, linear.training)
        self._linear = linear
        return self.prepared_loss(hidden_BTD, linear.weight, linear.bias, training=linear.training)

    def prepared_loss(self, hidden_BTD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, *, training: bool) -> Tensor:
        """Return the loss of the prepared micro-batch, and store its parts."""
        head = self.head
        if self._linear is not None:
            head = replace(head, linear=self._linear)
        call, self._prepared = self._prepared, None
        if call is None:
            raise RuntimeError(
                "No micro-batch was prepared; call attached.prepare(batch, ...) before a compiled model."
            )
        hidden_ND = hidden_BTD.flatten(0, 1)
        if training:
            result = self._loss(hidden_ND, weight_VD, bias_V, call)
            tokens = torch.full((), result.count, device=hidden_ND.device)  # torch.tensor would copy from the host
            self.window.append({"loss": result.loss_sum, "tokens": tokens, **result.parts})
            if self.report:
                statistics = token_statistics(hidden_ND.detach(), head, call.labels_BT.flatten(), self.report)
                self.reported = {LOSS: result.losses_N, **{name: statistics[name] for name in self.report}}
            if call.denominator is not None:
                return result.total
            return result.total / _divisor(None, result.weight)
        if self.evaluate_loss:
            result = self._loss(hidden_ND, weight_VD, bias_V, call)
            mle_N, loss_N = -result.log_prob_N, result.losses_N
        else:
            labels_N = call.labels_BT.flatten()
            mle_N = loss_N = -token_statistics(hidden_ND, head, labels_N).log_prob
        shape = call.labels_BT.shape
        tokens_B = (call.labels_BT != IGNORED).sum(1)
        self.evaluated = SequenceSums(mle_N.double().view(shape).sum(1), loss_N.double().view(shape).sum(1), tokens_B)
        return mle_N.sum() / _divisor(call.denominator, tokens_B.sum())

    def _loss(self, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, call: _HeadCall) -> LossResult:
        assert call.targets is not None
        return objective_loss(
            self.objective,
            hidden_ND,
            weight_VD,
            bias_V,
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
        return total / _divisor(denominator, weight)


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


def next_labels(value_BT: Tensor, fill: int) -> Tensor:
    """Shift to the position that predicts: position t gets the value of t + 1, and the last position gets `fill`."""
    shifted = torch.full_like(value_BT, fill)
    shifted[:, :-1] = value_BT[:, 1:]
    return shifted


def _divisor(denominator: Tensor | float | None, weight: Tensor | int) -> Tensor | float:
    if denominator is not None:
        return denominator
    # A batch without targets has loss 0 / 1, not 0 / 0.
    return float(weight) or 1.0


# The loss as one operator of a compiled graph. torch.compile cannot trace it: it calls a plugin's Python, and its
# chunks depend on the labels. The operator's forward computes the gradients and its backward scales them. The stored
# gradients are multiplied by the number of tokens of the micro-batch: after a division by a large denominator, and
# before a GradScaler's factor, most of them would underflow in float16.

_ATTACHED: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""Attached objectives by number, because an operator takes only tensors and numbers."""


def _autograd_inside() -> Any:
    """Enable autograd again: operators run below it, but the engine needs it for d loss / d statistic."""
    without = torch._C._dispatch_tls_local_exclude_set()
    for name in ("AutogradOther", "AutogradCPU", "AutogradCUDA", "ADInplaceOrView"):
        without = without.remove(getattr(torch._C.DispatchKey, name))
    return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), without)


def compiled_loss(
    attached: int, hidden_BTD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, training: bool
) -> Tensor:
    """Return the loss of the last prepared micro-batch, a scalar with gradients."""
    needs_grad = [t is not None and t.requires_grad for t in (hidden_BTD, weight_VD, bias_V)]
    # Read while tracing, because a compiled graph runs without autocast.
    dtype = compute_dtype(hidden_BTD, weight_VD)
    return torch.ops.emobench.attached_loss(hidden_BTD, weight_VD, bias_V, attached, training, *needs_grad, dtype)[0]


@torch.library.custom_op("emobench::attached_loss", mutates_args=())
def _attached_loss(
    hidden_BTD: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    attached: int,
    training: bool,
    grad_hidden: bool,
    grad_weight: bool,
    grad_bias: bool,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the loss, a factor, and gradients by hidden states, weight and bias (empty if not needed).

    The gradients of the loss are the factor times these. `dtype` is the dtype of the matrix products.
    """
    leaves: list[Tensor | None] = []
    for tensor, needs_grad in ((hidden_BTD, grad_hidden), (weight_VD, grad_weight), (bias_V, grad_bias)):
        leaf = None
        if tensor is not None:
            leaf = tensor.detach().requires_grad_(needs_grad and training)
        leaves.append(leaf)
    inputs = [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]
    computed: Iterator[Tensor] = iter(())
    autocast = torch.autocast(hidden_BTD.device.type, dtype, enabled=dtype != weight_VD.dtype)
    with _autograd_inside(), torch.set_grad_enabled(training), autocast:
        loss = _ATTACHED[attached].prepared_loss(*leaves, training=training)
        tokens = loss.new_ones(())
        if training:
            tokens = _ATTACHED[attached].window[-1]["tokens"].clamp(min=1).to(loss.dtype)
        if inputs:
            computed = iter(torch.autograd.grad(loss, inputs, tokens))
    gradients = []
    for leaf in leaves:
        gradient = hidden_BTD.new_empty(0)
        if leaf is not None and leaf.requires_grad:
            gradient = next(computed)
        gradients.append(gradient)
    return loss.detach(), 1 / tokens, *gradients  # type: ignore[return-value]


@_attached_loss.register_fake
def _(
    hidden_BTD: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    attached: int,
    training: bool,
    *needs_grad_and_dtype: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    wide = torch.float64 if weight_VD.dtype == torch.float64 else torch.float32
    gradients = []
    for tensor, needs_grad in zip((hidden_BTD, weight_VD, bias_V), needs_grad_and_dtype, strict=False):
        gradient = hidden_BTD.new_empty(0)
        if tensor is not None and needs_grad and training:
            gradient = torch.empty_like(tensor)
        gradients.append(gradient)
    return hidden_BTD.new_empty((), dtype=wide), hidden_BTD.new_empty((), dtype=wide), *gradients  # type: ignore[return-value]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.needs_grad = inputs[5:8]


def _scale(ctx: Any, grad_loss: Tensor, *unused: Tensor | None) -> tuple[Tensor | None, ...]:
    factor, *saved = ctx.saved_tensors
    # A dimension makes the product float32: a GradScaler starts with 65536, which is infinite in float16.
    factor = (grad_loss * factor).reshape(1)
    gradients: list[Tensor | None] = [None, None, None]
    for place, gradient in enumerate(saved):
        if ctx.needs_grad[place]:
            gradients[place] = (gradient * factor).to(gradient.dtype)
    return *gradients, None, None, None, None, None, None


register: Callable[..., None] = _attached_loss.register_autograd
register(_scale, setup_context=_save)
