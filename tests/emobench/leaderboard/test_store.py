"""The board on disk stays whole: many writers, killed writers, full disks, strange files."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from emobench.config import to_plain
from emobench.errors import StorageError
from emobench.leaderboard.entry import Entry, new_entry
from emobench.leaderboard.store import Leaderboard

FIELDS: dict[str, Any] = {
    "kind": "measured",
    "supersedes": None,
    "suite": {"name": "lm-quick", "version": 1},
    "protocols": {"wikitext2": "quick@1"},
    "model": {"name": "tiny", "source": "tiny"},
    "objective": {"name": "emo", "version": "1", "params": {}},
    "recipe": {"name": "lm"},
    "seeds": [0],
    "metrics": {},
    "missing": {"wikitext2/mauve": "too few texts"},
    "runs": [],
    "cost": {},
    "source": {},
    "provenance": {"commit": None, "packages": {}, "hardware": None, "data": {}, "created": "2026-01-31T12:00:00"},
}


def make(**changes: Any) -> Entry:
    return new_entry({**FIELDS, **changes})


def test_an_appended_entry_is_read_back(tmp_path: Path) -> None:
    board, entry = Leaderboard(tmp_path / "board"), make()
    path = board.append(entry)
    assert path == tmp_path / "board" / "lm-quick-v1" / f"{entry.id}.json"
    assert json.loads(path.read_text()) == to_plain(entry)
    assert board.entries() == [entry]
    assert board.problems == []
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_the_same_content_again_is_not_written_again(tmp_path: Path) -> None:
    board, entry = Leaderboard(tmp_path), make()
    path = board.append(entry)
    path.write_text(json.dumps(to_plain(entry), sort_keys=True))  # same content, other spacing
    before = path.stat().st_mtime_ns, path.read_text()
    assert board.append(entry) == path
    assert (path.stat().st_mtime_ns, path.read_text()) == before


def test_other_content_under_the_same_id_is_refused(tmp_path: Path) -> None:
    board, entry = Leaderboard(tmp_path), make()
    path = board.append(entry)
    path.write_text(path.read_text().replace("too few texts", "too few words"))
    altered = path.read_text()
    with pytest.raises(StorageError, match="exists with other content"):
        board.append(entry)
    assert path.read_text() == altered


def test_superseded_entries_are_hidden_unless_asked_for(tmp_path: Path) -> None:
    board, old = Leaderboard(tmp_path), make()
    new = make(supersedes=old.id, seeds=[0, 1])
    other = make(suite={"name": "nlu", "version": 1})
    for entry in (old, new, other):
        board.append(entry)
    assert {e.id for e in board.entries()} == {new.id, other.id}
    assert {e.id for e in board.entries(superseded=True)} == {old.id, new.id, other.id}
    assert [e.id for e in board.entries(suite="lm-quick")] == [new.id]


def test_strange_files_are_named_and_skipped(tmp_path: Path) -> None:
    board, entry = Leaderboard(tmp_path), make()
    path = board.append(entry)
    folder, text = path.parent, path.read_text()
    strange = {
        "truncated.json": text[: len(text) // 2].encode(),
        "edited.json": text.replace('"lm"', '"ml"').encode(),
        "renamed.json": text.encode(),
        "foreign.json": b'{"hello": 1}',
        "list.json": b"[]",
        "deep.json": b"[" * 200_000,
        "nan.json": text.replace('"seeds"', '"cost": {"tokens": NaN}, "seeds"').encode(),
        "latin.json": b"\xff\xfe\x00",
        "notes.txt": b"hello",
        "empty.json": b"",
    }
    for name, content in strange.items():
        (folder / name).write_bytes(content)
    (folder / "folder.json").mkdir()
    (folder / ".hidden.json.part").write_text("{")
    (tmp_path / "README.md").write_text("A board.")
    assert board.entries() == [entry]
    assert len(board.problems) == len(strange) + 1
    for name in (*strange, "folder.json"):
        assert any(str(folder / name) in problem for problem in board.problems), name


def test_a_board_that_is_not_there_is_empty_and_one_that_is_a_file_is_a_problem(tmp_path: Path) -> None:
    assert Leaderboard(tmp_path / "none").entries() == []
    (tmp_path / "file").write_text("")
    board = Leaderboard(tmp_path / "file")
    assert board.entries() == []
    assert "cannot be listed" in board.problems[0]
    with pytest.raises(StorageError, match=r"could not be written.*--leaderboard DIR"):
        board.append(make())


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_disk_that_fails_leaves_nothing_and_says_so(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match=os.strerror(code)):
        Leaderboard(tmp_path).append(make())
    assert list((tmp_path / "lm-quick-v1").iterdir()) == []


def run(code: str, *arguments: str) -> subprocess.Popen[str]:
    program = textwrap.dedent(code)
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments], env=environment, stderr=subprocess.PIPE, text=True
    )


def test_a_full_disk_for_real(tmp_path: Path) -> None:
    """A limit on file size is what a process can give itself without a file system of its own."""
    code = """
        import json, resource, signal, sys
        from emobench.errors import StorageError
        from emobench.leaderboard.entry import new_entry
        from emobench.leaderboard.store import Leaderboard
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        try:
            Leaderboard(sys.argv[1]).append(new_entry(json.loads(sys.argv[2])))
        except StorageError as error:
            sys.exit(f"SAID {error}")
    """
    process = run(code, str(tmp_path), json.dumps(FIELDS))
    _, said = process.communicate(timeout=60)
    assert said.startswith("SAID The entry ")
    assert "File too large" in said
    assert list((tmp_path / "lm-quick-v1").iterdir()) == []


def test_a_writer_killed_before_the_rename_leaves_the_board_whole(tmp_path: Path) -> None:
    code = """
        import json, os, pathlib, signal, sys
        from emobench.leaderboard.entry import new_entry
        from emobench.leaderboard.store import Leaderboard
        pathlib.Path.replace = lambda self, target: os.kill(os.getpid(), signal.SIGKILL)
        Leaderboard(sys.argv[1]).append(new_entry(json.loads(sys.argv[2])))
    """
    process = run(code, str(tmp_path), json.dumps(FIELDS))
    process.communicate(timeout=60)
    assert process.returncode == -9
    left = list((tmp_path / "lm-quick-v1").iterdir())
    assert [p.suffix for p in left] == [".part"]

    board = Leaderboard(tmp_path)
    assert board.entries() == []
    assert board.problems == []
    board.append(make())
    assert board.entries() == [make()]


def test_processes_appending_at_once_lose_nothing(tmp_path: Path) -> None:
    """4 processes, 30 entries each: 15 of its own and 15 that all of them write."""
    code = """
        import json, sys
        from emobench.leaderboard.entry import new_entry
        from emobench.leaderboard.store import Leaderboard
        root, fields, worker = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
        board = Leaderboard(root)
        for i in range(15):
            board.append(new_entry({**fields, "seeds": [i], "recipe": {"worker": worker}}))
            board.append(new_entry({**fields, "seeds": [i]}))
            if i % 8 == 0:
                board.entries()
            assert not board.problems, board.problems
    """
    processes = [run(code, str(tmp_path), json.dumps(FIELDS), str(worker)) for worker in range(4)]
    for process in processes:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
    board = Leaderboard(tmp_path)
    seen = {(e.recipe.get("worker"), e.seeds[0]) for e in board.entries()}
    assert seen == {(worker, i) for worker in (None, 0, 1, 2, 3) for i in range(15)}
    assert len(list((tmp_path / "lm-quick-v1").iterdir())) == 75


def test_an_entry_whose_runs_are_all_among_those_of_another_stands_behind_it(tmp_path: Path) -> None:
    def of(*seeds: int) -> Entry:
        runs = [{"seed": seed, "key": f"{seed:016x}", "examples": None} for seed in seeds]
        return make(seeds=list(seeds), runs=runs, metrics={})

    board = Leaderboard(tmp_path)
    one, two, both, other = of(0), of(1), of(0, 1), of(1, 2)
    for entry in (one, two, both, other):
        board.append(entry)
    assert {entry.id for entry in board.entries()} == {both.id, other.id}
    assert {entry.id for entry in board.entries(superseded=True)} == {one.id, two.id, both.id, other.id}
