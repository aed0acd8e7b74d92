"""The whole job: plan, train, evaluate, record."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from emobench.core.errors import ConfigError, DataError, EmobenchError
from emobench.data.packing import Packed
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.run_files import digest
from emobench.leaderboard.store import Leaderboard
from emobench.models.device import Place
from emobench.runs.execution.execution import Execution
from emobench.runs.execution.launch import Launch, join_group
from emobench.runs.execution.record import record_row, track_metrics
from emobench.runs.execution.reporter import Reporter
from emobench.runs.execution.workers import Workers, jobs_of
from emobench.runs.planning.estimate import long_validation, validated_tokens
from emobench.runs.planning.plan import Plan, PlannedRow, PlannedRun, make_plan
from emobench.runs.planning.prospects import prospects
from emobench.runs.planning.rebuild import describe, find_planned, find_stage, require_trusted
from emobench.runs.stages.corpora import PackedCorpora
from emobench.runs.stages.evaluate import Evaluation
from emobench.runs.stages.stage import Stages, require_writable
from emobench.runs.stages.train import PlannedTraining
from emobench.training.recipe import Recipe

SCORED = ("score", "examples", "features", "perplexity")
"""Kinds of stage that hold scores, and the human texts' vectors that they are made of."""

Completed = Iterator[tuple[int, EmobenchError | None]]
"""The place of each group of stages when it is made, with the error if it failed."""


def run_plan(
    plan: Plan,
    reporter: Reporter | None = None,
    places: Sequence[Place] = (),
    launch: Launch | None = None,
    *,
    anew: Collection[str] = (),
) -> list[Entry]:
    """Make unfinished stages, row by row, and return the rows' entries. A row is recorded when it is complete.

    With `places`, a process on each makes stages, several at once. There, a row that fails does not stop the others;
    the first error is raised at the end. With `launch`, its processes make each training together. Stages of the kinds
    in `anew` are made once more.
    """
    execution, rows = prepared(plan, reporter, anew=anew, launch=launch), plan.rows
    entries: dict[int, Entry] = {}
    failed: list[EmobenchError] = []
    keys = []
    for row in rows:
        keys.append([stage.key for run in row.runs for stage in run.stages()])
    with made_by_workers(plan, execution, places, keys) as completed:
        for place, error in completed:
            if error is None:
                entries[place] = record(plan, rows[place], execution)
            else:
                execution.reporter.note(f"{rows[place].label}: failed, and is not recorded")
                failed.append(error)
    if failed:
        raise failed[0]
    return [entries[place] for place in range(len(rows))]


def evaluate_plan(
    plan: Plan, reporter: Reporter | None = None, places: Sequence[Place] = (), *, rescore: bool = False
) -> list[Entry]:
    """Do what `run_plan` does, and train nothing; with `rescore`, generate nothing either, and score everything again.

    Raises ConfigError for a training, and with `rescore` for a generation, that is missing.
    """
    anew = SCORED if rescore else ()
    stages = Stages(plan.request.runs, anew)
    require_trained(plan, stages)
    if rescore:
        require_generated(plan, stages)
    return run_plan(plan, reporter, places, anew=anew)


def require_one_model(plan: Plan) -> PlannedRun:
    """Return the run of the one trained model of a plan; raises ConfigError for a plan of several, or of none."""
    runs = [run for row, run in plan.rows_and_runs() if row.objective is not None]
    count = sum(max(len(run.trainings()), 1) for run in runs)
    if count != 1:
        raise ConfigError(f"--push sends one trained model, not {count}: give one --objective and one --seed.")
    return runs[0]


def trained_model(plan: Plan) -> tuple[int, Path]:
    """Return the seed of the one trained model of a plan that was run, and the folder of its files."""
    run = require_one_model(plan)
    for training in run.trainings():
        return run.seed, Stages(plan.request.runs).folder(training) / "model"
    return run.seed, plan.model.folder


def score_plan(plan: Plan, reporter: Reporter | None = None) -> list[list[list[Evaluation]]]:
    """Make unfinished stages and record nothing; return the evaluations of each row's runs."""
    execution = prepared(plan, reporter)
    evaluations: list[list[list[Evaluation]]] = []
    for row in plan.rows:
        evaluations.append([execution.evaluations(run.tasks()) for run in row.runs])
    return evaluations


