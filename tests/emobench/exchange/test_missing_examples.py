"""Result files that each lack some examples are compared on the common ones, in the units of all examples."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emobench.core.errors import ConfigError
from emobench.exchange.result_files import compare_files
from emobench.leaderboard.stats.compare import Contrast

N = 60
VALUES = {name: np.random.default_rng(seed).normal(seed * 0.3, 1, N) for seed, name in enumerate(("before", "after"))}
"""Of the examples of each model. Two examples are about one passage."""
Write = Callable[[Path, str, list[int]], str]


def lm_eval(root: Path, model: str, kept: list[int]) -> str:
    folder = root / model
    folder.mkdir()
    rows = [
        {"doc_id": place, "doc": {"passage": f"text {i // 2}", "question": i}, "doc_hash": f"{i:064}"}
        | {"prompt_hash": f"p{i}", "target_hash": "t", "metrics": ["score"], "score": VALUES[model][i]}
        for place, i in enumerate(kept)
    ]
    (folder / "samples_a_1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    mean = math.fsum(row["score"] for row in rows) / len(rows)
    content = {"results": {"a": {"score,none": mean}}, "model_name": model, "higher_is_better": {"a": {"score": True}}}
    (folder / "results_1.json").write_text(json.dumps(content))
    return str(folder)


def inspect(root: Path, model: str, kept: list[int]) -> str:
    samples = [
        {"id": place, "epoch": 1, "input": f"text {i // 2}", "target": f"target {i}"}
        | {"scores": {"reward": {"value": VALUES[model][i]}}}
        for place, i in enumerate(kept)
    ]
    mean = float(np.mean(VALUES[model][kept]))
    score = {"name": "reward", "scorer": "reward", "metrics": {"mean": {"name": "mean", "value": mean}}}
    content = {"version": 2, "status": "success", "eval": {"task": "a", "model": model, "config": {}}}
    path = root / f"{model}.json"
    path.write_text(json.dumps({**content, "results": {"scores": [score]}, "samples": samples}))
    return str(path)


def every_eval_ever(root: Path, model: str, kept: list[int]) -> str:
    config = {"metric_name": "score", "metric_unit": "points", "lower_is_better": False}
    details = {"score": float(np.mean(VALUES[model][kept]))}
    result = {"evaluation_name": "a", "metric_config": config, "score_details": details, "source_data": {}}
    rows: list[dict[str, Any]] = [
        {"evaluation_name": "a", "sample_id": str(place), "evaluation": {"score": VALUES[model][i]}}
        | {"input": {"raw": f"text {i // 2}", "reference": [f"target {i}"]}}
        for place, i in enumerate(kept)
    ]
    path = root / f"{model}.json"
    content = {"schema_version": "0.3.0", "evaluation_results": [result], "model_info": {"id": model}}
    path.write_text(json.dumps(content))
    (root / f"{model}_samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def compared(write: Write, root: Path, ours: Collection[int], theirs: Collection[int]) -> Contrast:
    root.mkdir()
    lacking = {"after": ours, "before": theirs}
    files = [write(root, name, [i for i in range(N) if i not in lacking[name]]) for name in lacking]
    (contrast,) = compare_files(files)[0].contrasts
    return contrast


@pytest.mark.parametrize("write", [lm_eval, inspect, every_eval_ever])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [((3,), ()), ((), (3,)), ((3,), (8, 21)), ((3, 8, 21), (40, 41, 50)), ((0, 1), (58, 59))],
)
def test_the_examples_that_both_files_have_are_compared(
    write: Write, ours: tuple[int, ...], theirs: tuple[int, ...], tmp_path: Path
) -> None:
    found = compared(write, tmp_path / "some", ours, theirs)
    gone = {*ours, *theirs}
    expected = compared(write, tmp_path / "both", gone, gone)
    kept = [i for i in range(N) if i not in gone]
    assert found.effect == pytest.approx(np.mean(VALUES["after"][kept] - VALUES["before"][kept]))
    assert (found.items, found.common_examples, found.all_examples) == (len({i // 2 for i in kept}), len(kept), N)
    assert expected.common_examples is None
    assert (found.p, found.ci95) == (pytest.approx(expected.p), pytest.approx(expected.ci95))


@pytest.mark.parametrize("write", [lm_eval, inspect, every_eval_ever])
@pytest.mark.parametrize(("ours", "theirs"), [((1, 2, 3, 4), ()), ((0,), (1, 2, 3, 4)), (range(30), range(30, N))])
def test_many_missing_examples_are_refused(
    write: Write, ours: Collection[int], theirs: Collection[int], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="examples"):
        compared(write, tmp_path / "some", ours, theirs)


def grouped(root: Path, model: str, lacking: int) -> str:
    """Write a group of a small and a large task; the first examples of the small one are missing."""
    folder = root / model
    folder.mkdir()
    numbers, values = {}, []
    for task, (first, count) in {"small": (lacking, 10), "large": (10, 50)}.items():
        of_task = {i: VALUES[model][i] for i in range(first, 10 if task == "small" else 10 + count)}
        rows = [
            {"doc_id": i, "doc": f"{task}{i}", "score": value, "metrics": ["score"]} for i, value in of_task.items()
        ]
        (folder / f"samples_{task}_1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        numbers[task] = {"score,none": math.fsum(of_task.values()) / len(rows)}
        values += of_task.values()
    numbers["both"] = {"score,none": math.fsum(values) / len(values)}
    content = {"results": numbers, "model_name": model, "group_subtasks": {"both": ["small", "large"]}}
    content["higher_is_better"] = {name: {"score": True} for name in numbers}
    (folder / "results_1.json").write_text(json.dumps(content))
    return str(folder)


def test_the_examples_of_a_group_are_counted_together(tmp_path: Path) -> None:
    files = [grouped(tmp_path, "after", 1), grouped(tmp_path, "before", 0)]
    found = {one.metric: one for one in compare_files(files, anyway=True)[0].contrasts}
    assert (found["both/score"].common_examples, found["both/score"].all_examples) == (59, 60)
    assert found["both/score"].effect == pytest.approx(np.mean(VALUES["after"][1:] - VALUES["before"][1:]))
    assert found["large/score"].p is not None
    assert found["small/score"].p is None
    assert "1 of 10 examples" in (found["small/score"].why or "")
