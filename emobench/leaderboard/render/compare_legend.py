"""The text below a comparison: what its columns and verdicts mean, and the tests within each seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from emobench.leaderboard.render.captions import adjustment
from emobench.leaderboard.render.numbers import contrast_effect, contrast_interval, effect_decimals, listed, p_value
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.stats.compare import Comparison
from emobench.leaderboard.stats.contrasts import Contrast
from emobench.leaderboard.stats.thresholds import ALPHA, POWER

UNCOVERED = "; other test texts and sampling runs are not covered"
"""Of a test over seeds alone: entries share the test texts, and the random numbers that texts are sampled with."""
BASES = "Bases are the unit: a value is the mean over the seeds of one pre-trained model, paired with its rival's."
ONE_BASE = (
    "All values are of one pre-trained model: no interval and no p covers the effect of another (--across-bases "
    "compares over several)."
)


def legend(comparison: Comparison, candidate: Entry) -> Iterator[str]:
    """Yield the sentences that explain the table of one candidate."""
    contrasts, apart = comparison.of(candidate), comparison.apart.get(candidate.id)
    name = candidate.objective.label
    if apart:
        yield f"{name} is not comparable, so there is no verdict: {listed(apart, separator='; ')}."
    if not contrasts:
        yield f"{name} and the baseline have no metric in common."
    if "published" in (comparison.baseline.kind, candidate.kind):
        yield "Published rows have no per-example results and no values by seed: their noise cannot be estimated."
    tested = [contrast for contrast in contrasts if contrast.p is not None]
    if tested:
        yield (
            "p: the probability of a difference at least as large if both were equal; verdicts are at "
            f"{100 * ALPHA:.0f} %. tied: no difference is shown beyond the noise; the interval holds the differences "
            "that remain possible."
        )
        yield from adjustment(tested)
        yield BASES if comparison.replicates == "bases" else ONE_BASE
        yield (
            f"detectable: the true difference that a single test with this many {comparison.replicates} and examples "
            f"finds with {100 * POWER:.0f} % power; estimated, and large enough in 4 of 5 comparisons."
        )
    for test in dict.fromkeys(c.test for c in tested):
        own = [c for c in tested if c.test == test]
        seeds = " and ".join(map(str, sorted({c.seeds for c in own if c.seeds})))
        about = "" if any(c.items for c in own) else UNCOVERED
        metrics = ", ".join(dict.fromkeys(c.metric.split("/", 1)[1] for c in own))
        yield f"By {test} ({seeds} {comparison.replicates}{about}): {metrics}."
    if any(contrast.log_scale for contrast in contrasts):
        yield "Perplexities are compared by the ratio of geometric means: differences are in percent of the baseline."
    if any(contrast.unit == "fraction" for contrast in contrasts):
        yield "Differences of percentages are in percentage points."
    if missing := comparison.missing.get(candidate.id):
        yield f"{name} or the baseline lacks {listed(missing)}."
    if comparison.left_out:
        left = [f"{e.objective.label} of {e.model.name} [{e.id[:6]}]" for e in comparison.left_out]
        yield f"Left out, as they are comparable with no baseline that was named: {listed(left)}."


def within_lines(contrasts: Sequence[Contrast], one_task: bool) -> Iterator[str]:
    """Yield the tests within each seed, and what they cover."""
    if any(contrast.within for contrast in contrasts):
        yield (
            "Within a seed only the test examples are a sample: these tests compare two trained models, not two "
            "objectives. Their p are not adjusted."
        )
    for contrast in contrasts:
        places = effect_decimals(contrast) + 1
        for test in contrast.within:
            name = contrast.metric.split("/", 1)[1] if one_task else contrast.metric
            seed = "no seed" if test.seed is None else f"seed {test.seed}"
            shown = f"{contrast_effect(contrast, test.effect, places)} {contrast_interval(contrast, test.ci95, places)}"
            yield f"  {name}, {seed}: {shown}, p {p_value(test.p)} ({test.test}, {test.items} examples)"
