"""The index of a board saves time and is never believed: rows are those of the entries, whatever the index says."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from emobench.errors import ConfigError, StorageError, UserError
from emobench.leaderboard.schema.comparable import comparison_key
from emobench.leaderboard.schema.entry import entry_id, read_entry
from emobench.leaderboard.schema.labels import clean
from emobench.leaderboard.store import index as indexing
from emobench.leaderboard.store.board import Leaderboard, parse
from emobench.leaderboard.store.index import INDEX, WORTH
from emobench.leaderboard.store.row import Row, row_of

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from speed.boards import fill_board, made_entries

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
    real = Path.open

    def counted(path: Path, mode: str = "r", *given: Any, **named: Any) -> IO[Any]:
        if mode == "rb" and path.name != INDEX:
            opened.append(path)
        return real(path, mode, *given, **named)

    monkeypatch.setattr(Path, "open", counted)
    return opened


@contextmanager
def database(root: Path) -> Iterator[sqlite3.Connection]:
    """Open the index of a board to look into it or to spoil it."""
    with closing(sqlite3.connect(root / INDEX)) as opened, opened:
        yield opened


def indexed(root: Path) -> list[str]:
    """Return the files that the index holds."""
    with database(root) as opened:
        return [file for (file,) in opened.execute("SELECT file FROM files")]


def forge(root: Path, facts: Any) -> None:
    """Write other facts of each file, behind the right checksums; `facts` may depend on those that were there."""
    with database(root) as opened:
        records = opened.execute("SELECT file, size, mtime_ns, inode, facts FROM files").fetchall()
        for *state, text in records:
            given = json.dumps(facts(json.loads(text)) if callable(facts) else facts)
            checksum = indexing._checksum(*state, given)
            opened.execute("UPDATE files SET facts = ?, checksum = ? WHERE file = ?", (given, checksum, state[0]))


def appended(root: Path, count: int) -> Leaderboard:
    """Return a board to which entries were appended."""
    board = Leaderboard(root)
    for plain in made_entries(count):
        board.append(read_entry(plain, "made"))
    return board


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


def spoil(root: Path) -> list[str]:
    """Put strange files into a board, and return their names; `test_board` has more of them."""
    path = next(root.glob("*/*.json"))
    strange = [path.with_name(f"{name}.json") for name in ("edited", "foreign", "link")]
    strange[0].write_text(path.read_text().replace('"measured"', '"imported"'))
    strange[1].write_text('{"hello": 1}')
    for file in strange[:2]:
        age(file, 60)
    strange[2].symlink_to(root / "nowhere")
    return list(map(str, strange))


def test_problems_are_named_each_time_also_from_the_index(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strange = spoil(root)
    board, said = Leaderboard(root), []
    opened = reads(root, monkeypatch)
    for _ in range(3):
        assert len(board.rows(superseded=True)) == COUNT
        said.append(sorted(problem.partition(": ")[0] for problem in board.problems))
    assert said == [sorted(strange)] * 3
    assert len(opened) == COUNT + 2  # the first time; a link to nothing is not opened


def test_a_board_that_was_moved_names_its_new_place(root: Path, tmp_path: Path) -> None:
    spoil(root)
    Leaderboard(root).rows()
    moved = root.rename(tmp_path / "moved")
    board = Leaderboard(moved)
    assert all(row.path.is_relative_to(moved) for row in board.rows())
    assert all(problem.startswith(str(moved)) for problem in board.problems)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zeroed(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + bytes(len(data) - 4096))


def foreign(path: Path) -> None:
    path.unlink()
    with database(path.parent) as opened:
        opened.execute("CREATE TABLE files (name TEXT)")
        opened.execute(f"PRAGMA user_version = {indexing.VERSION}")


def of_another_version(path: Path) -> None:
    forge(path.parent, "is no entry")
    with database(path.parent) as opened:
        opened.execute("PRAGMA user_version = 7")


SPOILED: dict[str, Any] = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_bytes(b"[1, 2]\n" * 1000),
    "bytes": lambda path: path.write_bytes(random.Random(0).randbytes(50_000)),
    "truncated": truncated,
    "zeroed": zeroed,
    "foreign": foreign,
    "version": of_another_version,
    "journal": lambda path: path.with_name(f"{INDEX}-journal").write_bytes(b"\xd9\xd5\x05\xf9" * 500),
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_spoiled_index_is_not_believed_and_replaced(root: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    board = Leaderboard(root)
    rows = board.rows()
    SPOILED[how](root / INDEX)
    opened = reads(root, monkeypatch)
    assert board.rows() == rows
    assert len(opened) in ((0, COUNT) if how == "journal" else (COUNT,))
    opened.clear()
    assert board.rows() == rows  # from the new index
    assert (opened, board.problems) == ([], [])
    assert len(indexed(root)) == COUNT


FACTS = len(Row._fields) - 1
WRONG = [None, 1, [], {}, ["x"] * FACTS, {str(i): 1 for i in range(FACTS)}]


@pytest.mark.parametrize("facts", WRONG)
def test_a_forged_record_is_read_again(root: Path, facts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    board = Leaderboard(root)
    rows = board.rows()
    forge(root, facts)
    opened = reads(root, monkeypatch)
    for _ in range(2):
        assert board.rows() == rows
        assert board.problems == []
        assert len(opened) == COUNT


def other_fact(name: str, wrong: Any) -> Any:
    place = Row._fields.index(name) - (name != "id")
    return lambda facts: [*facts[:place], wrong, *facts[place + 1 :]]


TYPES = [(name, wrong) for name in Row._fields if name != "path" for wrong in ({"a": 1}, 10**6, True)]
TEXTS = [("created", "yesterday"), ("metrics", ["accuracy"]), ("runs", "abc"), ("id", "0123456789ab")]


@pytest.mark.parametrize(("name", "wrong"), [*TYPES, *TEXTS])
def test_each_fact_of_the_index_is_checked(root: Path, name: str, wrong: Any) -> None:
    """Also its id: an index cannot lend a row another file's name."""
    board = Leaderboard(root)
    rows = board.rows()
    forge(root, other_fact(name, wrong))
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


