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

A cell is one objective, model, seed and choice of settings. Cells that differ in objective and seed alone are one
request, so that what they share is looked up once, and the seeds of an objective are one entry. Workers make the
stages of all requests, and each row is recorded when it is complete:

    RUNS/sweeps/<digest>.json     the rows of a sweep's file, with the keys of their stages; `sweep status` reads it
    RUNS/sweeps/<digest>.failed   the rows that failed in the last run, a line of JSON each
"""

from __future__ import annotations

import hashlib
import json
import math
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, EmobenchError, UnknownNameError
from emobench.core.files import write_whole
from emobench.core.reading import MOST_BITS, read_text
from emobench.leaderboard.entry import Entry
from emobench.models.device import Place
from emobench.runs.execution.execution import Execution
from emobench.runs.execution.reporter import Reporter
from emobench.runs.execution.workers import Job, Worker, Workers, jobs_of
from emobench.runs.planning.ingredients import Ingredients
from emobench.runs.planning.make_plan import make_plan
from emobench.runs.planning.plan import Plan
from emobench.runs.planning.request import Request, setting_names
from emobench.runs.run import prepared, record
from emobench.runs.stages.corpora import PackedCorpora
from emobench.runs.stages.stage import Stages

CHOSEN: dict[str, type] = {"model": str, "objective": str, "seed": int, "suite": str, "limit": int}
"""Names that a grid varies besides settings: options of `emobench run`."""
SHARED: dict[str, type] = {"from_scratch": bool, "dtype": str}
"""Options that all cells share; `data_dir`, a folder or several, is one, too."""
PARTS = (*CHOSEN, *SHARED, "data_dir", "set", "grid", "skip", "also")
MOST_CELLS = 20_000
"""Cells of all grids together. Each is planned before the first one starts."""
FOLDER = "sweeps"
ROOM = "Free some space, or choose another folder with --runs DIR."
SHOWN = 5
"""Errors of a file that one message names."""

Cell = Mapping[str, Any]
"""The values of a cell by the names of the grid."""


@dataclass(frozen=True)
class Sweep:
    """The requests of a file."""

    requests: tuple[Request, ...]
    cells: int


def read_sweep(path: Path, suite: str, **given: Any) -> Sweep:
    """Return the requests of a file; `given` are fields of all of them, and `suite` is that of cells without one.

    Raises a UserError for a file that cannot be used.
    """
    try:
        content = tomllib.loads(read_text(path))
    except FileNotFoundError:
        raise ConfigError(f"{path} is not there; expected a file of a sweep, in TOML.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); expected a file of a sweep, in TOML.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply; expected tables of names and values.") from None
    for name in content:
        if name not in PARTS:
            raise UnknownNameError("part of a sweep", name, PARTS, where=f"{path}: ")
    cells = {_shown(cell): cell for cell in _cells(content, path)}
    if not cells:
        raise ConfigError(f"{path}: no cell is left; expected `grid` to have one that `skip` does not match.")
    shared: dict[str, Any] = {name: _typed(content[name], name, SHARED, path) for name in SHARED if name in content}
    folders = content.get("data_dir", [])
    if isinstance(folders, str):
        folders = [folders]
    if not isinstance(folders, list) or not all(isinstance(folder, str) for folder in folders):
        raise ConfigError(f"{path}: `data_dir` is {_shown(folders)}; expected a folder, or a list of folders.")
    shared |= {"data_dirs": tuple(map(Path, folders)), **given, "suite": suite}
    requests = [_request(group, shared, path) for group in _grouped(cells.values())]
    return Sweep(tuple(requests), len(cells))


def differing_settings(requests: Sequence[Request]) -> list[list[str]]:
    """Return, for each request, its settings that not all of them have, as --set takes them."""
    each: list[list[str]] = []
    for request in requests:
        each.append([f"{name}={_word(value)}" for name, value in _dotted(request.settings)])
    common = set(each[0]).intersection(*each[1:]) if each else set()
    differing = []
    for words in each:
        differing.append([word for word in words if word not in common])
    return differing


def _cells(content: Mapping[str, Any], path: Path) -> Iterator[Cell]:
    """Yield each cell of the grids that no `skip` matches, with the values that all cells share."""
    fixed = {name: content[name] for name in CHOSEN if name in content}
    fixed |= _settings(content.get("set", {}), f"{path}: set")
    skipped = [_settings(table, f"{path}: skip") for table in _tables(content, "skip", path)]
    grids, count = _tables(content, "also", path), 0
    if "grid" in content or not grids:
        grids = [content.get("grid", {}), *grids]
    for grid in grids:
        names = _settings(grid, f"{path}: grid")
        for name, values in names.items():
            if name in fixed:
                raise ConfigError(f"{path}: {name} has a value for all cells, and values in a grid; keep one of them.")
            if not isinstance(values, list) or not values:
                raise ConfigError(f"{path}: `{name}` is {_shown(values)} in a grid; expected a list of values.")
            if len({_shown(value) for value in values}) < len(values):
                raise ConfigError(f"{path}: `{name}` has a value twice in a grid; give each once.")
        count += math.prod(map(len, names.values()))
        if count > MOST_CELLS:
            raise ConfigError(
                f"{path}: the grids have {count:,} cells; expected {MOST_CELLS:,} at most. Split the file."
            )
        for combination in product(*names.values()):
            cell = {**fixed, **dict(zip(names, combination, strict=True))}
            if not any(table.items() <= cell.items() for table in skipped):
                yield cell


def _tables(content: Mapping[str, Any], name: str, path: Path) -> list[Mapping[str, Any]]:
    tables = content.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(f"{path}: `{name}` is {_shown(tables)}; expected tables, each headed [[{name}]].")
    return tables


def _settings(table: Any, where: str) -> dict[str, Any]:
    """Return a table with its settings by their dotted names, however they were nested."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} is {_shown(table)}; expected a table of names and values.")
    settings: dict[str, Any] = {}
    for name, value in _dotted(table):
        for other in settings:
            if name == other or name.startswith(f"{other}.") or other.startswith(f"{name}."):
                raise ConfigError(f"{where}: `{name}` and `{other}` are the same, or one holds the other; keep one.")
        if name not in CHOSEN and name.partition(".")[0] not in (known := setting_names()):
            raise UnknownNameError("setting", name, {*CHOSEN, *known}, where=f"{where}: ")
        _require_plain(value, f"{where}: `{name}`")
        settings[name] = value
    return settings


