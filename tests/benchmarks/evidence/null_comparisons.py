"""How often equal objectives are called different: by `emobench compare`, and by simpler tests.

    python tests/benchmarks evidence.null_comparisons    # writes results/evidence/null_comparisons.json
    python tests/benchmarks evidence.null_comparisons --draws 200 --out /dev/stdout

Legend: S seeds, I examples, U sampling units, B draws. Two rows that are equal in truth are drawn many times and
compared at a nominal 5 %: by `compare_rows` with sampling units (`rejected`, and `undetermined` with a reason), by the
same model with each example taken for a unit of its own (`before`), and by a t test over the seeds' scores, which takes
them for independent although they share their examples (`t_test`). 3 seeds of each side unless a name says otherwise.

Differences of two result files, which have no seeds, are tested as `emobench compare` does, and by scipy's paired t
test (`t_test`). Scores of a corpus are of texts that two objectives wrote to the same prompts, each with an inclination
of its own for every prompt; their values are the jackknife's.

`power` has rows with a true difference, and the share that is found: `right` by `compare_rows` or as result files.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import numpy as np
from evidence.null_corpora import corpora
from scipy import stats

from emobench.data.sampling_units import RUNS
from emobench.leaderboard.stats.difference import compare_rows
from emobench.leaderboard.stats.random_effects import Uncertainty, crossed, over_items, unpaired
from emobench.leaderboard.stats.series import Series
from emobench.tasks.scores import Examples, by_unit

RESULTS = Path(__file__).parents[1] / "results" / "evidence"
REAL = RESULTS / "wikitext2_blocks.json"
Array = np.ndarray
Draw = Callable[[np.random.Generator], "Null"]
DrawOfTasks = Callable[[np.random.Generator], "list[Null]"]


@dataclass(frozen=True)
class Null:
    """One draw: the values of both sides, (S, I), with the examples' weights and units, (I,); None: all alike."""

    a_SI: Array
    b_SI: Array
    weight_I: Array | None = None
    unit_I: Array | None = None
    paired: bool = True

    @property
    def weights(self) -> Array:
        return np.ones(self.a_SI.shape[1]) if self.weight_I is None else self.weight_I


def null(rng: np.random.Generator, item_I: Array, *, seeds: int = 3, seed_sd: float = 0.0, noise: float = 0.5) -> Null:
    """Return a draw whose paired differences are those of items, of seeds, and a residual."""
    residual_SI = rng.normal(0, noise, (seeds, len(item_I)))
    return Null(item_I + rng.normal(0, seed_sd, (seeds, 1)) + residual_SI, np.zeros((seeds, len(item_I))))


def normal(items: int, item_sd: float, seed_sd: float, seeds: int = 3) -> Draw:
    return lambda rng: null(rng, rng.normal(0, item_sd, items), seeds=seeds, seed_sd=seed_sd, noise=1.0)


def heavy(items: int) -> Draw:
    """Student's t with 3 degrees of freedom."""
    return lambda rng: null(rng, rng.standard_t(3, items), seed_sd=0.05)


def one_sided(items: int, sigma: float, noise: float = 0.3) -> Draw:
    """Lognormal differences of items, less their true mean, in its standard deviation."""
    mean, variance = math.exp(sigma**2 / 2), (math.exp(sigma**2) - 1) * math.exp(sigma**2)
    return lambda rng: null(rng, (rng.lognormal(0, sigma, items) - mean) / math.sqrt(variance), noise=noise)


def one_way(items: int, share: float, noise: float = 0.05) -> Draw:
    """A few items that change by exponential amounts, less the true mean, in the standard deviation."""

    def draw(rng: np.random.Generator) -> Null:
        change_I = (rng.random(items) < share) * rng.exponential(1, items) - share
        return null(rng, change_I / math.sqrt(2 * share - share**2), noise=noise)

    return draw


def of_files(draw: Draw) -> Draw:
    """The first seed of a draw alone, as two result files have it."""

    def first(rng: np.random.Generator) -> Null:
        made = draw(rng)
        return replace(made, a_SI=made.a_SI[:1], b_SI=made.b_SI[:1])

    return first


