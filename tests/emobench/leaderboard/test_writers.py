"""A board stays whole whoever writes: many processes at once, full disks, writers that are killed at any moment."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from emobench.leaderboard.entry import new_entry
from emobench.leaderboard.store import Leaderboard
from emobench.leaderboard.verify import verify


@pytest.fixture
def fields(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "suite": {"name": "lm-quick", "version": 1}}


def run(code: str, *arguments: str) -> subprocess.Popen[str]:
    program = textwrap.dedent(code)
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_processes_appending_at_once_lose_nothing(tmp_path: Path, fields: dict[str, Any]) -> None:
    """4 processes, 60 entries each: 40 of its own and 20 that all of them write; they read in between."""
    code = """
        import json, sys
        from emobench.leaderboard.entry import new_entry
        from emobench.leaderboard.store import Leaderboard
        root, fields, worker = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
        board = Leaderboard(root)
        for i in range(60):
            board.append(new_entry({**fields, "seeds": [i], "recipe": {"worker": worker} if i < 40 else {}}))
            if i % 20 == worker:
                board.rows()
                assert not board.problems, board.problems
    """
    processes = [run(code, str(tmp_path), json.dumps(fields), str(worker)) for worker in range(4)]
    for process in processes:
        _, said = process.communicate(timeout=400)
        assert process.returncode == 0, said
    board = Leaderboard(tmp_path)
    entries = board.entries()
    assert board.problems == []
    own = {(worker, i) for worker in range(4) for i in range(40)}
    assert {(e.recipe.get("worker"), e.seeds[0]) for e in entries} == own | {(None, i) for i in range(40, 60)}
    assert len(list((tmp_path / "lm-quick-v1").iterdir())) == len(entries) == 4 * 40 + 20
    assert {row.id for row in board.rows()} == {entry.id for entry in entries}
    assert verify(board, None) == (180, [])


WRITER = """
    import json, sys
    from emobench.leaderboard.entry import new_entry
    from emobench.leaderboard.store import Leaderboard
    root, fields, worker = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    board = Leaderboard(root)
    for i in range(10**6):
        print(board.append(new_entry({**fields, "seeds": [i], "recipe": {"worker": worker}})), flush=True)
        if i % 3 == 0:
            board.rows()
"""


def test_writers_killed_at_any_moment_leave_the_board_whole(tmp_path: Path, fields: dict[str, Any]) -> None:
    rng = random.Random(0)
    promised: set[str] = set()
    left: set[Path] = set()
    for worker in range(200):
        if worker >= 8 and left:
            break
        process = run(WRITER, str(tmp_path), json.dumps(fields), str(worker))
        first = process.stdout.readline()  # it has started
        time.sleep(rng.uniform(0, 0.05))
        process.kill()
        rest, said = process.communicate(timeout=60)
        assert process.returncode == -9, said
        promised |= {line for line in (first + rest).splitlines() if line.endswith(".json")}
        left |= {path for folder in (tmp_path, tmp_path / "lm-quick-v1") for path in folder.glob(".*.part")}

    board = Leaderboard(tmp_path)
    entries = board.entries()
    assert board.problems == []
    assert {row.id for row in board.rows()} == {entry.id for entry in entries}
    assert promised <= {str(board.path(entry)) for entry in entries}
    assert len(entries) >= len(promised) >= 8

    assert left, "no writer was killed while it wrote; the test shows nothing"
    files = {path for path in tmp_path.rglob("*") if path.is_file()}
    still = {path for path in files if path.suffix != ".json"}
    assert still <= left
    assert verify(board, None) == (len(entries), [])
    board.append(new_entry({**fields, "seeds": [10**7]}))
    assert not list((tmp_path / "lm-quick-v1").glob(".*.part"))
