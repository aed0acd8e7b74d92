"""A board as a page wants it: an index for its table and charts, and the details of each entry.

The index holds, by number: `suites` with their metrics, `groups` of comparable entries, and `entries`. Numbers that are
shown are text here; those for charts and sorting are rounded to more digits. All comparisons that a page shows are
computed when it is built. Comparable groups have stars and ranks where the page can afford the tests.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, NamedTuple

from emobench.core.settings import content_hash, to_plain
from emobench.leaderboard.comparable import conditions, groups, older_code
from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.labels import MEAN, clean, labels
from emobench.leaderboard.private_paths import published
from emobench.leaderboard.query.standings import Standings, View, group_metrics, standings
from emobench.leaderboard.run_files import ExamplesOf
from emobench.leaderboard.stats.classical import MIN_SEEDS, SMALL_N_FLAG
from emobench.leaderboard.stats.compare import NO_VERDICT, Contrast, compare, series_reader
from emobench.leaderboard.stats.series import mean_summary
from emobench.registry.measures import describe
from emobench.report import notes as captions
from emobench.report.baseline import default_baseline
from emobench.report.charts.compare_chart import PAGE_VERDICTS, forest, unit_of
from emobench.report.compare_table import noise_row
from emobench.report.numbers import (
    ABSENT,
    contrast_effect,
    contrast_ends,
    contrast_interval,
    contrast_texts,
    decimals,
    effect_decimals,
    interval_of,
    large,
    number,
    p_value,
    plain,
    scale,
    unit_label,
)
from emobench.report.palette import slots
from emobench.report.site.finding import GroupDifference, finding
from emobench.report.site.runs import Plain, links
from emobench.report.tables import Notes
from emobench.report.tuning import tuning_panels

ALL_PAIRS = 12
"""Entries of a group of which every pair is compared; of more, each with the baseline."""
BUDGET = 1500
"""Pairs of one page. It names the command that compares any others."""
MOST_TIES = 400
"""Ties of which a page says what would decide them; each takes some milliseconds."""
FIELDS: tuple[str, ...] = (
    "baseline", "candidate", "metric", "effect", "low", "high", "unit", "text", "interval", "p", "family", "detectable",
    "word", "why", "test", "within",
)  # fmt: skip
"""A contrast on a page: `baseline` and `candidate` are places in the group, `metric` is one of the suite."""
RANK_BUDGET = 15_000
"""Pairs of rows that are tested for the ranks of a page."""
LONGEST = 40
"""Letters of a value in a title."""
NONE = "default"
COUNTED = {"limit": "examples", "max_tokens": "training tokens", "epochs": "epochs"}
"""Settings that are counts, and of what."""
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
        return captions.representative(self.rows)

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
            older = older_code(members)
            rows = sorted(members, key=lambda one: (one.id in older, not one.untrained, one.provenance.created, one.id))
            metrics = View().shown(group_metrics(rows), rows)
            shown = Standings(rows=tuple(rows), older=older, metrics=tuple(_measured(metrics, rows)))
        made.append(BoardGroup(shown, ranked))
    judged = {group.first.model.name for group in made if group.judged}

    def place(group: BoardGroup) -> tuple[bool, int, str, bool, str, str]:
        entry = group.first
        model, size = entry.model.name, entry.model.parameters or 0
        created = entry.provenance.created
        return model not in judged, size, model, not group.judged, created, entry.id

    return sorted(made, key=place)


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
        facts["recipe.name"] = "as it is"
    if entry.declared:
        facts["recipe.name"] += " (declared)"
    for name, value in facts.items():
        if value.startswith("sha256:"):
            value = value[7:13]
        text = clean(value)
        if len(text) > LONGEST:
            text = text[:LONGEST] + "…"
        facts[name] = text
    return facts


def _distinguishing(facts: Sequence[Mapping[str, str]], chosen: list[str]) -> list[str]:
    """Return the names of facts that distinguish the groups, by tier: those chosen, and each that adds to them."""

    def kinds(names: Sequence[str]) -> int:
        return len(set(map(itemgetter(*names), facts))) if names else 1

    for start in TIERS:
        for name in sorted(facts[0]):
            if name.startswith(start) and kinds([*chosen, name]) > kinds(chosen):
                chosen = [*chosen, name]
    return chosen


def _word(name: str, value: str) -> str:
    if name in ("tasks", "protocols", "recipe.name") or name.startswith("protocol of "):
        return value
    setting = name.removeprefix("recipe.").removeprefix("rule ")
    if setting == name:
        return f"{name} {value}"
    counted = COUNTED.get(setting)
    words = "LoRA" if setting == "lora" else re.sub(r"[._]", " ", setting)
    if value == NONE:
        return f"default number of {counted}" if counted else f"default {words}"
    if value in ("True", "False"):
        return words if value == "True" else f"no {words}"
    if counted and value.isdecimal():
        return f"{int(value):,} {counted}"
    return f"{words} {value}"


class MetricColumn(NamedTuple):
    """A metric of a suite: `title` is its heading in one line, `places` its decimals in an entry's group."""

    key: str
    title: str
    places: int


