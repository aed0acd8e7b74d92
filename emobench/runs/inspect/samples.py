"""From entries to the texts that their models wrote after the same prefixes, and judges' verdicts between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, UnknownNameError, UserError
from emobench.kinds.views import JudgedPairs, SourceTexts, WrittenText
from emobench.leaderboard.entry import Entry, Run
from emobench.leaderboard.labels import clean
from emobench.leaderboard.run_files import is_here
from emobench.registry import kinds_with, load_kind
from emobench.runs.execution.reporter import Reporter
from emobench.runs.inspect.answers import answered_tasks
from emobench.runs.inspect.recorded_runs import named_run, recorded_task, texts_of
from emobench.runs.stages.stage import Stage, Stages, require_writable
from emobench.tasks.spec import Task

ALL = 10**12


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


def headings(writers: Sequence[Writer]) -> list[str]:
    """Return a name of each writer in one line: with its model if they have several, and with its seed."""
    several = len({writer.model for writer in writers}) > 1
    names = []
    for writer in writers:
        name = f"{writer.objective} [{writer.entry[:6]}]"
        if several:
            name = f"{writer.model} {name}"
        if writer.seed is not None:
            name += f", seed {writer.seed}"
        names.append(clean(name))
    return names


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """The texts of several runs after their common prefixes; `generated` is in the order of `writers`."""

    task: str
    sample: int
    writers: tuple[Writer, ...]
    rows: tuple[Mapping[str, Any], ...]
    """{"prompt", "prefix", "human", "generated": [{"text", "ended", "preferred"}, ...]}; see `WrittenText`."""


Column = tuple[Entry, Run, Sequence[WrittenText]]


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
    columns: dict[str, list[Column]] = {}
    for entry in entries:
        run = run_of(entry, seed)
        for task, texts in texts_of(entry, run, runs, boards).items():
            columns.setdefault(task, []).append((entry, run, texts))
    shared = [task for task, of_task in columns.items() if len(of_task) == len(entries)]
    if not shared:
        raise ConfigError("These entries have no generated texts of a task in common; name entries of one suite.")
    for task in tasks:
        if task not in shared:
            raise UnknownNameError("task with generated texts", task, shared)
    return [_table(task, columns[task], sample, prompt, count) for task in tasks or shared]


class SourceReader:
    """Reads the human texts of tasks whose data are on this machine, each task once."""

    def __init__(self, data_dirs: Sequence[Path]) -> None:
        self._data_dirs = data_dirs
        self._read: dict[str, Mapping[str, str]] = {}

    def add(self, entry: Entry, written: Mapping[str, Sequence[WrittenText]]) -> dict[str, list[WrittenText]]:
        """Return what a run wrote, by task; texts of a packed board get their source (`WrittenText`)."""
        texts: dict[str, list[WrittenText]] = {}
        for name, own in written.items():
            texts[name] = list(own)
            task = None
            if any(text.prefix is None for text in own):
                task = recorded_task(entry, name)
            if task is None:
                continue
            key = f"{task.kind} {task.name} {task.protocol_id}"
            if key not in self._read:
                self._read[key] = self._texts(task)
            texts[name] = [replace(text, source=self._read[key].get(text.prompt)) for text in own]
        return texts

    def _texts(self, task: Task) -> Mapping[str, str]:
        kind = load_kind(task.kind)
        view = kind.view(SourceTexts)
        if view is None:
            return {}
        try:
            return view.source_texts(task, kind.runtime.load(task, data_dirs=self._data_dirs, offline=True))
        except UserError:
            return {}


def has_texts(entry: Entry, runs: Path, tasks: Sequence[str], seed: int | None, boards: Sequence[Path] = ()) -> bool:
    """Return whether `runs` or `boards` have an entry's texts of the requested tasks and training seed."""
    try:
        files = run_of(entry, seed).samples
    except ConfigError:
        return False
    written = entry.protocols.keys() - answered_tasks(entry)  # samples of the others are losses
    available = bool(files) and all(is_here(file, runs, boards) for file in files)
    return available and bool(written) and set(tasks) <= written


def run_of(entry: Entry, seed: int | None) -> Run:
    """Return the run of a training seed, the first one by default. Raises ConfigError where it has none."""
    for run in entry.runs:
        if seed is None or entry.untrained or run.seed == seed:
            return run
    known = ", ".join(str(run.seed) for run in entry.runs) or "none"
    raise ConfigError(f"{entry.objective.label} [{entry.id[:6]}] has no run of seed {seed}; its seeds are {known}.")


