"""Read rows of data files, local ones and those of a hub repository, and their digest. No code is executed."""

from __future__ import annotations

import codecs
import csv
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from json import JSONDecoder
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, DataError
from emobench.core.reading import (
    LineError,
    TooDeepError,
    is_file,
    is_folder,
    numbered_lines,
    open_file,
    parse_json,
    read_text,
)
from emobench.models.hub import fetch, missing_download, resolve_revision

Row = dict[str, Any]
LONGEST_ROW = 2**27
"""Largest number of bytes of a line of JSON Lines, which may hold a book."""
LARGEST_FIELD = 2**27
"""Largest number of characters of a field of a CSV file. The default of Python is less than a book."""


MOST_REPEATED = 100_000
"""Rows that a Parquet file may have whatever its size; a larger one has at most a row for each byte."""
BATCH = 256
"""Rows of a Parquet file that are decoded together."""
EXPANSION, SMALL = 1000, 2**26
"""A Parquet file holds at most this many times its own size, and this many bytes."""


class TwiceError(ValueError):
    """A JSON object has two values of one name."""


def _each_once(pairs: list[tuple[str, Any]]) -> Row:
    found = dict(pairs)
    if len(found) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise TwiceError(f"the field {name!r:.60} stands there more than once; expected each once")
    return found


_ROWS = JSONDecoder(object_pairs_hook=_each_once)
"""Reads JSON without losing a field."""


def local_file(name: str, split: str, data_dirs: Sequence[Path], columns: Sequence[str] = ()) -> Path | None:
    """Return `DIR/<name>.<split>.jsonl` from the data folder that has it, or None.

    Of several files, those whose first row has none of the `columns` are left out: a folder of texts and one of
    labelled examples may both have an `ag_news`. Raises ConfigError if several remain.
    """
    for folder in data_dirs:
        if not is_folder(folder):
            raise DataError(f"--data-dir {folder}: there is no such folder.")
    if "/" in name or "\\" in name:
        return None
    files = [folder / f"{name}.{split}.jsonl" for folder in data_dirs]
    if columns and sum(is_file(file) for file in files) > 1:
        files = [file for file in files if is_file(file) and _first_row_has(file, columns)] or files
    return only_file(files)


def _first_row_has(file: Path, columns: Sequence[str]) -> bool:
    _, row = next(jsonl_rows(file), ("", {}))
    return not row.keys().isdisjoint(columns)


def only_file(files: Iterable[Path]) -> Path | None:
    """Return the file that is there, or None. Raises ConfigError if several are: which one is meant is not known."""
    there = list({file.resolve(): file for file in files if is_file(file)}.values())
    if len(there) > 1:
        raise ConfigError(
            f"--data-dir: {there[0]} and {there[1]} have the same name, and which one is meant is not known. Give one."
        )
    return there[0] if there else None


def refuse_other_suffixes(name: str, split: str, data_dirs: Sequence[Path]) -> None:
    """Raise ConfigError for a data folder with a split in another format, which would be passed by without a word."""
    begin = f"{name}.{split}."
    for folder in data_dirs:
        other = next((path.name for path in sorted(folder.iterdir()) if path.name.startswith(begin)), None)
        if other is not None:
            raise ConfigError(
                f"--data-dir {folder} has {other}; expected {begin}jsonl, with one JSON object a line, such as "
                '{"text": "..."}.'
            )


def jsonl_rows(file: Path) -> Iterator[tuple[str, Row]]:
    """Yield ("file:line", row) for each line that is not blank. Raises DataError for a line without a JSON object."""
    try:
        with open_file(file) as opened:
            for number, raw in numbered_lines(opened, LONGEST_ROW):
                if raw.strip():
                    where = f"{file}:{number}"
                    yield where, _object(raw, where)
    except OSError as error:
        raise DataError(f"{file} could not be read: {error.strerror}.") from None
    except LineError as error:
        raise DataError(f"{file}:{error.number}: a line of {error}; expected one JSON object a line.") from None


def json_rows(file: Path, where: str | None = None) -> list[tuple[str, Row]]:
    """Return ("file, row 1", row) for each object of a JSON list; `where` names the file in its place.

    Raises DataError for anything else.
    """
    where = where or str(file)
    try:
        rows = parse_json(read_text(file), _ROWS)
    except (OSError, ValueError) as error:
        raise DataError(f"{where}: expected a list of JSON objects ({error}).") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(
            f"{where}: expected a list of JSON objects, or one object a line in a file that ends in .jsonl."
        )
    return [(f"{where}, row {number}", row) for number, row in enumerate(rows, 1)]


def hub_files(repo: str, revision: str, pattern: str, *, offline: bool) -> tuple[list[Path], str]:
    """Fetch the files of a data set's repository that match a pattern. Return them and "hub: repo@commit".

    Offline, raises Missing for files that were not downloaded before; otherwise DataError if the repository lacks them.
    """
    commit = resolve_revision(repo, revision, offline=offline, kind="dataset")
    folder = fetch(repo, commit, [pattern], offline=offline, kind="dataset")
    origin = f"hub: {repo}@{commit}"
    files = sorted(folder.glob(pattern))
    if not files and offline:
        raise missing_download(repo, commit, "dataset", pattern)
    if not files:
        raise DataError(f"{origin} has no file {pattern}.")
    return files, origin


