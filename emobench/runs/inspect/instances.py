"""From an entry to its examples one by one: the results of each run, and the texts where the runs folder has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from emobench.core.errors import DataError, UserError
from emobench.exchange.every_eval_ever import Shown
from emobench.kinds.views import WrittenText
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.run_files import Recorded, read_examples, recorded_file
from emobench.runs.inspect.recorded_runs import texts_of


def recorded_instances(entry: Entry, runs: Path, boards: Sequence[Path]) -> list[Mapping[str, Recorded]]:
    """Return the per-example results of each run. Raises DataError where one is absent or altered."""
    if missing := [run.key for run in entry.runs if run.examples is None]:
        raise DataError(f"The run {missing[0]} of entry {entry.id} recorded no per-example results.")
    return [
        read_examples(recorded_file(run.examples, runs, entry, boards))
        for run in entry.runs
        if run.examples is not None
    ]


def instance_texts(entry: Entry, runs: Path) -> dict[tuple[str, str], Shown]:
    """Return what was read and written, by task and example; empty where the runs have no texts of their own."""
    written: dict[tuple[str, str], list[WrittenText]] = {}
    for run in entry.runs:
        try:
            found = texts_of(entry, run, runs)
        except UserError:  # a kind without texts, or files that are not here: the instances say so
            return {}
        for task, texts in found.items():
            for one in texts:
                written.setdefault((task, one.prompt), []).append(one)
    return {
        key: Shown(input=texts[0].prefix, reference=texts[0].human, outputs=tuple(one.generated for one in texts))
        for key, texts in written.items()
        if texts[0].prefix is not None
    }
