"""Load the texts of a corpus from a local JSONL file or from its source, with a fingerprint.

Rows do not change: WikiText's headings and empty lines are kept. Blocks are cut from each 1,000 *rows*
(`emobench.data.packing`), so removing rows would give other blocks than the official code.
Code that needs one text per row (`pack_rows`, prompts) skips blank rows.

WebText and WritingPrompts are prepared as Zhang et al. (MixCE, ACL 2023) did, after their paper and scripts: the EMO
paper uses both in "the official split provided by Zhang et al." (A.4). This follows their `data/webtext_data.py` and
`data/writingprompts_data.py` (bloomberg/MixCE-acl2023). The result is then cut to the sizes of Table 4
(`emobench.data.sources`).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

from emobench.core.errors import ConfigError, DataError, Missing, UnknownNameError
from emobench.core.settings import file_sha256
from emobench.data.hub_corpus import hub_corpus, load_hub_corpus
from emobench.data.oracle.labels import episode_texts
from emobench.data.oracle.language import oracle_texts
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
from emobench.data.sampling_units import HEADING, Documents, units_of_rows
from emobench.data.sources import CORPORA, SPLITS, CorpusSource, Split, SplitSource

ABOVE, BELOW = 50, 1000
"""Keep texts with more than ABOVE and fewer than BELOW words, split at white space."""
HELD_OUT = 5_000
"""Number of texts of WebText's validation and test split, and the largest number for WritingPrompts."""

Fields = tuple[str, ...]
Rows = Callable[[Split], Iterable[Fields]]
"""A split -> the fields of each row of the source."""


@dataclass(frozen=True)
class Texts:
    """The rows of one split of a corpus, including blank ones.

    `fingerprint` is "sha256:<hex>" of the texts. `origin` is "local: wikitext2.train.jsonl", "hub: repo@commit",
    "url: ..." or "generated: ...". `named` is the document of each row; if it is None, `documents` says how rows form
    documents (`emobench.data.sampling_units`).
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
        """The sampling unit of each row (`emobench.data.sampling_units`)."""
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
    Raises UnknownNameError for an unknown corpus or split, DataError for rows that cannot be read; offline, raises
    Missing for a split that was not downloaded before.
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
    local: set[str] = set()
    for folder in data_dirs:
        local |= {path.name.split(".")[0] for path in folder.glob("*.*.jsonl")}
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
    advice = f'Or put it, one {{"text": ...}} a line, in DIR/{source.name}.{split}.jsonl and give --data-dir DIR.'
    try:
        texts, origin = _prepared(source, split, offline)
    except Missing as missing:
        item = f"corpus {source.name} ({split})"
        raise missing.named(item, source=source.repo, size=part.download_bytes, advice=advice) from None
    except DataError as error:
        raise DataError(
            f"The corpus '{source.name}' ({split}) could not be read from {source.repo}. {error} {advice}"
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
    missing: Missing | None = None
    reasons = []
    for place in (part.files, *part.mirrors):
        try:
            if source.kind == "hub" and place == part.files:
                return _from_hub(source, part, offline)
            return _from_url(part, place, offline)
        except Missing as error:
            missing = missing or error
        except DataError as error:
            reasons.append(str(error))
    if missing is not None:
        raise missing.named(missing.item, advice=" ".join(reasons))
    raise DataError(" ".join(reasons))


def _from_hub(source: CorpusSource, part: SplitSource, offline: bool) -> tuple[Iterable[tuple[str, ...]], str]:
    files, origin = hub_files(source.repo, source.revision, part.files, offline=offline)
    rows: list[tuple[str, ...]] = []
    for file in files:
        table = parquet_table(file, f"{origin}, {file.name}")
        columns = [table.column(name).to_pylist() for name in source.fields if name in table.column_names]
        texts = all(isinstance(text, str) for column in columns for text in column)
        if len(columns) < len(source.fields) or not texts:
            raise DataError(f"{origin}: {part.files} has no text in every row's {', '.join(source.fields)}.")
        rows.extend(zip(*columns, strict=True))
    return rows, origin


def _from_url(part: SplitSource, url: str, offline: bool) -> tuple[Iterable[tuple[str, ...]], str]:
    """Return the rows of JSON Lines, or of text lines, which are stripped as in PTB's script."""
    from datasets import DownloadConfig, DownloadManager

    if offline and not cached_url(url).is_file():
        raise Missing(url, url, None, f"Run once without --offline, which downloads {url}.")
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


def webtext(split: Split, rows: Rows) -> Iterator[str]:
    """Yield the texts of a split of WebText: each on one line, with an allowed length.

    The first training texts fill the test split up to 5,000 texts, the next ones fill the validation split. The others
    are the training split.
    """
    if split == "train":
        taken = _lacking(rows, "test") + _lacking(rows, "validation")
        yield from islice(_webtexts(rows("train")), taken, None)
        return
    own = list(_webtexts(rows(split)))
    before = _lacking(rows, "test") if split == "validation" else 0
    yield from own
    yield from islice(_webtexts(rows("train")), before, before + max(HELD_OUT - len(own), 0))


def writingprompts(split: Split, rows: Rows) -> Iterator[str]:
    """Yield the texts of a split of WritingPrompts: prompt and story on one line, detokenized, with an allowed length.

    The validation and test splits have at most 5,000 texts and are not filled up.
    """
    texts = _of_allowed_length(detokenized(_story(*fields)) for fields in rows(split))
    yield from texts if split == "train" else islice(texts, HELD_OUT)


def detokenized(text: str) -> str:
    """Return an English text detokenized by sacremoses.

    A line that is blank or a single tag does not change, as in Moses's script.
    """
    return text if not text.strip() or re.fullmatch("<.+>", text) else _moses()(text.split(" ")).strip()


PREPARATIONS: dict[str, Callable[[Split, Rows], Iterator[str]]] = {"webtext": webtext, "writingprompts": writingprompts}


def _webtexts(rows: Iterable[Fields]) -> Iterator[str]:
    for text in _of_allowed_length(text.replace("\n", " ").strip() for (text,) in rows):
        # Their script writes the texts to a file and reads its lines: a carriage return also ends a line.
        yield from (part.strip() for part in re.split("\r\n?", text))


def _lacking(rows: Rows, split: Split) -> int:
    return max(HELD_OUT - sum(1 for _ in _webtexts(rows(split))), 0)


def _story(prompt: str, story: str) -> str:
    for mark, written in (("<newline>", " "), ("``", '"'), ("''", '"')):
        story = story.replace(mark, written)
    # Their source has one text per line; other copies may have line ends in place of <newline>.
    return re.sub("[\r\n]+", " ", f"{prompt.strip()} {story.strip()}")


def _of_allowed_length(texts: Iterable[str]) -> Iterator[str]:
    return (text for text in texts if ABOVE < len(text.split()) < BELOW)


@functools.cache
def _moses() -> Callable[[list[str]], Any]:
    from sacremoses import MosesDetokenizer

    return functools.partial(MosesDetokenizer(lang="en").detokenize, return_str=True)
