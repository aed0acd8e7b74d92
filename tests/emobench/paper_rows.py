"""A paper's rows beside ours, for the tests of its table and of its picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from emobench.leaderboard.entry import Entry
from emobench.leaderboard.run_files import ExamplesOf
from emobench.leaderboard.stats.compare import compare
from emobench.report.paper_table import PaperComparison

EntryOf = Callable[..., Entry]
Metrics = Mapping[str, dict[str, Any]]


def metric(*values: float, unit: str = "fraction", ci95: list[float] | None = None, n: int | None = 40) -> Any:
    """Return a metric's fields for an entry, of each seed's value."""
    spread = {"mean": fmean(values), "std": stdev(values) if len(values) > 1 else None, "values": list(values), "n": n}
    covers = None if ci95 is None else "seeds and items"
    return {**spread, "ci95": ci95, "ci95_of": covers, "higher_is_better": True, "unit": unit, "flags": []}


def paper_comparison(
    entry_of: EntryOf,
    ours: Mapping[str, Metrics],
    paper: Mapping[str, Metrics],
    columns: Sequence[str],
    examples_of: ExamplesOf | None = None,
    remarks: tuple[str, ...] = (),
) -> PaperComparison:
    """Compare our rows with `mle` of them, beside a paper's."""
    measured = {name: entry_of(name, metrics=metrics) for name, metrics in ours.items()}
    published = {
        name: entry_of(name, kind="published", seeds=[], metrics=metrics, source={"cite": "x"})
        for name, metrics in paper.items()
    }
    others = [entry for name, entry in measured.items() if name != "mle"]
    return PaperComparison(
        title="table-3 · tiny",
        columns=tuple(columns),
        published=published,
        measured=measured,
        baseline="mle",
        comparison=compare(measured["mle"], others, examples_of, anyway=True),
        remarks=remarks,
    )
