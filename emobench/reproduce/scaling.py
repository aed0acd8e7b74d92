"""A figure of scaling, repeated: a score over the size of the model, and over the number of training tokens.

Its points are plain runs: each model on the most tokens, and the last model on fewer, too. Fewer tokens are the first
ones of more (`recipe.max_tokens` takes the first rows of a packed corpus), and the point that both panels have is made
once. Finished ones are reused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

from emobench.core.errors import DataError
from emobench.core.settings import PRETRAINED
from emobench.leaderboard.stats.classical import LogLine, fit_log_line
from emobench.reproduce.run import DATA, MODEL, measure, steps_of
from emobench.runs.execution.reporter import Reporter
from emobench.runs.planning.request import Request
from emobench.tasks.table import Table


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
        fitted = {}
        for name, values in scores.items():
            line = fit_log_line(values)
            if line is not None:
                fitted[name] = line
        return fitted


def reproduce_scaling(
    table: Table, request: Request, models: Sequence[str], reporter: Reporter, scale: str | None = None
) -> Scaling:
    """Repeat a figure of scaling; `models` are instead of its own, from small to large."""
    _, steps, remarks = steps_of(table, request, scale, models)
    measured = measure(table, steps, reporter)
    metric = table.metrics[0]
    tasks = list(measured[0].entries[0].protocols)
    for step, rows in zip(steps, measured, strict=True):
        for remark in rows.remarks:
            remarks.append(f"{step.title}: {remark}")
        for entry in rows.entries:
            tasks = [task for task in tasks if f"{task}/{metric}" in entry.metrics]
    if not tasks:
        raise DataError(f"No task has the metric {metric} for every model and number of tokens.")
    points = []
    for step, rows in zip(steps, measured, strict=True):
        for (row, entry), panel in product(zip(table.rows, rows.entries, strict=True), step.panels):
            by_task = [entry.metrics[f"{task}/{metric}"].values for task in tasks]
            size = entry.model.parameters if panel == MODEL else step.tokens
            assert size is not None
            values = map(fmean, zip(*by_task, strict=True))
            point = Point(
                panel=panel,
                row=row,
                objective=entry.objective.label,
                model=entry.model.name,
                size=size,
                values=tuple(values),
                entry=entry.id,
            )
            points.append(point)
    return Scaling(
        title=f"{table.name}: {table.description}",
        metric=metric,
        tasks=tuple(tasks),
        points=tuple(points),
        remarks=tuple(remarks),
    )
