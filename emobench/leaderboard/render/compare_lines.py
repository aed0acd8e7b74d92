"""A comparison as lines of text: what each contrast shows, and the legend that explains it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from emobench.leaderboard.render import numbers as figures
from emobench.leaderboard.render.adjustment import adjustment
from emobench.leaderboard.render.compare_noise import EXPLAINED, noise_tables, unrepeated
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.schema.labels import MEAN, clean, labels
from emobench.leaderboard.stats.compare import Comparison, place
from emobench.leaderboard.stats.contrasts import Contrast
from emobench.leaderboard.stats.thresholds import ALPHA
from emobench.leaderboard.stats.within_seed import WithinSeed
from emobench.tasks.families import PRIMARY

ABSENT = "–"

SMALLEST_SHOWN_P = 0.001
UNCOVERED = "; other test texts and sampling runs are not covered"
"""Of a test over seeds alone: entries share the test texts, and the random numbers that texts are sampled with."""


@dataclass(frozen=True)
class Line:
    """One contrast as text."""

    metric: str
    baseline: str
    candidate: str
    difference: str
    interval: str
    p: str
    detectable: str
    verdict: str

    def cells(self) -> list[str]:
        return list(asdict(self).values())


@dataclass(frozen=True)
class Sheet:
    """One candidate beside the baseline. `within` has the tests within a seed, where seeds are too few."""

    heading: str
    header: tuple[str, ...]
    lines: tuple[Line, ...]
    contrasts: tuple[Contrast, ...]
    within: tuple[str, ...]

    def grid(self) -> tuple[list[str], list[list[str]]]:
        """Return header and rows, without the columns that have nothing to say."""
        rows = [line.cells() for line in self.lines]
        kept = [i for i in range(len(self.header)) if not rows or any(row[i] != ABSENT for row in rows)]
        return [self.header[i] for i in kept], [[row[i] for i in kept] for row in rows]


def sheets(comparisons: Sequence[Comparison]) -> tuple[list[Sheet], list[str]]:
    """Return a sheet for each candidate, and the legend of all of them, whose first lines explain the marks [1], ..."""
    notes = _Notes()
    pairs = [(comparison, candidate) for comparison in comparisons for candidate in comparison.candidates]
    found = [_sheet(comparison, candidate, notes) for comparison, candidate in pairs if comparison.of(candidate)]
    legend = [text for comparison, candidate in pairs for text in _legend(comparison, candidate)]
    legend += [*EXPLAINED, *unrepeated(comparisons)] if noise_tables(comparisons) else []
    return found, [clean(text) for text in dict.fromkeys([*notes.texts(), *legend])]


def _sheet(comparison: Comparison, candidate: Entry, notes: _Notes) -> Sheet:
    baseline, contrasts = comparison.baseline, comparison.of(candidate)
    # One task that is called as its suite is named in the heading.
    one_task = {metric.split("/", 1)[0] for metric in (*baseline.metrics, *candidate.metrics)} == {baseline.suite.name}
    theirs, ours = labels([baseline, candidate], older=())
    return Sheet(
        heading=clean(_heading(baseline, candidate)),
        header=("metric", theirs, ours, "difference", "95 % interval", "p", "detectable", "verdict"),
        lines=tuple(_line(contrast, one_task, notes) for contrast in contrasts),
        contrasts=tuple(contrasts),
        within=tuple(clean(line) for line in _within_lines(contrasts, one_task)),
    )


def _heading(baseline: Entry, candidate: Entry) -> str:
    ours, theirs = (f"{e.objective.label} [{e.id[:6]}]" for e in (candidate, baseline))
    places = [place(entry) for entry in (candidate, baseline)]
    if places[0] == places[1]:
        return f"{ours} against {theirs} · {places[0]}"
    return f"{ours} · {places[0]} against {theirs} · {places[1]}"


class _Notes:
    def __init__(self) -> None:
        self._texts: list[str] = []

    def mark(self, text: str) -> str:
        if text not in self._texts:
            self._texts.append(text)
        return f" [{self._texts.index(text) + 1}]"

    def texts(self) -> list[str]:
        return [f"[{number}] {text}." for number, text in enumerate(self._texts, 1)]


def _line(contrast: Contrast, one_task: bool, notes: _Notes) -> Line:
    task, name = contrast.metric.split("/", 1)
    shown = (
        f"mean of {len(contrast.tasks)} tasks, {name}" if task == MEAN and len(contrast.tasks) > 1 else contrast.metric
    )
    arrow = {True: " ↑", False: " ↓", None: ""}[contrast.higher_is_better]
    unit = {"fraction": " (%)", "perplexity": ""}.get(contrast.unit, f" ({contrast.unit})")
    why = notes.mark(contrast.why) if contrast.why else ""
    decimals = _decimals(contrast)
    low_high = [_effect(contrast, end, decimals) for end in contrast.ci95 or ()]
    return Line(
        metric=clean(f"{name if one_task else shown}{unit}{arrow}")
        + (", primary" if contrast.family == PRIMARY else ""),
        baseline=_value(contrast, contrast.baseline_mean),
        candidate=_value(contrast, contrast.candidate_mean),
        difference=_effect(contrast, contrast.effect, decimals) + (" %" if contrast.log_scale else ""),
        interval=f"[{', '.join(low_high)}]" if low_high else ABSENT,
        p=_p(contrast.p_holm),
        detectable=_detectable(contrast, decimals),
        verdict=(contrast.word or ABSENT) + why,
    )


def _detectable(contrast: Contrast, decimals: int) -> str:
    if contrast.detectable is None:
        return ABSENT
    return _effect(contrast, contrast.detectable, decimals).lstrip("+") + (" %" if contrast.log_scale else "")


def _value(contrast: Contrast, value: float) -> str:
    scale, decimals = (100, 1) if contrast.unit == "fraction" else (1, 3 if contrast.unit == "nats" else 2)
    return _fixed(value * scale, decimals)


def _effect(contrast: Contrast, effect: float, decimals: int) -> str:
    return _fixed(figures.effect(contrast, effect), decimals, "+")


def _fixed(value: float, decimals: int, sign: str = "") -> str:
    """Return a number with fixed decimals, or with 3 digits where these would hide it or fill the line."""
    if not value:
        sign = ""
    hidden = value and abs(value) < 0.5 * 10**-decimals
    return f"{value:{sign}.3g}" if hidden or abs(value) >= 1e6 else f"{value:{sign}.{decimals}f}"


def _decimals(contrast: Contrast) -> int:
    """Return as many decimals as show two digits of the interval's half width, 1 to 6."""
    if contrast.ci95 is None:
        return 1 if contrast.unit == "fraction" or contrast.log_scale else 3
    low, high = (figures.effect(contrast, end) for end in contrast.ci95)
    half = (high - low) / 2
    return min(6, max(1, 1 - math.floor(math.log10(half)))) if 0 < half < math.inf else 1


