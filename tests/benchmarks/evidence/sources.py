"""Whether the models and data sets of the catalogs are where they are said to be.

    python tests/benchmarks evidence.sources

Of a model its configuration and tokenizer are fetched, and the headers of its weights are looked at, as a plan does it;
of data the sizes and the first rows. A host that gives no answer is asked once. Exit code 1 if a source fails.
"""

from __future__ import annotations

import functools
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import islice
from typing import IO, Any, NamedTuple, cast
from urllib.parse import urlsplit

from huggingface_hub import HfApi, constants

from emobench.core.errors import DataError, EmobenchError, ModelError
from emobench.data.labelled import LabelledSource, LabelledSplit, example_of
from emobench.data.rows import Row
from emobench.data.sources import CORPORA, CorpusSource, SplitSource
from emobench.models.catalog import CATALOG, Alias
from emobench.models.device import LoadOptions
from emobench.models.encoder import ALIASES, COMMITS
from emobench.models.hub import COMMIT, TIMEOUT, published_weights
from emobench.models.model import Model
from emobench.registry import find_task, task_names

FIRST = 3
"""Number of rows to read."""
RANGE = 1 << 16
"""Number of bytes to read from a URL: more than a first line has."""


class Begun(NamedTuple):
    """The first rows of a split, its number of rows if the files say it, and a description of the files."""

    rows: list[Row]
    total: int | None
    seen: str


def begin_hub(repo: str, revision: str, pattern: str, columns: Sequence[str] = ()) -> Begun:
    """Read the first rows of the files of a repository that match a pattern. Raises DataError."""
    from huggingface_hub import HfApi, HfFileSystem

    info = HfApi().dataset_info(repo, revision=revision, files_metadata=True, timeout=TIMEOUT)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
    names = sorted(name for name in sizes if fnmatch(name, pattern))
    if not names:
        present = ", ".join(sorted(sizes)[:8]) or "none"
        raise DataError(f"no file {pattern} at commit {info.sha}; the files are: {present}")
    files = HfFileSystem()
    parts = []
    for name in names:
        with files.open(f"datasets/{repo}@{info.sha}/{name}", "rb") as file:
            parts.append(_begin_file(cast(IO[bytes], file), name, columns))
    counts = [count for _, count in parts]
    total = None if None in counts else sum(count or 0 for count in counts)
    size = sum(sizes[name] for name in names)
    rows = "" if total is None else f"{total:,} rows, "
    return Begun(parts[0][0], total, f"{rows}{len(names)} file(s) of {size:,} bytes, commit {info.sha}")


