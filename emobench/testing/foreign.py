"""A loss of another program under test: how it is called, and with which inputs.

A loss has one of three forms. The name of its first argument tells it, or a user does.

Legend: B sequences, T positions, N places (B T), V vocabulary, D width.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_outputs import CausalLMOutput

from emobench.core.conformance import Explained
from emobench.core.errors import ConfigError, PluginError
from emobench.core.settings import PRETRAINED
from emobench.objectives import IGNORED, ModelObjective, StatisticsObjective, TokenStatistics
from emobench.registry import load_objective
from emobench.testing.subject import (
    ALL,
    HIDDEN_GRADIENT,
    SEQUENCES,
    SUM,
    CheckedObjective,
    EngineResult,
    ExampleContext,
    gradients_of,
)
from emobench.testing.token_checks import EXACT, SINGLE, loss_call

FORMS = {"logits": ("logits", "labels"), "outputs": ("outputs", "labels"), "linear": ("weight", "hidden", "labels")}
"""The first arguments of a loss of each form."""
NAMED = {
    "num_items_in_batch": "count",
    "global_valid_tokens": "count",
    "weights": "weights",
    "token_weights": "weights",
    "vocab_size": "vocabulary",
    "ref_logits": "reference",
}
"""Names of further arguments, and what they get. `reference`: the logits of the model before training."""
RETURNS = {
    "none": "one loss of each token",
    "sum": "the sum over the targets",
    "mean": "the mean over its own targets",
    "global": "the sum over the targets, divided by the number that it is given",
}


class NoReference(StatisticsObjective):
    """-log q_t, in the place of a reference."""

    def loss(self, s: TokenStatistics) -> Tensor:
        return -s.log_prob


@dataclass
class ForeignLoss(CheckedObjective):
    """A loss of another program on the inputs of an objective's checks; `objective` is its reference.

    `foreign_loss` makes it.
    """

    foreign_checks: ClassVar[str] = "emobench.testing.foreign_checks:checks"
    """As `Family.checks`."""

    tokens: int = 38
    function: Callable[..., Any] = print
    title: str = ""
    form: str = "logits"
    """A key of FORMS."""
    named: Mapping[str, str] = field(default_factory=dict)
    """The further arguments that it gets, of NAMED."""
    flat: bool = False
    """Whether it gets places (N, ...) in place of (B, T, ...)."""
    shifts: bool = True
    """Whether it takes the labels of the input, and shifts them."""
    reduction: str = "sum"
    """A key of RETURNS."""
    weights_N: Tensor | None = None
    """Weights of the targets; None: 1."""

    @property
    def name(self) -> str:
        return self.title

    @property
    def positions(self) -> int:
        """The length of a sequence."""
        return self.tokens // SEQUENCES

    @property
    def other_order(self) -> Tensor:
        return torch.arange(self.tokens).roll(self.positions)

    @property
    def takes_weights(self) -> bool:
        """Whether it takes weights of tokens, or returns losses that can be multiplied by them."""
        return self.reduction == "none" or "weights" in self.named.values()

    @property
    def weighted(self) -> ForeignLoss:
        """The same with random weights above 0.5, or itself if it takes none."""
        if not self.takes_weights:
            return self
        return replace(self, weights_N=0.5 + self.normal(3, self.tokens).abs())

    @property
    def description(self) -> str:
        """A sentence about its arguments, its labels and its result."""
        shape = "(N, ...)" if self.flat else "(B, T, ...)"
        labels = "the labels of the input, which it shifts" if self.shifts else "shifted labels"
        arguments = ", ".join([*FORMS[self.form], *self.named])
        return f"Called with ({arguments}), {shape}, and {labels}. Returns {RETURNS[self.reduction]}."

    def run(self, *, rows: slice | Tensor = ALL, dtype: torch.dtype = torch.float64, **_: Any) -> EngineResult:
        """Return the sum of the losses of the targets, and its gradients.

        `rows` are a micro-batch of whole sequences; the number of targets that the loss gets is that of all rows.
        """
        hidden, weight = self.leaves(rows, dtype)
        return _sum_and_gradients(self.total(hidden, weight, rows), hidden, weight)

    def total(self, hidden: Tensor, weight: Tensor, rows: slice | Tensor = ALL) -> Tensor:
        """Return the sum of the losses of some rows, with gradients."""
        dtype = weight.dtype
        places = hidden
        if self.form != "linear":
            # Half-precision logits are rounded by the model: in each dtype of the loss they are the same numbers.
            places = (hidden.double() @ weight.double().T).to(self.hidden_ND.dtype).to(dtype)
        targets = self.labels_N[rows]
        weights = torch.ones(len(targets)) if self.weights_N is None else self.weights_N[rows]
        count = (self.batch["labels"][:, 1:] != IGNORED).sum()

        def laid_out(value: Tensor) -> Tensor:
            return value if self.flat else value.unflatten(0, (-1, self.positions))

        def at_labels(value: Tensor, fill: float) -> Tensor:
            value = laid_out(value)
            return F.pad(value[:, :-1], (1, 0), value=fill) if self.shifts else value

        places = laid_out(places)
        values: dict[str, Any] = {
            "logits": places,
            "outputs": CausalLMOutput(logits=places),  # type: ignore[arg-type]
            "hidden": places,
            "weight": weight,
            "labels": at_labels(targets.clone(), IGNORED),  # into which a loss may write
            "count": count,
            "weights": at_labels(weights.to(dtype), 0),
            "vocabulary": self.vocabulary,
        }
        if "reference" in self.named.values():
            teacher = ExampleContext(self.pretrained_VD).teacher(PRETRAINED)
            reference_BTV = teacher.logits(teacher.hidden(self.batch["input_ids"]))
            values["reference"] = laid_out(reference_BTV.flatten(0, 1)[rows].to(dtype))
        first = [values[role] for role in FORMS[self.form]]
        loss = self.function(*first, **{name: values[role] for name, role in self.named.items()})
        loss = getattr(loss, "loss", loss)
        if isinstance(loss, tuple):
            loss = loss[0]
        if not isinstance(loss, Tensor):
            raise Explained(f"it returns {loss!r:.60}; expected a tensor")
        if loss.numel() > 1:
            weights = laid_out(weights.to(loss.dtype))
            loss = loss.reshape(*weights.shape[:-1], -1)
            # A loss that shifts may have no result for the last position.
            loss = loss * weights[..., : loss.shape[-1]]
        elif self.reduction == "mean" and self.form != "outputs":
            loss = loss * (targets != IGNORED).sum()
        elif self.reduction != "sum":  # a Trainer does not multiply a mean by the targets of its micro-batch
            loss = loss * count
        return loss.sum()

    def expected(self) -> EngineResult:
        """Return the sum of the reference's losses and its gradients, by autograd in float64."""
        hidden, weight = self.leaves()
        call = loss_call(self.given(hidden_ND=hidden, weight_VD=weight))
        loss_M = call.loss_M(call.leaves)
        if self.weights_N is not None:
            loss_M = loss_M * self.weights_N[self.labels_N != IGNORED]
        return _sum_and_gradients(loss_M.sum(), hidden, weight)


