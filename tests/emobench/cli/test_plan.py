"""`emobench plan`: seeds and examples that show a difference, from the noise of a board and the costs of a dry run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emobench.leaderboard.entry import Entry
from emobench.leaderboard.run_files import ExamplesReader
from emobench.leaderboard.stats.compare import compare
from emobench.leaderboard.stats.power import seeds_needed
from emobench.leaderboard.store import Leaderboard
from emobench.runs.dry_run import make_outline

REQUEST = (
    *("--suite", "nlu", "--set", "tasks=[sst2]", "--objective", "mle", "--objective", "emo", "--model", "llama-7b"),
    *("--offline", "--device", "cpu"),
)
MOST = 1821
"""The test examples of SST-2."""


@pytest.fixture
def pilot(make_entry: Callable[..., Entry], tmp_path: Path) -> tuple[Entry, Entry]:
    """Two objectives with three seeds and 200 examples, on a board."""
    rng, board = np.random.default_rng(4), Leaderboard(tmp_path / "board")
    entries = []
    for name, share in (("mle", 0.7), ("emo", 0.72)):
        answers_SI = (rng.random((3, 200)) < share + rng.normal(0, 0.03, (3, 1))).astype(float)
        entries.append(make_entry(name, {"sst2": answers_SI}))
        board.append(entries[-1])
    return entries[0], entries[1]


@pytest.fixture
def planned(command: Callable[..., Any], tmp_path: Path, runs: Path) -> Callable[..., Any]:
    return lambda *given: command("plan", *REQUEST, "--leaderboard", tmp_path / "board", "--runs", runs, *given)


@pytest.mark.parametrize("likes", [0, 2])
def test_each_choice_is_that_of_the_noise_and_of_the_dry_run(
    likes: int, pilot: tuple[Entry, Entry], planned: Callable[..., Any], runs: Path
) -> None:
    like = [word for entry in pilot[:likes] for word in ("--like", entry.id)]
    done = planned("--detect", "3", "--json", *like)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["metric"], found["detect"], found["target_power"]) == ("sst2/accuracy", 3.0, 0.8)
    assert set(found["noise"]["entries"]) == {entry.id for entry in pilot}
    noise = compare(pilot[0], [pilot[1]], ExamplesReader(runs)).contrasts[0].noise
    assert [choice["examples"] for choice in found["choices"]] == [MOST // part for part in (1, 2, 4, 8)]
    for choice in found["choices"]:
        expected = seeds_needed(noise, 0.03, 3, items=choice["examples"] / 200)
        assert choice["seeds"]["count"] == expected.count
        if expected.count is not None:
            assert choice["trainings"] % expected.count == 0
            assert choice["seconds"] > 0


@pytest.mark.parametrize("newest_model", ["tiny", "other"])
def test_the_noise_is_that_of_the_newest_entries_of_the_model(
    newest_model: str, pilot: tuple[Entry, Entry], make_entry: Callable[..., Entry], command: Any, tmp_path: Path
) -> None:
    board = Leaderboard(tmp_path / "board")
    rng, pairs = np.random.default_rng(7), {}
    for day, model in enumerate(("llama-7b", "llama-7b", newest_model), 1):
        fields = {"model": {"name": model, "source": model}, "recipe": {"name": f"lm-{day}"}}
        for name in ("mle", "emo"):
            answers_SI = rng.integers(0, 2, (3, 200)).astype(float)
            entry = make_entry(name, {"sst2": answers_SI}, created=f"2026-02-0{day}T12:00:00", **fields)
            board.append(entry)
            pairs.setdefault(day, set()).add(entry.id)
    for model, day in (("llama-7b", 2), ("gpt2", 3)):
        words = [model if word == "llama-7b" else word for word in REQUEST]
        done = command(
            "plan", *words, "--leaderboard", board.root, "--runs", tmp_path / "runs", "--detect", "9", "--json"
        )
        assert set(json.loads(done.out)["noise"]["entries"]) == pairs[day]


def test_a_larger_difference_needs_fewer_seeds(pilot: tuple[Entry, Entry], planned: Callable[..., Any]) -> None:
    counts = []
    for detect in (3, 4, 30):
        first = json.loads(planned("--detect", detect, "--json").out)["choices"][0]
        counts.append(first["seeds"]["count"])
    assert counts[0] > counts[1] > counts[2] == 3
    text = planned("--detect", "3").out
    assert f"{counts[0]} seeds" in text
    assert "1,821" in text


def test_examples_that_no_limit_shortens_are_one_choice(
    pilot: tuple[Entry, Entry], planned: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "emobench.cli.plan.make_outline", lambda request, **more: make_outline(replace(request, limit=None), **more)
    )
    (choice,) = json.loads(planned("--detect", "3", "--json").out)["choices"]
    assert choice["examples"] == MOST


def test_too_few_examples_for_a_verdict_end_the_choices(
    pilot: tuple[Entry, Entry], planned: Callable[..., Any]
) -> None:
    *choices, last = json.loads(planned("--detect", "30", "--limit", "30", "--json").out)["choices"]
    assert [choice["examples"] for choice in choices] == [30, 15]
    assert last["seeds"] is None
    assert "10 needed" in " ".join(last["missing"])


def test_what_cannot_be_planned_is_one_sentence(pilot: tuple[Entry, Entry], planned: Callable[..., Any]) -> None:
    for given in (("--detect", "0"), ("--detect", "nan"), ("--detect", "2", "--metric", "mauve")):
        done = planned(*given)
        assert done.code == 2
        assert given[-1] in done.err
        assert "Traceback" not in done.err


@pytest.mark.parametrize("entries", [0, 1])
def test_a_board_without_a_pair_is_told_what_a_plan_needs(
    entries: int, make_entry: Callable[..., Entry], planned: Callable[..., Any], tmp_path: Path
) -> None:
    if entries:
        Leaderboard(tmp_path / "board").append(make_entry("mle", {"sst2": np.ones((3, 20))}))
    done = planned("--detect", "2")
    assert done.code == 2
    for part in (str(tmp_path / "board"), f"{entries} entries", "nlu", "emobench run", "--seed 2", "--like"):
        assert part in done.err
