"""What only a GPU can show of the linear engine: no host synchronisation, its memory, and its products' dtypes.

The kernels themselves are held against float64 in `test_triton.py`, which runs on a GPU as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import emobench
from emobench.models.head import LogitMap
from emobench.objectives import STATISTICS, CostEmbedding, objective_loss, prepare_for
from emobench.objectives.engine.chunked import MOST_ROUNDINGS
from emobench.objectives.engine.products import add_product_wide, multiply_wide, row_buffer
from emobench_objectives.emo import Emo
from emobench_objectives.mle import Mle

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
GPU, GIB = "cuda", 2**30
N, V, PADDING, D = 300, 1009, 7, 64  # rows of 1009 entries begin every 1024
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
CAPPED = LogitMap(scale=0.5, cap=4.0)
Leaves = tuple[Tensor, Tensor, Tensor]


class All(emobench.StatisticsObjective):
    """A stranger's: it reads every statistic, and autograd finds its slopes."""

    needs = frozenset(STATISTICS)

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        smooth = 0.01 * s.log_partition**2 - 0.1 * s.mean_log_prob
        return -s.log_prob + 0.5 * s.expected_cost * s.entropy + smooth + s.sum_squares.sqrt()


class Margin(emobench.LogitsObjective):
    """A stranger's, of the logits themselves."""

    def loss(self, logits_NV: Tensor, targets_N: Tensor, side: Any) -> Tensor:
        return (logits_NV.logsumexp(-1) - logits_NV.gather(1, targets_N[:, None])[:, 0]).square()


# With the number of tokens whose cost rows are kept: some of the 60 targets, or all, so that none is made.
CASES = pytest.mark.parametrize(("make", "keep"), [(Mle, 0), (Emo, 0), (Emo, 60), (All, 30), (Margin, 0)])


def with_cost(objective: Any, device: str, keep: int = 0) -> Any:
    if "expected_cost" in objective.needs:
        cost_VE = torch.randn(V, 16, generator=torch.Generator().manual_seed(1))
        # As a training keeps it.
        objective.use_cost(CostEmbedding(cost_VE, device=device, dtype=torch.float16 if device == GPU else None))
        objective.cost_embedding.keep(torch.arange(keep))
    return objective


def inputs(dtype: torch.dtype, device: str) -> tuple[Leaves, Tensor]:
    """Return hidden states, head and bias as leaves, and labels of which a tenth is ignored."""
    rng = torch.Generator().manual_seed(0)
    hidden_ND = torch.randn(N, D, generator=rng)
    head_VD = torch.randn(V + PADDING, D, generator=rng) / D**0.5
    bias_V = torch.randn(V + PADDING, generator=rng)
    labels_N = torch.randint(60, (N,), generator=rng)
    labels_N[::10] = -100
    hidden_ND, head_VD, bias_V = (t.to(dtype).to(device).requires_grad_() for t in (hidden_ND, head_VD, bias_V))
    return (hidden_ND, head_VD, bias_V), labels_N.to(device)


def gradients(objective: Any, leaves: Leaves, labels_N: Any, **options: Any) -> list[Tensor]:
    result = objective_loss(objective, *leaves, labels_N, vocabulary=V, logit_map=CAPPED, **options)
    return [result.losses_N, *torch.autograd.grad(result.total, leaves)]


def error(actual: Tensor, expected: Tensor) -> float:
    actual, expected = actual.cpu().double(), expected.cpu().double()
    return float((actual - expected).norm() / expected.norm())


@pytest.fixture
def no_synchronisation() -> Iterator[Any]:
    yield lambda: torch.cuda.set_sync_debug_mode("error")
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype:UserWarning")
@CASES
def test_the_loss_does_not_wait_for_the_device(make: Any, keep: int, no_synchronisation: Any) -> None:
    objective = with_cost(make(), GPU, keep)
    leaves, labels_N = inputs(torch.bfloat16, GPU)
    targets = prepare_for(objective, labels_N, vocabulary=V, dtype=torch.bfloat16, chunk_bytes=100 * V * 2)
    assert len(targets.chunks) > 2
    gradients(objective, leaves, targets)  # kernels are compiled, and kept rows made
    torch.cuda.synchronize()
    no_synchronisation()
    denominator = torch.full((), 100.0, device=GPU)
    objective_loss(
        objective, *leaves, targets, denominator=denominator, vocabulary=V, logit_map=CAPPED
    ).total.backward()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@CASES
