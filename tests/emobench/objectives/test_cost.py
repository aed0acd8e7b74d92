"""Ground costs: their rows against matrices, objectives over them against formulas, and costs that are refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from emobench.core.errors import ConfigError, PluginError, UnknownNameError, UserError
from emobench.objectives import CostEmbedding, GroundCost, objective_loss
from emobench.objectives.cost import ground_cost
from emobench.registry import load_objective

V, D = 131, 24
TEXTS = [*map(str, range(12)), " 7", "3.5", "70000", "w", " w", "x1", "²", "", *(f"word{place}" for place in range(20))]
T = len(TEXTS)
NUMBERS = [*map(float, range(12)), 7.0, 3.5, 70000.0]
LIKE = torch.empty(0, dtype=torch.float64)
FUNCTION = """
import numpy as np

def lengths(texts, targets):
    length_V = np.array([len(text) for text in texts])
    return (length_V - length_V[targets][:, None]) ** 2
"""


def test_a_view_of_the_head_gives_the_costs_of_a_copy() -> None:
    weight_VE = torch.randn(V, D, generator=torch.Generator().manual_seed(0))
    weight_VE[5] = 0
    tokens_U = torch.tensor([0, 5, 99])
    copied, viewed = CostEmbedding(weight_VE), CostEmbedding(weight_VE, copy=False)
    assert viewed.rows_VE.data_ptr() == weight_VE.data_ptr()
    assert torch.allclose(viewed.costs(tokens_U), copied.costs(tokens_U), atol=1e-6)
    assert copied.zero_rows == viewed.zero_rows == 1


def test_expected_costs_are_those_of_the_cost_matrix() -> None:
    rng = torch.Generator().manual_seed(0)
    weight_VE = torch.randn(V, D, generator=rng, dtype=torch.float64)
    weight_VE[5] = 0
    probs_CV = torch.rand(4, V, generator=rng, dtype=torch.float64)
    cost = CostEmbedding(weight_VE)
    cost_VV = cost.costs(torch.arange(V))
    assert torch.allclose(cost.expected(probs_CV), probs_CV @ cost_VV, rtol=1e-12)


def test_a_cost_embedding_is_a_matrix_of_floats() -> None:
    with pytest.raises(
        UserError, match=r"A cost embedding is \(9,\) of torch\.float32; expected floats, \(tokens, width\)"
    ):
        CostEmbedding(torch.randn(9, 4)[:, 0])
    with pytest.raises(UserError, match=r"of torch\.int64; expected floats"):
        CostEmbedding(torch.randn(9, 4).long())


def numeric_matrix(values: list[float]) -> Tensor:
    """Return the cost matrix of tokens of which the first are numbers."""
    far = 1.01 * (max(values) - min(values))
    cost_VV = torch.full((T, T), far, dtype=torch.float64).fill_diagonal_(0)
    for target, x in enumerate(values):
        for token, y in enumerate(values):
            cost_VV[target, token] = abs(x - y)
    return cost_VV


def costs_by_name(folder: Path) -> dict[str, tuple[str, Tensor]]:
    """Return sources of ground costs with their matrices."""
    matrix = np.random.default_rng(0).random((T, T)).astype(np.float32)
    np.fill_diagonal(matrix, 0)
    np.save(folder / "matrix.npy", matrix)
    (folder / "cost.py").write_text(FUNCTION)
    length_V = torch.tensor([len(text) for text in TEXTS], dtype=torch.float64)
    return {
        "digits": ("digits", numeric_matrix(NUMBERS[:10])),
        "numbers": ("numbers", numeric_matrix(NUMBERS)),
        "matrix": (f"{folder}/matrix.npy", torch.from_numpy(matrix).double()),
        "function": (f"{folder}/cost.py:lengths", (length_V - length_V[:, None]) ** 2),
    }


named = pytest.mark.parametrize("name", ["digits", "numbers", "matrix", "function"])


@named
def test_rows_of_a_ground_cost(name: str, tmp_path: Path) -> None:
    source, cost_VV = costs_by_name(tmp_path)[name]
    cost = ground_cost(source, TEXTS, LIKE)
    tokens_U = torch.tensor([5, 15, 0])
    torch.testing.assert_close(cost.costs(tokens_U), cost_VV[tokens_U])
    probs_CV = torch.rand(3, T, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(cost.expected(probs_CV), probs_CV @ cost_VV)
    first = cost.first(13)
    assert len(first) == 13
    torch.testing.assert_close(first.costs(tokens_U[2:]), cost_VV[tokens_U[2:], :13])
    torch.testing.assert_close(first.expected(probs_CV[:, :13]), probs_CV[:, :13] @ cost_VV[:13, :13])
    count = {"digits": 10, "numbers": len(NUMBERS)}.get(name, T)
    assert cost.covers(torch.arange(T)).tolist() == [token < count for token in range(T)]


def formula(name: str, logits_NV: Tensor, targets_N: Tensor, cost: GroundCost, cost_VV: Tensor) -> Tensor:
    mle_N = -logits_NV.log_softmax(-1).gather(1, targets_N[:, None])[:, 0]
    demd_N = (logits_NV.softmax(-1) * cost_VV[targets_N]).sum(-1)
    if name == "emo":
        return 0.5 * (mle_N + torch.nan_to_num(mle_N / demd_N, posinf=0).detach() * demd_N)
    return mle_N + 0.3 * cost.covers(targets_N).double() * demd_N if name == "ntl" else demd_N


@pytest.mark.parametrize("impl", ["reference", "torch", "triton"])
@pytest.mark.parametrize("objective", ["emo", "demd", "ntl"])
@named
def test_objectives_over_a_ground_cost(name: str, objective: str, impl: str, tmp_path: Path) -> None:
    """The kernels run with bfloat16 products: 70,000 is no number of float16, in which they keep cosines."""
    source, cost_VV = costs_by_name(tmp_path)[name]
    dtype = torch.bfloat16 if impl == "triton" else torch.float64
    cost = ground_cost(source, TEXTS, LIKE.to(dtype))
    cost.keep(torch.arange(0, T, 3))
    chosen: Any = load_objective(objective).objective
    chosen.use_cost(cost)
    rng = torch.Generator().manual_seed(1)
    hidden_ND = torch.randn(40, 8, generator=rng).to(dtype)
    head_VD = torch.randn(T, 8, generator=rng).to(dtype)
    targets_N = torch.randint(T, (40,), generator=rng)
    leaves = hidden_ND.clone().requires_grad_(), head_VD.clone().requires_grad_()
    found = objective_loss(chosen, *leaves, None, targets_N, impl=impl, chunk_bytes=16 * T * dtype.itemsize)
    wide = hidden_ND.double().requires_grad_(), head_VD.double().requires_grad_()
    losses_N = formula(objective, wide[0] @ wide[1].T, targets_N, cost, cost_VV)
    limit = 2e-2 if impl == "triton" else 1e-9
    actual = found.losses_N, *torch.autograd.grad(found.total, leaves)
    for one, expected in zip(actual, (losses_N.detach(), *torch.autograd.grad(losses_N.sum(), wide)), strict=True):
        assert float((one.double() - expected).norm()) <= limit * float(expected.norm())


@named
def test_dense_targets_over_a_ground_cost(name: str, tmp_path: Path) -> None:
    source, cost_VV = costs_by_name(tmp_path)[name]
    objective: Any = load_objective("demd-dense").objective
    objective.use_cost(ground_cost(source, TEXTS, LIKE))
    logits_CV, target_CV = torch.randn(2, 5, T, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    q_CV, p_CV = logits_CV.softmax(-1), target_CV.softmax(-1)
    loss_C = objective.loss(logits_CV, torch.arange(5), {"dense_target": target_CV})
    torch.testing.assert_close(loss_C, ((q_CV - p_CV).abs() * (p_CV @ cost_VV)).sum(-1))


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("cost[:, 1:]", [str((4, T - 1)), str((4, T))]),
        ("cost[0]", [str((T,)), str((4, T))]),
        ("cost - 1", ["-1.0"]),
        ("cost + 1", ["1.0", "target '0'"]),
        ("cost * np.nan", ["nan"]),
        ("cost + np.inf", ["inf"]),
        ("cost / 0", ["ZeroDivisionError"]),
        ("'far'", ["cost.py"]),
        ("cost + 1j", ["complex"]),
    ],
)
def test_costs_that_a_function_may_not_return(returned: str, words: list[str], tmp_path: Path) -> None:
    body = f"    cost = np.zeros((len(targets), len(texts)))\n    return {returned}\n"
    if "/ 0" in returned:
        body = "    return 1 / 0\n"
    (tmp_path / "cost.py").write_text(f"import numpy as np\n\ndef mine(texts, targets):\n{body}")
    with pytest.raises(PluginError) as error:
        ground_cost(f"{tmp_path}/cost.py:mine", TEXTS, LIKE)
    for word in ("cost.py", *words):
        assert word in str(error.value)


def test_a_file_that_is_no_python_is_named(tmp_path: Path) -> None:
    for content in (b"def f(:\n", b"\xff\x00", b"(" * 5000):
        (tmp_path / "bad.py").write_bytes(content)
        with pytest.raises(UserError, match=r"bad\.py"):
            load_objective(f'emo(cost="{tmp_path}/bad.py:f")')


def test_sources_that_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cost.py").write_text(FUNCTION)
    np.save(tmp_path / "small.npy", np.zeros((3, T)))
    (tmp_path / "text.npy").write_text("0 1\n1 0\n")
    whole = (tmp_path / "small.npy").read_bytes()
    headers = {"open": b"{'descr", "large": b"{'shape': (9" + 30 * b"9" + b",)}", "order": b"  {1:2}\n {"}
    for name, header in headers.items():
        (tmp_path / f"{name}.npy").write_bytes(whole[:10] + header.ljust(118) + whole[128:])
    refused: list[tuple[str, type[UserError]]] = [
        ("cost.py:length", UnknownNameError),
        ("cost.py:np", UnknownNameError),
        ("none.py:lengths", ConfigError),
        ("small.npy", ConfigError),
        ("text.npy", ConfigError),
        ("none.npy", ConfigError),
        *((f"{name}.npy", ConfigError) for name in headers),
    ]
    for source, error in refused:
        with pytest.raises(error, match=source.partition(":")[0]):
            ground_cost(f"{tmp_path}/{source}", TEXTS, LIKE)
    with pytest.raises(ConfigError, match="digits"):
        ground_cost("digits", ["1", "one", "10", " 2"], LIKE)
    assert math.isclose(ground_cost("numbers", ["1", "one", "10", " 2"], LIKE).costs(torch.tensor([1]))[0, 0], 9.09)
