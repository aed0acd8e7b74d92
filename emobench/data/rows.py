"""Read rows of data files, local ones and those of a hub repository, and their digest. No code is executed.

A row is a mapping from names to values. The place of a row, "file:line" or "file, row N", begins the errors about it.
"""

from __future__ import annotations

import codecs
import csv
import errno
import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from json import JSONDecoder
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, DataError, Missing
from emobench.core.reading import MOST_BYTES, LineError, is_file, is_folder, numbered_lines, open_file, parse_json
from emobench.data.packing import WEIGHTS, Numbers
from emobench.models.hub import Repo

Row = dict[str, Any]
Rows = Iterator[tuple[str, Row]]
"""Places and rows."""
FORMATS = (".parquet", ".jsonl", ".json", ".csv")
"""Suffixes of data files. A data set in several formats is read in the first of them."""
TEXT, GZIP = ".txt", ".gz"
COMPRESSED = (".jsonl", ".json", ".csv", TEXT)
"""Suffixes that may be followed by ".gz"."""
LONGEST_ROW = 2**27
"""Largest number of bytes of a line of JSON Lines, which may hold a book."""
LARGEST_FIELD = 2**27
"""Largest number of characters of a field of a CSV file. The default of Python is less than a book."""
MOST_REPEATED = 100_000
"""Rows that a Parquet file of any size may have. A larger one has at most a row for each byte."""
LARGEST_NUMBER = 1_000_000
"""Largest weight, and largest number of other columns for tokens."""
BATCH = 256
"""Rows of a Parquet file that are decoded together."""
EXPANSION, SMALL = 1000, 2**26
"""A Parquet file holds at most this many times its own size, and this many bytes."""


def local_file(name: str, split: str, data_dirs: Sequence[Path], columns: Sequence[str] = ()) -> Path | None:
    """Return `DIR/<name>.<split>.jsonl` (or .json, .parquet, .csv) from the data folder that has it, or None.

    Of several files, only files whose first row has one of the `columns` count: a folder of texts and a folder of
    labelled examples may both have an `ag_news`. Raises ConfigError if several remain, or for another format.
    """
    begin = f"{name}.{split}"
    files = {}
    for folder in data_dirs:
        if not is_folder(folder):
            raise DataError(f"--data-dir {folder}: there is no such folder.")
        for file in (folder / f"{begin}{end}" for end in FORMATS):
            if is_file(file):
                files[file.resolve()] = file
    if "/" in name or "\\" in name:
        return None
    fitting = list(files.values())
    if len(files) > 1 and columns:
        fitting = [file for file in fitting if not _columns(file).isdisjoint(columns)] or fitting
    if len(fitting) > 1:
        raise ConfigError(f"--data-dir: {fitting[0]} and {fitting[1]} have the same name. Give one of them.")
    if fitting:
        return fitting[0]
    for path in chain.from_iterable(map(Path.iterdir, data_dirs)):
        if path.name.startswith(f"{begin}."):
            raise ConfigError(f'{path} has another format; expected {begin}.jsonl with rows such as {{"text": "..."}}.')
    return None


def _columns(file: Path) -> set[str]:
    _, row = next(file_rows(file), ("", {}))
    return set(row)


def hub_files(name: str, revision: str, pattern: str, *, offline: bool) -> tuple[list[Path], str]:
    """Fetch the files of a data set's repository that match a pattern. Return them and "hub: repo@commit".

    Offline, raises Missing for files that were not downloaded before; otherwise DataError if the repository lacks them.
    """
    repo = Repo(name, "dataset", offline)
    commit = repo.resolve(revision)
    folder = repo.fetch(commit, [pattern])
    origin = f"hub: {name}@{commit}"
    files = sorted(folder.glob(pattern))
    if not files and offline:
        raise repo.missing(commit, pattern)
    if not files:
        raise DataError(f"{origin} has no file {pattern}.")
    return files, origin


@contextmanager
def naming(item: str, source: str, file: str, *, size: int | None = None) -> Iterator[None]:
    """Name an item in the errors of its source, and the local file that would take its place."""
    advice = f"Or put the rows in DIR/{file} and give --data-dir DIR."
    try:
        yield
    except Missing as missing:
        raise missing.named(item, source=source, size=size, advice=advice) from None
    except DataError as error:
        raise DataError(f"The {item} could not be read from {source}. {error} {advice}") from None


def require_count(origin: str, rows: int, expected: int | None) -> None:
    """Raise DataError for a source that gave another number of rows than is expected."""
    if expected is not None and rows != expected:
        raise DataError(f"{origin} gave {rows:,} rows, expected {expected:,}: the source has changed.")


