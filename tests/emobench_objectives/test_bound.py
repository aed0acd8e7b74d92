"""Exact earth mover's distances (linear programming) against what the objectives take for them.

For any cost that is symmetric, not negative, and nothing between a token and itself:

    one-hot P   EMD = Q^T C P                          one plan is left
    any P       EMD <= Q^T C P                         the plan Q(v) P(w), Eq. 11-14
    any P       EMD <= |Q - P|^T C P - b^T C b         with a = (Q - P)+, b = (P - Q)+ and m = min(Q, P)

The last plan sends a_v b_w straight from v to w, a_v m_k from v to k, m_k b_w from k to w, and leaves the rest where it
is: k gets and gives (sum a) m_k <= m_k. So Eq. 15 is an upper bound of the distance itself, which the paper does not
claim; no triangle inequality is needed, and 1 - cos has none. Neither bound is always the tighter one: Q^T C P less
Eq. 15 is m^T C m - b^T C b.
"""

from __future__ import annotations

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from emobench.data.oracle.language import oracle_language
from emobench.objectives import CostEmbedding, TokenStatistics
from emobench.objectives.statistics import statistics_from_logits
from emobench_objectives.demd import Demd
from emobench_objectives.demd_dense import DemdDense

Floats = NDArray[np.float64]


def exact(q_V: Floats, p_V: Floats, cost_VV: Floats) -> float:
    """Return min over transport plans of sum g C, by linear programming (HiGHS): the definition, Eq. 8-10."""
    size = len(q_V)
    rows = np.kron(np.eye(size), np.ones(size))
    columns = np.kron(np.ones(size), np.eye(size))
    # One of the 2 V sums follows from the others.
    equal = np.vstack([rows, columns[:-1]])
    found = linprog(cost_VV.ravel(), A_eq=equal, b_eq=np.concatenate([q_V, p_V[:-1]]), method="highs")
    assert found.status == 0, found.message
    return float(found.fun)


def cosine_cost(embedding_VE: Floats) -> Floats:
    unit_VE = embedding_VE / np.linalg.norm(embedding_VE, axis=1, keepdims=True)
    cost_VV = np.clip(1 - unit_VE @ unit_VE.T, 0, None)
    np.fill_diagonal(cost_VV, 0)
    return cost_VV


def generalised(q_V: Floats, p_V: Floats, embedding_VE: Floats) -> float:
    """Return what `demd-dense` computes."""
    objective = DemdDense()
    objective.use_cost(CostEmbedding(torch.from_numpy(embedding_VE)))
    log_q, log_p = (torch.from_numpy(x)[None].log() for x in (q_V, p_V))
    return float(objective.dense_loss(log_q, log_p, torch.zeros(1, dtype=torch.long)))


@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(2, 7),
    width=st.integers(2, 4),
    sharpness=st.sampled_from([0.05, 0.3, 1.0, 5.0]),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_both_bounds_hold_for_any_distributions(seed: int, size: int, width: int, sharpness: float) -> None:
    rng = np.random.default_rng(seed)
    embedding_VE = rng.standard_normal((size, width))
    cost_VV = cosine_cost(embedding_VE)
    # The floor keeps the logarithms finite.
    q_V, p_V = (0.999 * rng.dirichlet(np.full(size, sharpness)) + 0.001 / size for _ in range(2))
    distance = exact(q_V, p_V, cost_VV)
    missing_V = np.clip(p_V - q_V, 0, None)
    bound = generalised(q_V, p_V, embedding_VE)
    assert bound == pytest.approx(np.abs(q_V - p_V) @ cost_VV @ p_V, rel=1e-9, abs=1e-12)
    assert distance <= q_V @ cost_VV @ p_V + 1e-9
    assert distance <= bound - missing_V @ cost_VV @ missing_V + 1e-9
    # And the paper's own claim about Eq. 15.
    assert abs(q_V @ cost_VV @ p_V - p_V @ cost_VV @ p_V) <= bound + 1e-12


def test_with_two_tokens_the_generalised_bound_is_the_distance() -> None:
    rng = np.random.default_rng(0)
    embedding_VE = rng.standard_normal((2, 3))
    for _ in range(5):
        q_V, p_V = rng.dirichlet([1, 1]), rng.dirichlet([1, 1])
        distance = exact(q_V, p_V, cosine_cost(embedding_VE))
        assert generalised(q_V, p_V, embedding_VE) == pytest.approx(distance, rel=1e-9)


def test_neither_bound_is_always_the_tighter_one() -> None:
    embedding_VE = np.eye(3)
    apart = np.array([0.98, 0.01, 0.01]), np.array([0.01, 0.495, 0.495])
    near = np.array([0.34, 0.33, 0.33]), np.array([0.33, 0.34, 0.33])
    for (q_V, p_V), generalised_is_tighter in ((apart, False), (near, True)):
        product = q_V @ cosine_cost(embedding_VE) @ p_V
        assert bool(generalised(q_V, p_V, embedding_VE) < product) is generalised_is_tighter


def oracle_positions() -> tuple[Floats, Floats]:
    """Return Q and P on the oracle language's 513 symbols at eight positions: the source domain and the target one."""
    source, target = oracle_language("source"), oracle_language("target")
    ids_BT = np.array([[target.eos_id, *next(text for text in target.sample(9, seed=2) if len(text) >= 7)[:7]]])
    q_TV, p_TV = (
        (language.state_probs(ids_BT) @ language.emission_SV)[0] for language in (source, target)
    )  # P of a text knows only its prefix
    return q_TV / q_TV.sum(-1, keepdims=True), p_TV / p_TV.sum(-1, keepdims=True)


EMBEDDING_VE = np.random.default_rng(1).standard_normal((513, 24))


def test_pot_solves_the_same_linear_program() -> None:
    rng = np.random.default_rng(3)
    cost_VV = cosine_cost(rng.standard_normal((30, 5)))
    for _ in range(3):
        q_V, p_V = rng.dirichlet(np.full(30, 0.3)), rng.dirichlet(np.full(30, 0.3))
        assert ot.emd2(q_V, p_V, cost_VV) == pytest.approx(exact(q_V, p_V, cost_VV), rel=1e-7)


def test_on_the_oracle_language_a_one_hot_target_leaves_no_gap() -> None:
    q_TV, _ = oracle_positions()
    cost_VV = cosine_cost(EMBEDDING_VE)
    targets = torch.tensor([3, 77, 512, 0, 401, 12, 255, 499])
    demd = Demd()
    logits = torch.from_numpy(np.log(q_TV))
    values = statistics_from_logits(
        logits, targets, frozenset({"log_prob", "expected_cost"}), torch.from_numpy(cost_VV)[targets]
    )
    found = demd.loss(TokenStatistics(values, targets))
    for q_V, target, value in zip(q_TV, targets.tolist(), found.tolist(), strict=True):
        assert ot.emd2(q_V, np.eye(513)[target], cost_VV) == pytest.approx(value, rel=1e-9)


def test_on_the_oracle_language_both_bounds_hold_for_its_own_p() -> None:
    q_TV, p_TV = oracle_positions()
    cost_VV = cosine_cost(EMBEDDING_VE)
    for q_V, p_V in zip(q_TV, p_TV, strict=True):
        distance = ot.emd2(q_V, p_V, cost_VV)
        bound = generalised(q_V, p_V, EMBEDDING_VE)
        assert 0 < distance < bound
        assert distance < q_V @ cost_VV @ p_V
        assert bound < 4 * distance
