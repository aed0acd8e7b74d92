"""Which files of lm-evaluation-harness define a task: found by name in a second, without parsing all 14,000 of them."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lm_eval.tasks
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml

from emobench.core.errors import ConfigError
from emobench.core.reading import expand_home, is_folder

TASKS = Path(lm_eval.tasks.__file__).parent
_INCLUDE = re.compile(r"""^["']?include["']?\s*:\s*["']?([^"'\s#]+)""", re.MULTILINE)
_NAMES = re.compile(r"""^["']?(?:task|group|tag)["']?\s*:\s*["']?([\w.+-]+)""", re.MULTILINE)


def find_manager(name: str, include: str) -> TaskManager:
    """Return a manager that knows a task, group or tag and all that it is made of; `include` is the user's folder.

    It reads the folders that mention these names, and knows what a manager of everything would say of them.
    Raises ConfigError for a name that nothing defines, with the nearest ones.
    """
    own = [_own_folder(include)] if include else []
    folders = _folders_of(name)
    while True:
        manager = TaskManager(include_path=[*_first_wins(folders), *own], include_defaults=False)
        _join_tags(manager, own)
        # A tag is spread over files, so that those of the first folders need not be all.
        entries = {other: manager.task_index.get(other) for other in reached(name, manager)}
        partial = [other for other, entry in entries.items() if entry is None or entry.kind.name == "TAG"]
        more = {folder for other in partial for folder in _folders_of(other)}
        if more <= folders:
            break
        folders |= more
    if name not in manager.task_index:
        raise _unknown(name, manager, include)
    return manager


def reached(name: str, manager: TaskManager) -> list[str]:
    """Return a name and all names that it stands for, through groups and tags; some may be defined by nothing."""
    found: dict[str, None] = {}
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in found:
            continue
        found[current] = None
        entry = manager.task_index.get(current)
        if entry is not None and entry.kind.name == "TAG":
            waiting += sorted(entry.tags)
        elif entry is not None and entry.kind.name == "GROUP":
            waiting += _members((entry.cfg or {}).get("task"))
    return list(found)


def sources(path: Path) -> Iterator[Path]:
    """Yield a task's file and those that it includes."""
    yield path
    for found in _INCLUDE.findall(path.read_text(encoding="utf-8", errors="replace")):
        inner = (path.parent / found).resolve()
        if inner.is_file() and inner != path:
            yield from sources(inner)


def _members(listed: Any) -> list[str]:
    found: list[str] = []
    for item in listed if isinstance(listed, list) else []:
        if isinstance(item, Mapping):
            inner = item.get("task")
            found += _members(inner) if isinstance(inner, list) else []
            found += [str(n) for n in (item.get("group"), inner) if isinstance(n, str)]
        else:
            found.append(str(item))
    return found


def _join_tags(manager: TaskManager, own: list[Path]) -> None:
    """Give each tag the tasks of all folders, where a manager has those of the last. One's own replaces lm-eval's."""

    def tags(entry: Any) -> list[str]:
        found = (entry.cfg or {}).get("tag") or []
        return [found] if isinstance(found, str) else found

    for tag in (entry for entry in manager.task_index.values() if entry.kind.name == "TAG"):
        tagged = {n: e for n, e in manager.task_index.items() if tag.name in tags(e)}
        ours = {n for n, e in tagged.items() if e.yaml_path and any(e.yaml_path.is_relative_to(f) for f in own)}
        tag.tags = ours or set(tagged)


@cache
def _texts() -> dict[Path, str]:
    """Return the text of every file of lm-eval's tasks that may hold YAML; some have no suffix."""
    found = {}
    for folder, _, names in os.walk(TASKS):
        for name in names:
            if not name.endswith((".py", ".pyc", ".md")):
                path = Path(folder, name)
                found[path] = path.read_text(encoding="utf-8", errors="replace")
    return found


@cache
def _included_by() -> dict[Path, list[Path]]:
    found: dict[Path, list[Path]] = {}
    for path, text in _texts().items():
        for inner in _INCLUDE.findall(text):
            found.setdefault(Path(os.path.normpath(path.parent / inner)), []).append(path)
    return found


def _folders_of(name: str) -> set[Path]:
    """Return the folders of all files that mention a name as a word of its own, and of those that include these."""
    word = re.compile(rf"(?<![\w./-]){re.escape(name)}(?![\w./-])")
    waiting = [path for path, text in _texts().items() if name in text and word.search(text)]
    files: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in files:
            files.add(path)
            waiting += _included_by().get(path, [])
    return {path.parent for path in files}


def _first_wins(folders: Iterable[Path]) -> list[Path]:
    """Return folders without those inside of others, the last first: of two definitions the first in order counts."""
    known = set(folders)
    return sorted((f for f in known if not known & {*f.parents}), key=lambda f: f"{f.as_posix()}/", reverse=True)


def _own_folder(include: str) -> Path:
    folder = expand_home(include).resolve()
    if not is_folder(folder):
        raise ConfigError(
            f"--set lm_eval.include={include}: there is no such folder; expected one with lm-eval's YAML."
        )
    return folder


def _unknown(name: str, manager: TaskManager, include: str) -> ConfigError:
    for path in sorted(_own_folder(include).rglob("*.yaml")) if include else []:
        try:  # lm-eval passes over YAML that it cannot read without a word
            load_yaml(path, resolve_func=False)
        except Exception as error:  # of YAML, of an include, or of a cycle of them
            return ConfigError(f"{path} is not a task of lm-eval ({' '.join(str(error).split())}).")
    known = {*manager.task_index, *(found for text in _texts().values() for found in _NAMES.findall(text))}
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    guess = f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else "."
    return ConfigError(
        f"lm-evaluation-harness {version('lm-eval')} has no task, group or tag '{name}'{guess} `lm_eval ls tasks` "
        "lists all; a folder of your own YAML is --set lm_eval.include=DIR."
    )
