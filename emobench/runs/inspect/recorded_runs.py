"""From what a reader names on a board to an entry, and from an entry to its tasks, its stages and the texts in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from emobench.core.errors import DataError, UserError
from emobench.core.reading import json_rows, parse_mapping, read_text
from emobench.core.seals import find_damage
from emobench.kinds.views import Preferences, WrittenText, WrittenTexts
from emobench.leaderboard.comparable import differences
from emobench.leaderboard.entry import Entry, Run
from emobench.leaderboard.query.newest import newest_common, newest_first, older_groups
from emobench.leaderboard.query.rows import ANY, created_at, select
from emobench.leaderboard.run_files import SHORTENED, recorded_file, shortened_from
from emobench.registry import find_task, kind_names, load_kind, task_names
from emobench.runs.planning.resolve import nested_rules
from emobench.runs.stages.stage import FACTS
from emobench.tasks.spec import Task, short_name

V = TypeVar("V")


class Named(NamedTuple):
    """The newest entry that a name means and that has the wanted files, and the other ones, newest first.

    `newer` ones lack them. `unlike` says why the entry cannot be compared with the first that is shown. `groups` counts
    the older groups of a board of which nobody named an entry.
    """

    entry: Entry
    older: list[Entry]
    newer: list[Entry]
    unlike: Sequence[str] = ()
    groups: int = 0

    def note(self) -> str:
        """Return the other entries and the differences as sentences; empty without any."""
        notes = []
        if self.newer:
            notes.append(f"Newer entries lack what is shown or are not comparable: {_ids(self.newer)}.")
        if self.older:
            notes.append(f"Older entries match: {_ids(self.older)}; name one by its id.")
        if self.unlike:
            notes.append(f"Not comparable with the first: {'; '.join(self.unlike)}.")
        if self.groups:
            notes.append(older_groups(self.groups, "name an entry of theirs"))
        return " ".join(notes)


def newest_of(names: Sequence[str], board: Path, wanted: Callable[[Entry], bool] = lambda entry: True) -> list[Named]:
    """Return the newest entry that each name means (`select`), of those that are wanted if any is.

    Entries of the newest comparable group that has one of each name are preferred, or else entries that are comparable
    with the first name's. An entry that several names mean is there once. Without names, it is each wanted entry of the
    newest group. Raises what `select` raises.
    """
    if not names:
        newest_group, *older = newest_first(select(ANY, board))
        named = [Named(entry, [], []) for entry in newest_group if wanted(entry)]
        named = named or [Named(newest_group[0], [], [])]  # later errors name what it lacks
        return [named[0]._replace(groups=len(older)), *named[1:]]
    by_id: dict[str, Named] = {}
    choices: list[Sequence[Entry]] = [select(name, board) for name in names]
    common, _ = newest_common(choices)
    preferred = first = None
    if common != choices:
        preferred = max(common[0], key=lambda entry: created_at(entry.provenance))
    for choice in choices:
        one = newest(choice, wanted, first or preferred)
        if first is None:
            first, one = one.entry, one._replace(unlike=())
        by_id.setdefault(one.entry.id, one)
    return list(by_id.values())


def newest(entries: Sequence[Entry], wanted: Callable[[Entry], bool], first: Entry | None = None) -> Named:
    """Return the newest of entries that is wanted, or the newest if none is; later errors then name what it lacks.

    With `first`, one that is comparable with it is preferred.
    """
    given = sorted(entries, key=lambda entry: created_at(entry.provenance), reverse=True)
    unlike: list[list[str]] = []
    for entry in given:
        unlike.append(differences(first, entry) if first else [])
    chosen = 0
    if len(given) > 1:  # the files of one that is named by its id are read later
        for place in sorted(range(len(given)), key=lambda place: bool(unlike[place])):
            if wanted(given[place]):
                chosen = place
                break
    return Named(given[chosen], given[chosen + 1 :], given[:chosen], unlike[chosen])


def notes_of(named: Sequence[Named]) -> list[str]:
    """Return the notes of entries, each behind its objective."""
    return [f"{one.entry.objective.label}: {one.note()}" for one in named if one.note()]


def _ids(entries: Sequence[Entry]) -> str:
    return ", ".join(entry.id[:6] for entry in entries)


def named_run(entry: Entry, run: Run) -> dict[str, Any]:
    """Return the fields by which tables and JSON name a run of an entry."""
    return {
        "entry": entry.id,
        "suite": str(entry.suite),
        "model": entry.model.name,
        "objective": entry.objective.label,
        "seed": run.seed,
    }


def task_of_samples(entry: Entry, run: Run, place: int) -> str:
    """Return the name of the task whose samples a run names at a place: both are in the order of the tasks.

    Raises DataError where a task has no file of samples, or several.
    """
    names = list(entry.protocols)
    if len(run.samples) != len(names):
        raise DataError(
            f"The run {run.key} of entry {entry.id} names {len(run.samples)} files of samples for {len(names)} tasks; "
            "its folder alone tells which is whose. Give it with --runs DIR."
        )
    return names[place]


def recorded_task(entry: Entry, name: str) -> Task | None:
    """Return the task of an entry with the rules of its protocol's id; None where no task here has them."""
    protocol = entry.protocols[name].partition("@")[0]
    changes = nested_rules(entry.changes.get(name, {}), {})
    for known in task_names():  # tasks of several kinds may have one name
        if short_name(known) != name:
            continue
        try:
            task = find_task(known, protocol=protocol, overrides=changes)
        except UserError:
            continue
        if task.protocol_id == entry.protocols[name]:
            return task
    return None


