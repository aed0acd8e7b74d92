"""The checks of objectives that apply to a loss of another program, and its comparison with a reference objective.

Legend: N places, V vocabulary, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import wraps

import torch
from torch import Tensor

from emobench.core.conformance import Broken, Check, Skipped, check
from emobench.objectives import IGNORED
from emobench.testing import objectives, token_checks
from emobench.testing.foreign import ForeignLoss, NoReference
from emobench.testing.subject import HIDDEN_GRADIENT, SUM, EngineResult, distance
from emobench.testing.token_checks import PRECISIONS, central_difference, tolerance

STEP = 1e-3
DIFFERENCES = 1e-2
"""Relative error of central differences with that step. A wrong gradient has a much larger one."""
SEEDS = (0, 1, 2)
ALIKE = 1e-6
"""Relative error of another formula in float64, parts of which may be float32. SINGLE for a loss in float32."""


@check("Bound what goes into a logarithm or a division.", gate=True)
def loss(subject: ForeignLoss) -> None:
    """A finite loss, and finite gradients."""
    token_checks.require_finite(subject.run(), "on random logits")


@check(
    "A part of the loss is cut from autograd without `.detach()`: `.item()`, rounding, a new tensor. Or a custom "
    "backward is another function's: its saved gradient misses the weights of tokens, or a factor after the loss."
)
def gradients(subject: ForeignLoss) -> None:
    """Autograd's gradient agrees with finite differences, with weights of tokens if it has some."""
    # The forward method of an autograd.Function runs under no_grad, and its values are no constants.
    error = min(_differences(subject.weighted, no_grad=no_grad) for no_grad in (False, True))
    if not error < DIFFERENCES:
        raise Broken(f"autograd's gradient and finite differences differ by {error:.1e}")


def _differences(subject: ForeignLoss, *, no_grad: bool) -> float:
    """Return the relative error of autograd's derivative along a random direction of hidden states and head."""
    along_ND = subject.normal(4, *subject.hidden_ND.shape)
    along_VD = subject.normal(5, *subject.weight_VD.shape)

    def total_at(step: float) -> Tensor:
        hidden = subject.hidden_ND + step * along_ND
        weight = subject.weight_VD + step * along_VD
        return subject.total(hidden.requires_grad_(), weight.requires_grad_()).double()

    numeric = central_difference(total_at, STEP, no_grad=no_grad)
    gradient = _vector(subject.run())
    expected = torch.cat([along_ND.flatten(), along_VD.flatten()]) @ gradient
    return float((numeric - expected).abs() / gradient.norm())


@check("Padding enters a count or a mean, or is only multiplied by 0 after it: leave it out first.")
def masking(subject: ForeignLoss) -> None:
    """Places with target -100 have no gradient and no influence, and more of them change nothing."""
    token_checks.require_masking(subject)
    token_checks.require_same(subject, "with more padding and before", _padded(subject), subject.run())


@check("Make the logits of a chunk of tokens at a time.")
def memory(subject: ForeignLoss) -> None:
    """A loss of hidden states makes no tensor of tokens x vocabulary or more."""
    if subject.form != "linear":
        raise Skipped("it gets whole logits")
    token_checks.memory.function(subject)


# Compared with the reference


@check("Another loss, or a constant that depends on the batch.")
def value(subject: ForeignLoss) -> None:
    """Its value is that of the reference on three batches, times a constant."""
    losses = []
    expected = []
    for seed in SEEDS:
        seeded = replace(subject, seed=seed)
        losses.append(seeded.run().values[SUM].double())
        expected.append(seeded.expected().values[SUM])
    _require_alike(subject, "value", torch.stack(losses), torch.stack(expected))


@check("Another loss, a weight with a gradient in place of a constant one, or the other way round.", gate=True)
def gradient(subject: ForeignLoss) -> None:
    """Its gradient is that of the reference, times a constant."""
    _require_like_reference(subject, "gradient", subject.run())


@check("A constant factor acts as another learning rate: multiply by it, or document it.")
def scale(subject: ForeignLoss) -> None:
    """The constant is 1, of the gradient and of the value."""
    result, expected = subject.run(), subject.expected()
    factor, _ = _relation(_vector(result), _vector(expected))
    for found, what in ((factor, "it"), (result.values[SUM] / expected.values[SUM], "its value")):
        ratio, words = (found, "larger") if abs(found) > 1 else (1 / found, "smaller")
        if abs(ratio - 1) > max(ALIKE, tolerance(subject)):
            raise Broken(f"{what} is {ratio:#.5g} times {words} than {subject.objective!r}, a constant factor")


