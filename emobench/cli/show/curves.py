"""`emobench curves`: what trainings logged at each step, as lines of text or JSON."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from emobench.cli import options
from emobench.cli.terminal.console import print_json, print_table
from emobench.cli.terminal.reports import print_report
from emobench.cli.terminal.streams import print_text, remark
from emobench.core.errors import DataError
from emobench.leaderboard.labels import clean
from emobench.leaderboard.query.newest import older_groups
from emobench.report.numbers import alike
from emobench.report.tables import Report
from emobench.report.tuning import tuned_rows, tuning_tables
from emobench.runs.inspect.trainings import FoundTraining, find_trainings, newest_trainings
from emobench.training.curves import Curve, TrainingCurves, averaged, mean_curve, read_curves

WIDTH = 30
"""Most characters of a line; more steps are averaged."""
_BARS = "▁▂▃▄▅▆▇█"
Logged: TypeAlias = tuple[FoundTraining, TrainingCurves]


@dataclass(frozen=True)
class SeedGroup:
    """Trainings that differ in their seeds only."""

    label: str
    members: Sequence[Logged]

    def means(self) -> dict[str, Curve]:
        """Return the means over the seeds of all that any of them logged."""
        by_name: dict[str, list[Curve]] = defaultdict(list)
        for _, log in self.members:
            for name, curve in log.curves.items():
                by_name[name].append(curve)
        means = {}
        for name, curves in by_name.items():
            mean = mean_curve(curves)
            if mean:
                means[name] = mean
        return means

    def title(self) -> str:
        seeds, finished = [], True
        _, first = self.members[0]
        done, steps = first.done, first.steps
        for training, log in self.members:
            if training.seed is not None:
                seeds.append(str(training.seed))
            finished = finished and training.finished
            done, steps = min(done, log.done), max(steps, log.steps)
        parts = [self.label]
        if seeds:
            parts.append(f"mean of seeds {', '.join(seeds)}" if len(seeds) > 1 else f"seed {seeds[0]}")
        parts.append(f"{done} of {steps} steps" if done < steps else f"{steps} steps")
        if not finished:
            parts.append("not finished")
        return clean(" · ".join(parts))

    def plain(self) -> dict[str, Any]:
        objective = self.members[0][0].objective
        trainings = []
        for training, log in self.members:
            facts = {"key": training.key, "seed": training.seed, "finished": training.finished, "steps": log.steps}
            trainings.append({**facts, "curves": _points(log.curves)})
        return {
            "label": self.label,
            "objective": objective and objective.label,
            "mean": _points(self.means()),
            "trainings": trainings,
        }


def curves(
    run: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"{options.ENTRY} Or the folder of a training, or its key in --runs. Default: the newest trainings of "
            "one model and recipe.",
        ),
    ] = None,
    all_: options.All = False,
    runs: options.Runs = options.DEFAULT_RUNS,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    json: options.Json = False,
) -> None:
    """Show training curves.

    The loss, its parts and the validation loss over the steps, as means over seeds; and the trials, where entries are
    given that were tuned. Logs of an entry whose runs are not here are read from its board, if the board is packed.
    """
    trainings, entries = find_trainings(run or (), runs, leaderboard)
    older = 0
    if not (all_ or (run and all(map(_is_one, run)))):
        trainings, older = newest_trainings(trainings)
    groups = _grouped(trainings)
    if more := older_groups(older, "name an entry, or give --all"):
        remark(more)
    if json:
        print_json({"curves": [group.plain() for group in groups], "tuning": tuned_rows(entries)})
        return
    for group in groups:
        rows = []
        for name, curve in group.means().items():
            values = list(curve.values())
            ends = (values[0], values[(len(values) - 1) // 2], values[-1])
            rows.append((name, sparkline(values), *alike(ends)))
        print_text(group.title())  # not as the table's title, which would be wrapped to its width
        header = ("part", "over the steps", "first", "middle", "last")
        print_table("", header, rows, unbroken=header[1:2])
        print_text("")
    print_report(Report(tuple(tuning_tables(entries))), "text")


def _is_one(name: str) -> bool:
    """Return whether a name is a folder, a key or an id, and so no objective."""
    return Path(name).is_dir() or re.fullmatch("[0-9a-f]+", name) is not None


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """Return a line of bars from the lowest to the highest value; values that are not finite leave a gap.

    >>> sparkline([1, 2, 3, float("nan"), 8])
    '▁▂▃ █'
    """
    means = list(averaged(dict(enumerate(values)), width).values())
    finite = [mean for mean in means if math.isfinite(mean)]
    low, span = min(finite, default=0.0), max(finite, default=0.0) - min(finite, default=0.0)
    # Less than rounding of float32 parts: a line that is flat shows as flat.
    flat = span <= 1e-7 * max(map(abs, finite), default=0.0)
    line = ""
    for mean in means:
        if math.isnan(mean):
            line += " "
        elif flat:
            line += _BARS[3]
        else:
            line += _BARS[round((mean - low) / span * (len(_BARS) - 1))]
    return line


def _grouped(trainings: Sequence[FoundTraining]) -> list[SeedGroup]:
    by_setting: dict[str, list[Logged]] = defaultdict(list)
    problems: list[DataError] = []
    for training in trainings:
        try:
            training.require_whole()
            log = read_curves(training.folder)
        except DataError as error:
            problems.append(error)
        else:
            by_setting[training.setting].append((training, log))
    if not by_setting:
        raise problems[0]
    for problem in problems:
        remark(f"skipped: {problem}")
    groups = []
    for members in by_setting.values():
        first = members[0][0]
        label = first.pretraining or f"training {first.key}"
        if first.objective and not first.pretraining:
            label = first.objective.label
        groups.append(SeedGroup(label, sorted(members, key=lambda member: member[0].seed or 0)))
    labels = [group.label for group in groups]
    for place, group in enumerate(groups):
        if labels.count(group.label) > 1:
            groups[place] = replace(group, label=f"{group.label} [{group.members[0][0].key[:6]}]")
    return groups


def _points(curves: Mapping[str, Curve]) -> dict[str, dict[str, list[float | None]]]:
    """Return the steps and values of curves; JSON has no NaN."""
    plain = {}
    for name, curve in curves.items():
        values = []
        for value in curve.values():
            values.append(value if math.isfinite(value) else None)
        plain[name] = {"steps": list(curve), "values": values}
    return plain