class BoardData:
    """The index of a board (`plain`), the groups of each suite, and the entries in order, each with its columns."""

    def __init__(self, entries: Sequence[Entry], examples_of: ExamplesOf | None, baseline: str | None = None) -> None:
        groups_of: dict[str, list[BoardGroup]] = {}
        for group in board_groups(entries, examples_of):
            groups_of.setdefault(str(group.first.suite), []).append(group)
        contrasts = PageContrasts(examples_of)
        self.entries: list[tuple[Entry, list[MetricColumn]]] = []
        self.groups: list[list[Plain]] = []
        suites: list[Plain] = []
        plain_entries: list[Plain] = []
        numbers: dict[str, int] = {}  # an entry's id -> its place in `plain_entries`
        for place, label in enumerate(dict.fromkeys(str(entry.suite) for entry in entries)):
            suite = _Suite(groups_of[label], baseline)
            titles = group_titles([group.first for group in suite.groups])
            self.groups.append([])
            for group, title in zip(suite.groups, titles, strict=True):
                columns = suite.columns(group)
                for entry in group.rows:
                    numbers[entry.id] = len(plain_entries)
                    plain_entries.append({"suite": place, **_entry(entry)})
                    self.entries.append((entry, columns))
                self.groups[-1].append({"title": title, **suite.group(group, numbers, contrasts)})
            shown = {
                "label": label,
                "metrics": suite.metrics,
                "baseline": suite.baseline,
                "legend": suite.legend(),
                "finding": finding(suite.baseline, suite.differences, untested=suite.untested),
            }
            suites.append(shown)
        self.plain: Plain = {
            "suites": suites,
            "entries": plain_entries,
            "fields": FIELDS,
            # The page fills in the rows and "$unit" (`forestSpec` in charts.js).
            "forest": forest([], "$unit", "var(--text)", PAGE_VERDICTS),
            "colours": slots(entry.objective.name for entry in entries),
        }


