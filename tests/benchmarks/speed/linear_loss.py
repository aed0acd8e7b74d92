"""Time and peak memory of head and loss, forward and backward: the linear engine against its peers.

    python tests/benchmarks speed.linear_loss [--device cpu|cuda] [--shape N,V,D[,L] ...] [--only VARIANT ...]

One process for all times, in an order that is reversed at each round; medians. On a CPU: process time on one thread in
a process that reuses its memory, so that no variant pays for page faults; and peak memory as the highest resident set
of a fresh process less that before the loss. On a GPU: CUDA events around steps in a row, and torch's peak of allocated
memory. `emo-cached` is `emo` as a training runs it: with the cost rows of the most frequent tokens kept. A shape with L
has that many transformer layers below the head, forward and backward with it. Targets repeat as text does; U/N is
printed with every number. The labels are prepared beforehand, as a training does before the model runs; that time
stands apart (`prepare`). `targets.py` holds what must be reached. A peer that is not installed is left out, and named
in the result.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from measuring import (
    RESULTS,
    alternating_seconds,
    matrix_rate,
    median_and_spread,
    origin,
    peak_bytes,
    program,
    require,
    reuse_memory,
    write,
)
from speed.problem import VARIANTS, Problem, available, count
from speed.targets import LINEAR_LOSS, show, verdicts

# The shapes of the targets: tokens, vocabulary, width, layers. On a CPU: the heads of GPT-2 and of SmolLM2-135M, whose
# vocabulary is a multiple of 64, and a small head on a deep body.
# On a GPU GPT-2's head, also as one pads it by hand to a multiple of 64: for the peers that is several times as fast.
SHAPES = {
    "cpu": ["2048,50257,768", "2048,49152,576", "2048,8192,512,6"],
    "cuda": ["16384,128256,4096", "8192,50257,768", "8192,50304,768", "8192,32000,4096"],
}
DTYPES = {"cpu": "float32", "cuda": "bfloat16"}


def measure(problem: Problem, options: argparse.Namespace) -> dict[str, Any]:
    """Return what was found at one shape."""
    runs, failed = _runnable(problem, options.only)
    own = "emo" in runs and not _layers(options)  # a body's products are no part of what is counted
    counted = (_tried("counted", lambda: count(problem), failed) or {}) if own else {}
    names = list(runs)
    least = 0.03 if options.device == "cuda" else 0.0
    seconds = alternating_seconds(runs, options.device, rounds=options.rounds, least_seconds=least)
    rows: dict[str, Any] = {name: median_and_spread(seconds[name]) for name in names}
    for name in names:
        rows[name]["range"] = [min(seconds[name]), max(seconds[name])]
    prepared = {name: lambda n=name: problem.prepare(n) for name in names if name in problem.own}
    for name, times in alternating_seconds(prepared, options.device, rounds=options.rounds).items():
        rows[name]["prepare_seconds"] = median_and_spread(times)["seconds"]
    for name in names:
        # The last step's gradients would be freed by the first thing that a run does, and hide as much of its peak.
        problem.hidden_ND.grad = problem.head_VD.grad = None
        peak = peak_bytes(runs[name], "cuda") if options.device == "cuda" else _peak_in_fresh_process(name, options)
        rows[name]["peak_bytes"] = peak
    N, V, D = problem.shape
    return {
        "shape": {"tokens": N, "vocabulary": V, "width": D, "layers": _layers(options), "dtype": options.dtype},
        "distinct_share": round(problem.distinct / N, 4),
        "missing_from_cache_share": round(problem.missing / N, 4),
        "kept_rows": problem.kept,
        # Held before the step, so that it is not in the peak of `emo-cached`.
        "cache_bytes": problem.kept * V * problem.head_VD.element_size(),
        "rounds": options.rounds,
        "gradient_bytes": problem.gradient_bytes,
        "counted": counted,
        "left_out": [name for name in VARIANTS if name not in {*names, *failed}],
        "failed": failed,
        "variants": rows,
    }


def _runnable(problem: Problem, wanted: list[str]) -> tuple[dict[str, Callable[[], object]], dict[str, str]]:
    """Return the variants that went through one step, which is not counted, and why others did not."""
    runs: dict[str, Callable[[], object]] = {}
    failed: dict[str, str] = {}
    for name in VARIANTS:
        if name in wanted and available(name, problem):
            runs[name] = problem.step(name)
            _tried(name, runs[name], failed)
    return {name: run for name, run in runs.items() if name not in failed}, failed


def _tried(name: str, run: Callable[[], Any], failed: dict[str, str]) -> Any:
    """Return what `run` returns, or note why it failed: one peer that breaks must not cost all the others."""
    try:
        return run()
    except Exception as error:
        traceback.print_exc()
        failed[name] = f"{type(error).__name__}: {str(error).strip()[:300]}"
        return None


def _peak_in_fresh_process(name: str, options: argparse.Namespace) -> int:
    shape = ",".join(map(str, options.shape_now))
    command = [*program(__file__), "--dtype", options.dtype, "--shape", shape, "--peak-of", name]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _layers(options: argparse.Namespace) -> int:
    return sum(options.shape_now[3:])


def show_variants(found: dict[str, Any]) -> None:
    """Print the table of one shape."""
    shape, share, variants = found["shape"], found["distinct_share"], found["variants"]
    missing = f"missing from a cache of {found['kept_rows']} rows {found['missing_from_cache_share']:.3f}"
    print(f"\n{shape}, U/N {share:.3f}, {missing}")
    heads = (("", 16), ("ms", 10), ("spread", 8), ("x mle", 8), ("x CE", 8), ("prepare ms", 12), ("peak MiB", 10))
    print("  " + "".join(f"{head:>{width}}" for head, width in (*heads, ("-dX-dW", 9), ("U/N", 8))))
    for name, row in variants.items():
        ratios = "".join(
            f"{row['seconds'] / variants[base]['seconds']:8.3f}" if base in variants else f"{'-':>8}"
            for base in ("mle", "cross-entropy")
        )
        prepare = f"{1e3 * row['prepare_seconds']:12.2f}" if "prepare_seconds" in row else f"{'':12}"
        peak, net = (b / 2**20 for b in (row["peak_bytes"], row["peak_bytes"] - found["gradient_bytes"]))
        times = f"{1e3 * row['seconds']:10.2f}{row['spread']:8.1%}"
        print(f"  {name:16}{times}{ratios}{prepare}{peak:10.0f}{net:9.0f}{share:8.3f}")


def gpu_table(shapes: Sequence[dict[str, Any]]) -> str:
    """Return a table in Markdown: milliseconds of each variant, and the peaks of EMO and Liger, at some shapes."""
    names = ("mle", "emo", "emo-cached", "liger-8", "liger", "cce", "cross-entropy", "official")
    heads = [*(f"`{name}`" for name in names), "MiB `emo-cached`", "MiB `liger-8`"]
    lines = [f"| tokens, vocabulary, width | {' | '.join(heads)} |", f"|{' --- |' * (len(heads) + 1)}"]
    for found in shapes:
        case = ", ".join(f"{found['shape'][key]:,}" for key in ("tokens", "vocabulary", "width"))
        cells = [f"{1e3 * found['variants'][name]['seconds']:.1f}" for name in names]
        cells += [f"{found['variants'][name]['peak_bytes'] / 2**20:,.0f}" for name in ("emo-cached", "liger-8")]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv: list[str]) -> None:
    options = _options(argv)
    torch.set_num_threads(1)
    if options.peak_of:
        # What a first step loads and compiles is no part of it.
        Problem.make((64, 500, 32), options.dtype, "cpu", [options.peak_of]).step(options.peak_of)()
        problem = Problem.make(options.shape[0], options.dtype, "cpu", [options.peak_of])
        print(peak_bytes(problem.step(options.peak_of), "cpu"))
        return
    require(options.device)
    if options.device == "cpu":
        reuse_memory()
    found: dict[str, Any] = {**origin(__file__, argv, options.device), "shapes": []}
    out = options.out or RESULTS / "speed" / f"linear_loss-{options.device}.json"
    if options.device == "cuda":
        found["matrix_flops_per_second"] = matrix_rate()
        print(f"bf16 matrix products of random data: {found['matrix_flops_per_second'] / 1e12:.0f} TFLOP/s")
    print(found["hardware"], f"{found['threads']} thread(s)", "not installed:", found["not_installed"] or "nothing")
    for shape in options.shape:
        options.shape_now = shape
        one = measure(Problem.make(shape, options.dtype, options.device, options.only), options)
        rate = {key: value for key, value in found.items() if key == "matrix_flops_per_second"}
        one["targets"] = verdicts(LINEAR_LOSS, one | rate, options.device)
        show_variants(one)
        show(one["targets"], one["distinct_share"])
        found["shapes"].append(one)
        write(found, out)  # after each shape: a time limit keeps those before it
    if any(name in one["failed"] for one in found["shapes"] for name in ("mle", "emo", "emo-cached", "counted")):
        sys.exit("Our own engine failed; see above.")


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=tuple(SHAPES), default="cpu")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"), help="default: float32, bfloat16 on CUDA"
    )
    parser.add_argument("--shape", action="append", metavar="N,V,D[,L]", help="default: the shapes of the targets")
    parser.add_argument("--only", action="append", choices=tuple(VARIANTS), help="variants to run; default: all")
    parser.add_argument("--rounds", type=int, help="default: 5, on CUDA 11")
    parser.add_argument("--out", type=Path, help="default: results/linear_loss-DEVICE.json beside this")
    parser.add_argument("--peak-of", choices=tuple(VARIANTS), help="print a variant's peak bytes on the CPU, and stop")
    options = parser.parse_args(argv)
    options.dtype = options.dtype or DTYPES[options.device]
    options.shape = [tuple(map(int, shape.split(","))) for shape in options.shape or SHAPES[options.device]]
    options.only = options.only or list(VARIANTS)
    options.rounds = options.rounds or (11 if options.device == "cuda" else 5)
    return options


if __name__ == "__main__":
    main(sys.argv[1:])
