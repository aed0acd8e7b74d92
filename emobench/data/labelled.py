"""Labelled data sets: a pool of examples for shots, and a test split. Labels are mapped by their text.

Label numbers are not reliable: four of the seven classification data sets of the EMO paper have copies with another
order. A number therefore gets its meaning from the column `label_name`, or from the `names` that a task gives for one
source. A local file with numbers only is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, DataError
from emobench.core.reading import expand_home
from emobench.core.settings import content_hash, file_sha256
from emobench.data.hub_corpus import DatasetFields, labelled_facts, labelled_rows
from emobench.data.local_files import LocalData
from emobench.data.rows import (
    Row,
    Rows,
    digest,
    file_rows,
    hub_files,
    local_file,
    naming,
    require_count,
    rows_of,
    shown,
    text_in,
)
from emobench.data.sampling_units import joined_units, text_digest
from emobench.data.sources import SPLITS, Split

GENERATED = "oracle-sections"
"""The generated data set."""
HALF = "half of the rows, by the digest of their texts"
GROUP = "group"
"""The field with the name of an example's group."""


@dataclass(frozen=True, kw_only=True)
class LabelledSplit:
    """One split: its name (also in the name of a local file), its files in the repository, its number of rows."""

    split: str
    files: str = ""
    rows: int | None = None
    text_bytes: int | None = None
    """Approximate mean UTF-8 bytes of an example's fields, for estimates before a download."""
    sha256: str = ""
    """The sha256 of the only file in the repository, used if no commit is known."""


@dataclass(frozen=True, kw_only=True)
class LabelledSource:
    """The source of a labelled data set and the meaning of its columns: the `dataset:` of a task file.

    `DIR/<name>.<split>.jsonl` in a data folder replaces the repository. Sizes, `names` and `golden` rows describe the
    repository and are not used for a local file.
    """

    name: str
    classes: tuple[str, ...]
    """The names of the classes in the task."""
    pool: LabelledSplit
    test: LabelledSplit
    repo: str = ""
    """The repository on the hub. Empty for local or generated data."""
    path: str = ""
    """A file or a folder with the rows, relative to the task's file. If it has no file of the test split, half of the
    rows are that split."""
    revision: str = "main"
    fields: tuple[str, ...] = ("text",)
    """Text columns that the prompt can use. The protocol names the columns that retrieval compares."""
    label: str = "label"
    """The column of the label: the name of a class, or a number."""
    label_name: str = "label_name"
    """The column of the class name if the label is a number. "label_name" works in every file."""
    names: dict[str, str] = field(default_factory=dict)
    """Meaning of the repository's labels: number or text -> class."""
    choices: str = ""
    """A column with a list of texts, one per class. They become fields with the classes' names (A, B, C, D)."""
    group: str = ""
    """A column: shots come only from the same group. `{group}` is its text, with spaces for underscores."""
    unit: str = ""
    """A column: examples with the same text in it were sampled together, such as the questions on a passage. Empty: the
    group, if there is one. Examples with equal fields are one unit in any case."""
    golden: dict[str, str] = field(default_factory=dict)
    """First 12 hex digits of the sha256 of a row's text -> its class, for known rows that must exist.

    Several fields are joined by the unit separator, U+001F. Spaces at both ends of a text are removed first.
    """

    def __post_init__(self) -> None:
        if self.path and self.repo:
            raise ConfigError(f"`path` is {self.path} and `repo` is {self.repo}; keep one.")
        if self.path and not {self.pool.split, self.test.split} <= set(SPLITS):
            raise ConfigError(f"the splits are {self.pool.split} and {self.test.split}; expected {', '.join(SPLITS)}.")
        if len(set(self.classes)) != len(self.classes) or len(self.classes) < 2:
            raise ConfigError(f"`classes` is {list(self.classes)}; expected two or more different names.")
        for key, name in [*self.names.items(), *self.golden.items()]:
            if name not in self.classes:
                raise ConfigError(f"`{key}` is of class '{name}'; expected one of {', '.join(self.classes)}.")

    @property
    def text_bytes(self) -> int | None:
        """The approximate bytes of the splits whose sizes are known."""
        total = 0
        for part in (self.pool, self.test):
            total += (part.rows or 0) * (part.text_bytes or 0)
        return total or None


