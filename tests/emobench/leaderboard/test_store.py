"""The board on disk: what is appended is read back, strange files do no harm, a disk that fails leaves nothing."""

from __future__ import annotations

import errno
import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import ConfigError, DataError, StorageError, UserError
from emobench.core.locks import open_locked
from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry, entry_id
from emobench.leaderboard.labels import clean
from emobench.leaderboard.pack import current
from emobench.leaderboard.store import Leaderboard, parse, row_of
from emobench.leaderboard.verify import verify

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from speed.boards import fill_board

MakeEntry = Callable[..., Entry]


@pytest.fixture
def make(entry_of: MakeEntry) -> MakeEntry:
    given = {"suite": {"name": "lm-quick", "version": 1}, "missing": {"wikitext2/mauve": "too few texts"}}
    return lambda **changes: entry_of(**{**given, **changes})


def test_an_appended_entry_is_read_back(make: MakeEntry, tmp_path: Path) -> None:
    board, entry = Leaderboard(tmp_path / "board"), make()
    path = board.append(entry)
    assert path == tmp_path / "board" / "lm-quick-v1" / f"{entry.id}.json"
    assert json.loads(path.read_text()) == to_plain(entry)
    assert board.entries() == [entry]
    assert board.problems == []
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_what_a_killed_process_left_is_removed_and_what_one_writes_is_not(make: MakeEntry, tmp_path: Path) -> None:
    left, written = (tmp_path / "lm-quick-v1" / f".{'0' * 11}{i}.json.part" for i in range(2))
    with open_locked(left), open_locked(written):
        Leaderboard(tmp_path).append(make())
        assert left.exists()
    with open_locked(written):
        Leaderboard(tmp_path).append(make(seeds=[5]))
        assert not left.exists()
        assert written.exists()


def test_the_same_content_again_is_not_written_again(make: MakeEntry, tmp_path: Path) -> None:
    board, entry = Leaderboard(tmp_path), make()
    path = board.append(entry)
    path.write_text(json.dumps(to_plain(entry), sort_keys=True))  # same content, other spacing
    before = path.stat().st_mtime_ns, path.read_text()
    assert board.append(entry) == path
    assert (path.stat().st_mtime_ns, path.read_text()) == before


def test_other_content_under_the_same_id_is_refused(make: MakeEntry, tmp_path: Path) -> None:
    board, entry = Leaderboard(tmp_path), make()
    path = board.append(entry)
    path.write_text(path.read_text().replace("too few texts", "too few words"))
    altered = path.read_text()
    with pytest.raises(StorageError, match="exists with other content"):
        board.append(entry)
    assert path.read_text() == altered


def test_superseded_entries_are_hidden_unless_asked_for(make: MakeEntry, tmp_path: Path) -> None:
    board, old = Leaderboard(tmp_path), make()
    new = make(supersedes=old.id, seeds=[0, 1])
    other = make(suite={"name": "nlu", "version": 1})
    for entry in (old, new, other):
        board.append(entry)
    assert {e.id for e in board.entries()} == {new.id, other.id}
    assert {e.id for e in board.entries(superseded=True)} == {old.id, new.id, other.id}
    assert [e.id for e in board.entries(suite="lm-quick")] == [new.id]


