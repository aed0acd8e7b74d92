"""Objectives against a dense target: definitions in float64, the side data, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import emobench
from emobench.core.errors import ConfigError, PluginError
from emobench.objectives import objective_loss
from emobench_objectives.demd_dense import DemdDense
from emobench_objectives.distillation import KdForward, KdJs, KdReverse

N, V, D = 33, 17, 6
engines = pytest.mark.parametrize("impl", ["reference", "chunked"])


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


HIDDEN_ND, HEAD_VD, LOGITS_P_NV = draw(0, N, D), draw(1, V, D), draw(2, N, V) * 2
TARGETS_N = torch.randint(V, (N,), generator=torch.Generator().manual_seed(3))


def ours(objective: Any, impl: str, logits_p_NV: Tensor = LOGITS_P_NV) -> tuple[Tensor, Tensor, Tensor]:
    hidden_ND, head_VD = HIDDEN_ND.clone().requires_grad_(), HEAD_VD.clone().requires_grad_()
    side = {"dense_target": logits_p_NV}
    result = objective_loss(objective, hidden_ND, head_VD, None, TARGETS_N, side=side, impl=impl, chunk_bytes=4 * V * 5)
    return (result.losses_N, *torch.autograd.grad(result.total, (hidden_ND, head_VD)))


def theirs(formula: Any) -> tuple[Tensor, Tensor, Tensor]:
    hidden_ND, head_VD = HIDDEN_ND.clone().requires_grad_(), HEAD_VD.clone().requires_grad_()
    loss_N = formula(hidden_ND @ head_VD.T)
    return (loss_N.detach(), *torch.autograd.grad(loss_N.sum(), (hidden_ND, head_VD)))


def soft(logits_NV: Tensor, temperature: float) -> Tensor:
    return (logits_NV / temperature).softmax(-1)


def mixed(temperature: float, alpha: float, divergence: Any) -> Any:
    """Return alpha MLE + (1 - alpha) T^2 D(p, q) as a function of the model's logits."""

    def formula(z_NV: Tensor) -> Tensor:
        d_N = divergence(soft(LOGITS_P_NV, temperature), soft(z_NV, temperature))
        return alpha * F.cross_entropy(z_NV, TARGETS_N, reduction="none") + (1 - alpha) * temperature**2 * d_N

    return formula


def forward_kl(p: Tensor, q: Tensor) -> Tensor:
    return (p * (p / q).log()).sum(-1)


def reverse_kl(p: Tensor, q: Tensor) -> Tensor:
    return forward_kl(q, p)


def jensen_shannon(beta: float) -> Any:
    def divergence(p: Tensor, q: Tensor) -> Tensor:
        m = beta * p + (1 - beta) * q
        return beta * forward_kl(p, m) + (1 - beta) * forward_kl(q, m)

    return divergence


@engines
@pytest.mark.parametrize(("temperature", "alpha"), [(1.0, 0.0), (2.5, 0.0), (0.5, 0.3), (1.0, 1.0)])
def test_distillation_is_its_definition(impl: str, temperature: float, alpha: float) -> None:
    given = {"temperature": temperature, "alpha": alpha}
    cases = [
        (KdForward(**given), forward_kl),
        (KdReverse(**given), reverse_kl),
        (KdJs(**given), jensen_shannon(0.5)),
        (KdJs(beta=0.1, **given), jensen_shannon(0.1)),
        (KdJs(beta=0.0, **given), forward_kl),
        (KdJs(beta=1.0, **given), reverse_kl),
    ]
    for objective, divergence in cases:
        found, expected = ours(objective, impl), theirs(mixed(temperature, alpha, divergence))
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("beta", [0.0, 0.2, 0.9, 1.0])
def test_jensen_shannon_is_that_of_trl(beta: float) -> None:
    """GKDTrainer.generalized_jsd_loss with reduction="none", summed over the vocabulary: F.kl_div in log space."""

    def trl(z_NV: Tensor) -> Tensor:
        student, teacher = F.log_softmax(z_NV, -1), F.log_softmax(LOGITS_P_NV, -1)
        if beta == 0:
            return F.kl_div(student, teacher, reduction="none", log_target=True).sum(-1)
        if beta == 1:
            return F.kl_div(teacher, student, reduction="none", log_target=True).sum(-1)
        b = torch.tensor(beta, dtype=torch.float64)
        mixture = torch.logsumexp(torch.stack([student + torch.log1p(-b), teacher + torch.log(b)]), dim=0)
        to_teacher = F.kl_div(mixture, teacher, reduction="none", log_target=True)
        to_student = F.kl_div(mixture, student, reduction="none", log_target=True)
        return (b * to_teacher + (1 - b) * to_student).sum(-1)

    torch.testing.assert_close(ours(KdJs(beta=beta), "chunked"), theirs(trl), rtol=1e-9, atol=1e-11)


def test_near_its_ends_jensen_shannon_over_beta_is_a_kl() -> None:
    (forward, *_), (reverse, *_) = ours(KdForward(), "reference"), ours(KdReverse(), "reference")
    for beta, limit in ((1e-9, forward), (1 - 1e-9, reverse)):
        found = ours(KdJs(beta=beta), "reference")[0] / 1e-9
        torch.testing.assert_close(found, limit, rtol=1e-3, atol=1e-5)


