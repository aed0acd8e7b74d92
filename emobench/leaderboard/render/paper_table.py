"""A paper's table with our own numbers beside it: for each of its rows the paper's values, ours, and differences.

For each row of the paper up to five rows: paper; here; its 95 % interval, where there is one; here minus paper (not
tested: a paper prints no noise); here minus the baseline row here, with its p. A figure without printed numbers has
ours alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from emobench.config import to_plain
from emobench.leaderboard.render import numbers as figures
from emobench.leaderboard.render.adjustment import adjustment
from emobench.leaderboard.render.captions import BASE
from emobench.leaderboard.render.grid import ABSENT, Cell, Column, Grid, Label
from emobench.leaderboard.schema.entry import Entry, MetricSummary
from emobench.leaderboard.schema.labels import clean
from emobench.leaderboard.stats.compare import Comparison
from emobench.leaderboard.stats.contrasts import Contrast

INTERVAL = "here, 95 %"
SEEDS_NEEDED = (
    "p is of the two models of one seed, on these test examples (McNemar's mid-p where answers are right or wrong); "
    "what holds for the objectives needs 3 seeds or more."
)
TESTED = "* beyond noise: two-sided 5 %, over seeds and test examples."


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """A paper's rows and ours, by the name of the paper's row, and ours compared with our baseline row."""

    title: str
    columns: tuple[str, ...]
    """Metrics, as "<task>/<metric>"."""
    published: Mapping[str, Entry]
    """Empty where nothing is published."""
    measured: Mapping[str, Entry]
    baseline: str
    comparison: Comparison
    remarks: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[str, ...]:
        """The paper's rows in its order, else ours."""
        return tuple(self.published or self.measured)

    def summary(self, side: Literal["published", "measured"], row: str, metric: str) -> MetricSummary | None:
        """Return a number of the paper, or of ours."""
        entry = (self.published if side == "published" else self.measured).get(row)
        return None if entry is None else entry.metrics.get(metric)

    def contrast(self, row: str, metric: str) -> Contrast | None:
        """Return our row against our baseline on a metric."""
        if row == self.baseline or row not in self.measured:
            return None
        found = self.comparison.of(self.measured[row])
        return next((contrast for contrast in found if contrast.metric == metric), None)

    def resolution(self) -> dict[str, float]:
        """Return what one test example is of each metric that is a share of them, in points."""
        found = {}
        for metric in self.columns:
            ours = [e.metrics[metric] for e in self.measured.values() if metric in e.metrics]
            sizes = {summary.n for summary in ours}
            if ours and all(map(_is_share, ours)) and len(sizes) == 1 and (size := sizes.pop()):
                found[metric] = 100 / size
        return found


def _is_share(summary: MetricSummary) -> bool:
    """Return whether each value is a whole number of examples; MAUVE and ROUGE are fractions of another kind."""
    counts = [value * (summary.n or 0) for value in summary.values]
    return summary.unit == "fraction" and all(abs(count - round(count)) < 1e-6 for count in counts)


def cells(found: SideBySide) -> list[dict[str, Any]]:
    """Return each cell as plain values: fractions as stored, differences in the metric's unit, None for what is not."""
    return [_cell(found, row, metric) for row in found.rows for metric in found.columns]


def _cell(found: SideBySide, row: str, metric: str) -> dict[str, Any]:
    paper, ours = found.summary("published", row, metric), found.summary("measured", row, metric)
    contrast = found.contrast(row, metric)
    return {
        "row": row,
        "metric": metric,
        "published": None if paper is None else paper.mean,
        "measured": None if ours is None else ours.mean,
        "interval": None if ours is None or ours.ci95 is None else list(ours.ci95),
        "n": None if ours is None else ours.n,
        "difference": None if paper is None or ours is None else ours.mean - paper.mean,
        f"against_{found.baseline}": None if contrast is None else to_plain(contrast),
    }