def _p(p: float | None) -> str:
    if p is None:
        return ABSENT
    return f"<{SMALLEST_SHOWN_P}".replace("0.", ".") if p < SMALLEST_SHOWN_P else f"{p:.3f}".lstrip("0")


def _legend(comparison: Comparison, candidate: Entry) -> Iterator[str]:
    """Yield the sentences of one sheet; those of several sheets are shown once."""
    contrasts, apart = comparison.of(candidate), comparison.apart.get(candidate.id)
    name = candidate.objective.label
    if apart:
        more = f"; and {len(apart) - 6} more" if len(apart) > 6 else ""
        yield f"{name} is not comparable, so that there is no verdict: {'; '.join(apart[:6])}{more}."
    if not contrasts:
        yield f"{name} and the baseline have no metric in common."
    if "published" in (comparison.baseline.kind, candidate.kind):
        yield "Published rows carry no per-example data and no seeds' values: no noise can be estimated from them."
    tested = [contrast for contrast in contrasts if contrast.p is not None]
    if tested:
        yield (
            "p: how often a difference as large would be seen if both were equal; verdicts are at "
            f"{100 * ALPHA:.0f} %. Intervals are for each metric alone. tied: no difference was shown beyond noise, "
            "and the interval holds what is possible."
        )
        yield from adjustment(tested)
        yield _base(comparison)
        yield (
            f"detectable: a true difference that this many {comparison.replicates} and examples show 4 times in 5 in a "
            f"single test. The noise is estimated, and from few {comparison.replicates} roughly: the value is large "
            "enough in 4 of 5 comparisons."
        )
    for test in dict.fromkeys(c.test for c in tested):
        seeds = sorted({c.seeds for c in tested if c.test == test and c.seeds})
        used = [c.metric.split("/", 1)[1] for c in tested if c.test == test]
        about = "" if any(c.items for c in tested if c.test == test) else UNCOVERED
        many = f"{' and '.join(map(str, seeds))} {comparison.replicates}"
        yield f"By {test} ({many}{about}): {', '.join(dict.fromkeys(used))}."
    if any(contrast.log_scale for contrast in contrasts):
        yield "Perplexities are compared by the ratio of geometric means: differences are in percent of the baseline."
    if any(contrast.unit == "fraction" for contrast in contrasts):
        yield "Differences of percentages are in percentage points."
    missing = comparison.missing.get(candidate.id)
    if missing:
        more = f" and {len(missing) - 6} more" if len(missing) > 6 else ""
        yield f"{name} or the baseline lacks {', '.join(missing[:6])}{more}."
    if comparison.left_out:
        left = ", ".join(f"{e.objective.label} of {e.model.name} [{e.id[:6]}]" for e in comparison.left_out[:6])
        more = f" and {len(comparison.left_out) - 6} more" if len(comparison.left_out) > 6 else ""
        yield f"Left out, comparable with no baseline that was named: {left}{more}."


