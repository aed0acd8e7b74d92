"""Per-example results of a run, so that two entries can be compared pair by pair.

JSON Lines: {"metric": "wikitext2/ppl_test", "example": "17", "value": 3.21, "weight": 57}. `value` is on the scale on
which examples are averaged (nats per token for a perplexity), `weight` its weight in that mean (tokens). A line whose
example was sampled with others has the "unit" of them, such as "subject anatomy" (`emobench.tasks.scores.Score`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emobench.core.errors import DataError
from emobench.core.files import write_whole
from emobench.core.reading import LineError, json_rows, number_of
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.schema.run_files import digest, recorded_file
from emobench.tasks.scores import Examples, Score, by_unit

EXPECTED = "expected JSON with metric, example, value and weight"
RunExamples = Mapping[str, Examples]
"""Metric -> sampling unit -> (mean value, weight), of one run."""

ExamplesOf = Callable[[Entry], Sequence[RunExamples] | None]
"""An entry -> the results of its runs by sampling unit, or None where they are not available."""


@dataclass(frozen=True)
class Recorded:
    """What a file holds of one metric: `Score`'s fields of these names."""

    examples: dict[str, tuple[float, float]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)

    @property
    def sampled(self) -> Examples:
        return by_unit(self.examples, self.units)


def write_examples(path: Path, scores: Mapping[str, Score]) -> str:
    """Write the examples of all scores (by <task>/<metric>) and return the file's sha256 in hex.

    Scores that are no mean of examples have none. Raises StorageError (disk), DataError (a value that is not finite).
    """
    lines = []
    for metric, score in scores.items():
        for example, (value, weight) in (score.examples or {}).items():
            _check(value, weight, f"{metric}, example {example!r}")
            row = {"metric": metric, "example": example, "value": float(value), "weight": float(weight)}
            if (unit := (score.units or {}).get(example, example)) != example:
                row["unit"] = unit
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    hint = "Free space or choose another folder with --runs DIR; finished stages are reused."
    write_whole(path, "".join(lines), "The per-example results", hint)
    return digest(path)


def read_examples(path: Path) -> dict[str, Recorded]:
    """Return what is recorded of each metric. Raises DataError with the line that cannot be used."""
    found: dict[str, Recorded] = {}
    try:
        for number, row in json_rows(path):
            _add(found, row, f"{path}:{number}")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error
    except LineError as error:
        raise DataError(f"{path}:{error.number}: {EXPECTED} ({error}). Run again to write the file.") from None
    return found


def _add(found: dict[str, Recorded], row: Mapping[str, Any], where: str) -> None:
    try:
        metric, example = row["metric"], row["example"]
        value, weight = number_of(row["value"]), number_of(row["weight"])
        unit = row.get("unit", example)
        if not all(isinstance(text, str) for text in (metric, example, unit)):
            raise ValueError
    except (KeyError, ValueError):
        raise DataError(f"{where}: {EXPECTED}. Run again to write the file.") from None
    _check(value, weight, where)
    recorded = found.setdefault(metric, Recorded())
    if example in recorded.examples:
        raise DataError(f"{where}: the example {example!r} of {metric} is there twice; keep one.")
    recorded.examples[example] = (value, weight)
    if unit != example:
        recorded.units[example] = unit


def entry_examples(entry: Entry, runs: Path, boards: Sequence[Path] = ()) -> list[RunExamples]:
    """Return the results of each run of an entry by sampling unit, in the order of its runs.

    `runs` is their folder; what is not there is read from `boards` that ship it. Raises DataError where a run has none,
    or its file is absent or not the one that was recorded.
    """
    found = []
    for run in entry.runs:
        if run.examples is None:
            raise DataError(f"The run {run.key} of entry {entry.id} recorded no per-example results.")
        recorded = read_examples(recorded_file(run.examples, runs, entry, boards))
        found.append({metric: one.sampled for metric, one in recorded.items()})
    return found


class ExamplesReader:
    """Reads entries' per-example results; an entry whose files are elsewhere is compared without them."""

    def __init__(self, runs: Path, boards: Sequence[Path] = ()) -> None:
        self.problems: list[str] = []
        self._runs, self._boards = runs, boards

    def __call__(self, entry: Entry) -> list[RunExamples] | None:
        try:
            return entry_examples(entry, self._runs, self._boards)
        except DataError as error:
            if str(error) not in self.problems:
                self.problems.append(str(error))
            return None


def _check(value: float, weight: float, where: str) -> None:
    if not (math.isfinite(value) and math.isfinite(weight) and weight >= 0):
        raise DataError(f"{where}: value {value} with weight {weight}; expected finite numbers and no negative weight.")