def test_the_gpu_gives_the_numbers_of_the_cpu(make: Any, keep: int, dtype: torch.dtype) -> None:
    found = []
    for device in ("cpu", GPU):
        leaves, labels_N = inputs(dtype, device)
        objective = with_cost(make(), device, keep if device == GPU else 0)
        found.append(gradients(objective, leaves, labels_N, chunk_bytes=100 * V * dtype.itemsize))
    limit = {torch.float32: 1e-3, torch.bfloat16: 1.5e-2, torch.float16: 5e-3}[dtype]  # costs are of float16 rows
    for actual, expected in zip(found[1], found[0], strict=True):
        assert error(actual, expected) <= limit


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_products_of_half_precision_are_summed_in_single(dtype: torch.dtype) -> None:
    """Into and out of rows that are longer than the vocabulary."""
    hidden_ND, head_VD, _ = (t.detach() for t in inputs(dtype, GPU)[0])
    logits_NV = row_buffer(head_VD, N, len(head_VD), torch.float32, 128)
    multiply_wide(hidden_ND, head_VD, logits_NV)
    assert logits_NV.stride(0) > logits_NV.shape[1]
    assert error(logits_NV, hidden_ND.double() @ head_VD.double().T) <= 1e-6
    low_NV = row_buffer(head_VD, N, len(head_VD), dtype, 128).copy_(logits_NV)
    sum_VD = torch.full_like(head_VD, torch.nan, dtype=torch.float32)
    for number in range(3):
        add_product_wide(sum_VD, low_NV, hidden_ND, first=number == 0)
    assert error(sum_VD, 3 * low_NV.double().T @ hidden_ND.double()) <= 3e-6