def begin_url(url: str, size: int | None = None) -> Begun:
    """Read the first rows of JSON Lines or text lines at a URL. Raises DataError, also if the size is not `size`."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=TIMEOUT) as answer:
            length = int(answer.headers.get("Content-Length") or 0)
        request = urllib.request.Request(url, headers={"Range": f"bytes=0-{RANGE - 1}"})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            begin = answer.read(RANGE)
    except (OSError, ValueError) as error:
        raise DataError(f"{url}: {error}") from None
    if size is not None and length != size:
        raise DataError(f"{url} has {length:,} bytes, expected {size:,}")
    whole = begin.splitlines() if len(begin) < RANGE else begin.splitlines()[:-1]
    lines = [line for line in whole if line.strip()]
    rows = [{"text": line.decode("utf-8", "replace")} for line in lines[:FIRST]]
    if not url.endswith(".txt"):
        rows = [_row(line, url) for line in lines[:FIRST]]
    return Begun(rows, None, f"{length:,} bytes at {url}")


def _begin_file(file: IO[bytes], name: str, columns: Sequence[str]) -> tuple[list[Row], int | None]:
    if not name.endswith(".parquet"):
        return [_row(line, name) for line in islice(file, FIRST)], None
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(file)
        missing = [column for column in columns if column not in table.schema_arrow.names]
        if missing:
            raise DataError(
                f"{name} has no column {', '.join(missing)}; its columns are {', '.join(table.schema_arrow.names)}"
            )
        batch = next(table.iter_batches(FIRST, columns=list(columns) or None), None)
    except pa.ArrowInvalid as error:
        raise DataError(f"{name} is not a whole Parquet file ({error})") from None
    return ([] if batch is None else batch.to_pylist()), table.metadata.num_rows


def _row(line: bytes, where: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise DataError(f"{where}: its first lines are not JSON objects") from None


@dataclass(frozen=True)
class CatalogSource:
    """A model or a split of data, where it is, and what tries it: that returns what was seen, or raises."""

    what: str
    place: str
    urls: tuple[str, ...]
    """What has to answer for it, one of them at least."""
    check: Callable[[], str]


@dataclass(frozen=True)
class SourceState:
    """What trying a source came to."""

    what: str
    source: str
    works: bool
    note: str


def all_sources() -> list[CatalogSource]:
    """Return every model and every split of data that the catalogs and the installed tasks name."""
    return [*_models(), *_encoders(), *_corpora(), *_data_sets()]


def try_source(source: CatalogSource) -> SourceState:
    """Try one source."""
    try:
        hosts = ["{0.scheme}://{0.netloc}/".format(urlsplit(url)) for url in source.urls]
        silent = [why for host in hosts if (why := _silence_of(host)) is not None]
        if len(silent) == len(source.urls):
            return SourceState(source.what, source.place, False, silent[0])
        return SourceState(source.what, source.place, True, source.check())
    except EmobenchError as error:
        return SourceState(source.what, source.place, False, str(error))
    except Exception as error:  # the errors of the HTTP client have no public common class
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return SourceState(source.what, source.place, False, reason[:300])


@functools.cache
def _silence_of(host: str) -> str | None:
    """Return why a host gives no answer, None where it answers anything."""
    try:
        urllib.request.urlopen(urllib.request.Request(host, method="HEAD"), timeout=TIMEOUT / 2).close()
    except urllib.error.HTTPError:
        return None
    except (OSError, ValueError) as error:
        return f"{host} gives no answer ({getattr(error, 'reason', error)}): check the network or the proxy."
    return None


def _short(repo: str, revision: str) -> str:
    """Return a repository at a commit, of which 12 digits are enough to know it."""
    return f"{repo}@{revision[:12] if COMMIT.fullmatch(revision) else revision}"


def _models() -> Iterator[CatalogSource]:
    for alias in CATALOG.values():
        if alias.kind == "hub":
            yield CatalogSource(
                f"model {alias.name}",
                _short(alias.source, alias.revision or "main"),
                (constants.ENDPOINT,),
                functools.partial(_check_model, alias),
            )


def _check_model(alias: Alias) -> str:
    facts = Model(alias.name, LoadOptions(from_scratch=alias.weights == "bin")).facts
    if alias.parameters is not None and facts.parameters != alias.parameters:
        raise ModelError(f"it has {facts.parameters:,} parameters, expected {alias.parameters:,}: another model.")
    if alias.weights == "safetensors":
        return f"safetensors of {facts.parameters:,} parameters, whole"
    published = published_weights(alias.source, alias.revision or "main")
    if published.shapes is None and not any(name.startswith("pytorch_model") for name in published.others):
        raise ModelError(f"expected a pytorch_model.bin; its weights are: {', '.join(published.others) or 'none'}.")
    return "safetensors, which the catalog does not know of" if published.shapes else ".bin: emobench models convert"


def _encoders() -> Iterator[CatalogSource]:
    for name, repo in ALIASES.items():
        place, check = _short(repo, COMMITS[repo]), functools.partial(_check_encoder, repo)
        yield CatalogSource(f"sentence encoder {name}", place, (constants.ENDPOINT,), check)


def _check_encoder(repo: str) -> str:
    info = HfApi().model_info(repo, revision=COMMITS[repo], files_metadata=True, timeout=TIMEOUT)
    names = {file.rfilename for file in info.siblings or []}
    missing = [name for name in ("modules.json", "model.safetensors") if name not in names]
    if missing:
        raise ModelError(f"it lacks {', '.join(missing)} at commit {info.sha}.")
    return "modules.json and safetensors"


def _corpora() -> Iterator[CatalogSource]:
    for corpus in CORPORA.values():
        for split, part in corpus.splits.items():
            on_hub = corpus.kind == "hub"
            urls = (constants.ENDPOINT if on_hub else part.files,)
            yield CatalogSource(
                f"corpus {corpus.name} ({split})",
                f"{_short(corpus.repo, corpus.revision)}, {part.files}" if on_hub else part.files,
                urls,
                functools.partial(_check_corpus, corpus, part),
            )


def _check_corpus(corpus: CorpusSource, part: SplitSource) -> str:
    """Try the place of a split."""
    if corpus.kind == "url":
        return _checked_fields(begin_url(part.files, part.size), ("text",))
    begun = begin_hub(corpus.repo, corpus.revision, part.files, corpus.fields)
    _check_count(begun, None if corpus.preparation or part.stop else part.rows)
    return _checked_fields(begun, corpus.fields)


def _data_sets() -> Iterator[CatalogSource]:
    sources = (find_task(name).dataset for name in task_names())
    for source in {source.name: source for source in sources if source is not None and source.repo}.values():
        for part in (source.pool, source.test):
            yield CatalogSource(
                f"data set {source.name} ({part.split})",
                f"{_short(source.repo, source.revision)}, {part.files}",
                (constants.ENDPOINT,),
                functools.partial(_check_labelled, source, part),
            )


def _check_labelled(source: LabelledSource, part: LabelledSplit) -> str:
    begun = begin_hub(source.repo, source.revision, part.files)
    _check_count(begun, part.rows)
    if not begun.rows:
        raise DataError("it holds no row.")
    labels = [example_of(source, row, source.names, f"row {index}").label for index, row in enumerate(begun.rows, 1)]
    return f"{begun.seen}; first labels {', '.join(labels)}"


def _check_count(begun: Begun, expected: int | None) -> None:
    if expected is not None and begun.total is not None and begun.total != expected:
        raise DataError(f"it has {begun.total:,} rows, expected {expected:,}: the source has changed.")


def _checked_fields(begun: Begun, fields: tuple[str, ...]) -> str:
    if not begun.rows:
        raise DataError("it holds no row.")
    for name in fields:
        if not isinstance(begun.rows[0].get(name), str):
            there = ", ".join(map(str, begun.rows[0]))
            raise DataError(f"its first row has no text in '{name}'; the fields are: {there}.")
    return begun.seen


def main() -> None:
    states = []
    for source in all_sources():
        state = try_source(source)
        print("works" if state.works else "fails", state.what, state.source, state.note, sep="\t", flush=True)
        states.append(state)
    works = sum(state.works for state in states)
    print(f"{works} of {len(states)} sources work.")
    sys.exit(works < len(states))


if __name__ == "__main__":
    main()
