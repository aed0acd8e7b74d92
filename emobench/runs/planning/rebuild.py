"""Descriptions of planned stages on disk, before the work starts: the request, and the facts of the key.

    RUNS/planned/<key>.json   "kind", "facts", the "request" of the plan, and the "folder" of its relative paths

From this file alone, another process or machine that sees the same folders plans again and makes the stage. The file
is removed when the stage is complete (`Stages.make`): the files that are left are the unfinished stages.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, DataError
from emobench.core.files import write_whole
from emobench.core.reading import parse_json, read_text
from emobench.core.settings import build, canonical_json, to_plain
from emobench.registry import objective_files
from emobench.runs.planning.request import Request
from emobench.runs.stages.stage import FACTS, PLANNED, Stage, Stages
from emobench.runs.stages.storage import storage_errors

KINDS = ("train", "generate", "score")
"""The kinds of stages that are described; others are made along with them."""
CODE = ("objectives", "trust_remote_code", "settings")
"""Fields of a request that name code to be run."""
ROOM = "Free some space, or choose another folder with --runs DIR."
SHOWN = 3
"""Differences that an error names."""
MOST = 80
"""Characters of a value that an error names."""


@dataclass(frozen=True)
class Description:
    """A stage and its request, from its file alone."""

    stage: Stage
    request: Request
    folder: Path
    """The working folder of the command that planned it."""


def describe(planned: Iterable[Stage], request: Request, stages: Stages) -> None:
    """Write a file for each stage that is not finished and has none; a plan of finished ones writes nothing.

    A sweep has tens of thousands, so that they are not synced; one that a power failure left empty is written anew, and
    so is one that asks for other code.
    """
    plain = {name: value for name, value in to_plain(request).items() if name not in ("runs", "leaderboard")}
    for stage in planned:
        if not stage.described or stages.folder(stage).exists():
            continue
        path = stages.root / PLANNED / f"{stage.key}.json"
        if _asks_alike(path, plain):
            continue
        content = {"kind": stage.kind, "facts": stage.facts, "request": plain, "folder": Path.cwd()}
        text = json.dumps(to_plain(content), sort_keys=True, allow_nan=False) + "\n"
        with storage_errors(stages.root):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text, "A planned stage", ROOM, synced=False)


def _asks_alike(path: Path, request: Mapping[str, Any]) -> bool:
    """Return whether a file describes a stage, and asks for the same code to be run.

    Workers run what these files name. One that somebody else wrote for other code is replaced.
    """
    try:
        described = parse_json(read_text(path))["request"]
        return all(described[name] == request[name] for name in CODE)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def require_trusted(key: str, description: Description, objectives: Iterable[str], *, trusted: bool) -> None:
    """Raise ConfigError if a description asks for code that the user has not named.

    A plan is planned again before its key is compared, and that runs the objective's file. `objectives` are the user's,
    relative to the working folder; those of the description are relative to the folder that it names.
    """
    given: set[Path] = set()
    for text in objectives:
        given |= {file.resolve() for file in objective_files(text)}
    for text in description.request.objectives:
        for file in objective_files(text):
            if (description.folder / file).resolve() not in given:
                raise ConfigError(
                    f"Stage {key} runs the file {description.folder / file}. Read it, and add --objective "
                    f"{shlex.quote(text)} if you trust it, from the folder {description.folder}."
                )
    if description.request.trust_remote_code and not trusted:
        raise ConfigError(
            f"Stage {key} was planned with --trust-remote-code, which runs Python of a model or of tasks; add "
            "--trust-remote-code if you trust them."
        )


def find_stage(runs: Path, key: str) -> tuple[Stage, Description | None]:
    """Return a stage by its key or the beginning of it: as it was planned, else as it was finished.

    Raises ConfigError where there is none or several, DataError for one whose description was altered.
    """
    if not re.fullmatch("[0-9a-f]{1,16}", key):
        raise ConfigError(f"KEY {key}: expected the key of a stage, 16 digits from 0 to f, or the first ones of them.")
    finished: dict[str, Path] = {}
    for kind in KINDS:
        for path in (runs / kind).glob(f"{key}*/{FACTS}"):
            if "." not in path.parent.name:
                finished[path.parent.name] = path
    planned = {path.stem: path for path in (runs / PLANNED).glob(f"{key}*.json")}
    keys = sorted({*planned, *finished})
    if len(keys) > 1:
        raise ConfigError(f"KEY {key} is the beginning of {len(keys)} stages: {', '.join(keys[:5])}; give more of it.")
    if not keys:
        raise ConfigError(
            f"KEY {key}: {runs} has no stage of this key. Give its folder with --runs DIR; the keys of what is to be "
            f"made are the names of the files in {runs / PLANNED}, which a run writes when it starts."
        )
    path = planned.get(keys[0]) or finished[keys[0]]
    try:
        if keys[0] in planned:
            content = parse_json(read_text(path))
            stage = _identified(content["kind"], content["facts"], path.stem)
            request = replace(build(Request, content["request"], str(path)), runs=runs.resolve())
            return stage, Description(stage, request, Path(content["folder"]))
        return _identified(path.parent.parent.name, parse_json(read_text(path)), path.parent.name), None
    except (ValueError, OSError, KeyError, TypeError, AttributeError):
        raise DataError(
            f"{path} was altered: what it says does not have the key that it is named after. Give the command of the "
            "run again, which writes it anew once it is removed."
        ) from None


def find_planned(planned: Iterable[Stage], description: Description) -> Stage:
    """Return the described stage of a new plan; raises ConfigError if nothing has its key."""
    wanted, alike = description.stage, []
    for stage in planned:
        if stage.kind != wanted.kind:
            continue
        if stage.key == wanted.key:
            return stage
        alike.append(list(differences(wanted.facts, stage.facts)))
    nearest = min(alike, key=len, default=["the plan has no such stage"])
    more = f"; and {len(nearest) - SHOWN} more" if len(nearest) > SHOWN else ""
    raise ConfigError(
        f"Stage {wanted.key} ({wanted.kind}) cannot be made here: {'; '.join(nearest[:SHOWN])}{more}. Make these what "
        f"they were, or plan it anew with: {description.request.command or 'emobench run'}"
    )


def _identified(kind: str, facts: Mapping[str, Any], key: str) -> Stage:
    """Return the stage of recorded facts; ValueError unless their hash is its key."""
    stage = Stage(kind, facts)
    if stage.key != key:
        raise ValueError
    return stage


def differences(recorded: Any, here: Any, place: str = "") -> Iterator[str]:
    """Yield what differs between facts, each by its place: "packages.torch is 2.9 here, and was 2.8"."""
    if isinstance(recorded, Mapping) and isinstance(here, Mapping):
        for name in sorted({*recorded, *here}, key=str):
            yield from differences(recorded.get(name), here.get(name), f"{place}.{name}" if place else str(name))
    elif to_plain(recorded) != to_plain(here):
        yield f"{place} is {_shown(here)} here, and was {_shown(recorded)}"


def _shown(value: Any) -> str:
    text = "absent" if value is None else canonical_json(value).strip('"')
    return text if len(text) <= MOST else f"{text[:MOST]}..."
