"""Tasks of lm-eval are found without the index of all; their identity and data; and those that cannot be run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import ConfigError, DataError, Missing
from emobench.kinds.interface import KeyFacts
from emobench.kinds.lm_eval import evaluate as kind
from emobench.kinds.lm_eval.data import LmEvalData, find_manager, reached
from emobench.kinds.lm_eval.kind import named_task
from emobench.runs.planning.ingredients import base_model
from emobench.runs.planning.request import Request
from emobench.runs.stages.evaluate import PlannedTask


def load(name: str, **rules: Any) -> LmEvalData:
    return kind.load(named_task(name, rules), data_dirs=(), offline=True)


def without_readme(folder: Path, to: Path) -> Path:
    """Write a folder again as JSON Lines, <subject>/<split>.jsonl."""
    import pyarrow.parquet as pq

    for file in folder.glob("*/*.parquet"):
        copy = to / file.parent.name / f"{file.name.partition('-')[0]}.jsonl"
        copy.parent.mkdir(exist_ok=True, parents=True)
        copy.write_text("".join(json.dumps(row) + "\n" for row in pq.read_table(file).to_pylist()))
    return to


def test_the_same_examples_are_the_same_data_wherever_they_lie(
    mmlu_folder: Path, small_model: Path, tmp_path: Path
) -> None:
    rows = without_readme(mmlu_folder, tmp_path / "rows")
    one, other = (load("mmlu_anatomy", data=str(folder)) for folder in (mmlu_folder, rows))
    assert one.fingerprint == other.fingerprint
    assert len(one) == 9
    assert list(one.provenance) == ["lm-eval:mmlu_anatomy", "definition of lm-eval:mmlu_anatomy"]
    assert one.provenance["lm-eval:mmlu_anatomy"].endswith(f"(local: {mmlu_folder.name})")
    tasks = [
        named_task("mmlu_anatomy", {"data": str(folder), "batch": b}) for b, folder in ((1, rows), (2, mmlu_folder))
    ]
    assert tasks[0].protocol_id == tasks[1].protocol_id
    assert tasks[0].protocol_id != named_task("mmlu_anatomy", {"num_fewshot": 5}).protocol_id
    model = base_model(str(small_model), Request(suite="mmlu", offline=True))
    stages = [PlannedTask(task, data, model, None, KeyFacts()) for task, data in zip(tasks, (other, one), strict=True)]
    assert stages[0].scores.key == stages[1].scores.key
    assert stages[0].generation.key == stages[1].generation.key


def test_a_folder_that_was_edited_is_read_again(mmlu_folder: Path, tmp_path: Path) -> None:
    """datasets takes a folder with a README for one that it has converted before, if its name is the same."""
    import pyarrow.parquet as pq

    folders = [Path(shutil.copytree(mmlu_folder, tmp_path / name / "mmlu")) for name in ("one", "other")]
    before = load("mmlu_anatomy", data=str(folders[0]))
    for folder in folders:
        file = folder / "anatomy" / "test-00000-of-00001.parquet"
        pq.write_table(pq.read_table(file).slice(1), file)
    for folder in folders:
        after = load("mmlu_anatomy", data=str(folder))
        assert len(after) == len(before) - 1
        assert after.fingerprint != before.fingerprint


def test_another_question_another_shot_and_another_function_are_other_data(
    mmlu_folder: Path, own_tasks: Path, tmp_path: Path
) -> None:
    rows = without_readme(mmlu_folder, tmp_path / "rows")
    whole, with_shots = (load("mmlu_anatomy", data=str(rows), num_fewshot=n).fingerprint for n in (None, 2))
    dev = rows / "anatomy" / "dev.jsonl"
    dev.write_text(dev.read_text().replace("Which", "What"))
    assert load("mmlu_anatomy", data=str(rows)).fingerprint == whole  # without shots nobody reads them
    assert load("mmlu_anatomy", data=str(rows), num_fewshot=2).fingerprint != with_shots
    test = rows / "anatomy" / "test.jsonl"
    test.write_text(test.read_text().replace("Which", "What"))
    assert load("mmlu_anatomy", data=str(rows)).fingerprint != whole

    tasks = tmp_path / "tasks"
    shutil.copytree(own_tasks, tasks)
    before = load("own_choice", include=str(tasks)).fingerprint
    assert load("own_choice", include=str(own_tasks)).fingerprint == before
    (tasks / "words.py").write_text((tasks / "words.py").read_text().replace("Review", "Film"))
    assert load("own_choice", include=str(tasks)).fingerprint != before


@pytest.mark.parametrize(
    ("name", "rules", "said"),
    [
        ("mmlu_anatomi", {}, "no task, group or tag 'mmlu_anatomi'; did you mean 'mmlu_anatomy'"),
        ("own_unsafe", {"include": "OWN"}, "own_unsafe executes code that the model writes"),
        ("humaneval", {}, "humaneval executes code"),
        ("mmmu_val", {}, "shows images or audio"),
        ("mmlu_anatomy", {"include": "NOWHERE"}, "lm_eval.include=NOWHERE: there is no such folder"),
        ("mmlu_anatomy", {"data": "NOWHERE"}, "lm_eval.data=NOWHERE: there is no such folder"),
        ("mmlu_marketing", {"data": "DATA"}, "could not read the task 'mmlu_marketing' and its data"),
        ("mmlu_anatomy", {}, "could not read the task 'mmlu_anatomy' and its data"),
    ],
)
def test_what_cannot_be_run_is_said(
    name: str, rules: dict[str, str], said: str, own_tasks: Path, mmlu_folder: Path
) -> None:
    places = {"OWN": str(own_tasks), "DATA": str(mmlu_folder)}
    with pytest.raises((ConfigError, DataError, Missing)) as caught:
        load(name, **{key: places.get(value, value) for key, value in rules.items()})
    assert said in str(caught.value)
    assert "--set lm_eval." in str(caught.value) or "lm_eval run" in str(caught.value) or "images" in str(caught.value)


def test_a_file_that_lm_eval_would_pass_over_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("task: broken\nmetric_list: [\n")
    with pytest.raises(ConfigError, match=r"broken\.yaml is not a task of lm-eval"):
        load("broken", include=str(tmp_path))


def test_what_was_downloaded_from_the_hub_is_read_without_it(
    mmlu_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy in the hub's cache, as `hf download cais/mmlu --repo-type dataset` leaves it, under its commit."""
    commit = "c30699e8356da336a370243923dbaf21066bb9fe"
    repository = tmp_path / "datasets--cais--mmlu"
    shutil.copytree(mmlu_folder, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    found = load("mmlu_anatomy", num_fewshot=1)
    assert found.provenance["lm-eval:mmlu_anatomy"].endswith(f"(hub: cais/mmlu@{commit})")
    assert found.fingerprint == load("mmlu_anatomy", num_fewshot=1, data=str(mmlu_folder)).fingerprint


NAMES = ("mmlu", "ai2_arc", "glue", "openllm", "arc_challenge", "hellaswag", "leaderboard")
"""Groups of groups of tags, a tag over two folders, one over many, a group of strangers' tasks, an `include`."""


@pytest.mark.slow
def test_what_is_found_is_what_the_whole_index_says() -> None:
    from lm_eval.tasks import TaskManager

    whole = TaskManager().task_index
    for name in NAMES:
        manager = find_manager(name, "")
        for part in reached(name, manager):
            own, expected = manager.task_index[part], whole[part]
            assert (own.kind, own.yaml_path, own.tags) == (expected.kind, expected.yaml_path, expected.tags), part


def test_a_group_is_whole() -> None:
    parts = reached("mmlu", find_manager("mmlu", ""))
    assert len([p for p in parts if p.startswith("mmlu_") and not p.endswith("_tasks")]) == 57 + 4
