"""The file of a sweep: a grid of models, objectives, settings and seeds, as requests.

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
request, so that what they share is looked up once, and the seeds of an objective are one entry.
"""

from __future__ import annotations

import json
import math
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, UnknownNameError
from emobench.core.reading import MOST_BITS, read_text
from emobench.runs.planning.request import Request, setting_names

CHOSEN = ("model", "objective", "seed", "suite", "limit")
"""What a grid varies besides settings: options of `emobench run`."""
FIXED = ("from_scratch", "dtype", "data_dir")
"""What all cells share."""
PARTS = ("set", "grid", "skip", "also")
MOST_CELLS = 20_000
"""Cells of all grids together. Each is planned before the first one starts."""

Cell = Mapping[str, Any]
"""The values of a cell by the names of the grid."""


@dataclass(frozen=True)
class Sweep:
    """What a sweep comes to."""

    requests: tuple[Request, ...]
    cells: int


def read_sweep(path: Path, suite: str, **given: Any) -> Sweep:
    """Return the requests of a file; `given` are fields of all of them, and `suite` is that of cells without one.

    Raises a UserError for what cannot be used.
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
        if name not in (*CHOSEN, *FIXED, *PARTS):
            raise UnknownNameError("part of a sweep", name, (*CHOSEN, *FIXED, *PARTS), where=f"{path}: ")
    cells = list(dict.fromkeys(_hashable(cell) for cell in _cells(content, path)))
    if not cells:
        raise ConfigError(f"{path}: no cell is left; expected `grid` to have one that `skip` does not match.")
    shared = {**_shared(content, path), **given, "suite": suite}
    requests = [_request(group, shared, path) for group in _grouped([dict(cell) for cell in cells])]
    return Sweep(tuple(requests), len(cells))


def differing_settings(requests: Sequence[Request]) -> list[list[str]]:
    """Return, for each request, its settings that not all of them have, as --set takes them."""
    each = [[f"{name}={_word(value)}" for name, value in _dotted(request.settings)] for request in requests]
    common = {word for word in each[0] if all(word in words for words in each)} if each else set()
    return [[word for word in words if word not in common] for words in each]


def _cells(content: Mapping[str, Any], path: Path) -> Iterator[dict[str, Any]]:
    """Yield each cell of the grids that no `skip` matches, with the values that all cells share."""
    fixed = {name: content[name] for name in CHOSEN if name in content}
    fixed |= _settings(content.get("set", {}), f"{path}: set")
    skipped = [_settings(one, f"{path}: skip") for one in _tables(content, "skip", path)]
    grids = [content["grid"]] if "grid" in content else []
    count = 0
    for grid in [*grids, *_tables(content, "also", path)] or [{}]:
        names = _settings(grid, f"{path}: grid")
        if twice := sorted(names.keys() & fixed.keys()):
            raise ConfigError(f"{path}: {twice[0]} has a value for all cells, and values in a grid; keep one of them.")
        values = [_listed(name, value, path) for name, value in names.items()]
        count += math.prod(map(len, values))
        if count > MOST_CELLS:
            raise ConfigError(
                f"{path}: the grids have {count:,} cells; expected {MOST_CELLS:,} at most. Split the file."
            )
        for combination in product(*values):
            cell = {**fixed, **dict(zip(names, combination, strict=True))}
            if not any(all(cell.get(name) == value for name, value in one.items()) for one in skipped):
                yield cell


def _tables(content: Mapping[str, Any], name: str, path: Path) -> list[Mapping[str, Any]]:
    found = content.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ConfigError(f"{path}: `{name}` is {_shown(found)}; expected tables, each headed [[{name}]].")
    return found


def _settings(table: Any, where: str) -> dict[str, Any]:
    """Return a table with its settings by their dotted names, however they were nested."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} is {_shown(table)}; expected a table of names and values.")
    found: dict[str, Any] = {}
    for name, value in _dotted(table):
        if name in found:
            raise ConfigError(f"{where}: `{name}` is set twice; keep one.")
        if any(name.startswith(f"{other}.") or other.startswith(f"{name}.") for other in found):
            raise ConfigError(f"{where}: `{name}` is set, and so is a setting inside of it or around it; keep one.")
        for item in value if isinstance(value, list) else [value]:
            _require_plain(item, f"{where}: `{name}`")
        found[name] = value
    for name in found:
        if name not in CHOSEN and name.partition(".")[0] not in (known := setting_names()):
            raise UnknownNameError("setting", name, {*CHOSEN, *known}, where=f"{where}: ")
    return found


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


