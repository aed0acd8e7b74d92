"""Results in Python have the numbers that the command line has."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import emobench
from emobench.core.errors import ConfigError, DataError, UnknownNameError

EMO, MLE = "published:emo-table3/llama-7b/emo", "published:emo-table3/llama-7b/mle"


def test_a_board_is_a_frame_of_its_metrics() -> None:
    board = emobench.load_board("published:")
    frame = board.metrics
    assert len(board) > 40
    assert len(frame) == sum(len(entry.metrics) + len(entry.missing) for entry in board.entries)
    chosen = frame[(frame.suite == "emo-table3") & (frame.model == "llama-7b") & (frame.task == "tweet_emotion")]
    by_objective = dict(zip(chosen.objective, chosen["mean"], strict=True))
    assert by_objective["emo"] == pytest.approx(0.656)
    assert "<table" in board._repr_html_()
    assert set(board.runs.columns) == {"id", "objective", "model", "suite", "seed", "key", "metric", "value"}


def test_a_comparison_has_the_rows_of_the_commands_csv(command: Callable[..., Any]) -> None:
    compared = emobench.compare(EMO, MLE)
    rows = list(csv.DictReader(io.StringIO(command("compare", EMO, MLE, "--csv").out)))
    assert list(compared.frame.columns) == list(rows[0])
    assert list(compared.frame.effect) == [float(row["effect"]) for row in rows]
    shown = compared._repr_html_()
    assert "tweet_emotion/accuracy" in shown
    assert "Published rows have no values by seed or example" in shown
    assert list(emobench.compare(EMO, MLE, metrics=["trec/*"]).frame.metric) == ["trec/accuracy"]


def test_text_of_others_is_escaped(tmp_path: Path) -> None:
    for name, value in (("a", 0.5), ("b", 0.25)):
        text = f'{{"results": {{"<i>t</i>": {{"acc,none": {value}}}}}, "model_name": "<b>{name}"}}'
        (tmp_path / f"{name}.json").write_text(text)
    shown = emobench.compare(str(tmp_path / "a.json"), str(tmp_path / "b.json"))._repr_html_()
    assert "<i>" not in shown
    assert "<b>a" not in shown
    assert "&lt;b&gt;a" in shown


def test_mistakes_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        emobench.load_board(tmp_path / "none")
    with pytest.raises(UnknownNameError):
        emobench.compare(EMO, MLE, metrics=["nothing"])
    with pytest.raises(ConfigError, match="nothing to compare with it"):
        emobench.compare(EMO)
    with pytest.raises(UnknownNameError):
        emobench.run("no-such-suite", leaderboard=tmp_path / "board", runs=tmp_path / "runs")


@pytest.mark.slow
def test_a_run_gives_entries_runs_and_examples(small_model: Path, small_data: Path, tmp_path: Path) -> None:
    places = {"leaderboard": tmp_path / "board", "runs": tmp_path / "runs"}
    given = {"model": str(small_model), "data_dirs": [small_data], "limit": 8, "device": "cpu", **places}
    settings = {"generation.max_length": 32, "generation.prefix": 4, "generation.continuation": 8}
    trained = {"recipe.max_length": 32, "recipe.epochs": 1}
    made = emobench.run("lm-quick", ["mle", "emo"], seeds=[0], settings={**settings, **trained}, **given)
    assert [entry.objective.name for entry in made.entries] == ["mle", "emo"]
    loaded = emobench.load_board(places["leaderboard"], runs=places["runs"])
    assert {entry.id for entry in loaded.entries} == {entry.id for entry in made.entries}
    runs, examples = made.runs, made.examples
    assert set(runs.seed) == {0}
    metric = examples.metric.iloc[0]
    mle = examples[(examples.metric == metric) & (examples.objective == "mle")]
    assert len(mle) == made.entries[0].metrics[metric].n
    compared = made.compare("emo", "mle")
    assert set(compared.frame.verdict.dropna()) == {"undetermined"}
    base = emobench.evaluate("lm-quick", settings=settings, **given)
    assert base.entries[0].untrained
