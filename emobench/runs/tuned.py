"""Equal tuning: each objective gets the same number of trials, its best one is chosen on validation data, then tested.

A trial is a request of its own, with seeds that no test uses, so that its stages are shared and resumed like any
others. The metric is the suite's primary one, on validation data. The choice is trained again with the seeds of the
request, and evaluated once on the test data. Its entry records the space, each trial, and the choice.
"""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from emobench.core.errors import ConfigError, EmobenchError, MetricError, NonFiniteLossError
from emobench.core.extras import require
from emobench.core.settings import PRETRAINED, dotted_settings, setting_word
from emobench.leaderboard.entry import Entry, MetricSummary, Trial, Tuning
from emobench.leaderboard.stats.summary import summarise
from emobench.models.device import Place
from emobench.registry import load_kind, load_objective
from emobench.report.tuning import in_words
from emobench.runs.dry_run import Outline, Read, make_outline
from emobench.runs.execution.reporter import Reporter, Silent
from emobench.runs.execution.workers import StartWorker
from emobench.runs.planning.plan import make_plan
from emobench.runs.planning.prospects import prospects
from emobench.runs.planning.request import Request, Search
from emobench.runs.planning.resolve import merged, nested_rules, parts_of, suite_of
from emobench.runs.stages.evaluate import Evaluation
from emobench.runs.sweep import MadeRow, make_rows, plan_requests
from emobench.runs.tuning import Dimension, grid_trials, next_tpe_trial, parse_space, random_trials
from emobench.tasks.scores import Score

TRIAL_SEED = 1_000_000
"""The first seed of the trainings of all trials, and the seed of the samplers."""
MAIN = "objective.*"
"""In a space: the main parameter of each objective, by `main_parameter`."""
SHARES = 20
"""Steps through a space at which its values are checked before any trial, since TPE takes one after the other."""
AROUND = 10
"""The space of a parameter without bounds: its default divided and multiplied by this."""


@dataclass
class ObjectiveSearch:
    """The search of one objective: its space, and its trials as they end."""

    request: Request
    objective: str
    search: Search
    space: tuple[Dimension, ...]
    trials: list[Trial] = field(default_factory=list)
    validation: dict[str, str] = field(default_factory=dict)
    """Task -> the protocol of its trials."""

    def points(self) -> list[dict[str, Any]]:
        """Return the settings of the next trials: of TPE one, which depends on finished trials, else all."""
        if self.search.sampler == "grid":
            return grid_trials(self.space, self.search.trials)
        if self.search.sampler == "random":
            return self.random_points()
        finished = [(trial.settings, trial.value) for trial in self.trials]
        higher = metric_of(self.request)[1]
        return [next_tpe_trial(self.space, finished, TRIAL_SEED, maximise=higher)]

    def random_points(self) -> list[dict[str, Any]]:
        return random_trials(self.space, self.search.trials, TRIAL_SEED)

    def trial_request(self, point: Mapping[str, Any]) -> Request:
        """Return the request of a trial, which evaluates on validation data."""
        settings = merged(self._settings(point), validation_settings(self.request))
        words = [f"{name}={setting_word(value)}" for name, value in point.items()]
        command = f"{self.request.command} # {shlex.join([self.objective, *words])}"
        return replace(self._request(settings), seeds=trial_seeds(self.search), command=command)

    def test_request(self, point: Mapping[str, Any], tuning: Tuning | None = None) -> Request:
        """Return the request that tests a choice."""
        return replace(self._request(self._settings(point)), tuning=tuning)

    def _request(self, settings: Mapping[str, Any]) -> Request:
        return replace(self.request, objectives=(self.objective,), settings=settings, search=None)

    def _settings(self, point: Mapping[str, Any]) -> dict[str, Any]:
        return merged(self.request.settings, nested_rules(point, {}))

    def tuning(self) -> Tuning:
        """Return the record of a search that has ended. Raises MetricError if no trial has a value."""
        metric, higher, unit = metric_of(self.request)
        best = best_trial(self.trials, higher_is_better=higher)
        if best is None:
            raise MetricError(f"No trial of {self.objective} has a {metric}: {self.trials[0].missing}")
        space, edge = {}, []
        for dimension in self.space:
            space[dimension.name] = str(dimension)
            tried = [trial.settings[dimension.name] for trial in self.trials]
            if dimension.is_edge(self.trials[best].settings[dimension.name], tried):
                edge.append(dimension.name)
        return Tuning(
            asked=self.search.space,
            space=space,
            sampler=self.search.sampler,
            seeds=trial_seeds(self.search),
            metric=metric,
            unit=unit,
            higher_is_better=higher,
            validation=self.validation,
            trials=tuple(self.trials),
            chosen=best,
            edge=tuple(edge),
        )