def train_plan(
    plan: Plan, reporter: Reporter | None = None, places: Sequence[Place] = (), launch: Launch | None = None
) -> list[tuple[PlannedTraining, Path]]:
    """Train only; return each training with the folder of its model."""
    execution, trainings = prepared(plan, reporter, launch=launch), plan.trainings()
    with made_by_workers(plan, execution, places, [[training.key] for training in trainings]) as completed:
        for _, error in completed:
            if error is not None:
                raise error
        return [(training, execution.folder(training) / "model") for training in trainings]


def prepared(
    plan: Plan,
    reporter: Reporter | None = None,
    *,
    anew: Collection[str] = (),
    launch: Launch | None = None,
    corpora: PackedCorpora | None = None,
) -> Execution:
    """Return what makes a plan's stages, after checking folders and data and writing down what will be made.

    Every corpus is packed before the first training starts. A base model that the harness makes is made here: only
    then the other stages have keys.
    """
    request = plan.request
    execution = Execution(request, plan.model, reporter, anew=anew, launch=launch, corpora=corpora)
    stages = execution.stages
    if launch is not None:
        for recipe in plan.recipes:
            recipe.micro_batch(launch.size)
    require_writable(stages.root, "--runs")
    if request.suite is not None:  # an entry will be recorded
        require_writable(request.leaderboard, "--leaderboard")
    notes = plan.warnings()
    if plan.evaluated() and plan.trainings():
        notes += prospects(plan).lines(impossible=True)
    for note in notes:
        execution.reporter.note(note)
    describe(plan.model.stages, request, stages)
    keyed = plan.model.has_identity
    unfinished: dict[Recipe, dict[str, Packed]] = {}
    for training in plan.trainings():
        if not keyed or not stages.is_finished(training):
            rows = unfinished.setdefault(training.recipe, {})
            for split, corpus in training.corpora.items():  # an error of the data comes before any training
                rows[split] = execution.corpora.rows(corpus)
    for recipe, rows in unfinished.items():
        trained = int(rows["train"].target_count * recipe.epochs)
        validated = validated_tokens(recipe, rows["validation"].target_count)
        note = long_validation(recipe, trained, validated)
        if note is not None:
            execution.reporter.note(note)
    if not keyed:
        execution.base(plan.model)
    describe(plan.stages(), request, stages)
    return execution


@contextlib.contextmanager
def made_by_workers(
    plan: Plan, execution: Execution, places: Sequence[Place], wanted: Sequence[Sequence[str]]
) -> Iterator[Completed]:
    """Let workers on several places make unfinished stages, and give the groups of keys as they are complete.

    Without places, all groups are given at once.
    """
    jobs = list(jobs_of(plan, execution.stages))
    if not places:
        execution.expect(dict.fromkeys(job.key for job in jobs))
        yield ((place, None) for place in range(len(wanted)))
        return
    with Workers(places, jobs, execution.stages.root, execution.reporter) as workers:
        yield workers.completed(wanted)


def record(plan: Plan, row: PlannedRow, execution: Execution) -> Entry:
    """Return a row's entry, after making its unfinished stages."""
    evaluations = []
    for run in row.runs:
        if not all(execution.stages.is_finished(task.scores) for task in run.tasks()):
            execution.reporter.note(f"{row.label}, seed {run.seed}")
        for stage in run.stages():
            if stage.title:
                execution.folder(stage)
        evaluations.append(execution.evaluations(run.tasks()))
    entry = record_row(plan, row, evaluations, execution)
    track_metrics(row, evaluations, execution)
    return entry


def run_stage(
    runs: Path,
    key: str,
    reporter: Reporter,
    device: str | None,
    *,
    objectives: Sequence[str],
    trust_remote_code: bool,
) -> Path:
    """Make one stage from its description alone, with what it needs, and return its folder; see `planning.rebuild`.

    Code that the description names is run only if the user names it, too: `objectives` of files, and
    `trust_remote_code`. Raises ConfigError for a stage that was not planned, that would have another key here, or that
    runs code which the user did not name.
    """
    _, description = find_stage(runs, key)
    if description is not None:
        require_trusted(key, description, objectives, trusted=trust_remote_code)
    return DescribedStages(runs, reporter, device).make(key)


