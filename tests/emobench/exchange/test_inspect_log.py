"""Logs of inspect: values by inspect's own rules, one row for each reducer, and samples without a score."""

from __future__ import annotations

import itertools
import json
import math
import random
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from emobench.core.errors import ConfigError, DataError
from emobench.exchange.inspect_log import to_float
from emobench.exchange.result_files import compare_files, read_evaluation
from emobench.leaderboard.stats.compare import Contrast

VALUES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def subsets(values: Sequence[float], k: int, of: Callable[..., bool]) -> float:
    """Return the share of all ways to draw k epochs of which `of` (any, all) is right, counted one by one."""
    return mean([of(value >= 1 for value in drawn) for drawn in itertools.combinations(values, k)])


REDUCERS: dict[str | None, Callable[[Sequence[Any]], float]] = {
    None: lambda values: mean([VALUES[v] for v in values]),
    "mean": lambda values: mean([VALUES[v] for v in values]),
    "median": lambda values: statistics.median([VALUES[v] for v in values]),
    "mode": lambda values: VALUES[statistics.mode(values)],
    "max": lambda values: max(VALUES[v] for v in values),
    "at_least_2": lambda values: float(sum(VALUES[v] >= 1 for v in values) >= 2),
    "pass_at_2": lambda values: subsets([VALUES[v] for v in values], 2, any),
    "pass_k_2": lambda values: subsets([VALUES[v] for v in values], 2, all),
}


def log(path: Path, model: str, rows: Sequence[Sequence[str | None]], **changes: Any) -> str:
    """Write a log of some samples, each with the letters of its epochs; None is an epoch that failed."""
    samples = []
    for number, letters in enumerate(rows):
        for epoch, letter in enumerate(letters, 1):
            asked = number % changes.get("distinct", len(rows))
            sample: dict[str, Any] = {
                "id": number,
                "epoch": epoch,
                "input": f"question {asked}",
                "target": f"x{number}",
            }
            if letter is not None:
                sample["scores"] = {"match": {"value": letter}}
            samples.append(sample)
    scores, reductions = [], []
    for reducer in changes.get("reducers", [None]):
        reduce = REDUCERS.get(reducer, REDUCERS["mean"])
        values = {i: reduce(kept) for i, letters in enumerate(rows) if (kept := [v for v in letters if v is not None])}
        reduced = list(values.values())
        if reducer in changes.get("reduced", REDUCERS):
            of_samples = [{"sample_id": i, "value": value} for i, value in values.items()]
            reductions.append({"scorer": "match", "reducer": reducer, "samples": of_samples})
        metrics = {
            "accuracy": {"name": "accuracy", "value": mean(reduced)},
            "stderr": {"name": "stderr", "value": float(np.std(reduced) / math.sqrt(len(reduced)))},
        }
        score = {"name": "match", "scorer": "match", "reducer": reducer, "metrics": metrics}
        scores.append({**score, "scored_samples": len(reduced)})
    random.Random(model).shuffle(samples)
    content = {
        "version": 2,
        "status": "success",
        "eval": {"task": "arc", "model": f"org/{model}", "config": {"epochs": len(rows[0])}},
        "results": {"total_samples": len(samples), "completed_samples": len(samples), "scores": scores},
        "reductions": reductions,
        "samples": samples,
    }
    content.update(changes.get("content", {}))
    path.write_text(json.dumps(content))
    return str(path)


def drawn(seed: int, epochs: int, letters: str = "CI", n: int = 40) -> list[list[str]]:
    draw = random.Random(seed)
    return [[draw.choice(letters + "C" * seed) for _ in range(epochs)] for _ in range(n)]


def contrasts(files: Sequence[str]) -> dict[str, Contrast]:
    return {contrast.metric: contrast for contrast in compare_files(files).contrasts}


