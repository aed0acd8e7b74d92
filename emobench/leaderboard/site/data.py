"""A board as a page wants it: an index for its table and charts, and the details of each entry.

The index holds, by number: `suites` with their metrics, `groups` of comparable entries, and `entries`; and the charts'
templates. Numbers that are shown are text here; those for charts and sorting are rounded to more digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emobench.leaderboard.charts.board_charts import page_charts
from emobench.leaderboard.render import captions
from emobench.leaderboard.render import numbers as figures
from emobench.leaderboard.schema.comparable import changed_rules, shared_rules
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.schema.examples import ExamplesOf
from emobench.leaderboard.schema.labels import MEAN, labels
from emobench.leaderboard.site.cells import Flags, cell
from emobench.leaderboard.site.contrasts import FIELDS, Contrasts
from emobench.leaderboard.site.entry_details import Column
from emobench.leaderboard.site.groups import Group, Groups
from emobench.leaderboard.site.text import large


class BoardData:
    """The index of a board (`plain`), and the columns in which each entry is shown (`columns`, by id)."""

    def __init__(self, entries: Sequence[Entry], examples_of: ExamplesOf | None, baseline: str | None = None) -> None:
        self.columns: dict[str, list[Column]] = {}
        self.plain: dict[str, Any] = {"suites": [], "groups": [], "entries": []}
        self.plain |= {"fields": FIELDS, "charts": page_charts()}
        self._numbers: dict[str, int] = {}
        self._contrasts, grouped = Contrasts(examples_of), Groups(examples_of)
        by_suite: dict[str, list[Entry]] = {}
        for entry in entries:
            by_suite.setdefault(str(entry.suite), []).append(entry)
        for label, members in by_suite.items():
            self._add(label, _Suite(grouped.of(members), baseline))

    def _add(self, label: str, suite: _Suite) -> None:
        number = len(self.plain["suites"])
        facts = {"label": label, "metrics": suite.metrics, "baseline": suite.baseline, "legend": suite.legend()}
        self.plain["suites"].append(facts)
        for group in suite.groups:
            for entry in group.rows:
                if entry.id not in self._numbers:
                    self._numbers[entry.id] = len(self._numbers)
                    self.plain["entries"].append(_entry(entry))
                    self.columns[entry.id] = suite.columns(group)
            numbers = [self._numbers[entry.id] for entry in group.rows]
            self.plain["groups"].append({"suite": number, **suite.group(group, numbers, self._contrasts)})


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
        self._flags = Flags([values for group in groups for values in group.values.values()])
        self._shown: dict[str, list[Entry]] = {}

    def _metric(self, key: str, one_task: bool) -> dict[str, Any]:
        everything = (values for group in self.groups for values in group.values.values())
        summaries = [values[key] for values in everything if key in values][:1]
        task, metric = key.split("/", 1)
        unit = figures.unit_label(summaries)
        name, head = (metric, unit) if one_task else (task, f"{metric} {unit}".strip())
        return {
            "task": task,
            "name": name,
            "head": head,
            "title": f"{name} {head}".strip(),
            "fraction": bool(summaries) and summaries[0].unit == "fraction",
            "log": bool(summaries) and summaries[0].unit == "perplexity",
            "better": summaries[0].higher_is_better if summaries else None,
        }

    def _places(self, found: Group) -> list[int]:
        return [figures.decimals([v[key] for v in found.values.values() if key in v]) for key in self.keys]

    def columns(self, found: Group) -> list[Column]:
        titles = [metric["title"] for metric in self.metrics]
        return [Column(*column) for column in zip(self.keys, titles, self._places(found), strict=True)]

    def group(self, found: Group, numbers: Sequence[int], contrasts: Contrasts) -> dict[str, Any]:
        """Return a group: its rows are [entry's number, label, rank, cells]."""
        rows, first, places = found.rows, found.first, self._places(found)
        named = [i for i, entry in enumerate(rows) if entry.objective.name == self.baseline]
        like = self._shown.setdefault(first.model.name, [])
        like.append(first)
        shown = [
            [cell(entry, found, key, place, self._flags) for key, place in zip(self.keys, places, strict=True)]
            for entry in rows
        ]
        ranks = [found.ranks.get(entry.id) for entry in rows]
        size = f"{large(first.model.parameters)} parameters" if first.model.parameters else None
        return {
            "title": self._title(first, len(like)),
            "lines": [*([size] if size else []), *self._lines(found, like)],
            "protocols": dict(first.protocols),
            "rows": list(zip(numbers, labels(rows, found.older), ranks, shown, strict=True)),
            "ranked": bool(found.ranks),
            "baseline": named[0] if named else None,
            "places": places,
            "tests": contrasts.of(rows, named[0] if named else 0, self.keys, places),
        }

    def legend(self) -> str:
        """Return what the table's marks mean."""
        entries = {entry.id: entry for group in self.groups for entry in group.rows}.values()
        best = any(best for group in self.groups for best in group.best.values())
        untested = next((group.untested for group in self.groups if group.untested), None)
        unranked = sum(not group.ranked for group in self.groups)
        lacking = any(
            key not in group.values[entry.id] for group in self.groups for entry in group.rows for key in self.keys
        )
        which = "The groups are" if unranked == len(self.groups) else f"{unranked} of {len(self.groups)} groups are"
        sentences = {
            "Mean ± standard deviation over seeds.": any(len(entry.seeds) > 1 for entry in entries),
            "★ better than every other objective of its group beyond noise, as the comparison of each pair says "
            "(two-sided 5 %).": best,
            f"Nothing is marked as best: {untested}.": untested and not best,
            "Rank: 1 + the rows that are better beyond noise (Holm over all pairs, too), so that tied rows share a "
            "place.": any(group.ranks for group in self.groups),
            "– not measured: the entry says why.": lacking,
            **dict.fromkeys(self._flags.legend(), True),
            "Rows are sorted within their group: only these may be ranked together.": len(self.groups) > 1,
            f"{which} too large for stars and ranks here: emobench leaderboard show has them.": unranked,
        }
        return " ".join(text for text, shown in sentences.items() if shown)

    def _title(self, first: Entry, number: int) -> str:
        """Return a model's name, and what sets this group apart from others of the model: changed rules, or its number.

        Rules that all groups of the model share in all tasks set none apart.
        """
        like = [group.first for group in self.groups if group.first.model.name == first.model.name]
        common = shared_rules([entry.changes.get(task, {}) for entry in like for task in entry.protocols])
        own = [changed_rules(entry, leaving=common) for entry in like]
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


def _entry(entry: Entry) -> dict[str, Any]:
    tokens = entry.cost.tokens and entry.cost.tokens / max(len(entry.seeds), 1)
    return {
        "id": entry.id,
        "kind": entry.kind,
        "objective": entry.objective.label,
        "name": entry.objective.name,
        "untrained": entry.untrained,
        "model": entry.model.name,
        "seeds": len(entry.seeds),
        "created": entry.provenance.created[:10],
        "sizes": {
            name: [size, large(size)]
            for name, size in (("parameters", entry.model.parameters), ("tokens", tokens))
            if size
        },
    }