def test_strange_files_are_named_and_skipped(make: MakeEntry, tmp_path: Path) -> None:
    board, entry = Leaderboard(tmp_path), make()
    path = board.append(entry)
    folder, text = path.parent, path.read_text()

    def with_recipe(value: str) -> bytes:
        return text.replace('"name": "lm"', f'"name": "lm", "x": {value}').encode()

    strange = {
        "truncated.json": text[: len(text) // 2].encode(),
        "edited.json": text.replace('"lm"', '"ml"').encode(),
        "renamed.json": text.encode(),
        "foreign.json": b'{"hello": 1}',
        "long_key.json": text.replace('"kind"', f'"{"k" * 10**6}": 1, "kind"').encode(),
        "list.json": b"[]",
        "deep.json": b"[" * 200_000,
        "deep_recipe.json": with_recipe("[" * 500 + "]" * 500),
        "very_deep_recipe.json": with_recipe("[" * 5000 + "]" * 5000),
        "nan.json": with_recipe("NaN"),
        "infinity.json": with_recipe("-Infinity"),
        "huge.json": with_recipe("1e999"),
        "long.json": with_recipe("9" * 5000),
        "surrogate.json": with_recipe(r'"\ud800"'),
        "bom.json": b"\xef\xbb\xbf" + text.encode(),
        "utf-16.json": text.encode("utf-16"),
        "latin.json": b"\xff\xfe\x00",
        "zeros.json": bytes(len(text)),
        "notes.txt": b"hello",
        "empty.json": b"",
        "\x1b[31mred\n.json": b"{}",
    }
    for name, content in strange.items():
        (folder / name).write_bytes(content)
    (folder / "folder.json").mkdir()
    (folder / "nowhere.json").symlink_to(tmp_path / "nowhere")
    (folder / "itself.json").symlink_to(folder / "itself.json")
    os.mkfifo(folder / "pipe.json")  # whoever opens it waits
    with (folder / "sparse.json").open("wb") as file:
        file.truncate(10**12)
    (folder / ".hidden.json.part").write_text("{")
    (tmp_path / "README.md").write_text("A board.")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    named = [str(folder / name) for name in strange] + [str(tmp_path / "loop")]
    named += [str(folder / f"{name}.json") for name in ("folder", "nowhere", "itself", "pipe", "sparse")]
    for listed in (board.entries, board.rows):
        assert [found.id for found in listed()] == [entry.id]
        assert len(board.problems) == len(named)
        for name in named:
            told = [problem for problem in board.problems if problem.startswith(f"{clean(name)}: ")]
            assert len(told) == 1, name
            assert told[0].isprintable()
            assert len(told[0]) < 1000


def test_a_board_that_is_not_there_is_empty_and_one_that_is_a_file_is_a_problem(
    make: MakeEntry, tmp_path: Path
) -> None:
    assert Leaderboard(tmp_path / "none").entries() == []
    (tmp_path / "file").write_text("")
    board = Leaderboard(tmp_path / "file")
    assert board.entries() == []
    assert "cannot be listed" in board.problems[0]
    for root in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(DataError, match=f"There is no leaderboard {root}: .* --leaderboard {root}` records"):
            Leaderboard(root).require_folder()
    with pytest.raises(StorageError, match=r"could not be written.*--leaderboard DIR"):
        board.append(make())


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_disk_that_fails_leaves_nothing_and_says_so(
    make: MakeEntry, tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match=os.strerror(code)):
        Leaderboard(tmp_path).append(make())
    assert list((tmp_path / "lm-quick-v1").iterdir()) == []


def test_an_entry_whose_runs_are_all_among_those_of_another_stands_behind_it(make: MakeEntry, tmp_path: Path) -> None:
    def of(*seeds: int) -> Entry:
        runs = [{"seed": seed, "key": f"{seed:016x}", "examples": None} for seed in seeds]
        return make(seeds=list(seeds), runs=runs, metrics={})

    board = Leaderboard(tmp_path)
    one, two, both, other = of(0), of(1), of(0, 1), of(1, 2)
    for entry in (one, two, both, other):
        board.append(entry)
    assert {entry.id for entry in board.entries()} == {both.id, other.id}
    assert {entry.id for entry in board.entries(superseded=True)} == {one.id, two.id, both.id, other.id}


def test_of_exact_twins_the_oldest_one_stays(make: MakeEntry, tmp_path: Path) -> None:
    """Two commands at once, or two boards before a merge, recorded the same results of the same runs."""

    def of(value: float, second: int, *keys: str, supersedes: str | None = None) -> Entry:
        runs = [{"seed": seed, "key": key * 16, "examples": None} for seed, key in enumerate(keys)]
        values = [value + int(key) for key in keys]
        metric = {"mean": sum(values) / 2, "std": 1.0, "values": values, "n": 3, "higher_is_better": False}
        metric |= {"ci95": None, "ci95_of": None, "unit": "perplexity", "flags": []}
        created = {**plain["provenance"], "created": f"2026-01-31T12:00:0{second}"}
        names = {"metrics": {"lm-quick/ppl_test": metric}, "families": {}, "primary": None, "missing": {}}
        return make(seeds=[0, 1], runs=runs, provenance=created, supersedes=supersedes, **names)

    plain = json.loads(Leaderboard(tmp_path / "x").append(make()).read_text())
    board = Leaderboard(tmp_path / "board")
    old, twin, turned, other = of(9.0, 1, "1", "2"), of(9.0, 2, "1", "2"), of(9.0, 3, "2", "1"), of(8.0, 4, "1", "2")
    for entry in (other, turned, twin, old):
        board.append(entry)
    assert [entry.id for entry in board.entries()] == [old.id, other.id]
    assert len(board.entries(superseded=True)) == 4
    board.path(old).write_text("")  # what cannot be read hides nothing
    assert [entry.id for entry in board.entries()] == [twin.id, other.id]
    assert len(board.problems) == 1
    board.append(of(7.0, 5, "1", "2", supersedes=twin.id))  # whoever supersedes one of them supersedes them all
    assert [entry.id for entry in board.entries()][:1] == [other.id]


OTHERS: dict[str, dict[str, Any]] = {
    "another objective": {"objective": {"name": "mle", "version": "1", "params": {}}},
    "other parameters": {"objective": {"name": "emo", "version": "1", "params": {"gamma": 1}}},
    "another version": {"objective": {"name": "emo", "version": "2", "params": {}}},
    "another revision": {"model": {"name": "tiny", "source": "tiny", "revision": "other"}},
    "another suite": {"suite": {"name": "lm-quick", "version": 1}},
    "another version of the suite": {"suite": {"name": "nlu", "version": 2}},
    "other seeds": {"seeds": [5, 6], "runs": [{"seed": 5, "key": "a"}, {"seed": 6, "key": "b"}]},
    "fewer seeds": {"seeds": [0], "runs": [{"seed": 0, "key": "a"}]},
    "other runs": {"runs": [{"seed": 0, "key": "c"}, {"seed": 1, "key": "d"}]},
    "no runs": {"runs": []},
    "another kind": {"kind": "imported", "source": {"cite": "a file"}},
}


@pytest.mark.parametrize("what", OTHERS)
def test_an_entry_replaces_no_other_entry(what: str, entry_of: MakeEntry, tmp_path: Path) -> None:
    board = Leaderboard(tmp_path)
    runs = [{"seed": 0, "key": "a"}, {"seed": 1, "key": "b"}]
    mine = entry_of("emo", seeds=[0, 1], runs=runs)
    theirs = entry_of("emo", **{"seeds": [0, 1], "runs": runs, "supersedes": mine.id, **OTHERS[what]})
    again = entry_of("emo", seeds=[0, 1], runs=runs, supersedes=mine.id, cost={"tokens": 7})
    board.append(mine)
    board.append(theirs)
    assert mine.id in {entry.id for entry in board.entries()}
    assert mine in current(board.entries(superseded=True))
    (finding,) = verify(board, None)[1]
    assert finding.kind == "supersedes"
    assert mine.id in finding.text
    board.path(theirs).unlink()
    board.append(again)
    assert [entry.id for entry in board.entries()] == [again.id]
    assert verify(board, None)[1] == []


def test_more_runs_hide_fewer_ones_of_the_same_conditions_alone(entry_of: MakeEntry, tmp_path: Path) -> None:
    """A run's key is public: another entry may name it."""
    board, runs = Leaderboard(tmp_path), [{"seed": 0, "key": "a"}, {"seed": 1, "key": "b"}]
    mine = entry_of("emo", seeds=[0], runs=runs[:1])
    others = [
        entry_of("mle", seeds=[0, 1], runs=runs),
        entry_of("emo", seeds=[0, 1], runs=runs, suite={"name": "lm-quick", "version": 1}),
        entry_of("emo", seeds=[0, 1], runs=runs, recipe={"name": "other"}),
    ]
    for entry in (mine, *others):
        board.append(entry)
    assert mine.id in {entry.id for entry in board.entries()}
    more = entry_of("emo", seeds=[0, 1], runs=runs)
    board.append(more)
    assert mine.id not in {entry.id for entry in board.entries()}


def test_more_runs_hide_fewer_ones_only_with_their_numbers(entry_of: MakeEntry, tmp_path: Path) -> None:
    """A stranger's entry may claim my run, and one of its own."""
    runs = [{"seed": 0, "key": "a"}, {"seed": 1, "key": "b"}]

    def of(*values: float, names: Sequence[str] = ("t/x",)) -> Entry:
        mean, std = statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None
        metric = {"mean": mean, "std": std, "values": list(values), "n": 9, "higher_is_better": True, "unit": "score"}
        metric |= {"ci95": None, "ci95_of": None, "flags": []}
        seeds = list(range(len(values)))
        return entry_of("emo", seeds=seeds, runs=runs[: len(seeds)], metrics=dict.fromkeys(names, metric))

    mine = of(7.0, names=("t/x", "t/y"))
    board = Leaderboard(tmp_path)
    for theirs in (of(9.0, 9.0, names=("t/x", "t/y")), of(7.0, 9.0)):
        for entry in (mine, theirs):
            board.append(entry)
        assert {entry.id for entry in board.entries()} == {mine.id, theirs.id}
        board.path(theirs).unlink()
    more = of(7.0, 9.0, names=("t/x", "t/y"))
    board.append(more)
    assert [entry.id for entry in board.entries()] == [more.id]


def test_rows_are_those_of_the_entries(tmp_path: Path) -> None:
    fill_board(tmp_path, 60)
    board = Leaderboard(tmp_path)
    rows, entries = board.rows(), board.entries()
    assert rows == [row_of(entry, board.path(entry)) for entry in entries]
    assert [board.read(row) for row in rows] == entries
    assert [row.created for row in rows] == sorted(row.created for row in rows)
    assert {row.untrained for row in rows} == {row.objective == "pretrained" for row in rows} == {True, False}


def test_reading_a_row_reads_and_verifies_its_file(tmp_path: Path) -> None:
    fill_board(tmp_path, 12)
    board = Leaderboard(tmp_path)
    edited, gone, *_ = board.rows()
    edited.path.write_text(edited.path.read_text().replace("x86_64, 2 cores", "x86_64, 9 cores"))
    with pytest.raises(ConfigError, match=rf"^{edited.path}: `id` is .* the file was altered"):
        board.read(edited)
    for listed in (board.rows, board.entries):
        assert edited.id not in {one.id for one in listed()}
        (problem,) = board.problems
        assert problem.startswith(f"{edited.path}: ")

    gone.path.unlink()
    with pytest.raises(StorageError, match=rf"^{gone.path}: cannot be read \(No such file"):
        board.read(gone)


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (("metrics", "sst2/accuracy", "ci95"), [0.5, 95.2], "no fraction"),
        (("metrics", "sst2/accuracy", "std"), "0.5", "the file was altered"),
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
    done = command("leaderboard", "show", "--leaderboard", board.root, "--suite", "nlu", "--all").ok()
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


def test_an_altered_entry_of_a_group_that_is_not_shown_is_named(tmp_path: Path, command: Any) -> None:
    fill_board(tmp_path, 12)
    oldest, *_, newest = [row for row in Leaderboard(tmp_path).rows() if not row.untrained]
    assert oldest.comparison_key != newest.comparison_key
    oldest.path.write_text(oldest.path.read_text().replace("x86_64, 2 cores", "x86_64, 9 cores"))
    done = command("leaderboard", "show", "--leaderboard", tmp_path).ok()
    assert "not shown" in done.out
    assert f"skipped: {oldest.path}: " in done.err


def test_the_first_paint_of_ten_thousand_entries_was_measured_within_its_limit() -> None:
    page = json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / "speed" / "page.json").read_text())
    assert page["entries"] == 10_000
    assert page["median"]["first_paint_ms"] < 500
