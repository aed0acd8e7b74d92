"""The built-in objectives against the official code: the EMOLoss package, and the formulas of the EMO repository.

The formulas are written as the official code writes them: one-hot labels, normalised embedding, matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from emo import EMOLoss
from torch import Tensor
from torch.nn import functional as F

import emobench
from emobench.core.errors import PluginError
from emobench.objectives import CostEmbedding, objective_loss
from emobench_objectives.emo import Emo
from emobench_objectives.emo_official import Emo1Adaptive, Emo2Adaptive, Emo2Fixed, EmoClamped
from emobench_objectives.mixce import MixCE
from emobench_objectives.mle import Mle
from emobench_objectives.tailr import TaiLr, TaiLrOfficial

N, V, D = 48, 61, 16


@dataclass(frozen=True)
class Inputs:
    hidden_ND: Tensor
    head_VD: Tensor
    cost_VE: Tensor
    targets_N: Tensor


def make_inputs(sharpness: float, dtype: torch.dtype = torch.float64) -> Inputs:
    """Targets are drawn from the model; float64, so that the official 1 - cos and 1e-10 do not blur the comparison."""
    rng = torch.Generator().manual_seed(0)
    hidden_ND = torch.randn(N, D, generator=rng, dtype=dtype)
    head_VD = torch.randn(V, D, generator=rng, dtype=dtype) * (sharpness / D**0.5)
    cost_VE = torch.randn(V, D, generator=rng, dtype=dtype)
    targets_N = torch.multinomial((hidden_ND @ head_VD.T).softmax(-1), 1, generator=rng)[:, 0]
    return Inputs(hidden_ND, head_VD, cost_VE, targets_N)


def ours(objective: Any, inputs: Inputs, impl: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean loss, and its gradients by hidden states and head."""
    if "expected_cost" in objective.needs and not objective.adaptive_cost:
        objective.use_cost(CostEmbedding(inputs.cost_VE))
    hidden_ND, head_VD = inputs.hidden_ND.clone().requires_grad_(), inputs.head_VD.clone().requires_grad_()
    result = objective_loss(objective, hidden_ND, head_VD, None, inputs.targets_N, impl=impl)
    loss = result.total / result.count
    return (loss.detach(), *torch.autograd.grad(loss, (hidden_ND, head_VD)))


def theirs(inputs: Inputs, formula: Any) -> tuple[Tensor, Tensor, Tensor]:
    hidden_ND, head_VD = inputs.hidden_ND.clone().requires_grad_(), inputs.head_VD.clone().requires_grad_()
    loss = formula(hidden_ND @ head_VD.T)
    return (loss.detach(), *torch.autograd.grad(loss, (hidden_ND, head_VD)))


def assert_same(actual: tuple[Tensor, ...], expected: tuple[Tensor, ...], tolerance: float = 1e-7) -> None:
    for found, wanted in zip(actual, expected, strict=True):
        assert float((found - wanted).norm() / wanted.norm()) <= tolerance


def official_demd(logits_NV: Tensor, inputs: Inputs) -> Tensor:
    one_hot_NV = F.one_hot(inputs.targets_N, num_classes=V).to(logits_NV.dtype)
    embedding = inputs.cost_VE / torch.linalg.vector_norm(inputs.cost_VE, ord=2, dim=1, keepdim=True)
    q_NV = torch.log_softmax(logits_NV, dim=-1).exp()
    return 1 - torch.sum((one_hot_NV @ embedding) * (q_NV @ embedding), dim=-1)


def package_loss(logits_NV: Tensor, inputs: Inputs, mode: int) -> Tensor:
    """The package shifts by itself: logits at i predict label i + 1."""
    logits_1NV = torch.cat([logits_NV, logits_NV.new_zeros(1, V)])[None]
    labels_1N = torch.cat([inputs.targets_N.new_zeros(1), inputs.targets_N])[None]
    return EMOLoss(logits_1NV, labels_1N, inputs.cost_VE, mode=mode)


engines = pytest.mark.parametrize("impl", ["reference", "chunked"])
sharpnesses = pytest.mark.parametrize("sharpness", [0.1, 1.0, 4.0])