def _sum_and_gradients(total: Tensor, hidden: Tensor, weight: Tensor) -> EngineResult:
    return EngineResult({SUM: total.detach(), **gradients_of(total, hidden, weight)})


def foreign_loss(
    function: Callable[..., Any], name: str, *, like: str | None = None, form: str | None = None
) -> ForeignLoss:
    """Return a loss of another program for the checks. It is called a few times.

    `function` is f(logits, labels), f(outputs, labels, num_items_in_batch) as transformers' Trainer calls it, or
    f(weight, hidden, labels), of tensors (B, T, ...) or (N, ...). `like` is the text of the objective that it should
    equal. `form` is a key of FORMS; None: by the name of its first argument.

    Raises ConfigError for other arguments, and PluginError for a loss that raises, is not finite, has no
    gradient, does not shift the labels of a Trainer, or is neither a sum nor a mean.
    """
    reference = load_objective(like).objective if like else NoReference()
    if isinstance(reference, ModelObjective):
        raise ConfigError(f"--like {like}: it runs the model by itself; expected an objective of tokens.")
    form, named = _arguments(function, name, form)
    loss, total = _first_run(ForeignLoss(reference, function=function, title=name, form=form, named=named))
    if not torch.isfinite(total):
        raise PluginError(f"{name} returns {float(total)} for random logits; expected a finite loss.")
    if form == "outputs" and not loss.shifts:
        raise PluginError(
            f"{name}: a Trainer gives it the labels of the input, and it does not shift them: each position learns the "
            "token that it reads. Let position t predict label t + 1."
        )
    tolerance = EXACT if total.dtype == torch.float64 else SINGLE
    return replace(loss, tolerance=tolerance, reduction=_reduction(loss))


def _arguments(function: Callable[..., Any], name: str, form: str | None) -> tuple[str, dict[str, str]]:
    """Return the form of a loss, and the further arguments that it gets. Raises ConfigError if it needs others."""
    try:
        signature = inspect.signature(function.forward if isinstance(function, nn.Module) else function)
        first = next(iter(signature.parameters), "")
        if form is None:
            form = "outputs" if "output" in first else "linear" if "weight" in first else "logits"
        named = {given: NAMED[given] for given in signature.parameters if given in NAMED}
        signature.bind(*FORMS[form], **named)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{name} cannot be called in the form {form or 'logits'}: {error}. Expected the first arguments of --form "
            "logits (logits, labels), --form outputs (outputs, labels) or --form linear (weight, hidden, labels)."
        ) from None
    return form, named


def _first_run(loss: ForeignLoss) -> tuple[ForeignLoss, Tensor]:
    """Return a loss with the shape and the shift of its labels, and its value. Raises PluginError if it has none."""
    problem: Exception | None = None
    for flat, shifts in ((False, True), (False, False), (True, False)):
        attempt = replace(loss, flat=flat, shifts=shifts)
        try:
            values = attempt.run().values
        except Explained as error:
            raise PluginError(f"{loss.name}: {error}.") from None
        except Exception as error:  # whatever a stranger's code raises
            problem = error
            continue
        last_BD = values[HIDDEN_GRADIENT].unflatten(0, (SEQUENCES, -1))[:, -1]
        if not shifts or not last_BD.any():  # the last position of a sequence has no next label
            return attempt, values[SUM]
    raise PluginError(
        f"{loss.name}, called with ({', '.join(FORMS[loss.form])}), raises {type(problem).__name__}: "
        f"{str(problem).rstrip('.')}. Labels of -100 are no targets; --form states another form of its arguments."
    )


def _reduction(loss: ForeignLoss) -> str:
    """Return a key of RETURNS: a mean is the same for a batch that is given twice. Raises PluginError for others."""
    unweighted = replace(loss, weights_N=torch.zeros(loss.tokens))
    if "weights" not in loss.named.values() and not unweighted.run().values[SUM]:
        return "none"
    if "count" in loss.named.values():
        return "global"
    twice = torch.arange(loss.tokens).repeat(2)
    ratio = round(float(loss.run(rows=twice).values[SUM] / loss.run().values[SUM]), 3)
    if ratio not in (1, 2):
        raise PluginError(
            f"{loss.name} is {ratio:g} times as large for a batch that is given twice; expected 2 times, a sum, or "
            "once, a mean."
        )
    return "mean" if ratio == 1 else "sum"