def test_each_reducer_is_a_row_with_its_own_values(tmp_path: Path) -> None:
    rows = drawn(1, 2), drawn(0, 2)
    files = [log(tmp_path / f"{i}.json", f"m{i}", of, reducers=["mean", "max"]) for i, of in enumerate(rows)]
    found = contrasts(files)
    assert found.keys() == {"arc/match,accuracy,mean", "arc/match,accuracy,max"}
    means, largest = ([np.array([REDUCERS[name](v) for v in of]) for of in rows] for name in ("mean", "max"))
    of_means = found["arc/match,accuracy,mean"]
    assert of_means.effect == pytest.approx((means[0] - means[1]).mean())
    assert of_means.p == pytest.approx(stats.ttest_rel(means[0], means[1]).pvalue)
    of_largest = found["arc/match,accuracy,max"]
    assert of_largest.effect == pytest.approx((largest[0] - largest[1]).mean())
    wins, losses = (int((a > b).sum()) for a, b in (largest, largest[::-1]))
    assert of_largest.p == pytest.approx(stats.binomtest(wins, wins + losses).pvalue)
    low, high = of_largest.ci95 or (0.0, 0.0)
    assert low < 0 < of_largest.effect < high, "as its p of more than 5 % says"
    assert {one.items for one in found.values()} == {40}


@pytest.mark.parametrize("reducer", REDUCERS)
def test_values_are_reduced_as_inspect_does(reducer: str | None, tmp_path: Path) -> None:
    rows = drawn(2, 5, "CPIN")
    read = read_evaluation(log(tmp_path / "x.json", "m", rows, reducers=[reducer]))
    (name,) = read.numbers
    assert name == f"arc/match,accuracy{'' if reducer is None else f',{reducer}'}"
    values = [value for value, weight in read.examples[name].examples.values() if weight == 1]
    assert sorted(values) == pytest.approx(sorted(REDUCERS[reducer](letters) for letters in rows))
    assert read.numbers[name].value == pytest.approx(mean(values))


def test_a_reducer_without_its_values_in_the_log_gets_no_verdict_and_says_so(tmp_path: Path) -> None:
    changes = {"reducers": ["mean", "max"], "reduced": []}
    files = [log(tmp_path / f"{i}.json", f"m{i}", drawn(i, 2), **changes) for i in range(2)]
    found = contrasts(files)
    assert found["arc/match,accuracy,mean"].p is not None
    largest = found["arc/match,accuracy,max"]
    assert (largest.verdict, largest.p) == ("undetermined", None)
    assert "max" in (largest.why or "")
    assert "--log_samples" not in (largest.why or "")


def test_values_that_inspect_did_not_reduce_count_once_for_each_epoch(tmp_path: Path) -> None:
    rows = [*drawn(0, 3), *([None, None, "C"] for _ in range(5))]
    kept = [VALUES[letter] for letters in rows for letter in letters if letter is not None]
    scores = [{"name": "match", "scorer": "match", "metrics": {"accuracy": {"value": mean(kept)}}}]
    read = read_evaluation(log(tmp_path / "x.json", "m", rows, content={"results": {"scores": scores}}))
    weights = [weight for _, weight in read.examples["arc/match,accuracy"].examples.values()]
    assert sorted(weights) == [1.0] * 5 + [3.0] * 40


