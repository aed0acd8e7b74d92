"""A paper's table with our own numbers beside it: for each of its rows the paper's values, ours, and differences.

For each row of the paper up to five rows: paper; here; its 95 % interval, where there is one; here minus paper (not
tested: a paper prints no noise); here minus the baseline row here, with its p. A figure without printed numbers has
ours alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.labels import clean
from emobench.leaderboard.stats.compare import Comparison, Contrast
from emobench.report.render import numbers as figures
from emobench.report.render.captions import BASE, adjustment
from emobench.report.render.grid import ABSENT, Cell, Column, Grid
from emobench.report.render.leaderboard_table import difference_cell

INTERVAL = "here, 95 %"
SEEDS_NEEDED = (
    "p is of the two models of one seed, on these test examples (McNemar's mid-p where answers are right or wrong); "
    "what holds for the objectives needs 3 seeds or more."
)
TESTED = "* beyond noise: two-sided 5 %, over seeds and test examples."


@dataclass(frozen=True, kw_only=True)
class PaperComparison:
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

    def paper(self, row: str, metric: str) -> MetricSummary | None:
        return self.published[row].metrics.get(metric) if row in self.published else None

    def ours(self, row: str, metric: str) -> MetricSummary | None:
        return self.measured[row].metrics.get(metric) if row in self.measured else None

    def contrast(self, row: str, metric: str) -> Contrast | None:
        """Return our row against our baseline on a metric."""
        if row == self.baseline or row not in self.measured:
            return None
        return next((c for c in self.comparison.of(self.measured[row]) if c.metric == metric), None)

    def resolution(self) -> dict[str, float]:
        """Return what one test example is of each metric that is a share of them, in points."""
        shares = {}
        for metric in self.columns:
            ours = [e.metrics[metric] for e in self.measured.values() if metric in e.metrics]
            sizes = {summary.n for summary in ours}
            if ours and all(map(_is_share, ours)) and len(sizes) == 1 and (size := sizes.pop()):
                shares[metric] = 100 / size
        return shares


def _is_share(summary: MetricSummary) -> bool:
    """Return whether each value is a whole number of examples; MAUVE and ROUGE are fractions of another kind."""
    counts = [value * (summary.n or 0) for value in summary.values]
    return summary.unit == "fraction" and all(abs(count - round(count)) < 1e-6 for count in counts)


def cells(table: PaperComparison) -> list[dict[str, Any]]:
    """Return each cell as plain values: fractions as stored, differences in the metric's unit, None for what is not."""
    return [_plain(table, row, metric) for row in table.rows for metric in table.columns]


def _plain(table: PaperComparison, row: str, metric: str) -> dict[str, Any]:
    paper, ours, contrast = table.paper(row, metric), table.ours(row, metric), table.contrast(row, metric)
    return {
        "row": row,
        "metric": metric,
        "published": paper and paper.mean,
        "measured": ours and ours.mean,
        "interval": ours and ours.ci95 and list(ours.ci95),
        "n": ours and ours.n,
        "difference": ours.mean - paper.mean if paper and ours else None,
        f"against_{table.baseline}": contrast and to_plain(contrast),
    }


def grid(table: PaperComparison) -> Grid:
    """Return the table, with a legend."""
    lines = [(clean(f"{row} · {label}"), cells) for row in table.rows for label, cells in _lines(table, row)]
    entries = [*table.published.values(), *table.measured.values()]
    columns = []
    for metric in table.columns:
        summaries = [entry.metrics[metric] for entry in entries if metric in entry.metrics]
        columns.append(Column(*map(clean, metric.split("/", 1)), unit=figures.unit_label(summaries)))
    return Grid(
        title=clean(table.title),
        rows=tuple(Cell(label) for label, _ in lines),
        columns=tuple(columns),
        cells=tuple(tuple(cells) for _, cells in lines),
        legend=tuple(clean(line) for line in _legend(table)),
    )


def _lines(table: PaperComparison, row: str) -> Iterator[tuple[str, list[Cell]]]:
    """Yield the lines of one row of the paper: (label, cells)."""
    paper = [table.paper(row, metric) for metric in table.columns]
    ours = [table.ours(row, metric) for metric in table.columns]
    if table.published:
        yield "paper", [_value(summary) for summary in paper]
    if row not in table.measured:
        return
    yield "here", [_value(summary) for summary in ours]
    if any(summary and summary.ci95 for summary in ours):
        yield INTERVAL, [Cell(figures.interval_of(s, figures.decimals([s])) if s else ABSENT) for s in ours]
    if table.published:
        yield "here - paper", [_difference(a, b) for a, b in zip(ours, paper, strict=True)]
    if row != table.baseline:
        against = [_against(table.contrast(row, m), b) for m, b in zip(table.columns, ours, strict=True)]
        yield f"here - {table.baseline} here", against


def _value(summary: MetricSummary | None) -> Cell:
    return Cell(figures.number(summary, figures.decimals([summary])) if summary else ABSENT)


def _difference(ours: MetricSummary | None, paper: MetricSummary | None) -> Cell:
    if ours is None or paper is None:
        return Cell(ABSENT)
    return Cell(f"{(ours.mean - paper.mean) * figures.scale(ours.unit):+.{figures.decimals([ours, paper])}f}")


def _against(contrast: Contrast | None, ours: MetricSummary | None) -> Cell:
    """Return a difference from the baseline with its p: over seeds, or within the one seed that there is."""
    if contrast is None or ours is None:
        return Cell(ABSENT)
    cell = replace(difference_cell(contrast, [ours]), style="")
    p = contrast.within[0].p if contrast.p_holm is None and len(contrast.within) == 1 else contrast.p_holm
    return cell if p is None else replace(cell, text=f"{cell.text} p={figures.p_value(p)}")


def _legend(table: PaperComparison) -> list[str]:
    contrasts = [c for c in table.comparison.contrasts if c.metric in table.columns]
    untested = " Differences from the paper are not tested." if table.published else ""
    lines = [f"Percent where fractions; ± is the standard deviation over seeds.{untested}"]
    ours = [summary for row in table.rows for metric in table.columns if (summary := table.ours(row, metric))]
    covered = dict.fromkeys(summary.ci95_of for summary in ours if summary.ci95_of)
    lines += [f"{INTERVAL}: of the mean, over {' or '.join(covered)}."] if covered else []
    lines += [TESTED, *adjustment(contrasts), BASE] if any(c.p is not None for c in contrasts) else []
    lines += [SEEDS_NEEDED] if any(c.p is None and len(c.within) == 1 for c in contrasts) else []
    sizes = [f"{metric.split('/', 1)[0]} {points:.2g}" for metric, points in table.resolution().items()]
    lines += [f"One test example is, in points: {', '.join(sizes)}."] if sizes else []
    return [*lines, *table.remarks]