def rows_of(files: Iterable[Path], origin: str, columns: Sequence[str] = ()) -> Rows:
    """Yield the rows of several files of one origin, which begins their places."""
    for file in files:
        yield from file_rows(file, f"{origin}, {file.name}", columns)


def format_of(file: str | Path) -> str:
    """Return the suffix that says how a file is read, without that of a compression: ".csv" of "a.csv.gz"."""
    plain = Path(str(file).removesuffix(GZIP))
    suffix = plain.suffix.lower()
    return suffix if suffix in COMPRESSED or not str(file).endswith(GZIP) else GZIP


def file_rows(file: Path, where: str = "", columns: Sequence[str] = ()) -> Rows:
    """Yield (place, row) for each row of a Parquet, CSV, JSON Lines, JSON or text file, by the end of its name.

    `where` stands for the file in places. A JSON file is a list of objects, or one object a line. A line of a text file
    is a row with the column `text`. All but Parquet may be compressed with gzip. Of a Parquet file only `columns` are
    converted, if it has all. Raises DataError for another file, for half a surrogate pair, and for an object with two
    values of one name.
    """
    where = where or str(file)
    form = format_of(file)
    if form == ".parquet":
        return _parquet_rows(file, where, columns)
    if form == ".csv":
        return _csv_rows(file, where)
    return _line_rows(file, where, _text_row if form == TEXT else _json_row)


@contextmanager
def _opened(file: Path) -> Iterator[io.BufferedReader]:
    """Open a regular file, decompressed if its name ends in ".gz". Raises OSError, also for a file that is cut off."""
    with open_file(file) as opened:
        if file.suffix != GZIP:
            yield opened
            return
        try:
            # GzipFile has all methods that a BufferedReader calls; typeshed takes a RawIOBase.
            yield io.BufferedReader(gzip.GzipFile(fileobj=opened))  # type: ignore[arg-type]
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise OSError(errno.EIO, f"it is not a whole gzip file ({error})") from None


def _parquet_rows(file: Path, where: str, columns: Sequence[str]) -> Rows:
    import pyarrow as pa
    import pyarrow.parquet as pq

    decoded = number = 0
    try:
        size = file.stat().st_size
        with pq.ParquetFile(file) as opened:
            rows = opened.metadata.num_rows
            if rows > max(MOST_REPEATED, size):
                raise DataError(f"{where} has {rows:,} rows in {size:,} bytes: they repeat one another.")
            wanted = None
            if columns and set(columns) <= set(opened.schema_arrow.names):
                wanted = list(columns)
            for batch in opened.iter_batches(BATCH, columns=wanted):
                decoded += batch.nbytes
                if decoded > SMALL + EXPANSION * size:
                    raise DataError(f"{where} holds more than {EXPANSION} times its own size; save the file again.")
                for row in batch.to_pylist():
                    number += 1
                    yield f"{where}:{number}", row
    except FileNotFoundError as error:
        raise DataError(f"{where} could not be read: {error.strerror}.") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{where} is not a whole Parquet file ({error}).") from None


def _csv_rows(file: Path, where: str) -> Rows:
    """Yield the rows of a CSV file. The first column may be without a name: pandas writes its index so."""
    csv.field_size_limit(LARGEST_FIELD)
    names = []
    line = 1
    try:
        with _opened(file) as opened:
            reader = csv.reader(io.TextIOWrapper(opened, encoding="utf-8-sig", newline=""), strict=True)
            for fields in reader:
                if fields and not names:
                    names = fields
                    if len(set(names)) < len(names) or "" in names[1:]:
                        raise ValueError("each column needs a name of its own")
                elif fields:
                    if len(fields) != len(names) or "\0" in "".join(fields):
                        raise ValueError(f"it has {len(fields)} fields or a NUL byte; expected {len(names)} fields")
                    yield f"{where}:{line}", dict(zip(names, fields, strict=True))
                line = reader.line_num + 1
    except OSError as error:
        raise DataError(f"{where} could not be read: {error.strerror}.") from None
    except (ValueError, csv.Error) as error:
        raise DataError(
            f"{where}:{line}: the row that begins here is not CSV in UTF-8 ({error}). Put quotes around a field with a "
            'comma or an end of line, and write a quote in it as "".'
        ) from None


