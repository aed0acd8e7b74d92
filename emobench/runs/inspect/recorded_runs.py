"""From what a reader names on a board to an entry, and from an entry to its tasks, its stages and the texts in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from emobench.core.errors import DataError, UserError
from emobench.core.reading import json_rows, parse_mapping, read_text
from emobench.core.seals import find_damage
from emobench.kinds.views import Preferences, WrittenText, WrittenTexts
from emobench.leaderboard.entry import Entry, Run
from emobench.leaderboard.labels import listed
from emobench.leaderboard.query.newest import newest_common, newest_first, older_groups
from emobench.leaderboard.query.rows import ANY, created_at, select
from emobench.leaderboard.run_files import SHORTENED, recorded_file, shortened_from
from emobench.registry import find_task, kind_names, load_kind, task_names
from emobench.runs.planning.resolve import nested_rules
from emobench.runs.stages.stage import FACTS
from emobench.tasks.spec import Task, short_name

V = TypeVar("V")


def newest_of(
    names: Sequence[str], board: Path, wanted: Callable[[Entry], bool] = lambda entry: True
) -> tuple[list[Entry], list[str]]:
    """Return the newest entry that each name means (`select`), of the wanted ones if there are any, and notes.

    Entries of the newest comparable group with one of each name are preferred. Without names, it is every entry of the
    newest group. Each entry is returned once. The notes count the other matches. Raises what `select` raises.
    """
    choices: list[Sequence[Entry]] = []
    for name in names or [ANY]:
        matches = select(name, board)
        choices.append([entry for entry in matches if wanted(entry)] or matches)
    if not names:
        group, *older = newest_first(choices[0])
        return group, [older_groups(len(older), "name an entry of theirs")] if older else []
    entries: dict[str, Entry] = {}
    notes: list[str] = []
    for matches, comparable in zip(choices, newest_common(choices)[0], strict=True):
        entry = max(comparable, key=lambda entry: created_at(entry.provenance))
        entries[entry.id] = entry
        if others := [other.id[:6] for other in matches if other.id != entry.id]:
            notes.append(f"{entry.objective.label}: other entries match, too: {listed(others, 5)}; name one by its id.")
    return list(entries.values()), notes


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
    """Return the task of an entry with the rules of its protocol's id; None if no installed task has them."""
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
    """Return the texts that a run wrote, by task; files that `runs` lacks are read from `boards` that ship them.

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