def trial_seeds(search: Search) -> tuple[int, ...]:
    """Return the seeds of the trainings of each trial."""
    return tuple(range(TRIAL_SEED, TRIAL_SEED + search.seeds))


def best_trial(trials: Sequence[Trial], *, higher_is_better: bool) -> int | None:
    """Return the place of the best trial, the first of equal ones; None if no trial has a value."""
    values = {place: trial.value for place, trial in enumerate(trials) if trial.value is not None}
    best = max if higher_is_better else min
    return best(values, key=values.__getitem__, default=None)


def run_tuned(
    requests: Sequence[Request],
    places: Sequence[Place],
    reporter: Reporter,
    start: StartWorker | None = None,
) -> list[Entry]:
    """Make all trials of requests, choose, and test each choice; `places` and `start` are as for `run_sweep`.

    A trial whose loss becomes NaN or infinite has no value and cannot be chosen. Any other failure ends the run, so
    that nothing is chosen among the trials that happened to finish; the same command goes on. An objective without a
    trial that has a value, or whose test diverges, is an error that is raised after the others are recorded.
    """
    searches: list[ObjectiveSearch] = []
    known = None
    for request in requests:
        searches += searches_of(request)
        # What would fail after all trials fails now.
        plan = make_plan(replace(request, search=None), known=known)
        known = plan.ingredients
        for note in [*plan.warnings(), *prospects(plan).lines(impossible=True)]:
            reporter.note(note)
    while searches and len(searches[0].trials) < searches[0].search.trials:
        asked = []
        for search in searches:
            for point in search.points():
                asked.append((search, point))
        trials = [search.trial_request(point) for search, point in asked]
        for place, made in _made(trials, places, reporter, start).items():
            search, point = asked[place]
            search.trials.append(_trial(search, point, made))
    entries, failed = [], []
    tests: list[Request] = []
    for search in searches:
        try:
            tuning = search.tuning()
        except MetricError as error:
            failed.append(error)
            continue
        reporter.note(f"{search.objective}: {in_words(tuning)}")
        tests.append(search.test_request(tuning.choice.settings, tuning))
    for request in requests:
        tests += _untrained(request)
    for made in _made(tests, places, reporter, start).values():
        try:
            entries.append(made.record())
        except EmobenchError as error:  # as of a test that diverged
            failed.append(error)
    for error in failed[1:]:
        reporter.note(str(error))
    if failed:
        raise failed[0]
    return entries


def _untrained(request: Request) -> list[Request]:
    """Return the request that tests the model as it is, if a run is to have it."""
    if PRETRAINED not in (request.objectives or suite_of(request).objectives):
        return []
    return [replace(request, search=None, objectives=(PRETRAINED,))]


def _made(
    requests: Sequence[Request],
    places: Sequence[Place],
    reporter: Reporter,
    start: StartWorker | None,
) -> dict[int, MadeRow]:
    """Make requests of one row each, and return their rows in order. Raises the first error but divergence."""
    by_request: dict[int, MadeRow] = {}
    if not requests:
        return by_request
    rows, jobs = plan_requests(requests, Silent())
    with closing(make_rows(requests, rows, jobs, places, reporter, start)) as all_made:
        for made in all_made:
            if isinstance(made.made, EmobenchError) and not isinstance(made.made, NonFiniteLossError):
                raise made.made
            by_request[made.row.request] = made
    return dict(sorted(by_request.items()))


