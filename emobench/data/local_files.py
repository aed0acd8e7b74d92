"""Data of the user by a path: a file or a folder, and the columns after it ("./reviews.csv:text").

JSON Lines, JSON, CSV, Parquet and text files are read. A file of a folder belongs to the split in its own name, or else
in that of its folder, by the words of `emobench.data.hub_corpus`; other files are the train split. A single file is the
train split. Splits without files are held out of its rows: the last 5 % are the validation split, the 10 % before them
the test split.

In keys and entries, data have the last part of their path as name, and the digest of their content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from emobench.core.errors import ConfigError, DataError
from emobench.core.reading import expand_home, is_file, is_folder, path_exists
from emobench.data.hub_corpus import ABOUT, HELD_OUT, part_of, splits_in
from emobench.data.packing import RowNumbers
from emobench.data.rows import FORMATS, TEXT, Rows, file_rows, format_of, numbers_in, shown, text_in
from emobench.data.sources import SPLITS, Split

SUFFIXES = (*FORMATS, TEXT)
SHARES: dict[Split, float] = {"validation": HELD_OUT, "test": 2 * HELD_OUT}
"""The shares of the documents that are held out for splits without files, from the end of the data."""
LARGEST = 2**30
"""Largest number of bytes of a split, which is in memory as a whole."""
FEWER = "all are in memory. Give a file with fewer rows, such as one that head -n writes."
MOST_FILES = 100_000
"""Files and folders that a folder may hold."""
Fields = tuple[tuple[str, str], ...]
"""Columns in a batch, and the fields of the data with their numbers."""
DOCUMENT = "document"
"""The column that names the document of a row."""


@dataclass(frozen=True)
class LocalData:
    """A file or a folder, and the columns that are read."""

    path: Path
    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name in keys and entries, such as "./reviews.csv:text", without the folders of this machine."""
        path = self.path.resolve() if self.path.name in ("", "..") else self.path
        return ":".join([f"./{path.name}", *self.columns])

    @cached_property
    def splits(self) -> dict[Split, list[Path]]:
        """The files of each split, sorted.

        Raises ConfigError for a path without data, for several formats, and for a file whose split is not clear.
        """
        if is_file(self.path):
            return {"train": [self.path], "validation": [], "test": []}
        if not is_folder(self.path):
            raise ConfigError(f"There is no file or folder {self.path}.")
        splits: dict[Split, list[Path]] = {split: [] for split in SPLITS}
        others = []
        for file in _data_files(self.path):
            relative = file.relative_to(self.path)
            named = splits_in(relative.name) or splits_in(str(relative.parent))
            if len(named) > 1:
                raise ConfigError(f"{file} names the splits {' and '.join(named)}; give it the name of one.")
            (splits[named[0]] if named else others).append(file)
        if others and splits["train"]:
            raise ConfigError(
                f"{others[0]} names no split, and {splits['train'][0]} does; put train, validation or test into its "
                "name, or move it elsewhere."
            )
        splits["train"] += others
        return splits

    def rows(self, split: Split) -> Rows:
        """Yield the rows of the files of a split. Of several text files, each is a document, and its lines are rows.

        Raises DataError for more than LARGEST bytes of files, and for rows that cannot be read.
        """
        files = self.splits[split]
        if sum(file.stat().st_size for file in files) > LARGEST:
            raise DataError(f"{self.path}: the {split} split has more than {LARGEST:,} bytes, and {FEWER}")
        for number, file in enumerate(files):
            for where, row in file_rows(file):
                if len(files) > 1 and format_of(file) == TEXT:
                    row[DOCUMENT] = number
                yield where, row


def local_data(name: str) -> LocalData | None:
    """Return the path and the columns in a name such as "./reviews.csv:text"; None for another name.

    A path begins with "/", "." or "~", ends as a data file does, or has a slash and exists on this machine.
    """
    path, *columns = name.split(":")
    if format_of(name) in SUFFIXES:
        path = name
        columns = []
    is_path = path.startswith(("/", ".", "~")) or format_of(path) in SUFFIXES
    if not is_path and not ("/" in path and path_exists(path)):
        return None
    if not all(columns):
        raise ConfigError(f"{name}: a column has no name; expected {path}:COLUMN.")
    return LocalData(expand_home(path), tuple(columns))


def data_name(name: str) -> str:
    """Return the name of a corpus in keys and entries, without the folders of this machine."""
    data = local_data(name)
    return name if data is None else data.name


