"""A data set of the hub as a corpus, by its id and a column: "stanfordnlp/imdb:text".

"owner/name/CONFIG:text" is one of several configurations, and "owner/name@REVISION:text" is a branch, tag or commit.
Parquet, JSON Lines and CSV files are read; scripts are never run. A file belongs to the split whose name it has:
"data/train-00000-of-00002.parquet", "test.jsonl". Without a file of the validation split, the last 5 % of the training
rows are that split.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from emobench.data.rows import Row, jsonl_rows, parquet_table
from emobench.data.sources import Split
from emobench.errors import ConfigError, DataError
from emobench.models.hub import fetch, list_files, resolve_revision

NAME = re.compile(
    r"(?P<repo>\w[\w.-]*/[\w.-]+?)(?:/(?P<config>[\w.-]+))?(?:@(?P<revision>[\w./-]+))?:(?P<column>[^:/@]+)", re.ASCII
)
FORMATS = (".parquet", ".jsonl", ".json", ".csv")
"""Suffixes of data files. A data set in several formats is read in the first of them."""
WORDS: dict[Split, str] = {
    "train": "train|training",
    "validation": "validation|valid|val|dev",
    "test": "test|testing|eval",
}
"""What a file of a split is called, between separators."""
CONVERTED = "refs/convert/parquet"
"""The branch of a hub data set with its files converted to Parquet."""
HELD_OUT = 0.05
"""The share of the training rows that are the validation split where there is none."""


@dataclass(frozen=True)
class HubCorpus:
    """The parts of a name."""

    name: str
    repo: str
    config: str | None
    revision: str
    column: str


def hub_corpus(name: str) -> HubCorpus | None:
    """Return the parts of a name such as "stanfordnlp/imdb:text"; None for any other name."""
    found = NAME.fullmatch(name)
    return found and HubCorpus(name, found["repo"], found["config"], found["revision"] or "main", found["column"])


def hub_training_files(name: str, *, offline: bool) -> tuple[list[Path], str]:
    """Return the training files of a data set "owner/name[/CONFIG][@REVISION]", and their origin, "hub: repo@commit".

    Where its own branch has no file that is read, those of the branch that the hub converts to Parquet are returned.
    Raises DataError where the hub or its cache has none.
    """
    named = hub_corpus(f"{name}:rows")
    assert named is not None
    corpus = replace(named, name=name, column="")
    branches = [corpus.revision] if "@" in name else [corpus.revision, CONVERTED]
    why: DataError | None = None
    for branch in branches:
        try:
            commit = resolve_revision(corpus.repo, branch, offline=offline, kind="dataset")
            names = list_files(corpus.repo, commit, offline=offline, kind="dataset")
            files = _files_of(corpus, "train", names)
            if files:
                folder = fetch(corpus.repo, commit, files, offline=offline, kind="dataset")
                return [folder / file for file in files], f"hub: {corpus.repo}@{commit}"
            why = why or DataError(f"hub: {corpus.repo}@{commit} has no train split in {', '.join(FORMATS)}.")
        except DataError as error:
            why = why or error
    assert why is not None
    raise why


def load_hub_corpus(corpus: HubCorpus, split: Split, *, offline: bool) -> tuple[Sequence[str], str]:
    """Return the texts of a split, and their origin, "hub: repo@commit".

    Raises DataError where the hub or its cache has no such data set, or no file of the split; ConfigError where there
    is no such configuration or column.
    """
    commit = resolve_revision(corpus.repo, corpus.revision, offline=offline, kind="dataset")
    names = list_files(corpus.repo, commit, offline=offline, kind="dataset")
    files = files_of_splits(corpus, names)
    origin = f"hub: {corpus.repo}@{commit}"
    if split == "train" and not files["train"]:
        # One file without the name of a split.
        files["train"] = _of_one_format(_of_config(corpus, names)) if not any(files.values()) else []
    held_out = split != "test" and not files["validation"]
    chosen = files["train"] if held_out else files[split]
    if not chosen:
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise DataError(
            f"{origin} has no {split} split in {', '.join(FORMATS)}: its files are {shown or 'none'}. Put the rows, "
            f'one {{"text": ...}} a line, in DIR/NAME.{split}.jsonl, and give --data-dir DIR --set corpus=NAME.'
        )
    folder = fetch(corpus.repo, commit, chosen, offline=offline, kind="dataset")
    texts = [text for file in chosen for text in _texts(folder / file, corpus.column, f"{origin}, {file}")]
    if held_out:
        first = len(texts) - max(1, round(HELD_OUT * len(texts)))
        texts = texts[:first] if split == "train" else texts[first:]
        origin += f", {'all but the last' if split == 'train' else 'the last'} {HELD_OUT:.0%} of its training rows"
    return texts, origin


def files_of_splits(corpus: HubCorpus, names: Sequence[str]) -> dict[Split, list[str]]:
    """Return the files of each split, of all the names in a repository. Raises ConfigError for a configuration."""
    return {split: _files_of(corpus, split, names) for split in WORDS}


def _files_of(corpus: HubCorpus, split: Split, names: Sequence[str]) -> list[str]:
    """Return the files of a split, in order, of one format and one configuration."""
    word = re.compile(rf"(?:^|[/_.-])(?:{WORDS[split]})(?:[/_.-]|$)", re.IGNORECASE)
    return _of_one_format([name for name in _of_config(corpus, names) if word.search(_within(corpus, name))])


def _of_config(corpus: HubCorpus, names: Sequence[str]) -> list[str]:
    data = [name for name in names if name.endswith(FORMATS)]
    if corpus.config is not None:
        chosen = [name for name in data if corpus.config in Path(name).parts[:-1]]
        if not chosen:
            raise ConfigError(f"{corpus.repo} has no configuration '{corpus.config}': {_configurations(data)}.")
        return chosen
    folders = {Path(name).parent for name in data}
    if len(folders) > 1 and not any(_is_split(folder.name) for folder in folders):
        raise ConfigError(
            f"{corpus.repo} has several configurations: {_configurations(data)}. Name one: "
            f"{corpus.repo}/CONFIGURATION{corpus.column and f':{corpus.column}'}."
        )
    return data


def _configurations(names: Sequence[str]) -> str:
    return "its folders are " + (", ".join(sorted({str(Path(name).parent) for name in names})) or "none")


def _is_split(folder: str) -> bool:
    return any(re.fullmatch(words, folder, re.IGNORECASE) for words in WORDS.values())


def _within(corpus: HubCorpus, name: str) -> str:
    """Return a file's name without the configuration, which may have a split's name in it."""
    parts = [part for part in Path(name).parts if part != corpus.config]
    return "/".join(parts)


def _of_one_format(names: Sequence[str]) -> list[str]:
    kinds = (sorted(name for name in names if name.endswith(suffix)) for suffix in FORMATS)
    return next((found for found in kinds if found), [])


def _texts(file: Path, column: str, where: str) -> Iterator[str]:
    if not file.is_file():
        raise DataError(f"{where} is not in the local hub cache: run once without --offline.")
    if file.suffix == ".parquet":
        table = parquet_table(file, where)
        if column not in table.column_names:
            raise _no_column(where, column, table.column_names)
        rows = ((f"{where}:{i}", {column: text}) for i, text in enumerate(table.column(column).to_pylist(), 1))
    elif file.suffix == ".csv":
        rows = csv_rows(file, where)
    else:
        rows = ((f"{where}:{at.rpartition(':')[2]}", row) for at, row in jsonl_rows(file))
    for at, row in rows:
        if column not in row:
            raise _no_column(at, column, list(row))
        text = row[column]
        if not isinstance(text, str):
            raise DataError(f"{at}: '{column}' holds {text!r:.40}; expected a text in every row.")
        yield text


def csv_rows(file: Path, where: str) -> Iterator[tuple[str, Row]]:
    """Yield ("where:line", row) for each row of a CSV file with a header. Raises DataError for another file."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            for number, row in enumerate(csv.DictReader(stream), 2):
                yield f"{where}:{number}", row
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{where} is not a CSV file in UTF-8 ({error}).") from None


def _no_column(where: str, column: str, known: Sequence[str]) -> ConfigError:
    return ConfigError(f"{where} has no column '{column}'; its columns are {', '.join(map(str, known)) or 'none'}.")