def _line_rows(file: Path, where: str, parse: Callable[[bytes], Row | None]) -> Rows:
    """Yield the rows of a file with a row a line, or of a JSON file with a list."""
    place = where
    try:
        with _opened(file) as opened:
            begin = opened.peek(64)[:64].removeprefix(codecs.BOM_UTF8).lstrip()
            if format_of(file) == ".json" and begin.startswith(b"["):
                content = opened.read(MOST_BYTES + 1)
                if len(content) > MOST_BYTES:
                    raise ValueError(f"it is a list of more than {MOST_BYTES:,} bytes")
                for number, row in enumerate(_parse(content), 1):
                    place = f"{where}, row {number}"
                    yield place, _checked(row)
                return
            for number, line in numbered_lines(opened, LONGEST_ROW):
                place = f"{where}:{number}"
                row = parse(line)
                if row is not None:
                    yield place, row
    except OSError as error:
        raise DataError(f"{where} could not be read: {error.strerror}.") from None
    except LineError as error:
        raise DataError(f"{where}:{error.number}: a line of {error}; at most {LONGEST_ROW:,} are read.") from None
    except ValueError as error:
        expected = "text" if parse is _text_row else "one JSON object a line"
        raise DataError(f"{place}: expected {expected}, in UTF-8 ({error}).") from None


def _text_row(line: bytes) -> Row:
    return {"text": line.decode("utf-8-sig").rstrip("\r\n")}


def _json_row(line: bytes) -> Row | None:
    """Return the object in a line; None for a blank line."""
    return _checked(_parse(line)) if line.strip() else None


def _checked(row: Any) -> Row:
    if not isinstance(row, dict):
        raise ValueError(f"got {shown(row)}")
    return row


def _parse(content: bytes) -> Any:
    """Return a JSON value. Raises ValueError also for a field that stands twice, and for half a surrogate pair."""
    value = parse_json(content.decode("utf-8-sig"), _EACH_ONCE)
    if b"\\ud" in content.lower():
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _each_once(pairs: list[tuple[str, Any]]) -> Row:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the field {max(names, key=names.count)!r:.60} stands there more than once")
    return row


_EACH_ONCE = JSONDecoder(object_pairs_hook=_each_once)


def text_in(row: Mapping[str, Any], field: str, where: str) -> str:
    """Return the text in a field of a row. Raises DataError, which begins with `where`, for anything else."""
    require_columns(row, [field], where)
    text = row[field]
    if not isinstance(text, str):
        raise DataError(f'{where}: "{field}" must be a text, got {shown(text)}.')
    return text


def numbers_in(row: Row, fields: Mapping[str, str], where: str, *, of_text: bool = False) -> dict[str, Numbers]:
    """Return the numbers in fields of a row, by the names of their columns in a batch; those in `WEIGHTS` are not < 0.

    With `of_text`, a list has the numbers of the tokens of one text. Raises DataError, which begins with `where`.
    """
    numbers = {}
    for name, field in fields.items():
        value = row.get(field)
        lowest = 0 if name == WEIGHTS else -LARGEST_NUMBER
        if of_text and isinstance(value, list):
            value = [value]
        what = f'{where}: "{field}"'
        try:
            numbers[name] = Numbers(what, _floats(value, lowest))
        except ValueError as error:
            raise DataError(
                f"{what} has {error}; expected a number from {lowest:,} to {LARGEST_NUMBER:,}, or a list of them."
            ) from None
    return numbers


def _floats(value: Any, lowest: float, depth: int = 2) -> Any:
    if depth and isinstance(value, list):
        return [_floats(part, lowest, depth - 1) for part in value]
    if type(value) not in (int, float) or not lowest <= value <= LARGEST_NUMBER:
        raise ValueError(shown(value))
    return float(value)


def require_columns(row: Mapping[str, Any], columns: Iterable[str], where: str) -> None:
    """Raise DataError, which begins with `where` and names the columns, for a row that lacks one."""
    for column in columns:
        if column not in row:
            names = ", ".join(map(str, row)) or "none"
            raise DataError(f'{where}: there is no column "{column}"; the columns are {names:.300}.')


def shown(value: Any) -> str:
    """Return the beginning of a value as JSON, for an error message."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def digest(texts: Iterable[str]) -> str:
    """Return "sha256:<hex>" of texts: of each one's UTF-8 length (8 bytes, little endian) and its bytes."""
    sha256 = hashlib.sha256()
    for text in texts:
        data = text.encode()
        sha256.update(len(data).to_bytes(8, "little"))
        sha256.update(data)
    return f"sha256:{sha256.hexdigest()}"
