"""From what a reader names on a board to an entry, and from an entry to its stages on disk and the texts in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from emobench.core.errors import ConfigError, DataError
from emobench.core.reading import json_rows, parse_mapping, read_text
from emobench.core.seals import find_damage
from emobench.kinds.views import Preferences, WrittenText, WrittenTexts
from emobench.leaderboard.comparable import differences
from emobench.leaderboard.entry import Entry, Run
from emobench.leaderboard.query.references import select
from emobench.leaderboard.run_files import SHORTENED, recorded_file, shortened_from
from emobench.registry import kind_names, load_kind
from emobench.runs.inspect.recorded_tasks import recorded_task, task_of_samples
from emobench.runs.stages.stage import FACTS


class Named(NamedTuple):
    """The newest entry that a name means and that has what is wanted, and the other ones, newest first.

    `newer` ones lack it. `unlike` is what keeps the entry from being compared with the first that is shown.
    """

    entry: Entry
    older: list[Entry]
    newer: list[Entry]
    unlike: Sequence[str] = ()

    def note(self) -> str:
        """Say what else the name means, and what is unlike; empty where that is nothing."""
        unlike = f"not comparable with the first: {'; '.join(self.unlike)}." if self.unlike else ""
        return " ".join(filter(None, [_newer(self.newer), _older(self.older), unlike]))


def newest_of(names: Sequence[str], board: Path, wanted: Callable[[Entry], bool] = lambda entry: True) -> list[Named]:
    """Return the newest entry that each name means (`select`), of those that are wanted if any is.

    Of the second name on, it is the newest that is comparable with the first one's, if any is. An entry that several
    names mean is there once. Raises what `select` raises.
    """
    found: dict[str, Named] = {}
    for name in names:
        first = next(iter(found.values())).entry if found else None
        one = newest(select(name, board), wanted, first)
        found.setdefault(one.entry.id, one)
    return list(found.values())


def newest(entries: Sequence[Entry], wanted: Callable[[Entry], bool], first: Entry | None = None) -> Named:
    """Return the newest of entries that is wanted, or the newest where none is: what it lacks is then said of it.

    With `first`, one that is comparable with it is preferred.
    """
    given = sorted(entries, key=_created, reverse=True)
    unlike = [[] if first is None else differences(first, entry) for entry in given]
    alike_first = sorted(range(len(given)), key=lambda i: bool(unlike[i]))
    # One that is asked for by its id needs no look at its files.
    place = next((i for i in alike_first if len(given) == 1 or wanted(given[i])), 0)
    return Named(given[place], given[place + 1 :], given[:place], unlike[place])


def _older(older: Sequence[Entry]) -> str:
    count = len(older)
    match = "1 older entry matches" if count == 1 else f"{count} older entries match"
    return f"{match} ({_ids(older)}); name one by its id." if older else ""


def _newer(newer: Sequence[Entry]) -> str:
    count = len(newer)
    one, several = "1 newer entry lacks what is shown or is", f"{count} newer entries lack what is shown or are"
    return f"{one if count == 1 else several} not comparable ({_ids(newer)})." if newer else ""


def _ids(entries: Sequence[Entry], shown: int = 3) -> str:
    return ", ".join(entry.id[:6] for entry in entries[:shown]) + (", ..." if len(entries) > shown else "")


def score_stages(entry: Entry, run: Run, runs: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """Yield what determined each score stage of a run, and its folder. Raises DataError where its files are gone."""
    for key in read_json(runs / "examples" / run.key / FACTS, entry)["scores"]:
        folder = runs / "score" / key
        yield read_json(folder / FACTS, entry), folder


def texts_of(entry: Entry, run: Run, runs: Path, boards: Sequence[Path] = ()) -> dict[str, list[WrittenText]]:
    """Return what a run wrote, by task; what is not in `runs` is read from `boards` that ship it.

    Shortened samples hold the generated texts of the first prompts alone. Raises ConfigError where the run wrote no
    text, DataError where files are gone.
    """
    written: dict[str, list[WrittenText]] = {}
    unknown: list[str] = []
    for place, file in enumerate(run.samples):
        path = recorded_file(file, runs, entry, boards, shortened=bool(boards))
        if shortened_from(path) is not None:
            written[task_of_samples(entry, run, place)] = _shortened_texts(path)
            continue
        packed = path != runs / file.path
        facts = _packed_facts(entry, run, place) if packed else read_json(path.parent / FACTS, entry)
        if facts is None:
            unknown.append(task_of_samples(entry, run, place))
            continue
        if facts["task"]["kind"] not in kind_names():
            continue  # of a plugin that is not installed
        view = load_kind(facts["task"]["kind"]).view(WrittenTexts)
        if view is not None:
            written[facts["task"]["name"]] = view.written_texts(path, facts, entry.provenance.data)
    if unknown and not written:
        raise DataError(
            f"No task here has the protocol {entry.protocols[unknown[0]]} of {unknown[0]}, by which its packed samples "
            "are read. Install the emobench that recorded it, or give the folder of its runs with --runs DIR."
        )
    if not written:
        raise ConfigError(
            f"{entry.objective.label} [{entry.id[:6]}] of {entry.suite} recorded no generated texts; expected an entry "
            "with tasks of kind generation or oracle, see `emobench leaderboard show`."
        )
    for task, preferences in _preferences(entry, run, runs).items():
        written[task] = [replace(text, preferred=preferences.get(text.prompt)) for text in written.get(task, ())]
    return written


def _packed_facts(entry: Entry, run: Run, place: int) -> dict[str, Any] | None:
    """Return of what determined a run's generation what its entry tells; None where no task here has its rules."""
    task = recorded_task(entry, task_of_samples(entry, run, place))
    if task is None:
        return None
    texts = entry.provenance.data.get(f"{task.corpus}.test", "not known")
    return {"task": {"name": task.name, "kind": task.kind}, "rules": task.rules, "texts": texts.partition(" ")[0]}


