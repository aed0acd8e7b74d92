"""Sweeps: the cells of many requests, made by workers. A file has grids of models, objectives, settings and seeds:

    suite = "generation"                         # what `emobench run` takes, for all cells
    limit = 400

    [set]                                        # settings of --set, for all cells
    "recipe.epochs" = 1

    [grid]                                       # every combination
    objective = ["mle", "emo", "tailr(gamma=0.2)"]
    seed = [0, 1, 2]
    "recipe.learning_rate" = [1e-5, 5e-5]

    [[skip]]                                     # cells that are left out: those that match all of its values
    objective = "tailr(gamma=0.2)"
    "recipe.learning_rate" = 1e-5

    [[also]]                                     # a further grid
    objective = ["mixce"]
    seed = [0]

    [choose]                                     # as --tune: each objective of a cell is tuned, and its choice tested
    trials = 8
    "recipe.learning_rate" = "1e-6..1e-4"

A cell is one objective, model, seed and choice of settings. Cells that differ in objective and seed alone are one
request, so that what they share is looked up once, and the seeds of an objective are one entry. Workers make the
stages of all requests, and each row is recorded when it is complete:

    RUNS/sweeps/<digest>.json     the rows of a sweep's file, with the keys of their stages; `sweep status` reads it
    RUNS/sweeps/<digest>.failed   the rows that failed in the last run, with their reasons
"""

from __future__ import annotations

import hashlib
import json
import math
import shlex
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, EmobenchError, UnknownNameError
from emobench.core.files import write_whole
from emobench.core.reading import read_toml
from emobench.core.settings import build, dotted_settings, parse_overrides, setting_word, to_plain
from emobench.leaderboard.entry import Entry
from emobench.models.device import Place
from emobench.runs.execution.execution import Execution
from emobench.runs.execution.reporter import Reporter
from emobench.runs.execution.workers import Job, StartWorker, Workers, jobs_of
from emobench.runs.planning.ingredients import Ingredients
from emobench.runs.planning.plan import Plan, PlannedRow, make_plan
from emobench.runs.planning.request import Request, Search
from emobench.runs.run import prepared, record
from emobench.runs.stages.corpora import PackedCorpora
from emobench.runs.stages.evaluate import Evaluation
from emobench.runs.stages.stage import Stages

FIELDS = {"suite": "suite", "model": "model", "objective": "objectives", "seed": "seeds", "limit": "limit"}
"""Options of `emobench run` that a grid varies besides settings, with the fields of a request."""
MOST_CELLS = 20_000
"""Cells of all grids together. Each is planned before the first one starts."""
FOLDER = "sweeps"
ROOM = "Free some space, or choose another folder with --runs DIR."
SHOWN = 5
"""Errors of a file that one message names."""