@pytest.mark.parametrize(("samples", "epochs"), [(20, 3), (60, 2)])
def test_the_epochs_of_a_sample_and_samples_with_one_input_are_one_unit(
    samples: int, epochs: int, tmp_path: Path
) -> None:
    """Whatever their targets: here are 20 inputs."""
    rows = [drawn(seed, epochs, n=samples) for seed in range(2)]
    files = [log(tmp_path / f"{i}.json", f"m{i}", of, distinct=20) for i, of in enumerate(rows)]
    (contrast,) = contrasts(files).values()
    scores = [np.array([[VALUES[letter] for letter in letters] for letters in of]) for of in rows]
    means = [of.reshape(samples // 20, 20, epochs).mean(axis=(0, 2)) for of in scores]
    assert (contrast.items, contrast.effect) == (20, pytest.approx((means[0] - means[1]).mean()))


def test_another_solver_is_refused(tmp_path: Path) -> None:
    plans = [{"plan": {"steps": [{"solver": name, "params": {}}]}} for name in ("generate", "chain_of_thought")]
    files = [log(tmp_path / f"{i}.json", f"m{i}", drawn(i, 1), content=plan) for i, plan in enumerate(plans)]
    with pytest.raises(ConfigError, match="solvers"):
        compare_files(files)


def test_several_scorers_and_metrics_have_their_own_values(tmp_path: Path) -> None:
    """A name that two scorers have stands behind that of the scorer."""
    samples, draw = [], random.Random(0)
    for i in range(20):
        scores = {"match": {"value": draw.choice("CI")}, "other": {"value": {"fact": float(i % 3 == 0)}}}
        scores["graded"] = {"value": {"style": draw.random(), "fact": float(i % 2)}}
        samples.append({"id": f"s{i}", "epoch": 1, "input": f"q{i}", "target": "x", "scores": scores})
    of = {("match", "match"): [VALUES[s["scores"]["match"]["value"]] for s in samples]}
    for name, scorer in (("style", "graded"), ("fact", "graded"), ("fact", "other")):
        of[name, scorer] = [s["scores"][scorer]["value"][name] for s in samples]
    scores = [
        {"name": n, "scorer": s, "metrics": {"mean": {"value": mean(v)}, "median": {"value": statistics.median(v)}}}
        for (n, s), v in of.items()
    ]
    content = {"results": {"scores": scores}, "samples": samples}
    read = read_evaluation(log(tmp_path / "x.json", "m", [["C"]], content=content))
    assert len(read.numbers) == 8
    for (name, scorer), values in of.items():
        shown = f"{scorer}.fact" if name == "fact" else name
        found = read.examples[f"arc/{shown},mean"].examples.values()
        assert sorted(value for value, _ in found) == pytest.approx(sorted(values))
        assert "no mean" in read.without[f"arc/{shown},median"]


def test_samples_without_a_score_are_no_part_of_n_and_are_told(tmp_path: Path) -> None:
    rows: list[Sequence[str | None]] = [*drawn(1, 2)]
    rows[3] = rows[17] = [None, None]
    rows[5] = [None, "C"]
    read = read_evaluation(log(tmp_path / "failed.json", "failed", rows))
    (number,) = read.numbers.values()
    assert number.n == 38
    assert len(read.examples["arc/match,accuracy"].examples) == 38
    assert ["2 of 40 samples have no score" in note for note in read.notes] == [True]
    whole = log(tmp_path / "whole.json", "whole", drawn(0, 2))
    remarks = compare_files([str(tmp_path / "failed.json"), whole], anyway=True).remarks
    assert any("2 of 40 samples have no score" in remark for remark in remarks)


def test_a_log_without_samples_is_advised_in_inspects_words(tmp_path: Path) -> None:
    files = [log(tmp_path / f"{i}.json", f"m{i}", drawn(i, 1), content={"samples": None}) for i in range(2)]
    found = compare_files(files)
    assert {one.verdict for one in found.contrasts} == {"undetermined"}
    assert all("--no-log-samples" in (one.why or "") for one in found.contrasts)
    assert [one.n for one in read_evaluation(files[0]).numbers.values()] == [40]


def graded(path: Path, model: str, seed: int, roles: Any, params: Any = None) -> str:
    """Write a log whose answers a model graded."""
    name = log(path, model, drawn(seed, 1))
    content = json.loads(path.read_text())
    content["eval"]["model_roles"] = roles
    content["results"]["scores"][0] |= {"scorer": "inspect_ai/model_graded_qa", "params": params}
    for sample in content["samples"]:
        sample["scores"] = {"inspect_ai/model_graded_qa": sample["scores"]["match"]}
    path.write_text(json.dumps(content))
    return name


def test_answers_that_other_models_graded_are_not_compared(tmp_path: Path) -> None:
    roles = [{"grader": {"model": "org/strict", "args": {"x": 1}}}, {"grader": {"model": "org/lenient"}}]
    files = [graded(tmp_path / f"{i}.json", f"m{i}", i, role) for i, role in enumerate(roles)]
    with pytest.raises(ConfigError, match="org/strict"):
        compare_files(files)
    same = [graded(tmp_path / f"{i}.json", f"m{i}", i, roles[0]) for i in range(2)]
    found = compare_files(same)
    assert [one.verdict for one in found.contrasts] == ["better" if found.contrasts[0].effect > 0 else "worse"]
    assert found.remarks == ()


@pytest.mark.parametrize(("params", "told"), [(None, True), ({"model": "org/judge"}, False)])
def test_models_that_graded_themselves_are_told(params: Any, told: bool, tmp_path: Path) -> None:
    """A scorer without a model of its own asks the model that is evaluated."""
    files = [graded(tmp_path / f"{i}.json", f"m{i}", i, None, params) for i in range(2)]
    remarks = compare_files(files).remarks
    assert [all(text in remark for text in ("grader", "org/m0", "org/m1")) for remark in remarks] == [True] * told


@pytest.mark.parametrize(
    ("task", "model", "alike"),
    [
        ({"temperature": 1.0}, {}, False),
        ({}, {"temperature": 1.0}, False),
        ({"temperature": 0.5}, {"temperature": 1.0}, True),
        ({"temperature": 0.5, "max_connections": 20, "max_retries": 3, "extra_headers": {"key": "x"}}, {}, True),
    ],
)
def test_settings_of_a_generation_that_change_answers_are_refused(
    task: dict[str, Any], model: dict[str, Any], alike: bool, tmp_path: Path
) -> None:
    evaluation = {"task": "arc", "model": "org/x", "config": {"epochs": 1}, "model_generate_config": model}
    other = log(tmp_path / "y.json", "y", drawn(1, 1), content={"plan": {"config": {"temperature": 0.5}}})
    given = log(tmp_path / "x.json", "x", drawn(0, 1), content={"plan": {"config": task}, "eval": evaluation})
    found = compare_files([given, other], anyway=True).contrasts
    assert [one.verdict is not None for one in found] == [alike]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *VALUES.items(),
        *(("c", None), ("yes", 1.0), ("True", 1.0), ("NO", 0.0), ("false", 0.0), (True, 1.0), (False, 0.0)),
        *(("0.25", 0.25), (" 3 ", 3.0), ("nan", None), ("inf", None), (math.nan, None), (3, 3.0), ("X", None)),
        *((None, None), ([1], None), ({"a": 1}, None), ("", None), (10**400, None)),
    ],
)
def test_a_value_counts_as_inspect_counts_it(value: Any, expected: float | None) -> None:
    assert to_float(value) == expected


