"""A stage that is to be made, on disk before the work starts: what was asked for, and what its key was made of.

    RUNS/planned/<key>.json   "kind", "facts", the "request" of the plan, and the "folder" of its relative paths

From this file alone, another process or machine that sees the same folders plans again and makes the stage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from emobench.config import build, canonical_json, to_plain
from emobench.errors import ConfigError, DataError
from emobench.files import write_whole
from emobench.pipeline.planning.jobs import Job
from emobench.pipeline.planning.request import Request
from emobench.pipeline.stages.stage import FACTS, Stage, Stages
from emobench.pipeline.stages.storage import storage_errors
from emobench.reading import parse_json, read_text

PLANNED = "planned"
KINDS = ("train", "generate", "score")
"""The stages that a plan has; others are made with them."""
SHOWN = 3
"""Differences that an error names."""
MOST = 80
"""Characters of a value that an error names."""


@dataclass(frozen=True)
class Description:
    """What is known of a stage from its file alone."""

    stage: Stage
    request: Request
    folder: Path
    """The working folder of the command that planned it."""


def describe(jobs: Iterable[Job], request: Request, stages: Stages) -> None:
    """Write a file for each stage that is not finished and has none; a plan of finished ones writes nothing."""
    plain = {name: value for name, value in to_plain(request).items() if name not in ("runs", "leaderboard")}
    for job in jobs:
        path = stages.root / PLANNED / f"{job.stage.key}.json"
        if path.exists() or stages.folder(job.stage).exists():
            continue
        content = {"kind": job.stage.kind, "facts": job.stage.facts, "request": plain, "folder": Path.cwd()}
        text = json.dumps(json.loads(canonical_json(content)), indent=1) + "\n"
        with storage_errors(stages.root):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text, "A planned stage", "Free some space, or choose another folder with --runs DIR.")


def find_stage(runs: Path, key: str) -> tuple[Stage, Description | None]:
    """Return a stage by its key or the beginning of it: as it was planned, else as it was finished.

    Raises ConfigError where there is none or several, DataError for one whose description was altered.
    """
    if not re.fullmatch("[0-9a-f]{1,16}", key):
        raise ConfigError(f"KEY {key}: expected the key of a stage, 16 digits from 0 to f, or the first ones of them.")
    files = [path for kind in KINDS for path in (runs / kind).glob(f"{key}*/{FACTS}") if "." not in path.parent.name]
    finished = {path.parent.name: path for path in files}
    planned = {path.stem: path for path in (runs / PLANNED).glob(f"{key}*.json")}
    keys = sorted({*planned, *finished})
    if len(keys) != 1:
        raise _no_stage(runs, key, keys)
    (found,) = keys
    if found in planned:
        description = _read(planned[found], runs)
        return description.stage, description
    path = finished[found]
    return _identified(path.parent.parent.name, _json(path), found, path), None


def find_job(jobs: Iterable[Job], description: Description) -> Job:
    """Return the job of a new plan that makes a described stage; raises ConfigError where none has its key."""
    wanted, alike = description.stage, []
    for job in jobs:
        if job.stage.key == wanted.key:
            return job
        if job.stage.kind == wanted.kind:
            alike.append(list(_differences(wanted.facts, job.stage.facts)))
    nearest = min(alike, key=len, default=[])
    named = "; ".join(nearest[:SHOWN]) + (f"; and {len(nearest) - SHOWN} more" if len(nearest) > SHOWN else "")
    again = description.request.command or "emobench run"
    raise ConfigError(
        f"Stage {wanted.key} ({wanted.kind}) cannot be made here: {named or 'the plan has no such stage'}. "
        f"Make these what they were, or plan it anew with: {again}"
    )


def _read(path: Path, runs: Path) -> Description:
    content = _json(path)
    try:
        stage = _identified(content["kind"], content["facts"], path.stem, path)
        request = build(Request, content["request"], str(path))
        return Description(stage, replace(request, runs=runs.resolve()), Path(content["folder"]))
    except (KeyError, TypeError, AttributeError):
        raise _altered(path) from None


def _json(path: Path) -> Any:
    try:
        return parse_json(read_text(path))
    except (ValueError, OSError):
        raise _altered(path) from None


def _identified(kind: str, facts: Mapping[str, Any], key: str, path: Path) -> Stage:
    """Return the stage of recorded facts, whose hash its key has to be."""
    stage = Stage(kind, facts)
    if stage.key != key:
        raise _altered(path)
    return stage


def _altered(path: Path) -> DataError:
    return DataError(
        f"{path} was altered: what it says does not have the key that it is named after. Give the command of the run "
        "again, which writes it anew once it is removed."
    )


def _no_stage(runs: Path, key: str, keys: list[str]) -> ConfigError:
    if keys:
        return ConfigError(f"KEY {key} is the beginning of {len(keys)} stages: {', '.join(keys[:5])}; give more of it.")
    known = sorted(path.stem for path in (runs / PLANNED).glob("*.json"))
    more = ", ..." if len(known) > len(known[:5]) else ""
    there = f"planned there: {', '.join(known[:5])}{more}" if known else "none is planned there"
    return ConfigError(
        f"KEY {key}: {runs} has no stage of this key ({there}). Give its folder with --runs DIR; a run writes its "
        "stages there when it starts."
    )


def _differences(recorded: Any, here: Any, place: str = "") -> Iterator[str]:
    """Yield what differs between facts, each by its place: "packages.torch is 2.9 here, and was 2.8"."""
    if isinstance(recorded, Mapping) and isinstance(here, Mapping):
        for name in sorted({*recorded, *here}, key=str):
            yield from _differences(recorded.get(name), here.get(name), f"{place}.{name}" if place else str(name))
    elif to_plain(recorded) != to_plain(here):
        yield f"{place} is {_shown(here)} here, and was {_shown(recorded)}"


def _shown(value: Any) -> str:
    text = "absent" if value is None else canonical_json(value).strip('"')
    return text if len(text) <= MOST else f"{text[:MOST]}..."