@dataclass(frozen=True, kw_only=True)
class SweepFile:
    """The content of a file; see the module."""

    suite: str | None = None
    model: str | None = None
    objective: str | None = None
    seed: int | None = None
    limit: int | None = None
    dtype: str | None = None
    from_scratch: bool = False
    data_dir: tuple[str, ...] | str = ()
    set: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, Any] | None = None
    skip: tuple[Mapping[str, Any], ...] = ()
    also: tuple[Mapping[str, Any], ...] = ()
    choose: Mapping[str, Any] | None = None

    def search(self, where: str) -> Search | None:
        """Return what `choose` tunes."""
        if self.choose is None:
            return None
        given = _flat(self.choose, where)
        fields = {name: given.pop(name) for name in ("trials", "seeds", "sampler") if name in given}
        space = {name: setting_word(value) for name, value in given.items()}
        return build(Search, {"trials": 8, **fields, "space": space}, f"{where}: choose")

    def cells(self, where: str) -> Iterator[dict[str, Any]]:
        """Yield the values of each cell by the names of its grid, without those that a `skip` matches."""
        fixed = {name: value for name in FIELDS if (value := getattr(self, name)) is not None}
        fixed |= _flat(self.set, where)
        skipped, count = [_flat(table, where) for table in self.skip], 0
        grids = [_flat(grid, where) for grid in self.also]
        if self.grid is not None or not grids:
            grids.insert(0, _flat(self.grid or {}, where))
        known = {*fixed, *chain.from_iterable(grids)}
        for name in chain.from_iterable(skipped):
            if name not in known:
                raise UnknownNameError("value of a cell", name, known, where=f"{where}: skip: ")
        for names in grids:
            for name, values in names.items():
                if name in fixed:
                    raise ConfigError(f"{where}: {name} has a value for all cells, and values in a grid; keep one.")
                if not isinstance(values, list):
                    raise ConfigError(f"{where}: `{name}` is {values!r:.60} in a grid; expected a list of values.")
            count += math.prod(map(len, names.values()))
            if count > MOST_CELLS:
                raise ConfigError(f"{where}: the grids have {count:,} cells; expected {MOST_CELLS:,} at most.")
            for combination in product(*names.values()):
                cell = fixed | dict(zip(names, combination, strict=True))
                if not any(table.items() <= cell.items() for table in skipped):
                    yield cell


@dataclass(frozen=True)
class Sweep:
    """The requests of a file."""

    requests: tuple[Request, ...]
    cells: int


def read_sweep(path: Path, suite: str, **given: Any) -> Sweep:
    """Return the requests of a file; `given` are fields of all of them, and `suite` is that of cells without one.

    Raises a UserError for a file that cannot be used.
    """
    file = build(SweepFile, read_toml(path), str(path))
    # Cells that differ in objective and seed alone are one request, if all objectives have the same seeds.
    seeds: dict[tuple[str, str], list[Any]] = {}
    for cell in file.cells(str(path)):
        objective, seed = json.dumps(cell.pop("objective", None)), cell.pop("seed", None)
        of_objective = seeds.setdefault((json.dumps(cell), objective), [])
        if seed not in of_objective:
            of_objective.append(seed)
    if not seeds:
        raise ConfigError(f"{path}: no cell is left; expected `grid` to have one that `skip` does not match.")
    groups: dict[tuple[str, str], list[str]] = {}
    for (cell, objective), of_objective in seeds.items():
        groups.setdefault((cell, json.dumps(of_objective)), []).append(objective)
    requests = []
    for (cell, of_all), objectives in groups.items():
        fields: dict[str, Any] = {"suite": suite, **json.loads(cell)}
        fields["objective"] = [name for name in map(json.loads, objectives) if name is not None]
        fields["seed"] = [seed for seed in json.loads(of_all) if seed is not None]
        requests.append(_request(file, fields, given, str(path)))
    return Sweep(tuple(requests), sum(map(len, seeds.values())))


def _request(file: SweepFile, cell: dict[str, Any], given: Mapping[str, Any], where: str) -> Request:
    """Return the request that `emobench run` makes of the words of some cells, which differ in lists alone."""
    folders = [file.data_dir] if isinstance(file.data_dir, str) else file.data_dir
    fields = {"data_dirs": folders, "from_scratch": file.from_scratch, **to_plain(given)}
    if file.dtype is not None:
        fields.setdefault("dtype", file.dtype)
    search = file.search(where)
    if search is not None:
        fields["search"] = search
    words, settings = ["emobench", "run"], []
    for name, values in cell.items():
        if name in FIELDS:
            fields[FIELDS[name]] = values
            for value in values if isinstance(values, list) else [values]:
                words += [f"--{name}", str(value)]
        else:
            settings.append(f"{name}={setting_word(values)}")
            words += ["--set", settings[-1]]
    for folder in fields["data_dirs"]:
        words += ["--data-dir", folder]
    if fields["from_scratch"]:
        words.append("--from-scratch")
    return build(Request, {**fields, "settings": parse_overrides(settings), "command": shlex.join(words)}, where)


