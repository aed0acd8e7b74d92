"""Every row's difference from the baseline row of its own comparable group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emobench.leaderboard.entry import Entry
from emobench.leaderboard.labels import MEAN, is_row
from emobench.leaderboard.ranks import Ranking, SeriesByMetric

if TYPE_CHECKING:
    from emobench.leaderboard.contrasts import Contrast


@dataclass(frozen=True, kw_only=True)
class Differences:
    """What is shown of a row's differences: metric -> contrast, with p adjusted for all `tests` of the row.

    `tests` counts the metrics and the means over tasks that were tested, whatever is shown, without those that decide
    nothing.
    """

    shown: Mapping[str, Contrast]
    tests: int


def baseline_of(group: Sequence[Entry], text: str) -> Entry | str:
    """Return the row that `--baseline` means among a group's rows, or why there is none."""
    meant = [entry for entry in group if is_row(text, entry.id, entry.objective.name, entry.objective.label)]
    if len(meant) == 1:
        return meant[0]
    if not meant:
        return f"no objective here is {text}"
    shown = ", ".join(f"{entry.objective.label} [{entry.id[:6]}]" for entry in meant[:3])
    return f"{text} means {len(meant)} objectives here ({shown}{', ...' if len(meant) > 3 else ''})"


def deltas(
    entry: Entry, baseline: Entry, metrics: Sequence[str], series: SeriesByMetric, ranking: Ranking | None
) -> Differences:
    """Return the differences of an entry from the baseline on `metrics`, those to show, where both have them.

    Where a mean over tasks is shown, it is compared too, under MEAN. `compare` tests all that both have, so that the
    choice of what is shown changes no verdict.
    """
    from emobench.leaderboard.compare import compare

    # A group's rows are comparable with its first one; what little may separate two of them costs the verdict only.
    everything = [*baseline.metrics, *entry.metrics]
    of = compare(
        baseline,
        [entry],
        metrics=everything,
        anyway=True,
        series=lambda one, metric: series.get(metric, {}).get(one.id),
    )
    found = {contrast.metric: contrast for contrast in of.contrasts}
    shown = {metric: found[metric] for metric in metrics if metric in found}
    if ranking and ranking.means and f"{MEAN}/{ranking.name}" in found:
        shown[MEAN] = found[f"{MEAN}/{ranking.name}"]
    return Differences(shown=shown, tests=of.family[entry.id])
