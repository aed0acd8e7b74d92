"""What the measurements must reach, as one table, and the verdicts on what was found.

A target names the measurement's shape by device, vocabulary and width; those of the GPU are for an H200 in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Found = dict[str, Any]
GIB = 2**30


@dataclass(frozen=True)
class Target:
    """One number that must be reached; `measure` raises KeyError where a part of it was not measured."""

    row: str
    measure: Callable[[Found], float]
    limit: float
    at_least: bool = False
    aim: float | None = None
    where: tuple[str, int, int] | None = None
    """Device, vocabulary, width; None: wherever it was measured."""


def time_of(variant: str, against: str) -> Callable[[Found], float]:
    """Return the measure: the variant's time over the other's."""
    return lambda found: found["variants"][variant]["seconds"] / found["variants"][against]["seconds"]


def memory_of(variant: str, against: str, *, beyond_gradients: bool) -> Callable[[Found], float]:
    """Return the measure: the variant's peak memory over the other's, with or without dX and dW."""

    def measure(found: Found) -> float:
        own, other = (found["variants"][name]["peak_bytes"] for name in (variant, against))
        taken = found["gradient_bytes"] if beyond_gradients else 0
        return (own - taken) / (other - taken)

    return measure


def over_limit(measured: str, exact: str) -> Callable[[Found], float]:
    """Return the measure: one count over another."""
    return lambda found: found["counted"][measured] / found["counted"][exact]


def useful_rate(found: Found) -> float:
    """Return 6NVd over EMO's time, as a share of the measured rate of matrix products."""
    shape = found["shape"]
    useful = 6 * shape["tokens"] * shape["vocabulary"] * shape["width"]
    return useful / found["variants"]["emo"]["seconds"] / found["matrix_flops_per_second"]


def memory_above_single(found: Found) -> float:
    """Return EMO's peak above dX and a float32 dW, in GiB; a cost cache, held before, is not in it."""
    shape = found["shape"]
    taken = 2 * shape["tokens"] * shape["width"] + 4 * shape["vocabulary"] * shape["width"]
    return (found["variants"]["emo"]["peak_bytes"] - taken) / GIB


def _of_shape(vocabulary: int, width: int, default: float, aim: float | None, large: bool) -> list[Target]:
    where = ("cuda", vocabulary, width)
    targets = [
        Target("EMO / Liger's MLE, time", time_of("emo", "liger"), default, aim=aim, where=where),
        Target(
            "EMO as trained / Liger's MLE with chunk_mem_const=8, time",
            time_of("emo-cached", "liger-8"),
            1.10 if vocabulary > 100_000 else 1.00,
            where=where,
        ),
        Target(
            "EMO as trained / Liger's MLE with chunk_mem_const=8, memory",
            memory_of("emo-cached", "liger-8", beyond_gradients=False),
            1.00,
            where=where,
        ),
        Target("EMO / own MLE, time", time_of("emo", "mle"), 1.12 if large else 1.20, where=where),
        Target(
            "EMO with row cache / own MLE, time", time_of("emo-cached", "mle"), 1.06 if large else 1.12, where=where
        ),
        Target("official / EMO, time", time_of("official", "emo"), 2.2 if large else 3.5, at_least=True, where=where),
        Target("EMO / official, memory", memory_of("emo", "official", beyond_gradients=False), 1 / 8, where=where),
        Target("EMO's memory above dX + float32 dW, GiB", memory_above_single, 1.0, where=where),
    ]
    if large:
        rate = Target("useful 6NVd / measured matrix rate", useful_rate, 0.80, at_least=True, where=where)
        targets.append(rate)
    return targets


CPU = ("cpu", 50257, 768)
SMOLLM2, DEEP = ("cpu", 49152, 576), ("cpu", 8192, 512)


def _of_head(where: tuple[str, int, int]) -> list[Target]:
    return [
        Target("EMO as trained / cross-entropy, time", time_of("emo-cached", "cross-entropy"), 1.10, where=where),
        Target("EMO as trained / official, time", time_of("emo-cached", "official"), 0.45, where=where),
    ]