def differing_settings(requests: Sequence[Request]) -> list[list[str]]:
    """Return, for each request, its settings that not all of them have, as --set takes them."""
    each: list[list[str]] = []
    for request in requests:
        each.append([f"{name}={setting_word(value)}" for name, value in dotted_settings(request.settings)])
    common = set(each[0]).intersection(*each[1:]) if each else set()
    differing = []
    for words in each:
        differing.append([word for word in words if word not in common])
    return differing


def _flat(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a table with its settings by their dotted names, however they were nested."""
    pairs = list(dotted_settings(table))
    flat = dict(pairs)
    if len(flat) < len(pairs):
        raise ConfigError(f"{where}: a setting has two values in one table; keep one.")
    return flat


@dataclass(frozen=True, kw_only=True)
class SweepRow:
    """One entry of a sweep: an objective over its seeds, with the model and the settings of its request."""

    request: int
    """The place of its request."""
    row: int
    """Its place in the plan of the request."""
    label: str
    model: str
    settings: str
    """The settings that differ among the requests of the sweep, as --set takes them."""
    stages: tuple[str, ...]
    """"<kind>/<key>" of each."""


def run_sweep(
    sweep: Sweep,
    places: Sequence[Place],
    reporter: Reporter,
    start: StartWorker | None,
) -> tuple[list[Entry], list[tuple[SweepRow, str]]]:
    """Make all that is not finished, and record each row when it is complete; failures stop nothing else.

    Returns the entries, and the rows that failed, with the reason.

    `start` makes the worker of a place, with the methods of `Worker`; None: a process on this machine.

    Raises ConfigError, before anything is made, for requests that cannot be planned.
    """
    rows, jobs = plan_requests(sweep.requests, reporter)
    _write(sweep, "json", list(map(vars, rows)))
    _write(sweep, "failed", {})
    entries: list[Entry] = []
    failed: list[tuple[SweepRow, str]] = []
    with closing(make_rows(sweep.requests, rows, jobs, places, reporter, start)) as all_made:
        for made in all_made:
            try:
                entries.append(made.record())
            except EmobenchError as failure:
                reporter.note(f"{made.row.label}: failed, and is not recorded")
                failed.append((made.row, str(failure)))
                _write(sweep, "failed", {f"{row.request}/{row.row}": reason for row, reason in failed})
    return entries, failed


@dataclass(frozen=True)
class MadeRow:
    """A row whose stages have ended: its plan with what made it, or the first error."""

    row: SweepRow
    made: tuple[Plan, Execution] | EmobenchError

    @property
    def planned(self) -> PlannedRow:
        """The row in its plan. Raises the error of a stage that failed."""
        plan, _ = self._whole()
        return plan.rows[self.row.row]

    def record(self) -> Entry:
        """Record the row, and return its entry. Raises the error of a stage that failed."""
        plan, execution = self._whole()
        return record(plan, self.planned, execution)

    def evaluations(self) -> list[list[Evaluation]]:
        """Return the evaluations of each seed. Raises the error of a stage that failed."""
        _, execution = self._whole()
        return [execution.evaluations(run.tasks()) for run in self.planned.runs]

    def _whole(self) -> tuple[Plan, Execution]:
        if isinstance(self.made, EmobenchError):
            raise self.made
        return self.made


def make_rows(
    requests: Sequence[Request],
    rows: Sequence[SweepRow],
    jobs: Sequence[Job],
    places: Sequence[Place],
    reporter: Reporter,
    start: StartWorker | None,
) -> Generator[MadeRow]:
    """Make the planned stages of requests, and yield each row when its stages have ended; see `run_sweep`."""
    last: tuple[int, tuple[Plan, Execution]] | None = None
    groups = []
    for row in rows:
        groups.append([stage.partition("/")[2] for stage in row.stages])
    runs = requests[0].runs.resolve()
    to_make = {job.key for job in jobs}
    finished = sum(map(to_make.isdisjoint, groups))
    with Workers(places, jobs, runs, reporter, start) as workers, reporter.work("sweep", "rows") as progress:
        progress(finished, len(rows))  # the rate is that of the others
        for ended, (place, error) in enumerate(workers.completed(groups), 1):
            row = rows[place]
            made: tuple[Plan, Execution] | EmobenchError
            if error is not None:
                made = error
            elif last is not None and last[0] == row.request:
                made = last[1]
            else:
                try:
                    plan = make_plan(requests[row.request])
                    made = plan, Execution(plan.request, plan.model, reporter)
                    last = row.request, made
                except EmobenchError as failure:
                    made = failure
            yield MadeRow(row, made)
            progress(max(ended, finished), len(rows))


def plan_requests(requests: Sequence[Request], reporter: Reporter) -> tuple[list[SweepRow], list[Job]]:
    """Plan and check each request, and write down its stages; files that requests share are read once.

    Raises ConfigError, which names them, for requests that cannot be planned.
    """
    rows: list[SweepRow] = []
    jobs: list[Job] = []
    errors: list[str] = []
    known: Ingredients | None = None
    corpora = PackedCorpora(Stages(requests[0].runs), reporter)
    with reporter.work("plan", "requests") as progress:
        for place, (request, settings) in enumerate(zip(requests, differing_settings(requests), strict=True)):
            try:
                plan = make_plan(request, known=known)
                known = plan.ingredients
                execution = prepared(plan, reporter, corpora=corpora)
            except EmobenchError as error:
                errors.append(f"{request.command}: {error}")
                continue
            about = ", ".join([plan.model.name, *settings])
            jobs += jobs_of(plan, execution.stages, about)
            for number, row in enumerate(plan.rows):
                stages: dict[str, None] = {}
                for run in row.runs:
                    stages |= dict.fromkeys(f"{stage.kind}/{stage.key}" for stage in run.stages())
                own = SweepRow(
                    request=place,
                    row=number,
                    label=row.label,
                    model=plan.model.name,
                    settings=", ".join(settings),
                    stages=tuple(stages),
                )
                rows.append(own)
            progress(place + 1, len(requests))
    if errors:
        listed = "\n".join(errors[:SHOWN])
        raise ConfigError(f"{len(errors)} of {len(requests)} requests of the sweep cannot run, such as:\n{listed}")
    return rows, jobs


def _file(sweep: Sweep, ending: str, runs: Path) -> Path:
    """Return a file of a sweep. Its name is a digest of the requests, however the sweep was written."""
    text = json.dumps([request.command for request in sweep.requests])
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    return runs / FOLDER / f"{name}.{ending}"


def _write(sweep: Sweep, ending: str, content: Any) -> None:
    path = _file(sweep, ending, sweep.requests[0].runs)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(content, indent=1) + "\n", "The state of a sweep", ROOM)


def status_of(runs: Path, sweep: Sweep) -> list[dict[str, Any]]:
    """Return the fields of each row with "made" (finished stages), "failed" (the reason) and "state".

    Raises ConfigError if it was not started.
    """
    try:
        rows, failed = [json.loads(_file(sweep, ending, runs).read_text("utf-8")) for ending in ("json", "failed")]
    except FileNotFoundError:
        raise ConfigError(f"{runs} has no such sweep; start it with `emobench sweep run`, or give --runs.") from None
    for row in rows:
        row["made"] = sum((runs / stage).exists() for stage in row["stages"])
        row["failed"] = failed.get(f"{row['request']}/{row['row']}")
        row["state"] = "begun" if row["made"] else "to do"
        if row["made"] == len(row["stages"]):
            row |= {"state": "done", "failed": None}
        elif row["failed"]:
            row["state"] = "failed"
    return rows