@check("It divides by the targets of each micro-batch, a mean of means: see `accumulation`.")
def accumulated(subject: ForeignLoss) -> None:
    """Micro-batches with one global denominator add up to the gradient of the reference, times a constant."""
    _require_like_reference(subject, "gradient over micro-batches", token_checks.added_halves(subject))


@check("Padding enters a count or a mean: see `masking`.")
def padded(subject: ForeignLoss) -> None:
    """With more padding, its gradient is that of the reference, times a constant."""
    _require_like_reference(subject, "gradient with more padding", _padded(subject))


@check("Weights are missing in the gradient, applied twice, or those of another token.")
def weighted(subject: ForeignLoss) -> None:
    """With weights of tokens, its gradient is that of the weighted reference, times a constant."""
    if not subject.takes_weights:
        raise Skipped("it has no argument for weights of tokens, and returns no loss of each token")
    subject = subject.weighted
    _require_like_reference(subject, "gradient with weights of tokens", subject.run())


@check("Work in float32 at least: logits.float().")
def single(subject: ForeignLoss) -> None:
    """In float32, its gradient is that of the reference to 1e-5, times a constant."""
    rounded = replace(subject, tolerance=PRECISIONS[torch.float32][1])
    _require_like_reference(rounded, "gradient in float32", subject.run(dtype=torch.float32))


def _require_like_reference(subject: ForeignLoss, what: str, result: EngineResult) -> None:
    _require_alike(subject, what, _vector(result), _vector(subject.expected()))


def _require_alike(subject: ForeignLoss, what: str, found: Tensor, expected: Tensor) -> None:
    """Raise Broken unless a vector is another one times a number."""
    factor, error = _relation(found, expected)
    if not factor or not error < max(ALIKE, tolerance(subject)):
        raise Broken(f"its {what} and that of {subject.objective!r} differ by {error:.1e}, and by no constant factor")


def _relation(found: Tensor, expected: Tensor) -> tuple[Tensor, float]:
    """Return the factor that brings `expected` nearest to `found`, and the relative error that is left."""
    factor = (found @ expected) / (expected @ expected)
    return factor, distance(found, factor * expected)


def _vector(result: EngineResult) -> Tensor:
    """Return the gradients of a result as one vector in float64."""
    _, *gradients = result.values.values()
    return torch.cat([gradient.double().flatten() for gradient in gradients])


def _padded(subject: ForeignLoss) -> EngineResult:
    """Return the result with another sequence of padding, without its gradient."""
    padding = int((subject.labels_N == IGNORED).nonzero()[0])
    rows = torch.cat([torch.arange(subject.tokens), torch.full((subject.positions,), padding)])
    result = subject.run(rows=rows)
    result.values[HIDDEN_GRADIENT] = result.values[HIDDEN_GRADIENT][: subject.tokens]
    return result


SKIPPED = {
    objectives.setup: "it has no `setup`",
    token_checks.side_data: "the reference alone has side data",
    token_checks.chunks: "the engine does not call it",
    token_checks.engine: "the engine does not call it",
    token_checks.slopes: "slopes belong to a StatisticsObjective",
    token_checks.parts: "it logs nothing through emobench",
    objectives.parameters: "its arguments declare no ranges",
    objectives.state: "a checkpoint has no state of it",
    objectives.documentation: "it is documented in the other program",
}
"""Checks of objectives that do not apply, and the reasons."""
OWN = {
    token_checks.loss: loss,
    token_checks.accumulation: replace(
        token_checks.accumulation,
        usually="It divides by the targets of each micro-batch, a mean of means. Divide by the global number of "
        "targets (num_items_in_batch); without such an argument return a sum, or the mean over the targets.",
    ),
    token_checks.gradients: gradients,
    token_checks.masking: masking,
    token_checks.memory: memory,
}
COMPARED = (value, gradient, scale, accumulated, padded, weighted, single)


def checks(subject: ForeignLoss) -> tuple[Sequence[Check], ForeignLoss]:
    """Return the checks of a loss, in the order of those of objectives, then those against its reference."""
    chosen = []
    for original in objectives.checks(subject.objective)[0]:
        reason = SKIPPED.get(original)
        chosen.append(_skipped(original, reason) if reason else OWN.get(original, original))
    if not isinstance(subject.objective, NoReference):
        chosen += COMPARED
    return chosen, subject


def _skipped(original: Check, reason: str) -> Check:
    @wraps(original.function)
    def skip(subject: ForeignLoss) -> None:
        raise Skipped(reason)

    return Check(skip, "", gate=False)