class DescribedStages:
    """Makes planned stages by their keys. What consecutive ones share is planned and loaded once."""

    def __init__(self, runs: Path, reporter: Reporter, device: str | None = None) -> None:
        self._runs, self._reporter, self._device = runs, reporter, device
        self._last: tuple[Path, Plan, Execution] | None = None

    def make(self, key: str, *, together: bool = False) -> Path:
        """Make a stage with what it needs, and return its folder; see `run_stage`.

        With `together`, be one of the processes that make a training; another one has planned and locked it.
        """
        stage, description = find_stage(self._runs, key)
        stages = Stages(self._runs.resolve())
        if not together and stages.is_finished(stage) and stages.damage(stage, full=True) is None:
            return stages.folder(stage)
        if description is None:
            raise ConfigError(
                f"{stages.folder(stage)} was altered, and nothing says how to make it again; give the command of its "
                "run."
            )
        request, folder = description.request, description.folder
        if self._device is not None:
            request = replace(request, device=self._device)
        if together:
            join_group(request.device)
        with contextlib.chdir(folder) if folder.is_dir() else contextlib.nullcontext():
            if self._last is None or (self._last[0], self._last[1].request) != (folder, request):
                known = None
                if self._last is not None and self._last[0] == folder:
                    known = self._last[1].ingredients
                plan = make_plan(request, known=known)
                execution = Execution(request, plan.model, self._reporter)
                execution.base(plan.model)  # the other stages have keys then
                self._last = folder, plan, execution
            _, plan, execution = self._last
            planned = find_planned(plan.stages(), description)
            if together:
                execution.take_part(planned)
            else:
                execution.folder(planned)
        return execution.stages.folder(planned)


def require_trained(plan: Plan, stages: Stages) -> None:
    """Raise ConfigError for a training that is not finished, or was altered, with the command that does it."""
    advice = f"`emobench evaluate` trains nothing. Train and evaluate it with: {_command(plan, 'run')}"
    if plan.trainings() and not plan.model.has_identity:
        raise ConfigError(f"{plan.model.name} is not made yet in {stages.root}, and {advice}")
    for _, run in plan.rows_and_runs():
        for training, tasks in run.parts:
            if training is None:
                continue
            damage = stages.damage(training, full=not all(stages.is_finished(task.scores) for task in tasks))
            if damage is not None or not stages.is_finished(training):
                raise ConfigError(
                    f"{damage or f'{stages.folder(training)} is missing'}: the training of "
                    f"{training.objective.objective}, seed {training.seed}, on {training.recipe.corpus}, and {advice}"
                )


def require_generated(plan: Plan, stages: Stages) -> None:
    """Raise ConfigError for a generation that is not finished, DataError for one whose files are not what they were.

    Samples are also compared with the digests of the entries on the board.
    """
    again = _command(plan, "run" if plan.trainings() else "evaluate")
    if not plan.model.has_identity:
        raise ConfigError(f"{plan.model.name} is not made yet. Make and evaluate it with: {again}")
    recorded: dict[Path, str] = {}
    for entry in Leaderboard(plan.request.leaderboard).entries(suite=plan.suite.name):
        for run in entry.runs:
            recorded |= {stages.root / file.path: file.sha256 for file in run.samples}
    for row, run in plan.rows_and_runs():
        for task in run.tasks():
            folder = stages.folder(task.generation)
            what = f"{folder}: the generation of {task.task.name} of {row.label}, seed {run.seed},"
            if not folder.exists():
                raise ConfigError(f"{what} is missing, and --rescore generates nothing. Generate it with: {again}")
            mine = [path for path in recorded if path.parent == folder]
            altered = stages.damage(task.generation, full=True)
            if altered or any(digest(path) != recorded[path] for path in mine):
                remove = f"rm -r {shlex.quote(str(folder))} && {again}"
                raise DataError(f"{what} was altered: {altered or mine[0]}. Restore it, or give: {remove}")


def _command(plan: Plan, verb: str) -> str:
    """Return the request's command as another one, which may train and generate."""
    words = [word for word in shlex.split(plan.request.command) if word != "--rescore"]
    return shlex.join(["emobench", verb, *words[2:]])
