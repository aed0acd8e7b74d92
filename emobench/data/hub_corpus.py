"""A data set of the hub as a corpus, by its id and a column ("stanfordnlp/imdb:text"), or as labelled examples.

"owner/name/CONFIG:text" is one of several configurations, and "owner/name@REVISION:text" is a branch, tag or commit.
Parquet, JSON Lines and CSV files are read; scripts are never run. If the main branch has no such file, the files
that the hub converted to Parquet are read. A file belongs to the split whose name it has:
"data/train-00000-of-00002.parquet", "test.jsonl". Without a file of the validation split, the last 5 % of the training
rows are that split.

A labelled data set for a classification task has two columns, "stanfordnlp/imdb:text:label". What a label's number
means is read from the data: from the class names that `datasets` writes into Parquet files, or from a column of texts
beside the numbers.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, DataError, Missing
from emobench.data.rows import FORMATS, Row, Rows, require_columns, rows_of, text_in
from emobench.data.sources import Split
from emobench.models.hub import CONVERTED, MAIN, Repo

NAME = re.compile(
    r"(?P<repo>\w[\w.-]*/[\w.-]+?)(?:/(?P<config>[\w.-]+))?(?:@(?P<revision>[\w./-]+))?:(?P<column>[^:/@]+)", re.ASCII
)
ABOUT = {"dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json"}
"""Files in which `datasets` describes others."""
WORDS: dict[Split, str] = {
    "train": "train|training",
    "validation": "validation|valid|val|dev",
    "test": "test|testing|eval",
}
"""Words for a split in the name of a file, between separators."""
DatasetFields = dict[str, Any]
"""Some fields of the `dataset:` of a task file, by name."""
NAMED = ("label_text", "label_name", "text_label", "label_names")
"""Columns that may hold the names of labels that are numbers."""
MOST_CLASSES = 100
EXPECTED = "./FILE:TEXT:LABEL, or OWNER/NAME:TEXT:LABEL of the hub, such as stanfordnlp/imdb:text:label"
HELD_OUT = 0.05
"""The share of the training rows that become the validation split of data without one."""


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
    parts = NAME.fullmatch(name)
    return parts and HubCorpus(name, parts["repo"], parts["config"], parts["revision"] or MAIN, parts["column"])


@dataclass(frozen=True)
class HubFiles:
    """The data files of a data set at a commit."""

    corpus: HubCorpus
    repo: Repo
    commit: str
    names: Sequence[str]
    """All files in the formats that are read, sorted."""

    @property
    def origin(self) -> str:
        return f"hub: {self.corpus.repo}@{self.commit}"

    def of(self, split: Split) -> list[str]:
        """Return the names of a split's files, in order, of one format and one configuration.

        Raises ConfigError for an unknown configuration, or for several. If no file has the name of a split, all are the
        train split.
        """
        config = self.corpus.config
        of_config = [name for name in self.names if config is None or config in Path(name).parts[:-1]]
        if not of_config:
            raise self._without_config(f"no configuration '{config}'", self.names)
        splits: dict[str, list[Split]] = {}
        for name in of_config:
            # Without its configuration, which may have the name of a split in it.
            parts = Path(name).relative_to(_config_folder(name)).parts
            splits[name] = splits_in("/".join(part for part in parts if part != config))
        chosen = [name for name in of_config if split in splits[name]]
        if split == "train" and not any(splits.values()):
            chosen = of_config
        suffixes = {Path(name).suffix for name in chosen}
        first = next((suffix for suffix in FORMATS if suffix in suffixes), "")
        chosen = sorted(name for name in chosen if name.endswith(first))
        if config is None and len(set(map(_config_folder, chosen))) > 1:
            raise self._without_config("several configurations", chosen)
        return chosen

    def _without_config(self, problem: str, names: Sequence[str]) -> ConfigError:
        folders = ", ".join(sorted(set(map(str, map(_config_folder, names)))))
        repo = self.corpus.repo
        return ConfigError(f"{repo} has {problem}; its folders are {folders}. Name one: {repo}/CONFIGURATION.")

    def fetch(self, split: Split) -> list[Path]:
        """Return the files of a split on this machine. Raises DataError, or offline Missing, if there are none."""
        names = self.of(split)
        if not names and self.repo.offline:
            raise self.repo.missing(self.commit, f"the {split} split")
        if not names:
            raise DataError(f"{self.origin} has no {split} split; its files are {_shown(self.names)}.")
        folder = self.repo.fetch(self.commit, names)
        return [folder / name for name in names]

    def rows(self, split: Split, columns: Sequence[str] = ()) -> Rows:
        """Yield the rows of a split's files."""
        return rows_of(self.fetch(split), self.origin, columns)