def _require_plain(value: Any, where: str) -> None:
    """Raise ConfigError for a value that no setting has, such as a date, which TOML knows, or infinity."""
    if isinstance(value, list):
        for item in value:
            _require_plain(item, where)
    elif not isinstance(value, (str, bool, int, float)):
        raise ConfigError(f"{where} is {value!s:.60}; expected text, a number, true or false, or a list of them.")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where} is {value}; expected a finite number.")
    elif isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise ConfigError(f"{where} is a whole number of more than {MOST_BITS:,} bits.")


def _dotted(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _grouped(cells: Iterable[Cell]) -> Iterator[list[Cell]]:
    """Yield the cells that one request makes: those of one model and choice of settings, with the same seeds."""
    alike: dict[str, dict[str, list[Cell]]] = {}
    for cell in cells:
        others = {name: value for name, value in cell.items() if name not in ("objective", "seed")}
        alike.setdefault(_shown(others), {}).setdefault(_shown(cell.get("objective")), []).append(cell)
    for objectives in alike.values():
        same: dict[str, list[Cell]] = {}
        for group in objectives.values():
            same.setdefault(_shown([cell.get("seed") for cell in group]), []).extend(group)
        yield from same.values()


def _request(cells: Sequence[Cell], shared: Mapping[str, Any], path: Path) -> Request:
    values: dict[str, list[Any]] = {}
    settings: dict[str, Any] = {}
    words: list[str] = []
    for name in CHOSEN:
        values[name] = list(dict.fromkeys(_typed(cell[name], name, CHOSEN, path) for cell in cells if name in cell))
    for name, value in cells[0].items():
        if name not in CHOSEN:
            _nest(settings, name, value, path)
            words += ["--set", f"{name}={_word(value)}"]
    own = {name: values[name][0] for name in ("model", "limit", "suite") if values[name]}
    options = ["--suite", own.get("suite", shared["suite"])]
    for name in ("model", "objective", "seed", "limit"):
        for value in values[name]:
            options += [f"--{name}", str(value)]
    options += words
    for folder in shared["data_dirs"]:
        options += ["--data-dir", str(folder)]
    if shared.get("from_scratch"):
        options.append("--from-scratch")
    return Request(
        objectives=tuple(values["objective"]),
        seeds=tuple(values["seed"]),
        settings=settings,
        command=shlex.join(["emobench", "run", *options]),
        **{**shared, **own},
    )


def _typed(value: Any, name: str, kinds: Mapping[str, type], path: Path) -> Any:
    """Return a value; ConfigError for one of another type."""
    if type(value) is not kinds[name]:
        raise ConfigError(f"{path}: `{name}` is {_shown(value)}; expected {kinds[name].__name__}.")
    return value


def _nest(tree: dict[str, Any], name: str, value: Any, path: Path) -> None:
    """Add a setting by its dotted name, as `parse_overrides` nests it."""
    *above, last = name.split(".")
    for word in above:
        tree = tree.setdefault(word, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"{path}: `{name}` is inside of `{word}`, which has a value of its own; keep one.")
    if last in tree:
        raise ConfigError(f"{path}: `{name}` is set twice; keep one.")
    tree[last] = value


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _shown(value: Any) -> str:
    return json.dumps(value, default=str, sort_keys=True)


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


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """The entries of a sweep, and the rows that failed."""

    entries: tuple[Entry, ...]
    failed: tuple[tuple[SweepRow, str], ...]
    """Rows with the reason."""


def run_sweep(
    sweep: Sweep,
    places: Sequence[Place],
    reporter: Reporter,
    start: Callable[[Place, Path], Worker] | None = None,
) -> SweepResult:
    """Make all that is not finished, and record each row when it is complete; failures stop nothing else.

    `start` makes the worker of a place; None: a process on this machine.

    Raises ConfigError, before anything is made, for requests that cannot be planned.
    """
    rows, jobs = plan_sweep(sweep, reporter)
    entries: list[Entry] = []
    failed: list[tuple[SweepRow, str]] = []
    last: tuple[int, Plan, Execution] | None = None
    runs = sweep.requests[0].runs.resolve()
    groups = []
    for row in rows:
        groups.append([stage.partition("/")[2] for stage in row.stages])
    with Workers(places, jobs, runs, reporter, start) as workers, reporter.work("sweep", "entries") as progress:
        for place, error in workers.completed(groups):
            row = rows[place]
            try:
                if error is not None:
                    raise error
                if last is None or last[0] != row.request:
                    plan = make_plan(sweep.requests[row.request])
                    last = row.request, plan, Execution(plan.request, plan.model, reporter)
                _, plan, execution = last
                entries.append(record(plan, plan.rows[row.row], execution))
            except EmobenchError as failure:
                reporter.note(f"{row.label}: failed, and is not recorded")
                failed.append((row, str(failure)))
                _write_failed(sweep, failed)
            progress(len(entries) + len(failed), len(rows))
    _write_failed(sweep, failed)
    return SweepResult(entries=tuple(entries), failed=tuple(failed))


def plan_sweep(sweep: Sweep, reporter: Reporter) -> tuple[list[SweepRow], list[Job]]:
    """Plan and check each request, and write down its stages and rows; files that requests share are read once.

    Raises ConfigError, which names them, for requests that cannot be planned.
    """
    rows: list[SweepRow] = []
    jobs: list[Job] = []
    errors: list[str] = []
    known: Ingredients | None = None
    requests = sweep.requests
    corpora = PackedCorpora(Stages(requests[0].runs), reporter)
    several = len({request.model for request in requests}) > 1
    with reporter.work("plan", "requests") as progress:
        for place, (request, settings) in enumerate(zip(requests, differing_settings(requests), strict=True)):
            try:
                plan = make_plan(request, known=known)
                known = plan.ingredients
                execution = prepared(plan, reporter, corpora=corpora)
            except EmobenchError as error:
                errors.append(f"{request.command}: {error}")
                continue
            about = [plan.model.name, *settings] if several else settings
            jobs += jobs_of(plan, execution.stages, ", ".join(about))
            for number, row in enumerate(plan.rows):
                stages: dict[str, None] = {}
                for run in row.runs:
                    stages |= dict.fromkeys(f"{stage.kind}/{stage.key}" for stage in run.stages())
                described = {"label": row.label, "model": plan.model.name, "settings": ", ".join(settings)}
                rows.append(SweepRow(request=place, row=number, stages=tuple(stages), **described))
            progress(place + 1, len(requests))
    if errors:
        listed = "\n".join(errors[:SHOWN])
        if len(errors) > SHOWN:
            listed += f"\n... and {len(errors) - SHOWN} more"
        raise ConfigError(f"{len(errors)} of {len(requests)} requests of the sweep cannot run:\n{listed}")
    path = _file(sweep, "json")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps([vars(row) for row in rows], indent=1) + "\n", "The rows of a sweep", ROOM)
    return rows, jobs