class _Suite:
    """One suite version: its comparable groups and the metrics of all of them as columns.

    If each group is of one task, and groups are of several, a column is a metric of any task, such as "mauve": corpora
    stand below one another. Else it is a metric of one task, "sst2/accuracy".
    """

    def __init__(self, groups: Sequence[BoardGroup], baseline: str | None) -> None:
        self.groups = groups
        entries = list(chain.from_iterable(group.rows for group in groups))
        self.baseline = baseline
        if all(entry.objective.name != baseline for entry in entries):
            self.baseline = default_baseline(entries)
        tasks: Counter[str] = Counter()
        for group in groups:
            tasks.update(set(map(captions.task_of, group.metrics)))
        self._one_task = len(tasks) == 1
        self._any_task = not self._one_task and tasks.total() == len(groups)
        primary = {self._column(entry.primary) for entry in entries if entry.primary}
        self._firsts: dict[str, MetricSummary] = {}
        """The first value of each column."""
        for entry in entries:
            for key, summary in entry.metrics.items():
                self._firsts.setdefault(self._column(key), summary)
                self._firsts.setdefault(f"{MEAN}/{key.split('/', 1)[1]}", summary)

        def place(key: str) -> tuple[bool, bool, bool]:
            return not key.startswith(f"{MEAN}/"), key not in primary, self._firsts[key].secondary

        keys = chain.from_iterable(group.metrics for group in groups)
        self.keys = sorted(dict.fromkeys(map(self._column, keys)), key=place)
        self.metrics = list(map(self._metric, self.keys))
        self.differences: list[GroupDifference] = []
        """From the baseline, of the groups that `group` was called for."""
        self.untested = False
        self._notes = Notes()
        self._above: dict[str, list[Entry]] = {}

    def _column(self, key: str) -> str:
        """Return the column in which a metric stands."""
        return key.split("/", 1)[1] if self._any_task else key

    def _metric(self, key: str) -> Plain:
        """Return a column: its heading is `name` over `head`, its tip `about`; `task` is "" if it is of any."""
        first = self._firsts[key]
        task, metric = ("", key) if self._any_task else key.split("/", 1)
        known, unit = describe(metric), unit_label([first])
        name, head = task, f"{known.title} {unit}".strip()
        short = f"{task} {known.title}"
        if self._one_task or self._any_task:
            name, head, short = known.title, unit, known.title
        if task == MEAN:
            lines = ["The mean over the tasks of the suite.", known.definition, BETTER[first.higher_is_better]]
        else:
            source = f" ({known.source})" if known.source else ""
            lines = [known.definition + source, BETTER[first.higher_is_better], key]
        return {
            "key": key,
            "task": task,
            "name": name,
            "head": head,
            "title": f"{name} {head}".strip(),
            "short": short,
            "about": "\n".join(filter(None, lines)),
            "fraction": first.unit == "fraction",
            "log": first.unit == "perplexity",
            "better": first.higher_is_better,
            "secondary": first.secondary,
        }

    def columns(self, group: BoardGroup) -> list[MetricColumn]:
        keys = self.keys
        if self._any_task:
            task = captions.task_of(group.metrics[0])
            keys = [f"{task}/{key}" for key in keys]
        columns = []
        for key, metric in zip(keys, self.metrics, strict=True):
            values = filter(None, map(group.value, group.rows, repeat(key)))
            places = decimals(list(values))
            columns.append(MetricColumn(key, metric["title"], places))
        return columns

    def group(self, group: BoardGroup, numbers: Mapping[str, int], contrasts: PageContrasts) -> Plain:
        """Return a group: its rows are [entry's number, label, rank or why there is none, counts, cells]."""
        first, ranking, columns = group.first, group.standings.ranking, self.columns(group)
        metrics = group.standings.metrics
        above = self._above.setdefault(first.model.name, [])
        tasks = list(dict.fromkeys(map(captions.task_of, metrics)))
        lines = captions.conditions(group.rows, tasks, above)
        above.append(first)
        if first.model.parameters:
            lines.insert(0, f"{large(first.model.parameters)} parameters")
        rows: list[list[Any]] = []
        for entry, label in zip(group.rows, labels(group.rows, group.standings.older), strict=True):
            rank: int | str | None = None
            if ranking:
                rank = ranking.places.get(entry.id) or ranking.unranked.get(entry.id)
                rank = rank or (ranking.remark and f"not ranked: {ranking.remark}")
            cells = [self._cell(group, entry, column) for column in columns]
            rows.append([numbers[entry.id], label, rank, _counts(entry, metrics), cells])
        names = [entry.objective.name for entry in group.rows]
        baseline = None
        if self.baseline in names:
            baseline = names.index(self.baseline)
        compared = contrasts.of(group.rows, baseline or 0, [column.key for column in columns])
        self.untested |= len(group.rows) > 1 and not compared
        for base, place, metric, contrast in sorted(compared, key=itemgetter(1, 2)):
            if base == baseline and not group.rows[place].untrained:
                name = self.metrics[metric]["short"]
                row = rows[place][1]
                self.differences.append(GroupDifference(id(group), row, name, contrast, group.rows[place]))
        tuning = []
        if any(entry.tuning is not None for entry in group.rows):
            tuning = tuning_panels(group.rows)
        return {
            "lines": lines,
            "tuning": tuning,
            "protocols": dict(first.protocols),
            "recipe": content_hash(to_plain(first.recipe))[:12],
            "rows": rows,
            "baseline": baseline,
            "places": [column.places for column in columns],
            "tests": contrasts.both_ways(group.rows, compared),
        }

    def _cell(self, group: BoardGroup, entry: Entry, column: MetricColumn) -> Plain | str | None:
        """Return a cell: the facts of a value, the reason why it is missing, or None."""
        metric = group.value(entry, column.key)
        if metric is None:
            return entry.missing.get(column.key)
        text, _, spread = number(metric, column.places).partition(" ± ")
        flags = captions.flag_texts(metric)
        facts: Plain = {"text": text, "spread": spread, "about": "; ".join(flags)}
        facts["interval"] = metric.ci95 and interval_of(metric, column.places)
        facts["marks"] = " ".join(map(str, self._notes.number(flags)))
        facts["best"] = group.standings.best.get(column.key) == entry.id
        facts["small"] = SMALL_N_FLAG in metric.flags
        for name in list(facts):
            if not facts[name]:
                del facts[name]
        for name, value in zip(("mean", "low", "high"), (metric.mean, *(metric.ci95 or ())), strict=False):
            facts[name] = float(f"{value * scale(metric.unit):.6g}")
        return facts

    def legend(self) -> str:
        """Return what the table's marks mean; called after all groups."""
        ranked = [group.standings for group in self.groups if group.ranked]
        sentences = ["Mean ± sd over seeds."]
        best, untested = [], []
        for group in ranked:
            best += group.best.values()
            untested += group.untested.values()
        if any(best):
            sentences.append("★ better than every other row of its group (two-sided 5 %).")
        elif untested:
            sentences.append(f"No ★: {untested[0]}.")
        for note in self._notes.lines():
            sentences.append(f"{note}.")
        if len(self.groups) > 1:
            sentences.append("Only rows of one group are comparable.")
        if len(ranked) < len(self.groups):
            sentences.append("Groups without ★ and ranks are too large for a page: emobench leaderboard show.")
        return " ".join(sentences)


