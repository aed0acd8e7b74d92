"""Entries as a page wants them: a light index for its table and charts, and the details of each entry.

The index holds, by number: `suites` with their metrics, `groups` of comparable entries, and `entries`. A value is
[mean, std, low, high], rounded to more digits than are shown; the details hold each entry whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from emobench.config import to_plain
from emobench.leaderboard.render import captions
from emobench.leaderboard.render import numbers as figures
from emobench.leaderboard.schema import protocol_changes as changes
from emobench.leaderboard.schema.comparable import conditions
from emobench.leaderboard.schema.entry import Entry, MetricSummary
from emobench.leaderboard.schema.examples import ExamplesOf
from emobench.leaderboard.schema.labels import MEAN, labels
from emobench.leaderboard.schema.private_paths import published
from emobench.leaderboard.site.comparisons import Comparisons
from emobench.leaderboard.site.groups import Group, Groups

_TEST = ("baseline", "candidate", "metric", "effect", "log_scale", "low", "high", "p", "p_holm", "family",
         "tests", "detectable", "verdict", "test", "why", "seeds", "items", "within")  # fmt: skip
"""What the index keeps of a contrast, in this order (`assets/data.js` reads it)."""


def board_data(entries: Sequence[Entry], examples_of: ExamplesOf | None, baseline: str | None = None) -> dict[str, Any]:
    """Return the index of a board, its suites in the order given; `baseline` is an objective's name."""
    by_suite: dict[str, list[Entry]] = {}
    for entry in entries:
        by_suite.setdefault(str(entry.suite), []).append(entry)
    places: dict[str, int] = {}
    comparisons, grouped = Comparisons(examples_of), Groups(examples_of)
    index: dict[str, list[Any]] = {"suites": [], "groups": [], "entries": []}
    for label, members in by_suite.items():
        suite = _Suite(grouped.of(members), baseline)
        index["suites"].append({"label": label, "metrics": suite.metrics, "baseline": suite.baseline})
        for group in suite.groups:
            for entry in group.rows:
                if entry.id not in places:
                    places[entry.id] = len(places)
                    index["entries"].append(_entry(entry, group.values[entry.id], suite.keys))
            plain = {"suite": len(index["suites"]) - 1, "entries": [places[entry.id] for entry in group.rows]}
            index["groups"].append(plain | suite.group(group, comparisons))
    return index


def details(entry: Entry) -> dict[str, Any]:
    """Return all that an entry holds, and the conditions that a comparable one shares, under names for people."""
    plain = to_plain(entry)
    return {"entry": {**plain, "source": published(plain["source"])}, "conditions": conditions(entry)}