def mean_of(*draws: Draw) -> DrawOfTasks:
    """Several tasks, which are compared by their mean."""
    return lambda rng: [draw(rng) for draw in draws]


def turned(draw: Draw) -> Draw:
    """The same with the long side to the left."""

    def draw_turned(rng: np.random.Generator) -> Null:
        made = draw(rng)
        return replace(made, a_SI=-made.a_SI, b_SI=-made.b_SI)

    return draw_turned


def other_seeds(a_seeds: int, b_seeds: int, a_sd: float, b_sd: float) -> Draw:
    def draw(rng: np.random.Generator) -> Null:
        common_I = rng.normal(0, 1, 100)
        sides = [
            common_I + rng.normal(0, sd, (seeds, 1)) + rng.normal(0, 0.3, 100) + rng.normal(0, 0.5, (seeds, 100))
            for seeds, sd in ((a_seeds, a_sd), (b_seeds, b_sd))
        ]
        return Null(sides[0], sides[1], paired=False)

    return draw


def unequal_seeds(a_sd: float, b_sd: float) -> Draw:
    def draw(rng: np.random.Generator) -> Null:
        sides = [rng.normal(0, sd, (3, 1)) + rng.normal(0, 0.5, (3, 100)) for sd in (a_sd, b_sd)]
        return Null(sides[0] + rng.normal(0, 0.3, 100), sides[1])

    return draw


def binary(items: int) -> Draw:
    """Right or wrong: a latent score, cut at 0."""

    def draw(rng: np.random.Generator) -> Null:
        difficulty_I = rng.normal(1.2, 2, items)
        sides = [
            difficulty_I + rng.normal(0, 1, items) + rng.normal(0, 0.2, (3, 1)) + rng.normal(0, 0.5, (3, items)) > 0
            for _ in range(2)
        ]
        return Null(sides[0].astype(float), sides[1].astype(float))

    return draw