def score_stages(entry: Entry, run: Run, runs: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """Yield the facts of each score stage of a run, and its folder. Raises DataError where its files are gone."""
    for key in read_json(runs / "examples" / run.key / FACTS, entry)["scores"]:
        folder = runs / "score" / key
        yield read_json(folder / FACTS, entry), folder


def texts_of(entry: Entry, run: Run, runs: Path, boards: Sequence[Path] = ()) -> dict[str, list[WrittenText]]:
    """Return what a run wrote, by task; what is not in `runs` is read from `boards` that ship it.

    Shortened samples hold the generated texts of the first prompts alone. Raises DataError if files are gone, or no
    task has texts that can be read here.
    """
    written: dict[str, list[WrittenText]] = {}
    for place, file in enumerate(run.samples):
        path = recorded_file(file, runs, entry, boards, shortened=bool(boards))
        if shortened_from(path) is not None:
            written[task_of_samples(entry, run, place)] = _shortened_texts(path)
            continue
        if path == runs / file.path:
            facts = read_json(path.parent / FACTS, entry)
        else:
            task = recorded_task(entry, task_of_samples(entry, run, place))
            if task is None:
                continue
            facts = {"task": {"name": task.name, "kind": task.kind}}
        view = _view(facts, WrittenTexts)
        if view is not None:
            written[facts["task"]["name"]] = view.written_texts(path)
    if not written:
        raise DataError(
            f"{entry.objective.label} [{entry.id[:6]}] of {entry.suite} recorded no generated texts; expected an entry "
            "with tasks of kind generation or oracle, by protocols that are installed here, or the folder of its runs "
            "with --runs DIR."
        )
    for task, preferences in _preferences(entry, run, runs).items():
        written[task] = [replace(text, preferred=preferences.get(text.prompt)) for text in written.get(task, ())]
    return written


def _view(facts: Mapping[str, Any], protocol: type[V]) -> V | None:
    """Return a view of the kind of a stage's task; None if the kind has none, or is not installed."""
    kind = facts["task"]["kind"]
    return load_kind(kind).view(protocol) if kind in kind_names() else None


def _shortened_texts(path: Path) -> list[WrittenText]:
    """Return the generated texts in shortened samples, which have no text of a data set."""
    texts = []
    try:
        for _, row in json_rows(path):
            if SHORTENED in row:
                continue
            prompt, generated = str(row["prompt_id"]), str(row["continuation_text"])
            sample = int(row["sample"])
            texts.append(
                WrittenText(prompt=prompt, sample=sample, prefix=None, human=None, generated=generated, ended=None)
            )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{path}: has no shortened samples ({error}). Restore the packed file.") from None
    return texts


def _preferences(entry: Entry, run: Run, runs: Path) -> dict[str, Mapping[str, float]]:
    """Return what a judge prefers, by task, where it compared texts; nothing where the files of scores are gone."""
    examples = runs / "examples" / run.key / FACTS
    of_tasks = {}
    for key in read_json(examples, entry)["scores"] if examples.is_file() else ():
        folder = runs / "score" / key
        if not folder.is_dir():
            continue
        facts = read_json(folder / FACTS, entry)
        view = _view(facts, Preferences)
        preferences = view.preferences(folder) if view else {}
        if preferences:
            if damage := find_damage(folder, full=True):
                raise _gone(damage, entry)
            of_tasks[facts["task"]["name"]] = preferences
    return of_tasks


def read_json(path: Path, entry: Entry) -> Any:
    """Read a file of an entry's stages; raises DataError where that is not possible, or it is not what was written."""
    damage: object = None
    try:
        if path.parent.is_dir():
            damage = find_damage(path.parent, full=True, only=path.name)
        if damage is None:
            return parse_mapping(read_text(path))
    except (OSError, ValueError):
        damage = f"{path}: cannot be read"
    raise _gone(damage, entry)


def _gone(damage: object, entry: Entry) -> DataError:
    return DataError(
        f"{damage}, and the entry {entry.id} was recorded from it. Give the folder of its runs with --runs DIR, or run "
        "again to repair it."
    )
