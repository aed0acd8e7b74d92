"""The rules of tasks of kind `instruct`: defaults, ranges, and what they become for the sampler and the endpoint."""

from __future__ import annotations

from typing import Any

import pytest

from emobench.core.errors import ConfigError
from emobench.inference.decoding.request import Sampling
from emobench.kinds.instruct.judging.endpoint import Endpoint
from emobench.kinds.instruct.judging.judge import JUDGES
from emobench.kinds.instruct.rules import InstructProtocol, JudgeRule

URL = "http://127.0.0.1:1/v1"


@pytest.mark.parametrize(
    ("rules", "name", "taken", "refused"),
    [
        (JudgeRule, "concurrency", (1, 10_000), (0, 10_001)),
        (JudgeRule, "per_minute", (1e-9, 10**9, None), (0, -1, 10**9 + 1)),
        (JudgeRule, "retries", (0, 1000), (-1, 1001)),
        (JudgeRule, "seconds", (1e-9, 10**6), (0, 10**6 + 1)),
        (InstructProtocol, "max_new_tokens", (1, 2**20), (0, 2**20 + 1)),
        (InstructProtocol, "temperature", (0, 1000), (-1e-9, 1001)),
        (InstructProtocol, "limit", (1, 10**12, None), (0, 10**12 + 1)),
        (InstructProtocol, "seed", (0, 2**32 - 1), (-1, 2**32)),
    ],
)
def test_a_number_outside_of_its_range_is_refused(rules: Any, name: str, taken: Any, refused: Any) -> None:
    for value in taken:
        assert getattr(rules(**{name: value}), name) == value
    for value in refused:
        with pytest.raises(ConfigError, match=f"`{name}`.* {value}\\b"):
            rules(**{name: value})


def test_rules_of_decoding_become_those_of_the_sampler() -> None:
    for top_p in (1e-9, 0.9, 1):
        rules = InstructProtocol(temperature=0.7, top_p=top_p, seed=3)
        assert rules.sampling == Sampling(temperature=0.7, top_p=top_p, seed=3, suppress_eos=False)
    assert InstructProtocol(seed=3).sampling == Sampling(method="greedy", suppress_eos=False)
    for top_p, temperature in ((0.99, 0), (0, 1), (1.01, 1)):
        with pytest.raises(ConfigError, match="`top_p`"):
            InstructProtocol(top_p=top_p, temperature=temperature)


def test_a_judge_is_asked_as_the_rules_say() -> None:
    judge = JUDGES.load("pandalm").plugin
    own = {"url": URL, "concurrency": 3, "per_minute": 7.0, "retries": 2, "seconds": 5.0}
    rule = JudgeRule(name="pandalm", **own)
    assert rule.endpoint(judge) == Endpoint(judge.model, rule)
    named = JudgeRule(name="pandalm", model="other", backend="local")
    assert named.used
    assert named.endpoint(judge).model == named.local_model(judge).name == "other"
    assert JudgeRule(name="pandalm").local_model(judge).name == judge.model
    with pytest.raises(ConfigError, match=r"`judge\.model` is other"):
        JudgeRule(model="other")
