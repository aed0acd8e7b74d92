"""A figure of scaling made again: a score over the size of the model, and over the number of training tokens.

Its points are plain runs: each model on the most tokens, and the last model on fewer, too. Fewer tokens are the first
ones of more (`recipe.max_tokens` takes the first rows of a packed corpus), and the point that both panels have is made
once. What is finished is not made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from emobench.core.errors import ConfigError, DataError
from emobench.core.settings import PRETRAINED
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.stats.log_line import LogLine, fit_log_line
from emobench.reproduce.requests import at_scale, firsts, scale_of, table_request
from emobench.reproduce.run import candidate_remarks, choice_remarks, choose_rows, row_outlines
from emobench.runs.dry_run.make_outline import Read
from emobench.runs.dry_run.outline import Outline
from emobench.runs.execution.reporter import Reporter
from emobench.runs.planning.ingredients import Ingredients, shown_name
from emobench.runs.planning.make_plan import make_plan
from emobench.runs.planning.request import Request
from emobench.runs.run import run_plan
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
    """What was measured, and the lines through it."""

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
        fitted = {name: fit_log_line(found) for name, found in scores.items()}
        return {name: line for name, line in fitted.items() if line is not None}


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
    """Return what making a figure again comes to."""
    steps, said = steps_of(table, request, models, scale)
    read = Read()
    outlines = []
    for step in steps:
        outlines += row_outlines(table, step.request, step.title, exact=exact, read=read)
    found = outlines[0]
    for other in outlines[1:]:
        found = found.joined(other)
    title = f"{table.name}: {table.description}"
    assumptions = (*found.assumptions, *candidate_remarks(table), *said)
    return replace(found, title=title, assumptions=assumptions, several=True)


def reproduce_scaling(
    table: Table, request: Request, models: Sequence[str], reporter: Reporter, scale: str | None = None
) -> Scaling:
    """Make a figure of scaling again; `models` are instead of its own, from small to large."""
    steps, said = steps_of(table, request, models, scale)
    known: Ingredients | None = None
    for step in steps:  # what would fail after another model's days fails here
        known = make_plan(table_request(table, step.request, firsts(table)), known=known).ingredients
    made: list[tuple[Step, list[Entry]]] = []
    for step in steps:
        reporter.note(step.title)
        choices = choose_rows(table, step.request, reporter, step.title)
        said += [f"{step.title}: {line}" for line in choice_remarks(table, step.request, choices)]
        objectives = tuple(choice.objective for choice in choices)
        plan = make_plan(table_request(table, step.request, objectives), known=known)
        known = plan.ingredients
        made.append((step, run_plan(plan, reporter)))
    tasks = _common([entry for _, entries in made for entry in entries], table.metrics[0])
    points = [point for step, entries in made for point in _points(table, step, entries, tasks)]
    return Scaling(
        title=f"{table.name}: {table.description}",
        metric=table.metrics[0],
        tasks=tasks,
        points=tuple(points),
        remarks=tuple(said),
    )


def steps_of(
    table: Table, request: Request, models: Sequence[str] = (), scale: str | None = None
) -> tuple[list[Step], list[str]]:
    """Return the requests of a figure, from small to large, and remarks on its scale."""
    chosen = scale_of(table, scale)
    said: list[str] = []
    names, tokens = list(models or table.models), list(table.tokens)
    if chosen is not None:
        names, tokens = list(models or chosen.models), list(chosen.tokens)
        request, said = at_scale(table, chosen, replace(request, model=names[-1]))
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
    return [*steps, step(last, most, MODEL, DATA)], said


def _common(entries: Sequence[Entry], metric: str) -> tuple[str, ...]:
    """Return the tasks whose metric every entry has."""
    tasks = tuple(
        task for task in entries[0].protocols if all(f"{task}/{metric}" in entry.metrics for entry in entries)
    )
    if not tasks:
        raise DataError(f"No task has the metric {metric} for every model and number of tokens.")
    return tasks


def _points(table: Table, step: Step, entries: Sequence[Entry], tasks: Sequence[str]) -> Iterator[Point]:
    metric = table.metrics[0]
    for row, entry in zip(table.rows, entries, strict=True):
        of_tasks: list[Mapping[int, float]] = [
            dict(enumerate(entry.metrics[f"{task}/{metric}"].values)) for task in tasks
        ]
        values = tuple(fmean(found[seed] for found in of_tasks) for seed in of_tasks[0])
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
