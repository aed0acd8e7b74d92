"""The index of a board saves time and is never believed: rows are those of the entries, whatever the index says."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from emobench.errors import ConfigError, StorageError
from emobench.leaderboard import index as indexing
from emobench.leaderboard.comparison import comparison_key
from emobench.leaderboard.index import INDEX, WORTH, Row, row_of
from emobench.leaderboard.store import Leaderboard

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from boards import fill_board

COUNT = WORTH + 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A board of entries that were written long enough ago to be remembered."""
    root = tmp_path / "board"
    fill_board(root, COUNT)
    settle(root)
    return root


def settle(root: Path) -> None:
    for path in root.glob("*/*"):
        age(path, 60)


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def reads(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the files that are opened from now on, as the board reads them."""
    opened: list[Path] = []
    read = Path.read_bytes

    def counted(path: Path) -> bytes:
        if path.name != INDEX:
            opened.append(path)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", counted)
    return opened


def row_by_hand(path: Path) -> Row:
    """Return the row of a file, from its JSON."""
    plain = json.loads(path.read_text())
    params = ", ".join(f"{key}={value}" for key, value in plain["objective"]["params"].items())
    name = plain["objective"]["name"]
    (entry,) = (e for e in Leaderboard(path.parents[1]).entries(superseded=True) if e.id == plain["id"])
    return Row(
        id=plain["id"],
        path=path,
        kind=plain["kind"],
        suite=plain["suite"]["name"],
        suite_version=plain["suite"]["version"],
        model=plain["model"]["name"],
        objective=name,
        label=f"{name}({params})" if params else name,
        created=plain["provenance"]["created"],
        comparison_key=comparison_key(entry),
        metrics=tuple(plain["metrics"]),
        supersedes=plain["supersedes"],
        runs=tuple(run["key"] for run in plain["runs"]),
    )


def test_rows_are_the_entries_with_and_without_an_index(root: Path) -> None:
    board = Leaderboard(root)
    cold = board.rows()
    assert (root / INDEX).is_file()
    assert board.rows() == cold
    entries = board.entries()
    assert [row.id for row in cold] == [entry.id for entry in entries]
    assert cold == [row_of(entry, board.path(entry)) for entry in entries]
    assert [board.read(row) for row in cold] == entries
    assert cold[:3] == [row_by_hand(row.path) for row in cold[:3]]
    assert [row.created for row in cold] == sorted(row.created for row in cold)
    assert {row.untrained for row in cold} == {row.objective == "pretrained" for row in cold} == {True, False}


def test_superseded_rows_are_hidden_unless_asked_for(root: Path) -> None:
    board = Leaderboard(root)
    plain = [json.loads(path.read_text()) for path in root.glob("*/*.json")]
    superseded = {entry["supersedes"] for entry in plain} - {None}
    assert len(plain) == COUNT
    assert len(superseded) == COUNT // 20
    for _ in range(2):  # cold, then from the index
        assert {row.id for row in board.rows()} == {entry["id"] for entry in plain} - superseded
        assert {row.id for row in board.rows(superseded=True)} == {entry["id"] for entry in plain}


def test_only_files_that_changed_are_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = Leaderboard(root)
    rows = board.rows(superseded=True)
    opened = reads(root, monkeypatch)
    assert board.rows(superseded=True) == rows
    assert opened == []

    fill_board(root, COUNT + 1)  # rewrites all with the same content, and adds one
    settle(root)
    assert len(board.rows(superseded=True)) == COUNT + 1
    assert len(opened) == COUNT + 1
    opened.clear()

    changed, gone = rows[3].path, rows[5].path
    age(changed, 30)
    gone.unlink()
    assert {row.path for row in board.rows(superseded=True)} == {*root.glob("*/*.json")}
    assert opened == [changed]
    assert board.problems == []


def test_a_file_that_just_changed_is_not_remembered(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within one tick of the clock a file could change twice, and keep its time and size."""
    fresh = next(root.glob("*/*.json"))
    age(fresh, 0)
    board = Leaderboard(root)
    board.rows()
    opened = reads(root, monkeypatch)
    board.rows()
    assert opened == [fresh]


def test_few_files_are_not_worth_an_index(tmp_path: Path) -> None:
    fill_board(tmp_path, 30)
    settle(tmp_path)
    assert Leaderboard(tmp_path).rows()
    assert not (tmp_path / INDEX).exists()


def spoil(root: Path) -> dict[str, bytes]:
    """Put strange files into a board, and return their contents."""
    path = next(root.glob("*/*.json"))
    text = path.read_text()
    strange = {
        "truncated.json": text[: len(text) // 2].encode(),
        "edited.json": text.replace('"measured"', '"imported"').encode(),
        "copy.json": text.encode(),
        "foreign.json": b'{"hello": 1}',
        "newer.json": text.replace('"schema": 2', '"schema": 9').encode(),
        "latin.json": b"\xff\xfe\x00",
    }
    for name, content in strange.items():
        (path.parent / name).write_bytes(content)
    (path.parent / "folder.json").mkdir()
    (path.parent / "link.json").symlink_to(root / "nowhere")
    settle_files = [path.parent / name for name in strange]
    for file in settle_files:
        age(file, 60)
    return {str(path.parent / name): b"" for name in (*strange, "folder.json", "link.json")}


def test_problems_are_named_each_time_also_from_the_index(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strange = spoil(root)
    board = Leaderboard(root)
    ids = [entry.id for entry in board.entries()]
    (root / INDEX).unlink(missing_ok=True)
    said = []
    opened = reads(root, monkeypatch)
    for _ in range(3):
        assert [row.id for row in board.rows()] == ids
        said.append(sorted(board.problems))
    assert said[0] == said[1] == said[2]
    assert len(said[0]) == len(strange)
    for name in strange:
        assert any(problem.startswith(name) for problem in said[0]), name
    assert len(opened) == COUNT + 6  # the first time; what is no file is not opened
    monkeypatch.undo()
    board.entries()
    assert sorted(board.problems) == said[0]


def test_a_board_that_was_moved_names_its_new_place(root: Path, tmp_path: Path) -> None:
    spoil(root)
    Leaderboard(root).rows()
    moved = root.rename(tmp_path / "moved")
    board = Leaderboard(moved)
    assert all(row.path.is_relative_to(moved) for row in board.rows())
    assert all(problem.startswith(str(moved)) for problem in board.problems)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"version": "x"}',
        json.dumps({"version": indexing.VERSION}).encode(),
        json.dumps({"version": indexing.VERSION, "files": [], "metrics": []}).encode(),
        json.dumps({"version": indexing.VERSION, "files": {}, "metrics": 3}).encode(),
        json.dumps({"version": [0, 0], "files": {"nlu-v1/x.json": [1, 2, "no entry"]}, "metrics": []}).encode(),
    ],
)
def test_a_corrupt_index_is_made_again(root: Path, content: bytes) -> None:
    board = Leaderboard(root)
    rows = board.rows()
    good = (root / INDEX).read_bytes()
    (root / INDEX).write_bytes(content)
    assert board.rows() == rows
    assert board.problems == []
    assert (root / INDEX).read_bytes() == good


