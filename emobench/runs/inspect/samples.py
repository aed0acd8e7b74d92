"""From entries to what their models wrote after the same prefixes, and what people wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, UnknownNameError
from emobench.kinds.views import WrittenText
from emobench.leaderboard.entry import Entry, Run
from emobench.leaderboard.run_files import is_here
from emobench.runs.inspect.answers import answered_tasks
from emobench.runs.inspect.recorded_runs import texts_of


@dataclass(frozen=True, kw_only=True)
class Writer:
    """The run of an entry that wrote a column of a table."""

    entry: str
    suite: str
    model: str
    objective: str
    seed: int | None
    prompts: int
    """All prompts of the task, shown or not; with `shortened`, those whose texts are at hand."""
    shortened: bool
    """Whether the texts are of the first prompts alone, from a board that has no texts of data sets."""


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """What several runs wrote after the prefixes that they have in common; `generated` is in the order of `writers`."""

    task: str
    sample: int
    writers: tuple[Writer, ...]
    rows: tuple[Mapping[str, Any], ...]
    """{"prompt", "prefix", "human", "generated": [{"text", "ended", "preferred"}, ...]}; see `WrittenText`."""


def side_by_side(
    entries: Sequence[Entry],
    runs: Path,
    tasks: Sequence[str] = (),
    *,
    boards: Sequence[Path] = (),
    seed: int | None = None,
    sample: int = 0,
    prompt: str | None = None,
    count: int = 5,
) -> list[SideBySide]:
    """Return a table for each task that all entries have texts of (only `tasks`, if there are any).

    Of an entry, the run of a training seed writes, the first one by default; `prompt` is how the ids of the prompts
    begin, all by default, of which the first `count` are taken. What is not in `runs` is read from `boards`. Raises a
    UserError where that names nothing.
    """
    found = [(entry, run, texts_of(entry, run, runs, boards)) for entry in entries for run in [run_of(entry, seed)]]
    shared = [task for task in found[0][2] if all(task in texts for _, _, texts in found)]
    if not shared:
        raise ConfigError("These entries have no generated texts of a task in common; name entries of one suite.")
    for task in tasks:
        if task not in shared:
            raise UnknownNameError("task with generated texts", task, shared)
    return [_table(task, [(e, r, t[task]) for e, r, t in found], sample, prompt, count) for task in (tasks or shared)]


def has_texts(entry: Entry, runs: Path, tasks: Sequence[str], seed: int | None, boards: Sequence[Path] = ()) -> bool:
    """Return whether an entry has texts of the tasks and of the training seed that are asked for, in `runs`.

    What is not there may be on `boards`.
    """
    of_seed = [run for run in entry.runs if seed is None or entry.untrained or run.seed == seed]
    files = [file for run in of_seed[:1] for file in run.samples]
    there = bool(files) and all(is_here(file, runs, boards) for file in files)
    written = entry.protocols.keys() - answered_tasks(entry)  # samples of the others are losses
    return there and bool(written) and set(tasks) <= written


def run_of(entry: Entry, seed: int | None) -> Run:
    """Return the run of a training seed, the first one by default. Raises ConfigError where it has none."""
    if seed is None or entry.untrained:
        if not entry.runs:
            raise ConfigError(f"{entry.objective.label} [{entry.id[:6]}] is {entry.kind}, and has no run of its own.")
        return entry.runs[0]
    for run in entry.runs:
        if run.seed == seed:
            return run
    known = ", ".join(str(run.seed) for run in entry.runs)
    raise ConfigError(f"{entry.objective.label} [{entry.id[:6]}] has no seed {seed}; expected one of {known}.")


def _table(
    task: str,
    found: Sequence[tuple[Entry, Run, Sequence[WrittenText]]],
    sample: int,
    prompt: str | None,
    count: int,
) -> SideBySide:
    columns = [_by_prompt(task, texts, sample) for _, _, texts in found]
    # The same text cut by other rules is another prompt.
    same_rules = len({(entry.protocols[task], entry.model.name, entry.model.revision) for entry, _, _ in found}) == 1
    alike = [
        key
        for key, first in columns[0].items()
        if all(key in column and _same_prompt(first, column[key], same_rules) for column in columns)
    ]
    chosen = [key for key in alike if prompt is None or key.startswith(prompt)]
    if not alike:
        raise ConfigError(f"{task}: these entries have no prompt in common; name entries of one protocol.")
    if not chosen:
        raise ConfigError(f"{task} has no prompt whose id begins {prompt}; the first ones are {', '.join(alike[:3])}.")
    exact = [key for key in chosen if key == prompt]
    return SideBySide(
        task=task,
        sample=sample,
        writers=tuple(_writer(entry, run, c) for (entry, run, _), c in zip(found, columns, strict=True)),
        rows=tuple(_row([column[key] for column in columns]) for key in (exact or chosen)[:count]),
    )


def _same_prompt(one: WrittenText, other: WrittenText, same_rules: bool) -> bool:
    """Return whether two texts continue one prompt: without their prefixes, its id and the rules that cut it tell."""
    shortened = one.ended is None or other.ended is None
    return same_rules if shortened else one.prefix == other.prefix


def _by_prompt(task: str, texts: Sequence[WrittenText], sample: int) -> dict[str, WrittenText]:
    found = {text.prompt: text for text in texts if text.sample == sample}
    if not found:
        last = max((text.sample for text in texts), default=-1)
        raise ConfigError(f"{task} has no sample {sample}; expected one of 0 to {last}.")
    return found


def _writer(entry: Entry, run: Run, texts: Mapping[str, WrittenText]) -> Writer:
    return Writer(
        entry=entry.id,
        suite=str(entry.suite),
        model=entry.model.name,
        objective=entry.objective.label,
        seed=run.seed,
        prompts=len(texts),
        shortened=any(text.ended is None for text in texts.values()),
    )


def _row(written: Sequence[WrittenText]) -> dict[str, Any]:
    # A shortened column has neither prefixes nor human texts; another one may have them.
    first = next((one for one in written if one.prefix is not None), written[0])
    generated = [{"text": one.generated, "ended": one.ended, "preferred": one.preferred} for one in written]
    return {"prompt": first.prompt, "prefix": first.prefix, "human": first.human, "generated": generated}
