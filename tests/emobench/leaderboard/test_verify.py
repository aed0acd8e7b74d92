"""`verify` finds everything that is wrong with a board, and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.leaderboard.entry import Entry
from emobench.leaderboard.store import Leaderboard
from emobench.leaderboard.verify import Finding, verify

NAMES = ("examples/k0/examples.jsonl", "train/t0/log.jsonl", "generate/g0/samples.jsonl", "generate/g1/samples.json")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name in NAMES:
        path = tmp_path / "runs" / name
        path.parent.mkdir(parents=True)
        path.write_text(f"{name}\n")
    return tmp_path / "runs"


@pytest.fixture
def board(tmp_path: Path, runs: Path, entry_of: Callable[..., Entry]) -> Leaderboard:
    """A board of three entries: one with files, one that supersedes another, and that other."""
    board = Leaderboard(tmp_path / "board")
    files = [{"path": name, "sha256": hashlib.sha256(f"{name}\n".encode()).hexdigest()} for name in NAMES]
    run = {"seed": 0, "key": "k0", "examples": files[0], "curves": files[1:2], "samples": files[2:]}
    suite = {"name": "lm-quick", "version": 1}
    old = entry_of(suite=suite, recipe={"name": "old"})
    new = entry_of(suite=suite, recipe={"name": "new"}, supersedes=old.id)
    for entry in (entry_of(suite=suite, runs=[run]), old, new):
        board.append(entry)
    return board


def path_of(board: Leaderboard, recipe: str) -> Path:
    (entry,) = (e for e in board.entries(superseded=True) if e.recipe["name"] == recipe)
    return board.path(entry)


def only(found: tuple[int, list[Finding]], entries: int) -> Finding:
    count, findings = found
    assert count == entries
    assert len(findings) == 1
    assert findings[0].text.startswith(findings[0].path)
    assert findings[0].text.isprintable()
    return findings[0]


def type_in(text: str) -> None:
    """Type what a finding says after its last colon."""
    subprocess.run(text.rpartition(": ")[2], shell=True, check=True)


def test_a_whole_board_has_no_findings(board: Leaderboard, runs: Path) -> None:
    seen: list[tuple[int, int]] = []
    assert verify(board, runs, lambda done, total: seen.append((done, total))) == (3, [])
    assert seen == [(1, 3), (2, 3), (3, 3)]
    for name in ("README.md", "LICENSE", "emo.toml", ".gitignore"):
        (board.root / name).write_text("mine")
    assert verify(board, None) == (3, [])


def test_boards_of_the_repository_are_whole() -> None:
    for name in ("published", "studies/smollm2", "studies/fair"):
        root = Path(__file__).parents[3] / "leaderboards" / name
        count, findings = verify(Leaderboard(root), None)
        assert count > 0
        assert findings == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text: text[:200], "it may be truncated"),
        (lambda text: text.replace('"tiny"', '"huge"'), "the file was altered"),
        (lambda text: text.replace('"kind"', '"kin"'), "no setting 'kin'; did you mean 'kind'"),
        (lambda text: text.replace('"recipe": {', '"recipe": {"lr": NaN, '), "not the JSON of an entry ('NaN')"),
    ],
)
def test_a_wrong_entry_is_named(board: Leaderboard, runs: Path, change: Callable[[str], str], told: str) -> None:
    path = path_of(board, "lm")
    path.write_text(change(path.read_text()))
    finding = only(verify(board, runs), 2)
    assert (finding.kind, finding.path) == ("entry", str(path))
    assert told in finding.text
    assert "Restore or remove" not in finding.text
    assert finding.text.endswith(" Restore the file from a copy, or remove it and record the entry again.")
    path.write_text(json.dumps({"schema": 7}))  # not to be removed
    assert only(verify(board, runs), 2).text.endswith("Install a newer one.")


@pytest.mark.parametrize("place", ["lm-quick-v1/notes.txt", "notes.txt", "copy.json"])
def test_a_stray_file_is_named_and_never_removed(board: Leaderboard, runs: Path, place: str) -> None:
    path = board.root / place
    path.write_text("mine")
    finding = only(verify(board, runs), 3)
    assert (finding.kind, finding.text) == (
        "stray",
        f"{path}: is not an entry in the folder of its suite; move it elsewhere.",
    )


def test_a_pipe_in_the_place_of_an_entry_is_named(board: Leaderboard, runs: Path) -> None:
    path = board.root / "lm-quick-v1" / "pipe.json"
    os.mkfifo(path)
    finding = only(verify(board, runs), 3)
    assert (finding.path, "is not a file" in finding.text) == (str(path), True)


@pytest.mark.parametrize("place", ["lm-quick-v2/{name}", "lm-quick-v1/copy.json", "other suite/x.json"])
def test_an_entry_in_another_place_is_named_and_moves_where_it_belongs(
    board: Leaderboard, runs: Path, place: str
) -> None:
    right = path_of(board, "lm")
    wrong = board.root / place.format(name=right.name)
    wrong.parent.mkdir(exist_ok=True)
    right.rename(wrong)
    finding = only(verify(board, runs), 2)
    assert (finding.kind, finding.path) == ("place", str(wrong))
    type_in(finding.text)
    assert verify(board, runs) == (3, [])


@pytest.mark.parametrize("name", NAMES)
def test_altered_and_missing_files_of_runs_are_named(board: Leaderboard, runs: Path, name: str) -> None:
    with (runs / name).open("a") as file:
        file.write("{}\n")
    finding = only(verify(board, runs), 3)
    assert (finding.kind, finding.path) == ("altered", str(runs / name))
    assert str(path_of(board, "lm")) in finding.text

    (runs / name).unlink()
    finding = only(verify(board, runs), 3)
    assert (finding.kind, finding.path) == ("missing", str(path_of(board, "lm")))
    assert f"1 of the 4 files that it names are not in {runs}: {name}." in finding.text
    assert "--runs DIR" in finding.text
    assert verify(board, None) == (3, [])


def test_files_that_were_replaced_with_their_entry_are_not_altered(
    board: Leaderboard, runs: Path, entry_of: Callable[..., Entry]
) -> None:
    (old,) = (e for e in board.entries(superseded=True) if e.recipe["name"] == "lm")
    (runs / NAMES[0]).write_text("scores that were computed again\n")
    assert only(verify(board, runs), 3).kind == "altered"
    files = [{"path": name, "sha256": hashlib.sha256((runs / name).read_bytes()).hexdigest()} for name in NAMES]
    run = {"seed": 0, "key": "k0", "examples": files[0], "curves": files[1:2], "samples": files[2:]}
    suite = {"name": "lm-quick", "version": 1}
    new = entry_of(suite=suite, recipe={"name": "again"}, runs=[run], supersedes=old.id)
    board.append(new)
    assert verify(board, runs) == (4, [])
    (runs / NAMES[1]).write_text("altered\n")
    finding = only(verify(board, runs), 4)
    assert (finding.kind, finding.path) == ("altered", str(runs / NAMES[1]))
    assert str(board.path(new)) in finding.text


def test_of_many_absent_files_five_are_listed(tmp_path: Path, entry_of: Callable[..., Entry]) -> None:
    board = Leaderboard(tmp_path / "board")
    curves = [{"path": f"train/t{i}/log.jsonl", "sha256": "0" * 64} for i in range(7)]
    board.append(entry_of(runs=[{"seed": 0, "key": "k0", "curves": curves}]))
    listed = ", ".join(curve["path"] for curve in curves[:5])
    assert f"are not in {tmp_path}: {listed}, and 2 more." in only(verify(board, tmp_path), 1).text


def test_an_entry_that_supersedes_nothing_is_named(board: Leaderboard, runs: Path) -> None:
    old, new = path_of(board, "old"), path_of(board, "new")
    old.unlink()
    finding = only(verify(board, runs), 2)
    assert (finding.kind, finding.path) == ("supersedes", str(new))
    assert f"supersedes {old.stem}, which is not on this board" in finding.text
    assert finding.text.endswith(f"Copy it from a board that has it to {old}")


@pytest.fixture
def verified(command: Callable[..., Any], board: Leaderboard, runs: Path) -> Callable[..., Any]:
    return lambda *given: command("leaderboard", "verify", "--leaderboard", board.root, "--runs", runs, *given)


def test_the_command_names_each_finding_and_fails(
    verified: Callable[..., Any], board: Leaderboard, runs: Path, tmp_path: Path
) -> None:
    assert verified().out == f"{board.root}: entries: 3, problems: 0.\n"
    shutil.copytree(board.root, tmp_path / "other")
    (runs / NAMES[0]).unlink()
    _, (finding,) = verify(board, runs)
    done = verified()
    assert (done.code, done.out) == (1, f"{finding.text}\n{board.root}: entries: 3, problems: 1.\n")
    found = verified("--leaderboard", tmp_path / "other", "--json")
    assert found.code == 1
    assert [b["board"] for b in found.json["boards"]] == [str(board.root), str(tmp_path / "other")]
    assert found.json["boards"][0]["findings"] == [json.loads(json.dumps(finding.__dict__))]
    assert verified("--entries-only").code == 0
    verified("--leaderboard", board.root / "none").refused(f"There is no leaderboard {board.root / 'none'}")