WRONG: tuple[Any, ...] = (None, 1, "x", [], {}, [1, 2], [1, 2, 3], [1, 2, None], [1, 2, []], [1, 2, ["x"] * 12])


@pytest.mark.parametrize("known", WRONG)
def test_a_corrupt_row_of_the_index_is_read_again(root: Path, known: Any) -> None:
    board = Leaderboard(root)
    rows = board.rows()
    held = json.loads((root / INDEX).read_text())
    for file, (size, changed, _) in held["files"].items():
        held["files"][file] = [size, changed, known[2]] if isinstance(known, list) and len(known) == 3 else known
    (root / INDEX).write_text(json.dumps(held))
    assert board.rows() == rows
    assert board.problems == []


@pytest.mark.parametrize("place", range(12))
def test_each_fact_of_the_index_has_its_type(root: Path, place: int) -> None:
    board = Leaderboard(root)
    rows = board.rows()
    held = json.loads((root / INDEX).read_text())
    for _, _, known in held["files"].values():
        known[place] = {"metrics": 10**6}.get(Row._fields[place + 1 if place else 0], {"a": 1})
    (root / INDEX).write_text(json.dumps(held))
    assert board.rows() == rows


def test_an_index_cannot_lend_a_row_another_files_name(root: Path) -> None:
    board = Leaderboard(root)
    rows = board.rows()
    held = json.loads((root / INDEX).read_text())
    first, second = [file for file in held["files"] if file.startswith("nlu-v1/")][:2]
    held["files"][first][2] = held["files"][second][2]
    (root / INDEX).write_text(json.dumps(held))
    assert board.rows() == rows


def test_reading_a_row_reads_and_verifies_its_file(root: Path) -> None:
    board = Leaderboard(root)
    edited, gone, *_ = board.rows()
    status = edited.path.stat()
    text = edited.path.read_text()
    edited.path.write_text(text.replace("x86_64, 2 cores", "x86_64, 9 cores"))  # as long as before
    os.utime(edited.path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert edited in board.rows()  # nothing tells that it changed, and no content is taken from the index:
    with pytest.raises(ConfigError, match=rf"^{edited.path}: `id` is .* the file was altered"):
        board.read(edited)
    entries = board.entries()
    assert edited.id not in {entry.id for entry in entries}
    assert [problem for problem in board.problems if str(edited.path) in problem]

    gone.path.unlink()
    with pytest.raises(StorageError, match=rf"^{gone.path}: cannot be read \(No such file"):
        board.read(gone)


def test_an_index_that_cannot_be_written_is_done_without(root: Path) -> None:
    (root / INDEX).mkdir()  # a folder in its place stops every user, root too
    assert Leaderboard(root).rows() == Leaderboard(root).rows()
    assert Leaderboard(root).problems == []
    assert sorted(path.name for path in root.iterdir() if path.name.startswith(".")) == [INDEX]


def test_a_pipe_in_place_of_the_index_is_not_waited_for(root: Path) -> None:
    rows = Leaderboard(root).rows()
    (root / INDEX).unlink()
    os.mkfifo(root / INDEX)
    assert Leaderboard(root).rows() == rows


def test_entries_of_one_suite_are_read_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = Leaderboard(root)
    expected = [entry for entry in board.entries() if entry.suite.name == "nlu"]
    opened = reads(root, monkeypatch)
    assert board.entries(suite="nlu") == expected
    assert {path.parent.name for path in opened} == {"nlu-v1"}
    assert len(opened) == len(expected)
