"""From what a person gives (an objective, a folder, a key, an entry's id) to the trainings behind it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.config import content_hash, parse_call
from emobench.errors import ConfigError, DataError, UserError
from emobench.leaderboard.schema.entry import Entry, TrainedObjective
from emobench.leaderboard.store.board import Leaderboard
from emobench.pipeline.planning.tiny_models import TINY_MODELS
from emobench.pipeline.stages.stage import FACTS, Stage
from emobench.reading import parse_json, read_text
from emobench.seals import SEAL, find_damage
from emobench.training.curves import LOG

PART = ".part"
KINDS = ("train", "generate", "score", "examples")
_KEY = re.compile(r"[0-9a-f]+")


@dataclass(frozen=True)
class FoundTraining:
    """A training on disk, finished or not."""

    folder: Path
    facts: Mapping[str, Any] | None
    """What determined it; None where that is not known: before it is finished, and outside of a runs folder."""

    @property
    def key(self) -> str:
        return self.folder.name.removesuffix(PART)

    @property
    def finished(self) -> bool:
        return (self.folder / "training.json").is_file()

    def require_whole(self) -> None:
        """Raise DataError where what a finished training logged, or says of itself, was altered."""
        for name in (LOG, FACTS) if (self.folder / SEAL).exists() else ():
            if damage := find_damage(self.folder, full=True, only=name):
                raise DataError(f"{damage}. Run again, which makes it anew.")

    @property
    def seed(self) -> int | None:
        return None if self.facts is None else self.facts.get("seed")

    @property
    def objective(self) -> TrainedObjective | None:
        """The objective as an entry names it."""
        if self.facts is None:
            return None
        found = self.facts["objective"]
        return TrainedObjective(name=found["name"], version=found["version"], params=found["params"])

    @property
    def pretraining(self) -> str:
        """What it is called where it made a tiny model; empty for any other training."""
        if self.facts is None or "architecture" not in self.facts["model"]:
            return ""
        names = {tiny.recipe: name for name, tiny in TINY_MODELS.items()}
        recipe, seed = self.facts["recipe"]["name"], self.facts["seed"]
        return f"pre-train {names.get(recipe, recipe)}" + (f"(seed={seed})" if seed else "")

    def is_of(self, name: str) -> bool:
        """Return whether it is of an objective: `tailr`, or `tailr(gamma=0.3)` for one with these parameters."""
        if self.objective is None or self.pretraining:
            return False
        try:
            base, params = parse_call(name)
        except ConfigError:  # a combination
            base, params = name, {}
        return base == self.objective.name and params.items() <= self.objective.params.items()

    @property
    def setting(self) -> str:
        """A hash of all that determined it but the seed; its own key where that is not known."""
        if self.facts is None:
            return self.key
        return content_hash({name: value for name, value in self.facts.items() if name != "seed"})


def find_trainings(given: Sequence[str], runs: Path, board: Leaderboard) -> list[FoundTraining]:
    """Return the trainings behind each name, each once, in order.

    A name is a folder (of a training, its model, a stage that was made from it, or of all runs), a stage's key, an
    objective of finished trainings in `runs`, or an entry's id, whole or as its first letters. Without names: all in
    `runs`. Raises a UserError for a name with no training behind it.
    """
    if not given and not any(runs.glob(f"train/*/{LOG}")):
        raise DataError(f"There is no training in {runs} yet; `emobench run` makes some, or give their --runs DIR.")
    given = given or [str(runs)]
    folders = [folder for name in given for folder in _folders(name, runs, board)]
    return [FoundTraining(folder, _facts(folder)) for folder in dict.fromkeys(folders)]


def _folders(name: str, runs: Path, board: Leaderboard) -> list[Path]:
    path = Path(name)
    if path.is_dir():
        return _of_folder(path, runs)
    places = [runs / kind / f"{name}{end}" for kind in KINDS for end in ("", PART)]
    staged = [place for place in places if _KEY.fullmatch(name) and place.is_dir()]
    if staged:
        return _of_folder(staged[0], runs)
    # A finished one whose log is gone is found, too, so that the error names what lacks.
    begun = sorted({path.parent for file in (LOG, SEAL) for path in runs.glob(f"train/*/{file}")})
    trainings = [FoundTraining(folder, _facts(folder)) for folder in begun]
    named = [training.folder for training in trainings if training.is_of(name)]
    if named:
        return named
    for training in trainings:
        training.require_whole()  # its objective might be the one that was meant
    rows = [row for row in board.rows(superseded=True) if name and row.id.startswith(name)]
    if len(rows) > 1:
        raise ConfigError(f"'{name}' begins the ids {', '.join(row.id for row in rows)}; give more of one.")
    if not rows:
        raise ConfigError(
            f"'{name}' is not a folder, a key of a stage in {runs}, an objective that was trained there or an entry's "
            f"id in {board.root}; expected one of them, such as runs/train/KEY (see --runs and --leaderboard)."
        )
    return _of_entry(board.read(rows[0]), runs)


def _of_folder(folder: Path, runs: Path) -> list[Path]:
    for place in (folder, folder.parent):  # `emobench train` prints the model's folder
        if (place / LOG).is_file() and (place == folder or folder.name == "model"):
            return [place]
    if (folder / FACTS).is_file():
        return _of_stage(folder, folder.parent.parent)
    found = sorted(path.parent for path in folder.glob(f"train/*/{LOG}"))
    if not found:
        raise DataError(
            f"{folder} has no {LOG}; expected the folder of a training, such as {runs}/train/KEY, or one of all runs."
        )
    return found


def _of_entry(entry: Entry, runs: Path) -> list[Path]:
    if entry.untrained:
        raise ConfigError(f"The entry {entry.id} is of a model as it is: nothing was trained.")
    if not entry.runs:
        raise ConfigError(f"The entry {entry.id} is {entry.kind} and names no runs; there is no log to read.")
    return [folder for run in entry.runs for folder in _of_stage(runs / "examples" / run.key, runs)]


def _of_stage(folder: Path, runs: Path) -> list[Path]:
    """Return the trainings that a stage's facts lead to."""
    facts = _facts(folder)
    if facts is None:
        raise DataError(f"{folder} is not there, or not finished; give the folder of these runs with --runs DIR.")
    if "scores" in facts:
        return [path for key in facts["scores"] for path in _of_stage(runs / "score" / key, runs)]
    key = facts["subject"].get("training") if "subject" in facts else folder.name
    if key is None:
        raise DataError(f"{folder} is of a model as it is: nothing was trained.")
    if not (runs / "train" / key / LOG).is_file():
        raise DataError(f"{runs / 'train' / key} has no {LOG}; give the folder of these runs with --runs DIR.")
    return [runs / "train" / key]


def _facts(folder: Path) -> dict[str, Any] | None:
    """Return what determined a stage, where its file still is what the name of its folder is a hash of."""
    try:
        facts = parse_json(read_text(folder / FACTS))
    except (OSError, ValueError, UserError):
        return None
    return facts if Stage(folder.parent.name, facts).key == folder.name else None