BETTER = {True: "Higher is better.", False: "Lower is better.", None: "No better direction."}


def _counts(entry: Entry, metrics: Sequence[str]) -> list[int]:
    """Return the fewest and the most examples of an entry's metrics, once if they are equal."""
    counts = set()
    for key in metrics:
        if key in entry.metrics and (n := entry.metrics[key].n):
            counts.add(n)
    return sorted({min(counts), max(counts)}) if counts else []


def _entry(entry: Entry) -> Plain:
    sizes = {}
    if entry.model.parameters:
        sizes["parameters"] = [entry.model.parameters, large(entry.model.parameters)]
    if entry.cost.tokens:
        tokens = entry.cost.tokens / max(len(entry.seeds), 1)
        sizes["tokens"] = [tokens, large(tokens)]
    return {
        "id": entry.id,
        "kind": entry.kind,
        "objective": entry.objective.label,
        "name": entry.objective.name,
        "untrained": entry.untrained,
        "model": entry.model.name,
        "seeds": len(entry.seeds),
        "created": entry.provenance.created[:10],
        "sizes": sizes,
    }


def details(entry: Entry, columns: Sequence[MetricColumn]) -> Plain:
    """Return all that an entry holds, and the conditions that comparable ones share.

    A row of `metrics` is title, mean, deviation, interval, what that covers, n, values; or title and why it is missing.
    """
    rows: list[list[str]] = []
    noise = []
    for key, title, places in columns:
        metric = entry.metrics.get(key)
        if metric is None:
            if key in entry.missing:
                rows.append([title, f"not measured: {entry.missing[key]}"])
            continue
        if metric.components:
            noise.append([title, *noise_row([metric])])
        covers = (metric.ci95_of if metric.ci95 else metric.ci95_missing) or "none"
        values = [plain(value, metric.unit, places) for value in metric.values]
        row = [title, plain(metric.mean, metric.unit, places), ABSENT, interval_of(metric, places)]
        if metric.std is not None:
            row[2] = plain(metric.std, metric.unit, places)
        row += ["; ".join([covers, *captions.flag_texts(metric)]), ABSENT, "  ".join(values)]
        if metric.n is not None:
            row[5] = f"{metric.n:,}"
        rows.append(row)
    facts = to_plain(entry)
    return {
        "entry": {**facts, "source": published(facts["source"])},
        "conditions": conditions(entry),
        "links": links(entry),
        "metrics": rows,
        "noise": noise,
    }