def _trial(search: ObjectiveSearch, point: Mapping[str, Any], made: MadeRow) -> Trial:
    """Return a trial with its result; without one if its training diverged, or a score is missing."""
    if isinstance(made.made, EmobenchError):
        return Trial(settings=point, value=None, missing=str(made.made))
    metric, _, _ = metric_of(search.request)
    trainings: list[str] = []
    for run in made.planned.runs:
        trainings += [training.key for training in run.trainings()]
        search.validation = {planned.task.name: planned.task.protocol_id for planned in run.tasks()}
    tasks = []
    try:
        for evaluations in zip(*made.evaluations(), strict=True):
            tasks.append(summarise([score_of(evaluation, metric) for evaluation in evaluations]))
    except MetricError as error:
        return Trial(settings=point, value=None, missing=str(error), trainings=tuple(trainings))
    value = math.fsum(task.mean for task in tasks) / len(tasks)
    return Trial(settings=point, value=value, half_width=_half_width(tasks), trainings=tuple(trainings))


def _half_width(tasks: Sequence[MetricSummary]) -> float | None:
    """Return half the width of the 95 % interval of a mean over tasks; None if a task has no interval."""
    squares = []
    for task in tasks:
        if task.ci95 is None:
            return None
        low, high = task.ci95
        squares.append(((high - low) / 2) ** 2)
    return math.sqrt(math.fsum(squares)) / len(tasks)


def score_of(evaluation: Evaluation, metric: str) -> Score:
    """Return a task's score by a metric's name alone. Raises MetricError, with the reason, if it is missing."""
    for name, score in [*evaluation.scores().items(), *evaluation.missing.items()]:
        if name.split("/", 1)[1] != metric:
            continue
        if isinstance(score, str):
            raise MetricError(f"{name}: {score}")
        return score
    raise MetricError(f"a task has no metric {metric}.")


# From a request to searches


def searches_of(request: Request) -> list[ObjectiveSearch]:
    """Return the search of each objective of a request but `pretrained`.

    Raises ConfigError for a space that an objective has no setting of, and for tasks without validation data.
    """
    assert request.search is not None
    if request.search.sampler == "tpe":
        require("optuna")
    shared = set(trial_seeds(request.search)).intersection(request.seeds)
    if shared:
        raise ConfigError(f"--seed {min(shared)} is a seed of trials, whose luck decides; give another one.")
    validation_settings(request)
    wanted = [text for text in request.objectives or suite_of(request).objectives if text != PRETRAINED]
    if not wanted:
        raise ConfigError("--tune: the request trains nothing; add --objective NAME.")
    own_names: set[str] = set()
    for text in wanted:
        own_names.update(parameters_of(text))
    given = dict(dotted_settings(request.settings))
    for name, values in request.search.space.items():
        section, _, key = name.partition(".")
        if section not in ("recipe", "objective") or not key or (name == MAIN and values):
            raise ConfigError(f"--tune {name}: expected recipe.NAME, objective.NAME, or {MAIN} alone.")
        if section == "objective" and name != MAIN and key not in own_names:
            raise ConfigError(f"--tune {name}: none of {', '.join(wanted)} has a parameter {key}; drop it.")
        if name in given:
            raise ConfigError(f"{name} is given by --set and by --tune; keep one.")
    searches = []
    for text in wanted:
        space = parse_space(_own_space(text, request.search.space))
        if not space:
            raise ConfigError(
                f"--tune: {text} has none of the tuned settings, so that it would get no trials; add one that all "
                "objectives have, such as --tune recipe.learning_rate=1e-6..1e-4."
            )
        search = ObjectiveSearch(request, text, request.search, space)
        search.points()  # a number of trials that fits no grid fails here
        for step in range(SHARES + 1):  # and a wrong name or value here
            trial = search.trial_request({dimension.name: dimension.at(step / SHARES) for dimension in space})
            parts_of(trial, suite_of(request))
            load_objective(text, trial.section("objective"))
        searches.append(search)
    return searches


