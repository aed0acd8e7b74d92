"""Tasks are found without the index of all, and are those that it would give."""

from __future__ import annotations

import pytest

from emobench.kinds.lm_eval.data import find_manager, reached

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
