"""A paper's table with our own numbers beside it: for each of its rows the paper's values, ours, and differences.

For each row of the paper up to five rows: paper; here; its 95 % interval, if there is one; here minus paper (not
tested: a paper prints no noise); here minus the baseline row here, with its p. A figure without printed numbers has
ours alone. The other table has the wins, ties and losses of models by judges of their responses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.labels import clean
from emobench.leaderboard.stats.compare import Comparison, Contrast
from emobench.report import notes as captions
from emobench.report.board_table import difference_cell
from emobench.report.numbers import ABSENT, decimals, interval_of, number, p_value, scale, unit_label
from emobench.report.tables import Cell, Table

INTERVAL = "here, 95 %"


@dataclass(frozen=True, kw_only=True)
class PaperComparison:
    """A paper's rows and ours, by the name of the paper's row, and ours compared with our baseline row."""

    title: str
    columns: tuple[str, ...]
    """Metrics, as "<task>/<metric>"."""
    published: Mapping[str, Entry]
    """Empty if nothing is published."""
    measured: Mapping[str, Entry]
    baseline: str
    comparison: Comparison
    remarks: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[str, ...]:
        """The paper's rows in its order, else ours."""
        return tuple(self.published or self.measured)

    def paper(self, row: str, metric: str) -> MetricSummary | None:
        return _metric(self.published, row, metric)

    def ours(self, row: str, metric: str) -> MetricSummary | None:
        return _metric(self.measured, row, metric)

    def contrast(self, row: str, metric: str) -> Contrast | None:
        """Return our row against our baseline on a metric."""
        if row == self.baseline or row not in self.measured:
            return None
        for contrast in self.comparison.of(self.measured[row]):
            if contrast.metric == metric:
                return contrast
        return None


def _metric(entries: Mapping[str, Entry], row: str, metric: str) -> MetricSummary | None:
    return entries[row].metrics.get(metric) if row in entries else None


def cells(table: PaperComparison) -> list[dict[str, Any]]:
    """Return each cell as plain values: fractions as stored, differences in the metric's unit, None if it is absent."""
    plain = []
    for row in table.rows:
        for metric in table.columns:
            paper, ours, contrast = table.paper(row, metric), table.ours(row, metric), table.contrast(row, metric)
            cell: dict[str, Any] = {"row": row, "metric": metric, "published": paper and paper.mean}
            cell |= {"measured": ours and ours.mean, "interval": ours and ours.ci95 and list(ours.ci95)}
            cell |= {"n": ours and ours.n, "difference": None}
            if paper and ours:
                cell["difference"] = ours.mean - paper.mean
            plain.append({**cell, f"against_{table.baseline}": contrast and to_plain(contrast)})
    return plain


def paper_table(table: PaperComparison) -> Table:
    """Return the table, with its notes."""
    rows = []
    for row in table.rows:
        for label, of_row in _lines(table, row):
            rows.append((Cell(clean(f"{row} · {label}")), *of_row))
    entries = [*table.published.values(), *table.measured.values()]
    columns = ["objective"]
    for metric in table.columns:
        unit = unit_label([entry.metrics[metric] for entry in entries if metric in entry.metrics])
        columns.append("\n".join(filter(None, [clean(metric).replace("/", "/\n", 1), unit])))
    return Table(
        title=clean(table.title),
        columns=tuple(columns),
        rows=tuple(rows),
        below=tuple(map(clean, captions.paper_legend(table, INTERVAL))),
        across="metric",
    )


def _lines(table: PaperComparison, row: str) -> Iterator[tuple[str, list[Cell]]]:
    """Yield the lines of one row of the paper: (label, cells)."""
    paper = [table.paper(row, metric) for metric in table.columns]
    ours = [table.ours(row, metric) for metric in table.columns]
    if table.published:
        yield "paper", list(map(_value, paper))
    if row not in table.measured:
        return
    yield "here", list(map(_value, ours))
    if any(summary and summary.ci95 for summary in ours):
        yield INTERVAL, list(map(_interval, ours))
    if table.published:
        yield "here - paper", list(map(_difference, ours, paper))
    if row != table.baseline:
        contrasts = [table.contrast(row, metric) for metric in table.columns]
        yield f"here - {table.baseline} here", list(map(_against, contrasts, ours))


def _value(summary: MetricSummary | None) -> Cell:
    return Cell(number(summary, decimals([summary])) if summary else ABSENT)


def _interval(summary: MetricSummary | None) -> Cell:
    return Cell(interval_of(summary, decimals([summary])) if summary else ABSENT)


def _difference(ours: MetricSummary | None, paper: MetricSummary | None) -> Cell:
    if ours is None or paper is None:
        return Cell(ABSENT)
    return Cell(f"{(ours.mean - paper.mean) * scale(ours.unit):+.{decimals([ours, paper])}f}")


def _against(contrast: Contrast | None, ours: MetricSummary | None) -> Cell:
    """Return a difference from the baseline with its p: over seeds, or within the only seed."""
    if contrast is None or ours is None:
        return Cell(ABSENT)
    cell = difference_cell(contrast, [ours])
    text = cell.text.removesuffix("*")
    p = contrast.p_holm
    if p is None and len(contrast.within) == 1:
        p = contrast.within[0][1].p
    if p is not None:
        text += f" p={p_value(p)}"
    return Cell(f"{text}*", "bold") if cell.style else Cell(text)


@dataclass(frozen=True, kw_only=True)
class Duel:
    """How often a judge prefers the responses of a row to those of the baseline, in both orders of each pair."""

    subject: str
    """The model that both were trained from."""
    row: str
    baseline: str
    judge: str
    model: str
    """Who answered for the judge."""
    seed: int
    instructions: int
    wins: int
    ties: int
    losses: int
    win_rate: float
    """The mean preference of both orders, a fraction. A tie is half a win; probabilities are averaged."""
    ci95: tuple[float, float]
    """Of the win rate, over instructions."""

    @property
    def label(self) -> str:
        """Distinguishes the duels of one model."""
        return f"{self.judge}, seed {self.seed}"


def duel_table(title: str, duels: Sequence[Duel]) -> Table:
    """Return a row for each row of the paper, judge and seed."""
    rows = []
    for one in duels:
        low, high = 100 * one.ci95[0], 100 * one.ci95[1]
        texts = [clean(f"{one.row} against {one.baseline} · {one.label}"), str(one.wins), str(one.ties)]
        texts += [str(one.losses), f"{100 * one.win_rate:.1f}", f"[{low:.1f}, {high:.1f}]"]
        rows.append(tuple(map(Cell, texts)))
    columns = ("judge", "wins", "ties", "losses", "win rate (%)", "95 %")
    return Table(title=clean(title), columns=columns, rows=tuple(rows), below=captions.DUELS)
