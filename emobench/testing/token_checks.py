"""Checks of objectives that run in the engine, and of their derivatives.

Derivatives: autograd against finite differences, and closed-form slopes against autograd.

Legend: N tokens, M target tokens, V vocabulary, D width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from emobench.core.conformance import Broken, Explained, Skipped, check
from emobench.objectives import IGNORED, CostEmbedding, LogitsObjective, Objective, StatisticsObjective, TokenStatistics
from emobench.objectives.statistics import statistics_from_logits
from emobench.testing.subject import CUT_OFF, CheckedObjective, EngineResult, distance

PRECISIONS = {torch.float32: (1e-5, 1e-5), torch.bfloat16: (1e-3, 1e-2), torch.float16: (1e-3, 5e-3)}
"""Relative errors of the losses and of the gradients, compared with float64 on the same rounded inputs. With half
precision, losses are float32 and only gradients are rounded (8 bits in bfloat16, a relative error of 4e-3)."""
FAR = 1000.0
"""Length of a hidden state along its target's row for which the probability is exactly 1, or 0, in float32."""
RESERVED = {"loss", "tokens", "mle", "grew", "shrank", "alternatives"}
"""Names that training logs for every objective."""
LOGITS = "the logits"
EXACT = 1e-9
"""Relative error in float64, for the same function with another order of summation."""
SINGLE = 1e-5
"""Relative error for a loss that converts its inputs to float32."""
STEPS = {torch.float64: (1e-5, 1e-5), torch.float32: (1e-2, 1e-2)}
"""Precision of the loss -> step of the central differences, and allowed relative error."""

CERTAIN = 30.0
"""Length of a hidden state along its target's row for which q_t is 1 in float64."""
_DETACH = (Tensor.detach, Tensor.detach_, torch.detach)
_SWITCHES = (torch._C._set_grad_enabled,)
"""Functions that no_grad calls. They are always executed: gradients would otherwise stay disabled."""


class HeldConstants(TorchFunctionMode):
    """Gives a function the same constants in each call: the values that it detached, or computed under no_grad, in the
    first call.

    Autograd treats these parts as constants. Finite differences must also hold them constant to give the same gradient.
    Call `rewind` before each call. With `no_grad=False` only detached values are constants: PyTorch runs the
    forward method of an autograd.Function, too, under no_grad.
    """

    def __init__(self, *, no_grad: bool = True) -> None:
        super().__init__()
        self._no_grad = no_grad
        self._held: list[Any] = []
        self._next = 0

    def rewind(self) -> None:
        """Return the stored constants from now on, starting with the first."""
        self._next = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_constant = func in _DETACH or (self._no_grad and not torch.is_grad_enabled())
        if func in _SWITCHES or not is_constant:
            return func(*args, **(kwargs or {}))
        self._next += 1
        if self._next <= len(self._held):
            return _copied(self._held[self._next - 1])
        out = func(*args, **(kwargs or {}))
        self._held.append(_copied(out))
        return out


def _copied(value: Any) -> Any:
    """Return a copy of a tensor, which later code may change in place."""
    return value.clone() if isinstance(value, Tensor) else value


def central_difference(function: Callable[[float], Tensor], step: float, *, no_grad: bool = True) -> Tensor:
    """Return the derivative of a function at 0 by central differences, with the constants of its value at 0."""
    held = HeldConstants(no_grad=no_grad)
    values = []
    for at in (0.0, step, -step):
        held.rewind()
        with held:
            values.append(function(at))
    return (values[1] - values[2]).detach() / (2 * step)


