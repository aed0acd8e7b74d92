"""What the folder of runs holds, and what needs each stage.

Entries of boards and sweeps need stages, and these need others: those whose keys are in their facts, the packed corpora
of their texts, and the training that made their base model. A training that was not evaluated is needed, too.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from emobench.core.errors import ConfigError, DataError
from emobench.core.locks import remove_abandoned
from emobench.core.seals import SEAL
from emobench.leaderboard.store import Leaderboard
from emobench.runs.stages.stage import DAMAGED, FACTS, PLANNED
from emobench.runs.sweep import FOLDER

OWNED = ("train", "generate", "score", "examples", "corpus")
"""Kinds of stage whose users are known. Others, such as a judge's replies, are shared by runs, and always kept."""
KEY = re.compile(r"[0-9a-f]{16}(\.part)?")
MENTION = re.compile(r'[/"](?:sha256:)?([0-9a-f]{16,64})"')
"""A key, or the digest of texts or weights, in JSON."""
WEIGHTS = re.compile(r'\.safetensors": \[[^"]*"([0-9a-f]{64})"')
"""The digest of weights, in a seal."""


@dataclass
class StoredStage:
    """A finished or unfinished (.part) stage on disk."""

    stage: str
    """Its folder, such as "train/0123456789abcdef"."""
    bytes: int
    needed_by: dict[str, None] = field(default_factory=dict)


def stored_stages(runs: Path, boards: Sequence[Path], *, unfinished: bool = False) -> list[StoredStage]:
    """Return all stages, the largest first. With `unfinished`, trainings need not be evaluated to be unneeded.

    Raises DataError for a board with a file that cannot be read: nobody knows which stages it needs.
    """
    stages: dict[str, StoredStage] = {}
    named: dict[str, set[str]] = {}
    mentions: dict[str, set[str]] = {}
    for folder in sorted(runs.glob("*/*")):
        kind = folder.parent.name
        if not KEY.fullmatch(folder.name):
            continue
        stage = f"{kind}/{folder.name}"
        stages[stage] = StoredStage(stage, sum(path.lstat().st_size for path in folder.rglob("*")))
        mentions[stage] = set(MENTION.findall(_text(folder / FACTS)))
        names = {folder.name, *WEIGHTS.findall(_text(folder / SEAL))}
        if kind == "corpus":
            names |= mentions[stage]
        for name in names:
            named.setdefault(name, set()).add(stage)

    def need(user: str, mentioned: Iterable[str]) -> None:
        left = list(mentioned)
        while left:
            for stage in named.get(left.pop(), ()):
                if user not in stages[stage].needed_by:
                    stages[stage].needed_by[user] = None
                    left += mentions[stage]

    for user, mentioned in _users(runs, boards):
        need(user, mentioned)
    evaluated = set().union(*mentions.values())
    for stage, stored in stages.items():
        kind, _, key = stage.partition("/")
        if kind not in OWNED:
            stored.needed_by["shared by runs"] = None
        elif kind == "train" and not (stored.needed_by or unfinished or key in evaluated):
            need("not evaluated yet", {key})
    return sorted(stages.values(), key=lambda stage: -stage.bytes)


def require_idle(runs: Path, *, unfinished: bool) -> None:
    """Raise ConfigError if a command is running or, without `unfinished`, was interrupted."""
    for lock in runs.glob("*/*.lock"):
        remove_abandoned(lock)
        if lock.exists():
            raise ConfigError(f"A command that uses {runs} is running: it makes {lock.stem}. Wait until it has ended.")
    planned = list(runs.glob(f"{PLANNED}/*.json"))
    if planned and not unfinished:
        raise ConfigError(
            f"{len(planned)} stages in {runs} are planned and not finished, such as {planned[0].stem}: an interrupted "
            "command may need any stage. Give it again to finish it, or add --unfinished to delete what it left."
        )


def prune(runs: Path, stages: Iterable[StoredStage]) -> None:
    """Delete stages, those that were damaged, and plans that were not finished. Each one disappears in one step."""
    damaged = runs / DAMAGED
    damaged.mkdir(exist_ok=True)
    for stage in stages:
        (runs / stage.stage).rename(damaged / f"pruned-{stage.stage.replace('/', '-')}")
    shutil.rmtree(damaged)
    shutil.rmtree(runs / PLANNED, ignore_errors=True)


def _users(runs: Path, boards: Sequence[Path]) -> Iterator[tuple[str, set[str]]]:
    """Yield entries and sweeps, each with the keys of stages that it needs."""
    for root in boards:
        board = Leaderboard(root)
        for entry in board.entries(superseded=True):
            keys = {run.key for run in entry.runs}
            for run in entry.runs:
                for file in run.files():
                    keys.update(Path(file.path).parts[1:2])
            yield f"entry {entry.id}", keys
        if board.problems:
            raise DataError(f"Nobody knows which stages this file needs: {board.problems[0]}")
    for path in runs.glob(f"{FOLDER}/*.json"):
        yield f"sweep {path.stem}", set(MENTION.findall(_text(path)))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