def _base(comparison: Comparison) -> str:
    """Say which pre-trained models the verdicts are of."""
    if comparison.replicates == "bases":
        return "Bases are the unit: a value is the mean over the seeds of one pre-trained model, beside its rival's."
    return (
        "All is of one pre-trained model: how much another one would change is in no interval and no p (--across-bases "
        "compares over several)."
    )


def _within_lines(contrasts: Sequence[Contrast], one_task: bool) -> Iterator[str]:
    if any(contrast.within for contrast in contrasts):
        yield (
            "Within a seed the test examples alone are a sample: these tests compare two trained models, not two "
            "objectives. Their p are not adjusted."
        )
    alone = [contrast for contrast in contrasts if not contrast.metric.startswith(f"{MEAN}/")]
    untested = [c.metric.split("/", 1)[1] for c in alone if not c.within and c.p is None and c.verdict != "tied"]
    if untested and any(contrast.within for contrast in contrasts):
        yield f"Without per-example results, so that one seed says nothing of them: {', '.join(untested)}."
    for contrast in contrasts:
        for found in contrast.within:
            name = contrast.metric.split("/", 1)[1] if one_task else contrast.metric
            yield f"  {name}, {_within(contrast, found)}"


def _within(contrast: Contrast, found: WithinSeed) -> str:
    decimals = _decimals(contrast) + 1
    interval = ", ".join(_effect(contrast, end, decimals) for end in found.ci95 or ()) or ABSENT
    seed = "no seed" if found.seed is None else f"seed {found.seed}"
    said = f"{seed}: {_effect(contrast, found.effect, decimals)}{' %' if contrast.log_scale else ''}"
    return f"{said} [{interval}], p {_p(found.p)} ({found.test}, {found.items} examples)"
