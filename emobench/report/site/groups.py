"""The comparable groups of a page: their order, their titles, and stars and ranks if the page can afford the tests."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

from emobench.leaderboard.comparable import conditions, groups, older_code
from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.labels import MEAN, clean
from emobench.leaderboard.query.standings import Standings, View, group_metrics, standings
from emobench.leaderboard.run_files import ExamplesOf
from emobench.leaderboard.stats.classical import MIN_SEEDS
from emobench.leaderboard.stats.series import mean_summary
from emobench.report.notes import representative

RANK_BUDGET = 15_000
"""Pairs of rows that are tested for the ranks of a page."""
LONGEST = 40
"""Letters of a value in a title."""
NONE = "default"
TIERS = ("tasks", "rule ", "recipe.name", "recipe.", "protocols", "protocol of ", "model", "")
"""The beginnings of facts. What a person chose comes first, the digests that follow from it last."""


@dataclass(frozen=True)
class BoardGroup:
    """Rows that may be ranked together. In a `ranked` group every pair of rows was tested."""

    standings: Standings
    ranked: bool

    @property
    def rows(self) -> tuple[Entry, ...]:
        return self.standings.rows

    @property
    def first(self) -> Entry:
        return representative(self.rows)

    @property
    def judged(self) -> bool:
        """Whether rows have enough seeds for a verdict."""
        most = max(len(entry.seeds) for entry in self.rows)
        return len(self.rows) > 1 and most >= MIN_SEEDS

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """All metrics that a row has: the mean over tasks first, the secondary ones last."""
        shown = list(self.standings.metrics)
        ranking = self.standings.ranking
        if ranking and ranking.means:
            shown.insert(0, f"{MEAN}/{ranking.name}")
        return tuple(dict.fromkeys(shown + _measured(group_metrics(self.rows), self.rows)))

    def value(self, entry: Entry, key: str) -> MetricSummary | None:
        """Return a metric of a row, or its mean over tasks, without an interval, if it has them all."""
        ranking = self.standings.ranking
        if ranking and key == f"{MEAN}/{ranking.name}":
            values = ranking.means.get(entry.id)
            return mean_summary(entry.metrics[ranking.columns[0]], values) if values else None
        return entry.metrics.get(key)


def board_groups(entries: Sequence[Entry], examples_of: ExamplesOf | None) -> list[BoardGroup]:
    """Return the comparable groups of a page: models with verdicts first, then small ones, groups of a model together.

    Groups beyond `RANK_BUDGET` have no stars and no ranks.
    """
    left, made = RANK_BUDGET, []
    for members in groups(entries):
        pairs = len(members) * (len(members) - 1) // 2
        ranked = pairs <= left
        if ranked:
            left -= pairs
            primary = next(filter(None, [entry.primary for entry in members]), None)
            view = View()
            if primary in group_metrics(members):
                view = View(sort=primary)
            shown = standings(members, examples_of, view)[0]
        else:
            shown = _unranked(members)
        made.append(BoardGroup(shown, ranked))
    judged = {group.first.model.name for group in made if group.judged}

    def place(group: BoardGroup) -> tuple[bool, int, str, bool, str, str]:
        entry = group.first
        model, size = entry.model.name, entry.model.parameters or 0
        created = entry.provenance.created
        return model not in judged, size, model, not group.judged, created, entry.id

    return sorted(made, key=place)


def _unranked(members: Sequence[Entry]) -> Standings:
    older = older_code(members)

    def place(entry: Entry) -> tuple[bool, bool, str, str]:
        return entry.id in older, not entry.untrained, entry.provenance.created, entry.id

    rows = sorted(members, key=place)
    metrics = View().shown(group_metrics(rows), rows)
    return Standings(rows=tuple(rows), older=older, metrics=tuple(_measured(metrics, rows)))


def _measured(metrics: Iterable[str], rows: Sequence[Entry]) -> list[str]:
    """Return the metrics that a row has."""
    measured: set[str] = set()
    for entry in rows:
        measured.update(entry.metrics)
    return list(filter(measured.__contains__, metrics))


def group_titles(firsts: Sequence[Entry]) -> list[str]:
    """Return a title for each group of one suite, given a row of each; no two are alike.

    Of several groups of one model few facts are named that distinguish them: tasks, changed rules and settings of the
    recipe before protocols, and these before digests of data and weights. A value that most groups share is left out.
    A number is the last resort.
    """
    by_model: dict[str, list[int]] = defaultdict(list)
    kinds = set()
    for place, entry in enumerate(firsts):
        by_model[entry.model.name].append(place)
        kinds.add(tuple(sorted(entry.protocols)))
    chosen = ["tasks"] if len(kinds) > 1 else []
    titles = [""] * len(firsts)
    for model, places in by_model.items():
        facts = [_facts(firsts[place]) for place in places]
        for name in set().union(*facts):
            for own in facts:
                own.setdefault(name, NONE)
        names = _distinguishing(facts, chosen)
        counts: Counter[tuple[str, str]] = Counter()
        for own in facts:
            counts.update((name, own[name]) for name in names)
        seen: Counter[str] = Counter()
        for place, own in zip(places, facts, strict=True):
            words = []
            for name in names:
                if name == "tasks" or 2 * counts[name, own[name]] <= len(facts):
                    words.append(_word(name, own[name]))
            title = " · ".join(filter(None, [clean(model), ", ".join(words)]))
            seen[title] += 1
            titles[place] = title if seen[title] == 1 else f"{title} · {seen[title]}"
    return titles


def _facts(entry: Entry) -> dict[str, str]:
    """Return what may distinguish a group, by short names."""
    facts = {"tasks": ", ".join(sorted(entry.protocols))}
    for task in entry.protocols:
        for name, value in entry.changes.get(task, {}).items():
            facts.setdefault(f"rule {name}", str(value))
    protocols = [name.partition("@")[0] for name in entry.protocols.values()]
    facts["protocols"] = ", ".join(dict.fromkeys(protocols))
    for name, value in conditions(entry).items():
        if name != "suite" and not (entry.untrained and name.startswith("recipe.")):
            facts[name] = str(value)
    if entry.untrained:
        facts["recipe.name"] = "not trained"
    for name, value in facts.items():
        text = clean(value[7:13] if value.startswith("sha256:") else value)
        facts[name] = text if len(text) <= LONGEST else text[:LONGEST] + "…"
    return facts


def _distinguishing(facts: Sequence[Mapping[str, str]], chosen: list[str]) -> list[str]:
    """Return the names of facts that distinguish the groups, by tier: those chosen, and each that adds to them."""

    def kinds(names: Sequence[str]) -> int:
        return len({itemgetter(*names)(own) for own in facts}) if names else 1

    for start in TIERS:
        for name in sorted(facts[0]):
            if name.startswith(start) and kinds([*chosen, name]) > kinds(chosen):
                chosen = [*chosen, name]
    return chosen


def _word(name: str, value: str) -> str:
    if name in ("tasks", "protocols", "recipe.name") or name.startswith("protocol of "):
        return value
    if name.startswith(("recipe.", "rule ")):
        return f"{name.removeprefix('recipe.').removeprefix('rule ')}={value}"
    return f"{name} {value}"
