"""The suite `nlu` end to end, through the command line: train, retrieve, score, record, compare, and reuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SEEDS = ("--seed", 0, "--seed", 1, "--seed", 2)
SMALL = (
    *("--suite", "nlu", "--set", "tasks=sst2,trec", "--limit", 24, "--offline", "--quiet"),
    *("--set", "icl.retriever=bm25", "--set", "icl.shots=3"),
)
TRAINED = (
    *("--set", "corpus=wikitext2", "--set", "recipe.max_length=48", "--set", "recipe.learning_rate=3e-2"),
    *("--set", "recipe.epochs=4", "--set", "recipe.lora=false"),
)
CLASSES = {"sst2": ("negative", "positive"), "trec": ("ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM")}


@pytest.fixture(scope="module")
def job(
    command: Callable[..., Any], byte_model: Path, labelled: Path, small_data: Path, tmp_path_factory: Any
) -> Callable[..., Any]:
    """What runs a command on one folder of runs and one board."""
    folder = tmp_path_factory.mktemp("icl")

    def run(verb: str, *arguments: object, model: bool = True) -> Any:
        given = ("--model", byte_model, "--data-dir", labelled, "--data-dir", small_data) if model else ()
        places = ("--runs", folder / "runs", "--leaderboard", folder / "board")
        return command(verb, *given, *places, *arguments, "--json").ok().json

    run.folder = folder  # type: ignore[attr-defined]
    return run


@pytest.fixture(scope="module")
def untrained(job: Callable[..., Any]) -> dict[str, Any]:
    """The entry of the model as it is."""
    (entry,) = job("evaluate", *SMALL)["entries"]
    return entry


def test_an_entry_has_the_accuracy_of_each_task_and_what_decided_it(untrained: dict[str, Any]) -> None:
    assert set(untrained["protocols"]) == {"sst2", "trec"}
    for task, classes in CLASSES.items():
        accuracy = untrained["metrics"][f"{task}/accuracy"]
        assert accuracy["n"] == 24
        assert 0 <= accuracy["mean"] <= 1
        assert accuracy["mean"] * 24 == pytest.approx(round(accuracy["mean"] * 24), abs=1e-9)
        assert {f"{task}.train", f"{task}.test"} <= set(untrained["provenance"]["data"])
        assert len(classes) in (2, 6)


def test_the_samples_say_how_each_answer_came_about(job: Callable[..., Any], untrained: dict[str, Any]) -> None:
    for file in untrained["runs"][0]["samples"]:
        rows = [json.loads(line) for line in (job.folder / "runs" / file["path"]).read_text().splitlines()]  # type: ignore[attr-defined]
        assert len(rows) == 24
        for row in rows:
            assert len(row["shots"]) == 3
            assert len(set(row["shots"])) == 3
            assert len(row["prompt_nats"]) == len(row["label_nats"]) in (2, 6)


def test_another_rule_of_the_answer_costs_no_forward_pass(job: Callable[..., Any], untrained: dict[str, Any]) -> None:
    generated = {path: path.stat().st_mtime_ns for path in (job.folder / "runs/generate").rglob("*")}  # type: ignore[attr-defined]
    (entry,) = job("evaluate", *SMALL, "--set", "icl.scorer=label_token")["entries"]
    after = {path: path.stat().st_mtime_ns for path in (job.folder / "runs/generate").rglob("*")}  # type: ignore[attr-defined]
    assert after == generated
    assert entry["protocols"]["sst2"] != untrained["protocols"]["sst2"]
    assert entry["id"] != untrained["id"]


def test_objectives_are_trained_once_and_compared_by_task(job: Callable[..., Any], untrained: dict[str, Any]) -> None:
    given = ("--objective", "mle", "--objective", "emo", *SEEDS, *SMALL, *TRAINED)
    entries = job("run", *given)["entries"]
    assert [entry["objective"]["name"] for entry in entries] == ["mle", "emo"]
    assert len(list((job.folder / "runs/train").iterdir())) == 6  # type: ignore[attr-defined]
    assert [entry["id"] for entry in job("run", *given)["entries"]] == [entry["id"] for entry in entries]
    (compared,) = job("compare", "emo", "mle", "--metric", "*", model=False)["comparisons"]
    tested = {contrast["metric"]: contrast["p"] for contrast in compared["contrasts"]}
    names = ("mean", *CLASSES)
    assert {f"{name}/{metric}" for name in names for metric in ("accuracy", "margin")} <= set(tested)
    assert all(tested[f"{name}/margin"] is None for name in names)  # no direction is better, so that nothing is tested
    # Accuracies of so few answers may be equal, which needs no test; the mean calibration errors are not.
    assert 0 <= tested["mean/ece"] <= 1


def test_mmlu_has_the_mean_over_its_subjects_beside_the_share_of_all_questions(
    command: Callable[..., Any], byte_model: Path, tmp_path: Path
) -> None:
    questions = [("law", i) for i in range(5)] + [("virology", i) for i in range(2)]
    for split in ("dev", "test"):
        rows = [
            {"question": f"Q{i}?", "subject": subject, "choices": ["a", "b", "c", "d"], "answer": i % 4}
            for subject, i in questions
        ]
        (tmp_path / f"mmlu.{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    places = ("--runs", tmp_path / "runs", "--leaderboard", tmp_path / "board")
    given = ("--model", byte_model, "--data-dir", tmp_path, "--suite", "nlu", "--set", "tasks=mmlu", "--offline")
    done = command("evaluate", *given, "--set", "icl.shots=0", *places, "--quiet", "--json").ok()
    (entry,) = done.json["entries"]
    shown = command("answers", entry["id"], *places, "--json").json["answers"][0]["table"]
    rates = {row["name"]: (row["n"], row["accuracy"]) for row in shown["per_group"]}
    assert {name: n for name, (n, _) in rates.items()} == {"law": 5, "virology": 2}
    mean = sum(rate for _, rate in rates.values()) / 2
    assert entry["metrics"]["mmlu/group_accuracy"]["mean"] == pytest.approx(mean)
    # A subject is what was sampled: its questions count once.
    for name in ("accuracy", "margin", "group_accuracy"):
        assert entry["metrics"][f"mmlu/{name}"]["units"] == len(rates) < entry["metrics"][f"mmlu/{name}"]["n"]
    assert entry["metrics"]["mmlu/accuracy"]["mean"] == pytest.approx(sum(n * rate for n, rate in rates.values()) / 7)
    printed = command("answers", entry["id"], *places)
    assert f"virology  2  {100 * rates['virology'][1]:.1f} %" in " ".join(printed.out.split("\n")).replace("   ", "  ")