def grid(found: SideBySide) -> Grid:
    """Return the table, with a legend."""
    labels: list[Label] = []
    rows: list[tuple[Cell, ...]] = []
    for row in found.rows:
        for label, of in _lines(found, row):
            labels.append(Label(clean(f"{row} · {label}")))
            rows.append(tuple(of))
    entries = [*found.published.values(), *found.measured.values()]
    summaries = [next((e.metrics[m] for e in entries if m in e.metrics), None) for m in found.columns]
    heads = [
        Column(*map(clean, metric.split("/", 1)), unit="" if summary is None else figures.unit_label([summary]))
        for metric, summary in zip(found.columns, summaries, strict=True)
    ]
    return Grid(
        title=clean(found.title),
        subtitle=(),
        rows=tuple(labels),
        columns=tuple(heads),
        cells=tuple(rows),
        legend=tuple(clean(line) for line in _legend(found)),
        notes=(),
    )


def _lines(found: SideBySide, row: str) -> list[tuple[str, list[Cell]]]:
    """Return the lines of one row of the paper: (label, cells)."""
    paper = [found.summary("published", row, metric) for metric in found.columns]
    ours = [found.summary("measured", row, metric) for metric in found.columns]
    lines = [("paper", [_value(summary) for summary in paper])] if found.published else []
    if row not in found.measured:
        return lines
    lines.append(("here", [_value(summary) for summary in ours]))
    if any(summary is not None and summary.ci95 is not None for summary in ours):
        lines.append((INTERVAL, [_interval(summary) for summary in ours]))
    if found.published:
        lines.append(("here - paper", [_difference(a, b) for a, b in zip(ours, paper, strict=True)]))
    if row != found.baseline:
        against = [_against(found.contrast(row, metric), b) for metric, b in zip(found.columns, ours, strict=True)]
        lines.append((f"here - {found.baseline} here", against))
    return lines


def _value(summary: MetricSummary | None) -> Cell:
    return Cell(ABSENT) if summary is None else Cell(figures.number(summary, figures.decimals([summary])))


def _interval(summary: MetricSummary | None) -> Cell:
    """Return "[94.1, 96.5]", which `figures.number` writes behind the mean."""
    if summary is None or summary.ci95 is None:
        return Cell(ABSENT)
    text = figures.number(summary, figures.decimals([summary]), interval=True)
    return Cell(text[text.index("[") :])


def _difference(ours: MetricSummary | None, paper: MetricSummary | None) -> Cell:
    if ours is None or paper is None:
        return Cell(ABSENT)
    return Cell(f"{(ours.mean - paper.mean) * figures.scale(ours.unit):+.{figures.decimals([ours, paper])}f}")


def _against(contrast: Contrast | None, ours: MetricSummary | None) -> Cell:
    """Return a difference from the baseline with its p: over seeds, or within the one seed that there is."""
    if contrast is None or ours is None:
        return Cell(ABSENT)
    rule = figures.relative_decimals if contrast.log_scale else figures.decimals
    text = figures.difference(contrast, rule([ours]))
    p = contrast.p_holm
    if p is None and len(contrast.within) == 1:
        p = contrast.within[0].p
    return Cell(text if p is None else f"{text} p={figures.p_value(p)}", contrast.beyond_noise)


def _legend(found: SideBySide) -> list[str]:
    contrasts = [c for c in found.comparison.contrasts if c.metric in found.columns]
    untested = " Differences from the paper are not tested." if found.published else ""
    lines = [f"Percent where fractions; ± is the standard deviation over seeds.{untested}"]
    shown = [summary for row in found.rows for m in found.columns if (summary := found.summary("measured", row, m))]
    covered = dict.fromkeys(summary.ci95_of for summary in shown if summary.ci95_of)
    lines += [f"{INTERVAL}: of the mean, over {' or '.join(map(str, covered))}."] if covered else []
    lines += [TESTED, *adjustment(contrasts), BASE] if any(c.p is not None for c in contrasts) else []
    lines += [SEEDS_NEEDED] if any(c.p is None and len(c.within) == 1 for c in contrasts) else []
    sizes = [f"{metric.split('/', 1)[0]} {points:.2g}" for metric, points in found.resolution().items()]
    lines += [f"One test example is, in points: {', '.join(sizes)}."] if sizes else []
    return [*lines, *found.remarks]
