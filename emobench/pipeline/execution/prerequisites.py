"""What an evaluation needs that trains or generates nothing: each missing part is named, before any work."""

from __future__ import annotations

import shlex
from pathlib import Path

from emobench.errors import ConfigError, DataError
from emobench.leaderboard.schema.entry import File
from emobench.leaderboard.schema.examples import digest
from emobench.leaderboard.store.board import Leaderboard
from emobench.pipeline.planning.plan import Plan
from emobench.pipeline.planning.planned import PlannedTask
from emobench.pipeline.stages.stage import Stages


def require_trained(plan: Plan, stages: Stages) -> None:
    """Raise ConfigError for a training that is not finished, or was altered, with the command that does it."""
    trained = any(True for _ in plan.trainings())
    if trained and not plan.model.is_there:
        raise ConfigError(
            f"{plan.model.name} is not made yet in {stages.root}, so that nothing was trained from it there. Make it, "
            f"train and evaluate with: {_command(plan, 'run')}"
        )
    parts = ((training, tasks) for row in plan.rows for run in row.runs for training, tasks in run.parts)
    for planned, tasks in parts:
        if planned is None:
            continue
        read = not all(stages.is_finished(task.scores) for task in tasks)
        damage = stages.damage(planned.stage, full=read)
        if damage is not None or not stages.is_finished(planned.stage):
            what = f"{planned.objective.objective}, seed {planned.seed}, on {planned.recipe.corpus}"
            raise ConfigError(
                f"{damage or f'{stages.folder(planned.stage)} is not there'}: the training of {what}, and `emobench "
                f"evaluate` trains nothing. Train and evaluate it with: {_command(plan, 'run')}"
            )


def require_generated(plan: Plan, stages: Stages) -> None:
    """Raise ConfigError for a generation that is not finished, DataError for one whose files are not what they were.

    Samples are also compared with the digests of the entries on the board.
    """
    if not plan.model.is_there:
        raise ConfigError(f"{plan.model.name} is not made yet. Make and evaluate it with: {_again(plan)}")
    recorded = _recorded(plan)
    for row in plan.rows:
        for run in row.runs:
            for planned in (task for _, tasks in run.parts for task in tasks):
                seed = "" if row.objective is None else f", seed {run.seed}"
                _require(plan, stages, planned, f"{planned.task.name} of {row.label}{seed}", recorded)


def _require(plan: Plan, stages: Stages, planned: PlannedTask, what: str, recorded: dict[str, File]) -> None:
    folder = stages.folder(planned.generation)
    if damage := stages.damage(planned.generation, full=True):
        raise _lost(plan, folder, f"is not the generation of {what} that was finished: {damage}")
    if not stages.is_finished(planned.generation):
        raise ConfigError(
            f"{folder} is not there: the generation of {what}, and --rescore generates nothing. Generate and score it "
            f"with: {_again(plan)}"
        )
    for path, file in recorded.items():
        if (stages.root / path).parent == folder and digest(stages.root / path) != file.sha256:
            raise _lost(plan, folder, f"holds other texts of {what} than those that were recorded")


def _recorded(plan: Plan) -> dict[str, File]:
    """Return the samples that entries of the suite name, by their path."""
    entries = Leaderboard(plan.request.leaderboard).entries(suite=plan.suite.name)
    return {file.path: file for entry in entries for run in entry.runs for file in run.samples}


def _lost(plan: Plan, folder: Path, why: str) -> DataError:
    remove = f"rm -r {shlex.quote(str(folder))}"
    return DataError(f"{folder} {why}. Restore it, or generate anew with: {remove} && {_again(plan)}")


def _again(plan: Plan) -> str:
    """Return the command that generates what is missing."""
    return _command(plan, "evaluate" if all(row.objective is None for row in plan.rows) else "run")


def _command(plan: Plan, verb: str) -> str:
    """Return the request's command as another one, which may train and generate."""
    words = [word for word in shlex.split(plan.request.command) if word != "--rescore"]
    return shlex.join([*words[:1], verb, *words[2:]]) if words else f"emobench {verb}"