def splits_in(path: str) -> list[Split]:
    """Return the splits that the name of a file or a folder names."""
    named = []
    for split, words in WORDS.items():
        if re.search(f"(?:^|[/_.-])(?:{words})(?:[/_.-]|$)", path, re.IGNORECASE):
            named.append(split)
    return named


def find_files(corpus: HubCorpus, *, offline: bool) -> HubFiles:
    """Return the data files of a data set: its own, or the hub's conversion if the main branch has none.

    Raises DataError if the hub has none in these formats, and Missing if the cache lacks them offline.
    """
    repo = Repo(corpus.repo, "dataset", offline)
    problems = []
    for branch in (MAIN, CONVERTED) if corpus.revision == MAIN else (corpus.revision,):
        try:
            commit = repo.resolve(branch)
            names = repo.files(commit)
        except (DataError, Missing) as error:
            problems.append(error)
            continue
        data = [name for name in names if name.endswith(FORMATS) and Path(name).name not in ABOUT]
        if data:
            return HubFiles(corpus, repo, commit, data)
        formats = ", ".join(FORMATS)
        problems.append(DataError(f"{corpus.repo}@{commit} has no file in {formats}: its files are {_shown(names)}."))
    # Offline, only files of earlier downloads are known: others may be missing.
    raise next((problem for problem in problems if isinstance(problem, Missing)), problems[0])


def load_hub_corpus(corpus: HubCorpus, split: Split, *, offline: bool) -> tuple[Sequence[str], str, str]:
    """Return the texts of a split, their origin, "hub: repo@commit", and a note if they are held out or others are.

    Raises DataError if the hub has no such data set, no file of the split, or another column; Missing if the cache
    lacks them offline; ConfigError for an unknown configuration.
    """
    try:
        data = find_files(corpus, offline=offline)
        held_out = split != "test" and not data.of("validation")
        rows = data.rows("train" if held_out else split, [corpus.column])
        texts = [text_in(row, corpus.column, where) for where, row in rows]
    except Missing as missing:
        raise missing.named(f"corpus {corpus.name} ({split})") from None
    if not held_out:
        return texts, data.origin, ""
    place, note = part_of(len(texts), split, {"validation": HELD_OUT}, data.origin)
    return texts[place], data.origin, note


def part_of(count: int, split: Split, shares: Mapping[Split, float], origin: str) -> tuple[slice, str]:
    """Return the place of a split in `count` documents of the train split, and a note about it.

    `shares` belong to the splits without files, from the end of the documents on. Raises DataError for
    too few documents.
    """
    places = {}
    stop = count
    for other, share in shares.items():
        start = stop - max(1, round(share * count))
        places[other] = slice(start, stop)
        stop = start
    if stop < 1:
        raise DataError(f"{origin} has {count} documents, too few to hold out some for {' and '.join(shares)}.")
    place = places.get(split, slice(0, stop))
    return place, f"documents {place.start + 1:,} to {place.stop:,} of {count:,}"


def _config_folder(name: str) -> Path:
    """Return the folder of a file, or the one above where the folder is named for a split: "CONFIG/train/0000.parquet".

    The hub names the splits of its conversion so, and those of which it converts a part "partial-train".
    """
    folder = Path(name).parent
    split = folder.name.removeprefix("partial-")
    return folder.parent if re.fullmatch("|".join(WORDS.values()), split, re.IGNORECASE) else folder


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) or "none"


