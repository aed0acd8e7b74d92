"""The names of a request: tasks of a suite, their protocols, and rules that only some of them have a use for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emobench.config import parse_overrides
from emobench.errors import UserError
from emobench.pipeline.names import parts_of, suite_of
from emobench.pipeline.request import Request
from emobench.tasks.spec import Task


def tasks_of(*settings: str, suite: str = "nlu") -> dict[str, Task]:
    request = Request(suite=suite, settings=parse_overrides(settings))
    return {task.name: task for _, tasks in parts_of(request, suite_of(request)) for task in tasks}


@pytest.mark.parametrize("given", ["tasks=sst2,trec", "tasks=[trec, sst2]"])
def test_tasks_are_chosen_by_name_and_stand_in_the_suites_order(given: str) -> None:
    assert list(tasks_of(given)) == ["sst2", "trec"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (["tasks=ss2"], "Suite nlu: There is no task 'ss2'; did you mean 'sst2'?"),
        (["tasks=lm-quick"], "--set tasks: lm-quick is a task, but none of the suite nlu, which has tweet_emotion, "),
        (
            ["tasks=sst2,mmlu,trec", "protocol=official-code"],
            "Task mmlu: There is no protocol 'official-code'. Known: paper. These tasks have it: --set tasks=sst2,",
        ),
        (["tasks=sst2", "protocol=offical-code"], "There is no protocol 'offical-code'; did you mean 'official-code'?"),
    ],
)
def test_a_slip_says_what_to_type_next(settings: list[str], text: str) -> None:
    with pytest.raises(UserError) as error:
        tasks_of(*settings)
    assert text in str(error.value)


def test_an_encoder_is_a_rule_of_the_tasks_that_encode_alone(tmp_path: Path) -> None:
    plain, changed = tasks_of(), tasks_of(f"icl.encoder={tmp_path}")
    assert changed["mmlu"].protocol_id == plain["mmlu"].protocol_id  # its shots are fixed
    assert changed["sst2"].protocol_id != plain["sst2"].protocol_id
    rules: Any = changed["sst2"].protocol
    assert rules.encoder == str(tmp_path)
