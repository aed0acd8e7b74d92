"""A figure of scaling, repeated: a score over the size of the model, and over the number of training tokens.

Its points are plain runs: each model on the most tokens, and the last model on fewer, too. Fewer tokens are the first
ones of more (`recipe.max_tokens` takes the first rows of a packed corpus), and the point that both panels have is made
once. Finished ones are reused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean
from typing import Any

from emobench.core.errors import ConfigError, DataError
from emobench.core.settings import PRETRAINED
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.stats.log_line import LogLine, fit_log_line
from emobench.reproduce.requests import at_scale, scale_of
from emobench.reproduce.run import check_rows, joined_outline, measure_rows, row_outlines
from emobench.runs.dry_run import Outline, Read
from emobench.runs.execution.reporter import Reporter
from emobench.runs.planning.ingredients import shown_name
from emobench.runs.planning.request import Request
from emobench.tasks.table import Table

MODEL, DATA = "model", "data"


@dataclass(frozen=True, kw_only=True)
class Point:
    """One row at one size."""

    panel: str
    """`MODEL` or `DATA`."""
    row: str
    objective: str
    """With its parameters, which may have been chosen for this point."""
    model: str
    size: int
    """Parameters of the model, or training tokens that were asked for."""
    values: tuple[float, ...]
    """The mean over the tasks, for each seed."""
    entry: str


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """The measured points of a figure, and the lines through them."""

    title: str
    metric: str
    tasks: tuple[str, ...]
    """Those that every entry has."""
    points: tuple[Point, ...]
    remarks: tuple[str, ...]

    def lines(self) -> dict[tuple[str, str], LogLine]:
        """Return the line of each row in each panel that has two sizes or more.

        A model without training is the same at each number of tokens, so that it has no line there.
        """
        scores: dict[tuple[str, str], dict[float, list[float]]] = {}
        for point in self.points:
            if point.panel == DATA and point.objective == PRETRAINED:
                continue
            scores.setdefault((point.panel, point.row), {}).setdefault(point.size, []).extend(point.values)
        fitted: dict[tuple[str, str], LogLine] = {}
        for name, values in scores.items():
            line = fit_log_line(values)
            if line is not None:
                fitted[name] = line
        return fitted


@dataclass(frozen=True)
class Step:
    """A model on some tokens: a request, and the panels that it is a point of."""

    model: str
    tokens: int
    panels: tuple[str, ...]
    request: Request

    @property
    def title(self) -> str:
        return f"{shown_name(self.model)}, {self.tokens:,} tokens"


def outline_scaling(
    table: Table, request: Request, models: Sequence[str], scale: str | None = None, *, exact: bool = True
) -> Outline:
    """Return the dry run of a figure."""
    steps, remarks = steps_of(table, request, models, scale)
    read = Read()
    outlines: list[Outline] = []
    for step in steps:
        outlines += row_outlines(table, step.request, step.title, exact=exact, read=read)
    return joined_outline(table, outlines, remarks)


def reproduce_scaling(
    table: Table, request: Request, models: Sequence[str], reporter: Reporter, scale: str | None = None
) -> Scaling:
    """Repeat a figure of scaling; `models` are instead of its own, from small to large."""
    steps, remarks = steps_of(table, request, models, scale)
    cache = check_rows(table, [step.request for step in steps])
    measured: list[tuple[Step, list[Entry]]] = []
    for step in steps:
        reporter.note(step.title)
        rows = measure_rows(table, step.request, reporter, step.title, cache)
        cache = rows.ingredients
        remarks += [f"{step.title}: {remark}" for remark in rows.remarks]
        measured.append((step, rows.entries))
    tasks = _common(list(chain.from_iterable(entries for _, entries in measured)), table.metrics[0])
    points: list[Point] = []
    for step, entries in measured:
        points += _points(table, step, entries, tasks)
    return Scaling(
        title=f"{table.name}: {table.description}",
        metric=table.metrics[0],
        tasks=tasks,
        points=tuple(points),
        remarks=tuple(remarks),
    )


def steps_of(
    table: Table, request: Request, models: Sequence[str] = (), scale: str | None = None
) -> tuple[list[Step], list[str]]:
    """Return the requests of a figure, from small to large, and remarks on its scale."""
    chosen = scale_of(table, scale)
    remarks: list[str] = []
    names, tokens = list(models or table.models), list(table.tokens)
    if chosen is not None:
        names, tokens = list(models or chosen.models), list(chosen.tokens)
        request, remarks = at_scale(table, chosen, replace(request, model=names[-1]))
    if len(set(names)) < len(names):
        raise ConfigError(f"--model is given as {', '.join(names)}; expected each model once, from small to large.")
    if "max_tokens" in request.section("recipe"):
        raise ConfigError(f"--set recipe.max_tokens: {table.name} is over the number of tokens, and sets it; drop it.")

    def step(model: str, count: int, *panels: str) -> Step:
        settings: dict[str, Any] = dict(request.settings)
        settings["recipe"] = {**request.section("recipe"), "max_tokens": count}
        own = replace(request, model=request.stand_ins.get(model, model), settings=settings, stand_ins={})
        return Step(model, count, panels, replace(own, seeds=request.seeds or table.seeds))

    last, most = names[-1], tokens[-1]
    steps = [step(name, most, MODEL) for name in names[:-1]]
    steps += [step(last, count, DATA) for count in tokens[:-1]]
    return [*steps, step(last, most, MODEL, DATA)], remarks


def _common(entries: Sequence[Entry], metric: str) -> tuple[str, ...]:
    """Return the tasks whose metric every entry has."""
    tasks = list(entries[0].protocols)
    for entry in entries:
        tasks = [task for task in tasks if f"{task}/{metric}" in entry.metrics]
    if not tasks:
        raise DataError(f"No task has the metric {metric} for every model and number of tokens.")
    return tuple(tasks)


def _points(table: Table, step: Step, entries: Sequence[Entry], tasks: Sequence[str]) -> Iterator[Point]:
    for row, entry in zip(table.rows, entries, strict=True):
        by_task = [entry.metrics[f"{task}/{table.metrics[0]}"].values for task in tasks]
        values = tuple(fmean(of_seed) for of_seed in zip(*by_task, strict=True))
        for panel in step.panels:
            size = entry.model.parameters if panel == MODEL else step.tokens
            assert size is not None
            yield Point(
                panel=panel,
                row=row,
                objective=entry.objective.label,
                model=entry.model.name,
                size=size,
                values=values,
                entry=entry.id,
            )