@dataclasses.dataclass(frozen=True)
class LossCall:
    """The inputs of `loss` on the target tokens: statistics by name, (M,), or the logits, (M, V)."""

    objective: Objective
    leaves: dict[str, Tensor]
    ids_M: Tensor
    side: dict[str, Tensor]

    def statistics(self, values: Mapping[str, Tensor]) -> TokenStatistics:
        return TokenStatistics(values, self.ids_M, self.side)

    def loss_M(self, values: Mapping[str, Tensor]) -> Tensor:
        if isinstance(self.objective, LogitsObjective):
            return self.objective.loss(values[LOGITS], self.ids_M, self.side)
        assert isinstance(self.objective, StatisticsObjective)
        return self.objective.loss(self.statistics(values))

    def slopes(self, loss_M: Tensor) -> dict[str, Tensor]:
        """Return autograd's d loss / d leaf; 0 if the loss does not depend on a leaf."""
        slopes = torch.autograd.grad(loss_M.sum(), list(self.leaves.values()), materialize_grads=True)
        return dict(zip(self.leaves, slopes, strict=True))

    def loss_along(self, name: str, direction: Tensor, step: float) -> Tensor:
        """Return the losses, (M,), with a leaf moved by a step along a direction."""
        moved = self.leaves[name].detach() + step * direction
        return self.loss_M({**self.leaves, name: moved})


def loss_call(subject: CheckedObjective) -> LossCall:
    """Return the float64 call of a subject's objective on its target tokens."""
    objective = subject.ready
    kept_N = subject.labels_N != IGNORED
    ids_M = subject.labels_N[kept_N]
    side = {name: value[kept_N] for name, value in subject.side.items()}
    values = {LOGITS: subject.hidden_ND[kept_N] @ subject.weight_VD.T}
    if isinstance(objective, StatisticsObjective):
        cost_MV = (objective.cost_embedding or CostEmbedding(subject.weight_VD)).costs(ids_M)
        values = statistics_from_logits(values[LOGITS], ids_M, objective.statistic_names, cost_MV)
    return LossCall(objective, {name: value.requires_grad_() for name, value in values.items()}, ids_M, side)


def tolerance(subject: CheckedObjective) -> float:
    """Return the allowed relative error: larger for an objective that computes its loss in float32."""
    if subject.tolerance is not None:
        return subject.tolerance
    call = loss_call(subject)
    return EXACT if call.loss_M(call.leaves).dtype == torch.float64 else SINGLE


@check(
    "A part of the loss is cut from autograd without `.detach()`: a newly created tensor, `.item()`, rounding, or a "
    "custom backward that is another function's. Constants are marked by `.detach()` or torch.no_grad(); or a "
    "token's loss reads other tokens.",
)
def gradients(subject: CheckedObjective) -> None:
    """Autograd's derivatives agree with finite differences.

    Central ones, along a random direction of each statistic, or of the logits.
    """
    call = loss_call(subject)
    loss_M = call.loss_M(call.leaves)
    if not loss_M.requires_grad:
        raise Explained(CUT_OFF)
    size, allowed = STEPS.get(loss_M.dtype, STEPS[torch.float32])
    generator = torch.Generator().manual_seed(subject.seed)
    slopes = call.slopes(loss_M)
    if not _any(slopes) and not _any(_slopes_up_to_certainty(subject)):
        raise Explained("its gradient is 0 on every token: it trains nothing")
    for name, slope in slopes.items():
        direction = torch.randn(slope.shape, generator=generator, dtype=slope.dtype)
        expected_M = (slope * direction).reshape(len(slope), -1).sum(dim=1)
        numeric_M = central_difference(partial(call.loss_along, name, direction), size)
        scale = expected_M.norm().clamp_min(1e-3 * float(loss_M.detach().norm()) + 1e-12)
        error = float((numeric_M - expected_M).norm() / scale)
        if not error < allowed:
            raise Broken(f"autograd's derivative of its loss by {name} and finite differences differ by {error:.1e}")