@engines
def test_forward_kl_from_a_one_hot_target_is_mle(impl: str) -> None:
    one_hot_NV = torch.full((N, V), -torch.inf, dtype=torch.float64).scatter_(1, TARGETS_N[:, None], 0.0)
    expected = theirs(lambda z_NV: F.cross_entropy(z_NV, TARGETS_N, reduction="none"))
    torch.testing.assert_close(ours(KdForward(), impl, one_hot_NV), expected, rtol=1e-10, atol=1e-12)
    # Half of -log((1 + q_t) / 2) and its mirror: finite, where the reverse divergence is not.
    assert all(bool(torch.isfinite(value).all()) for value in ours(KdJs(), impl, one_hot_NV))
    assert bool(torch.isinf(ours(KdReverse(), impl, one_hot_NV)[0]).all())


def test_where_q_is_p_nothing_is_left_to_learn() -> None:
    logits_NV = (HIDDEN_ND @ HEAD_VD.T).requires_grad_()
    for objective in (KdForward(temperature=2.0), KdReverse(), KdJs(beta=0.3)):
        loss_N = objective.loss(logits_NV, TARGETS_N, {"dense_target": logits_NV.detach()})
        (gradient_NV,) = torch.autograd.grad(loss_N.sum(), logits_NV)
        assert float(loss_N.detach().abs().max()) < 1e-14
        assert float(gradient_NV.abs().max()) < 1e-14


class Teacher:
    """A teacher whose logits are a table: the next token depends on this one and on the padding being masked."""

    table_VV = draw(7, V, V)

    def hidden(self, input_ids_BT: Tensor, attention_mask_BT: Tensor | None = None) -> Tensor:
        assert attention_mask_BT is not None
        return F.one_hot(input_ids_BT, V).double() * attention_mask_BT[..., None]

    def logits(self, hidden_CH: Tensor) -> Tensor:
        return hidden_CH @ self.table_VV


class Language:
    """Two states; the state that emits the next token is 0 after an even token, 1 after an odd one."""

    emission_SV = draw(8, 2, V).softmax(-1).float()

    def state_probs(self, input_ids_BT: Tensor) -> Tensor:
        return F.one_hot(input_ids_BT % 2, 2).float()


class Context:
    """The parts of a SetupContext that these objectives ask for."""

    def teacher(self, name: str) -> Teacher:
        assert name == "some/teacher"
        return Teacher()

    def language(self) -> Language:
        return Language()


IDS_BT = torch.tensor([[4, 9, 2, 7], [3, 3, 8, 0]])
BATCH = {"input_ids": IDS_BT, "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]), "labels": IDS_BT}


@pytest.mark.parametrize(
    ("target", "log_p_VV"),
    [
        ("some/teacher", Teacher.table_VV.log_softmax(-1)),
        ("language", Language.emission_SV.double()[torch.arange(V) % 2].log()),
    ],
)
def test_the_target_of_a_label_is_what_predicts_it(target: str, log_p_VV: Tensor) -> None:
    """`log_p_VV[a]` is the distribution after token a; row j of the side data belongs to the label j."""
    seen: list[Tensor] = []

    class Spy(emobench.DenseTargetObjective):
        def dense_loss(self, log_q_CV: Tensor, log_p_CV: Tensor, targets_C: Tensor) -> Tensor:
            seen.append(log_p_CV)
            return -log_q_CV.gather(1, targets_C[:, None])[:, 0]

    objective = Spy(target=target)
    objective.setup(Context())  # type: ignore[arg-type]
    (side_BTX,) = objective.side_data(BATCH).values()
    assert side_BTX.shape[:2] == IDS_BT.shape
    assert objective.reads == (target,)
    logits = draw(9, 2, V)
    objective.loss(logits, torch.tensor([2, 8]), {"dense_target": side_BTX[[0, 1], [2, 2]]})  # after 9 and after 3
    torch.testing.assert_close(seen[0], log_p_VV[[9, 3]], rtol=1e-12, atol=1e-12)
    assert bool((side_BTX[:, 0] == 0).all())


def test_padding_rows_of_a_teachers_head_take_no_mass() -> None:
    """The engine gives logits of the tokens only, fewer than the teacher's head has rows."""
    objective = KdForward(target="some/teacher")
    objective.setup(Context())  # type: ignore[arg-type]
    (side_BTX,) = objective.side_data(BATCH).values()
    found_N = objective.loss(draw(9, 2, V - 4), torch.tensor([2, 8]), {"dense_target": side_BTX[[0, 1], [2, 2]]})
    log_p_NV = Teacher.table_VV[[9, 3], : V - 4].log_softmax(-1)
    expected_N = F.kl_div(draw(9, 2, V - 4).log_softmax(-1), log_p_NV, reduction="none", log_target=True).sum(-1)
    torch.testing.assert_close(found_N, expected_N)


def test_what_was_set_up_is_frozen_state() -> None:
    objective = KdForward()
    assert objective.frozen_state() == {}
    objective.setup(Context())  # type: ignore[arg-type]
    assert objective.frozen_state() == {"emission": Language.emission_SV}
    assert objective.reads == ("language",)
    assert DemdDense().reads == ("language", "pretrained")
    assert DemdDense(target="pretrained", cost="initial").reads == ("pretrained",)


def test_side_data_of_another_vocabulary_is_refused() -> None:
    with pytest.raises(PluginError, match=r"kd-forward: P has shape \(\d+, 5\); expected \(\d+, 17\)"):
        ours(KdForward(), "chunked", LOGITS_P_NV[:, :5])
    with pytest.raises(PluginError, match=r"kd-js has no target distribution; call setup\(\) first"):
        KdJs().side_data(BATCH)


def test_parameters_have_ranges() -> None:
    for values in ({"temperature": 0.0}, {"alpha": 1.5}, {"beta": -0.1}):
        with pytest.raises(ConfigError, match=next(iter(values))):
            KdJs(**values)