@pytest.mark.parametrize(
    ("name", "scorer", "metric", "values", "expected"),
    [
        ("match", "match", "accuracy", [1, 0], True),
        ("anything", "anything", "mean", ["C", "N"], True),
        ("style", "style", "mean", ["C", 0.25], None),
        ("style", "style", "mean", ["C", "yes"], None),
        ("style", "style", "mean", [None, None], None),
        ("style", "f1", "mean", [0.5, 0.25], True),
        ("f1", "style", "mean", [0.5, 0.25], True),
        ("perplexity", "perplexity", "mean", [5.5, 3.25], False),
        ("perplexity", "perplexity", "perplexity_per_token", [5.5, 3.25], False),
        ("toxicity", "toxicity", "mean", [0.5, 0.25], None),
        ("f1", "f1", "median", [0.5, 0.25], None),
    ],
)
def test_the_direction_of_a_number_follows_from_names_or_grades(
    name: str, scorer: str, metric: str, values: list[Any], expected: bool | None, tmp_path: Path
) -> None:
    samples = [{"id": i, "input": f"q{i}", "scores": {scorer: {"value": value}}} for i, value in enumerate(values)]
    scores = [{"name": name, "scorer": scorer, "metrics": {metric: {"value": 0.5}}}]
    content = {"results": {"scores": scores}, "samples": samples}
    read = read_evaluation(log(tmp_path / "x.json", "m", [["C"]], content=content))
    assert [one.higher_is_better for one in read.numbers.values()] == [expected]


def test_arguments_of_the_model_are_reported(tmp_path: Path) -> None:
    given = {"model_path": "/a/m", "enable_thinking": True, "device": "cpu"}
    files = []
    for i, args in enumerate((given, {**given, "model_path": "/b/m"}, {})):
        content = {"eval": {"task": "arc", "model": "hf/local", "model_args": args}}
        files.append(log(tmp_path / f"{i}.json", "m", drawn(i, 1), content=content))
    found = compare_files(files)
    assert ["run alike: enable_thinking True and none." in remark for remark in found.remarks] == [True, True]
    assert len({one.model.name for one in (*found.candidates, found.baseline)}) == 3
    assert read_evaluation(files[0]).variant != read_evaluation(files[1]).variant