def _table(task: str, columns: Sequence[Column], sample: int, prompt: str | None, count: int) -> SideBySide:
    by_prompt: list[dict[str, WrittenText]] = []
    writers = []
    rules = set()
    for entry, run, texts in columns:
        of_sample = {text.prompt: text for text in texts if text.sample == sample}
        if not of_sample:
            last = max((text.sample for text in texts), default=-1)
            raise ConfigError(f"{task} has no sample {sample}; expected one of 0 to {last}.")
        by_prompt.append(of_sample)
        shortened = any(text.ended is None for text in of_sample.values())
        writers.append(Writer(**named_run(entry, run), prompts=len(of_sample), shortened=shortened))
        rules.add((entry.protocols[task], entry.model.name, entry.model.revision))
    keys = []
    for key, text in by_prompt[0].items():
        if all(_continues(column.get(key), text, len(rules) == 1) for column in by_prompt):
            keys.append(key)
    if not keys:
        raise ConfigError(f"{task}: these entries have no prompt in common; name entries of one protocol.")
    chosen = [key for key in keys if prompt is None or key.startswith(prompt)]
    if not chosen:
        raise ConfigError(f"{task} has no prompt whose id begins {prompt}; the first ones are {', '.join(keys[:3])}.")
    if prompt is not None and prompt in chosen:
        chosen = [prompt]
    rows = []
    for key in chosen[:count]:
        row: dict[str, Any] = {"prompt": key, "prefix": None, "human": None, "generated": []}
        for text in (column[key] for column in by_prompt):
            # A shortened column has neither prefixes nor human texts; another one may have them.
            if row["prefix"] is None:
                row |= {"prefix": text.prefix, "human": text.human}
            row["generated"].append({"text": text.generated, "ended": text.ended, "preferred": text.preferred})
        rows.append(row)
    return SideBySide(task=task, sample=sample, writers=tuple(writers), rows=tuple(rows))


def _continues(text: WrittenText | None, first: WrittenText, same_rules: bool) -> bool:
    """Return whether two texts continue one prompt: the same text that other rules cut is another prompt.

    Shortened samples have no prefix to compare, so that the rules decide.
    """
    if text is None:
        return False
    if text.ended is None or first.ended is None:
        return same_rules
    return text.prefix == first.prefix


def judged_pairs() -> JudgedPairs:
    """Return the view of the kind of task whose responses judges compare. Raises ConfigError if none is installed."""
    for view in kinds_with(JudgedPairs).values():
        return view
    raise ConfigError("No kind of task here has responses that a judge compares; see `emobench kinds list`.")


def compared(
    entries: Sequence[Entry], runs: Path, tasks: Sequence[str] = (), seed: int | None = None, limit: int | None = None
) -> list[SideBySide]:
    """Return the responses that a judge compares, of each task that all entries have (only `tasks`, if any)."""
    if len(entries) < 2:
        raise ConfigError("A judge compares two entries or more; see `emobench leaderboard show`.")
    return side_by_side(entries, runs, tasks, seed=seed, count=limit or ALL)


def judge_tables(
    rule: Any, tables: Sequence[SideBySide], runs: Path, reporter: Reporter, *, device: str, offline: bool
) -> Sequence[Any]:
    """Return the outcome of a round robin on each task; `rule`: see `JudgedPairs.rule_of`.

    Raises a UserError for what cannot be judged, MetricError where more than 5 % of the requests have no verdict.
    """
    require_writable(runs, "--runs")
    stages = Stages(runs, note=reporter.note)

    def keep(kind: str, facts: Mapping[str, Any], work: Any) -> Path:
        return stages.make(Stage(kind, facts), work, continues=True)

    return judged_pairs().judged(rule, tables, keep, reporter.work, device=device, offline=offline)


def expected_judging(rule: Any, tables: Sequence[SideBySide], runs: Path, *, offline: bool) -> Sequence[Any]:
    """Return what `judge_tables` would ask, task by task; it raises the same for what cannot be judged."""

    def folder_of(kind: str, facts: Mapping[str, Any]) -> Path:
        return Stages(runs).folder(Stage(kind, facts))

    return judged_pairs().expected(rule, tables, folder_of, offline)
