"""A board as a page wants it: an index for its table and charts, and the details of each entry.

The index holds, by number: `suites` with their metrics, `groups` of comparable entries, and `entries`; and the charts'
templates. Numbers that are shown are text here; those for charts and sorting are rounded to more digits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from emobench.core.settings import content_hash, to_plain
from emobench.leaderboard.comparable import conditions
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.labels import MEAN, labels
from emobench.leaderboard.private_paths import published
from emobench.leaderboard.query.standings import Ranking
from emobench.leaderboard.run_files import ExamplesOf
from emobench.registry.measures import describe
from emobench.report import notes as captions
from emobench.report import numbers as figures
from emobench.report.charts.board_charts import page_charts
from emobench.report.compare_table import noise_row
from emobench.report.numbers import ABSENT
from emobench.report.palette import slots
from emobench.report.site.contrasts import FIELDS, PageContrasts
from emobench.report.site.groups import BoardGroup, board_groups
from emobench.report.site.links import links
from emobench.report.site.titles import group_titles
from emobench.report.tables import Notes
from emobench.tasks.scores import Measure

FLAGS = {"small_n": "few examples: shown, not ranked", "fewer_prompts": "fewer prompts than the limit asked for"}


class MetricColumn(NamedTuple):
    """A metric of a suite: `title` is its heading in one line, `places` its decimals in an entry's group."""

    key: str
    title: str
    places: int


class BoardData:
    """The index of a board (`plain`), and the columns in which each entry is shown (`columns`, by id)."""

    def __init__(self, entries: Sequence[Entry], examples_of: ExamplesOf | None, baseline: str | None = None) -> None:
        self.columns: dict[str, list[MetricColumn]] = {}
        self.plain: dict[str, Any] = {"suites": [], "groups": [], "entries": []}
        colours = slots(entry.objective.name for entry in entries)
        self.plain |= {"fields": FIELDS, "charts": page_charts(), "colours": colours}
        self._numbers: dict[str, int] = {}
        self._contrasts = PageContrasts(examples_of)
        by_suite: dict[str, list[BoardGroup]] = {}
        for group in board_groups(entries, examples_of):
            by_suite.setdefault(str(group.first.suite), []).append(group)
        for label in dict.fromkeys(str(entry.suite) for entry in entries):
            self._add(label, _SuiteOfPage(by_suite[label], baseline))

    def _add(self, label: str, suite: _SuiteOfPage) -> None:
        number = len(self.plain["suites"])
        for group in suite.groups:
            columns = suite.columns(group)
            for entry in group.rows:
                if entry.id not in self._numbers:
                    self._numbers[entry.id] = len(self._numbers)
                    self.plain["entries"].append({"suite": number, **_entry(entry)})
                    self.columns[entry.id] = columns
            numbers = [self._numbers[entry.id] for entry in group.rows]
            self.plain["groups"].append({"suite": number, **suite.group(group, numbers, self._contrasts)})
        facts = {"label": label, "metrics": suite.metrics, "baseline": suite.baseline, "legend": suite.legend()}
        self.plain["suites"].append(facts)