@engines
def test_emo_is_the_package_where_its_clamp_does_not_act(impl: str) -> None:
    # Sharp: the model is nearly sure of its targets, which are its own draws, so that MLE / DEMD is near 1 and below 3.
    inputs = make_inputs(sharpness=4.0)
    logits_NV = inputs.hidden_ND @ inputs.head_VD.T
    ratio_N = F.cross_entropy(logits_NV, inputs.targets_N, reduction="none") / official_demd(logits_NV, inputs)
    kept_N = ratio_N < 3
    assert kept_N.sum() >= 20
    inputs = Inputs(inputs.hidden_ND[kept_N], inputs.head_VD, inputs.cost_VE, inputs.targets_N[kept_N])
    assert_same(ours(Emo(), inputs, impl), theirs(inputs, lambda z: package_loss(z, inputs, 1)))


@engines
@sharpnesses
def test_emo_is_the_repository_formula(impl: str, sharpness: float) -> None:
    # emo_patch.py: the ratio is each token's own, detached, and not clamped.
    inputs = make_inputs(sharpness)

    def repository(logits: Tensor) -> Tensor:
        mle = F.cross_entropy(logits, inputs.targets_N, reduction="none")
        emo = official_demd(logits, inputs)
        return (0.5 * (mle + (mle / (emo + 1e-10)).detach() * emo)).mean()

    assert_same(ours(Emo(), inputs, impl), theirs(inputs, repository), 1e-6)


official_forms = pytest.mark.parametrize(("objective", "mode"), [(EmoClamped(), 1), (Emo2Fixed(), 2)])


@engines
@sharpnesses
@official_forms
def test_the_package_has_two_modes(objective: emobench.Objective, mode: int, sharpness: float, impl: str) -> None:
    inputs = make_inputs(sharpness)
    expected = theirs(inputs, lambda z: package_loss(z, inputs, mode))
    assert_same(ours(objective, inputs, impl), expected, 1e-6)


@sharpnesses
@official_forms
def test_the_package_agrees_token_by_token(objective: emobench.Objective, mode: int, sharpness: float) -> None:
    whole = make_inputs(sharpness)
    for n in range(N):
        inputs = Inputs(whole.hidden_ND[n : n + 1], whole.head_VD, whole.cost_VE, whole.targets_N[n : n + 1])
        expected = theirs(inputs, lambda z, inputs=inputs: package_loss(z, inputs, mode))
        assert_same(ours(objective, inputs, "chunked"), expected, 1e-6)


def test_the_clamp_acts_on_the_inputs_of_these_tests() -> None:
    inputs = make_inputs(1.0)
    logits_NV = inputs.hidden_ND @ inputs.head_VD.T
    ratio_N = F.cross_entropy(logits_NV, inputs.targets_N, reduction="none") / official_demd(logits_NV, inputs)
    assert 5 < (ratio_N > 3).sum() < N - 5


def official_adaptive(mode: int, inputs: Inputs, logits_NV: Tensor) -> Tensor:
    """instruction_tuning/emo_llama.py: the target's own probability is taken out of q, detached, before the product."""
    one_hot_NV = F.one_hot(inputs.targets_N, num_classes=V).to(logits_NV.dtype)
    embedding = inputs.head_VD / torch.linalg.vector_norm(inputs.head_VD, ord=2, dim=1, keepdim=True)
    q_NV = torch.log_softmax(logits_NV, dim=-1).exp()
    q_final_NV = q_NV - (q_NV * one_hot_NV).detach()
    emo = 1 - torch.sum((one_hot_NV @ embedding) * (q_final_NV @ embedding), dim=-1)
    mle = F.cross_entropy(logits_NV, inputs.targets_N, reduction="none")
    if mode == 1:
        return (((mle / (emo + 1e-10)).detach() * emo + mle) * 0.5).mean()
    return ((emo / (mle + 1e-10)).detach() * mle + emo).mean()


