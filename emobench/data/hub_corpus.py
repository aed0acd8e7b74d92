"""A data set of the hub as a corpus, by its id and a column ("stanfordnlp/imdb:text"), or as labelled examples.

"owner/name/CONFIG:text" is one of several configurations, and "owner/name@REVISION:text" is a branch, tag or commit.
Parquet, JSON Lines and CSV files are read; scripts are never run. Where the main branch has no such file, those of the
branch that the hub converts to Parquet are read. A file belongs to the split whose name it has:
"data/train-00000-of-00002.parquet", "test.jsonl". Without a file of the validation split, the last 5 % of the training
rows are that split.

A labelled data set for a classification task has two columns, "stanfordnlp/imdb:text:label". What a label's number
means is read from the data: from the class names that `datasets` writes into Parquet files, or from a column of texts
beside the numbers.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from emobench.core.errors import ConfigError, DataError, Missing, UserError
from emobench.data.rows import Row, file_rows
from emobench.data.sources import Split
from emobench.models.hub import CONVERTED, MAIN, fetch, list_files, missing_download, resolve_revision

NAME = re.compile(
    r"(?P<repo>\w[\w.-]*/[\w.-]+?)(?:/(?P<config>[\w.-]+))?(?:@(?P<revision>[\w./-]+))?:(?P<column>[^:/@]+)", re.ASCII
)
FORMATS = (".parquet", ".jsonl", ".json", ".csv")
"""Suffixes of data files. A data set in several formats is read in the first of them."""
ABOUT = {"dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json"}
"""Files in which `datasets` describes others."""
WORDS: dict[Split, str] = {
    "train": "train|training",
    "validation": "validation|valid|val|dev",
    "test": "test|testing|eval",
}
"""What a file of a split is called, between separators."""
LABELLED_FORMATS = (".parquet", ".jsonl")
NAMED = ("label_text", "label_name", "text_label", "label_names")
"""Columns that may hold the names of labels that are numbers."""
MOST_CLASSES = 100
EXPECTED = "OWNER/NAME:TEXT:LABEL, such as stanfordnlp/imdb:text:label"
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
    parts = NAME.fullmatch(name)
    return parts and HubCorpus(name, parts["repo"], parts["config"], parts["revision"] or MAIN, parts["column"])


class HubFiles(NamedTuple):
    """The data files of a commit, sorted, and their origin, "hub: repo@commit"."""

    commit: str
    names: list[str]
    origin: str


def find_files(corpus: HubCorpus, *, offline: bool, formats: tuple[str, ...] = FORMATS) -> HubFiles:
    """Return the data files of a data set: its own, or those that the hub converted where the main branch has none.

    Raises DataError if the hub has none in these formats, and Missing if the cache lacks them offline.
    """
    problems: list[UserError] = []
    for branch in (MAIN, CONVERTED) if corpus.revision == MAIN else (corpus.revision,):
        try:
            commit = resolve_revision(corpus.repo, branch, offline=offline, kind="dataset")
            names = list_files(corpus.repo, commit, offline=offline, kind="dataset")
        except (DataError, Missing) as error:
            problems.append(error)
            continue
        origin = f"hub: {corpus.repo}@{commit}"
        data = [name for name in names if name.endswith(formats) and Path(name).name not in ABOUT]
        if data:
            return HubFiles(commit, data, origin)
        problems.append(DataError(f"{origin} has no file in {', '.join(formats)}: its files are {_shown(names)}."))
    # Offline, the files of a commit are those of earlier downloads: others may be missing.
    raise next((problem for problem in problems if isinstance(problem, Missing)), problems[0])


def hub_split_files(name: str, split: Split, *, offline: bool) -> tuple[list[Path], str]:
    """Return the files of a split of a data set "owner/name[/CONFIG][@REVISION]", and their origin, "hub: repo@commit".

    There may be none but for the train split. Raises DataError where the hub or its cache has no data set.
    """
    named = hub_corpus(f"{name}:rows")
    assert named is not None
    corpus = replace(named, name=name, column="")
    commit, names, origin = find_files(corpus, offline=offline)
    files = _files_of(corpus, split, names)
    if not files:
        if split == "train" and offline:
            raise missing_download(corpus.repo, commit, "dataset", "the train split")
        if split == "train":
            raise DataError(f"{origin} has no train split in {', '.join(FORMATS)}: its files are {_shown(names)}.")
        return [], origin
    folder = fetch(corpus.repo, commit, files, offline=offline, kind="dataset")
    return [folder / file for file in files], origin


def load_hub_corpus(corpus: HubCorpus, split: Split, *, offline: bool) -> tuple[Sequence[str], str]:
    """Return the texts of a split, and their origin, "hub: repo@commit".

    Raises DataError if the hub has no such data set, or no file of the split; Missing if the cache lacks them offline;
    ConfigError for an unknown configuration or column.
    """
    try:
        return _load(corpus, split, offline)
    except Missing as missing:
        raise missing.named(f"corpus {corpus.name} ({split})") from None


def _load(corpus: HubCorpus, split: Split, offline: bool) -> tuple[Sequence[str], str]:
    commit, names, origin = find_files(corpus, offline=offline)
    files = files_of_splits(corpus, names)
    if split == "train" and not files["train"]:
        # One file without the name of a split.
        files["train"] = _of_one_kind(corpus, _of_config(corpus, names)) if not any(files.values()) else []
    held_out = split != "test" and not files["validation"]
    chosen = files["train"] if held_out else files[split]
    if not chosen and offline:
        raise missing_download(corpus.repo, commit, "dataset", f"the {split} split")
    if not chosen:
        raise DataError(
            f"{origin} has no {split} split in {', '.join(FORMATS)}: its files are {_shown(names)}. Put the rows, "
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
    named = [name for name in _of_config(corpus, names) if word.search(_within(corpus, name))]
    return _of_one_kind(corpus, named)


def _of_config(corpus: HubCorpus, names: Sequence[str]) -> list[str]:
    chosen = [name for name in names if corpus.config is None or corpus.config in Path(name).parts[:-1]]
    if not chosen:
        raise ConfigError(f"{corpus.repo} has no configuration '{corpus.config}': {_configurations(names)}.")
    return chosen


def _of_one_kind(corpus: HubCorpus, names: Sequence[str]) -> list[str]:
    """Return the files of the first format. Raises ConfigError where they are of several configurations."""
    chosen: list[str] = []
    for suffix in FORMATS:
        chosen = chosen or sorted(name for name in names if name.endswith(suffix))
    if corpus.config is None and len({_config_folder(name) for name in chosen}) > 1:
        example = f"{corpus.repo}/CONFIGURATION" + (corpus.column and f":{corpus.column}")
        raise ConfigError(f"{corpus.repo} has several configurations: {_configurations(chosen)}. Name one: {example}.")
    return chosen


def _configurations(names: Sequence[str]) -> str:
    folders = sorted({str(_config_folder(name)) for name in names})
    return f"its folders are {', '.join(folders) or 'none'}"


def _config_folder(name: str) -> Path:
    """Return the folder of a file, or the one above where the folder is named for a split: "CONFIG/train/0000.parquet".

    The hub names the splits of its conversion so, and those of which it converts a part "partial-train".
    """
    folder = Path(name).parent
    split = folder.name.removeprefix("partial-")
    return folder.parent if any(re.fullmatch(words, split, re.IGNORECASE) for words in WORDS.values()) else folder


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") or "none"


def _within(corpus: HubCorpus, name: str) -> str:
    """Return a file's name without its configuration, which may have a split's name in it."""
    parts = Path(name).relative_to(_config_folder(name)).parts
    return "/".join(part for part in parts if part != corpus.config)


def _texts(file: Path, column: str, where: str) -> Iterator[str]:
    if not file.is_file():
        raise Missing(where, None, None, "Run once without --offline.")
    for at, row in file_rows(file, where, [column]):
        if column not in row:
            raise ConfigError(f"{at} has no column '{column}'; its columns are {', '.join(map(str, row)) or 'none'}.")
        text = row[column]
        if not isinstance(text, str):
            raise ConfigError(f"{at}: '{column}' holds {text!r:.40}; expected a column with a text in every row.")
        yield text


def hub_labelled(name: str, *, offline: bool) -> dict[str, Any]:
    """Return the `dataset:` of a data set of the hub: its classes, files, sizes and the commit.

    The examples that are answered are those of the test split, or of the validation split where the test split has no
    labels. Raises ConfigError for another name or a column that cannot be labels, DataError where data are not there.
    """
    head, _, label = name.rpartition(":")
    corpus = hub_corpus(head)
    if corpus is None or not label:
        raise ConfigError(f"{name} names no labelled data set of the hub; expected {EXPECTED}.")
    commit, names, origin = find_files(corpus, offline=offline, formats=LABELLED_FORMATS)
    files = files_of_splits(corpus, names)
    read: dict[Split, tuple[list[Row], Mapping[str, str]]] = {}
    splits: tuple[Split, ...] = ("train", "test", "validation")
    for split in splits:
        chosen = files[split]
        if not chosen or (split == "validation" and "test" in read):
            continue
        folder = fetch(corpus.repo, commit, chosen, offline=offline, kind="dataset")
        rows: list[Row] = []
        for file in chosen:
            rows.extend(_rows(folder / file, f"{origin}, {file}", corpus.column, label))
        if split == "train" or all(str(row[label]) != "-1" for row in rows):
            read[split] = rows, _names(folder / chosen[0], rows, label)
    if len(read) < 2 or "train" not in read:
        lacks = "test or validation" if "train" in read else "train"
        raise DataError(
            f"{origin} has no labelled {lacks} split in {' or '.join(LABELLED_FORMATS)}; its files are {_shown(names)}."
        )
    meanings = read["train"][1]
    classes = list(dict.fromkeys(meanings.values())) or sorted({str(row[label]) for row in read["train"][0]})
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise ConfigError(
            f"{origin}: '{label}' has {len(classes)} different values; expected the classes of a task, 2 to "
            f"{MOST_CLASSES}."
        )
    dataset: dict[str, Any] = {
        "name": corpus.repo.rpartition("/")[2].lower(),
        "classes": classes,
        "repo": corpus.repo,
        "revision": commit,
    }
    if corpus.column != "text":
        dataset["fields"] = [corpus.column]
    if label != "label":
        dataset["label"] = label
    if meanings:
        dataset["names"] = dict(meanings)
    for name, (split, (rows, _)) in zip(("pool", "test"), read.items(), strict=True):
        dataset[name] = {"split": split, "files": _pattern(files[split], names), "rows": len(rows)}
    return dataset


def _rows(file: Path, where: str, column: str, label: str) -> Iterator[Row]:
    if not file.is_file():
        raise Missing(where, None, None, "Run once without --offline.")
    for _, row in file_rows(file, where):
        for wanted in (column, label):
            if wanted not in row:
                raise ConfigError(f"{where} has no column '{wanted}'; its columns are {', '.join(row) or 'none'}.")
        yield row


def _names(file: Path, rows: Sequence[Row], label: str) -> dict[str, str]:
    """Return what the label's numbers mean; nothing if labels are names. Raises ConfigError if that is unknown."""
    if all(isinstance(row[label], str) for row in rows):
        return {}
    features = _names_of_features(file, label)
    if features:
        return {str(number): name for number, name in enumerate(features)}
    for column in NAMED:
        pairs = {(str(row[label]), row.get(column)) for row in rows}
        meanings = dict(pairs)
        if len(meanings) == len(pairs) and all(isinstance(name, str) for name in meanings.values()):
            return {number: str(meanings[number]) for number in sorted(meanings)}
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
    begin = os.path.commonprefix(files)  # noqa: RUF071
    pattern = f"{begin}*{Path(files[0]).suffix}"
    if sorted(fnmatch.filter(names, pattern)) != sorted(files):
        raise ConfigError(f"The files {', '.join(files[:3])}, ... have no pattern of their own; write the task's file.")
    return pattern
