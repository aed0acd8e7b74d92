"""The index of a board saves time and is never believed: rows are those of the entries, whatever the index says."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from emobench.core.errors import ConfigError, StorageError, UserError
from emobench.leaderboard.schema.entry import entry_id
from emobench.leaderboard.schema.labels import clean
from emobench.leaderboard.store import index as indexing
from emobench.leaderboard.store.board import Leaderboard, parse
from emobench.leaderboard.store.index import INDEX, WORTH, row_of

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from speed.boards import fill_board

COUNT = WORTH + 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "board"
    fill_board(root, COUNT)
    return root


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are opened, as the board reads them."""
    found: list[Path] = []
    real = Path.open

    def counted(path: Path, mode: str = "r", *given: Any, **named: Any) -> IO[Any]:
        if mode == "rb":
            found.append(path)
        return real(path, mode, *given, **named)

    monkeypatch.setattr(Path, "open", counted)
    return found


@contextmanager
def database(root: Path) -> Iterator[sqlite3.Connection]:
    """Open the index of a board to look into it or to spoil it."""
    with closing(sqlite3.connect(root / INDEX)) as opened, opened:
        yield opened


def forge(root: Path, facts: Any) -> None:
    """Write other facts of each file, behind the right checksums."""
    text = json.dumps(facts)
    with database(root) as opened:
        for file, *state in opened.execute("SELECT file, size, mtime_ns, inode FROM files").fetchall():
            checksum = indexing._checksum(file, state, text)
            opened.execute("UPDATE files SET facts = ?, checksum = ? WHERE file = ?", (text, checksum, file))


def test_rows_are_the_entries_with_and_without_an_index(root: Path) -> None:
    board = Leaderboard(root)
    cold = board.rows()
    assert (root / INDEX).is_file()
    assert board.rows() == cold
    entries = board.entries()
    assert cold == [row_of(entry, board.path(entry)) for entry in entries]
    assert [board.read(row) for row in cold] == entries
    assert [row.created for row in cold] == sorted(row.created for row in cold)
    assert {row.untrained for row in cold} == {row.objective == "pretrained" for row in cold} == {True, False}


def test_only_files_that_changed_are_read_again(root: Path, opened: list[Path]) -> None:
    board = Leaderboard(root)
    rows = board.rows(superseded=True)
    opened.clear()
    assert board.rows(superseded=True) == rows
    assert opened == []

    changed, gone = rows[3].path, rows[5].path
    os.utime(changed, (1, 1))
    gone.unlink()
    assert {row.path for row in board.rows(superseded=True)} == {*root.glob("*/*.json")}
    assert opened == [changed]
    assert board.problems == []

    for path in list(root.glob("*/*"))[: COUNT - 4]:
        path.unlink()
    assert len(board.rows(superseded=True)) == 3
    with database(root) as held:
        assert len(held.execute("SELECT file FROM files").fetchall()) == 3


def test_few_files_are_not_worth_an_index(tmp_path: Path) -> None:
    fill_board(tmp_path, 30)
    assert Leaderboard(tmp_path).rows()
    assert not (tmp_path / INDEX).exists()


def test_problems_are_named_each_time_also_from_the_index_and_in_a_new_place(
    root: Path, opened: list[Path], tmp_path: Path
) -> None:
    path = next(root.glob("*/*.json"))
    strange = [path.with_name(f"{name}.json") for name in ("edited", "foreign", "link")]
    strange[0].write_text(path.read_text().replace('"measured"', '"imported"'))
    strange[1].write_text('{"hello": 1}')
    strange[2].symlink_to(root / "nowhere")
    opened.clear()
    board = Leaderboard(root)
    for _ in range(3):
        assert len(board.rows(superseded=True)) == COUNT
        assert sorted(problem.partition(": ")[0] for problem in board.problems) == sorted(map(str, strange))
    assert len(opened) == COUNT + 2  # the first time; a link to nothing is not opened
    moved = Leaderboard(root.rename(tmp_path / "moved"))
    assert all(row.path.is_relative_to(moved.root) for row in moved.rows())
    assert all(problem.startswith(str(moved.root)) for problem in moved.problems)


def of_another_version(path: Path) -> None:
    forge(path.parent, "is not an entry")
    with database(path.parent) as opened:
        opened.execute("PRAGMA user_version = 7")