def _shortened_texts(path: Path) -> list[WrittenText]:
    """Return the generated texts in shortened samples, which have no text of a data set."""
    try:
        rows = [row for _, row in json_rows(path) if SHORTENED not in row]
        return [
            WrittenText(
                prompt=str(row["prompt_id"]),
                sample=int(row["sample"]),
                prefix=None,
                human=None,
                generated=str(row["continuation_text"]),
                ended=None,
            )
            for row in rows
        ]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{path}: holds no shortened samples ({error}). Restore the packed file.") from None


def _preferences(entry: Entry, run: Run, runs: Path) -> dict[str, Mapping[str, float]]:
    """Return what a judge prefers, by task, where it compared texts; nothing where the files of scores are gone."""
    examples = runs / "examples" / run.key / FACTS
    keys = read_json(examples, entry)["scores"] if examples.is_file() else []
    found = {}
    for folder in (runs / "score" / key for key in keys):
        task = read_json(folder / FACTS, entry)["task"] if folder.is_dir() else {"kind": None}
        view = load_kind(task["kind"]).view(Preferences) if task["kind"] in kind_names() else None
        preferences = {} if view is None else view.preferences(folder)
        if preferences:
            if damage := find_damage(folder, full=True):
                raise _gone(damage, entry)
            found[task["name"]] = preferences
    return found


def read_json(path: Path, entry: Entry) -> Any:
    """Read a file of an entry's stages; raises DataError where that is not possible, or it is not what was written."""
    try:
        damage = find_damage(path.parent, full=True, only=path.name) if path.parent.is_dir() else None
        if damage is None:
            return parse_mapping(read_text(path))
    except (OSError, ValueError):
        damage = f"{path}: cannot be read"
    raise _gone(damage, entry)


def _gone(damage: object, entry: Entry) -> DataError:
    return DataError(
        f"{damage}, and the entry {entry.id} was recorded from it. Give the folder of its runs with --runs DIR, or run "
        "again, which makes it anew."
    )


def _created(entry: Entry) -> datetime:
    created = datetime.fromisoformat(entry.provenance.created)
    return created if created.tzinfo else created.replace(tzinfo=UTC)
