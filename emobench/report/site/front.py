"""What the front page says of a board: of each suite the differences from its baseline, with their verdicts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from emobench.report.numbers import ABSENT
from emobench.report.site.contrasts import FIELDS

GROUPS, ROWS, METRICS, SUITES = 4, 5, 8, 6
"""Of a suite, of a group, of a suite, and of a board, at most; the page of the board has the others."""
DECIDED = ("better", "worse", "tied")
BREAKS = re.compile(r"(?<=[_/=-])|(?=\()")
"""Places where a name may be broken, on a phone."""


def told_suites(index: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return, for each suite of a board's index (`data.BoardData.plain`), a small table; the first suites alone."""
    return [_told(suite, number, index) for number, suite in enumerate(index["suites"][:SUITES])]


def _told(suite: Mapping[str, Any], number: int, index: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table: a row for each objective below that of its group's baseline, a column for each metric."""
    groups = [_Group(group, suite, index) for group in index["groups"] if group["suite"] == number]
    # Those in which most is decided say most, then those with most rows; they stand in the order of the board.
    ordered = sorted(groups, key=lambda group: (-group.decided, group.baseline is None, -len(group.rows)))
    shown = [group for group in groups if group in ordered[:GROUPS]]
    main = [place for place, metric in enumerate(suite["metrics"]) if not metric["secondary"]]
    judged = [place for place in main if any(group.judges(place) for group in shown)]
    metrics = (judged or main)[:METRICS]
    return {
        "label": suite["label"],
        "baseline": suite["baseline"],
        "metrics": [suite["metrics"][place] for place in metrics],
        "groups": [group.told(metrics) for group in shown],
        "more": len(groups) - len(shown),
    }


class _Group:
    """A comparable group of the index, with the tests of each row against the baseline's."""

    def __init__(self, group: Mapping[str, Any], suite: Mapping[str, Any], index: Mapping[str, Any]) -> None:
        self.title = group["title"]
        self.baseline: int | None = group["baseline"]
        self.rows = group["rows"]
        self._metrics = suite["metrics"]
        self._index = index
        self._tests: dict[int, dict[int, Mapping[str, Any]]] = {place: {} for place in range(len(self.rows))}
        for test in (dict(zip(FIELDS, values, strict=True)) for values in group["tests"]):
            if test["baseline"] == self.baseline:
                self._tests[test["candidate"]][test["metric"]] = test
        self.decided = sum(any(self._counts(place).values()) for place in self._tests)

    def judges(self, metric: int) -> bool:
        """Whether a verdict is possible on a metric, be it that nothing is determined."""
        tests = [of[metric] for of in self._tests.values() if metric in of]
        return any(test["word"] in (*DECIDED, "undetermined") for test in tests)

    def told(self, metrics: Sequence[int]) -> dict[str, Any]:
        """Return the group as the table shows it: its baseline, and the other rows with differences or values."""
        others = [place for place in range(len(self.rows)) if place != self.baseline]
        return {
            "title": self.title,
            "base": None if self.baseline is None else self._row(self.baseline, metrics),
            "rows": [self._row(place, metrics) for place in others[:ROWS]],
            "more": max(len(others) - ROWS, 0),
        }

    def _row(self, place: int, metrics: Sequence[int]) -> dict[str, Any]:
        entry, label = self.rows[place][:2]
        facts = self._index["entries"][entry]
        compared = place != self.baseline and self.baseline is not None
        base = self._index["entries"][self.rows[self.baseline][0]]["id"] if compared else None
        counts = self._counts(place)
        told = " · ".join(f"{counts[word]} {word}" for word in DECIDED if counts[word])
        return {
            "label": BREAKS.split(label),
            "colour": self._index["colours"].get(facts["name"], 0) + 1,
            "place": f"compare/{base}/{facts['id']}" if base else f"entry/{facts['id']}",
            "counts": told or self._undetermined(place),
            "cells": [self._cell(place, metric) for metric in metrics],
        }

    def _cell(self, place: int, metric: int) -> dict[str, str]:
        if test := self._tests[place].get(metric):
            return {"text": test["text"], "word": test["word"]}
        value = self.rows[place][-1][metric]
        return {"text": value["text"], "word": ""} if isinstance(value, dict) else {"text": ABSENT, "word": "none"}

    def _undetermined(self, place: int) -> str:
        """Return why nothing is known of a row's differences, "" for one without tests."""
        tests = self._tests[place].values()
        return next((test["why"].partition(", or ")[0] for test in tests if test["word"] == "undetermined"), "")

    def _counts(self, place: int) -> Counter[str]:
        """Return how many verdicts of each kind a row has on the metrics that are not secondary."""
        tests = [test for metric, test in self._tests[place].items() if not self._metrics[metric]["secondary"]]
        return Counter(test["word"] for test in tests if test["word"] in DECIDED)
