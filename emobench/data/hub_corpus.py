"""A data set of the hub as a corpus, by its id and a column: "stanfordnlp/imdb:text".

"owner/name/CONFIG:text" is one of several configurations, and "owner/name@REVISION:text" is a branch, tag or commit.
Parquet, JSON Lines and CSV files are read; scripts are never run. Where the main branch has no such file, those of the
branch that the hub converts to Parquet are read. A file belongs to the split whose name it has:
"data/train-00000-of-00002.parquet", "test.jsonl". Without a file of the validation split, the last 5 % of the training
rows are that split.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from emobench.core.errors import ConfigError, DataError
from emobench.data.rows import file_rows
from emobench.data.sources import Split
from emobench.models.hub import CONVERTED, MAIN, fetch, list_files, resolve_revision

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
    return found and HubCorpus(name, found["repo"], found["config"], found["revision"] or MAIN, found["column"])


class HubFiles(NamedTuple):
    """The data files of a commit, sorted, and their origin, "hub: repo@commit"."""

    commit: str
    names: list[str]
    origin: str


def find_files(corpus: HubCorpus, *, offline: bool, formats: tuple[str, ...] = FORMATS) -> HubFiles:
    """Return the data files of a data set: its own, or those that the hub converted where the main branch has none.

    Raises DataError where the hub or its cache has none in these formats.
    """
    why: DataError | None = None
    for branch in (MAIN, CONVERTED) if corpus.revision == MAIN else (corpus.revision,):
        try:
            commit = resolve_revision(corpus.repo, branch, offline=offline, kind="dataset")
            names = list_files(corpus.repo, commit, offline=offline, kind="dataset")
        except DataError as error:
            why = why or error
            continue
        origin = f"hub: {corpus.repo}@{commit}"
        found = [name for name in names if name.endswith(formats) and Path(name).name not in ABOUT]
        if found:
            return HubFiles(commit, found, origin)
        why = why or DataError(f"{origin} has no file in {', '.join(formats)}: its files are {_shown(names)}.")
    assert why is not None
    raise why


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
        if split == "train":
            raise DataError(f"{origin} has no train split in {', '.join(FORMATS)}: its files are {_shown(names)}.")
        return [], origin
    folder = fetch(corpus.repo, commit, files, offline=offline, kind="dataset")
    return [folder / file for file in files], origin


def load_hub_corpus(corpus: HubCorpus, split: Split, *, offline: bool) -> tuple[Sequence[str], str]:
    """Return the texts of a split, and their origin, "hub: repo@commit".

    Raises DataError where the hub or its cache has no such data set, or no file of the split; ConfigError where there
    is no such configuration or column.
    """
    commit, names, origin = find_files(corpus, offline=offline)
    files = files_of_splits(corpus, names)
    if split == "train" and not files["train"]:
        # One file without the name of a split.
        files["train"] = _of_one_kind(corpus, _of_config(corpus, names)) if not any(files.values()) else []
    held_out = split != "test" and not files["validation"]
    chosen = files["train"] if held_out else files[split]
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
    return _of_one_kind(corpus, [name for name in _of_config(corpus, names) if word.search(_within(corpus, name))])


def _of_config(corpus: HubCorpus, names: Sequence[str]) -> list[str]:
    chosen = [name for name in names if corpus.config is None or corpus.config in Path(name).parts[:-1]]
    if not chosen:
        raise ConfigError(f"{corpus.repo} has no configuration '{corpus.config}': {_configurations(names)}.")
    return chosen


def _of_one_kind(corpus: HubCorpus, names: Sequence[str]) -> list[str]:
    """Return the files of the first format. Raises ConfigError where they are of several configurations."""
    kinds = (sorted(name for name in names if name.endswith(suffix)) for suffix in FORMATS)
    found = next((found for found in kinds if found), [])
    if corpus.config is None and len({_config_folder(name) for name in found}) > 1:
        raise ConfigError(
            f"{corpus.repo} has several configurations: {_configurations(found)}. Name one: "
            f"{corpus.repo}/CONFIGURATION{corpus.column and f':{corpus.column}'}."
        )
    return found


def _configurations(names: Sequence[str]) -> str:
    return "its folders are " + (", ".join(sorted({str(_config_folder(name)) for name in names})) or "none")


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
        raise DataError(f"{where} is not in the local hub cache: run once without --offline.")
    for at, row in file_rows(file, where, [column]):
        if column not in row:
            raise ConfigError(f"{at} has no column '{column}'; its columns are {', '.join(map(str, row)) or 'none'}.")
        text = row[column]
        if not isinstance(text, str):
            raise ConfigError(f"{at}: '{column}' holds {text!r:.40}; expected a column with a text in every row.")
        yield text
