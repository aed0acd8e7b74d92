"""The benchmark of large boards runs, here on a small one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_the_benchmark_of_boards_runs(tmp_path: Path) -> None:
    out = tmp_path / "board.json"
    program = [sys.executable, str(BENCHMARKS), "speed.board", "--entries", "12", "--rounds", "1", "--out", str(out)]
    done = subprocess.run(program, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found["entries"] == 12
    assert found["command"].startswith("python tests/benchmarks speed.board --entries 12")
    rows = {row["name"]: row for row in found["measured"]}
    assert set(rows) == {"rows", "entries", "show", "site", "verify"}
    for row in rows.values():
        assert 0 < row.get("store_seconds", 0.001) < row["seconds"]
    assert rows["site"]["bytes"] > 10_000
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(rows)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no browser: apt-get install chromium")
def test_the_benchmark_of_pages_runs(tmp_path: Path) -> None:
    out = tmp_path / "page.json"
    program = [sys.executable, str(BENCHMARKS), "speed.page", "--entries", "20", "--rounds", "1", "--out", str(out)]
    done = subprocess.run(program, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found["entries"] == 20
    assert 0 < found["median"]["first_paint_ms"] < found["median"]["table_ms"]
    assert len(found["load_average"]) == 2
    assert "the limit of 500 ms until the first paint" in done.stdout


def test_the_first_paint_of_ten_thousand_entries_was_measured_within_its_limit() -> None:
    found = json.loads((BENCHMARKS / "results" / "speed" / "page.json").read_text())
    assert found["entries"] == 10_000
    assert found["median"]["first_paint_ms"] < 500
