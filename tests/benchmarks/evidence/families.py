"""How often families of tests err, and what they find: one adjustment of all tests, and the families of today.

    python tests/benchmarks evidence.families [--draws 10000] [--out FILE]

A pair of entries of the suite `generation`: six corpora, eight main metrics and eight secondary ones of each. The
difference of a metric on a corpus has noise of three seeds (a normal one on each side) and of its texts; what tests see
of it are estimates, a chi-square on 2 degrees of freedom and one on 999. Metrics, and corpora, are correlated or not.

- **wrong**: of comparisons of equal entries, and of those that differ on half of the corpora, the share in which some
  test of a family that is of no difference is below 5 %. "everything" is one adjustment of all main metrics and their
  means, as it was before there were families.
- **found**: by gains in MAUVE as the EMO paper's (10, 5, 5, 3.5, 3.8 and 9.9 points), with 1 point of noise of each
  seed and of texts, the share of each gain that is called better.
- **detectable**: the difference that is found with a power of 80 % at the true noise, the median of "detectable" over
  experiments, and the share of its 95 % intervals that hold the true one; before, "detectable" was the upper 80 % limit
  of the standard error times the noncentrality of a t test.

The tests are those of `emobench.leaderboard`: critical values of `Uncertainty`, families of `emobench.tasks.families`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy import special

from emobench.leaderboard.stats.classical import ALPHA, POWER
from emobench.leaderboard.stats.random_effects import EXPONENT, Uncertainty, exponent
from emobench.tasks.families import PRIMARY, families

Array: TypeAlias = np.ndarray

OUT = Path(__file__).parents[1] / "results" / "evidence" / "families.json"
TASKS = ("wikitext2", "wikitext103", "webtext", "ptb", "writingprompts", "ag_news")
MAIN = {"mauve": True, "mauve_star": True, "ppl_test": False, "ppl_oracle": False, "rouge1": True, "rouge2": True,
        "rougeL": True, "entropy": None}  # fmt: skip
SECONDARY = ("rep_2", "rep_3", "rep_4", "diversity", "distinct_1", "distinct_2", "distinct_3", "self_bleu")
GAINS = (10.0, 5.0, 5.0, 3.5, 3.8, 9.9)
TEXTS = 1000
EVERYTHING = "everything"


@dataclass(frozen=True)
class Condition:
    """`seed_sd` is that of one side's seed, `item_sd` that of the texts' part of a mean difference, both in points."""

    seeds: int = 3
    seed_sd: float = 1.0
    item_sd: float = 1.0
    of_metrics: float = 0.0
    of_tasks: float = 0.0
    """Correlations between the metrics of a task, and of seeds between its tasks, whose texts are others."""


def levels(
    condition: Condition, effects_TM: Array, draws: int, rng: np.random.Generator, *, before: bool = False
) -> Array:
    """Return (D, T + 1, M): the number of tests that each difference survives; the last row is the mean over tasks.

    A difference survives k tests where it is beyond the critical value of ALPHA / k, so that its p times k is at most
    5 %: all that Holm's procedure asks of a p. `before` is by the critical values of that time.
    """
    tasks, metrics = effects_TM.shape
    s = condition.seeds
    shape = (draws, tasks, metrics)
    seed_DSTM = np.sqrt(2) * condition.seed_sd * _noise((draws, s, *shape[1:]), condition, condition.of_tasks, rng)
    item_DTM = condition.item_sd * _noise(shape, condition, 0.0, rng)
    estimated_DTM = condition.item_sd**2 * rng.chisquare(TEXTS - 1, shape) / (TEXTS - 1)
    seed_DSTM = np.concatenate([seed_DSTM, seed_DSTM.mean(2, keepdims=True)], axis=2)
    item_DTM = np.concatenate([item_DTM, item_DTM.mean(1, keepdims=True)], axis=1)
    estimated_DTM = np.concatenate([estimated_DTM, estimated_DTM.sum(1, keepdims=True) / tasks**2], axis=1)
    effects_TM = np.concatenate([effects_TM, effects_TM.mean(0, keepdims=True)])
    variance_DTM = seed_DSTM.var(axis=1, ddof=1) / s
    total_DTM = variance_DTM + estimated_DTM
    t_DTM = np.abs(effects_TM + seed_DSTM.mean(1) + item_DTM) / np.sqrt(total_DTM)
    found_DTM = np.zeros(t_DTM.shape, int)
    for k in range(1, (tasks + 1) * metrics + 1):
        power = EXPONENT if before else exponent(ALPHA / k, s - 1)
        found_DTM += t_DTM > critical(variance_DTM / total_DTM, s - 1, TEXTS - 1, ALPHA / k, power)
    return found_DTM


def critical(share: Array, scarce: int, plenty: int, alpha: float, power: float) -> Array:
    """Return the critical value by the scarcer part's share of the variance (`Uncertainty.critical`, of an array)."""
    highest, lowest = (-special.stdtrit(df, alpha / 2) for df in (scarce, plenty))
    return lowest + (highest - lowest) * share**power