class _Suite:
    """One suite version: its comparable groups and the metrics of all of them as columns."""

    def __init__(self, groups: Sequence[Group], baseline: str | None) -> None:
        self.groups = groups
        named = any(entry.objective.name == baseline for group in groups for entry in group.rows)
        self.baseline = baseline if named else _default_baseline(groups)
        self.keys = list(dict.fromkeys(key for group in self.groups for key in group.metrics))
        self.keys.sort(key=lambda key: not key.startswith(f"{MEAN}/"))
        tasks = {key.split("/", 1)[0] for key in self.keys}
        self.metrics = [self._metric(key, len(tasks) == 1) for key in self.keys]
        self._shown: dict[str, list[Entry]] = {}

    def _metric(self, key: str, one_task: bool) -> dict[str, Any]:
        everything = (values for group in self.groups for values in group.values.values())
        summaries = [values[key] for values in everything if key in values][:1]
        task, metric = key.split("/", 1)
        unit = figures.unit_label(summaries)
        return {
            "key": key,
            "name": metric if one_task else task,
            "head": unit if one_task else f"{metric} {unit}".strip(),
            "unit": summaries[0].unit if summaries else "",
            "better": summaries[0].higher_is_better if summaries else None,
        }

    def group(self, found: Group, comparisons: Comparisons) -> dict[str, Any]:
        rows = found.rows
        first = found.first
        ids = [entry.id for entry in rows]
        named = [i for i, entry in enumerate(rows) if entry.objective.name == self.baseline]
        summaries = [[v[key] for v in found.values.values() if key in v] for key in self.keys]
        tests = comparisons.of(rows, named[0] if named else 0)
        best = [found.best.get(key) for key in self.keys]
        like = self._shown.setdefault(first.model.name, [])
        like.append(first)
        return {
            "title": self._title(first, len(like)),
            "parameters": first.model.parameters,
            "protocols": dict(first.protocols),
            "lines": self._lines(found, like),
            "labels": labels(rows, found.older),
            "older": [i for i, entry in enumerate(rows) if entry.id in found.older],
            "ranks": [found.ranks.get(entry.id) for entry in rows] if found.ranks else None,
            "baseline": named[0] if named else None,
            "decimals": [figures.decimals(of) for of in summaries],
            "ranked": found.ranked,
            "untested": found.untested,
            "best": [ids.index(winner) if winner else None for winner in best],
            "tests": [_test(test, self.keys) for test in tests if test["metric"] in self.keys],
        }  # fmt: skip

    def _title(self, first: Entry, number: int) -> str:
        """Return a model's name, and what sets this group apart from others of the model: changed rules, or its number.

        Rules that all groups of the model share in all tasks set none apart.
        """
        like = [group.first for group in self.groups if group.first.model.name == first.model.name]
        common = changes.shared([entry.changes.get(task, {}) for entry in like for task in entry.protocols])
        own = [changes.said(entry, leaving=common) for entry in like]
        words = own[number - 1]
        if own.count(words) == 1:
            return " · ".join(filter(None, [first.model.name, words]))
        return first.model.name if number == 1 and not words else f"{first.model.name} · {number}"

    def _lines(self, found: Group, like: Sequence[Entry]) -> list[str]:
        """Return what the rows share, and what keeps them from the first group of the same model."""
        tasks = [key.split("/", 1)[0] for key in found.metrics if not key.startswith(f"{MEAN}/")]
        shared = [captions.conditions(like[-1], list(dict.fromkeys(tasks))), *captions.shared_parameters(found.rows)]
        return [*shared, *([captions.apart(like[-1], like[:-1])] if len(like) > 1 else [])]


def _default_baseline(found: Sequence[Group]) -> str | None:
    """Return the objective that stands in most groups; of several such, the one that was recorded first."""
    groups: dict[str, int] = {}
    recorded: dict[str, tuple[str, str]] = {}
    for group in found:
        for entry in group.rows:
            when = (entry.provenance.created, entry.id)
            if not entry.untrained:
                recorded[entry.objective.name] = min(recorded.get(entry.objective.name, when), when)
        for name in {entry.objective.name for entry in group.rows if not entry.untrained}:
            groups[name] = groups.get(name, 0) + 1
    return min(groups, key=lambda name: (-groups[name], recorded[name]), default=None)


def _entry(entry: Entry, values: Mapping[str, MetricSummary], keys: Sequence[str]) -> dict[str, Any]:
    known = [(number, values[key]) for number, key in enumerate(keys) if key in values]
    return {
        "id": entry.id,
        "kind": entry.kind,
        "objective": entry.objective.label,
        "name": entry.objective.name,
        "untrained": entry.untrained,
        "model": entry.model.name,
        "parameters": entry.model.parameters,
        "tokens": entry.cost.tokens and entry.cost.tokens / max(len(entry.seeds), 1),
        "seeds": len(entry.seeds),
        "created": entry.provenance.created[:10],
        "values": {n: [_round(x) for x in (m.mean, m.std, *(m.ci95 or (None, None)))] for n, m in known},
        "flags": {n: list(m.flags) for n, m in known if m.flags},
        "missing": {number: entry.missing[key] for number, key in enumerate(keys) if key in entry.missing},
    }


def _test(test: Mapping[str, Any], keys: Sequence[str]) -> list[Any]:
    low, high = test["ci95"] or (None, None)
    within = [[w["seed"], w["test"], _round(w["effect"]), *map(_round, w["ci95"] or (None, None)), _round(w["p"])]
              for w in test["within"]]  # fmt: skip
    plain = {**test, "metric": keys.index(test["metric"]), "low": low, "high": high, "within": within}
    return [_round(plain[name]) if isinstance(plain[name], float) else plain[name] for name in _TEST]


def _round(value: float | None) -> float | None:
    # JSON has no infinity, which a difference of unlike things may be.
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
