"""`emobench curves`: what trainings logged at each step, as lines of text or JSON."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from emobench.cli import options
from emobench.cli.terminal.console import print_json, print_table
from emobench.cli.terminal.streams import print_text, remark
from emobench.core.errors import DataError
from emobench.leaderboard.labels import clean
from emobench.leaderboard.store import Leaderboard
from emobench.report.numbers import alike
from emobench.runs.inspect.trainings import FoundTraining, find_trainings
from emobench.training.curves import Curve, TrainingCurves, mean_curve, read_curves

WIDTH = 30
"""Most characters of a line; more steps are averaged."""
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class SeedGroup:
    """Trainings that differ in their seeds only."""

    label: str
    members: tuple[tuple[FoundTraining, TrainingCurves], ...]

    def curves(self) -> dict[str, dict[int, float]]:
        """Return the means over the seeds of all that any of them logged."""
        names = dict.fromkeys(name for _, log in self.members for name in log.curves)
        found = {n: mean_curve([log.curves[n] for _, log in self.members if n in log.curves]) for n in names}
        return {name: curve for name, curve in found.items() if curve}

    def title(self) -> str:
        seeds = [str(training.seed) for training, _ in self.members if training.seed is not None]
        of_seeds = f"mean of seeds {', '.join(seeds)}" if len(seeds) > 1 else f"seed {seeds[0]}" if seeds else ""
        done, steps = min(log.done for _, log in self.members), max(log.steps for _, log in self.members)
        logged = f"{done} of {steps} steps" if done < steps else f"{steps} steps"
        unfinished = "" if all(training.finished for training, _ in self.members) else "not finished"
        return clean(" · ".join(filter(None, [self.label, of_seeds, logged, unfinished])))


def curves(
    run: Annotated[
        list[str] | None,
        typer.Argument(
            help="An objective's name, an entry's id, a training's folder, or a key in --runs. Default: all trainings.",
            show_default=False,
        ),
    ] = None,
    runs: options.Runs = options.DEFAULT_RUNS,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    json: options.Json = False,
) -> None:
    """Show training curves.

    The loss, its parts and the validation loss over the steps, as means over seeds. Logs of an entry whose runs are not
    here are read from its board, if the board is packed.
    """
    groups = _grouped(find_trainings(run or (), runs, Leaderboard(leaderboard)))
    if json:
        print_json({"curves": [_plain(group) for group in groups]})
        return
    for group in groups:
        rows = []
        for name, curve in group.curves().items():
            values = list(curve.values())
            ends = (values[0], values[(len(values) - 1) // 2], values[-1])
            rows.append((name, sparkline(values), *alike(ends)))
        print_text(group.title())  # not as the table's title, which would be wrapped to its width
        header = ("part", "over the steps", "first", "middle", "last")
        print_table("", header, rows, unbroken=header[1:2])
        print_text("")


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """Return a line of bars from the lowest to the highest value; values that are not finite leave a gap.

    >>> sparkline([1, 2, 3, float("nan"), 8])
    '▁▂▃ █'
    """
    count = min(width, len(values))
    bounds = [round(i * len(values) / count) for i in range(count + 1)]
    means = []
    for start, stop in itertools.pairwise(bounds):
        finite = [value for value in values[start:stop] if math.isfinite(value)]
        means.append(sum(finite) / len(finite) if finite else None)
    known = [mean for mean in means if mean is not None]
    low, span = min(known, default=0.0), max(known, default=0.0) - min(known, default=0.0)
    # Less than rounding of float32 parts: a line that is flat shows as flat.
    flat = span <= 1e-7 * max(map(abs, known), default=0.0)
    return "".join(
        " " if mean is None else _BARS[3] if flat else _BARS[round((mean - low) / span * (len(_BARS) - 1))]
        for mean in means
    )


def _grouped(trainings: Sequence[FoundTraining]) -> list[SeedGroup]:
    by_setting: dict[str, list[tuple[FoundTraining, TrainingCurves]]] = {}
    problems: list[DataError] = []
    for training in trainings:
        try:
            training.require_whole()
            log = read_curves(training.folder)
        except DataError as error:
            problems.append(error)
        else:
            by_setting.setdefault(training.setting, []).append((training, log))
    if not by_setting:
        raise problems[0]
    for problem in problems:
        remark(f"skipped: {problem}")
    labels = _labels([members[0][0] for members in by_setting.values()])
    by_seed = [sorted(members, key=lambda member: member[0].seed or 0) for members in by_setting.values()]
    return [SeedGroup(label, tuple(members)) for label, members in zip(labels, by_seed, strict=True)]


def _labels(firsts: Sequence[FoundTraining]) -> list[str]:
    """Return objectives' names, with the parameters in which those of one name differ, or else a training's key."""
    named = [None if training.pretraining else training.objective for training in firsts]
    labels = []
    for training, objective in zip(firsts, named, strict=True):
        if objective is None:
            labels.append(training.pretraining or f"training {training.key}")
            continue
        alike = [other for other in named if other is not None and other.name == objective.name]
        own = {k: v for k, v in objective.params.items() if any(other.params.get(k) != v for other in alike)}
        labels.append(replace(objective, params=own).label)
    return [f"{t} [{f.key[:6]}]" if labels.count(t) > 1 else t for t, f in zip(labels, firsts, strict=True)]


def _plain(group: SeedGroup) -> dict[str, Any]:
    objective = group.members[0][0].objective
    return {
        "label": group.label,
        "objective": objective.label if objective else None,
        "mean": {name: _points(curve) for name, curve in group.curves().items()},
        "trainings": [
            {
                "key": training.key,
                "seed": training.seed,
                "finished": training.finished,
                "steps": log.steps,
                "curves": {name: _points(curve) for name, curve in log.curves.items()},
            }
            for training, log in group.members
        ],
    }


def _points(curve: Curve) -> dict[str, list[float | None]]:
    """Return the steps and values of a curve; JSON has no NaN."""
    return {"steps": list(curve), "values": [value if math.isfinite(value) else None for value in curve.values()]}