def _noise(shape: tuple[int, ...], condition: Condition, of_tasks: float, rng: np.random.Generator) -> Array:
    """Return normal noise of variance 1, (..., T, M)."""
    *lead, tasks, metrics = shape
    own = rng.standard_normal(shape) * np.sqrt(1 - condition.of_metrics - of_tasks)
    of_metrics = rng.standard_normal((*lead, tasks, 1)) * np.sqrt(condition.of_metrics)
    return own + of_metrics + rng.standard_normal((*lead, 1, metrics)) * np.sqrt(of_tasks)


def holm(survived_DK: Array) -> Array:
    """Return which of K tests Holm's procedure rejects, (D, K), from the number of tests that each survives alone."""
    size = survived_DK.shape[1]
    order_DK = np.argsort(-survived_DK, axis=1, kind="stable")
    ordered_DK = np.take_along_axis(survived_DK, order_DK, axis=1)
    kept_DK = np.logical_and.accumulate(ordered_DK >= size - np.arange(size), axis=1)
    rejected_DK = np.zeros_like(kept_DK)
    np.put_along_axis(rejected_DK, order_DK, kept_DK, axis=1)
    return rejected_DK


def places() -> dict[str, list[tuple[int, int]]]:
    """Return the (task, metric) of each family's tests; task T is the mean over tasks."""
    names = [*MAIN, *SECONDARY]
    plain = {
        f"{task}/{name}": {
            "higher_is_better": MAIN.get(name, True),
            "flags": ["secondary"] if name in SECONDARY else [],
        }
        for task in TASKS
        for name in names
    }
    of = families(plain)
    found: dict[str, list[tuple[int, int]]] = {PRIMARY: [(len(TASKS), names.index("mauve"))]}
    for number, name in enumerate(names):
        family = of.get(f"{TASKS[0]}/{name}")
        if family is not None:
            rows = [(task, number) for task in range(len(TASKS) + 1)]
            found.setdefault(family, []).extend(place for place in rows if place not in found[PRIMARY])
    found[EVERYTHING] = [(task, number) for task in range(len(TASKS) + 1) for number in range(len(MAIN))]
    return found


def wrong(condition: Condition, draws: int, seed: int, differing: Sequence[int] = ()) -> dict[str, float]:
    """Return the share of comparisons in which a family rejects something true; `differing` tasks have real gains."""
    of, rng = places(), np.random.default_rng(seed)
    counts = dict.fromkeys(of, 0)
    effects_TM = np.zeros((len(TASKS), len(MAIN) + len(SECONDARY)))
    effects_TM[list(differing)] = 20.0
    true_TM = np.concatenate([effects_TM == 0, (effects_TM == 0).all(0, keepdims=True)])
    for part in _parts(draws):
        survived_DTM, before_DTM = _now_and_before(condition, effects_TM, part, rng)
        for family, rows in of.items():
            by = before_DTM if family == EVERYTHING else survived_DTM
            rejected_DK = holm(np.stack([by[:, t, m] for t, m in rows], axis=1))
            counts[family] += int((rejected_DK & np.array([true_TM[row] for row in rows])).any(1).sum())
    return {family: round(count / draws, 4) for family, count in counts.items()}


def found(condition: Condition, draws: int, seed: int) -> dict[str, list[float]]:
    """Return the share of each of GAINS that is found: unadjusted, by Holm over everything, and by the families."""
    of, rng = places(), np.random.default_rng(seed)
    effects_TM = np.zeros((len(TASKS), len(MAIN) + len(SECONDARY)))
    effects_TM[:, 0] = GAINS
    counts = {"unadjusted": np.zeros(6), EVERYTHING: np.zeros(6), "mauve": np.zeros(6), PRIMARY: np.zeros(1)}
    for part in _parts(draws):
        survived_DTM, before_DTM = _now_and_before(condition, effects_TM, part, rng)
        counts["unadjusted"] += (survived_DTM[:, :6, 0] >= 1).sum(0)
        for family in (EVERYTHING, "mauve", PRIMARY):
            by = before_DTM if family == EVERYTHING else survived_DTM
            rejected_DK = holm(np.stack([by[:, t, m] for t, m in of[family]], axis=1))
            shown = [place for place, (t, m) in enumerate(of[family]) if m == 0 and (t < 6 or family == PRIMARY)]
            counts[family] += rejected_DK[:, shown].sum(0)
    return {name: [round(float(count) / draws, 3) for count in count_K] for name, count_K in counts.items()}


