"""A data set of the hub as the `dataset:` of a classification task, by its id and two columns.

Such as "stanfordnlp/imdb:text:label". The first parts of the name are those of a corpus (`emobench.data.hub_corpus`).
What a label's number means is read from the data: from the class names that `datasets` writes into Parquet files, or
from a column of texts beside the numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from itertools import takewhile
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, DataError
from emobench.data.hub_corpus import files_of_splits, find_files, hub_corpus
from emobench.data.rows import Row, file_rows
from emobench.data.sources import Split
from emobench.models.hub import fetch

FORMATS = (".parquet", ".jsonl")
NAMED = ("label_text", "label_name", "text_label", "label_names")
"""Columns that may hold the names of labels that are numbers."""
MOST_CLASSES = 100
SPLITS: tuple[Split, ...] = ("train", "test", "validation")
EXPECTED = "OWNER/NAME:TEXT:LABEL, such as stanfordnlp/imdb:text:label"


def hub_labelled(name: str, *, offline: bool) -> dict[str, Any]:
    """Return the `dataset:` of a data set of the hub: its classes, files, sizes and the commit.

    The examples that are answered are those of the test split, or of the validation split where the test split has no
    labels. Raises ConfigError for another name or a column that cannot be labels, DataError where data are not there.
    """
    head, _, label = name.rpartition(":")
    corpus = hub_corpus(head)
    if corpus is None or not label:
        raise ConfigError(f"{name} names no labelled data set of the hub; expected {EXPECTED}.")
    commit, names, origin = find_files(corpus, offline=offline, formats=FORMATS)
    files = files_of_splits(corpus, names)
    read: dict[Split, tuple[list[Row], Mapping[str, str]]] = {}
    for split in SPLITS:
        chosen = files[split]
        if not chosen or (split == "validation" and "test" in read):
            continue
        folder = fetch(corpus.repo, commit, chosen, offline=offline, kind="dataset")
        rows = [row for file in chosen for row in _rows(folder / file, f"{origin}, {file}", corpus.column, label)]
        if split == "train" or all(str(row[label]) != "-1" for row in rows):
            read[split] = rows, _names(folder / chosen[0], rows, label)
    if len(read) < 2 or "train" not in read:
        raise DataError(
            f"{origin} has no labelled {'train' if 'train' not in read else 'test or validation'} split in "
            f"{' or '.join(FORMATS)}; its files are {', '.join(names[:8]) or 'none'}."
        )
    meanings = read["train"][1]
    classes = list(dict.fromkeys(meanings.values())) or sorted({str(row[label]) for row in read["train"][0]})
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise ConfigError(
            f"{origin}: '{label}' has {len(classes)} different values; expected the classes of a task, 2 to "
            f"{MOST_CLASSES}."
        )
    pool, test = read
    return {
        "name": corpus.repo.rpartition("/")[2].lower(),
        "classes": classes,
        "repo": corpus.repo,
        "revision": commit,
        **({} if corpus.column == "text" else {"fields": [corpus.column]}),
        **({} if label == "label" else {"label": label}),
        **({"names": dict(meanings)} if meanings else {}),
        "pool": {"split": pool, "files": _pattern(files[pool], names), "rows": len(read[pool][0])},
        "test": {"split": test, "files": _pattern(files[test], names), "rows": len(read[test][0])},
    }


def _rows(file: Path, where: str, column: str, label: str) -> Iterator[Row]:
    if not file.is_file():
        raise DataError(f"{where} is not in the local hub cache: run once without --offline.")
    for _, row in file_rows(file, where):
        for wanted in (column, label):
            if wanted not in row:
                raise ConfigError(f"{where} has no column '{wanted}'; its columns are {', '.join(row) or 'none'}.")
        yield row


def _names(file: Path, rows: Sequence[Row], label: str) -> dict[str, str]:
    """Return what the label's numbers mean; nothing if labels are names. Raises ConfigError if that is unknown."""
    if all(isinstance(row[label], str) for row in rows):
        return {}
    found = _names_of_features(file, label)
    if found:
        return {str(number): name for number, name in enumerate(found)}
    for column in NAMED:
        pairs = {(str(row[label]), row.get(column)) for row in rows}
        if all(isinstance(name, str) for _, name in pairs) and len({number for number, _ in pairs}) == len(pairs):
            return {number: str(name) for number, name in sorted(pairs)}
    raise ConfigError(
        f"{file.name}: the labels of '{label}' are numbers whose meaning the data do not say; name a column with "
        f"texts, or write the task's file with `names`. The columns are {', '.join(rows[0]) if rows else 'none'}."
    )


def _names_of_features(file: Path, label: str) -> list[str]:
    """Return the class names of a column that `datasets` wrote into a Parquet file's schema."""
    if file.suffix != ".parquet":
        return []
    import pyarrow.parquet as pq

    written = (pq.read_schema(file).metadata or {}).get(b"huggingface", b"{}")
    feature = json.loads(written).get("info", {}).get("features", {}).get(label, {})
    return [str(name) for name in feature.get("names") or ()] if isinstance(feature, dict) else []


def _pattern(files: Sequence[str], names: Sequence[str]) -> str:
    """Return a pattern of these files and no others. Raises ConfigError where there is none."""
    if len(files) == 1:
        return files[0]
    begin = "".join(letters[0] for letters in takewhile(lambda of: len(set(of)) == 1, zip(*files, strict=False)))
    found = f"{begin}*{Path(files[0]).suffix}"
    if sorted(name for name in names if fnmatch(name, found)) != sorted(files):
        raise ConfigError(f"The files {', '.join(files[:3])}, ... have no pattern of their own; write the task's file.")
    return found
