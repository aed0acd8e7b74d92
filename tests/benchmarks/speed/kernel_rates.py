"""Rates of what the engine runs on a GPU, one by one, at the chunks that it takes: bytes or FLOPs per second.

    python tests/benchmarks speed.kernel_rates [--out FILE]

Bytes of a pass are those that it must move: logits read (and written, by the gradient), and one read of each distinct
cost row. With `rows read` each token's cost row counts: most of them come from the cache of the GPU.

Legend: C tokens of the chunk, U its distinct targets, V vocabulary, D width.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measuring import RESULTS, hardware, origin, require, seconds_of, write
from speed.linear_loss import DTYPES, SHAPES
from speed.problem import Problem

from emobench.models.head import LogitMap
from emobench.objectives.engine.chunked import make_costs
from emobench.objectives.engine.coefficients import Coefficients
from emobench.objectives.engine.linear import rows_for
from emobench.objectives.engine.products import add_product_wide, padded_head, row_buffer, whole_rows
from emobench.objectives.engine.torch_rows import TorchRows

NEEDS = frozenset({"log_prob", "expected_cost", "alternatives"})  # what `emo` makes a training step find


def rates(problem: Problem, impl: str, repetitions: int) -> list[dict[str, Any]]:
    """Return the median time and the rate of each pass and product over the first chunk of EMO."""
    rows, chunk = _rows(problem, impl), problem.prepared["emo"].chunks[0]
    head_VD, device = problem.head_VD.detach(), problem.head_VD.device
    C, U, (V, D) = chunk.stop - chunk.start, len(chunk.distinct_U), head_VD.shape
    head_PD = padded_head(head_VD, V, rows.head_multiple, head_VD.dtype)
    hidden_CD = problem.hidden_ND.detach()[:C].contiguous()
    targets_C = problem.prepared["emo"].ids_M[chunk.start : chunk.stop]
    logits_CV = row_buffer(head_VD, C, V, rows.logits_dtype(head_VD.dtype), rows.row_multiple)
    cost_UV = row_buffer(head_VD, U, V, rows.cost_dtype(head_VD.dtype), rows.row_multiple)
    cost = problem.own["emo"].cost_embedding
    assert cost is not None
    dlogits_CP = whole_rows(logits_CV)[:, : len(head_PD)]
    dW_PD = torch.zeros(len(head_PD), D, device=device, dtype=torch.float32)
    rows.make_logits(hidden_CD, head_PD, None, LogitMap(), logits_CV)
    costs = make_costs(cost, chunk, cost_UV, rows)
    base_C, slope_C, target_C = (torch.rand(C, device=device) for _ in range(3))
    numbers = Coefficients(base_C=base_C, cost_C=slope_C, log_q_C=None, q_C=None, shift_C=None, target_C=target_C)
    log_partition_C = rows.reduce(logits_CV, targets_C, costs, NEEDS, LogitMap())["log_partition"]
    size, cost_size = logits_CV.element_size(), cost_UV.element_size()
    cost_bytes, read_bytes = U * V * cost_size, C * V * cost_size

    def gradient() -> None:
        rows.differentiate(logits_CV, targets_C, costs, log_partition_C, numbers, LogitMap())

    def costs_anew() -> None:
        make_costs(cost, chunk, cost_UV, rows)

    passes: list[tuple[str, Callable[[], object], dict[str, float]]] = [
        ("logits", lambda: rows.make_logits(hidden_CD, head_PD, None, LogitMap(), logits_CV), {"flops": 2 * C * V * D}),
        ("cost rows", costs_anew, {"flops": 2 * U * V * D}),
        (
            "statistics",
            lambda: rows.reduce(logits_CV, targets_C, costs, NEEDS, LogitMap()),
            {"bytes": C * V * size + cost_bytes, "bytes, rows read": C * V * size + read_bytes},
        ),
        (
            "gradient",
            gradient,
            {"bytes": 2 * C * V * size + cost_bytes, "bytes, rows read": 2 * C * V * size + read_bytes},
        ),
        ("dX", lambda: dlogits_CP.to(head_PD.dtype) @ head_PD, {"flops": 2 * C * V * D}),
        ("dW", lambda: add_product_wide(dW_PD, dlogits_CP, hidden_CD), {"flops": 2 * C * V * D}),
        ("copy", lambda: logits_CV.clone(), {"bytes": 2 * C * V * size}),
    ]
    found = []
    for name, run, amounts in passes:
        run()
        seconds = statistics.median(seconds_of(run, device.type, 3) for _ in range(repetitions))
        per_second = {f"{what}_per_second": amount / max(seconds, 1e-9) for what, amount in amounts.items()}
        found.append({"what": name, "C": C, "U": U, "V": V, "D": D, "seconds": seconds, **per_second})
    return found


def _rows(problem: Problem, impl: str) -> TorchRows:
    return rows_for(impl, problem.head_VD.device, problem.head_VD.dtype)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--impl", choices=("chunked", "torch", "triton"), default="chunked")
    parser.add_argument("--shape", action="append", metavar="N,V,D", help="default: the shapes of the targets")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--out", type=Path, help="default: results/kernel_rates-DEVICE.json beside this")
    options = parser.parse_args(argv)
    require(options.device)
    torch.set_num_threads(1)
    found: dict[str, Any] = {**origin(__file__, argv, options.device), "rates": []}
    print(hardware(options.device))
    for text in options.shape or SHAPES[options.device]:
        N, V, D = map(int, text.split(","))
        problem = Problem.make((N, V, D), DTYPES[options.device], options.device, ["emo"])
        with torch.no_grad():
            one = rates(problem, options.impl, options.repetitions)
        found["rates"] += one
        print(f"\nN {N}, V {V}, D {D}, C {one[0]['C']}, U {one[0]['U']}, U/N {problem.distinct / N:.3f}")
        for row in one:
            speed = [f"{v / 1e12:8.2f} T{k.split('_')[0]}/s" for k, v in row.items() if k.endswith("_per_second")]
            print(f"  {row['what']:12}{1e3 * row['seconds']:10.3f} ms{''.join(speed)}")
        write(found, options.out or RESULTS / "speed" / f"kernel_rates-{options.device}.json")


if __name__ == "__main__":
    main(sys.argv[1:])
