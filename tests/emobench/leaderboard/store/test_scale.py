"""The benchmark of large boards runs, here on a small one, and its board is whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from emobench.leaderboard.store.board import Leaderboard
from emobench.leaderboard.store.verify import verify

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from speed.boards import fill_board  # noqa: E402


def test_a_made_board_is_whole_varied_and_the_same_each_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        fill_board(tmp_path / name, 300, seed=4)
    files = [{p.relative_to(r): p.read_text() for p in r.rglob("*.json")} for r in (tmp_path / "a", tmp_path / "b")]
    assert files[0] == files[1]
    board = Leaderboard(tmp_path / "a")
    assert verify(board, None) == (300, [])
    entries = board.entries()
    assert {len(entry.seeds) for entry in entries} == {0, 1, 3, 5}
    assert len({entry.suite.name for entry in entries}) == 4
    assert len({entry.model.name for entry in entries}) == 8
    assert len(entries) == 300 - 300 // 20
    assert sum(entry.untrained for entry in entries) == 300 // 20


def test_the_benchmark_of_boards_runs(tmp_path: Path) -> None:
    out = tmp_path / "board.json"
    program = [sys.executable, str(BENCHMARKS), "speed.board", "--entries", "130", "--rounds", "1", "--out", str(out)]
    done = subprocess.run(program, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found["entries"] == 130
    assert found["command"].startswith("python tests/benchmarks speed.board --entries 130")
    rows = {row["name"]: row for row in found["measured"]}
    assert set(rows) == {"rows", "entries", "show", "site", "verify"}
    for row in rows.values():
        for state in ("cold", "warm"):
            assert 0 < row[state].get("store_seconds", 0.001) < row[state]["seconds"]
    assert rows["site"]["warm"]["bytes"] > 10_000
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(rows)
