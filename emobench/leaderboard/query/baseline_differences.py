"""Every row's difference from the baseline row of its own comparable group."""

from __future__ import annotations

from collections.abc import Sequence

from emobench.leaderboard.query.ranks import Ranking
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.schema.labels import MEAN, is_row
from emobench.leaderboard.stats.contrasts import Contrast
from emobench.leaderboard.stats.pairwise import Pairs


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
    entry: Entry, baseline: Entry, metrics: Sequence[str], pairs: Pairs, ranking: Ranking | None
) -> dict[str, Contrast]:
    """Return the contrasts of an entry with the baseline on `metrics`, those to show, where both have them.

    Where a mean over tasks is shown, it is compared too, under MEAN.
    """
    found = {metric: pairs(entry, baseline, metric) for metric in metrics}
    if ranking and ranking.means:
        found[MEAN] = pairs(entry, baseline, f"{MEAN}/{ranking.name}")
    return {metric: contrast for metric, contrast in found.items() if contrast is not None}
