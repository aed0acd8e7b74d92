"""What the run of an entry wrote, from the samples that were recorded with it."""

from __future__ import annotations

from pathlib import Path

from emobench.errors import ConfigError
from emobench.kinds.views import WrittenText
from emobench.leaderboard.schema.entry import Entry, Run
from emobench.leaderboard.schema.examples import recorded_file
from emobench.pipeline.inspect.recorded_runs import sample_files
from emobench.registry import kind_names, load_kind


def writes_texts(entry: Entry) -> bool:
    """Return whether an entry has files of samples, which may be of texts."""
    return any(run.samples for run in entry.runs)


def texts_of(entry: Entry, run: Run, runs: Path) -> dict[str, list[WrittenText]]:
    """Return what a run wrote, by task. Raises ConfigError where it wrote no text, DataError where files are gone."""
    found = {}
    for facts, file in sample_files(entry, run, runs):
        if facts["task"]["kind"] not in kind_names():
            continue  # of a plugin that is not installed
        path, kind = recorded_file(file, runs, entry), load_kind(facts["task"]["kind"])
        texts = kind.written_texts(path, facts, entry.provenance.data)
        if texts is not None:
            found[facts["task"]["name"]] = texts
    if not found:
        raise ConfigError(
            f"{entry.objective.label} [{entry.id[:6]}] of {entry.suite} recorded no generated texts; expected an entry "
            "with tasks of kind generation or oracle, see `emobench leaderboard show`."
        )
    return found