def _file(sweep: Sweep, ending: str, runs: Path | None = None) -> Path:
    """Return a file of a sweep. Its name is a digest of the requests, however the sweep was written."""
    text = json.dumps([request.command for request in sweep.requests])
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    return (runs or sweep.requests[0].runs) / FOLDER / f"{name}.{ending}"


def _write_failed(sweep: Sweep, failed: Iterable[tuple[SweepRow, str]]) -> None:
    lines = [json.dumps({"request": row.request, "row": row.row, "reason": reason}) + "\n" for row, reason in failed]
    write_whole(_file(sweep, "failed"), "".join(lines), "The failures of a sweep", ROOM)


@dataclass(frozen=True, kw_only=True)
class RowStatus:
    """How far a row is."""

    row: SweepRow
    made: int
    failed: str | None
    """Why it failed in the last run, if it did and is still not made."""

    @property
    def state(self) -> str:
        if self.made == len(self.row.stages):
            return "done"
        if self.failed:
            return "failed"
        return "begun" if self.made else "to do"


def status_of(runs: Path, sweep: Sweep) -> list[RowStatus] | None:
    """Return the state of each row, from the names of the finished stages; None of a sweep that was not started."""
    path, failures = _file(sweep, "json", runs), _file(sweep, "failed", runs)
    if not path.exists():
        return None
    reasons, statuses = {}, []
    for line in failures.read_text("utf-8").splitlines() if failures.exists() else ():
        failure = json.loads(line)
        reasons[failure["request"], failure["row"]] = failure["reason"]
    for values in json.loads(path.read_text("utf-8")):
        row = SweepRow(**{**values, "stages": tuple(values["stages"])})
        made = sum((runs / stage).exists() for stage in row.stages)
        statuses.append(RowStatus(row=row, made=made, failed=reasons.get((row.request, row.row))))
    return statuses