@engines
@sharpnesses
@pytest.mark.parametrize(("objective", "mode"), [(Emo1Adaptive(), 1), (Emo2Adaptive(), 2)])
def test_the_adaptive_forms(objective: emobench.Objective, mode: int, sharpness: float, impl: str) -> None:
    inputs = make_inputs(sharpness)
    expected = theirs(inputs, lambda z: official_adaptive(mode, inputs, z))
    assert_same(ours(objective, inputs, impl), expected, 1e-6)


@engines
@pytest.mark.parametrize("gamma", [0.9, 0.8, 0.7, 0.1])
def test_mixce_is_the_repository_formula(impl: str, gamma: float) -> None:
    # language_modeling/gpt2.py: r * MLE + (1 - r) * q * MLE with q detached.
    inputs = make_inputs(1.0)

    def repository(logits: Tensor) -> Tensor:
        mle = F.cross_entropy(logits, inputs.targets_N, reduction="none")
        q = torch.exp(-mle).detach()
        return (gamma * mle + (1 - gamma) * q * mle).mean()

    assert_same(ours(MixCE(gamma=gamma), inputs, impl), theirs(inputs, repository))


def official_tailr(logits: Tensor, targets_N: Tensor, ratio: float, gamma: float, low: float, high: float) -> Tensor:
    """language_modeling/gpt2.py: r * MLE + (1 - r) * clamp(q / ((1 - g) + g q)) * MLE; the code sets g = r."""
    mle = F.cross_entropy(logits, targets_N, reduction="none")
    q = torch.exp(-mle).detach()
    return (ratio * mle + (1 - ratio) * torch.clamp(q / ((1 - gamma) + gamma * q), low, high) * mle).mean()


@engines
@pytest.mark.parametrize("gamma", [0.9, 0.8, 0.7, 0.1])
def test_tailr_is_the_repository_formula_at_one_minus_gamma(impl: str, gamma: float) -> None:
    # Unmixed (r = 0) and unclamped: Eq. 17's g is 1 - g of the code.
    inputs = make_inputs(1.0)
    expected = theirs(inputs, lambda z: official_tailr(z, inputs.targets_N, 0.0, gamma, 0.0, 1.0))
    assert_same(ours(TaiLr(gamma=1 - gamma), inputs, impl), expected)


@engines
@pytest.mark.parametrize("gamma", [0.9, 0.8, 0.7, 0.0, 1.0])
def test_tailr_official_is_the_repository_formula(impl: str, gamma: float) -> None:
    # Whole, as its sweep runs it: one ratio for both, weight in [0.2, 1].
    inputs = make_inputs(1.0)
    expected = theirs(inputs, lambda z: official_tailr(z, inputs.targets_N, gamma, gamma, 0.2, 1.0))
    assert_same(ours(TaiLrOfficial(gamma=gamma), inputs, impl), expected, 1e-12)


@engines
@pytest.mark.parametrize("objective", [Mle(), MixCE(gamma=1.0), TaiLr(gamma=0.0), TaiLrOfficial(gamma=1.0)], ids=repr)
def test_the_mle_end_of_each_objective(impl: str, objective: emobench.Objective) -> None:
    inputs = make_inputs(4.0)
    expected = theirs(inputs, lambda z: F.cross_entropy(z, inputs.targets_N))
    assert_same(ours(objective, inputs, impl), expected, 1e-13)


@engines
@pytest.mark.parametrize("objective", [MixCE(gamma=0.0), TaiLr(gamma=1.0)], ids=repr)
def test_the_probability_end_of_each_objective(impl: str, objective: emobench.Objective) -> None:
    # -sg(q) log q: TRL's `dft` loss.
    inputs = make_inputs(1.0)

    def dft(logits: Tensor) -> Tensor:
        mle = F.cross_entropy(logits, inputs.targets_N, reduction="none")
        return ((-mle).exp().detach() * mle).mean()

    assert_same(ours(objective, inputs, impl), theirs(inputs, dft))


def test_emo_without_a_cost_embedding_says_so() -> None:
    inputs = make_inputs(1.0)
    with pytest.raises(PluginError, match="call setup"):
        objective_loss(Emo(), inputs.hidden_ND, inputs.head_VD, None, inputs.targets_N)