class _SuiteOfPage:
    """One suite version: its comparable groups and the metrics of all of them as columns.

    Where each group is of one task, and groups of several, a column is a metric of any task, such as "mauve": corpora
    stand below one another. Else it is a metric of one task, "sst2/accuracy".
    """

    def __init__(self, groups: Sequence[BoardGroup], baseline: str | None) -> None:
        self.groups = groups
        named = any(entry.objective.name == baseline for group in groups for entry in group.rows)
        self.baseline = baseline if named else _default_baseline(groups)
        tasks = [{key.split("/", 1)[0] for key in group.metrics} for group in groups]
        one_task = len(set().union(*tasks)) == 1
        self._any_task = not one_task and all(len(of_group) == 1 for of_group in tasks)
        self.keys = list(dict.fromkeys(self._column(key) for group in groups for key in group.metrics))
        entries = [entry for group in groups for entry in group.rows]
        primary = {self._column(entry.primary) for entry in entries if entry.primary}
        secondary = {self._column(m) for e in entries for m, value in e.metrics.items() if value.secondary}
        self.keys.sort(key=lambda key: (not key.startswith(f"{MEAN}/"), key not in primary, key in secondary))
        self.metrics = [self._metric(key, one_task or self._any_task) for key in self.keys]
        self._notes = Notes()
        self._shown: dict[str, list[Entry]] = {}
        self._titles = group_titles([group.first for group in groups])

    def _column(self, key: str) -> str:
        """Return the column in which a metric stands."""
        return key.split("/", 1)[1] if self._any_task else key

    def _keys_of(self, group: BoardGroup) -> list[str]:
        """Return the columns' metrics in a group."""
        return [f"{group.metrics[0].split('/', 1)[0]}/{key}" if self._any_task else key for key in self.keys]

    def _metric(self, column: str, one_task: bool) -> dict[str, Any]:
        """Return a column: its heading is `name` over `head`, its tip `about`; `task` is "" where it is of any."""
        keys = [(group, self._keys_of(group)[self.keys.index(column)]) for group in self.groups]
        first = next(value for group, key in keys for e in group.rows if (value := group.value(e, key)))
        task, metric = ("", column) if self._any_task else column.split("/", 1)
        known = describe(metric)
        unit = figures.unit_label([first])
        name, head = (known.title, unit) if one_task else (task, f"{known.title} {unit}".strip())
        return {
            "key": column,
            "task": task,
            "name": name,
            "head": head,
            "title": f"{name} {head}".strip(),
            "about": _definition(column, known, first.higher_is_better),
            "fraction": first.unit == "fraction",
            "log": first.unit == "perplexity",
            "better": first.higher_is_better,
            "secondary": first.secondary,
        }

    def _places(self, group: BoardGroup) -> list[int]:
        keys = self._keys_of(group)
        return [figures.decimals([v for e in group.rows if (v := group.value(e, key))]) for key in keys]

    def columns(self, group: BoardGroup) -> list[MetricColumn]:
        titles = [metric["title"] for metric in self.metrics]
        columns = zip(self._keys_of(group), titles, self._places(group), strict=True)
        return [MetricColumn(*column) for column in columns]

    def group(self, group: BoardGroup, numbers: Sequence[int], contrasts: PageContrasts) -> dict[str, Any]:
        """Return a group: its rows are [entry's number, label, rank or why there is none, n, cells]."""
        rows, first, places, keys = group.rows, group.first, self._places(group), self._keys_of(group)
        named = [i for i, entry in enumerate(rows) if entry.objective.name == self.baseline]
        above = self._shown.setdefault(first.model.name, [])
        tasks = [key.split("/", 1)[0] for key in group.standings.metrics]
        shared = captions.conditions(rows, list(dict.fromkeys(tasks)), above)
        above.append(first)
        cells = [
            [self._cell(group, entry, key, place) for key, place in zip(keys, places, strict=True)] for entry in rows
        ]
        ranking = group.standings.ranking
        ranks = ranking.places if ranking else {}
        size = [f"{figures.large(first.model.parameters)} parameters"] if first.model.parameters else []
        ranks_of = [ranks.get(entry.id) or _unranked(ranking, entry) for entry in rows]
        counts = [_counts(entry, group.standings.metrics) for entry in rows]
        names = labels(rows, group.standings.older)
        return {
            "title": self._titles[self.groups.index(group)],
            "lines": [*size, *shared],
            "protocols": dict(first.protocols),
            "recipe": content_hash(to_plain(first.recipe))[:12],
            "rows": list(zip(numbers, names, ranks_of, counts, cells, strict=True)),
            "baseline": named[0] if named else None,
            "places": places,
            "tests": contrasts.of(rows, named[0] if named else 0, keys),
        }

    def _cell(self, group: BoardGroup, entry: Entry, key: str, places: int) -> dict[str, Any] | str | None:
        """Return a cell: facts of what was measured, the reason of what is missing, or None."""
        metric = group.value(entry, key)
        if metric is None:
            return entry.missing.get(key)
        text, _, spread = figures.number(metric, places).partition(" ± ")
        low, high = metric.ci95 or (None, None)
        ends = {"mean": metric.mean, "low": low, "high": high}
        flags = [flag_text(flag) for flag in metric.flags]
        facts = {
            **{n: float(f"{end * figures.scale(metric.unit):.6g}") for n, end in ends.items() if end is not None},
            "text": text,
            "spread": spread,
            "interval": metric.ci95 and figures.interval_of(metric, places),
            "about": "; ".join(flags),
            "marks": " ".join(map(str, self._notes.number(flags))),
            "best": group.standings.best.get(key) == entry.id,
        }
        return {name: value for name, value in facts.items() if value not in (None, "", False)}

    def legend(self) -> str:
        """Return what the table's marks mean; asked for after all groups."""
        ranked = [group.standings for group in self.groups if group.ranked]
        sentences = ["Mean ± standard deviation over seeds. – not measured: the entry says why."]
        untested = [why for group in ranked for why in group.untested.values()]
        if any(top for group in ranked for top in group.best.values()):
            sentences.append("★ better than every other objective of its group beyond noise (two-sided 5 %).")
        elif untested:
            sentences.append(f"Nothing is marked as best: {untested[0]}.")
        if any(group.ranking and group.ranking.places for group in ranked):
            sentences.append(
                "Rank: 1 + the rows that are better beyond noise (Holm over all pairs); tied rows share a rank."
            )
        sentences += [f"{note}." for note in self._notes.lines()]
        if len(self.groups) > 1:
            sentences.append("Rows are sorted within their group: only these may be ranked together.")
        if len(ranked) < len(self.groups):
            count = f"{len(self.groups) - len(ranked)} of {len(self.groups)} groups"
            sentences.append(f"{count} are too large for stars and ranks here: emobench leaderboard show has them.")
        return " ".join(sentences)