@check("Differentiate again: parts under `.detach()` are constants; a statistic that is left out has slope 0.")
def slopes(subject: CheckedObjective) -> None:
    """Closed-form slopes are those of autograd."""
    call = loss_call(subject)
    if not isinstance(call.objective, StatisticsObjective):
        raise Skipped("slopes belong to a StatisticsObjective")
    slopes = call.objective.slopes(call.statistics(call.leaves).detach())
    if slopes is None:
        raise Skipped("it gives none: autograd finds them")
    for name in sorted(slopes.keys() - call.leaves.keys()):
        raise Broken(f"its slopes name '{name}', which it does not need; it needs {', '.join(sorted(call.leaves))}")
    for name, expected_M in call.slopes(call.loss_M(call.leaves)).items():
        slope_M = slopes.get(name, torch.zeros_like(expected_M))
        if slope_M.shape != expected_M.shape:
            raise Broken(f"its slope of {name} has shape {tuple(slope_M.shape)}; expected {tuple(expected_M.shape)}")
        error = float((slope_M - expected_M).norm() / expected_M.norm().clamp_min(1e-6))
        if not error < tolerance(subject):
            raise Broken(f"its slope of {name} and autograd's differ by {error:.1e}")


def _slopes_up_to_certainty(subject: CheckedObjective) -> dict[str, Tensor]:
    """Return slopes for target probabilities up to 1: a loss may have gradients only for likely targets."""
    _, targets_ND = _unit_rows(subject)
    lengths_N = torch.linspace(0, CERTAIN, subject.tokens, dtype=targets_ND.dtype)
    call = loss_call(subject.given(hidden_ND=subject.hidden_ND + lengths_N[:, None] * targets_ND))
    return call.slopes(call.loss_M(call.leaves))


def _unit_rows(subject: CheckedObjective) -> tuple[Tensor, Tensor]:
    """Return the head with rows of length 1, and the row of each token's target, (N, D)."""
    unit_VD = subject.weight_VD / subject.weight_VD.norm(dim=1, keepdim=True)
    return unit_VD, unit_VD[subject.labels_N.clamp(min=0)]


def _any(slopes: Mapping[str, Tensor]) -> bool:
    return any(bool(slope.any()) for slope in slopes.values())


class NewTensors(TorchDispatchMode):
    """Records the largest tensor with new memory (not views or in-place results), except for some shapes."""

    def __init__(self, except_shapes: set[tuple[int, ...]]) -> None:
        super().__init__()
        self.except_shapes = except_shapes
        self.largest: tuple[int, ...] = ()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        results = out if isinstance(out, (tuple, list)) else (out,)
        for result, declared in zip(results, func._schema.returns, strict=False):
            if isinstance(result, Tensor) and declared.alias_info is None:
                shape = tuple(result.shape)
                if shape not in self.except_shapes and result.numel() > torch.Size(self.largest).numel():
                    self.largest = shape
        return out


@check("", gate=True)
def side_data(subject: CheckedObjective) -> None:
    """Side data in `needs` is made by `side_data`, or shown by `example_side`."""
    if names := " and ".join(f"'{name}'" for name in subject.invented):
        raise Skipped(
            f"{names}: not a statistic, and not from `side_data`; random numbers are used, and a run needs a column of "
            "that name in its corpus"
        )
    subject.side_of(subject.ready)  # their shapes


@check(
    "Return a vector with one loss for each token and no mean; keep arguments of log, sqrt and divisions away from 0.",
    gate=True,
)
def loss(subject: CheckedObjective) -> None:
    """One finite loss for each token, and finite parts."""
    require_finite(subject.run(impl="reference"), "on random logits")


@check(
    "The loss of a token reads other tokens (a mean, a rank, a neighbour), or changes from call to call (a "
    "counter, a random number).",
)
def engine(subject: CheckedObjective) -> None:
    """The chunked engine gives the losses and gradients of plain autograd."""
    require_same(subject, "the chunked engine and the reference", subject.run(), subject.run(impl="reference"))


@check("`total_weight` counts labels other than -100, without the first column; the loss keeps nothing between calls.")
def masking(subject: CheckedObjective) -> None:
    """Tokens with label -100 have no loss, no gradient and no influence."""
    require_masking(subject)
    total = subject.ready.total_weight(subject.batch)
    padded = {name: torch.cat([v, torch.zeros_like(v[:, :3])], dim=1) for name, v in subject.batch.items()}
    padded["labels"][:, -3:] = IGNORED
    if float(subject.ready.total_weight(padded)) != float(total):
        raise Broken("its total_weight counts padding")


