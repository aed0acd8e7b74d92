"""Entries become records of Every Eval Ever that its schemas accept; records with instances are compared."""

from __future__ import annotations

import importlib.util
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from scipy import stats

from emobench.errors import ConfigError, DataError
from emobench.leaderboard.exchange.every_eval_ever import record
from emobench.leaderboard.exchange.result_files import compare_files
from emobench.leaderboard.query.references import select

ROWS = "published:emo-table3/llama-7b/emo", "published:emo-table1"


def schema(name: str) -> dict[str, Any]:
    found = importlib.util.find_spec("every_eval_ever")
    if found is None or found.origin is None:
        pytest.skip("the package every-eval-ever (Python 3.12) is not installed: its schema cannot be asked")
    return json.loads((Path(found.origin).parent / "schemas" / f"{name}.schema.json").read_text())


@pytest.mark.parametrize("rows", ROWS)
def test_the_schema_accepts_entries(rows: str, tmp_path: Path) -> None:
    accepted = schema("eval")
    for entry in select(rows, tmp_path):
        jsonschema.validate(record(entry), accepted)


def test_every_number_is_there(tmp_path: Path) -> None:
    (entry,) = select(ROWS[0], tmp_path)
    found = record(entry)
    scores = {
        f"{r['evaluation_name']}/{r['metric_config']['metric_id']}": r["score_details"]["score"]
        for r in found["evaluation_results"]
    }
    assert scores == {name: metric.mean for name, metric in entry.metrics.items()}
    assert {r["metric_config"]["lower_is_better"] for r in found["evaluation_results"]} == {False}
    assert found["model_info"]["additional_details"]["objective"] == "emo"


def written(folder: Path, model: str, scores: list[int], **changes: Any) -> str:
    """Write a record and its instances, in another order for each model."""
    result = {
        "evaluation_result_id": "arc#accuracy",
        "evaluation_name": "arc",
        "source_data": {"dataset_name": "arc", "source_type": "other"},
        "metric_config": {"metric_name": "accuracy", "metric_unit": "proportion", "lower_is_better": False}
        | {"score_type": "continuous", "min_score": 0, "max_score": 1},
        "score_details": {"score": float(np.mean(scores)), "uncertainty": {"num_samples": len(scores)}},
    }
    content = {
        "schema_version": changes.get("version", "0.3.0"),
        "evaluation_id": f"arc/{model}/0",
        "retrieved_timestamp": "0",
        "source_metadata": {"source_type": "evaluation_run", "source_organization_name": "x"}
        | {"evaluator_relationship": "other"},
        "model_info": {"name": model, "id": f"org/{model}"}
        | {"additional_details": {"deployment_type": "unknown", "model_availability": "unknown"}},
        "eval_library": {"name": "lm_eval", "version": "0.4.13"},
        "evaluation_results": [result],
    }
    rows = [
        {
            "schema_version": "0.3.0",
            "evaluation_id": f"arc/{model}/0",
            "model_id": f"org/{model}",
            "evaluation_name": "arc",
            "evaluation_result_id": "arc#accuracy",
            "sample_id": str(i),
            "interaction_type": "single_turn",
            "input": {"raw": f"question {i}", "reference": [changes.get("reference", "x")]},
            "output": {"raw": ["x"]},
            "answer_attribution": [],
            "evaluation": {"score": score, "is_correct": bool(score)},
        }
        for i, score in enumerate(scores)
    ]
    random.Random(model).shuffle(rows)
    folder.mkdir(exist_ok=True)
    path = folder / f"{model}.json"
    path.write_text(json.dumps(content))
    (folder / f"{model}_samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


SCORES = [1] * 14 + [0] * 6, [1] * 4 + [0] * 16


def test_records_are_compared_example_by_example(tmp_path: Path) -> None:
    files = [written(tmp_path, name, scores) for name, scores in zip("xy", SCORES, strict=True)]
    (contrast,) = compare_files(files)[0].contrasts
    assert (contrast.metric, contrast.items, contrast.unit) == ("arc/accuracy", 20, "fraction")
    assert contrast.p == pytest.approx(stats.binomtest(10, 10).pvalue)
    assert contrast.verdict == "better"


def test_the_schemas_accept_what_is_compared_here(tmp_path: Path) -> None:
    path = Path(written(tmp_path, "x", SCORES[0]))
    jsonschema.validate(json.loads(path.read_text()), schema("eval"))
    for line in (tmp_path / "x_samples.jsonl").read_text().splitlines():
        jsonschema.validate(json.loads(line), schema("instance_level_eval"))


@pytest.mark.parametrize(
    ("changes", "text"), [({"reference": "y"}, "0 examples in both"), ({"version": "0.9.1"}, "is of schema 0.9.1")]
)
def test_other_examples_and_other_schemas_are_refused(changes: dict[str, str], text: str, tmp_path: Path) -> None:
    files = [written(tmp_path, "x", SCORES[0]), written(tmp_path, "y", SCORES[1], **changes)]
    with pytest.raises((ConfigError, DataError), match=text):
        compare_files(files)


def test_the_command_writes_a_file_for_each_entry(command: Callable[..., Any], tmp_path: Path) -> None:
    command("leaderboard", "export", *ROWS, "--to", "every-eval-ever", "--out", tmp_path / "out").ok()
    files = list((tmp_path / "out").iterdir())
    assert len(files) > 1
    assert {json.loads(path.read_text())["schema_version"] for path in files} == {"0.3.0"}
