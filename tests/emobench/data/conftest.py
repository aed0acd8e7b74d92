"""Data sets in a cache of the hub."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def write(path: Path, rows: Any) -> None:
    """Write a text, a table, or a list of texts or of rows, by the end of the file's name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(rows, list):
        rows = [{"text": row, "label": i} if isinstance(row, str) else row for i, row in enumerate(rows)]
    if isinstance(rows, str):
        path.write_text(rows)
    elif path.suffix == ".parquet":
        pq.write_table(rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        path.write_text("\n".join(map(",".join, [rows[0], *(row.values() for row in rows)])))
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.fixture
def publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write the files of a data set into the cache as a download leaves them, and return their folder."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))

    def into_cache(repo: str, files: Mapping[str, Any], branch: str = "main", commit: str = COMMIT) -> Path:
        folder = tmp_path / "hub" / f"datasets--{repo.replace('/', '--')}"
        (folder / "refs" / branch).parent.mkdir(parents=True, exist_ok=True)
        (folder / "refs" / branch).write_text(commit)
        for name, rows in files.items():
            write(folder / "snapshots" / commit / name, rows)
        return folder / "snapshots" / commit

    return into_cache