@dataclass(frozen=True)
class Example:
    """One example: its fields as text, and its class."""

    id: str
    """First 12 hex digits of the sha256 of its fields, and its row: "9f86d081884c-17"."""
    fields: Mapping[str, str]
    label: str
    group: str = ""
    unit: str = ""
    """The sampling unit that the data name, such as "passage 3f9a0c1b2d4e"; may be empty."""
    where: str = field(default="", compare=False)
    """The file and line of the example."""

    @property
    def content(self) -> str:
        """A digest of its fields; the name of its group is none of them."""
        return text_digest(*(text for name, text in self.fields.items() if name != GROUP))

    def text(self, names: Sequence[str]) -> str:
        """Return the named fields, joined by a space."""
        return " ".join(self.fields[name] for name in names)


@dataclass(frozen=True)
class LabelledData:
    """The examples of the pool and of the test split, with their fingerprints."""

    name: str
    pool: Sequence[Example]
    test: Sequence[Example]
    provenance: Mapping[str, str]
    """"sst2.train" -> "sha256:... (local: sst2.train.jsonl)"."""
    note: str = ""
    """How the splits were made, for data without files of their own for each."""

    @property
    def fingerprint(self) -> str:
        """The identity of the examples: "sha256:<hex>" of the fingerprints of both splits."""
        return f"sha256:{content_hash({key: value.partition(' ')[0] for key, value in self.provenance.items()})}"

    def __len__(self) -> int:
        return len(self.test)


def sampling_units(examples: Sequence[Example]) -> dict[str, str]:
    """Return the sampling unit of each example that was sampled with others."""
    contents: dict[str, list[str]] = {}
    named = {}
    for example in examples:
        contents[example.id] = [example.content]
        if example.unit:
            named[example.id] = example.unit
    return joined_units(contents, named)


def load_labelled(source: LabelledSource, *, data_dirs: Sequence[Path], offline: bool) -> LabelledData:
    """Read both splits.

    Raises DataError for a row without its fields or with an unknown class; for a repository also if the number of rows
    is wrong, or a golden row is missing or has another class. Offline, raises Missing if it was not downloaded before.
    """
    splits, provenance, published = [], {}, []
    note = ""
    for part in (source.pool, source.test):
        examples, origin = _load_split(source, part, data_dirs, offline)
        if not examples:
            raise DataError(f"{source.name} ({part.split}, {origin}) has no example; expected at least one.")
        if origin.startswith("hub:"):
            published.append(examples)
        splits.append(examples)
        provenance[f"{source.name}.{part.split}"] = f"{_fingerprint(source, examples)} ({origin})"
        if origin.endswith(HALF):
            note = f"{HALF}, are answered ({len(splits[-1]):,}), the others are the pool"
    _check_golden(source, published)
    pool, test = splits
    return LabelledData(source.name, pool, test, provenance, note)


def _fingerprint(source: LabelledSource, examples: Sequence[Example]) -> str:
    """Return the digest of all that results depend on: fields, classes, groups, and units where the source has them."""
    texts = []
    for example in examples:
        texts += [*example.fields.values(), example.label, example.group]
        if source.unit:
            texts.append(example.unit)
    return digest(texts)


def _check_golden(source: LabelledSource, published: Sequence[Sequence[Example]]) -> None:
    """Raise DataError for a golden row of another class, and for a missing one if both splits are the repository's."""
    missing = set(source.golden)
    problem = ""
    for example in chain.from_iterable(published):
        key = row_key(text.strip() for text in example.fields.values())
        missing.discard(key)
        known = source.golden.get(key, example.label)
        if known != example.label:
            problem = (
                f"says '{example.label}' of a row of {source.name} ({example.where}) that is known to be '{known}': "
                "the order of its labels has changed"
            )
    if missing and not problem and len(published) == 2:
        problem = (
            f"lacks {len(missing)} of the {len(source.golden)} rows of {source.name} whose class is known "
            f"({', '.join(missing)}): its texts have changed"
        )
    if problem:
        raise DataError(
            f"{source.repo} {problem}. Put the rows in DIR/{source.name}.SPLIT.jsonl and give --data-dir DIR."
        )


def _load_split(
    source: LabelledSource, part: LabelledSplit, data_dirs: Sequence[Path], offline: bool
) -> tuple[list[Example], str]:
    local = local_file(source.name, part.split, data_dirs, (source.label, source.label_name, "label_name"))
    if local is not None:
        return _examples(source, file_rows(local), {}), f"local: {local.name}"
    if source.path:
        return _of_path(source, part)
    file = f"{source.name}.{part.split}.jsonl"
    if source.name == GENERATED:
        from emobench.data.oracle.language import labelled_samples  # it imports tokenizers

        samples = labelled_samples(part.split)
        rows = ((f"{file}:{number}", {"text": text, "label": label}) for number, (text, label) in enumerate(samples, 1))
        return _examples(source, rows, {}), "generated, version 1"
    if not source.repo:
        raise DataError(
            f"{source.name} ({part.split}) has no source on the hub: put it in DIR/{file}, give --data-dir DIR."
        )
    with naming(f"data set {source.name}", source.repo, file, size=source.text_bytes):
        files, origin = hub_files(source.repo, source.revision, part.files, offline=offline)
        if part.sha256 and part.sha256 not in map(file_sha256, files):
            raise DataError(f"{origin}, {part.files} has another sha256 than {part.sha256}: it has changed.")
        examples = _examples(source, rows_of(files, origin), source.names)
        require_count(origin, len(examples), part.rows)
    return examples, origin


