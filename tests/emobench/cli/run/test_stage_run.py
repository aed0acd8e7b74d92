"""`emobench stage run KEY`: a planned stage is made from its file alone, and refused where its key would be another."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import ConfigError
from emobench.runs.planning.rebuild import describe, find_stage
from emobench.runs.planning.request import Request
from emobench.runs.stages.stage import PLANNED, Stages

SMALL = (
    *("--suite", "lm-quick", "--limit", 8, "--offline", "--quiet", "--objective", "mle", "--seed", 0),
    *("--set", "generation.max_length=32", "--set", "generation.prefix=4", "--set", "generation.continuation=8"),
    *("--set", "mauve.seeds=[0]", "--set", "recipe.max_length=32", "--set", "recipe.max_tokens=1024"),
)
MADE = ("train", "generate", "score")


@pytest.fixture(scope="module")
def finished(
    command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The runs of a whole run; beside them a copy of the descriptions, which are removed as stages are completed."""
    runs = tmp_path_factory.mktemp("whole") / "runs"

    def describe_and_copy(*given: Any) -> None:
        describe(*given)
        if (runs / PLANNED).is_dir():
            shutil.copytree(runs / PLANNED, runs.with_name(PLANNED))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("emobench.runs.run.describe", describe_and_copy)
        places = ("--runs", runs, "--leaderboard", runs.with_name("board"))
        done = command("run", "--model", small_model, "--data-dir", small_data, *SMALL, *places)
    assert done.code == 0, done.err
    return runs


@pytest.fixture
def planned(finished: Path, tmp_path: Path) -> Path:
    """The same runs before anything was made: descriptions alone."""
    shutil.copytree(finished.with_name(PLANNED), tmp_path / "runs" / PLANNED)
    return tmp_path / "runs"


def keys(finished: Path) -> dict[str, str]:
    """Return the key of each kind of stage."""
    return {kind: next((finished / kind).glob("*/stage.json")).parent.name for kind in MADE}


def test_descriptions_are_there_before_the_work_and_gone_with_its_completion(finished: Path, planned: Path) -> None:
    said = {path.stem: json.loads(path.read_text())["kind"] for path in (planned / PLANNED).iterdir()}
    assert said == {key: kind for kind, key in keys(finished).items()}
    assert list((finished / PLANNED).iterdir()) == []


@pytest.mark.parametrize("kind", MADE)
def test_a_stage_is_made_with_what_it_needs_and_no_more(
    kind: str, command: Callable[..., Any], finished: Path, planned: Path
) -> None:
    key = keys(finished)[kind]
    done = command("stage", "run", key[:12], "--runs", planned, "--quiet", "--json")
    assert done.code == 0, done.err
    assert done.json == {"kind": kind, "key": key, "folder": str(planned.resolve() / kind / key)}
    needed = MADE[: MADE.index(kind) + 1]
    assert [name for name in MADE if (planned / name).exists()] == list(needed)
    for name in needed:
        facts = [(runs / name / keys(finished)[name] / "stage.json").read_bytes() for runs in (finished, planned)]
        assert facts[0] == facts[1]
    times = {path: path.stat().st_mtime_ns for path in planned.rglob("*") if path.is_file()}
    again = command("stage", "run", key, "--runs", planned, "--quiet")
    assert (again.code, again.out) == (0, f"{planned.resolve() / kind / key}\n")
    assert times == {path: path.stat().st_mtime_ns for path in planned.rglob("*") if path.is_file()}


def test_the_weights_and_scores_are_those_of_the_run(
    command: Callable[..., Any], finished: Path, planned: Path
) -> None:
    known = keys(finished)
    assert command("stage", "run", known["score"], "--runs", planned, "--quiet").code == 0
    weights, samples = "train/{train}/model/model.safetensors", "generate/{generate}/samples.jsonl"
    for file in (weights, samples, "score/{score}/examples.jsonl"):
        assert (planned / file.format(**known)).read_bytes() == (finished / file.format(**known)).read_bytes()


def test_another_key_is_refused_by_what_differs(
    command: Callable[..., Any], finished: Path, planned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib.metadata import version

    monkeypatch.setattr(
        "emobench.core.versions.version", lambda name: "99.0.1" if name == "transformers" else version(name)
    )
    key = keys(finished)["train"]
    done = command("stage", "run", key, "--runs", planned)
    assert (done.code, done.out) == (2, "")
    minor = ".".join(version("transformers").split(".")[:2])
    assert f"Stage {key} (train) cannot be made here: packages.transformers is 99.0 here, and was {minor}." in done.err
    assert "plan it again with: emobench run --model" in done.err
    assert not (planned / "train").exists()


def test_a_description_that_was_altered_is_refused(command: Callable[..., Any], finished: Path, planned: Path) -> None:
    path = planned / PLANNED / f"{keys(finished)['train']}.json"
    content = json.loads(path.read_text())
    content["facts"]["seed"] = 1
    path.write_text(json.dumps(content))
    done = command("stage", "run", path.stem, "--runs", planned)
    assert done.code != 0
    assert f"{path} was altered" in done.err


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("0" * 16, "0 stages"),
        ("*", "expected the key of a stage, 16 digits from 0 to f"),
    ],
)
def test_a_key_that_means_nothing_is_refused(key: str, said: str, command: Callable[..., Any], tmp_path: Path) -> None:
    done = command("stage", "run", key, "--runs", tmp_path)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_a_finished_stage_is_found_without_its_description(finished: Path, tmp_path: Path) -> None:
    """As in the runs of earlier versions."""
    key = keys(finished)["score"]
    shutil.copytree(finished / "score" / key, tmp_path / "score" / key)
    stage, description = find_stage(tmp_path, key[:8])
    assert (stage.kind, stage.key, description) == ("score", key, None)
    for name in sorted({"a", "b", "c"} - {key[15:]})[:2]:
        (tmp_path / "train" / f"{key[:15]}{name}").mkdir(parents=True)
        (tmp_path / "train" / f"{key[:15]}{name}" / "stage.json").write_text("{}")
    with pytest.raises(ConfigError, match="3 stages"):
        find_stage(tmp_path, key[:4])


def test_a_description_that_a_power_failure_left_empty_is_written_anew(finished: Path, tmp_path: Path) -> None:
    stage, _ = find_stage(finished, keys(finished)["train"])
    stage.described = True
    stages, request = Stages(tmp_path / "runs"), Request(suite="lm-quick")
    describe([stage], request, stages)
    path = tmp_path / "runs" / PLANNED / f"{stage.key}.json"
    written = path.read_text()
    path.write_text("")
    describe([stage], request, stages)
    assert path.read_text() == written
    assert find_stage(tmp_path / "runs", stage.key)[0].key == stage.key