def detectable(condition: Condition, draws: int, seed: int) -> dict[str, float]:
    """Return the detectable difference, by simulation, and what experiments estimate: before, and now."""
    rng, s = np.random.default_rng(seed), condition.seeds
    parts = (2 * condition.seed_sd**2 / s, condition.item_sd**2)
    estimates_PD = [v * rng.chisquare(df, draws) / df for v, df in zip(parts, (s - 1, TEXTS - 1), strict=True)]
    noise_D = rng.normal(0, np.sqrt(sum(parts)), draws)
    total_D = estimates_PD[0] + estimates_PD[1]
    limit_D = critical(estimates_PD[0] / total_D, s - 1, TEXTS - 1, ALPHA, EXPONENT)

    def power(effect: float) -> float:
        return float(np.mean(np.abs(effect + noise_D) / np.sqrt(total_D) > limit_D))

    low, high = 0.0, 20 * float(np.sqrt(sum(parts)))
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    pairs = list(zip(*estimates_PD, strict=True))[:4000]
    some = [Uncertainty(((a, s - 1), (b, TEXTS - 1)), "seeds and items") for a, b in pairs]
    # What was shown before was the upper limit with a confidence of 80 %.
    before, now = (np.array([u.detectable_limit(confidence) for u in some]) for confidence in (POWER, 0.5))
    limits_2D = np.transpose([u.detectable_ci95 for u in some])
    told = {"true": round(high, 3)}
    for name, values in (("before", before), ("now", now)):
        median = float(np.median(values))
        told |= {f"{name}: median": round(median, 3), f"{name}: power at the median": round(power(median), 3)}
    told["now: covered"] = round(float(np.mean((limits_2D[0] <= high) & (high <= limits_2D[1]))), 3)
    return told


def _now_and_before(
    condition: Condition, effects_TM: Array, draws: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return `levels` of the same draws by the critical values of today and of before."""
    state = rng.bit_generator.state
    now_DTM = levels(condition, effects_TM, draws, rng)
    rng.bit_generator.state = state
    return now_DTM, levels(condition, effects_TM, draws, rng, before=True)


def _parts(draws: int, most: int = 2000) -> list[int]:
    return [most] * (draws // most) + ([draws % most] if draws % most else [])


def conditions() -> dict[str, Condition]:
    return {
        "independent": Condition(),
        "metrics correlated .9": Condition(of_metrics=0.9),
        "tasks correlated .9": Condition(of_tasks=0.9),
        "both correlated .45": Condition(of_metrics=0.45, of_tasks=0.45),
        "seeds alone": Condition(item_sd=0.05),
        "seeds most": Condition(item_sd=0.3),
        "seeds most, correlated .45": Condition(item_sd=0.3, of_metrics=0.45, of_tasks=0.45),
        "texts alone": Condition(seed_sd=0.05),
        "5 seeds, metrics correlated .5": Condition(seeds=5, of_metrics=0.5),
        "10 seeds": Condition(seeds=10),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    results: dict[str, Any] = {"draws": given.draws, "tests": {name: len(rows) for name, rows in places().items()}}
    of = conditions()
    results["wrong"] = {name: wrong(one, given.draws, n) for n, (name, one) in enumerate(of.items())}
    results["wrong, half of the tasks differ"] = {
        name: wrong(one, given.draws, 100 + n, (0, 2, 4)) for n, (name, one) in enumerate(of.items())
    }
    results["found"] = {f"{s} seeds": found(Condition(seeds=s), given.draws, 200 + s) for s in (3, 5, 10)}
    results["detectable"] = {
        f"{s} seeds, noise of seeds {a}, of texts {b}": detectable(Condition(s, a, b), given.draws, 300 + s)
        for s in (3, 5, 10)
        for a, b in ((1.0, 0.05), (1.0, 1.0), (0.3, 1.0))
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    _print(results)


def _print(results: Mapping[str, Any]) -> None:
    for title in ("wrong", "wrong, half of the tasks differ"):
        print(f"\n{title} (nominal {ALPHA})")
        for name, shares in results[title].items():
            worst = max(share for family, share in shares.items() if family != EVERYTHING)
            print(f"  {name:32} worst family {worst:.3f}   " + "  ".join(f"{k} {v:.3f}" for k, v in shares.items()))
    for title in ("found", "detectable"):
        print(f"\n{title}")
        for name, rows in results[title].items():
            for key, value in rows.items():
                print(f"  {name:44} {key:24} {value}")


if __name__ == "__main__":
    main()