def file_rows(file: Path, where: str | None = None, columns: Sequence[str] = ()) -> Iterator[tuple[str, Row]]:
    """Yield (place, row) for each row of a Parquet, CSV, JSON Lines or JSON file, by the end of its name.

    The place names the line, or the row of a Parquet file or a JSON list; `where` stands for the file in it. A JSON
    file is a list of objects, or one object a line. Of a Parquet file only `columns` are converted, if it
    has all. Raises DataError for another file.
    """
    where = where or str(file)
    if file.suffix == ".parquet":
        yield from ((f"{where}:{number}", row) for number, row in enumerate(_parquet_rows(file, where, columns), 1))
    elif file.suffix == ".csv":
        yield from _csv_rows(file, where)
    elif file.suffix == ".json" and _is_list(file):
        yield from json_rows(file, where)
    else:
        yield from ((f"{where}:{at.rpartition(':')[2]}", row) for at, row in jsonl_rows(file))


def parquet_table(file: Path, where: str) -> Any:
    """Return the pyarrow.Table of a Parquet file. Raises DataError, which begins with `where`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as opened:
            _require_texts(opened, file, where)
        return pq.read_table(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{where} is not a whole Parquet file ({error}).") from None


def _parquet_rows(file: Path, where: str, columns: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a Parquet file, a batch at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as opened:
            _require_texts(opened, file, where)
            wanted = list(columns) if columns and set(columns) <= set(opened.schema_arrow.names) else None
            most, decoded = SMALL + EXPANSION * file.stat().st_size, 0
            for batch in opened.iter_batches(BATCH, columns=wanted):
                decoded += batch.nbytes
                if decoded > most:
                    raise DataError(f"{where} holds more than {EXPANSION} times its own size; save the file again.")
                yield from batch.to_pylist()
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{where} is not a whole Parquet file ({error}).") from None


def _require_texts(opened: Any, file: Path, where: str) -> None:
    """Raise DataError for a Parquet file with more rows than bytes: its rows repeat, and reading it takes memory."""
    rows, size = opened.metadata.num_rows, file.stat().st_size
    if rows > MOST_REPEATED and rows > size:
        raise DataError(f"{where} has {rows:,} rows in {size:,} bytes: they repeat one another. Give each text once.")


def check_row_count(name: str, split: str, origin: str, found: int, expected: int | None) -> None:
    """Raise DataError for a source that gave another number of rows than is expected."""
    if expected is not None and found != expected:
        raise DataError(
            f"{origin} gave {found:,} rows for {name} ({split}), expected {expected:,}: the source has changed. Put "
            f"the rows that you want in DIR/{name}.{split}.jsonl and give --data-dir DIR."
        )


def digest(texts: Iterable[str]) -> str:
    """Return "sha256:<hex>" of texts: of each one's UTF-8 length (8 bytes, little endian) and its bytes."""
    found = hashlib.sha256()
    for text in texts:
        data = text.encode()
        found.update(len(data).to_bytes(8, "little"))
        found.update(data)
    return f"sha256:{found.hexdigest()}"


def shown(raw: bytes) -> str:
    """Return the beginning of a line, for an error message."""
    text = raw.decode("utf-8", "replace").strip()
    return f"`{text if len(text) <= 60 else text[:57] + '...'}`"


def _is_list(file: Path) -> bool:
    """Say whether a JSON file begins as a list does."""
    with file.open("rb") as stream:
        begin = stream.read(64).removeprefix(codecs.BOM_UTF8).lstrip()
    return begin.startswith(b"[")


def _csv_rows(file: Path, where: str) -> Iterator[tuple[str, Row]]:
    """Yield (place, row) for each row of a CSV file. Raises DataError for a file in which a row has lost its form."""
    names: list[str] | None = None
    csv.field_size_limit(LARGEST_FIELD)
    line = 1
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            for row in reader:
                place = f"{where}:{line}"
                if any("\0" in field for field in row):
                    raise DataError(f"{place}: the row has a NUL byte; expected text. Save the file as UTF-8.")
                if not row:
                    pass  # a blank line
                elif names is None:
                    names = _column_names(row, place)
                elif len(row) != len(names):
                    raise DataError(
                        f"{place}: the row has {len(row)} fields, and the first line names {len(names)} columns. Put "
                        'quotes around a field with a comma or an end of line, and write a quote in it as "".'
                    )
                else:
                    yield place, dict(zip(names, row, strict=True))
                line = reader.line_num + 1
    except UnicodeDecodeError as error:
        raise DataError(f"{where} is not a CSV file in UTF-8 ({error}).") from None
    except csv.Error as error:
        raise DataError(
            f"{where}:{line}: the row that begins here is not CSV ({error}). Close each quote, and write a quote in a "
            'field as "".'
        ) from None
    except OSError as error:
        raise DataError(f"{where} could not be read: {error.strerror}.") from None


def _column_names(row: list[str], place: str) -> list[str]:
    """Return the names in the first line. Raises DataError for a name that stands twice, or for none.

    The first column may be without a name: pandas writes its index so.
    """
    name, count = Counter(row).most_common(1)[0]
    if count > 1:
        raise DataError(f"{place}: the column {name!r} stands there {count} times; expected each name once.")
    if "" in row[1:] or row == [""]:
        raise DataError(f"{place}: column {1 + row.index('')} has no name; expected the names of the columns.")
    return row


def _object(raw: bytes, where: str) -> Row:
    try:
        row = parse_json(raw.decode("utf-8-sig"), _ROWS)
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: byte {error.start + 1} of the line is not UTF-8; save the file as UTF-8.") from None
    except TooDeepError as error:
        raise DataError(f"{where}: the row is {error}; expected texts and labels.") from None
    except TwiceError as error:
        raise DataError(f"{where}: {error}.") from None
    except ValueError:  # also a number with more digits than Python reads
        raise DataError(
            f'{where}: expected one JSON object a line, such as {{"text": "..."}}, got {shown(raw)}.'
        ) from None
    if not isinstance(row, dict):
        raise DataError(f'{where}: expected a JSON object with a "text", got {shown(raw)}.')
    return row