def _listed(name: str, values: Any, path: Path) -> list[Any]:
    if not isinstance(values, list) or not values:
        raise ConfigError(f"{path}: `{name}` is {_shown(values)} in a grid; expected a list of values.")
    if len({_shown(value) for value in values}) < len(values):
        raise ConfigError(f"{path}: `{name}` has a value twice in a grid; give each once.")
    return values


def _grouped(cells: Sequence[Cell]) -> Iterator[list[Cell]]:
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
    first = cells[0]
    objectives = list(dict.fromkeys(cell["objective"] for cell in cells if "objective" in cell))
    seeds = list(dict.fromkeys(cell["seed"] for cell in cells if "seed" in cell))
    words = [f"{name}={_word(value)}" for name, value in first.items() if name not in CHOSEN]
    for name, kind in {"model": str, "suite": str, "limit": int}.items():
        if name in first and type(first[name]) is not kind:
            raise ConfigError(f"{path}: `{name}` is {_shown(first[name])}; expected {kind.__name__}.")
    if not all(isinstance(name, str) for name in objectives) or not all(type(seed) is int for seed in seeds):
        raise ConfigError(f"{path}: `objective` has names in quotes, and `seed` whole numbers.")
    own = {name: first[name] for name in ("model", "limit", "suite") if name in first}
    options = [
        *(("--model", own["model"]) if "model" in own else ()),
        *(w for o in objectives for w in ("--objective", o)),
    ]
    options += [word for seed in seeds for word in ("--seed", str(seed))]
    options += ["--limit", str(own["limit"])] if "limit" in own else []
    options += [word for setting in words for word in ("--set", setting)]
    options += [word for folder in shared.get("data_dirs", ()) for word in ("--data-dir", str(folder))]
    options += ["--from-scratch"] if shared.get("from_scratch") else []
    return Request(
        objectives=tuple(objectives),
        seeds=tuple(seeds),
        settings=_nested({name: value for name, value in first.items() if name not in CHOSEN}, path),
        command=shlex.join(["emobench", "run", "--suite", own.get("suite", shared["suite"]), *options]),
        **{**shared, **own},
    )


def _nested(settings: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return settings by their dotted names as `parse_overrides` nests them."""
    tree: dict[str, Any] = {}
    for name, value in settings.items():
        *above, last = name.split(".")
        node = tree
        for word in above:
            node = node.setdefault(word, {})
            if not isinstance(node, dict):
                raise ConfigError(f"{path}: `{name}` is inside of `{word}`, which has a value of its own; keep one.")
        if last in node:
            raise ConfigError(f"{path}: `{name}` is set twice; keep one.")
        node[last] = _thawed(value)
    return tree


def _shared(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "data_dir" in content:
        folders = content["data_dir"] if isinstance(content["data_dir"], list) else [content["data_dir"]]
        if not all(isinstance(folder, str) for folder in folders):
            raise ConfigError(f"{path}: `data_dir` is {_shown(folders)}; expected a folder, or a list of folders.")
        found["data_dirs"] = tuple(map(Path, folders))
    for name, kind in {"from_scratch": bool, "dtype": str}.items():
        if name in content:
            if type(content[name]) is not kind:
                raise ConfigError(f"{path}: `{name}` is {_shown(content[name])}; expected {kind.__name__}.")
            found[name] = content[name]
    return found


def _hashable(cell: Cell) -> tuple[tuple[str, Any], ...]:
    return tuple((name, _frozen(value)) for name, value in cell.items())


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _thawed(value: Any) -> Any:
    return list(map(_thawed, value)) if isinstance(value, tuple) else value


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _shown(value: Any) -> str:
    return json.dumps(value, default=str, sort_keys=True)
