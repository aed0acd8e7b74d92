"""From what a person gives (an objective, a folder, a key, an entry's id) to the trainings behind it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, DataError, UserError
from emobench.core.reading import parse_json, read_text
from emobench.core.seals import SEAL, find_damage
from emobench.core.settings import content_hash, parse_call, to_plain
from emobench.leaderboard.boards import split_reference
from emobench.leaderboard.entry import Entry, Run, TrainedObjective
from emobench.leaderboard.query.rows import select
from emobench.leaderboard.run_files import is_here, recorded_file
from emobench.leaderboard.store import Leaderboard
from emobench.runs.planning.tiny_models import TINY_MODELS
from emobench.runs.stages.stage import FACTS, Stage
from emobench.training.curves import LOG

PART = ".part"
KINDS = ("train", "generate", "score", "examples")


@dataclass(frozen=True)
class FoundTraining:
    """A training on disk, finished or not."""

    folder: Path
    facts: Mapping[str, Any] | None
    """The facts of its stage; None where they are not known: before it is finished, and outside of a runs folder."""
    recorded_key: str | None = None
    """Its key where its log is from a board; `facts` then come from its entry."""

    @property
    def key(self) -> str:
        return self.recorded_key or self.folder.name.removesuffix(PART)

    @property
    def finished(self) -> bool:
        return self.recorded_key is not None or (self.folder / "training.json").is_file()

    def require_whole(self) -> None:
        """Raise DataError where the log or the facts of a finished training were altered."""
        for name in (LOG, FACTS) if (self.folder / SEAL).exists() else ():
            if damage := find_damage(self.folder, full=True, only=name):
                raise DataError(f"{damage}. Run the same command again to repair it.")

    @property
    def seed(self) -> int | None:
        return self.facts.get("seed") if self.facts else None

    @property
    def objective(self) -> TrainedObjective | None:
        """The objective as an entry names it."""
        if self.facts is None:
            return None
        given = self.facts["objective"]
        return TrainedObjective(name=given["name"], version=given["version"], params=given["params"])

    @property
    def pretraining(self) -> str:
        """The name of the pre-training of a tiny model; empty for any other training."""
        if self.facts is None or "architecture" not in self.facts["model"]:
            return ""
        name, seed = self.facts["recipe"]["name"], self.facts["seed"]
        for model, tiny in TINY_MODELS.items():
            if tiny.recipe == name:
                name = model
        return f"pre-train {name}(seed={seed})" if seed else f"pre-train {name}"

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
        """A hash of its facts but the seed; its own key where they are not known."""
        if self.facts is None:
            return self.key
        return content_hash({name: value for name, value in self.facts.items() if name != "seed"})

    @property
    def conditions(self) -> str:
        """A hash of what trainings of other objectives and seeds share; empty where the facts are not known."""
        if self.facts is None:
            return ""
        own = ("seed", "objective", "log")
        return content_hash({name: value for name, value in self.facts.items() if name not in own})


def find_trainings(given: Sequence[str], runs: Path, board: Leaderboard) -> list[FoundTraining]:
    """Return the trainings behind each name, each once, in order.

    A name is a folder (of a training, its model, a stage that was made from it, or of all runs), a stage's key, an
    objective of finished trainings in `runs`, an entry's id, whole or as its first letters, or what `select` takes for
    entries of the board. Logs of entries that are not in `runs` are read from the board, if it ships them. Without
    names: all in `runs`. Raises a UserError for a name with no training behind it.
    """
    if not given and not any(runs.glob(f"train/*/{LOG}")):
        raise DataError(f"There is no training in {runs} yet; `emobench run` makes some, or give their --runs DIR.")
    trainings: dict[Path, FoundTraining] = {}
    for name in given or [str(runs)]:
        for training in _in_runs(name, runs) or _of_board(name, runs, board):
            trainings.setdefault(training.folder, training)
    return list(trainings.values())


def newest_trainings(trainings: Sequence[FoundTraining]) -> tuple[list[FoundTraining], int]:
    """Return the trainings with the conditions of the newest one, and how many other conditions there are.

    Trainings that are not finished have no known conditions, and are kept.
    """
    times: dict[str, float] = {}
    for training in trainings:
        if training.conditions:
            time = training.folder.stat().st_mtime
            times[training.conditions] = max(time, times.get(training.conditions, time))
    newest = max(times, key=times.__getitem__, default="")
    return [one for one in trainings if one.conditions in ("", newest)], max(len(times) - 1, 0)


def _in_runs(name: str, runs: Path) -> list[FoundTraining]:
    """Return the trainings of a folder, a key or an objective in `runs`; none where it may be of an entry."""
    if Path(name).is_dir():
        return _of_folder(Path(name), runs)
    for kind in KINDS if re.fullmatch(r"[0-9a-f]+", name) else ():
        for place in (runs / kind / name, runs / kind / f"{name}{PART}"):
            if place.is_dir():
                return _of_folder(place, runs)
    # A finished one whose log is gone counts, too, so that the error names the log.
    begun = {path.parent for file in (LOG, SEAL) for path in runs.glob(f"train/*/{file}")}
    trainings = _trainings(sorted(begun))
    named = [training for training in trainings if training.is_of(name)]
    for training in [] if named else trainings:
        training.require_whole()  # its objective might be the one that was meant
    return named


def _trainings(folders: Sequence[Path]) -> list[FoundTraining]:
    return [FoundTraining(folder, _facts(folder)) for folder in folders]


def _of_board(name: str, runs: Path, board: Leaderboard) -> Iterator[FoundTraining]:
    folder, name = split_reference(name, board.root)
    board = Leaderboard(folder)
    entries = [board.read(row) for row in board.rows(superseded=True) if name and row.id.startswith(name)]
    if len(entries) > 1:
        raise ConfigError(f"'{name}' begins the ids {', '.join(one.id for one in entries)}; give more of one.")
    for entry in entries:
        if not entry.runs or entry.untrained or entry.declared:
            raise ConfigError(f"The entry {entry.id} has no training by emobench, and so no curves.")
    if not entries:
        with suppress(UserError):
            for entry in select(name, board.root):
                if entry.runs and not entry.untrained and not entry.declared:
                    entries.append(entry)
    if not entries:
        raise ConfigError(
            f"'{name}' is not a folder, a key of a stage in {runs}, an objective that was trained there or an entry "
            f"of a training in {board.root}; expected one of them, such as runs/train/KEY (see --runs and "
            "--leaderboard)."
        )
    for entry in entries:
        for run in entry.runs:
            try:
                yield from _of_stage(runs / "examples" / run.key, runs)
            except DataError:
                if not run.curves or not all(is_here(file, runs, [board.root]) for file in run.curves):
                    raise
                for place in range(len(run.curves)):
                    yield _of_log(entry, run, place, runs, board)


def _of_folder(folder: Path, runs: Path) -> list[FoundTraining]:
    if folder.name == "model" and (folder.parent / LOG).is_file():
        folder = folder.parent  # `emobench train` prints the model's folder
    if (folder / LOG).is_file():
        return _trainings([folder])
    if (folder / FACTS).is_file():
        return _of_stage(folder, folder.parent.parent)
    logs = sorted(folder.glob(f"train/*/{LOG}"))
    if not logs:
        raise DataError(
            f"{folder} has no {LOG}; expected the folder of a training, such as {runs}/train/KEY, or one of all runs."
        )
    return _trainings([path.parent for path in logs])


def _of_log(entry: Entry, run: Run, place: int, runs: Path, board: Leaderboard) -> FoundTraining:
    """Return the training of a log that an entry names, with the facts that the entry has of it."""
    file = run.curves[place]
    folder = recorded_file(file, runs, entry, [board.root]).parent
    key = Path(file.path).parent.name
    own = entry.recipe
    for name, values in entry.recipe.items():
        if name.startswith(f"{place + 1}. "):  # of several trainings, the recipe has the values of each
            own = values
    texts = {}
    for name, text in entry.provenance.data.items():
        if name.rpartition(".")[0] == own.get("corpus"):
            texts[name] = text.partition(" ")[0]
    facts = {
        "seed": run.seed,
        "objective": to_plain(entry.objective),
        "model": {"name": entry.model.name, "revision": entry.model.revision},
        "recipe": to_plain(entry.recipe),
        "training": place,
        "texts": texts,
        # One key's logs of two machines are no two seeds.
        "log": "" if folder.name == key else folder.name,
    }
    return FoundTraining(folder, facts, key)


def _of_stage(folder: Path, runs: Path) -> list[FoundTraining]:
    """Return the trainings that a stage's facts lead to."""
    facts = _facts(folder)
    if facts is None:
        raise DataError(f"{folder} is not there, or not finished; give the folder of these runs with --runs DIR.")
    trainings: list[FoundTraining] = []
    for key in facts.get("scores", ()):
        trainings += _of_stage(runs / "score" / key, runs)
    if "scores" in facts:
        return trainings
    key = facts["subject"].get("training") if "subject" in facts else folder.name
    if key is None:
        raise DataError(f"{folder} is of a model that emobench did not train.")
    training = runs / "train" / key
    if not (training / LOG).is_file():
        raise DataError(f"{training} has no {LOG}; give the folder of these runs with --runs DIR.")
    return _trainings([training])


def _facts(folder: Path) -> dict[str, Any] | None:
    """Return the facts of a stage, if the name of its folder still is their hash."""
    try:
        facts = parse_json(read_text(folder / FACTS))
    except (OSError, ValueError, UserError):
        return None
    return facts if Stage(folder.parent.name, facts).key == folder.name else None
