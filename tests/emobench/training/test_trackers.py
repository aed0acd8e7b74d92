"""Trackers hear of a training and of its results through transformers' callbacks, and cost neither when they fail."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import TrainerCallback
from transformers.integrations import integration_utils

from emobench.training.trackers import TENSORBOARD, Tracking, report_metrics
from emobench.training.train import train, training_arguments

Heard = list[tuple[str, int, dict[str, float]]]
"""Event, optimizer step, what was logged."""


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    """What a tracker called `recorder` is told."""
    told: Heard = []

    class RecorderCallback(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            told.append((f"begin {args.run_name} {args.project}", state.global_step, {}))

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            told.append(("log", state.global_step, dict(logs)))

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            told.append(("end", state.global_step, {}))

    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "recorder", RecorderCallback)
    return told


@pytest.fixture
def tracking(tmp_path: Path) -> Callable[..., tuple[Tracking, list[str]]]:
    def make(*trackers: str) -> tuple[Tracking, list[str]]:
        said: list[str] = []
        return Tracking(trackers=trackers, name="tiny-mle-seed0", folder=tmp_path / "curves", warn=said.append), said

    return make


def test_a_tracker_hears_each_step_of_the_log(
    kit: SimpleNamespace, tmp_path: Path, heard: Heard, tracking: Callable[..., tuple[Tracking, list[str]]]
) -> None:
    follower, said = tracking("recorder")
    train(kit.job(tmp_path / "job", tracking=follower))
    assert heard[0][0] == "begin tiny-mle-seed0 emobench"
    assert heard[-1][0] == "end"
    losses = {step: logs["loss"] for event, step, logs in heard if "loss" in logs}
    assert losses == {line["step"]: line["loss"] for line in kit.log_of(tmp_path / "job") if "loss" in line}
    assert sorted(losses) == [1, 2, 3]
    assert any("eval_mle" in logs for _, _, logs in heard)
    assert said == []


@pytest.mark.parametrize("event", ["on_train_begin", "on_log"])
def test_a_tracker_that_fails_costs_no_training(
    event: str,
    kit: SimpleNamespace,
    tmp_path: Path,
    heard: Heard,
    tracking: Callable[..., tuple[Tracking, list[str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError("no route\nto host")

    recorder = integration_utils.INTEGRATION_TO_CALLBACK["recorder"]
    follower, said = tracking("recorder")
    train(kit.job(tmp_path / "alone"))
    monkeypatch.setattr(recorder, event, fail)
    train(kit.job(tmp_path / "tracked", tracking=follower))
    assert kit.difference(kit.saved(tmp_path / "tracked"), kit.saved(tmp_path / "alone")) == 0
    expected = "--track recorder: it failed and is not called again (ConnectionError: no route to host)."
    assert [text[: len(expected)] for text in said] == [expected]


def test_without_a_tracker_the_environment_turns_none_on(
    kit: SimpleNamespace, tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        *["WANDB_PROJECT", "WANDB_API_KEY", "COMET_API_KEY", "MLFLOW_TRACKING_URI", "TRACKIO_PROJECT"],
        TENSORBOARD,
    ):
        monkeypatch.setenv(name, "x")
    job = kit.job(tmp_path / "job")
    assert training_arguments(job, tmp_path).report_to == []
    train(job)
    assert heard == []
    assert {path.name for path in tmp_path.iterdir()} == {"job"}


def test_final_metrics_are_told_as_evaluations(
    heard: Heard, tracking: Callable[..., tuple[Tracking, list[str]]]
) -> None:
    follower, said = tracking("recorder")
    report_metrics(follower, {"lm/ppl_test": 12.5, "lm/mauve": 0.5}, step=3, device="cpu")
    assert heard == [
        ("begin tiny-mle-seed0 emobench", 3, {}),
        ("log", 3, {"eval_lm/ppl_test": 12.5, "eval_lm/mauve": 0.5}),
        ("end", 3, {}),
    ]
    assert said == []


def test_the_metrics_of_a_training_continue_its_run(
    tracking: Callable[..., tuple[Tracking, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def search_runs(filter_string: str, **_: Any) -> list[Any]:
        asked.append(filter_string)
        return [SimpleNamespace(info=SimpleNamespace(run_id="abc"))] if len(asked) > 1 else []

    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(search_runs=search_runs))
    monkeypatch.setenv("WANDB_RUN_ID", "mine")
    names = ("WANDB_RUN_ID", "WANDB_RESUME", "WANDB_PROJECT", "MLFLOW_RUN_ID")
    follower, said = tracking("mlflow", "wandb")
    seen = []
    for _ in range(2):
        with follower.followed():
            seen.append([os.environ.get(name) for name in names])
    (run, *wandb, none), (again, *_, found) = seen
    assert run == again != "mine"
    assert (wandb, none, found) == (["allow", "emobench"], None, "abc")
    assert asked == [f"attributes.run_name = '{follower.name}'"] * 2
    assert os.environ["WANDB_RUN_ID"] == "mine"
    other = replace(follower, name="tiny-mle-seed1")
    with other.followed():
        assert os.environ["WANDB_RUN_ID"] != run

    def unreachable(**_: Any) -> None:
        raise ConnectionError

    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(search_runs=unreachable))
    with follower.followed():
        assert "MLFLOW_RUN_ID" not in os.environ
    assert len(said) == 1


def test_the_place_of_tensorboard_is_given_back(
    tracking: Callable[..., tuple[Tracking, list[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower, _ = tracking("tensorboard")
    monkeypatch.delenv(TENSORBOARD, raising=False)
    with follower.followed():
        assert os.environ[TENSORBOARD] == str(tmp_path / "curves" / "tiny-mle-seed0")
    assert TENSORBOARD not in os.environ
    monkeypatch.setenv(TENSORBOARD, "/mine")
    with follower.followed():
        assert os.environ[TENSORBOARD] == "/mine/tiny-mle-seed0"
    assert os.environ[TENSORBOARD] == "/mine"
