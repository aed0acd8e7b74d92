"""A board that ships the files of its runs is compared, shown and verified without the runs folder."""

from __future__ import annotations

import hashlib
import json
import lzma
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import DataError
from emobench.leaderboard import pack as packing
from emobench.leaderboard.entry import Entry, File
from emobench.leaderboard.pack import PROMPTS, pack
from emobench.leaderboard.run_files import (
    ExamplesReader,
    _scratch,
    find_file,
    packed_digests,
    packed_path,
    recorded_file,
    unpack,
)
from emobench.leaderboard.store import Leaderboard
from emobench.leaderboard.verify import verify
from emobench.report.site.runs import RunFiles

EXAMPLES = '{"metric": "t/accuracy", "example": "0", "value": 1.0, "weight": 1.0}\n'
CURVE = '{"step": 1, "steps": 1, "loss": 2.5}\n'
SAMPLE = {"prefix_text": "human", "reference_text": "human too", "continuation_text": "generated", "sample": 0}
NAMES = ("examples/k0/examples.jsonl", "train/t0/log.jsonl", "generate/g0/samples.jsonl")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    samples = "".join(json.dumps({**SAMPLE, "prompt_id": str(number)}) + "\n" for number in range(PROMPTS + 9))
    for name, text in zip(NAMES, (EXAMPLES, CURVE, samples), strict=True):
        path = tmp_path / "runs" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return tmp_path / "runs"


@pytest.fixture
def entry(runs: Path, entry_of: Callable[..., Entry]) -> Entry:
    files = [{"path": name, "sha256": hashlib.sha256((runs / name).read_bytes()).hexdigest()} for name in NAMES]
    run = {"seed": 0, "key": "k0", "examples": files[0], "curves": files[1:2], "samples": files[2:]}
    return entry_of(runs=[run])


@pytest.fixture
def board(tmp_path: Path, entry: Entry) -> Leaderboard:
    board = Leaderboard(tmp_path / "board")
    board.append(entry)
    return board


def test_a_clone_has_what_its_entries_name(board: Leaderboard, runs: Path, entry: Entry) -> None:
    there = ExamplesReader(runs)(entry)
    done = pack(board, runs)
    assert (done.new, done.files, done.left_out) == (3, 3, {})
    shutil.rmtree(runs)
    assert pack(board, runs).new == 0
    assert verify(board, runs) == (1, [])
    assert len(board.entries()) == 1
    assert board.problems == []
    assert ExamplesReader(runs)(entry) is None
    assert ExamplesReader(runs, [board.root])(entry) == there
    shown = RunFiles(runs, [board.root], lambda entry, run: {}).of(entry)
    assert shown["problems"] == []
    assert shown["curves"][0]["parts"]["loss"]["mean"]["values"] == [2.5]


def test_texts_of_a_data_set_are_not_copied(board: Leaderboard, runs: Path) -> None:
    pack(board, runs)
    content = lzma.decompress(packed_path(board.root, NAMES[2]).read_bytes())
    first, *rows = content.decode().splitlines()
    assert first == json.dumps({"shortened_from": hashlib.sha256((runs / NAMES[2]).read_bytes()).hexdigest()})
    assert len(rows) == PROMPTS
    assert "human" not in "".join(rows)