def test_few_chunks_are_summed_in_bfloat16() -> None:
    """That is as exact as a float32 sum that is rounded at the end, up to a factor of 2."""
    leaves, labels_N = inputs(torch.bfloat16, GPU)
    hidden_ND, head_VD, _ = leaves
    double = [t.detach().double().cpu().requires_grad_() for t in (hidden_ND, head_VD)]
    total = objective_loss(Mle(), *double, None, labels_N.cpu(), vocabulary=V, impl="reference").total
    expected_VD = torch.autograd.grad(total, double)[1]
    errors = []
    for chunks in (MOST_ROUNDINGS, MOST_ROUNDINGS + 1):
        rows = -(-int((labels_N >= 0).sum()) // chunks)
        targets = prepare_for(Mle(), labels_N, vocabulary=V, dtype=torch.bfloat16, chunk_bytes=2 * V * rows)
        assert len(targets.chunks) == chunks
        found = objective_loss(Mle(), hidden_ND, head_VD, None, targets, vocabulary=V).total
        errors.append(error(torch.autograd.grad(found, head_VD)[0], expected_VD))
    rounded, single = errors
    assert single <= rounded <= 2 * single


def test_a_loss_scale_keeps_small_gradients() -> None:
    """Autocast in float16 with single-precision weights, and a denominator as of a large accumulated batch."""
    leaves, labels_N = inputs(torch.float32, GPU)
    hidden_ND, head_VD, bias_V = leaves
    denominator = torch.full((), 2.0**20, device=GPU)
    expected = gradients(with_cost(Emo(), GPU), leaves, labels_N, impl="reference")[1:]
    scaler = torch.amp.GradScaler(GPU, init_scale=65536.0)
    optimizer = torch.optim.SGD(leaves, lr=0.0)
    with torch.autocast(GPU, torch.float16):
        half_ND = hidden_ND.half()
        result = objective_loss(
            with_cost(Emo(), GPU),
            half_ND,
            head_VD,
            bias_V,
            labels_N,
            denominator=denominator,
            vocabulary=V,
            logit_map=CAPPED,
        )
    scaler.scale(result.total).backward()
    scaler.unscale_(optimizer)
    for leaf, wanted in zip(leaves, expected, strict=True):
        assert leaf.grad is not None
        assert error(leaf.grad * denominator, wanted) <= 5e-3


@pytest.mark.parametrize("length", [0.05, 1.0, 400.0])
@pytest.mark.parametrize("copy", [False, True])
def test_cost_rows_of_a_half_precision_head(copy: bool, length: float) -> None:
    """Rows short and long: as they are, inner products would vanish beside 1, or overflow."""
    rng = torch.Generator().manual_seed(2)
    rows_VD = torch.nn.functional.normalize(torch.randn(V, D, generator=rng), dim=1)
    rows_VD[1] = torch.nn.functional.normalize(rows_VD[0] + 0.02 * rows_VD[1], dim=0)
    rows_VD = (length * rows_VD).half().to(GPU)
    tokens_U = torch.tensor([0, 1, 500], device=GPU)
    out_UV = row_buffer(rows_VD, len(tokens_U), V, torch.float16, 128)
    CostEmbedding(rows_VD, dtype=torch.float16, copy=copy).costs(tokens_U, out=out_UV)
    unit_VD = torch.nn.functional.normalize(rows_VD.double(), dim=1)
    expected_UV = (1 - unit_VD[tokens_U] @ unit_VD.T).scatter(1, tokens_U[:, None], 0)
    assert error(out_UV, expected_UV) <= 1e-3
    assert float(out_UV[0, 1]) == pytest.approx(float(expected_UV[0, 1]), rel=0.3)


@pytest.mark.parametrize("make", [Mle, Emo])
def test_memory_stays_within_its_bound(make: Any) -> None:
    """16384 x 128256 logits would be 3.9 GiB; beyond dX and a float32 dW there may be 1 GiB."""
    tokens, vocabulary, width = 16384, 128256, 4096
    if torch.cuda.mem_get_info()[0] < 12 * GIB:
        pytest.skip("needs 12 GiB of free GPU memory")
    half: Any = {"device": GPU, "dtype": torch.bfloat16}
    leaves = [torch.randn(rows, width, requires_grad=True, **half) for rows in (tokens, vocabulary)]
    hidden_ND, head_VD = leaves
    objective = make()
    if "expected_cost" in objective.needs:
        objective.use_cost(CostEmbedding(head_VD.half(), copy=False))
    labels_N = torch.arange(tokens, device=GPU) % 3429
    targets = prepare_for(objective, labels_N, vocabulary=vocabulary, dtype=torch.bfloat16)

    def step() -> None:
        for leaf in leaves:
            leaf.grad = None
        objective_loss(objective, hidden_ND, head_VD, None, targets).total.backward()

    step()  # kernels are loaded, and cuBLAS has its workspace
    for leaf in leaves:
        leaf.grad = None
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    extra = torch.cuda.max_memory_allocated() - before - width * (2 * tokens + 4 * vocabulary)
    assert extra <= GIB


def test_other_batches_compile_nothing_new() -> None:
    """Chunks of other sizes, that begin at other tokens."""
    from emobench.objectives.engine.triton_kernels import differentiate_kernel, reduce_kernel

    def compiled() -> list[int]:
        kernels: tuple[Any, ...] = (reduce_kernel, differentiate_kernel)
        return [len(kernel.device_caches[torch.cuda.current_device()][0]) for kernel in kernels]

    objective = with_cost(Emo(), GPU, keep=30)
    (hidden_ND, head_VD, bias_V), labels_N = inputs(torch.bfloat16, GPU)
    first: list[int] = []
    for tokens in (N, N - 1, N - 13, 48, 16, 17, 2, 1):
        leaves = (hidden_ND[:tokens].detach().requires_grad_(), head_VD, bias_V)
        gradients(objective, leaves, labels_N[-tokens:], chunk_bytes=100 * V * 2)
        first = first or compiled()
        assert compiled() == first