def require_masking(subject: CheckedObjective) -> None:
    """Raise Broken if tokens with label -100 have a loss, a gradient or influence."""
    before = subject.run()
    ignored_N = subject.labels_N == IGNORED
    for name in before.by_token:
        if before.values[name][ignored_N].any():
            raise Broken(f"tokens with label -100 have a {name}")
    moved_ND = torch.where(ignored_N[:, None], subject.hidden_ND.flip(0) + 3, subject.hidden_ND)
    moved = subject.given(hidden_ND=moved_ND)
    require_same(subject, "with other hidden states where the label is -100 and before", moved.run(), before)


@check("With no token a mean is 0/0 and a maximum has no value; work token by token.")
def empty_batch(subject: CheckedObjective) -> None:
    """A batch without targets has loss 0 and gradients of 0."""
    empty = subject.given(labels_N=torch.full_like(subject.labels_N, IGNORED))
    for name, value in empty.run().values.items():
        if value.any():
            raise Broken(f"a batch without targets has a {name} that is not 0")


@check(
    "`loss` sees a chunk, not a batch: nothing may be averaged, sorted or normalised over it, nor divided by len(s)."
)
def chunks(subject: CheckedObjective) -> None:
    """Losses and gradients do not depend on how tokens are cut into chunks."""
    expected = subject.run(impl="reference")
    for rows in (1, 2, 3, 7):
        require_same(subject, f"chunks of size {rows} and the reference", subject.run(chunk_rows=rows), expected)


@check("`loss` uses a token's place in the chunk; what belongs to a place goes through side data.")
def order(subject: CheckedObjective) -> None:
    """Tokens in another order have the same losses in that order."""
    # Few distinct targets: the engine sorts tokens by target and keeps the order of equal targets only.
    few = subject.given(labels_N=torch.where(subject.labels_N == IGNORED, IGNORED, subject.labels_N % 2))
    rows = subject.other_order
    result = few.run(rows=rows)
    for name in result.by_token:
        result.values[name] = result.values[name][rows.argsort()]
    require_same(subject, "tokens in another order and before", result, few.run())


@check(
    "The loss is divided by a number of tokens, or keeps a running mean: update that in `begin_step`; the trainer "
    "divides.",
)
def accumulation(subject: CheckedObjective) -> None:
    """Two halves of a batch, one after the other, add up to the whole."""
    require_same(subject, "the sum of two halves and the whole", added_halves(subject), subject.run())


def halves(subject: CheckedObjective) -> tuple[EngineResult, EngineResult]:
    middle = subject.tokens // 2
    return subject.run(rows=slice(0, middle)), subject.run(rows=slice(middle, None))


def added_halves(subject: CheckedObjective) -> EngineResult:
    """Return the results of two halves of the tokens, added up."""
    first, second = halves(subject)
    joined = {}
    for name, value in first.values.items():
        other = second.values[name]
        joined[name] = torch.cat([value, other]) if name in first.by_token else value + other
    return EngineResult(joined)


@check(
    "Random numbers: draw them in `side_data` or `setup` from a seeded generator; or `loss` keeps something "
    "between calls.",
    gate=True,
)
def determinism(subject: CheckedObjective) -> None:
    """The same inputs give the same bits."""
    one = subject.run()
    two = subject.run()
    for name, value in one.values.items():
        if not torch.equal(value, two.values[name]):
            raise Broken(f"the same inputs twice give two values of the {name}")


@check(
    "A difference of nearly equal numbers (1 - exp(x) is -expm1(x), log(1 + x) is log1p(x)), or a cast to half "
    "precision inside the loss: statistics come in float32 and stay there.",
)
def precisions(subject: CheckedObjective) -> None:
    """float32, bfloat16 and float16 are close to float64 on the same inputs."""
    for dtype, tolerances in PRECISIONS.items():
        rounded = subject.given(hidden_ND=subject.hidden_ND.to(dtype), weight_VD=subject.weight_VD.to(dtype))
        result = rounded.run(dtype=dtype)
        expected = rounded.run()
        name = str(dtype).removeprefix("torch.")
        require_finite(result, f"in {name}")
        for what, value in result.values.items():
            error = distance(value, expected.values[what])
            if not error < tolerances[what != "loss"]:
                raise Broken(f"in {name} the {what} is off by {error:.1e}")


