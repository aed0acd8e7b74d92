"""`--track`, with a real tracker: curves and final metrics arrive, and what it cannot take loses no entry."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
SMALL = (
    *("--suite", "lm-quick", "--limit", "30", "--offline", "--objective", "mle", "--seed", "0", "--json"),
    *("--set", "generation.max_length=32", "--set", "generation.prefix=4", "--set", "generation.continuation=8"),
    *("--set", "mauve.seeds=[0]", "--set", "recipe.max_length=32"),
)


@pytest.fixture
def run(
    command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    pytest.importorskip("tensorboard")
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)

    def start(*given: object) -> Any:
        places = ("--runs", tmp_path / "runs", "--leaderboard", tmp_path / "board")
        return command("run", *SMALL, "--model", small_model, "--data-dir", small_data, *places, *given)

    return start


def curves(folder: Path) -> dict[str, dict[int, float]]:
    """Return what tensorboard reads of its one run: tag -> step -> value."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: {e.step: e.value for e in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


def test_curves_and_final_metrics_arrive(run: Callable[..., Any], tmp_path: Path) -> None:
    done = run("--track", "tensorboard").ok()
    (entry,) = done.json["entries"]
    written = tmp_path / "runs" / "tensorboard"
    (folder,) = written.iterdir()
    assert folder.name.startswith("small-mle-seed0-")
    found = curves(folder)
    (log,) = (tmp_path / "runs" / "train").glob("*/log.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert found["train/loss"] == pytest.approx({line["step"]: line["loss"] for line in lines if "loss" in line})
    assert found["eval/mle"] == pytest.approx({line["step"]: line["eval_mle"] for line in lines if "eval_mle" in line})
    selected = json.loads(log.with_name("training.json").read_text())["selected_step"]
    for name, metric in entry["metrics"].items():
        assert found[f"eval/{name}"] == pytest.approx({selected: metric["mean"]})


def test_metrics_arrive_also_where_everything_was_finished_before(run: Callable[..., Any], tmp_path: Path) -> None:
    before = run().json["entries"]
    assert not (tmp_path / "runs" / "tensorboard").exists()
    done = run("--track", "tensorboard", "--objective", "pretrained")
    assert done.json["entries"][0] == before[0]
    folders = sorted((tmp_path / "runs" / "tensorboard").iterdir())
    found = {folder.name.rpartition("-")[0]: curves(folder) for folder in folders}
    assert list(found) == ["small-mle-seed0", "small-pretrained"]
    for entry, name in zip(done.json["entries"], found, strict=True):
        assert set(found[name]) == {f"eval/{metric}" for metric in entry["metrics"]}


def test_a_tracker_that_cannot_write_loses_nothing(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_text("no folder")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "taken"))
    done = run("--track", "tensorboard").ok()
    assert len(done.json["entries"]) == 1
    assert len(list((tmp_path / "board" / "lm-quick-v1").iterdir())) == 1
    # Once for the training, once for its metrics.
    assert done.err.count("--track tensorboard: it failed and is not called again") == 2
    assert "Traceback" not in done.err