def _of_path(source: LabelledSource, part: LabelledSplit) -> tuple[list[Example], str]:
    """Return the examples of a split of local files, and their origin.

    A split without files is half of the rows of the pool. The digest of an example's texts decides its side, so that
    more rows move none, and that copies of a text are on one side.
    """
    data: Any = LocalData(expand_home(source.path), ())
    origin = f"local: {data.path.name}"
    if data.splits[source.test.split]:
        return _examples(source, data.rows(part.split), source.names), origin
    examples = []
    for example in _examples(source, data.rows(source.pool.split), source.names):
        answered = int(example.content, 16) % 2 == 0
        if answered == (part == source.test):
            examples.append(example)
    return examples, f"{origin}, {HALF}"


def local_labelled(data: LocalData) -> DatasetFields:
    """Return the `dataset:` of a task on local files: its classes, the path and the splits.

    Raises ConfigError for a column that cannot be labels, DataError for a row that lacks one.
    """
    if len(data.columns) != 2:
        raise ConfigError(f"{data.path}: expected {data.path}:TEXT:LABEL, the columns of the texts and of the labels.")
    rows = labelled_rows(data.rows("train"), data.columns)
    test: Split = "test"
    if data.splits["validation"] and not data.splits["test"]:
        test = "validation"
    return {
        "name": data.path.name.partition(".")[0].lower(),
        "path": str(data.path),
        **labelled_facts(rows, data.columns, data.splits["train"][0], str(data.path)),
        "pool": {"split": "train"},
        "test": {"split": test},
    }


def _examples(source: LabelledSource, rows: Rows, names: Mapping[str, str]) -> list[Example]:
    return [example_of(source, row, names, where, index) for index, (where, row) in enumerate(rows)]


def example_of(source: LabelledSource, row: Row, names: Mapping[str, str], where: str, index: int = 0) -> Example:
    """Return a row as an example; `names` has the meaning of its labels. Raises DataError that begins with `where`."""
    fields = {name: _text(row, name, where) for name in source.fields}
    if source.choices:
        choices = row.get(source.choices)
        count = len(source.classes)
        if not isinstance(choices, list) or list(map(type, choices)) != [str] * count:
            raise DataError(f"{where}: expected {count} texts in '{source.choices}', got {choices!r}.")
        fields |= zip(source.classes, choices, strict=True)
    group = ""
    unit = ""
    if source.group:
        group = _text(row, source.group, where)
        fields[GROUP] = group.replace("_", " ")
        unit = f"{source.group} {group}"
    if source.unit:
        unit = f"{source.unit} {row_key([_text(row, source.unit, where)])}"
    return Example(f"{row_key(fields.values())}-{index}", fields, _class(row, source, names, where), group, unit, where)


def row_key(texts: Iterable[str]) -> str:
    """Return the first 12 hex digits of the sha256 of texts, joined by the unit separator."""
    return hashlib.sha256("\x1f".join(texts).encode()).hexdigest()[:12]


def _text(row: Row, name: str, where: str) -> str:
    text = text_in(row, name, where)
    if not text.strip():
        raise DataError(f'{where}: "{name}" is blank; expected a text.')
    return text


def _class(row: Row, source: LabelledSource, names: Mapping[str, str], where: str) -> str:
    label = row.get(source.label)
    if source.choices and isinstance(label, int) and 0 <= label < len(source.classes):
        return source.classes[label]  # its index among the choices of the row
    column = "label_name"
    if source.label_name in row:
        column = source.label_name
    label_name = row.get(column)
    given = {value for value in (label, label_name) if isinstance(value, str) and value in source.classes}
    if len(given) > 1:
        raise DataError(f"{where}: '{source.label}' says '{label}' and '{column}' '{label_name}'; keep one.")
    if given:
        return given.pop()
    if str(label) in names:
        return names[str(label)]
    raise DataError(
        f"{where}: the class is {shown(label)} in '{source.label}' and {shown(label_name)} in '{column}'; expected one "
        f'of {", ".join(source.classes)}. What a number means differs between copies of a data set: add "label_name".'
    )
