"""From the names that a person gives (a folder, a key, an entry) to trainings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, DataError, UserError
from emobench.core.reading import parse_json, read_text
from emobench.core.seals import SEAL, find_damage
from emobench.core.settings import content_hash, to_plain
from emobench.leaderboard.boards import boards_of
from emobench.leaderboard.entry import Entry, Run, TrainedObjective
from emobench.leaderboard.query.rows import select
from emobench.leaderboard.run_files import recorded_file
from emobench.runs.planning.tiny_models import TINY_MODELS
from emobench.runs.stages.stage import FACTS, Stage
from emobench.training.curves import LOG

PART = ".part"


@dataclass(frozen=True)
class FoundTraining:
    """A training on disk, finished or not."""

    folder: Path
    facts: Mapping[str, Any] | None
    """The facts of its stage; None before it is finished, and outside of a folder of runs."""
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


def find_trainings(given: Sequence[str], runs: Path, board: Path) -> tuple[list[FoundTraining], list[Entry]]:
    """Return the trainings behind each name, each once, in order, and the entries that are named.

    A name is the folder of a training, of its model or of all runs, the key of a training, or what `select` takes for
    entries of the board, whose logs are read from the board if they are not in `runs`. Without names: all in `runs`.
    Raises a UserError for a name with no training behind it.
    """
    if not given and not any(runs.glob(f"train/*/{LOG}")):
        raise DataError(f"There is no training in {runs} yet; `emobench run` makes some, or give their --runs DIR.")
    trainings: dict[Path, FoundTraining] = {}
    entries: dict[str, Entry] = {}
    for name in given or [str(runs)]:
        folders = [Path(name), runs / "train" / name, runs / "train" / f"{name}{PART}"]
        folder = next(filter(Path.is_dir, folders), None)
        if folder is not None:
            named = _of_folder(folder, runs)
        else:
            trained = _trained(name, board)
            entries |= {entry.id: entry for entry in trained}
            named = _of_entries(trained, runs, boards_of([name], board))
        for training in named:
            trainings.setdefault(training.folder, training)
    return list(trainings.values()), list(entries.values())


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


def _trained(name: str, board: Path) -> list[Entry]:
    trained = [entry for entry in select(name, board) if entry.runs and not (entry.untrained or entry.declared)]
    if not trained:
        raise ConfigError(f"{name} names no training by emobench, and so no curves.")
    return trained


def _of_entries(trained: Sequence[Entry], runs: Path, boards: Sequence[Path]) -> Iterator[FoundTraining]:
    for entry in trained:
        for run in entry.runs:
            for place in range(len(run.curves)):
                yield _of_log(entry, run, place, runs, boards)


def _of_folder(folder: Path, runs: Path) -> list[FoundTraining]:
    if folder.name == "model" and (folder.parent / LOG).is_file():
        folder = folder.parent  # `emobench train` prints the model's folder
    folders = [folder]
    if not (folder / LOG).is_file():
        folders = [path.parent for path in sorted(folder.glob(f"train/*/{LOG}"))]
    if not folders:
        raise DataError(
            f"{folder} has no {LOG}; expected the folder of a training, such as {runs}/train/KEY, or one of all runs."
        )
    return [FoundTraining(one, _facts(one)) for one in folders]


def _of_log(entry: Entry, run: Run, place: int, runs: Path, boards: Sequence[Path]) -> FoundTraining:
    """Return the training of a log that an entry names, with the facts that the entry has of it."""
    file = run.curves[place]
    folder = recorded_file(file, runs, entry, boards).parent
    key = Path(file.path).parent.name
    if stage := _facts(folder):
        return FoundTraining(folder, stage)
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


def _facts(folder: Path) -> dict[str, Any] | None:
    """Return the facts of a stage, if the name of its folder still is their hash."""
    try:
        facts = parse_json(read_text(folder / FACTS))
    except (OSError, ValueError, UserError):
        return None
    return facts if Stage(folder.parent.name, facts).key == folder.name else None
