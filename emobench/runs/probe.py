"""A probe for a dry run: some steps of each training and some examples of each task, done and timed.

What they take tells what all of it takes: a training its time by the token, its passes over the validation split and
the rest once; an evaluation its time by the token, from two sizes, so that what each command does once counts once. The
probe works in a folder of its own in the folder of runs, and leaves nothing there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from emobench.core.errors import ConfigError
from emobench.models.device import is_here
from emobench.runs.dry_run.costs import Costs
from emobench.runs.execution.reporter import Reporter
from emobench.runs.planning.make_plan import make_plan
from emobench.runs.planning.plan import Plan
from emobench.runs.run import score_plan, train_plan
from emobench.runs.stages.evaluate import PlannedTask
from emobench.runs.stages.stage import Stages
from emobench.runs.stages.storage import require_writable
from emobench.runs.stages.train import PlannedTraining
from emobench.training.recipe import Recipe

STEPS = 5
"""Optimizer steps of each training, about; the first one, which also sets things up, counts once."""
EXAMPLES = (8, 32)
"""Examples of each task: small and large."""


@dataclass(frozen=True, kw_only=True)
class TimedTraining:
    """What a few steps took."""

    seconds_per_token: float
    validation: float
    """Seconds of a pass over the validation split."""
    once: float
    """Seconds of what a training does once."""
    memory_bytes: int

    def seconds(self, tokens: int, passes: int) -> float:
        """Return the time of a training on so many target tokens, with so many passes over the validation split."""
        return tokens * self.seconds_per_token + passes * self.validation + self.once


@dataclass(frozen=True, kw_only=True)
class TimedTask:
    """What an evaluation took at two sizes, (tokens, seconds), the smaller one first."""

    small: tuple[int, float]
    large: tuple[int, float]

    def seconds(self, tokens: int) -> float:
        """Return what so many tokens take: along the line through both sizes, or in proportion where that falls."""
        (few, little), (many, much) = self.small, self.large
        if many > few and much > little:
            return max(little, much + (tokens - many) * (much - little) / (many - few))
        return much * tokens / many if many else much


@dataclass(frozen=True)
class Probe:
    """The measured times, by objective and recipe, and by objective and task."""

    trainings: Mapping[tuple[str, Recipe], TimedTraining]
    tasks: Mapping[tuple[str, str], TimedTask]

    @property
    def note(self) -> str:
        """The sizes of the probe, as a sentence."""
        return (
            f"Times are those of a probe on this machine, of about {STEPS} steps of each training and {EXAMPLES[-1]} "
            "examples of each task, and so is the memory of trainings; what a probe has too few texts for, such as "
            "MAUVE, comes besides."
        )

    def training(self, planned: PlannedTraining, tokens: int | None) -> tuple[float, int] | None:
        """Return the seconds and bytes of a training; None if they are unknown."""
        timed = self.trainings.get((str(planned.objective.objective), _bare(planned.recipe)))
        if timed is None or tokens is None:
            return None
        return timed.seconds(tokens, math.ceil(planned.recipe.epochs)), timed.memory_bytes

    def seconds(self, planned: PlannedTask, tokens: int | None) -> float | None:
        """Return the seconds of an evaluation; None where they are not known."""
        timed = self.tasks.get((_subject(planned), planned.task.name))
        return None if timed is None or tokens is None else timed.seconds(tokens)


def time_parts(plan: Plan, reporter: Reporter) -> Probe:
    """Do a part of a plan's work with its first seed, and time it.

    Raises ConfigError where what the work needs is not here, and what the work itself raises.
    """
    request = plan.request
    if not plan.ready or not is_here(request.device):
        missing = list(plan.ingredients.missing)
        what = f"the device {request.device}" if plan.ready else ", ".join(missing) or "what the work reads"
        raise ConfigError(f"--probe does a part of the work. Not on this machine: {what}. Drop --probe.")
    require_writable(request.runs, "--runs")
    request.runs.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=request.runs, prefix="probe-") as place:
        here = replace(
            request,
            seeds=(plan.rows[0].runs[0].seed,),
            settings=_few_steps(plan),
            runs=Path(place) / "runs",
            leaderboard=Path(place) / "board",
            trackers=(),
        )
        if request.suite is None:
            small = make_plan(here)
            train_plan(small, reporter)
            return Probe(dict(_trainings(small)), {})
        small, large = [make_plan(replace(here, limit=min(count, request.limit or count))) for count in EXAMPLES]
        few, many = _scored(small, reporter), _scored(large, reporter)
        tasks = {key: TimedTask(small=few[key], large=many[key]) for key in many}
        return Probe(dict(_trainings(small)), tasks)


def _few_steps(plan: Plan) -> dict[str, Any]:
    """Return the settings of a request with as many tokens as some steps of each recipe take."""
    settings = dict(plan.request.settings)
    recipes = [planned.recipe for planned in plan.trainings()]
    if recipes:
        tokens = max(STEPS * recipe.batch * recipe.max_length for recipe in recipes)
        most = min(recipe.max_tokens or tokens for recipe in recipes)
        settings["recipe"] = {
            **plan.request.section("recipe"),
            "max_tokens": min(tokens, most),
            "epochs": 1,
            "warmup": 0,
        }
    return settings


def _trainings(small: Plan) -> Iterator[tuple[tuple[str, Recipe], TimedTraining]]:
    stages = Stages(small.request.runs)
    for planned in small.trainings():
        folder = stages.folder(planned)
        log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        steps, validation, total = [], 0.0, 0.0
        for line in log:
            validation += line.get("eval_runtime", 0.0)
            total = line.get("train_runtime", total)
            if "tokens_per_second" in line:
                steps.append((line["seconds"], line["tokens"]))
        # The first step also sets things up.
        seconds, tokens = map(sum, zip(*(steps[1:] or steps), strict=True))
        rate, trained = seconds / tokens, sum(tokens for _, tokens in steps)
        timed = TimedTraining(
            seconds_per_token=rate,
            validation=validation,
            once=max(0.0, total - validation - trained * rate),
            memory_bytes=json.loads((folder / "training.json").read_text())["peak_memory_bytes"],
        )
        yield (str(planned.objective.objective), _bare(planned.recipe)), timed


def _scored(small: Plan, reporter: Reporter) -> dict[tuple[str, str], tuple[int, float]]:
    """Return the tokens and seconds of each evaluation, by objective and task."""
    costs, times = Costs(small, exact=True), {}
    for row, evaluations in zip(small.rows, score_plan(small, reporter), strict=True):
        for planned, evaluation in zip(row.runs[0].tasks(), evaluations[0], strict=True):
            times[_subject(planned), planned.task.name] = (costs.all_tokens(planned) or 0, evaluation.seconds)
    return times


def _subject(planned: PlannedTask) -> str:
    return "" if planned.training is None else str(planned.training.objective.objective)


def _bare(recipe: Recipe) -> Recipe:
    """Return a recipe without what a probe changes."""
    return replace(recipe, max_tokens=None, epochs=1, warmup=0.0)