@pytest.mark.parametrize(
    ("metric", "value", "error", "unit", "expected"),
    [
        ("accuracy", 0.5, 0.1, "fraction", (0.5 - 1.959964 * 0.1, 0.5 + 1.959964 * 0.1)),
        ("accuracy", 0.9, 0.1, "fraction", (0.9 - 1.959964 * 0.1, 1.0)),
        ("accuracy", 0.1, 0.1, "fraction", (0.0, 0.1 + 1.959964 * 0.1)),
        ("accuracy", 0.0, 0.1, "fraction", (0.0, 1.959964 * 0.1)),
        ("accuracy", 1.0, 0.1, "fraction", (1 - 1.959964 * 0.1, 1.0)),
        ("accuracy", 7.5, 0.5, "score", (7.5 - 1.959964 * 0.5, 7.5 + 1.959964 * 0.5)),
        ("accuracy", 1.5, 0.5, "score", (1.5 - 1.959964 * 0.5, 1.5 + 1.959964 * 0.5)),
        ("accuracy", -1.0, 0.5, "score", (-1 - 1.959964 * 0.5, -1 + 1.959964 * 0.5)),
        ("mean", 0.5, 2.0, "score", (0.5 - 1.959964 * 2, 0.5 + 1.959964 * 2)),
        ("mean", 0.5, 0.0, "score", None),
        ("median", 0.5, 2.0, "score", None),
    ],
)
def test_units_and_intervals_of_a_log(
    metric: str, value: float, error: float, unit: str, expected: tuple[float, float] | None, tmp_path: Path
) -> None:
    metrics = {metric: {"value": value}, "stderr": {"value": error}}
    content = {"results": {"scores": [{"name": "match", "scorer": "match", "metrics": metrics}]}}
    (found,) = read_evaluation(log(tmp_path / "x.json", "m", [["C"]], content=content)).numbers.values()
    assert (found.value, found.unit) == (value, unit)
    assert found.interval == (None if expected is None else pytest.approx(expected, abs=1e-6))


def test_a_reduction_of_an_absent_sample_gives_no_examples(tmp_path: Path) -> None:
    rows = drawn(0, 2, n=10)
    values = [REDUCERS["mean"](letters) for letters in rows]
    reduced = [{"sample_id": i, "value": value} for i, value in enumerate([*values, 1.0])]
    reductions = [{"scorer": "match", "reducer": "mean", "samples": reduced}]
    metrics = {"accuracy": {"value": mean([*values, 1.0])}}
    scores = [{"name": "match", "scorer": "match", "reducer": "mean", "metrics": metrics}]
    content = {"reductions": reductions, "results": {"scores": scores}}
    read = read_evaluation(log(tmp_path / "x.json", "m", rows, content=content))
    assert read.examples == {}
    assert read.without == {"arc/match,accuracy,mean": "it is no mean of its samples"}


def test_the_order_of_keys_makes_no_difference(tmp_path: Path) -> None:
    files = []
    for i, turn in enumerate((dict, lambda given: dict(reversed(given.items())))):
        given = turn({"a": 1, "b": 2})
        scores = [{"name": "match", "scorer": "match", "params": given, "metrics": {"accuracy": {"value": 0.5}}}]
        samples = [
            {"id": j, "input": f"q{j}", "target": "x", "files": given, "scores": {"match": {"value": "CI"[j % 2]}}}
            for j in range(20)
        ]
        content = {
            "eval": {"task": "arc", "model": f"m{i}", "task_args": given},
            "plan": {"steps": [{"solver": "generate", "params": given}], "config": given},
            "results": {"scores": scores},
            "samples": samples,
        }
        files.append(log(tmp_path / f"{i}.json", f"m{i}", [["C"]], content=content))
    assert [one.items for one in contrasts(files).values()] == [20]


@pytest.mark.parametrize(
    "content",
    [
        {"status": "error"},
        {"status": "cancelled"},
        {"invalidated": True},
        {"status": "error", "invalidated": True},
        {"samples": [{"id": 1}]},
        {"samples": [{"input": "q"}]},
        *({"samples": [{"id": 1, "epoch": epoch, "input": "q"}]} for epoch in ([], "1", None, 1.5)),
        {"eval": {"model": "m"}},
        {"eval": []},
    ],
)
def test_a_log_that_is_not_whole_is_refused(content: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataError):
        read_evaluation(log(tmp_path / "x.json", "m", [["C"]], content=content))
