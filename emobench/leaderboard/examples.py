"""Per-example results beside a run, so that two entries can be compared pair by pair.

JSON Lines: {"metric": "wikitext2/ppl_test", "example": "17", "value": 3.21, "weight": 57}. `value` is on the scale on
which examples are averaged (nats per token for a perplexity), `weight` its weight in that mean (tokens).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from emobench.config import file_sha256
from emobench.errors import DataError
from emobench.leaderboard.entry import Entry, File
from emobench.leaderboard.files import write_whole
from emobench.tasks.scores import Score

RunExamples = Mapping[str, Mapping[str, tuple[float, float]]]
"""Metric -> example -> (value, weight), of one run."""

ExamplesOf = Callable[[Entry], Sequence[RunExamples] | None]
"""An entry -> the per-example results of its runs, or None where they are not at hand."""


def write_examples(path: Path, scores: Mapping[str, Score]) -> str:
    """Write the examples of all scores (by <task>/<metric>) and return the file's sha256 in hex.

    Scores that are no mean of examples have none. Raises StorageError (disk), DataError (a value that is not finite).
    """
    lines = []
    for metric, score in scores.items():
        for example, (value, weight) in (score.examples or {}).items():
            _check(value, weight, f"{metric}, example {example!r}")
            row = {"metric": metric, "example": example, "value": float(value), "weight": float(weight)}
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    hint = "Free space or choose another folder with --runs DIR; finished stages are reused."
    write_whole(path, "".join(lines), "The per-example results", hint)
    return digest(path)


def read_examples(path: Path) -> dict[str, dict[str, tuple[float, float]]]:
    """Return metric -> example -> (value, weight). Raises DataError with the line that cannot be used."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for number, line in _lines(path):
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
            metric, example = str(row["metric"]), str(row["example"])
            value, weight = float(row["value"]), float(row["weight"])
        except (KeyError, TypeError, ValueError):
            text = f"{where}: expected JSON with metric, example, value and weight. Run again to write the file."
            raise DataError(text) from None
        _check(value, weight, where)
        values = found.setdefault(metric, {})
        if example in values:
            raise DataError(f"{where}: the example {example!r} of {metric} stands there twice; keep one.")
        values[example] = (value, weight)
    return found


def digest(path: Path) -> str:
    """Return the sha256 of a file in hex; raises DataError where it cannot be read."""
    try:
        return file_sha256(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error


def entry_examples(entry: Entry, runs: Path) -> list[dict[str, dict[str, tuple[float, float]]]]:
    """Return the per-example results of each run of an entry, in the order of its runs; `runs` is the runs folder.

    Raises DataError where a run has none, or its file is absent or not the one that was recorded.
    """
    found = []
    for run in entry.runs:
        if run.examples is None:
            raise DataError(f"The run {run.key} of entry {entry.id} recorded no per-example results.")
        found.append(read_examples(recorded_file(run.examples, runs, entry)))
    return found


def recorded_file(file: File, runs: Path, entry: Entry) -> Path:
    """Return where a file of an entry's runs is; raises DataError where it is absent or not the one recorded."""
    path = runs / file.path
    if not path.is_file():
        raise DataError(f"{path}: cannot be read (there is no such file). Give its --runs DIR, or run again.")
    if digest(path) != file.sha256:
        raise DataError(f"{path}: altered since entry {entry.id} was recorded. Restore it, or run again.")
    return path


class ExamplesReader:
    """Reads entries' per-example results; an entry whose files are elsewhere is compared without them."""

    def __init__(self, runs: Path) -> None:
        self.problems: list[str] = []
        self._runs = runs

    def __call__(self, entry: Entry) -> list[dict[str, dict[str, tuple[float, float]]]] | None:
        try:
            return entry_examples(entry, self._runs)
        except DataError as error:
            if str(error) not in self.problems:
                self.problems.append(str(error))
            return None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8") as file:
            yield from enumerate(file, 1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: no UTF-8 text ({error}); expected JSON Lines. Run again to write it.") from error


def _check(value: float, weight: float, where: str) -> None:
    if not (math.isfinite(value) and math.isfinite(weight) and weight >= 0):
        raise DataError(f"{where}: value {value} with weight {weight}; expected finite numbers and no negative weight.")