@pytest.mark.parametrize(
    ("row", "copied"), [({"id": "3", "prompt_nats": [1.5]}, True), ({"doc": "human"}, False), (["human"], False)]
)
def test_other_samples_are_copied_if_they_hold_no_texts(
    board: Leaderboard, runs: Path, entry_of: Callable[..., Entry], row: object, copied: bool
) -> None:
    (runs / "score").mkdir()
    path = runs / "score" / "samples.jsonl"
    path.write_text(json.dumps(row) + "\n")
    file = {"path": "score/samples.jsonl", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    board.append(entry_of(runs=[{"seed": 0, "key": "k1", "samples": [file]}], recipe={"name": "other"}))
    assert pack(board, runs).left_out == ({} if copied else {"score/samples.jsonl": "may hold texts of a data set"})
    shutil.rmtree(runs)
    assert verify(board, runs) == (2, [])


def test_shortened_results_are_never_compared(board: Leaderboard, runs: Path, entry: Entry) -> None:
    """Only samples may be short: per-example results decide a verdict."""
    shutil.rmtree(runs)
    examples = entry.runs[0].examples
    packed = packed_path(board.root, examples.path)
    packed.parent.mkdir(parents=True)
    packed.write_bytes(lzma.compress((json.dumps({"shortened_from": examples.sha256}) + "\n" + EXAMPLES).encode()))
    with pytest.raises(DataError, match="altered since entry"):
        recorded_file(examples, runs, entry, [board.root])
    kinds = {finding.kind: finding.path for finding in verify(board, runs)[1]}
    assert kinds.keys() == {"altered", "missing"}
    assert kinds["altered"] == str(packed)


@pytest.mark.parametrize("content", [b"no xz", lzma.compress(b"x" * 2000)[:-20], b""])
def test_a_damaged_file_is_a_sentence(board: Leaderboard, runs: Path, entry: Entry, content: bytes) -> None:
    pack(board, runs)
    shutil.rmtree(runs)
    packed = packed_path(board.root, NAMES[0])
    packed.write_bytes(content)
    unpack.cache_clear()
    reader = ExamplesReader(runs, [board.root])
    assert reader(entry) is None
    assert str(packed) in reader.problems[0]
    assert [finding.kind for finding in verify(board, runs)[1]] == ["altered"]


def test_large_files_are_left_out_and_listed(board: Leaderboard, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "LARGEST", 0)
    left_out = pack(board, runs).left_out
    assert left_out == dict.fromkeys(NAMES, "more than 256 KiB, compressed")
    assert (board.root / "runs" / "left-out.txt").read_text().splitlines()[0].startswith(f"{NAMES[0]}: more than ")
    shutil.rmtree(runs)
    assert pack(board, runs).left_out == left_out
    assert verify(board, runs) == (1, [])


def test_entries_of_one_path_with_other_contents_keep_both(
    board: Leaderboard, runs: Path, entry: Entry, entry_of: Callable[..., Entry]
) -> None:
    """The log of a repeated run has another clock; scores that are computed again replace the file in the runs."""
    pack(board, runs)
    first = packed_path(board.root, NAMES[1]).read_bytes()
    (runs / NAMES[1]).write_text(CURVE.replace("2.5", "3.5"))
    again = {"path": NAMES[1], "sha256": hashlib.sha256((runs / NAMES[1]).read_bytes()).hexdigest()}
    other = entry_of("mle", runs=[{"seed": 0, "key": "k1", "curves": [again]}])
    board.append(other)
    assert pack(board, runs).new == 1
    assert packed_path(board.root, NAMES[1]).read_bytes() == first
    for folder in (runs, runs.parent / "no runs"):
        found = [recorded_file(one.runs[0].curves[0], folder, one, [board.root]).read_text() for one in (entry, other)]
        assert found == [CURVE, CURVE.replace("2.5", "3.5")]
        assert verify(board, folder) == (2, [])


def test_a_run_that_is_not_the_recorded_one_is_not_packed(board: Leaderboard, runs: Path) -> None:
    (runs / NAMES[1]).write_text("{}")
    with pytest.raises(DataError, match="altered since entry"):
        pack(board, runs)
    (runs / NAMES[1]).unlink()
    with pytest.raises(DataError, match="Give its --runs DIR"):
        pack(board, runs)


def test_the_command_says_what_it_packed(command: Callable[..., Any], board: Leaderboard, runs: Path) -> None:
    done = command("leaderboard", "pack", "--leaderboard", board.root, "--runs", runs).ok()
    assert "3 files of runs (3 new)" in done.out


def test_a_packed_file_that_expands_too_much_is_refused_and_not_kept(tmp_path: Path) -> None:
    packed = tmp_path / "board" / "runs" / "examples" / "k" / "examples.jsonl.xz"
    packed.parent.mkdir(parents=True)
    packed.write_bytes(lzma.compress(bytes(50_000_000)))
    file = File(path="examples/k/examples.jsonl", sha256="0" * 64)
    for read in (
        lambda: unpack(packed, file.path),
        lambda: packed_digests(packed),
        lambda: find_file(file, tmp_path / "runs", [tmp_path / "board"]),
    ):
        with pytest.raises(DataError, match="holds more than"):
            read()
    assert not (_scratch() / packed.parent.as_posix().lstrip("/") / "examples.jsonl").exists()


def test_a_packed_file_of_another_digest_is_not_unpacked(tmp_path: Path) -> None:
    packed = tmp_path / "board" / "runs" / "examples" / "k" / "examples.jsonl.xz"
    packed.parent.mkdir(parents=True)
    packed.write_bytes(lzma.compress(b"another"))
    file = File(path="examples/k/examples.jsonl", sha256=hashlib.sha256(b"recorded").hexdigest())
    with pytest.raises(DataError, match="altered"):
        find_file(file, tmp_path / "runs", [tmp_path / "board"])
    assert not (_scratch() / packed.parent.as_posix().lstrip("/") / "examples.jsonl").exists()
    own = File(path=file.path, sha256=hashlib.sha256(b"another").hexdigest())
    found = find_file(own, tmp_path / "runs", [tmp_path / "board"])
    assert found.read_bytes() == b"another"