PlacedContrast = tuple[int, int, int, Contrast]
"""The place of the baseline, that of the candidate, that of the metric, and the contrast."""


class PageContrasts:
    """Compares entries of comparable groups until the page's budget of pairs is spent."""

    def __init__(self, examples_of: ExamplesOf | None) -> None:
        self._left, self._ties = BUDGET, MOST_TIES
        self._examples_of = examples_of

    def of(self, group: Sequence[Entry], baseline: int, keys: Sequence[str]) -> list[PlacedContrast]:
        """Return the contrasts of each pair.

        A large group has the pairs with its baseline alone; these come first.
        """
        numbers = {key: place for place, key in enumerate(keys)}
        order = sorted(range(len(group)), key=lambda place: place != baseline)
        pairs: list[PlacedContrast] = []
        series = series_reader(self._examples_of)
        for index, base in enumerate(order[:-1]):
            candidates = order[index + 1 :]
            if len(candidates) > self._left or (index and len(group) > ALL_PAIRS):
                break
            self._left -= len(candidates)
            compared = compare(group[base], [group[place] for place in candidates], series=series)
            for place in candidates:
                for contrast in compared.of(group[place]):
                    if contrast.metric in numbers:
                        pairs.append((base, place, numbers[contrast.metric], contrast))
        return pairs

    def both_ways(self, group: Sequence[Entry], pairs: Sequence[PlacedContrast]) -> list[list[Any]]:
        """Return contrasts in both directions, as lists of `FIELDS`; the first `MOST_TIES` ties say what decides."""
        shown = []
        for base, place, metric, contrast in pairs:
            for first, second, one in ((base, place, contrast), (place, base, _turned(contrast))):
                deciding = ""
                if one.verdict == "tied" and self._ties:
                    self._ties -= 1
                    if text := captions.deciding_text(one, group[base]):
                        deciding = f"To decide {text} (80 % power, 95 % intervals)."
                shown.append([first, second, metric, *_shown(one, deciding)])
        return shown


def _turned(contrast: Contrast) -> Contrast:
    """Return the same contrast with the candidate as baseline."""
    within = []
    for seed, one in contrast.within:
        interval = one.ci95 and (-one.ci95[1], -one.ci95[0])
        within.append((seed, replace(one, effect=-one.effect, ci95=interval)))
    verdict = contrast.verdict
    if contrast.beyond_noise:
        verdict = "worse" if verdict == "better" else "better"
    interval = contrast.ci95 and (-contrast.ci95[1], -contrast.ci95[0])
    return replace(
        contrast,
        effect=-contrast.effect,
        ci95=interval,
        verdict=verdict,
        within=tuple(within),
        baseline_mean=contrast.candidate_mean,
        candidate_mean=contrast.baseline_mean,
    )


def _shown(contrast: Contrast, deciding: str) -> list[Any]:
    """Return what `FIELDS` keep of a contrast, after its places: numbers for charts, and text."""
    places = effect_decimals(contrast)
    within = []
    for seed, one in contrast.within:
        size, interval = contrast_effect(contrast, one.effect, places), contrast_interval(contrast, one.ci95, places)
        within.append([ABSENT if seed is None else str(seed), size, interval, p_value(one.p), one.test])
    facts = {**contrast_ends(contrast), "unit": unit_of(contrast), **contrast_texts(contrast), "family": ABSENT}
    if contrast.p_holm is not None:
        adjusted = "not adjusted" if contrast.tests == 1 else f"{contrast.tests} tests (Holm)"
        facts["family"] = f"{contrast.family}, {adjusted}"
    why = " ".join(filter(None, [*contrast.notes, deciding])).removeprefix(f"{NO_VERDICT}, without a verdict: ")
    facts |= {"word": contrast.word or ABSENT, "why": why or ABSENT, "test": contrast.test or ABSENT}
    return [facts[name] for name in FIELDS[3:-1]] + [within]
