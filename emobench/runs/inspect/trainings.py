"""From what a person gives (an objective, a folder, a key, an entry's id) to the trainings behind it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, DataError, UserError
from emobench.core.reading import parse_json, read_text
from emobench.core.seals import SEAL, find_damage
from emobench.core.settings import content_hash, parse_call, to_plain
from emobench.leaderboard.entry import Entry, Run, TrainedObjective
from emobench.leaderboard.query.references import select
from emobench.leaderboard.run_files import is_here, recorded_file
from emobench.leaderboard.store import Leaderboard
from emobench.runs.planning.tiny_models import TINY_MODELS
from emobench.runs.stages.stage import FACTS, Stage
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
    recorded_key: str | None = None
    """Its key where its log is from a board; `facts` are then what its entry tells of it."""

    @property
    def key(self) -> str:
        return self.recorded_key or self.folder.name.removesuffix(PART)

    @property
    def finished(self) -> bool:
        return self.recorded_key is not None or (self.folder / "training.json").is_file()

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
    objective of finished trainings in `runs`, an entry's id, whole or as its first letters, or what `select` takes for
    entries of the board. Logs of entries that are not in `runs` are read from the board, if it ships them. Without
    names: all in `runs`. Raises a UserError for a name with no training behind it.
    """
    if not given and not any(runs.glob(f"train/*/{LOG}")):
        raise DataError(f"There is no training in {runs} yet; `emobench run` makes some, or give their --runs DIR.")
    given = given or [str(runs)]
    trainings = [training for name in given for training in _named(name, runs, board)]
    return list({training.folder: training for training in reversed(trainings)}.values())[::-1]


def _named(name: str, runs: Path, board: Leaderboard) -> list[FoundTraining]:
    folders = _folders(name, runs)
    if folders:
        return [FoundTraining(folder, _facts(folder)) for folder in folders]
    return _of_board(name, runs, board)


def _folders(name: str, runs: Path) -> list[Path]:
    """Return the folders of trainings that a name means in `runs`; none where it may be of an entry."""
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
    return []


def _of_board(name: str, runs: Path, board: Leaderboard) -> list[FoundTraining]:
    rows = [row for row in board.rows(superseded=True) if name and row.id.startswith(name)]
    if len(rows) > 1:
        raise ConfigError(f"'{name}' begins the ids {', '.join(row.id for row in rows)}; give more of one.")
    if rows:
        return _of_entry(board.read(rows[0]), runs, board)
    try:
        entries = [entry for entry in select(name, board.root) if not entry.untrained and entry.runs]
    except UserError:
        entries = []
    if not entries:
        raise ConfigError(
            f"'{name}' is not a folder, a key of a stage in {runs}, an objective that was trained there or an entry "
            f"of a training in {board.root}; expected one of them, such as runs/train/KEY (see --runs and "
            "--leaderboard)."
        )
    return [training for entry in entries for training in _of_entry(entry, runs, board)]


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


def _of_entry(entry: Entry, runs: Path, board: Leaderboard) -> list[FoundTraining]:
    if entry.untrained:
        raise ConfigError(f"The entry {entry.id} is of a model as it is: nothing was trained.")
    if not entry.runs:
        raise ConfigError(f"The entry {entry.id} is {entry.kind} and names no runs; there is no log to read.")
    return [training for run in entry.runs for training in _of_run(entry, run, runs, board)]


def _of_run(entry: Entry, run: Run, runs: Path, board: Leaderboard) -> list[FoundTraining]:
    """Return the trainings of a run: those in `runs`, or else those whose logs the board has."""
    try:
        return [FoundTraining(folder, _facts(folder)) for folder in _of_stage(runs / "examples" / run.key, runs)]
    except DataError:
        if not run.curves or not all(is_here(file, runs, [board.root]) for file in run.curves):
            raise
    return [_of_log(entry, run, place, runs, board) for place in range(len(run.curves))]


def _of_log(entry: Entry, run: Run, place: int, runs: Path, board: Leaderboard) -> FoundTraining:
    """Return the training of a log that an entry names, with what the entry tells of what determined it."""
    file = run.curves[place]
    folder = recorded_file(file, runs, entry, [board.root]).parent
    key = Path(file.path).parent.name
    # Of several trainings, the recipe has the values of each under its number.
    own = next((values for name, values in entry.recipe.items() if name.startswith(f"{place + 1}. ")), entry.recipe)
    data = {name: text.partition(" ")[0] for name, text in entry.provenance.data.items()}
    facts = {
        "seed": run.seed,
        "objective": to_plain(entry.objective),
        "model": {"name": entry.model.name, "revision": entry.model.revision},
        "recipe": to_plain(entry.recipe),
        "training": place,
        "texts": {name: text for name, text in data.items() if name.rpartition(".")[0] == own.get("corpus")},
        # One key's logs of two machines are no two seeds.
        "log": "" if folder.name == key else folder.name,
    }
    return FoundTraining(folder, facts, key)


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
