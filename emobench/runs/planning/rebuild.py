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
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, DataError
from emobench.core.files import write_whole
from emobench.core.reading import parse_json, read_text
from emobench.core.settings import build, canonical_json, to_plain
from emobench.registry import objective_files
from emobench.runs.planning.request import Request
from emobench.runs.stages.stage import FACTS, PLANNED, Stage, Stages, storage_errors

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

    A sweep has tens of thousands, so that they are not synced. Workers run the code that these files name: one that a
    power failure left empty, or that asks for other code, is written anew.
    """
    plain = {name: value for name, value in to_plain(request).items() if name not in ("runs", "leaderboard")}
    for stage in planned:
        path = stages.root / PLANNED / f"{stage.key}.json"
        if not stage.described or stages.folder(stage).exists():
            continue
        with suppress(OSError, ValueError, KeyError, TypeError):
            written = parse_json(read_text(path))["request"]
            if all(written[name] == plain[name] for name in CODE):
                continue
        content = {"kind": stage.kind, "facts": stage.facts, "request": plain, "folder": Path.cwd()}
        text = json.dumps(to_plain(content), sort_keys=True, allow_nan=False) + "\n"
        with storage_errors(stages.root):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text, "A planned stage", ROOM, synced=False)


def require_trusted(key: str, description: Description, objectives: Iterable[str], *, trusted: bool) -> None:
    """Raise ConfigError if a description asks for code that the user has not named.

    A plan is planned again before its key is compared, and that runs the objective's file. `objectives` are the user's,
    relative to the working folder; those of the description are relative to the folder that it names.
    """
    given: set[Path] = set()
    for text in objectives:
        given |= {file.resolve() for file in objective_files(text)}
    for text in description.request.objectives:
        for file in objective_files(text, description.request.section("objective")):
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
    paths: dict[str, Path] = {}
    for kind in KINDS:
        for path in (runs / kind).glob(f"{key}*/{FACTS}"):
            if not path.parent.suffix:
                paths[path.parent.name] = path
    for path in (runs / PLANNED).glob(f"{key}*.json"):
        paths[path.stem] = path
    if len(paths) != 1:
        raise ConfigError(
            f"KEY {key}: {len(paths)} stages of {runs} have such a key; expected one. Planned stages are "
            f"the files in {runs / PLANNED}, which a run writes when it starts; give the folder with --runs DIR."
        )
    ((name, path),) = paths.items()
    try:
        content = parse_json(read_text(path))
        if path.parent.name != PLANNED:
            return _identified(path.parent.parent.name, content, name), None
        stage = _identified(content["kind"], content["facts"], name)
        request = replace(build(Request, content["request"], str(path)), runs=runs.resolve())
        return stage, Description(stage, request, Path(content["folder"]))
    except (ValueError, OSError, KeyError, TypeError, AttributeError):
        raise DataError(
            f"{path} was altered: its content does not have the key that it is named after. Remove it, and give the "
            "command of the run again."
        ) from None


def find_planned(planned: Iterable[Stage], description: Description) -> Stage:
    """Return the described stage of a new plan; raises ConfigError if nothing has its key."""
    wanted, alike = description.stage, []
    for stage in planned:
        if stage.kind == wanted.kind:
            if stage.key == wanted.key:
                return stage
            alike.append(list(differences(wanted.facts, stage.facts)))
    nearest = min(alike, key=len, default=["the plan has no such stage"])
    raise ConfigError(
        f"Stage {wanted.key} ({wanted.kind}) cannot be made here: {'; '.join(nearest[:SHOWN])}. Make these what they "
        f"were, or plan it again with: {description.request.command or 'emobench run'}"
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
