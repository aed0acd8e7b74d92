"""Load the texts of a corpus from a local JSONL file or from its source, with a fingerprint.

Rows do not change: WikiText's headings and empty lines are kept. Blocks are cut from each 1,000 *rows*
(`emobench.data.packing`), so removing rows would give other blocks than the official code.
Code that needs one text per row (`pack_rows`, prompts) skips blank rows.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import cast

from emobench.core.errors import ConfigError, DataError, UnknownNameError
from emobench.core.settings import file_sha256
from emobench.data.documents import HEADING, units_of_rows
from emobench.data.hub_corpus import hub_corpus, load_hub_corpus
from emobench.data.oracle.labels import episode_texts
from emobench.data.oracle.language import oracle_texts
from emobench.data.preparation import PREPARATIONS
from emobench.data.rows import (
    Row,
    check_row_count,
    digest,
    hub_files,
    jsonl_rows,
    local_file,
    parquet_table,
    refuse_other_suffixes,
    shown,
)
from emobench.data.sources import CORPORA, SPLITS, CorpusSource, Documents, Split, SplitSource


@dataclass(frozen=True)
class Texts:
    """The rows of one split of a corpus, including blank ones.

    `fingerprint` is "sha256:<hex>" of the texts. `origin` is "local: wikitext2.train.jsonl", "hub: repo@commit",
    "url: ..." or "generated: ...". `named` is the document of each row; if it is None, `documents` says how rows form
    documents (`emobench.data.documents`).
    """

    corpus: str
    split: str
    texts: Sequence[str]
    fingerprint: str
    origin: str
    documents: Documents = "rows"
    named: Sequence[str] | None = None

    @functools.cached_property
    def units(self) -> Sequence[str]:
        """The sampling unit of each row (`emobench.data.documents`)."""
        return units_of_rows(self.texts, self.documents, self.named)

    def as_stream(self) -> Texts:
        """Return the same rows as one stream, whose documents are not known. Raises ConfigError if rows name theirs."""
        if self.named is not None:
            raise ConfigError(
                f"{self.corpus}.{self.split} ({self.origin}): `documents` is stream, but the rows of the file name "
                'their "document"; drop one of the two.'
            )
        return replace(self, documents="stream")

    @property
    def provenance(self) -> dict[str, str]:
        """The record for entries: "wikitext2.test" -> "sha256:... (local: wikitext2.test.jsonl)"."""
        return {f"{self.corpus}.{self.split}": f"{self.fingerprint} ({self.origin})"}

    def __len__(self) -> int:
        return len(self.texts)


def load_texts(corpus: str, split: str, *, data_dirs: Sequence[Path], offline: bool, limit: int | None = None) -> Texts:
    """Return the first `limit` rows (None: all) of one split of a corpus.

    `DIR/<corpus>.<split>.jsonl` in a data folder is used before the source of the corpus. A name
    such as "stanfordnlp/imdb:text" is a column of a data set of the hub. Rows of a file may name their "document".
    Raises UnknownNameError for an unknown corpus or split, DataError for rows that cannot be read.
    """
    if split not in SPLITS:
        raise UnknownNameError("split", split, SPLITS)
    if limit is not None and limit < 1:
        raise DataError(f"The limit of texts is {limit}; expected at least 1, or none.")
    local = local_file(corpus, split, data_dirs)
    if local is None:
        refuse_other_suffixes(corpus, split, data_dirs)
    named: list[str] | None = None
    if local is not None:
        (texts, named), origin = _named_texts(local, limit), f"local: {local.name}"
        where = str(local)
    elif (on_hub := hub_corpus(corpus)) is not None:
        texts, origin = load_hub_corpus(on_hub, cast(Split, split), offline=offline)
        texts, where = texts[:limit], f"The corpus '{corpus}' ({split}, {origin})"
    else:
        source = _source(corpus, split, data_dirs)
        texts, origin = _from_source(source, cast(Split, split), offline=offline, limit=limit)
        where = f"The corpus '{corpus}' ({split}, {origin})"
    if not any(text.strip() for text in texts):
        raise DataError(f"{where} holds no text: expected at least one row with a text that is not blank.")
    read = fingerprint([*texts, *(named or ())], where)
    return Texts(corpus, split, texts, read, origin, _documents(corpus, texts), named)


def _documents(corpus: str, texts: Sequence[str]) -> Documents:
    """Return how rows form documents. Rows of other corpora than the catalog's are documents, but for WikiText's."""
    if corpus in CORPORA:
        return CORPORA[corpus].documents
    headings = "wikitext" in corpus.lower() and any(HEADING.fullmatch(text) for text in texts)
    return "headings" if headings else "rows"


def fingerprint(texts: Sequence[str], where: str = "The corpus") -> str:
    """Return "sha256:<hex>" of the texts (see `emobench.data.rows.digest`). Raises DataError for a surrogate."""
    try:
        return digest(texts)
    except UnicodeEncodeError as error:
        row = texts.index(error.object) + 1
        raise DataError(f"{where}, row {row}: half of a surrogate pair, which is not Unicode text.") from None


def _source(corpus: str, split: str, data_dirs: Sequence[Path]) -> CorpusSource:
    if corpus in CORPORA:
        return CORPORA[corpus]
    file = f"DIR/{corpus}.{split}.jsonl"
    local = {path.name.split(".")[0] for folder in data_dirs for path in folder.glob("*.*.jsonl")}
    if corpus in local:
        raise DataError(f"The corpus '{corpus}' has no {split} split in the data folders: expected a file {file}.")
    hint = f"A file {file}, given by --data-dir DIR, would be it; a data set of the hub is OWNER/NAME:COLUMN."
    raise UnknownNameError("corpus", corpus, CORPORA.keys() | local, hint=hint)


def _named_texts(file: Path, limit: int | None) -> tuple[list[str], list[str] | None]:
    """Return the texts of a file and the document of each row, or None if the rows name no documents."""
    rows = list(islice(jsonl_rows(file), limit))
    texts = [_text(row, where) for where, row in rows]
    if not any("document" in row for _, row in rows):
        return texts, None
    return texts, [_document(row, where) for where, row in rows]


def _document(row: Row, where: str) -> str:
    name = row.get("document")
    if not isinstance(name, (str, int)) or name == "":
        raise DataError(
            f'{where}: "document" must be a name or a number, and in all rows or in none; got '
            f"{shown(json.dumps(name).encode())}."
        )
    return f"document {name}"


def _text(row: Row, where: str) -> str:
    if "text" not in row:
        fields = ", ".join(map(repr, row)) or "none"
        raise DataError(f'{where}: expected a field "text"; the fields are: {fields}.')
    if not isinstance(row["text"], str):
        raise DataError(f'{where}: "text" must be a string, got {shown(json.dumps(row["text"]).encode())}.')
    return row["text"]


def _from_source(source: CorpusSource, split: Split, *, offline: bool, limit: int | None) -> tuple[Sequence[str], str]:
    if source.kind == "generated":
        return _generated(source.name, split)[:limit], f"generated: {source.name}, version 1"
    part = source.splits[split]
    file = f"DIR/{source.name}.{split}.jsonl"
    try:
        texts, origin = _prepared(source, split, offline)
    except DataError as error:
        raise DataError(
            f"The corpus '{source.name}' ({split}) could not be read from {source.repo}. {error} "
            f'Or put it, one {{"text": ...}} a line, in {file} and give --data-dir DIR.'
        ) from None
    check_row_count(source.name, split, origin, len(texts), part.rows)
    return texts[:limit], origin


def _generated(name: str, split: Split) -> tuple[str, ...]:
    if name == "oracle-episodes":
        return episode_texts(split)
    return oracle_texts("source" if name == "oracle-source" else "target", split)


def _prepared(source: CorpusSource, split: Split, offline: bool) -> tuple[list[str], str]:
    """Return the prepared texts [start:stop] of a source, and their origin."""
    origins: dict[Split, str] = {}

    def rows(other: Split) -> Iterable[tuple[str, ...]]:
        part = source.splits[other]
        fields, origins[other] = _split_rows(source, part, offline)
        return fields

    if source.preparation:
        texts = PREPARATIONS[source.preparation](split, rows)
    else:
        texts = (source.joiner.join(fields) for fields in rows(split))
    selected = list(islice(texts, source.splits[split].start, source.splits[split].stop))
    prepared = ", prepared as by Zhang et al. (2023)" if source.preparation else ""
    return selected, f"{origins[split]}{prepared}"


def _split_rows(source: CorpusSource, part: SplitSource, offline: bool) -> tuple[Iterable[tuple[str, ...]], str]:
    """Return the fields of a split's rows, and their origin. If the first source fails, try the mirrors."""
    reasons = []
    for place in (part.files, *part.mirrors):
        hub = source.kind == "hub" and place == part.files
        try:
            return _from_hub(source, part, offline) if hub else _from_url(part, place, offline)
        except DataError as error:
            reasons.append(str(error))
    raise DataError(" ".join(reasons))