def _definition(key: str, known: Measure, better: bool | None) -> str:
    """Return what a heading's tip says, in lines."""
    task = key.split("/", 1)[0]
    way = {True: "Higher is better.", False: "Lower is better.", None: "Neither way is better."}[better]
    if task == MEAN:
        return "\n".join(["The mean over the tasks of the suite.", *filter(None, [known.definition]), way])
    source = f" ({known.source})" if known.source else ""
    return "\n".join(filter(None, [known.definition + source, way, key]))


def _unranked(ranking: Ranking | None, entry: Entry) -> str | None:
    """Return why a row has no rank, where that is known."""
    return ranking and (ranking.unranked.get(entry.id) or (f"not ranked: {ranking.remark}" if ranking.remark else None))


def _counts(entry: Entry, keys: Sequence[str]) -> list[int]:
    """Return the fewest and the most examples behind a value of a row, once where they are equal."""
    counts = {entry.metrics[key].n or 0 for key in keys if key in entry.metrics} - {0}
    return sorted({min(counts), max(counts)}) if counts else []


def _default_baseline(groups: Sequence[BoardGroup]) -> str | None:
    """Return the objective that most groups have beside another one; of several, the one that was recorded first.

    Where no group has two, each one counts.
    """
    trained = [(place, entry) for place, group in enumerate(groups) for entry in group.rows if not entry.untrained]
    recorded = sorted(trained, key=lambda pair: (pair[1].provenance.created, pair[1].id))
    named = list(dict.fromkeys((entry.objective.name, place) for place, entry in recorded))
    in_group = Counter(place for _, place in named)
    counts = Counter(name for name, place in named if in_group[place] > 1) or Counter(name for name, _ in named)
    return max(counts, key=counts.__getitem__, default=None)


def _entry(entry: Entry) -> dict[str, Any]:
    tokens = entry.cost.tokens and entry.cost.tokens / max(len(entry.seeds), 1)
    sizes = {"parameters": entry.model.parameters, "tokens": tokens}
    return {
        "id": entry.id,
        "kind": entry.kind,
        "objective": entry.objective.label,
        "name": entry.objective.name,
        "untrained": entry.untrained,
        "model": entry.model.name,
        "seeds": len(entry.seeds),
        "created": entry.provenance.created[:10],
        "sizes": {name: [size, figures.large(size)] for name, size in sizes.items() if size},
    }


def details(entry: Entry, columns: Sequence[MetricColumn]) -> dict[str, Any]:
    """Return all that an entry holds, and the conditions that a comparable one shares, under names for people."""
    plain_entry = to_plain(entry)
    repeated = [c for c in columns if c.key in entry.metrics and entry.metrics[c.key].components]
    return {
        "entry": {**plain_entry, "source": published(plain_entry["source"])},
        "conditions": conditions(entry),
        "links": links(entry),
        "metrics": [_metric(entry, c) for c in columns if c.key in entry.metrics or c.key in entry.missing],
        "noise": [[column.title, *noise_row([entry.metrics[column.key]])] for column in repeated],
    }


def flag_text(flag: str) -> str:
    return FLAGS.get(flag, flag.replace("_", " "))


def _metric(entry: Entry, column: MetricColumn) -> list[str]:
    """Return a row: title, mean, std, interval, what that covers, n, values; of what is missing title and reason."""
    metric = entry.metrics.get(column.key)
    if metric is None:
        return [column.title, f"not measured: {entry.missing[column.key]}"]
    covers = (metric.ci95_of if metric.ci95 else metric.ci95_missing) or "none"
    return [
        column.title,
        figures.plain(metric.mean, metric.unit, column.places),
        ABSENT if metric.std is None else figures.plain(metric.std, metric.unit, column.places),
        figures.interval_of(metric, column.places),
        "; ".join([covers, *map(flag_text, metric.flags)]),
        ABSENT if metric.n is None else f"{metric.n:,}",
        "  ".join(figures.plain(value, metric.unit, column.places) for value in metric.values),
    ]