def test_an_appended_entry_is_remembered_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = appended(tmp_path, 30)
    opened = reads(tmp_path, monkeypatch)
    rows = board.rows(superseded=True)
    assert opened == []
    assert board.problems == []
    (tmp_path / INDEX).unlink()
    assert board.rows(superseded=True) == rows
    assert len(opened) == len(rows) == 30


def test_a_flipped_bit_of_the_index_changes_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_files_that_are_gone_leave_the_index(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = Leaderboard(root)
    board.rows()
    for path in list(root.glob("*/*"))[: COUNT - 3]:
        path.unlink()
    left = board.rows(superseded=True)
    assert len(indexed(root)) == len(left) == 3
    opened = reads(root, monkeypatch)
    assert board.rows(superseded=True) == left
    assert opened == []


def folder(path: Path) -> None:
    path.mkdir()


def link(path: Path) -> None:
    (path.parents[1] / "profile").write_text("mine")
    path.symlink_to(path.parents[1] / "profile")


@pytest.mark.parametrize("block", [folder, os.mkfifo, link])
def test_what_stands_in_place_of_the_index_is_left_alone(root: Path, block: Any) -> None:
    """Nor is a pipe waited for, nor a link written through."""
    block(root / INDEX)
    board = Leaderboard(root)
    assert board.rows() == board.rows()
    assert board.problems == []
    appended(root, COUNT + 5)
    assert len(board.rows(superseded=True)) == COUNT + 5
    assert sorted(path.name for path in root.iterdir() if path.name.startswith(".")) == [INDEX]
    assert block is not link or (root.parent / "profile").read_text() == "mine"


def test_the_index_of_another_user_is_ignored(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = Leaderboard(root)
    rows = board.rows()
    forge(root, "is no entry")
    mine, before = os.geteuid(), (root / INDEX).read_bytes()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert board.rows() == rows
    assert (root / INDEX).read_bytes() == before


@pytest.mark.parametrize("lock", ["EXCLUSIVE", "IMMEDIATE"])
def test_an_index_that_stays_locked_is_done_without(root: Path, lock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a file system's locks fail: SQLite reports both as an error of the moment."""
    board = Leaderboard(root)
    rows = board.rows(superseded=True)
    monkeypatch.setattr(indexing, "PATIENCE", 0.01)
    with closing(sqlite3.connect(root / INDEX, isolation_level=None)) as other:
        other.execute(f"BEGIN {lock}")
        assert board.rows(superseded=True) == rows
        appended(root, COUNT + 1)
        assert len(board.rows(superseded=True)) == COUNT + 1
    assert board.problems == []


def test_entries_of_one_suite_are_read_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = Leaderboard(root)
    expected = [entry for entry in board.entries() if entry.suite.name == "nlu"]
    opened = reads(root, monkeypatch)
    assert board.entries(suite="nlu") == expected
    assert {path.parent.name for path in opened} == {"nlu-v1"}
    assert len(opened) == len(expected)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("metrics", "sst2/accuracy", "ci95"), [0.5, 95.2], "no fraction"),
        (("metrics", "sst2/accuracy", "std"), "0.5", "in quotes"),
        (("missing", "sst2/accuracy"), "why", "is both measured and missing"),
        (("seeds",), [7], "expected"),
        (("recipe", "deep"), [[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]], "nested deeper"),
    ],
)
def test_what_is_hashed_right_and_is_not_valid_is_found_where_it_is_read(
    tmp_path: Path, place: tuple[str, ...], value: Any, said: str, command: Any
) -> None:
    """`rows` may list it, and nobody takes it for an entry."""
    board = appended(tmp_path / "board", 12)
    good = next(row for row in board.rows() if "sst2/accuracy" in row.metrics and len(row.runs) > 1)
    path = put(board.root, altered(good.path, place, value))
    for listed in (board.rows, board.rows, board.entries):
        found = {one.id for one in listed()}
        assert good.id in found
    assert path.stem not in found
    (told,) = board.problems
    assert told.startswith(f"{path}: ")
    assert said in told
    done = command("leaderboard", "show", "--leaderboard", board.root, "--suite", "nlu")
    assert done.code == 0
    assert f"skipped: {path}: " in done.err
    assert said in done.err


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
    board = appended(tmp_path / "board", 3)
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