def clusters(size: int, correlation: float, seed_sd: float = 0.0, items: int = 300) -> Draw:
    def draw(rng: np.random.Generator) -> Null:
        unit_I = np.arange(items) // size
        common_I = rng.normal(0, math.sqrt(correlation), items // size)[unit_I]
        item_I = common_I + rng.normal(0, math.sqrt(1 - correlation), items)
        return replace(null(rng, item_I, seed_sd=seed_sd, noise=0.3), unit_I=unit_I)

    return draw


def blocks(count: int) -> Draw:
    """Blocks of a text without borders, cut into runs; correlations of .3 at lag 1 and .15 at lag 10, as measured."""

    def draw(rng: np.random.Generator) -> Null:
        slow, fast, own = (
            part * math.sqrt(share) for part, share in zip(_parts(rng, count), (0.2, 0.15, 0.65), strict=True)
        )
        return replace(null(rng, slow + fast + own, noise=0.1), unit_I=np.arange(count) * RUNS // count)

    return draw


def _parts(rng: np.random.Generator, count: int) -> Iterator[Array]:
    for memory in (0.97, 0.6, 0.0):
        drawn_I = rng.normal(0, math.sqrt(1 - memory**2), count)
        drawn_I[0] = rng.normal()
        for i in range(1, count):
            drawn_I[i] += memory * drawn_I[i - 1]
        yield drawn_I


def unequal_texts(texts: int, sigma: float) -> Draw:
    """Token-weighted means of texts whose lengths are lognormal."""

    def draw(rng: np.random.Generator) -> Null:
        return replace(null(rng, rng.normal(0, 1, texts)), weight_I=rng.lognormal(5, sigma, texts).round() + 1)

    return draw


def real_blocks(seed_sd: float, *, documents: bool) -> Draw:
    """Articles of WikiText-2, drawn with replacement: the differences of two models in nats, less their mean.

    In blocks of 256 tokens. With `documents` a unit is an article, else one of 10 runs, as where none is known.
    """
    known = json.loads(REAL.read_text())
    document_I, tokens_I, nats_I = (np.array(known[name]) for name in ("document", "tokens", "nats"))
    kept = tokens_I > 0
    document_I, tokens_I, nats_I = document_I[kept], tokens_I[kept], nats_I[kept]
    value_I = nats_I / tokens_I - nats_I.sum() / tokens_I.sum()
    places = [np.flatnonzero(document_I == name) for name in np.unique(document_I)]

    def draw(rng: np.random.Generator) -> Null:
        drawn = [places[i] for i in rng.integers(0, len(places), 62)]
        at, weight_I = np.concatenate(drawn), tokens_I[np.concatenate(drawn)]
        before_I = np.cumsum(weight_I) - weight_I / 2
        run_I = (before_I * RUNS // weight_I.sum()).astype(int)
        unit_I = np.repeat(np.arange(62), [len(rows) for rows in drawn]) if documents else run_I
        made = null(rng, value_I[at], seed_sd=seed_sd, noise=0.2 * float(value_I.std()))
        return replace(made, weight_I=weight_I.astype(float), unit_I=unit_I)

    return draw


def normals() -> Iterator[tuple[str, Draw]]:
    """Yield noise of items, of seeds and of both, by name: their standard deviations beside a residual of 1."""
    for noise, (item_sd, seed_sd) in {"items": (0.5, 0.0), "seeds": (0.0, 0.3), "both": (0.5, 0.1)}.items():
        for seeds in (3, 5):
            for items in (20, 100, 400):
                yield f"normal {noise}, {seeds} seeds, {items} items", normal(items, item_sd, seed_sd, seeds)


def conditions() -> dict[str, Draw]:
    """Return what is drawn, by name."""
    found = {
        **dict(normals()),
        "heavy tails, 100 items": heavy(100),
        "right or wrong, 60 items": binary(60),
        "seed noise .05 and .3": unequal_seeds(0.05, 0.3),
        "other seeds, noise .05 and .3": other_seeds(3, 3, 0.05, 0.3),
        "3 and 6 other seeds": other_seeds(3, 6, 0.2, 0.2),
        "3 and 6 other seeds, noise .3 and .05": other_seeds(3, 6, 0.3, 0.05),
    }
    for size in (5, 10):
        for correlation in (0.3, 0.8):
            found[f"units of {size}, correlation {correlation}"] = clusters(size, correlation)
    found["units of 10, correlation 0.8, seeds"] = clusters(10, 0.8, seed_sd=0.1)
    for texts in (20, 60, 400):
        found[f"lognormal(1.5) lengths, {texts} texts"] = unequal_texts(texts, 1.5)
    for items in (20, 60, 300):
        found[f"one-sided lognormal(1.5), {items} items"] = one_sided(items, 1.5)
    found["one-sided lognormal(1), 60 items"] = one_sided(60, 1.0)
    found["dependent blocks, 1200"] = blocks(1200)
    if REAL.is_file():
        for sd in (0.0003, 0.001, 0.003):
            found[f"WikiText-2 by article, seeds {sd}"] = real_blocks(sd, documents=True)
            found[f"WikiText-2 in 10 runs, seeds {sd}"] = real_blocks(sd, documents=False)
    for items in (10, 20, 60, 200, 300):
        found[f"one-sided lognormal(1.5), {items} items, small residuals"] = one_sided(items, 1.5, 0.05)
    for count, share in ((60, 0.03), (200, 0.01)):
        found[f"{100 * share:.0f} % of {count} items change one way, small residuals"] = one_way(count, share)
    for items in (10, 60, 200, 300):
        found[f"result files, lognormal(1.5), {items} items"] = of_files(one_sided(items, 1.5, 0.0))
    found["result files, 3 % of 60 items change one way"] = of_files(one_way(60, 0.03, 0.0))
    for items in (10, 60):
        found[f"result files, symmetric, {items} items"] = of_files(normal(items, 1.0, 0.0))
    return found


def means() -> dict[str, DrawOfTasks]:
    """Return means over tasks, by name."""
    few, many, more = (one_sided(items, 1.5, 0.05) for items in (10, 60, 200))
    return {
        "mean of tasks, one-sided to opposite sides, 10 and 60 items": mean_of(few, turned(many)),
        "mean of tasks, one-sided to the same side, 10 and 60 items": mean_of(few, many),
        "mean of tasks, one-sided to opposite sides, 60 and 60 items": mean_of(many, turned(many)),
        "mean of tasks, one-sided and symmetric, 10 and 200 items": mean_of(few, normal(200, 1.0, 0.0)),
        "mean of tasks, one-sided to opposite sides, 10 and 200 items": mean_of(few, turned(more)),
    }


def differences() -> dict[str, tuple[Draw | DrawOfTasks, float]]:
    """Return what is drawn where there is a difference, and that difference."""
    found: dict[str, tuple[Draw | DrawOfTasks, float]] = {}
    for items in (20, 100, 400):
        error = math.sqrt(0.1**2 / 3 + 0.5**2 / items + 1 / (3 * items))
        found[f"normal both, 3 seeds, {items} items"] = normal(items, 0.5, 0.1), 3.2 * error
    found["heavy tails, 100 items"] = heavy(100), 3.2 * math.sqrt(3 / 100 + 0.05**2 / 3)
    for items in (60, 300):
        for side, sign in (("towards", 1), ("away from", -1)):
            name = f"one-sided lognormal(1), {items} items, {side} the long side"
            found[name] = one_sided(items, 1.0), sign * 3.2 / math.sqrt(items)
    for items in (10, 30, 200):
        found[f"result files, symmetric, {items} items"] = of_files(normal(items, 1.0, 0.0)), 4.5 / math.sqrt(items)
    for items in (10, 30):
        task = normal(items, 1.0, 0.0)
        found[f"mean of 2 tasks, symmetric, {items} items"] = mean_of(task, task), 3.2 * math.sqrt(4 / 3 / items / 2)
    pair = one_sided(300, 1.5, 0.05), turned(one_sided(300, 1.5, 0.05))
    found["mean of tasks, one-sided to opposite sides, 300 items"] = mean_of(*pair), 3.2 / math.sqrt(600)
    return found


def series(values_SI: Array, made: Null, first: int = 0) -> Series:
    """Return one side as `emobench compare` has it: by sampling unit."""
    ids = [str(i) for i in range(values_SI.shape[1])]
    units = {} if made.unit_I is None else {i: f"unit {unit}" for i, unit in zip(ids, made.unit_I, strict=True)}
    weights = made.weights.tolist()
    examples: dict[int | None, Examples] = {
        first + seed: by_unit(dict(zip(ids, zip(values_I, weights, strict=True), strict=True)), units)
        for seed, values_I in enumerate(values_SI.tolist())
    }
    scores = values_SI @ made.weights / made.weights.sum()
    return Series(
        values={first + seed: float(score) for seed, score in enumerate(scores)},
        examples=examples,
        log_scale=False,
        of_examples=True,
    )


def compared(a: Sequence[Series], b: Sequence[Series]) -> dict[str, bool]:
    found = compare_rows(a, b)
    if isinstance(found, str):
        return {"rejected": False, "undetermined": True}
    return {"rejected": found.p < 0.05, "undetermined": False}


def judged(*tasks: Null) -> dict[str, bool]:
    """Return what each test says of a draw."""
    made = tasks[0]
    if len(made.a_SI) == 1:
        return judged_files(made.a_SI[0] - made.b_SI[0])
    a = [series(one.a_SI, one) for one in tasks]
    b = [series(one.b_SI, one, 0 if one.paired else 100) for one in tasks]
    return {"before": rejected_before(*tasks), **compared(a, b), "t_test": rejected_by_t(*tasks)}


def judged_files(delta_I: Array) -> dict[str, bool]:
    noise, effect = over_items(delta_I), float(delta_I.mean())
    with warnings.catch_warnings(category=RuntimeWarning, action="ignore"):  # of differences that are equal
        plain = bool(stats.ttest_1samp(delta_I, 0).pvalue < 0.05)
    if noise is None or noise.hidden(effect):
        return {"rejected": False, "undetermined": True, "t_test": plain}
    return {"rejected": noise.p_value(effect) < 0.05, "undetermined": False, "t_test": plain}


def rejected_before(*tasks: Null) -> bool:
    """Return what the crossed model says of examples as units of their own, of equal worth, without their skewness."""
    pairs = [(_linearised(one.a_SI, one.weights), _linearised(one.b_SI, one.weights)) for one in tasks]
    found = crossed(*(a_SI - b_SI for a_SI, b_SI in pairs)) if tasks[0].paired else unpaired(*pairs)
    plain = None if found is None else Uncertainty(found.parts, found.of)
    effect = np.mean([a_SI.mean() - b_SI.mean() for a_SI, b_SI in pairs])
    return plain is not None and bool(abs(effect) > plain.critical() * plain.standard_error)


def rejected_by_t(*tasks: Null) -> bool:
    """Return what a t test over the seeds' scores says."""
    a_S = np.mean([one.a_SI @ one.weights / one.weights.sum() for one in tasks], axis=0)
    b_S = np.mean([one.b_SI @ one.weights / one.weights.sum() for one in tasks], axis=0)
    with warnings.catch_warnings(category=RuntimeWarning, action="ignore"):  # of scores that are all but equal
        found = stats.ttest_1samp(a_S - b_S, 0) if tasks[0].paired else stats.ttest_ind(a_S, b_S, equal_var=False)
    return bool(found.pvalue < 0.05)


def _linearised(values_SI: Array, weight_I: Array) -> Array:
    mean_S1 = (values_SI @ weight_I / weight_I.sum())[:, None]
    return mean_S1 + weight_I / weight_I.mean() * (values_SI - mean_S1)


def nulls() -> dict[str, Callable[[np.random.Generator], Null | list[Null] | dict[str, bool]]]:
    """Return all that is drawn without a difference, by name; scores of a corpus are compared as they are drawn."""
    return {**conditions(), **corpora(), **means()}


def _tasks(made: Null | list[Null]) -> list[Null]:
    return [made] if isinstance(made, Null) else made


def rates(draws: int, names: Sequence[str] = ()) -> dict[str, dict[str, float]]:
    """Return the shares of null comparisons that are called different, by each test."""
    found = {}
    for place, (name, draw) in enumerate(nulls().items()):
        if names and name not in names:
            continue
        rng = np.random.default_rng([90, place])
        counts: Counter[str] = Counter()
        for _ in range(draws):
            made = draw(rng)
            counts.update(made if isinstance(made, dict) else judged(*_tasks(made)))
        found[name] = {test: count / draws for test, count in counts.items()}
    return found


def powers(draws: int) -> dict[str, dict[str, float]]:
    """Return the shares of true differences that are found, in their direction, and of those left undetermined."""
    found = {}
    for place, (name, (draw, effect)) in enumerate(differences().items()):
        rng = np.random.default_rng([91, place])
        counts: Counter[str] = Counter()
        for _ in range(draws):
            tasks = [replace(made, a_SI=made.a_SI + effect) for made in _tasks(draw(rng))]
            tests = judged(*tasks)
            side = float(np.mean([made.a_SI.mean() - made.b_SI.mean() for made in tasks]))
            counts["right"] += tests["rejected"] and side * effect > 0
            counts["undetermined"] += tests["undetermined"]
        found[name] = {test: count / draws for test, count in counts.items()}
    return found


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="How often equal objectives are called different.")
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=RESULTS / "null_comparisons.json")
    given = parser.parse_args(argv)
    found = {
        "date": date.today().isoformat(),
        "command": " ".join(["python tests/benchmarks evidence.null_comparisons", *argv]),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "draws": given.draws,
        "nominal": 0.05,
        "conditions": rates(given.draws),
        "power": powers(given.draws),
    }
    given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