@check(
    "log(1 - q) at q = 1, log q at q = 0, 0 * inf or x / 0: use -expm1 and log1p, bound what goes into a "
    "logarithm, and mind that torch.where passes NaN gradients of the branch that is not taken.",
)
def hard_rows(subject: CheckedObjective) -> None:
    """Losses and gradients are finite where the model is certain, hopelessly wrong, or says nothing."""
    unit_VD, targets_ND = _unit_rows(subject)
    for scale, words in (
        (FAR, "where the target has probability 1"),
        (-FAR, "where the target has probability 0"),
        (0.0, "where all tokens are equally likely"),
    ):
        hard = subject.given(hidden_ND=scale * targets_ND, weight_VD=unit_VD)
        require_finite(hard.run(dtype=torch.float32), f"{words} (float32)")
        require_finite(hard.run(), f"{words} (float64)")


@check(
    "A dense target for each token as side data, or a V x V matrix: pass what makes it (teacher states, state "
    "probabilities), and make the rows of a chunk in `loss`.",
)
def memory(subject: CheckedObjective) -> None:
    """No tensor of tokens x vocabulary or more is made."""
    if not subject.given_side:
        subject = dataclasses.replace(subject, tokens=64, vocabulary=127)
    count = subject.tokens * subject.vocabulary
    words = f"{subject.tokens} tokens and {subject.vocabulary} words"
    for name, value in subject.side.items():
        if value.numel() >= count:
            raise Broken(f"its side data '{name}' holds {tuple(value.shape)} numbers for {words}")
    with NewTensors(except_shapes={tuple(subject.weight_VD.shape)}) as tensors:
        subject.run(chunk_rows=max(1, subject.tokens // 8))
    if torch.Size(tensors.largest).numel() >= count:
        raise Broken(f"with {words} it makes a tensor of shape {tensors.largest}")


@check("`parts` returns vectors (N,), as `loss` does, and names none of them loss or tokens.")
def parts(subject: CheckedObjective) -> None:
    """Logged parts are one number for each token, whatever the chunks and the batch."""
    call = loss_call(subject)
    if isinstance(call.objective, StatisticsObjective):
        names = set(call.objective.parts(call.statistics(call.leaves).detach()))
        for name in sorted(names & RESERVED):
            raise Broken(f"its part '{name}' takes the place of the trainer's own")
    whole = subject.run().parts
    small = subject.run(chunk_rows=2).parts
    names = set(whole) - RESERVED
    if not names:
        raise Skipped("it logs nothing in addition to its loss")
    first, second = halves(subject)
    for name in sorted(names):
        for other in (small[name], first.parts[name] + second.parts[name]):
            if not torch.allclose(whole[name], other, rtol=tolerance(subject), atol=1e-12):
                raise Broken(f"its part '{name}' depends on the other tokens of its chunk or batch")


def require_finite(result: EngineResult, where: str) -> None:
    parts = {f"part '{name}'": value for name, value in result.parts.items()}
    for name, value in {**result.values, **parts}.items():
        if not torch.isfinite(value).all():
            raise Broken(f"its {name} is not finite {where}")


def require_same(subject: CheckedObjective, what: str, result: EngineResult, expected: EngineResult) -> None:
    for name, value in result.values.items():
        error = distance(value, expected.values[name])
        if not error < tolerance(subject):
            raise Broken(f"{what} differ in the {name} by {error:.1e}")


TOKEN_CHECKS = (
    side_data, loss, determinism, chunks, accumulation, order, engine, gradients, slopes, masking, empty_batch,
    precisions, hard_rows, memory, parts,
)  # fmt: skip