SPOILED: dict[str, Any] = {
    "empty": lambda path: path.write_bytes(b""),
    "bytes": lambda path: path.write_bytes(random.Random(0).randbytes(50_000)),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "zeroed": lambda path: path.write_bytes(path.read_bytes()[:4096] + bytes(path.stat().st_size - 4096)),
    "version": of_another_version,
    "journal": lambda path: path.with_name(f"{INDEX}-journal").write_bytes(b"\xd9\xd5\x05\xf9" * 500),
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_spoiled_index_is_not_believed_and_replaced(root: Path, how: str, opened: list[Path]) -> None:
    board = Leaderboard(root)
    rows = board.rows()
    SPOILED[how](root / INDEX)
    for _ in range(2):
        assert board.rows() == rows
        assert board.problems == []
    opened.clear()
    assert board.rows() == rows
    assert opened == []


@pytest.mark.parametrize("facts", [None, 1, [], {}, ["x"] * 12, ["0" * 12, *([{"a": 1}] * 11)]])
def test_a_forged_record_is_read_again(root: Path, facts: Any) -> None:
    board = Leaderboard(root)
    rows = board.rows()
    forge(root, facts)
    assert board.rows() == rows
    assert board.problems == []


def test_a_flipped_bit_of_the_index_changes_nothing(root: Path) -> None:
    """Of what is superseded, for one: a digit of an id would bring it back."""
    board, draw = Leaderboard(root), random.Random(0)
    rows = board.rows()
    whole = (root / INDEX).read_bytes()
    for _ in range(100):
        data = bytearray(whole)
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        (root / INDEX).write_bytes(data)
        assert board.rows() == rows
        assert board.problems == []


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
    assert edited.id not in {entry.id for entry in board.entries()}
    assert [problem for problem in board.problems if str(edited.path) in problem]

    gone.path.unlink()
    with pytest.raises(StorageError, match=rf"^{gone.path}: cannot be read \(No such file"):
        board.read(gone)


def link(path: Path) -> None:
    (path.parents[1] / "profile").write_text("mine")
    path.symlink_to(path.parents[1] / "profile")


@pytest.mark.parametrize("block", [Path.mkdir, os.mkfifo, link])
def test_what_stands_in_place_of_the_index_is_left_alone(root: Path, block: Any) -> None:
    """Nor is a pipe waited for, nor a link written through."""
    block(root / INDEX)
    board = Leaderboard(root)
    assert len(board.rows(superseded=True)) == len(board.rows(superseded=True)) == COUNT
    assert board.problems == []
    assert sorted(path.name for path in root.iterdir() if path.name.startswith(".")) == [INDEX]
    assert block is not link or (root.parent / "profile").read_text() == "mine"


@pytest.mark.parametrize("lock", ["EXCLUSIVE", "IMMEDIATE"])
def test_an_index_that_stays_locked_is_done_without(root: Path, lock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a file system's locks fail: SQLite reports both as an error of the moment."""
    board = Leaderboard(root)
    rows = board.rows(superseded=True)
    before = (root / INDEX).read_bytes()
    monkeypatch.setattr(indexing, "PATIENCE", 0.01)
    fill_board(root, COUNT)  # all files are new
    with closing(sqlite3.connect(root / INDEX, isolation_level=None)) as other:
        other.execute(f"BEGIN {lock}")
        assert board.rows(superseded=True) == rows
        assert board.problems == []
    assert (root / INDEX).read_bytes() == before


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (("metrics", "sst2/accuracy", "ci95"), [0.5, 95.2], "no fraction"),
        (("metrics", "sst2/accuracy", "std"), "0.5", "in quotes"),
        (("missing", "sst2/accuracy"), "why", "is both measured and missing"),
        (("seeds",), [7], "expected"),
        (("recipe", "deep"), [[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]], "nested deeper"),
    ],
)
def test_what_is_hashed_right_and_is_not_valid_is_found_where_it_is_read(
    tmp_path: Path, place: tuple[str, ...], value: Any, told: str, command: Any
) -> None:
    """`rows` may list it, and nobody takes it for an entry."""
    fill_board(tmp_path, 12)
    board = Leaderboard(tmp_path)
    good = next(row for row in board.rows() if "sst2/accuracy" in row.metrics and len(row.runs) > 1)
    path = put(board.root, altered(good.path, place, value))
    found = {one.id for one in board.entries()}
    assert good.id in found
    assert path.stem not in found
    (problem,) = board.problems
    assert problem.startswith(f"{path}: ")
    assert told in problem
    done = command("leaderboard", "show", "--leaderboard", board.root, "--suite", "nlu").ok()
    assert f"skipped: {problem}" in done.err


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("kind",), 3),
        (("suite", "version"), "1"),
        (("model", "name"), 3),
        (("model",), None),
        (("objective", "params"), []),
        (("provenance", "created"), "yesterday"),
        (("metrics", "accuracy"), {}),
        (("supersedes",), 3),
        (("runs",), {"key": 1}),
        (("schema",), 9),
    ],
)
def test_what_is_no_row_is_named_by_its_file(tmp_path: Path, place: tuple[str, ...], value: Any) -> None:
    """As it is where all of the entry is checked."""
    fill_board(tmp_path, 3)
    board = Leaderboard(tmp_path)
    path = put(board.root, altered(next(board.root.glob("*/*.json")), place, value))
    assert len(board.rows(superseded=True)) == 3
    with pytest.raises(UserError) as error:
        parse(path.read_bytes(), str(path))
    assert board.problems == [clean(str(error.value))]


def altered(path: Path, place: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return the content of an entry with another value, and the hash of that."""
    plain = json.loads(path.read_text())
    at = plain
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    return {**plain, "id": entry_id(plain)}


def put(root: Path, plain: dict[str, Any]) -> Path:
    path = root / "nlu-v1" / f"{plain['id']}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(plain))
    return path


def test_rows_of_an_older_schema_are_those_of_its_entries() -> None:
    board = Leaderboard(Path(__file__).parents[1] / "schema" / "schema_1")
    entries = board.entries(superseded=True)
    assert entries
    assert board.rows(superseded=True) == [row_of(entry, board.path(entry)) for entry in entries]
