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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

from emobench.core.errors import ConfigError, DataError, Missing, UnknownNameError
from emobench.core.settings import file_sha256
from emobench.data.hub_corpus import hub_corpus, load_hub_corpus
from emobench.data.local_files import load_local_texts, local_data, read_texts
from emobench.data.oracle.language import episode_texts, oracle_texts
from emobench.data.packing import RowNumbers
from emobench.data.rows import digest, file_rows, hub_files, local_file, naming, require_count, rows_of, text_in
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
    "url: ..." or "generated: ...", and after it the `note`: which part of the data the texts are, such as rows that are
    held out. `named` is the document of each row; if it is None, `documents` says how rows form documents
    (`emobench.data.sampling_units`).
    """

    corpus: str
    split: str
    texts: Sequence[str]
    fingerprint: str
    origin: str
    documents: Documents = "rows"
    named: Sequence[str] | None = None
    note: str = ""
    numbers: Sequence[RowNumbers] = ()
    """The numbers of each row's tokens, if the training reads columns of the data with them."""

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


def load_texts(
    corpus: str, split: str, *, data_dirs: Sequence[Path], offline: bool, fields: Mapping[str, str] | None = None
) -> Texts:
    """Return the rows of one split of a corpus.

    `DIR/<corpus>.<split>.jsonl` in a data folder is used before the source of the corpus. A name such as
    "./reviews.csv:text" is a column of local files (`emobench.data.local_files`), and "stanfordnlp/imdb:text" one of a
    data set of the hub. Rows of a file may name their "document". `fields` are fields of local files with numbers for
    tokens, by the names of their columns in a batch; they are part of the fingerprint.

    Raises UnknownNameError for an unknown corpus or split, ConfigError for a path without data, DataError for rows that
    cannot be read; offline, raises Missing for a split that was not downloaded before.
    """
    if split not in SPLITS:
        raise UnknownNameError("split", split, SPLITS)
    part = cast(Split, split)
    data = local_data(corpus)
    file = local_file(corpus, split, data_dirs)
    on_hub = hub_corpus(corpus)
    pairs = tuple((fields or {}).items())
    named: Sequence[str] = ()
    numbers: Sequence[RowNumbers] = ()
    note = ""
    if file is not None:
        texts, named, _, numbers = read_texts(file_rows(file), "text", pairs)
        origin = f"local: {file.name}"
    elif data is not None:
        texts, named, note, numbers = load_local_texts(data, part, pairs)
        corpus = data.name
        origin = f"local: {data.path.name}"
    elif fields:
        names = " and ".join(fields.values())
        raise ConfigError(f"{corpus} is no local file, and {names} would be read from one; give ./FILE:COLUMN.")
    elif on_hub is not None:
        texts, origin, note = load_hub_corpus(on_hub, part, offline=offline)
    else:
        texts, origin = _from_source(_source(corpus, split, data_dirs), part, offline)
    origin = ", ".join(filter(None, [origin, note]))
    if not any(map(str.strip, texts)):
        raise DataError(f"{corpus} ({split}, {origin}) has no text that is not blank.")
    # Rows of other corpora than the catalog's are documents, but for WikiText's.
    documents: Documents = "rows"
    if corpus in CORPORA:
        documents = CORPORA[corpus].documents
    elif "wikitext" in corpus.lower() and any(map(HEADING.fullmatch, texts)):
        documents = "headings"
    columns = [json.dumps({name: column.value for name, column in row.items()}) for row in numbers]
    fingerprint = digest([*texts, *named, *columns])
    return Texts(corpus, split, texts, fingerprint, origin, documents, named or None, note, numbers)


def _source(corpus: str, split: str, data_dirs: Sequence[Path]) -> CorpusSource:
    if corpus in CORPORA:
        return CORPORA[corpus]
    file = f"DIR/{corpus}.{split}.jsonl"
    local = {path.name.split(".")[0] for folder in data_dirs for path in folder.glob("*.*.jsonl")}
    if corpus in local:
        raise DataError(f"The corpus '{corpus}' has no {split} split in the data folders: expected a file {file}.")
    hint = f"A file is ./FILE:COLUMN, or {file} with --data-dir DIR; a data set of the hub is OWNER/NAME:COLUMN."
    raise UnknownNameError("corpus", corpus, CORPORA.keys() | local, hint=hint)