def placed_data(name: str, folder: Path) -> str:
    """Return the name of a corpus that a file in `folder` gives: paths are relative to that file."""
    data = local_data(name)
    return name if data is None else ":".join([str((folder / data.path).absolute()), *data.columns])


def _data_files(folder: Path) -> list[Path]:
    """Return the data files of a folder at any depth, which are of one format."""
    files = []
    formats = set()
    for count, path in enumerate(folder.rglob("*")):
        if count >= MOST_FILES:
            raise ConfigError(f"{folder} has more than {MOST_FILES:,} files; name a folder with data alone.")
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and path.name not in ABOUT and format_of(path) in SUFFIXES and is_file(path):
            files.append(path)
            formats.add(format_of(path))
    if len(formats) > 1:
        raise ConfigError(f"{folder} has files in {' and '.join(sorted(formats))}; name one file, or keep one format.")
    if not files:
        raise ConfigError(f"{folder} has no file in {', '.join(SUFFIXES)}.")
    return sorted(files)


class LocalTexts(NamedTuple):
    """Texts of local data."""

    texts: Sequence[str]
    named: Sequence[str] = ()
    """The document of each text, if the data name documents."""
    note: str = ""
    """Which documents the texts are, if they are not all of the split's own files."""
    numbers: Sequence[RowNumbers] = ()
    """The numbers of each text's tokens, if fields with them were asked for."""


def load_local_texts(data: LocalData, split: Split, fields: Fields = ()) -> LocalTexts:
    """Return the texts of a split, of its files or held out of the train split.

    Raises ConfigError for a path without data, DataError for rows that cannot be read, and for too few to hold out.
    """
    if len(data.columns) > 1:
        raise ConfigError(f"{data.name}: a corpus has one column; expected {data.path}:COLUMN.")
    shares: dict[Split, float] = {other: share for other, share in SHARES.items() if not data.splits[other]}
    if not shares or (split != "train" and split not in shares):
        return _read(data, split, fields)
    texts, named, _, numbers = _read(data, "train", fields)
    keys: Sequence[object] = named or range(len(texts))
    documents = list(dict.fromkeys(keys))
    place, note = part_of(len(documents), split, shares, str(data.path))
    kept = set(documents[place])
    rows = [row for row, key in enumerate(keys) if key in kept]
    part = LocalTexts([texts[row] for row in rows], [named[row] for row in rows if named], note)
    return part._replace(numbers=[numbers[row] for row in rows if numbers])


def _read(data: LocalData, split: Split, fields: Fields) -> LocalTexts:
    files = data.splits[split]
    if not files:
        raise ConfigError(f"{data.path} has no file of the {split} split.")
    stamps = [(file.stat().st_mtime_ns, file.stat().st_size) for file in files]
    return _read_files(data, split, fields, tuple(stamps))


@lru_cache(maxsize=2)
def _read_files(data: LocalData, split: Split, fields: Fields, stamps: object) -> LocalTexts:
    """Return the texts of a split's files; `stamps` are their times and sizes."""
    files = data.splits[split]
    column = (*data.columns, "text")[0]
    if format_of(files[0]) == TEXT and column != "text":
        raise ConfigError(f"{files[0]} is a text file, without columns; drop `:{column}`.")
    return read_texts(data.rows(split), column, fields)


def read_texts(rows: Rows, column: str, fields: Fields = ()) -> LocalTexts:
    """Return the texts in a column of rows, with the documents that they name and the numbers in fields of the rows.

    Raises DataError for a row without a text, for more than LARGEST bytes, and where some rows name their document and
    others do not.
    """
    texts = []
    named = []
    numbers = []
    size = 0
    for where, row in rows:
        text = text_in(row, column, where)
        size += len(text.encode())
        if size > LARGEST:
            raise DataError(f"{where}: the texts up to here have more than {LARGEST:,} bytes, and {FEWER}")
        if DOCUMENT in row or named:
            name = row.get(DOCUMENT)
            if len(named) < len(texts) or name == "" or not isinstance(name, (str, int)):
                raise DataError(
                    f'{where}: "document" must be a name or a number, and in all rows or in none; got {shown(name)}.'
                )
            named.append(f"document {name}")
        texts.append(text)
        if fields:
            numbers.append(numbers_in(row, dict(fields), where, of_text=True))
    return LocalTexts(texts, named, numbers=numbers)
