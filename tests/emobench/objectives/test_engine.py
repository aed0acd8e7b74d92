"""The engine against a float64 autograd of each objective's equation, written here with no code of the engine.

N = 37 tokens: chunks of 1, of 16 rows (two and a remainder; more where cost rows are held, too), and one of all.
V = 131 is a prime, so that no block or chunk divides it. Half of the targets are drawn from the model itself, as on
real text, where many tokens are confident; the other half are uniform. Ten tokens are ignored, and targets repeat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

import emobench
from emobench.models.head import LogitMap
from emobench.objectives import CostEmbedding, LossResult, Targets, objective_loss, prepare_for
from emobench_objectives.emo import Emo
from emobench_objectives.mixce import MixCE
from emobench_objectives.mle import Mle
from emobench_objectives.tailr import TaiLr

N, V, D = 37, 131, 24
LOSS_ERROR = {torch.float32: 1e-6, torch.bfloat16: 5e-3, torch.float16: 5e-3}
PLAIN = LogitMap()
GRADIENT_ERROR = {torch.float32: 1e-5, torch.bfloat16: 5e-3, torch.float16: 5e-3}


@dataclass(frozen=True)
class Inputs:
    hidden_ND: Tensor
    head_VD: Tensor
    bias_V: Tensor | None
    labels_N: Tensor
    cost_VE: Tensor
    side: dict[str, Tensor]
    logit_map: LogitMap = PLAIN

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """What gets gradients."""
        return self.hidden_ND, self.head_VD, self.bias_V


def make_inputs(
    dtype: torch.dtype = torch.float32, *, sharpness: float = 1.0, bias: bool = False, logit_map: LogitMap = PLAIN
) -> Inputs:
    """Raw logits have standard deviation `sharpness`."""
    rng = torch.Generator().manual_seed(0)
    hidden_ND = torch.randn(N, D, generator=rng).to(dtype)
    head_VD = (torch.randn(V, D, generator=rng) * (sharpness / D**0.5)).to(dtype)
    bias_V = torch.randn(V, generator=rng).to(dtype) if bias else None
    q_NV = (hidden_ND.float() @ head_VD.float().T).softmax(-1)
    labels_N = torch.randint(V, (N,), generator=rng)
    labels_N[::2] = torch.multinomial(q_NV, 1, generator=rng)[::2, 0]
    labels_N[torch.randperm(N, generator=rng)[:10]] = -100
    labels_N[-6:] = torch.tensor([3, 8, 3, 3, 8, 3])
    cost_VE = torch.randn(V, 16, generator=rng)
    side = {"weight": torch.rand(N, generator=rng), "pair": torch.randint(V, (N, 2), generator=rng)}
    return Inputs(hidden_ND, head_VD, bias_V, labels_N, cost_VE, side, logit_map)


class Everything(emobench.StatisticsObjective):
    """Depends on every statistic, and not linearly."""

    needs = frozenset({"expected_cost", "entropy", "log_partition", "mean_log_prob", "sum_squares"})

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        smooth = 0.01 * s.log_partition**2 - 0.1 * s.mean_log_prob
        return -s.log_prob + 0.5 * s.expected_cost * s.entropy + smooth + s.sum_squares.sqrt()


class Entropy(emobench.StatisticsObjective):
    """The target does not matter."""

    needs = frozenset({"entropy"})

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return s.entropy


class Weighted(emobench.StatisticsObjective):
    """Reads side data of two shapes."""

    needs = frozenset({"weight", "pair"})

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        hits = (s.side["pair"] == s.targets[:, None]).sum(-1)
        return -(s.side["weight"] + hits + s.side["pair"][:, 0] / V) * s.log_prob


class Brier(emobench.LogitsObjective):
    """A proper score on whole logits, weighted by side data."""

    needs = frozenset({"weight"})

    def loss(self, logits_NV: Tensor, targets_N: Tensor, side: Any) -> Tensor:
        q_NV = logits_NV.softmax(-1)
        target_q_N = q_NV.gather(1, targets_N[:, None])[:, 0]
        return side["weight"] * (q_NV.square().sum(-1) - 2 * target_q_N + 1) + 0.01 * logits_NV.square().mean(-1)


def nll(q: Tensor, t: Tensor) -> Tensor:
    return -q[torch.arange(len(t)), t].log()


def target_q(q: Tensor, t: Tensor) -> Tensor:
    return q[torch.arange(len(t)), t].detach()


def entropy(q: Tensor) -> Tensor:
    return -torch.where(q > 0, q * q.clamp_min(1e-300).log(), 0).sum(-1)


def naive_everything(z: Tensor, q: Tensor, t: Tensor, u: Tensor, side: Any) -> Tensor:
    logsumexp = (z - z.detach().amax(-1, keepdim=True)).exp().sum(-1).log() + z.detach().amax(-1)
    mean_log_prob = z.mean(-1) - logsumexp
    return nll(q, t) + 0.5 * u * entropy(q) + 0.01 * logsumexp**2 - 0.1 * mean_log_prob + (q * q).sum(-1).sqrt()


def naive_weighted(z: Tensor, q: Tensor, t: Tensor, u: Tensor, side: Any) -> Tensor:
    return (side["weight"] + (side["pair"] == t[:, None]).sum(-1) + side["pair"][:, 0] / V) * nll(q, t)


def naive_brier(z: Tensor, q: Tensor, t: Tensor, u: Tensor, side: Any) -> Tensor:
    one_hot = torch.nn.functional.one_hot(t, z.shape[1])
    return side["weight"] * (q - one_hot).square().sum(-1) + 0.01 * (z * z).sum(-1) / z.shape[1]


# name -> (objective, its equation on whole logits z, q = softmax(z), targets t, expected cost u and side data).
Equation = Callable[[Tensor, Tensor, Tensor, Tensor, Any], Tensor]
OBJECTIVES: dict[str, tuple[Callable[..., Any], Equation]] = {
    "mle": (Mle, lambda z, q, t, u, side: nll(q, t)),
    "tailr": (
        lambda: TaiLr(gamma=0.3),
        lambda z, q, t, u, side: target_q(q, t) / (0.3 + 0.7 * target_q(q, t)) * nll(q, t),
    ),
    "mixce": (lambda: MixCE(gamma=0.7), lambda z, q, t, u, side: (0.7 + 0.3 * target_q(q, t)) * nll(q, t)),
    "emo": (Emo, lambda z, q, t, u, side: 0.5 * (nll(q, t) + (nll(q, t) / u).detach() * u)),
    "everything": (Everything, naive_everything),
    "entropy": (Entropy, lambda z, q, t, u, side: entropy(q)),
    "side": (Weighted, naive_weighted),
    "logits": (Brier, naive_brier),
}


@dataclass(frozen=True)
class Outcome:
    total: Tensor
    losses_N: Tensor
    gradients: tuple[Tensor | None, ...]


def by_equation(name: str, inputs: Inputs) -> Outcome:
    """Float64 autograd on the whole softmax and the whole V x V cost matrix."""
    leaves: list[Any] = [None if x is None else x.double().requires_grad_() for x in inputs.tensors]
    hidden_ND, head_VD, bias_V = leaves
    keep_N = inputs.labels_N != -100
    t = inputs.labels_N[keep_N]
    raw = hidden_ND[keep_N] @ head_VD.T
    z = inputs.logit_map.scale * (raw if bias_V is None else raw + bias_V)
    if inputs.logit_map.cap is not None:
        z = inputs.logit_map.cap * torch.tanh(z / inputs.logit_map.cap)
    mass = torch.exp(z - z.detach().amax(-1, keepdim=True))
    q = mass / mass.sum(-1, keepdim=True)
    rows = inputs.cost_VE.double()
    norms = rows.norm(dim=1, keepdim=True)
    unit = torch.where(norms > 0, rows / norms, 0.0)
    cost_VV = (1 - unit @ unit.T).fill_diagonal_(0)
    u = (q * cost_VV[t]).sum(-1)
    loss = OBJECTIVES[name][1](z, q, t, u, {key: value[keep_N].double() for key, value in inputs.side.items()})
    loss.sum().backward()
    losses_N = torch.zeros(len(keep_N), dtype=torch.float64)
    losses_N[keep_N] = loss.detach()
    return Outcome(loss.sum().detach(), losses_N, tuple(None if x is None else x.grad for x in leaves))


def by_engine(
    name: str, inputs: Inputs, impl: str, rows: int | None, *, vocabulary: int | None = None, keep: Tensor | None = None
) -> tuple[LossResult, Outcome]:
    # Where there is a GPU, Triton has no interpreter.
    device = "cuda" if impl == "triton" and torch.cuda.is_available() else "cpu"
    objective = OBJECTIVES[name][0]()
    if "expected_cost" in objective.needs:
        objective.use_cost(CostEmbedding(inputs.cost_VE.to(device)))
        if keep is not None:
            objective.cost_embedding.keep(keep)
    leaves: list[Any] = [None if x is None else x.to(device).clone().requires_grad_() for x in inputs.tensors]
    result = objective_loss(
        objective,
        leaves[0],
        leaves[1],
        leaves[2],
        inputs.labels_N.to(device),
        logit_map=inputs.logit_map,
        side={key: inputs.side[key].to(device) for key in objective.side_names},
        vocabulary=vocabulary,
        impl=impl,
        chunk_bytes=None if rows is None else 4 * len(inputs.head_VD) * rows,
    )
    result.total.backward()
    gradients = tuple(None if x is None else x.grad.cpu() for x in leaves)
    return result, Outcome(result.total.detach().cpu(), result.losses_N.cpu(), gradients)


def error(actual: Tensor, expected: Tensor) -> float:
    """Frobenius norm of the difference, relative to the expected one."""
    return float((actual.double() - expected.double()).norm() / expected.double().norm())


def assert_same(actual: Outcome, expected: Outcome, loss_error: float, gradient_error: float) -> None:
    assert error(actual.total, expected.total) <= loss_error
    assert error(actual.losses_N, expected.losses_N) <= loss_error
    for found, wanted in zip(actual.gradients, expected.gradients, strict=True):
        assert (found is None) == (wanted is None)
        if found is not None and wanted is not None:
            assert error(found, wanted) <= gradient_error


def assert_short(actual: Outcome, short: Outcome, factor: float = 1) -> None:
    """Hold gradients against those of a shorter vocabulary, times a factor; the rows behind it get exactly 0."""
    for found, wanted in zip(actual.gradients, short.gradients, strict=True):
        assert found is not None
        assert wanted is not None
        assert found.isfinite().all()
        assert error(found[: len(wanted)], wanted * factor) <= 1e-5
        assert found[len(wanted) :].count_nonzero() == 0


def check(name: str, inputs: Inputs, impl: str, rows: int | None) -> None:
    dtype = inputs.hidden_ND.dtype
    _, actual = by_engine(name, inputs, impl, rows)
    assert_same(actual, by_equation(name, inputs), LOSS_ERROR[dtype], GRADIENT_ERROR[dtype])
    for given, found in zip(inputs.tensors, actual.gradients, strict=True):
        assert (given is None and found is None) or (given is not None and found is not None and found.dtype == dtype)


ENGINES = [("reference", None), ("chunked", 1), ("chunked", 16), ("chunked", None)]
engines = pytest.mark.parametrize(("impl", "rows"), ENGINES, ids=[f"{impl}-{rows or 'all'}" for impl, rows in ENGINES])
names = pytest.mark.parametrize("name", OBJECTIVES)


@names
@engines
@pytest.mark.parametrize("dtype", LOSS_ERROR, ids=str)
def test_engine_matches_the_equation(name: str, impl: str, rows: int | None, dtype: torch.dtype) -> None:
    check(name, make_inputs(dtype), impl, rows)


@names
@engines
def test_logits_times_30(name: str, impl: str, rows: int | None) -> None:
    # Hidden states are unit vectors, so that the product adds no rounding: a logit of 100 that is off by half a unit
    # in its last place moves q by 4e-6, which no loss can repair. Targets drawn from the model have 1 - q_t ~ 1e-30.
    rng = torch.Generator().manual_seed(1)
    head_VD = 30 * torch.randn(V, N, generator=rng)
    inputs = replace(make_inputs(), hidden_ND=torch.eye(N), head_VD=head_VD)
    labels_N = torch.where(torch.arange(N) % 2 == 0, head_VD.argmax(0), inputs.labels_N)
    check(name, replace(inputs, labels_N=labels_N), impl, rows)


@names
@engines
@pytest.mark.parametrize(
    "logit_map", [LogitMap(scale=0.25), LogitMap(cap=3.0), LogitMap(scale=1.5, cap=5.0)], ids=["scale", "cap", "both"]
)
def test_logit_maps_and_bias(name: str, impl: str, rows: int | None, logit_map: LogitMap) -> None:
    check(name, make_inputs(bias=True, logit_map=logit_map), impl, rows)


@names
@engines
def test_all_tokens_ignored(name: str, impl: str, rows: int | None) -> None:
    inputs = make_inputs(bias=True)
    result, outcome = by_engine(name, replace(inputs, labels_N=torch.full((N,), -100)), impl, rows)
    assert result.count == 0
    assert outcome.total == 0
    assert outcome.losses_N.tolist() == result.log_prob_N.tolist() == [0.0] * N
    for given, gradient in zip(inputs.tensors, outcome.gradients, strict=True):
        assert given is not None
        assert gradient is not None
        assert torch.equal(gradient, torch.zeros_like(given))
    # The same parts as of any other batch, so that sums over devices line up.
    assert list(result.parts) == list(by_engine(name, inputs, impl, rows)[0].parts)
    assert all(float(value) == 0 for value in result.parts.values())


@engines
def test_zero_row_in_the_cost_embedding(impl: str, rows: int | None) -> None:
    # A padding row, which is a target as well: it costs 1 to go to any other token.
    inputs = make_inputs()
    inputs.cost_VE[3] = 0
    assert (inputs.labels_N == 3).any()
    check("emo", inputs, impl, rows)


@engines
def test_duplicate_rows_give_weight_zero(impl: str, rows: int | None) -> None:
    # One-hot rows are normalised exactly, so tokens 0 and 1 are at distance 0; -inf takes all other mass away.
    bias_V = torch.full((V,), -torch.inf)
    bias_V[:2] = 0
    cost_VE = torch.eye(16)[torch.arange(V) % 16]
    cost_VE[1] = cost_VE[0]
    inputs = replace(make_inputs(), bias_V=bias_V, cost_VE=cost_VE, labels_N=torch.arange(N) % 2)
    result, outcome = by_engine("emo", inputs, impl, rows)
    assert result.parts["zero_weight_count"] == N
    assert result.parts["demd"] == 0
    # What is left is half of MLE, on a vocabulary of two.
    two = replace(inputs, head_VD=inputs.head_VD[:2], bias_V=bias_V[:2], cost_VE=cost_VE[:2])
    half = by_equation("mle", two)
    assert error(outcome.total, half.total / 2) <= 1e-6
    assert_short(outcome, half, 0.5)


@engines
def test_masked_vocabulary_keeps_the_entropy_finite(impl: str, rows: int | None) -> None:
    # Tokens with a bias of -inf might as well not exist.
    inputs = make_inputs(bias=True)
    inputs = replace(inputs, labels_N=inputs.labels_N.clamp(max=99))
    assert inputs.bias_V is not None
    inputs.bias_V[100:] = -torch.inf
    short = replace(inputs, head_VD=inputs.head_VD[:100], bias_V=inputs.bias_V[:100], cost_VE=inputs.cost_VE[:100])
    expected = by_equation("entropy", short)
    _, actual = by_engine("entropy", inputs, impl, rows)
    assert error(actual.total, expected.total) <= 1e-6
    assert_short(actual, expected)


@engines
@names
def test_autocast_rounds_the_head_and_not_the_loss(name: str, impl: str, rows: int | None) -> None:
    # float32 weights under bfloat16 autocast: the numbers of weights rounded to bfloat16, with float32 gradients.
    inputs = make_inputs(bias=True)
    rounded = {key: getattr(inputs, key).bfloat16() for key in ("hidden_ND", "head_VD", "bias_V")}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, actual = by_engine(name, inputs, impl, rows)
    assert_same(actual, by_equation(name, replace(inputs, **rounded)), 5e-3, 5e-3)
    assert actual.total.dtype == torch.float32
    assert all(gradient is not None and gradient.dtype == torch.float32 for gradient in actual.gradients)


@engines
def test_upstream_scale_reaches_every_gradient(impl: str, rows: int | None) -> None:
    # The trainer divides by a token count, and a GradScaler multiplies by 65,536: both arrive in backward.
    inputs = make_inputs()
    hidden_ND, head_VD = inputs.hidden_ND.clone().requires_grad_(), inputs.head_VD.clone().requires_grad_()
    chunk_bytes = None if rows is None else 4 * V * rows
    result = objective_loss(Mle(), hidden_ND, head_VD, None, inputs.labels_N, impl=impl, chunk_bytes=chunk_bytes)
    (result.total * 65536 / 27).backward()
    for leaf, wanted in zip((hidden_ND, head_VD), by_equation("mle", inputs).gradients, strict=False):
        assert leaf.grad is not None
        assert wanted is not None
        assert error(leaf.grad, wanted * (65536 / 27)) <= 1e-5


class OneLogit(emobench.LogitsObjective):
    """Returns a view of the logits, which the engine overwrites."""

    def loss(self, logits_NV: Tensor, targets_N: Tensor, side: Any) -> Tensor:
        return logits_NV[:, 3]


@engines
def test_a_loss_may_be_a_view_of_the_logits(impl: str, rows: int | None) -> None:
    inputs = make_inputs()
    expected_N = (inputs.hidden_ND @ inputs.head_VD[3]) * (inputs.labels_N != -100)
    head_VD = inputs.head_VD.clone().requires_grad_()
    chunk_bytes = None if rows is None else 4 * V * rows
    result = objective_loss(
        OneLogit(), inputs.hidden_ND, head_VD, None, inputs.labels_N, impl=impl, chunk_bytes=chunk_bytes
    )
    assert error(result.losses_N, expected_N) <= 1e-6
    assert error(result.total.detach(), expected_N.double().sum()) <= 1e-5


@engines
@names
def test_padding_rows_of_the_head_take_no_mass(name: str, impl: str, rows: int | None) -> None:
    """Rows behind the vocabulary might as well not exist, and get gradients of exactly 0."""
    inputs = make_inputs(bias=True)
    assert inputs.bias_V is not None
    tail = torch.full((5, D), 3.0)
    padded = replace(inputs, head_VD=torch.cat([inputs.head_VD, tail]), bias_V=torch.cat([inputs.bias_V, tail[:, 0]]))
    _, actual = by_engine(name, padded, impl, rows, vocabulary=V)
    expected = by_equation(name, inputs)
    assert error(actual.losses_N, expected.losses_N) <= 1e-6
    assert_short(actual, expected)


@pytest.mark.parametrize("kept", [[3], list(range(0, V, 2)), list(range(V))], ids=["one", "half", "all"])
@pytest.mark.parametrize("name", ["emo", "everything"])
def test_kept_cost_rows_change_nothing(name: str, kept: list[int]) -> None:
    inputs = make_inputs()
    expected, actual = (by_engine(name, inputs, "torch", 16, keep=torch.tensor(tokens))[1] for tokens in ([], kept))
    # Another order of chunks, hence of sums; the costs themselves are the same.
    assert_same(actual, expected, 1e-6, 1e-6)
    targets = prepare(name, inputs, torch.tensor(kept))
    made = torch.cat([chunk.distinct_U for chunk in targets.chunks])
    assert not set(made.tolist()) & set(kept)
    assert set(made.tolist()) | set(kept) >= set(inputs.labels_N[inputs.labels_N >= 0].tolist())


def prepare(name: str, inputs: Inputs, kept: Tensor) -> Targets:
    objective = OBJECTIVES[name][0]()
    objective.use_cost(CostEmbedding(inputs.cost_VE))
    objective.cost_embedding.keep(kept)
    return prepare_for(objective, inputs.labels_N, vocabulary=V)


@pytest.mark.parametrize("kept", [[], list(range(0, V, 2))], ids=["made", "kept"])
@pytest.mark.parametrize("name", ["emo", "everything"])
def test_long_rows_are_taken_one_by_one(name: str, kept: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emobench.objectives.engine.torch_rows._LONG_ROW", 1)
    inputs = make_inputs(bias=True, logit_map=LogitMap(scale=1.5, cap=5.0))
    actual = by_engine(name, inputs, "torch", 16, keep=torch.tensor(kept))[1]
    assert_same(actual, by_equation(name, inputs), 1e-6, 1e-5)


@pytest.mark.parametrize(
    ("name", "impl", "rows"),
    [
        *((name, "torch", rows) for name in ("mle", "tailr", "emo", "entropy", "logits") for rows in (16, None)),
        # In the interpreter: from log_prob alone, with costs, and of another statistic.
        *((name, "triton", 16) for name in ("tailr", "emo", "entropy")),
    ],
)
def test_gradients_that_grew_or_shrank_against_mle_are_counted(name: str, impl: str, rows: int | None) -> None:
    inputs = make_inputs(sharpness=4.0, logit_map=LogitMap(cap=20.0))
    parts = by_engine(name, inputs, impl, rows)[0].parts
    keep_N = inputs.labels_N != -100
    norms, q = {}, torch.zeros(0)
    for which in (name, "mle"):
        raw = inputs.hidden_ND.double()[keep_N] @ inputs.head_VD.double().T
        z = inputs.logit_map.apply(raw).requires_grad_()
        q, t = z.softmax(-1), inputs.labels_N[keep_N]
        unit = torch.nn.functional.normalize(inputs.cost_VE.double(), dim=1)
        u = (q * (1 - unit @ unit.T).fill_diagonal_(0)[t]).sum(-1)
        side = {key: value[keep_N].double() for key, value in inputs.side.items()}
        (gradient,) = torch.autograd.grad(OBJECTIVES[which][1](z, q, t, u, side).sum(), z)
        norms[which] = gradient.norm(dim=-1)
    ratio = norms[name] / norms["mle"]
    for edge in (1.01, 1 / 1.01):
        assert (ratio - edge).abs().min() > 1e-3  # no token stands on it
    assert int(parts["grew"]) == int((ratio > 1.01).sum())
    assert int(parts["shrank"]) == int((ratio < 1 / 1.01).sum())
    rest = q.scatter(1, inputs.labels_N[keep_N][:, None], 0).detach()
    alternatives = rest.sum(-1) ** 2 / rest.square().sum(-1)
    assert float(parts["alternatives"]) == pytest.approx(float(alternatives.sum()), rel=1e-5)