LINEAR_LOSS = (
    Target("EMO's FLOPs / (6N + 2U)Vd", over_limit("flops", "flops_exact"), 1.01),
    Target("largest tensor / max(C, U_c)V", over_limit("largest_elements", "largest_allowed"), 1.0),
    Target("largest tensor / NV (must stay below)", over_limit("largest_elements", "logits_elements"), 1 - 1e-9),
    Target("EMO / own MLE, time", time_of("emo", "mle"), 1.20, where=CPU),
    Target("EMO / cross-entropy, time", time_of("emo", "cross-entropy"), 1.10, where=CPU),
    Target("EMO / official, time", time_of("emo", "official"), 0.50, where=CPU),
    *_of_head(CPU),
    *_of_head(SMOLLM2),
    Target("EMO as trained / cross-entropy, time", time_of("emo-cached", "cross-entropy"), 1.10, where=DEEP),
    Target(
        "EMO / cross-entropy, memory above dX+dW",
        memory_of("emo", "cross-entropy", beyond_gradients=True),
        1 / 4,
        where=CPU,
    ),
    Target(
        "EMO / official, memory above dX+dW", memory_of("emo", "official", beyond_gradients=True), 1 / 10, where=CPU
    ),
    *_of_shape(128256, 4096, 1.00, 0.85, large=True),
    *_of_shape(50257, 768, 0.65, 0.55, large=False),
    *_of_shape(32000, 4096, 1.10, 1.00, large=True),
)


def _icl(openicl: float, lm_eval: float) -> tuple[Target, ...]:
    return (
        Target("OpenICL / ours, time", time_of("openicl", "trie"), openicl, at_least=True),
        Target("lm-eval / ours, time", time_of("lm-eval", "trie"), lm_eval, at_least=True),
        Target("tokens / (prefix + sum(label - 1)), at most", over_limit("tokens", "tokens_exact"), 1.0),
        Target(
            "tokens / (prefix + sum(label - 1)), at least", over_limit("tokens", "tokens_exact"), 1.0, at_least=True
        ),
        Target("share of padding", lambda found: found["padding"], 0.05),
    )


ICL_SCORING = {"trec": _icl(5.0, 4.0), "ag_news": _icl(4.0, 3.0), "sst2": _icl(2.3, 1.5)}


SURROGATE = (Target("memory above the two models, MiB", lambda found: found["peak_bytes"] / 2**20, 512),)

GENERATION = (
    Target("per prefix / ours, time", time_of("per-prefix", "ours"), 3.0, at_least=True),
    Target("ten-line loop / ours, time", time_of("loop", "ours"), 1.5, at_least=True),
    Target("the same with a static cache / ours, time", time_of("static", "ours"), 1.5, at_least=True),
    Target("batched by hand / ours, time", time_of("by-hand", "ours"), 1.0, at_least=True),
    # Elsewhere the share is reported, and nothing is promised.
    Target(
        "texts identical in batches of 1 and 64",
        lambda found: min(found["identical"].values()),
        1.0,
        at_least=True,
        where=("cpu", 8192, 256),
    ),
)


def whole_step_targets(own: str, baseline: str) -> tuple[Target, ...]:
    """Return the target of a whole training step, in tokens per second."""
    where = ("cuda", 32000, 2048)
    return (Target(f"{own} / {baseline}, tokens/s", time_of(baseline, own), 0.95, at_least=True, where=where),)


def verdicts(targets: tuple[Target, ...], found: Found, device: str) -> list[Found]:
    """Return a row for each target of this shape: what was found, what must be reached, and whether it was."""
    shape = found["shape"]
    place = (device, shape["vocabulary"], shape["width"])
    rows = []
    for target in targets:
        if target.where not in (None, place):
            continue
        row: Found = {"row": target.row, "must_reach": f"{'>=' if target.at_least else '<='} {target.limit:.4g}"}
        if target.aim is not None:
            row["aim"] = target.aim
        try:
            value = target.measure(found)
        except KeyError as error:
            rows.append({**row, "value": None, "verdict": f"not measured: no {error.args[0]}"})
            continue
        reached = value >= target.limit if target.at_least else value <= target.limit
        rows.append({**row, "value": round(value, 4), "verdict": "reached" if reached else "MISSED"})
    return rows


def show(rows: list[Found], share: float | None = None) -> None:
    """Print the verdicts, U/N with each where it matters."""
    for row in rows:
        value = "-" if row["value"] is None else f"{row['value']:.3f}"
        aim = f" (aim {row['aim']:.2f})" if "aim" in row else ""
        known = "" if share is None else f" U/N {share:.3f}"
        print(f"  {row['row']:48}{value:>8}  {row['must_reach'] + aim:22}{row['verdict']:14}{known}")
