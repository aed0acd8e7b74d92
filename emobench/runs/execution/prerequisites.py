"""What an evaluation needs that trains or generates nothing: each missing part is named, before any work."""

from __future__ import annotations

import shlex

from emobench.core.errors import ConfigError, DataError
from emobench.leaderboard.run_files import digest
from emobench.leaderboard.store import Leaderboard
from emobench.runs.planning.plan import Plan
from emobench.runs.stages.stage import Stages


def require_trained(plan: Plan, stages: Stages) -> None:
    """Raise ConfigError for a training that is not finished, or was altered, with the command that does it."""
    if plan.trainings() and not plan.model.is_there:
        raise ConfigError(
            f"{plan.model.name} is not made yet in {stages.root}, so that nothing was trained from it there. Make it, "
            f"train and evaluate with: {_command(plan, 'run')}"
        )
    for planned, tasks in (part for run in plan.runs() for part in run.parts):
        if planned is None:
            continue
        damage = stages.damage(planned.stage, full=not all(stages.is_finished(task.scores) for task in tasks))
        if damage is not None or not stages.is_finished(planned.stage):
            raise ConfigError(
                f"{damage or f'{stages.folder(planned.stage)} is not there'}: the training of "
                f"{planned.objective.objective}, seed {planned.seed}, on {planned.recipe.corpus}, and `emobench "
                f"evaluate` trains nothing. Train and evaluate it with: {_command(plan, 'run')}"
            )


def require_generated(plan: Plan, stages: Stages) -> None:
    """Raise ConfigError for a generation that is not finished, DataError for one whose files are not what they were.

    Samples are also compared with the digests of the entries on the board.
    """
    again = _command(plan, "evaluate" if all(row.objective is None for row in plan.rows) else "run")
    if not plan.model.is_there:
        raise ConfigError(f"{plan.model.name} is not made yet. Make and evaluate it with: {again}")
    entries = Leaderboard(plan.request.leaderboard).entries(suite=plan.suite.name)
    recorded = {file.path: file.sha256 for entry in entries for run in entry.runs for file in run.samples}
    wanted = [(row, run, planned) for row in plan.rows for run in row.runs for planned in run.tasks()]
    for row, run, planned in wanted:
        folder = stages.folder(planned.generation)
        what = f"{planned.task.name} of {row.label}" + ("" if row.objective is None else f", seed {run.seed}")
        remove = f"Restore it, or generate anew with: rm -r {shlex.quote(str(folder))} && {again}"
        if damage := stages.damage(planned.generation, full=True):
            raise DataError(f"{folder} is not the generation of {what} that was finished: {damage}. {remove}")
        if not stages.is_finished(planned.generation):
            raise ConfigError(
                f"{folder} is not there: the generation of {what}, and --rescore generates nothing. Generate and score "
                f"it with: {again}"
            )
        files = {stages.root / path: sha256 for path, sha256 in recorded.items()}
        if any(file.parent == folder and digest(file) != sha256 for file, sha256 in files.items()):
            raise DataError(f"{folder} holds other texts of {what} than those that were recorded. {remove}")


def _command(plan: Plan, verb: str) -> str:
    """Return the request's command as another one, which may train and generate."""
    words = [word for word in shlex.split(plan.request.command) if word != "--rescore"]
    return shlex.join([*words[:1], verb, *words[2:]]) if words else f"emobench {verb}"