def hub_labelled(name: str, *, offline: bool) -> DatasetFields:
    """Return the `dataset:` of a data set of the hub: its classes, files, sizes and the commit.

    The model answers the examples of the test split, or of the validation split if the test split has no labels. Raises
    ConfigError for another name or a column that cannot be labels, DataError if data are missing.
    """
    head, _, label = name.rpartition(":")
    corpus = hub_corpus(head)
    if corpus is None or not label:
        raise ConfigError(f"{name} names no labelled data; expected {EXPECTED}.")
    data = find_files(corpus, offline=offline)
    columns = (corpus.column, label)
    pool = labelled_rows(data.rows("train"), columns)
    dataset: DatasetFields = {
        "name": corpus.repo.rpartition("/")[2].lower(),
        "repo": corpus.repo,
        "revision": data.commit,
        **labelled_facts(pool, columns, data.fetch("train")[0], data.origin),
        "pool": {"split": "train", "files": _pattern(data, "train"), "rows": len(pool)},
    }
    answered: tuple[Split, ...] = ("test", "validation")
    for split in answered:
        rows = []
        if data.of(split):
            rows = labelled_rows(data.rows(split), columns)
        if rows and all(str(row[label]) != "-1" for row in rows):
            dataset["test"] = {"split": split, "files": _pattern(data, split), "rows": len(rows)}
            return dataset
    raise DataError(f"{data.origin} has no labelled test or validation split; its files are {_shown(data.names)}.")


def labelled_rows(rows: Rows, columns: Sequence[str]) -> list[Row]:
    """Return rows with a text and a label, the columns. Raises DataError for a row that lacks one."""
    kept = []
    for where, row in rows:
        require_columns(row, columns, where)
        if row[columns[1]] in (None, ""):
            raise DataError(f"{where}: the label is blank; expected the name of a class.")
        kept.append(row)
    return kept


def labelled_facts(rows: Sequence[Row], columns: Sequence[str], file: Path, origin: str) -> DatasetFields:
    """Return the fields of a `dataset:` for columns of a text and a label: its classes, and the meaning of numbers.

    If `file`, the first one, does not say what numbers mean, they are classes; the author of the task names them.
    Raises ConfigError for a column that cannot be labels.
    """
    text, label = columns
    classes = sorted({str(row[label]) for row in rows})
    names = {}
    if not all(isinstance(row[label], str) for row in rows):
        names = _meanings_of_numbers(file, rows, label) or dict(zip(classes, classes, strict=True))
        classes = list(dict.fromkeys(names.values()))
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise ConfigError(
            f"{origin}: '{label}' has {len(classes)} different values; expected the classes of a task, 2 to "
            f"{MOST_CLASSES}."
        )
    facts: DatasetFields = {"classes": classes, "fields": [text], "label": label}
    if names:
        facts["names"] = names
    return facts


def _meanings_of_numbers(file: Path, rows: Sequence[Row], label: str) -> dict[str, str]:
    """Return the classes of the labels' numbers; nothing if the data do not say them.

    They are the class names that `datasets` writes into a Parquet file's schema, or a column of texts.
    """
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq
        from datasets import ClassLabel, Features

        feature = Features.from_arrow_schema(pq.read_schema(file)).get(label)
        if isinstance(feature, ClassLabel):
            return {str(number): name for number, name in enumerate(feature.names)}
    for column in NAMED:
        pairs = {(str(row[label]), row.get(column)) for row in rows}
        meanings = {number: name for number, name in sorted(pairs, key=str) if isinstance(name, str)}
        if len(meanings) == len(pairs):
            return meanings
    return {}


def _pattern(data: HubFiles, split: Split) -> str:
    """Return a pattern of a split's files and no others. Raises ConfigError if there is none."""
    files = data.of(split)
    if len(files) == 1:
        return files[0]
    pattern = f"{os.path.commonprefix(files)}*{Path(files[0]).suffix}"  # noqa: RUF071
    if sorted(fnmatch.filter(data.names, pattern)) != files:
        raise ConfigError(f"The files {_shown(files)} have no pattern of their own; write the task's file.")
    return pattern