def _own_space(text: str, space: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a space that an objective has."""
    own: dict[str, str] = {}
    parameters = parameters_of(text)
    for name, values in space.items():
        if name == MAIN:
            for setting, around in main_parameter(text).items():
                own.setdefault(setting, around)
        elif name.startswith("recipe.") or name.partition(".")[2] in parameters:
            own[name] = values
    return own


def parameters_of(text: str) -> dict[str, dataclasses.Field[Any]]:
    """Return the parameters of an objective that `--objective` leaves open; none of a sum."""
    name, _, _ = text.partition("(")
    objective = load_objective(name).objective
    if not dataclasses.is_dataclass(objective):
        return {}
    return {parameter.name: parameter for parameter in dataclasses.fields(objective)}


def main_parameter(text: str) -> dict[str, str]:
    """Return the space of an objective's main parameter, its first number; empty if it has none.

    It goes from the lower to the upper bound. If one is missing, it begins at a tenth of the default, but not below the
    lower bound, or ends at ten times the default.
    """
    if "(" in text:
        return {}
    for parameter in parameters_of(text).values():
        low, high, default = parameter.metadata.get("low"), parameter.metadata.get("high"), parameter.default
        if isinstance(default, bool) or not isinstance(default, (int, float)):
            continue
        if default > 0 and None in (low, high):
            low, high = max(default / AROUND, low or 0), high or default * AROUND
        if low is not None and high is not None:
            # A range that is written as 0..1 is of whole numbers.
            ends = (math.ceil(low), math.floor(high)) if isinstance(default, int) else (float(low), float(high))
            return {f"objective.{parameter.name}": f"{ends[0]}..{ends[1]}"}
    return {}


def metric_of(request: Request) -> tuple[str, bool, str]:
    """Return the metric that decides, the suite's primary one, whether more of it is better, and its unit.

    Raises ConfigError for a suite without one.
    """
    suite = suite_of(request)
    if suite.primary is None:
        raise ConfigError(f"--tune: the suite {suite.name} has no primary metric to choose by; take another suite.")
    for _, tasks in parts_of(request, suite):
        for task in tasks:
            measure = load_kind(task.kind).measures.get(suite.primary)
            if measure is not None and measure.higher_is_better is not None:
                return suite.primary, measure.higher_is_better, measure.unit
    raise ConfigError(f"--tune: no task of this run has the metric {suite.primary}, which decides; add one.")


def validation_settings(request: Request) -> dict[str, Any]:
    """Return the settings of trials: tasks that have the deciding metric, on validation data.

    Raises ConfigError for a task without validation data, and for a setting of the request that decides the split.
    """
    metric, _, _ = metric_of(request)
    settings: dict[str, Any] = {}
    names = []
    for task in chain.from_iterable(tasks for _, tasks in parts_of(request, suite_of(request))):
        kind = load_kind(task.kind)
        if metric not in kind.measures:
            continue
        if not kind.validation:
            raise ConfigError(
                f"--tune: task {task.name}, of kind {kind.name}, has no validation data to choose by; leave it out "
                "with --set tasks=NAME,..., or drop --tune."
            )
        for key in kind.validation.keys() & request.section(kind.name).keys():
            raise ConfigError(f"--set {kind.name}.{key} is decided by --tune; drop it.")
        settings[kind.name] = dict(kind.validation)
        names.append(task.name)
    return {**settings, "tasks": names}


# The dry run


def planned_requests(request: Request) -> list[tuple[str, Request]]:
    """Return the requests of all trials and tests, each with its purpose; trials and choices of TPE are stand-ins."""
    planned = []
    for search in searches_of(request):
        points = search.random_points() if search.search.sampler == "tpe" else search.points()
        for number, point in enumerate(points, 1):
            planned.append((f"trial {number}", search.trial_request(point)))
        planned.append(("test", search.test_request(points[0])))
    planned += [("test", untrained) for untrained in _untrained(request)]
    return planned


def tuned_outline(request: Request, *, exact: bool = True, read: Read | None = None) -> Outline:
    """Return the dry run of a request; of a tuned one, all trials, and the tests with the first trial's settings."""
    read = read or Read()
    if request.search is None:
        return make_outline(request, exact=exact, read=read)
    joined: Outline | None = None
    for purpose, planned in planned_requests(request):
        outline = make_outline(planned, exact=exact, read=read)
        lines = []
        for line in outline.lines:
            if line.objective:
                line = replace(line, what=f"{purpose}: {line.what}", subject=purpose.partition(" ")[0])
            lines.append(line)
        outline = replace(outline, lines=tuple(lines), several=True)
        joined = joined.joined(outline) if joined else outline
    assert joined is not None
    return joined
