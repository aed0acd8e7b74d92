"""The text of a leaderboard table, one grid for each comparable group; `table.py` draws it.

A grid has a row for each entry and a column for each metric. Fractions are shown as percent, and no control
character of a name, a task or a reason reaches a terminal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from emobench.config import content_hash
from emobench.leaderboard.comparison import differences, groups
from emobench.leaderboard.entry import Entry, MetricSummary

RunExamples = Mapping[str, Mapping[str, tuple[float, float]]]
"""Metric -> example -> (value, weight), of one run."""

ExamplesOf = Callable[[Entry], Sequence[RunExamples] | None]
"""An entry -> the per-example results of its runs, or None where they are not at hand: then the seeds alone decide."""

ABSENT = "–"
NO_ENTRIES = "There is no entry yet. `emobench run` makes the first: the embedded default, offline, in a few minutes."
_UNITS = {"fraction": "%", "nats": "nats", "perplexity": "", "tokens": "tokens"}


@dataclass(frozen=True)
class Cell:
    text: str
    best: bool = False
    notes: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.text + ("*" if self.best else "") + marks(self.notes)


@dataclass(frozen=True)
class Column:
    """`unit` ends in the arrow that points to the better side."""

    name: str
    unit: str
    notes: tuple[int, ...] = ()

    def lines(self) -> str:
        """Return the header on two lines, for a narrow column."""
        return f"{self.name}\n{(self.unit + marks(self.notes)).strip()}"

    def __str__(self) -> str:
        return " ".join(filter(None, [self.name, self.unit])) + marks(self.notes)


@dataclass(frozen=True)
class Grid:
    """`cells[row][column]`; `subtitle` names the conditions that all rows share, and `notes` are numbered from 1."""

    title: str
    subtitle: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[Column, ...]
    cells: tuple[tuple[Cell, ...], ...]
    legend: tuple[str, ...]
    notes: tuple[str, ...]


def grids(entries: Sequence[Entry], examples_of: ExamplesOf | None = None) -> list[Grid]:
    """Return one grid for each group of comparable entries."""
    made: list[Grid] = []
    shown: dict[str, list[Entry]] = {}
    for group in groups(entries):
        group = sorted(group, key=lambda e: (not e.untrained, e.provenance.created, e.objective.label))
        like = shown.setdefault(f"{group[0].suite} {group[0].model.name}", [])
        made.append(_grid(group, best_rows(group, examples_of), like[0] if like else None))
        like.append(group[-1])
    return made


def best_rows(group: Sequence[Entry], examples_of: ExamplesOf | None = None) -> dict[str, str | None]:
    """Return metric -> id of the entry that is better than all others of its group beyond noise, or None."""
    from emobench.leaderboard.statistics import Series, best

    examples = {entry.id: (examples_of(entry) if examples_of else None) or () for entry in group}
    found: dict[str, str | None] = {}
    for metric in _metrics(group):
        rows = {}
        for entry in group:
            summary = entry.metrics.get(metric)
            seeds = () if entry.untrained and summary and len(summary.values) == 1 else entry.seeds
            if summary and len(summary.values) == max(len(seeds), 1):
                runs = [run[metric] for run in examples[entry.id] if metric in run]
                rows[entry.id] = Series.of(summary, seeds, runs if len(runs) == len(summary.values) else None)
        # A row that lacks the metric cannot be beaten on it.
        found[metric] = best(rows) if len(rows) == len(group) else None
    return found


def marks(notes: Sequence[int]) -> str:
    return "".join(f" [{note}]" for note in notes)


def clean(text: str) -> str:
    """Return text in one line, with anything that a terminal would act on replaced."""
    return "".join(c if c.isprintable() else "�" for c in text.replace("\n", " "))


def _grid(group: Sequence[Entry], best: Mapping[str, str | None], like: Entry | None) -> Grid:
    metrics, notes = _metrics(group), _Notes()
    tasks = list(dict.fromkeys(m.split("/", 1)[0] for m in metrics))
    columns, by_column = [], []
    for metric in metrics:
        heads, cells = _column(group, metric, best.get(metric), notes)
        name = metric if len(tasks) > 1 else metric.split("/", 1)[1]
        columns.append(Column(clean(name), _unit(group, metric), heads))
        by_column.append(cells)
    first = next((entry for entry in group if not entry.untrained), group[0])
    return Grid(
        title=clean(f"{first.suite} · {first.model.name}"),
        subtitle=tuple(clean(line) for line in (*_conditions(first, tasks, like), *_parameters(group))),
        rows=tuple(_labels(group)),
        columns=tuple(columns),
        cells=tuple(zip(*by_column, strict=True)) if by_column else tuple(() for _ in group),
        legend=(_legend(group, any(best.values())), *_other_code(group)),
        notes=tuple(notes.texts),
    )


class _Notes:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def number(self, text: str) -> int:
        text = clean(text)
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1


def _column(
    group: Sequence[Entry], metric: str, best: str | None, notes: _Notes
) -> tuple[tuple[int, ...], tuple[Cell, ...]]:
    """Return the header's footnotes (those that all cells share) and the cells of a metric."""
    decimals = _decimals([e.metrics[metric] for e in group if metric in e.metrics])
    remarks = [_remarks(entry, metric) for entry in group]
    shared = [r for r in remarks[0] if len(group) > 1 and all(r in other for other in remarks)]
    heads = tuple(notes.number(text) for text in shared)
    cells = []
    for entry, own in zip(group, remarks, strict=True):
        numbers = tuple(notes.number(text) for text in own if text not in shared)
        text = _number(entry.metrics[metric], decimals) if metric in entry.metrics else ABSENT
        cells.append(Cell(text, entry.id == best, numbers))
    return heads, tuple(cells)


