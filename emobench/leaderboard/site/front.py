"""What the front page says of a board: of each suite its headline metric by model and objective, with verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from emobench.leaderboard.render.grid import ABSENT
from emobench.leaderboard.site.contrasts import FIELDS

GROUPS, OBJECTIVES, SUITES = 4, 6, 6
"""Of a suite, and of a board, at most; the page of the board has the others."""
COUNTED = ("better", "worse", "tied", "undetermined")


def told_suites(index: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return, for each suite of a board's index (`data.BoardData.plain`), a small table; the first suites alone."""
    suites = []
    for number, suite in enumerate(index["suites"][:SUITES]):
        groups = [group for group in index["groups"] if group["suite"] == number]
        # Those with most rows say most; they stand in the order of the board.
        chosen = sorted(groups, key=lambda group: -len(group["rows"]))[:GROUPS]
        shown = [_Group(group, index) for group in groups if group in chosen]
        names = list(dict.fromkeys(name for group in shown for name in group.names))[:OBJECTIVES]
        suites.append(
            {
                "label": suite["label"],
                "metric": suite["metrics"][0]["title"],
                "baseline": suite["baseline"],
                "objectives": [{"name": name, "colour": index["colours"].get(name, 0) + 1} for name in names],
                "rows": [{"title": group.title, "cells": [group.cell(name) for name in names]} for group in shown],
                "counts": [_counted(shown, name, suite["metrics"]) for name in names],
                "more": len(groups) - len(shown),
            }
        )
    return suites


class _Group:
    """A comparable group of the index: its rows by the name of their objective, the first of each, and their tests."""

    def __init__(self, group: Mapping[str, Any], index: Mapping[str, Any]) -> None:
        self.title = group["title"]
        self.baseline: int | None = group["baseline"]
        self._rows = group["rows"]
        self._tests: list[dict[str, Any]] = [dict(zip(FIELDS, test, strict=True)) for test in group["tests"]]
        places: dict[str, int] = {}
        for place, (entry, *_) in enumerate(self._rows):
            places.setdefault(index["entries"][entry]["name"], place)
        first = [name for name, place in places.items() if place == self.baseline]
        self.names = {name: places[name] for name in (*first, *places)}

    def cell(self, name: str) -> dict[str, str]:
        """Return the headline value of an objective, its difference from the baseline, and the verdict."""
        place = self.names.get(name)
        value = None if place is None else self._rows[place][-1][0]
        if not isinstance(value, dict):
            return {"text": ABSENT, "under": "", "word": "none"}
        if place == self.baseline:
            return {"text": value["text"], "under": "baseline", "word": "baseline"}
        test = next((test for test in self.against(name) if test["metric"] == 0), None)
        under = f"{test['text']} {test['word']}" if test else ""
        return {"text": value["text"], "under": under, "word": test["word"] if test else ""}

    def against(self, name: str) -> list[dict[str, Any]]:
        """Return the tests of an objective's row against the baseline's."""
        place = self.names.get(name)
        return [test for test in self._tests if test["baseline"] == self.baseline and test["candidate"] == place]


def _counted(groups: Sequence[_Group], name: str, metrics: Sequence[Mapping[str, Any]]) -> str:
    """Return the verdicts of an objective over all metrics and groups: "3 better · 6 worse · 2 tied"."""
    counts = Counter(
        test["word"] for group in groups for test in group.against(name) if not metrics[test["metric"]]["secondary"]
    )
    decided = any(counts[word] for word in COUNTED[:3])
    return " · ".join(f"{counts[word]} {word}" for word in COUNTED if counts[word]) if decided else ""
