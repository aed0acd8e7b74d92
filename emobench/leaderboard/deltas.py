"""Every row's difference from the baseline row of its own comparable group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from emobench.leaderboard.entry import Entry
from emobench.leaderboard.labels import is_row
from emobench.leaderboard.ranks import Ranking, SeriesOf

if TYPE_CHECKING:
    from emobench.leaderboard.contrasts import Contrast

MEAN = "mean"
"""Stands for the mean over tasks among the metrics of a row's differences."""


def baseline_of(group: Sequence[Entry], text: str) -> Entry | str:
    """Return the row that `--baseline` means among a group's rows, or why there is none."""
    meant = [entry for entry in group if is_row(text, entry.id, entry.objective.name, entry.objective.label)]
    if len(meant) == 1:
        return meant[0]
    if not meant:
        return f"no row here is {text}"
    shown = ", ".join(f"{entry.objective.label} [{entry.id[:6]}]" for entry in meant[:3])
    return f"{text} means {len(meant)} rows here ({shown}{', ...' if len(meant) > 3 else ''})"


def deltas(
    entry: Entry, baseline: Entry, metrics: Sequence[str], series: SeriesOf, ranking: Ranking | None
) -> dict[str, Contrast]:
    """Return metric -> the contrast of an entry with the baseline, where both have the metric.

    Where a mean over tasks is shown, it is compared too, under MEAN.
    """
    from emobench.leaderboard.contrasts import contrasts

    rows: dict[str, Sequence[str]] = {m: (m,) for m in metrics if m in entry.metrics and m in baseline.metrics}
    if ranking and entry.id in ranking.means and baseline.id in ranking.means:
        rows[MEAN] = ranking.columns
    found = contrasts(entry, baseline, rows, lambda one, metric: series.get(metric, {}).get(one.id))
    return {contrast.metric: contrast for contrast in found}
