"""Read the first rows of a remote file, by its headers and a range of its bytes."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from fnmatch import fnmatch
from itertools import islice
from typing import IO, Any, NamedTuple, cast

from emobench.core.errors import DataError
from emobench.data.rows import Row
from emobench.models.hub import TIMEOUT

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
