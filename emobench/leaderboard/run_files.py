"""The files of entries' runs: in the runs folder or, compressed, in a board that ships them.

`emobench leaderboard pack` (`pack.py`) writes `BOARD/runs/<path>.xz`, so that a clone of a board can compare its
entries example by example and show their curves. Samples are shortened: they hold no text of a data set. Their first
line says so, with the sha256 of the whole file.

Two entries may name one path with other contents, such as the same run on two machines, whose logs have their own
clocks. The second one is `BOARD/runs/<path>.<first 16 digits of its sha256>.xz`.

Per-example results of a run are there so that two entries can be compared pair by pair. They are JSON Lines: {"metric":
"wikitext2/ppl_test", "example": "17", "value": 3.21, "weight": 57}. `value` is on the scale on which examples are
averaged (nats per token for a perplexity), `weight` its weight in that mean (tokens). A line whose example was sampled
with others has the "unit" of them, such as "subject anatomy" (`emobench.tasks.scores.Score`).
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import lzma
import math
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from emobench.core.errors import DataError
from emobench.core.files import write_whole
from emobench.core.reading import LineError, json_rows, number_of, parse_mapping
from emobench.core.settings import file_sha256
from emobench.leaderboard.entry import Entry, File, Run
from emobench.tasks.scores import Examples, Score, by_unit

PACKED, SUFFIX = "runs", ".xz"
"""The folder of a board that has the files of runs, and the end of their names."""
SHORTENED = "shortened_from"
"""The key of the first line of shortened samples; its value is the sha256 of the whole file."""
EXPANSION, SMALL = 200, 2**20
"""A packed file holds at most this many times its own size, and this many bytes: logs compress to a tenth."""
FIRST_LINE = 200
LARGEST = 200_000_000
"""Bytes of the largest file that is unpacked."""


def recorded_file(
    file: File, runs: Path, entry: Entry, boards: Sequence[Path] = (), *, shortened: bool = False
) -> Path:
    """Return where a file of an entry's runs is, unpacked if a board has it.

    With `shortened`, shortened samples of it will do. Raises DataError if it is absent or not the one recorded.
    """
    path = find_file(file, runs, boards)
    if path is None:
        raise DataError(
            f"{runs / file.path}: cannot be read (there is no such file). Give its --runs DIR, or run again."
        )
    if not is_recorded(path, file, shortened=shortened):
        raise DataError(f"{runs / file.path}: altered since entry {entry.id} was recorded. Restore it, or run again.")
    return path


def find_file(file: File, runs: Path, boards: Sequence[Path] = ()) -> Path | None:
    """Return where a file is: in the runs folder, or unpacked from the first board that has it; None if it is nowhere.

    A file in the runs folder may be another one than was recorded. Of a board, only the recorded file, or a shortened
    one of it, is unpacked: raises DataError if its files hold something else, or cannot be read.
    """
    inside = runs / file.path
    packed = _packed_files(file, boards)
    if inside.is_file() and (not packed or is_recorded(inside, file)):
        return inside
    problem = None
    for path in packed:
        try:
            if file.sha256 in packed_digests(path):
                return unpack(path, file.path)
            problem = problem or DataError(f"{path}: altered since its entry was recorded. Restore it.")
        except DataError as error:
            problem = problem or error
    if inside.is_file():
        return inside
    if problem is not None:
        raise problem
    return None


def is_here(file: File, runs: Path, boards: Sequence[Path] = ()) -> bool:
    """Return whether the runs folder or a board has a file of this path, be it the recorded one or not."""
    return (runs / file.path).is_file() or bool(_packed_files(file, boards))


def _packed_files(file: File, boards: Sequence[Path]) -> list[Path]:
    """Return the packed files of this path that boards have, be they of the recorded file or not."""
    return [path for board in boards for path in packed_paths(board, file) if path.is_file()]


def packed_path(board: Path, name: str) -> Path:
    """Return where a board has a file of a run: `name` is its path in the runs folder."""
    return board / PACKED / f"{name}{SUFFIX}"


def packed_paths(board: Path, file: File) -> tuple[Path, Path]:
    """Return where a board may have a file: under its path or, where that holds another file, also by its digest."""
    return packed_path(board, file.path), packed_path(board, f"{file.path}.{file.sha256[:16]}")


def packed_file(board: Path, file: File, *, sample: bool) -> Path | None:
    """Return the packed file of a board that holds a file as it was recorded, or shortened if it is a sample."""
    for path in packed_paths(board, file):
        if path.is_file():
            with suppress(DataError):
                whole, shortened = packed_digests(path)
                if whole == file.sha256 or (sample and shortened == file.sha256):
                    return path
    return None


def free_place(board: Path, file: File) -> Path:
    """Return where a file is to be packed that a board has not: a packed file is never changed."""
    place, other = packed_paths(board, file)
    return other if place.exists() else place


@functools.cache
def packed_digests(packed: Path) -> tuple[str, str | None]:
    """Return the sha256 of a packed file's content, and that of the whole file if it has shortened samples.

    Nothing is written. Raises DataError if it is not xz, or too large.
    """
    content = _unpacked(packed)
    return hashlib.sha256(content).hexdigest(), _shortened(content[:FIRST_LINE].partition(b"\n")[0])


@functools.cache
def unpack(packed: Path, name: str) -> Path:
    """Return the unpacked file, which stays until the process ends. Raises DataError if it is not xz, or too large."""
    content = _unpacked(packed)
    path = _scratch() / packed.with_suffix("").resolve().as_posix().lstrip("/") / Path(name).name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _unpacked(packed: Path) -> bytes:
    """Return the content of a packed file. Raises DataError if it is not xz, or expands too much."""
    try:
        most = min(LARGEST, SMALL + EXPANSION * packed.stat().st_size)
        with lzma.open(packed) as stream:
            content = stream.read(most + 1)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise DataError(f"{packed}: cannot be unpacked ({error}). Restore it.") from None
    if len(content) > most:
        raise DataError(f"{packed}: holds more than {most:,} bytes. Remove it.")
    return content


@functools.cache
def _scratch() -> Path:
    folder = tempfile.mkdtemp(prefix="emobench.")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def is_recorded(path: Path, file: File, *, shortened: bool = True) -> bool:
    """Return whether a file is the one that an entry names or, with `shortened`, has shortened samples of it."""
    return digest(path) == file.sha256 or (shortened and shortened_from(path) == file.sha256)


def shortened_from(path: Path) -> str | None:
    """Return the sha256 of the whole file of which a file has shortened samples; None for any other file."""
    with path.open("rb") as stream:
        return _shortened(stream.readline(FIRST_LINE))


def _shortened(first: bytes) -> str | None:
    try:
        return str(parse_mapping(first.decode())[SHORTENED])
    except (KeyError, ValueError):
        return None


def digest(path: Path) -> str:
    """Return the sha256 of a file in hex; raises DataError if it cannot be read."""
    try:
        return file_sha256(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error


EXPECTED = "expected JSON with metric, example, value and weight"
RunExamples = Mapping[str, Examples]
"""Metric -> sampling unit -> (mean value, weight), of one run."""

ExamplesOf = Callable[[Entry], Sequence[RunExamples] | None]
"""An entry -> the results of its runs by sampling unit, or None if they are not available."""


@dataclass(frozen=True)
class Recorded:
    """What a file holds of one metric: `Score`'s fields of these names."""

    examples: dict[str, tuple[float, float]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)

    @property
    def sampled(self) -> Examples:
        return by_unit(self.examples, self.units)