def _remarks(entry: Entry, metric: str) -> list[str]:
    if metric not in entry.metrics:
        return [f"{metric}: {entry.missing.get(metric, 'not measured')}"]
    summary = entry.metrics[metric]
    texts = {"small_n": f"small n ({summary.n}): shown, not ranked"}
    return [f"{metric}: {texts.get(flag, flag.replace('_', ' '))}" for flag in summary.flags]


def _number(metric: MetricSummary, decimals: int) -> str:
    scale = 100 if metric.unit == "fraction" else 1
    spread = "" if metric.std is None else f" ± {metric.std * scale:.{decimals}f}"
    return f"{metric.mean * scale:.{decimals}f}{spread}"


def _decimals(metrics: Sequence[MetricSummary]) -> int:
    """Return 1 decimal (3 for nats), and up to 3 where the smallest spread would otherwise show as zero."""
    scale = 100 if metrics and metrics[0].unit == "fraction" else 1
    base = 3 if metrics and metrics[0].unit == "nats" else 1
    spreads = [m.std * scale for m in metrics if m.std]
    needed = math.ceil(-math.log10(min(spreads))) if spreads else base
    return min(max(base, needed), 3)


def _unit(group: Sequence[Entry], metric: str) -> str:
    found = [entry.metrics[metric] for entry in group if metric in entry.metrics]
    if not found:
        return ""
    unit = _UNITS.get(found[0].unit, clean(found[0].unit))
    arrow = {True: "↑", False: "↓", None: ""}[found[0].higher_is_better]
    return " ".join(filter(None, [f"({unit})" if unit else "", arrow]))


def _metrics(group: Sequence[Entry]) -> list[str]:
    """Return the metrics of the trained rows, in the fullest row's order; a `pretrained` row may have more."""
    rows = sorted([e for e in group if not e.untrained] or group, key=lambda e: -len(e.metrics))
    return list(dict.fromkeys(m for entry in rows for m in (*entry.metrics, *entry.missing)))


def _labels(group: Sequence[Entry]) -> list[str]:
    """Return the objectives, with the parameters in which rows of one objective differ, or else the entry's id."""
    shared = _shared_params(group)
    labels = []
    for entry in group:
        own = {k: v for k, v in entry.objective.params.items() if k not in shared[entry.objective.name]}
        labels.append(clean(replace(entry.objective, params=own).label))
    return [f"{t} [{e.id[:6]}]" if labels.count(t) > 1 else t for t, e in zip(labels, group, strict=True)]


def _other_code(group: Sequence[Entry]) -> list[str]:
    """Return a sentence for each objective whose rows differ in their code alone."""
    found: dict[str, dict[str, str | None]] = {}
    for entry in group:
        found.setdefault(entry.objective.label, {})[entry.id[:6]] = entry.objective.source_sha256
    return [
        f"{', '.join(f'[{i}]' for i in codes)}: the same name and parameters, other code."
        for codes in found.values()
        if len({code for code in codes.values() if code}) > 1
    ]


def _shared_params(group: Sequence[Entry]) -> dict[str, dict[str, Any]]:
    """Return objective name -> the parameters that all of its rows have alike."""
    shared: dict[str, dict[str, Any]] = {}
    for entry in group:
        params = entry.objective.params
        kept = shared.setdefault(entry.objective.name, dict(params))
        shared[entry.objective.name] = {k: v for k, v in kept.items() if k in params and params[k] == v}
    return shared


def _parameters(group: Sequence[Entry]) -> list[str]:
    named = [
        f"{name} with {', '.join(f'{k}={v}' for k, v in p.items())}" for name, p in _shared_params(group).items() if p
    ]
    return ["; ".join(named)] if named else []


def _conditions(entry: Entry, tasks: Sequence[str], like: Entry | None) -> list[str]:
    protocols = {task: entry.protocols.get(task, "none") for task in tasks or entry.protocols}
    same = len(set(protocols.values())) == 1
    shown = next(iter(protocols.values())) if same else ", ".join(f"{t} {p}" for t, p in protocols.items())
    local = any("(local" in digest for digest in entry.provenance.data.values())
    fingerprints = {name: digest.partition(" ")[0] for name, digest in entry.provenance.data.items()}
    data = content_hash(fingerprints)[:6] + (" (local)" if local else "")
    corpus = entry.recipe.get("corpus")
    recipe = clean(str(entry.recipe.get("name", "")) + (f" on {corpus}" if corpus else ""))
    first = " · ".join(filter(None, [f"protocol {shown}", f"recipe {recipe}" if recipe else "", f"data {data}"]))
    if like is None:
        return [first]
    # What a person chose says more than the hashes that follow from it.
    apart = sorted(differences(like, entry), key=lambda text: text.startswith("data of "))
    more = f", and {len(apart) - 3} more" if len(apart) > 3 else ""
    return [first, f"Not ranked with the table above: {'; '.join(apart[:3])}{more}."]


def _legend(group: Sequence[Entry], marked: bool) -> str:
    counts = sorted({len(entry.seeds) for entry in group if not entry.untrained})
    if not counts or counts[-1] < 2:
        said = "Values of one seed" if counts == [1] else "Single values"
        return f"{said}, which cannot tell objectives apart: nothing is marked as best (--seed 0 --seed 1 --seed 2)."
    many = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    spread = f"Mean ± standard deviation over {many} seeds."
    if len(group) < 2:
        return spread
    noise = "the noise of seeds and test examples"
    mark = (
        f"* better than every other row beyond {noise}"
        if marked
        else f"No row is better than every other beyond {noise}"
    )
    return f"{spread} {mark} (two-sided 5 %, Holm over the rows, paired by seed)."
