"""The sentences on top of a page: what is better than the baseline of a suite, what is worse, and what is tied.

The last sentence is on what would decide a tie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from emobench.leaderboard.entry import Entry
from emobench.leaderboard.labels import listed
from emobench.leaderboard.stats.compare import Contrast
from emobench.report.notes import deciding_text
from emobench.report.numbers import contrast_texts

DECIDED = ("better", "worse", "tied")
ROWS, METRICS = 3, 2
"""Rows, and metrics of a verdict, that are named one by one."""


class GroupDifference(NamedTuple):
    """The difference of a row from the baseline of its group on one metric, under the names that the page shows."""

    group: int
    row: str
    metric: str
    contrast: Contrast
    entry: Entry


def finding(baseline: str | None, differences: Sequence[GroupDifference], *, untested: bool) -> str:
    """Return the verdicts on a suite's trained rows against its baseline, or why there is none.

    `untested`: some groups have too many pairs for a page.
    """
    tested = [one for one in differences if one.contrast.family is not None]
    if not tested and untested:
        return "The differences are too many for a page; test some with: emobench compare A B."
    if not tested:
        return "No two trained entries of this suite can be compared."
    decided = [one for one in tested if one.contrast.verdict in DECIDED]
    if not decided:
        reasons = Counter((one.contrast.why or "not tested").rstrip(".") for one in tested)
        return f"No difference from {baseline} has a verdict: {reasons.most_common(1)[0][0]}."
    groups, with_verdict = {one.group for one in tested}, {one.group for one in decided}
    where = f"Against {baseline}"
    if len(groups) > 1:
        where += f", in {len(with_verdict)} of {len(groups)} compared groups"
    by_row: dict[str, list[GroupDifference]] = {}
    for one in decided:
        by_row.setdefault(one.row, []).append(one)
    clauses = [_of_row(row, own, len(groups) > 1) for row, own in by_row.items()]
    sentences = [f"{where}, {'. '.join(clauses[:ROWS])}."]
    if len(clauses) > ROWS:
        sentences.append(f"{len(clauses) - ROWS} more objectives have verdicts.")
    undecided = dict.fromkeys(one.row for one in tested if one.row not in by_row)
    if undecided:
        sentences.append(f"No verdict on {listed(list(undecided), ROWS)}.")
    for one in decided:
        if text := deciding_text(one.contrast, one.entry):
            sentences.append(f"To decide the tie of {one.row} on {one.metric}, {text}.")
            break
    return " ".join(sentences)


def _of_row(row: str, decided: Sequence[GroupDifference], several: bool) -> str:
    """Return on which metrics a row is better, worse and tied: with the difference, or the number of groups."""
    parts = []
    for word in DECIDED:
        counts: Counter[str] = Counter()
        sizes = {}
        for one in decided:
            if one.contrast.verdict == word:
                counts[one.metric] += 1
                unit = " points" if one.contrast.unit == "fraction" else ""
                sizes[one.metric] = "" if word == "tied" else f" ({contrast_texts(one.contrast)['text']}{unit})"
        names = []
        for metric, count in counts.items():
            groups = f" ({count} group{'s' * (count > 1)})"
            names.append(metric + (groups if several else sizes[metric]))
        if names:
            parts.append(f"{word} on {listed(names, METRICS)}")
    return f"{row} is {'; '.join(parts)}"
