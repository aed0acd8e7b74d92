"""Each objective against its formula on whole float64 logits, its limits, its bounds, and its manners at the extremes.

Legend: N tokens, V vocabulary, D hidden width, E width of the cost embedding.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from emobench.core.errors import ConfigError
from emobench.objectives import CostEmbedding, StatisticsObjective, objective_loss
from emobench_objectives.brier import Brier
from emobench_objectives.dft import Dft
from emobench_objectives.emo import Emo
from emobench_objectives.emo_official import Emo1Adaptive, Emo2Adaptive, Emo2Fixed, EmoClamped
from emobench_objectives.entropy_regularization import EntropyRegularization
from emobench_objectives.focal import Focal
from emobench_objectives.label_smoothing import LabelSmoothing
from emobench_objectives.mixce import MixCE
from emobench_objectives.mle import Mle
from emobench_objectives.power import Power
from emobench_objectives.tailr import TaiLr, TaiLrOfficial
from emobench_objectives.total_variation import TotalVariation
from emobench_objectives.z_loss import ZLoss

N, V, D = 33, 23, 7
engines = pytest.mark.parametrize("impl", ["reference", "chunked"])
Found = tuple[Tensor, Tensor, Tensor]


class Inputs:
    """Targets are drawn from the model, so that probable and improbable ones are among them."""

    def __init__(self, sharpness: float = 1.5) -> None:
        rng = torch.Generator().manual_seed(0)
        self.hidden_ND = torch.randn(N, D, generator=rng, dtype=torch.float64)
        self.head_VD = torch.randn(V, D, generator=rng, dtype=torch.float64) * (sharpness / D**0.5)
        self.targets_N = torch.multinomial((self.hidden_ND @ self.head_VD.T).softmax(-1), 1, generator=rng)[:, 0]

    def leaves(self) -> tuple[Tensor, Tensor]:
        return self.hidden_ND.clone().requires_grad_(), self.head_VD.clone().requires_grad_()


def ours(objective: StatisticsObjective, impl: str = "chunked", inputs: Inputs | None = None) -> Found:
    """Return the losses of the tokens, and the gradients of their sum by hidden states and head."""
    inputs = inputs or Inputs()
    hidden_ND, head_VD = inputs.leaves()
    if "expected_cost" in objective.needs and not objective.adaptive_cost:
        objective.use_cost(CostEmbedding(inputs.head_VD))
    result = objective_loss(objective, hidden_ND, head_VD, None, inputs.targets_N, impl=impl)
    return (result.losses_N, *torch.autograd.grad(result.total, (hidden_ND, head_VD)))


def by_formula(formula: Callable[[Tensor, Tensor], Tensor]) -> Found:
    inputs = Inputs()
    hidden_ND, head_VD = inputs.leaves()
    loss_N = formula(hidden_ND @ head_VD.T, inputs.targets_N)
    return (loss_N.detach(), *torch.autograd.grad(loss_N.sum(), (hidden_ND, head_VD)))


def assert_same(found: Found, expected: Found, tolerance: float = 1e-9) -> None:
    for actual, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=tolerance, atol=tolerance)


def ce(z_NV: Tensor, t_N: Tensor, epsilon: float = 0.0) -> Tensor:
    return F.cross_entropy(z_NV, t_N, reduction="none", label_smoothing=epsilon)


def prob(z_NV: Tensor, t_N: Tensor) -> Tensor:
    return (z_NV.softmax(-1) * F.one_hot(t_N, V)).sum(-1)


def power(z_NV: Tensor, t_N: Tensor, alpha: float, low: float = 0.0, high: float = 1.0) -> Tensor:
    p_N = prob(z_NV, t_N)
    kept_N = (p_N >= low) & (p_N <= high)
    return (ce(z_NV, t_N) if alpha == 0 else (1 - p_N**alpha) / alpha) * kept_N


FORMULAS: dict[str, tuple[StatisticsObjective, Callable[[Tensor, Tensor], Tensor]]] = {
    "mle": (Mle(), ce),
    "label-smoothing": (LabelSmoothing(), lambda z, t: ce(z, t, 0.1)),
    "label-smoothing-0.7": (LabelSmoothing(epsilon=0.7), lambda z, t: ce(z, t, 0.7)),
    "label-smoothing-1": (LabelSmoothing(epsilon=1.0), lambda z, t: -z.log_softmax(-1).mean(-1)),
    "focal": (Focal(), lambda z, t: (1 - prob(z, t)) ** 2 * ce(z, t)),
    "focal-0.5": (Focal(gamma=0.5), lambda z, t: (1 - prob(z, t)).sqrt() * ce(z, t)),
    "entropy-regularization": (
        EntropyRegularization(beta=0.3),
        lambda z, t: ce(z, t) - 0.3 * torch.distributions.Categorical(logits=z).entropy(),
    ),
    "z-loss": (ZLoss(), lambda z, t: ce(z, t) + 1e-4 * z.exp().sum(-1).log() ** 2),
    "z-loss-2": (ZLoss(coefficient=2.0), lambda z, t: ce(z, t) + 2 * z.exp().sum(-1).log() ** 2),
    "dft": (Dft(), lambda z, t: prob(z, t).detach() * ce(z, t)),
    "mixce": (MixCE(gamma=0.7), lambda z, t: (0.7 + 0.3 * prob(z, t).detach()) * ce(z, t)),
    "tailr": (TaiLr(gamma=0.3), lambda z, t: (prob(z, t) / (0.3 + 0.7 * prob(z, t))).detach() * ce(z, t)),
    "power": (Power(), lambda z, t: power(z, t, 1.0)),
    "power-10": (Power(alpha=10.0), lambda z, t: power(z, t, 10.0)),
    "power-0.1": (Power(alpha=0.1), lambda z, t: power(z, t, 0.1)),
    "only-top-p": (Power(min_prob=0.2), lambda z, t: power(z, t, 1.0, low=0.2)),
    "only-bottom-p": (Power(max_prob=0.2), lambda z, t: power(z, t, 1.0, high=0.2)),
    "only-top-log-p": (Power(alpha=0.0, min_prob=0.2), lambda z, t: power(z, t, 0.0, low=0.2)),
    "only-bottom-log-p": (Power(alpha=0.0, max_prob=0.2), lambda z, t: power(z, t, 0.0, high=0.2)),
    "total-variation": (TotalVariation(), lambda z, t: 0.5 * (z.softmax(-1) - F.one_hot(t, V)).abs().sum(-1)),
    "brier": (Brier(), lambda z, t: (z.softmax(-1) - F.one_hot(t, V)).square().sum(-1)),
}


@engines
@pytest.mark.parametrize("name", FORMULAS)
def test_an_objective_is_its_formula(name: str, impl: str) -> None:
    objective, formula = FORMULAS[name]
    assert_same(ours(objective, impl), by_formula(formula))


def test_thresholds_divide_the_tokens_of_these_tests() -> None:
    inputs = Inputs()
    p_N = prob(inputs.hidden_ND @ inputs.head_VD.T, inputs.targets_N)
    assert 5 < (p_N > 0.2).sum() < N - 5


AT_ITS_MLE_END = [
    LabelSmoothing(epsilon=0.0),
    Focal(gamma=0.0),
    EntropyRegularization(beta=0.0),
    ZLoss(coefficient=0.0),
    Power(alpha=0.0),
    MixCE(gamma=1.0),
    TaiLr(gamma=0.0),
    TaiLrOfficial(gamma=1.0),
]


@engines
@pytest.mark.parametrize("objective", AT_ITS_MLE_END, ids=repr)
def test_a_parameter_has_mle_as_its_limit(objective: StatisticsObjective, impl: str) -> None:
    assert_same(ours(objective, impl), ours(Mle(), impl), 1e-13)


def test_a_small_power_is_near_mle() -> None:
    # f_alpha = MLE - alpha MLE^2 / 2 + ..., and its gradient is q^alpha times that of MLE.
    losses_N = ours(Mle())[0]
    for alpha in (1e-3, 1e-6, 1e-9):
        near_N = ours(Power(alpha=alpha))[0]
        torch.testing.assert_close((losses_N - near_N) / alpha, losses_N**2 / 2, rtol=10 * alpha, atol=1e-5)


def test_one_objective_at_the_end_of_another() -> None:
    for objective in (MixCE(gamma=0.0), TaiLr(gamma=1.0)):
        assert_same(ours(objective), ours(Dft()), 1e-13)
    assert_same(ours(Power(alpha=1.0)), ours(TotalVariation()), 1e-13)
    # Of DFT only the gradient: its value is -q log q.
    assert_same((ours(Dft())[0], *ours(TotalVariation())[1:]), ours(Dft()), 1e-13)
    assert_same(ours(EmoClamped(max_ratio=1e9)), ours(Emo()), 1e-13)
    assert_same(ours(EmoClamped(max_ratio=0.0)), tuple(0.5 * part for part in ours(Mle())), 1e-13)  # type: ignore[arg-type]


def test_the_values_of_the_forms_of_emo() -> None:
    mle_N, q_N = ours(Mle())[0], (-ours(Mle())[0]).exp()
    demd_N = ours(Emo2Fixed())[0] / 2
    assert ((demd_N > 0) & (demd_N < 2)).all()
    torch.testing.assert_close(ours(Emo1Adaptive())[0], mle_N)
    torch.testing.assert_close(ours(Emo2Adaptive())[0], 2 * (demd_N + q_N))
    torch.testing.assert_close(ours(EmoClamped())[0], 0.5 * (mle_N + torch.minimum(mle_N, 3 * demd_N)))


ALL = [objective for objective, _ in FORMULAS.values()]
ALL += [TaiLrOfficial(), TaiLrOfficial(gamma=0.0), Emo(), EmoClamped(), Emo2Fixed(), Emo1Adaptive(), Emo2Adaptive()]


@engines
@pytest.mark.parametrize("objective", ALL, ids=repr)
def test_sure_and_hopeless_tokens_stay_finite(objective: StatisticsObjective, impl: str) -> None:
    # In float32 q_t is exactly 1 and exactly 0. Rows 1 and 2 of the cost are equal: DEMD is 0 where the mass is there.
    head_VD = torch.tensor([[0.0], [300.0], [-300.0], [100.0]])
    if "expected_cost" in objective.needs and not objective.adaptive_cost:
        objective.use_cost(CostEmbedding(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 1.0]])))
    hidden_ND, head_VD = torch.ones(4, 1).requires_grad_(), head_VD.requires_grad_()
    result = objective_loss(objective, hidden_ND, head_VD, None, torch.tensor([1, 2, 0, 3]), impl=impl)
    result.total.backward()
    assert hidden_ND.grad is not None
    assert head_VD.grad is not None
    assert float(result.parts["mle"]) == 600 + 300 + 200
    for name, value in {"loss": result.losses_N, "dX": hidden_ND.grad, "dW": head_VD.grad, **result.parts}.items():
        assert torch.isfinite(value).all(), name


BOUNDS: dict[str, tuple[type[StatisticsObjective], Callable[[Tensor, Tensor, Tensor], Tensor]]] = {
    # sum_v q_v |c_v - u| <= 2 u, times half the weight: at most MLE in mode 1. In mode 2 the gradient of DEMD is whole,
    # and the weight's 2 (1 - q_t) u' / MLE is at most 2 u'.
    "emo": (Emo, lambda rest, mle, u: rest + mle),
    "emo-clamped": (EmoClamped, lambda rest, mle, u: rest + torch.minimum(mle, 3 * u)),
    "emo-1-adaptive": (Emo1Adaptive, lambda rest, mle, u: rest + mle),
    "emo-2-fixed": (Emo2Fixed, lambda rest, mle, u: 4 * u),
    "emo-2-adaptive": (Emo2Adaptive, lambda rest, mle, u: 4 * u + 2 * (1 - rest)),
}


@pytest.mark.parametrize("name", BOUNDS)
@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**31), scale=st.floats(0.01, 30), closeness=st.floats(-12, 0))
def test_near_duplicate_tokens_explode_nothing(name: str, seed: int, scale: float, closeness: float) -> None:
    # Where the mass lies on near-duplicates of the target, MLE / DEMD is 1e3 and more, and its gradient is not.
    cls, bound = BOUNDS[name]
    tokens, vocabulary = 12, 30
    rng = torch.Generator().manual_seed(seed)
    # The head's rows are the cost embedding too, as the adaptive forms have it anyway.
    head_VD = torch.randn(vocabulary, 8, generator=rng, dtype=torch.float64)
    head_VD[1:6] = head_VD[0] + 10**closeness * torch.randn(5, 8, generator=rng, dtype=torch.float64)
    hidden_ND = scale * torch.randn(tokens, 8, generator=rng, dtype=torch.float64)
    targets_N = torch.randint(6, (tokens,), generator=rng)
    objective = cls()
    if not objective.adaptive_cost:
        objective.use_cost(CostEmbedding(head_VD))
    demd_N = ((hidden_ND @ head_VD.T).softmax(-1) * CostEmbedding(head_VD).costs(targets_N)).sum(-1)
    for n in range(tokens):
        # The bias of a one-token call gets d loss / d logits.
        bias_V = torch.zeros(vocabulary, dtype=torch.float64, requires_grad=True)
        result = objective_loss(objective, hidden_ND[n : n + 1], head_VD, bias_V, targets_N[n : n + 1])
        (grad_V,) = torch.autograd.grad(result.total, bias_V)
        log_prob = result.log_prob_N[0]
        assert float(grad_V.abs().sum()) <= float(bound(-torch.expm1(log_prob), -log_prob, demd_N[n])) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("cls", "given"),
    [
        (LabelSmoothing, {"epsilon": 1.1}),
        (Focal, {"gamma": -1.0}),
        (EntropyRegularization, {"beta": -0.1}),
        (ZLoss, {"coefficient": -1e-4}),
        (Power, {"alpha": -1.0}),
        (Power, {"min_prob": 2.0}),
        (TaiLrOfficial, {"gamma": 1.5}),
        (EmoClamped, {"max_ratio": float("inf")}),
    ],
)
def test_parameters_have_ranges(cls: type[StatisticsObjective], given: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=rf"`{next(iter(given))}` is .*; expected "):
        cls(**given)