def write_examples(path: Path, scores: Mapping[str, Score | Recorded]) -> str:
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
    """Return the examples of each metric. Raises DataError with the line that cannot be used."""
    metrics = {}
    where = str(path)
    try:
        for number, row in json_rows(path):
            where = f"{path}:{number}"
            metric, example, unit = row["metric"], row["example"], row.get("unit", row["example"])
            value, weight = number_of(row["value"]), number_of(row["weight"])
            if not all(isinstance(text, str) for text in (metric, example, unit)):
                raise ValueError("a name is not a text")
            _check(value, weight, where)
            recorded = metrics.setdefault(metric, Recorded())
            if example in recorded.examples:
                raise DataError(f"{where}: the example {example!r} of {metric} appears twice; keep one.")
            recorded.examples[example] = (value, weight)
            if unit != example:
                recorded.units[example] = unit
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error
    except LineError as error:
        raise DataError(f"{path}:{error.number}: {EXPECTED} ({error}). Run again to write the file.") from None
    except (KeyError, ValueError):
        raise DataError(f"{where}: {EXPECTED}. Run again to write the file.") from None
    return metrics


def run_examples(run: Run, runs: Path, entry: Entry, boards: Sequence[Path] = ()) -> dict[str, Recorded]:
    """Return the per-example results of a run of an entry. Raises DataError if they are absent or altered."""
    if run.examples is None:
        raise DataError(f"The run {run.key} of entry {entry.id} recorded no per-example results.")
    return read_examples(recorded_file(run.examples, runs, entry, boards))


def entry_examples(entry: Entry, runs: Path, boards: Sequence[Path] = ()) -> list[RunExamples]:
    """Return the results of each run of an entry by sampling unit, in the order of its runs.

    `runs` is their folder; files that it lacks are read from `boards` that ship them. Raises DataError if a run has
    none, or its file is absent or not the one that was recorded.
    """
    of_runs = []
    for run in entry.runs:
        metrics = run_examples(run, runs, entry, boards)
        of_runs.append({metric: recorded.sampled for metric, recorded in metrics.items()})
    return of_runs


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