def _from_hub(source: CorpusSource, part: SplitSource, offline: bool) -> tuple[Iterable[tuple[str, ...]], str]:
    files, origin = hub_files(source.repo, source.revision, part.files, offline=offline)
    tables = [parquet_table(file, f"{origin}, {file.name}") for file in files]
    named = all(set(source.fields) <= set(table.column_names) for table in tables)
    columns = [[text for table in tables if named for text in table.column(name).to_pylist()] for name in source.fields]
    if not named or not all(isinstance(text, str) for column in columns for text in column):
        raise DataError(f"{origin}: {part.files} has no text in every row's {', '.join(source.fields)}.")
    return zip(*columns, strict=True), origin


def _from_url(part: SplitSource, url: str, offline: bool) -> tuple[Iterable[tuple[str, ...]], str]:
    """Return the rows of JSON Lines, or of text lines, which are stripped as in PTB's script."""
    from datasets import DownloadConfig, DownloadManager

    if offline and not cached_url(url).is_file():
        raise DataError(f"{url} was not downloaded before: run once without --offline.")
    try:  # without etags, a cached file is used without a request
        file = Path(str(DownloadManager(download_config=DownloadConfig(use_etag=False)).download(url)))
    except OSError as error:
        raise DataError(f"{url} could not be downloaded ({type(error).__name__}): check the network.") from None
    _check_file(part, url, file)
    if url.endswith(".txt"):
        return ((line.strip(),) for line in file.read_text(encoding="utf-8").splitlines()), f"url: {url}"
    return ((_text(row, where),) for where, row in jsonl_rows(file)), f"url: {url}"


def cached_url(url: str) -> Path:
    """Return the path of a downloaded URL in the cache."""
    from datasets import config
    from datasets.utils.file_utils import hash_url_to_filename

    return Path(config.DOWNLOADED_DATASETS_PATH) / hash_url_to_filename(url)


def _check_file(part: SplitSource, url: str, file: Path) -> None:
    """Raise DataError for a downloaded file with a wrong size or digest, and remove it from the cache."""
    size = file.stat().st_size
    if part.size is not None and size != part.size:
        problem = f"has {size:,} bytes, expected {part.size:,}"
    elif part.sha256 and (digest := file_sha256(file)) != part.sha256:
        problem = f"has the sha256 {digest}, expected {part.sha256}"
    else:
        return
    file.unlink()
    raise DataError(
        f"{url} {problem}: the download broke off, or the source has changed. It was removed; run again to fetch it."
    )
