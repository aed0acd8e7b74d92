"""A packed board is shown without the runs: what was generated, answered and logged, and pictures of it."""

from __future__ import annotations

import json
import lzma
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.leaderboard.entry import File
from emobench.leaderboard.pack import pack
from emobench.leaderboard.query.rows import select
from emobench.leaderboard.store import Leaderboard
from emobench.runs.inspect.recorded_runs import texts_of
from emobench.runs.inspect.samples import SourceReader

STUDIES = Path(__file__).parents[4] / "leaderboards/studies/smollm2"
EMO, MLE, NLU = "8055b2f60fd9", "1d1287c865af", "e96fbf8d96ae"


@pytest.fixture
def packed(written: Any, tmp_path: Path) -> tuple[object, ...]:
    """Return the options of a packed board whose runs are nowhere."""
    shutil.copytree(written.root, tmp_path / "board")
    pack(Leaderboard(tmp_path / "board"), written.runs)
    return ("--leaderboard", tmp_path / "board", "--runs", tmp_path / "nowhere")


@pytest.fixture
def shipped(command: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    return lambda *given: command(*given, "--leaderboard", STUDIES, "--runs", tmp_path / "nowhere")


def lines(file: File) -> list[dict[str, Any]]:
    """Read a file that the shipped board has."""
    text = lzma.decompress((STUDIES / "runs" / f"{file.path}.xz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def test_samples_are_the_generated_texts_without_those_of_the_data(written: Any, packed: tuple[object, ...]) -> None:
    (there,) = written("samples", "mle", "pretrained", "--json").json["samples"]
    (found,) = written.command("samples", "mle", "pretrained", "--json", *packed).json["samples"]
    assert [writer["shortened"] for writer in there["writers"]] == [False, False]
    assert [writer["shortened"] for writer in found["writers"]] == [True, True]
    assert [row["prompt"] for row in found["rows"]] == [row["prompt"] for row in there["rows"]]
    for row, whole in zip(found["rows"], there["rows"], strict=True):
        assert (row["prefix"], row["human"]) == (None, None)
        assert [one["text"] for one in row["generated"]] == [one["text"] for one in whole["generated"]]
        assert [one["ended"] for one in row["generated"]] == [None, None]
    shown = written.command("samples", "mle", *packed).out
    assert "not available" in shown


def test_a_run_that_is_here_stands_beside_a_packed_one(written: Any, packed: tuple[Any, ...], tmp_path: Path) -> None:
    place = Path(written.mle["runs"][0]["samples"][0]["path"]).parent
    shutil.copytree(written.runs / place, tmp_path / "nowhere" / place)
    (found,) = written.command("samples", "pretrained", "mle", "--json", *packed).json["samples"]
    assert [writer["shortened"] for writer in found["writers"]] == [True, False]
    assert all(row["prefix"] and row["human"] for row in found["rows"])


def test_human_texts_of_packed_samples_come_from_the_data(
    written: Any, packed: tuple[Any, ...], small_data: Path, tmp_path: Path
) -> None:
    board, nowhere = packed[1], packed[3]
    (entry,) = select("mle", board)
    whole = texts_of(entry, entry.runs[0], written.runs)
    texts = texts_of(entry, entry.runs[0], nowhere, [board])
    for folders, known in (([small_data], True), ([tmp_path / "empty"], False)):
        (task,) = texts
        for one, full in zip(SourceReader(folders).add(entry, texts)[task], whole[task], strict=True):
            assert (one.prefix, one.human, one.generated) == (None, None, full.generated)
            assert (one.source is not None) == known
            assert not known or f"{full.prefix}{full.human}" in str(one.source)
    done = written.command("leaderboard", "site", tmp_path / "out", *packed, "--data-dir", small_data).ok()
    assert "board" in done.err


def test_pictures_are_of_what_the_board_has(written: Any, packed: tuple[object, ...], tmp_path: Path) -> None:
    done = written.command("figures", "mle", *packed, "--out", tmp_path / "out", "--json").ok()
    assert {Path(path).stem for path in done.json["files"]} == {"lengths", "entropies"}
    curves, lengths = done.json["notes"]
    assert "divergence curves of mle" in curves
    assert "--runs DIR" in curves
    assert "lengths of mle" in lengths


def test_samples_of_the_shipped_board(shipped: Callable[..., Any]) -> None:
    (table,) = shipped("samples", EMO, MLE, "--seed", 1, "--count", 3, "--json").json["samples"]
    columns = []
    for name in (EMO, MLE):
        (entry,) = select(name, STUDIES)
        (run,) = (run for run in entry.runs if run.seed == 1)
        columns.append({row["prompt_id"]: row["continuation_text"] for row in lines(run.samples[0])[1:]})
    assert [writer["prompts"] for writer in table["writers"]] == [len(column) for column in columns]
    assert [row["prompt"] for row in table["rows"]] == list(columns[0])[:3]
    for row in table["rows"]:
        assert [one["text"] for one in row["generated"]] == [column[row["prompt"]] for column in columns]
    # The newest entries of both objectives have answers by labels, and no texts.
    assert shipped("samples", "emo", "mle", "--json").json["samples"]
    # Other rules cut other prompts of the same texts.
    shipped("samples", EMO, "386bdc7a33c0").refused("no prompt in common")


def test_curves_of_the_shipped_board(shipped: Callable[..., Any]) -> None:
    (group,) = shipped("curves", EMO, "--json").json["curves"]
    (entry,) = select(EMO, STUDIES)
    logs = [{row["step"]: row["loss"] for row in lines(run.curves[0]) if "loss" in row} for run in entry.runs]
    assert [training["seed"] for training in group["trainings"]] == [0, 1, 2]
    means = [sum(log[step] for log in logs) / len(logs) for step in logs[0]]
    assert group["mean"]["loss"]["values"] == pytest.approx(means)