def _from_source(source: CorpusSource, split: Split, offline: bool) -> tuple[Sequence[str], str]:
    """Return the texts of a split, prepared and cut, and their origin."""
    origin = f"generated: {source.name}, version 1"
    if source.name == "oracle-episodes":
        return episode_texts(split), origin
    if source.kind == "generated":
        return oracle_texts("source" if source.name == "oracle-source" else "target", split), origin
    part = source.splits[split]
    prepare = PREPARATIONS[source.preparation]
    files = functools.cache(lambda other: _files(source, source.splits[other], offline))
    item = f"corpus {source.name} ({split})"
    local = f"{source.name}.{split}.jsonl"
    with naming(item, source.repo, local, size=part.download_bytes):
        texts = list(islice(prepare(split, lambda other: _fields(source, *files(other))), part.start, part.stop))
        origin = files(split)[1]
        require_count(origin, len(texts), part.rows)
    if source.preparation:
        origin += ", prepared as by Zhang et al. (2023)"
    return texts, origin


def _files(source: CorpusSource, part: SplitSource, offline: bool) -> tuple[list[Path], str]:
    """Return the files of a split, from the hub or a URL, and their origin."""
    if source.kind == "hub":
        return hub_files(source.repo, source.revision, part.files, offline=offline)
    return [_downloaded(part, offline)], f"url: {part.files}"


def _fields(source: CorpusSource, files: Iterable[Path], origin: str) -> Iterator[Fields]:
    """Yield the fields of each row. Lines of a text file are stripped as in PTB's script."""
    if origin.endswith(".txt"):
        for file in files:
            yield from ((line.strip(),) for line in file.read_text(encoding="utf-8").splitlines())
        return
    for where, row in rows_of(files, origin, source.fields):
        yield tuple(text_in(row, name, where) for name in source.fields)


def _downloaded(part: SplitSource, offline: bool) -> Path:
    """Return the file of a URL, from the cache of `datasets`; one with a wrong size or digest is removed from it."""
    from datasets import DownloadConfig, DownloadManager, config
    from datasets.utils.file_utils import hash_url_to_filename

    url = part.files
    if offline and not (Path(config.DOWNLOADED_DATASETS_PATH) / hash_url_to_filename(url)).is_file():
        raise Missing(url, url, None, f"Run once without --offline, which downloads {url}.")
    try:  # without etags, a cached file is used without a request
        file = Path(str(DownloadManager(download_config=DownloadConfig(use_etag=False)).download(url)))
    except OSError as error:
        raise DataError(f"{url} could not be downloaded ({type(error).__name__}): check the network.") from None
    size = file.stat().st_size
    if part.size not in (None, size) or (part.sha256 and file_sha256(file) != part.sha256):
        file.unlink()
        raise DataError(
            f"{url} has {size:,} bytes, and another size or sha256 than is known: the download broke off, or the "
            "source has changed. It was removed; run again to fetch it."
        )
    return file


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
    texts = _of_allowed_length(_story(*fields) for fields in rows(split))
    return texts if split == "train" else islice(texts, HELD_OUT)


def detokenized(text: str) -> str:
    """Return an English text detokenized by sacremoses.

    A line that is blank or a single tag does not change, as in Moses's script.
    """
    return text if not text.strip() or re.fullmatch("<.+>", text) else _moses()(text.split(" ")).strip()


def _joined(split: Split, rows: Rows) -> Iterator[str]:
    return map(" ".join, rows(split))


PREPARATIONS: dict[str, Callable[[Split, Rows], Iterator[str]]] = {
    "": _joined,
    "webtext": webtext,
    "writingprompts": writingprompts,
}


def _webtexts(rows: Iterable[Fields]) -> Iterator[str]:
    for text in _of_allowed_length(text.replace("\n", " ").strip() for (text,) in rows):
        # Their script writes the texts to a file and reads its lines: a carriage return also ends a line.
        yield from map(str.strip, re.split("\r\n?", text))


def _lacking(rows: Rows, split: Split) -> int:
    return max(HELD_OUT - sum(1 for _ in _webtexts(rows(split))), 0)


def _story(prompt: str, story: str) -> str:
    for mark, written in (("<newline>", " "), ("``", '"'), ("''", '"')):
        story = story.replace(mark, written)
    # Their source has one text per line; other copies may have line ends in place of <newline>.
    return detokenized(re.sub("[\r\n]+", " ", f"{prompt.strip()} {story.strip()}"))


def _of_allowed_length(texts: Iterable[str]) -> Iterator[str]:
    return (text for text in texts if ABOVE < len(text.split()) < BELOW)


@functools.cache
def _moses() -> Callable[[list[str]], Any]:
    from sacremoses import MosesDetokenizer

    return functools.partial(MosesDetokenizer(lang="en").detokenize, return_str=True)
