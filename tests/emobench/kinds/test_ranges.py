"""The rules of kinds of task: the first and last value of numbers, and refused combinations."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from emobench.core.errors import ConfigError
from emobench.inference.decoding.request import Sampling
from emobench.kinds.generation.rules import GenerationProtocol
from emobench.kinds.icl.rules import IclProtocol
from emobench.kinds.lm_eval.kind import LmEvalProtocol
from emobench.kinds.oracle.kind import OracleProtocol
from emobench.kinds.shared_rules import CoherenceRule, MauveRule, OracleRule
from emobench.kinds.surrogate.kind import SurrogateProtocol

ICL = {"template": "{text} is {label}.", "labels": {"neg": "bad", "pos": "good"}}


@pytest.mark.parametrize(
    ("rules", "given", "name", "low", "high"),
    [
        (GenerationProtocol, {}, "prefix", 1, 2**20),
        (IclProtocol, ICL, "shots", 0, 10_000),
        (IclProtocol, ICL, "max_length", 2, 2**20),
        (LmEvalProtocol, {"task": "x"}, "num_fewshot", 0, 10_000),
        (OracleProtocol, {}, "seed", 0, 2**32 - 1),
        (OracleProtocol, {}, "texts", 1, 10**6),
        (SurrogateProtocol, {}, "limit", 1, 10**12),
        (MauveRule, {}, "max_length", 1, 2**20),
        (Sampling, {}, "samples", 1, 10_000),
    ],
)
def test_whole_numbers_have_a_first_and_a_last_value(rules: Any, given: Any, name: str, low: int, high: int) -> None:
    for value in (low, high):
        assert getattr(rules(**given, **{name: value}), name) == value
    for value in (low - 1, high + 1):
        with pytest.raises(ConfigError, match=f"`{name}`.* {value}\\b"):
            rules(**given, **{name: value})


@pytest.mark.parametrize(
    ("rules", "given", "name", "taken", "refused"),
    [
        (IclProtocol, ICL, "pool", (1e-9, 1), (0, -0.1, 1.001)),
        (Sampling, {}, "temperature", (1e-9, 1000), (0, 1000.1)),
        (Sampling, {}, "top_p", (1e-9, 1), (0, 1.001)),
        (Sampling, {}, "typical_p", (1e-9, 1), (0, 1.001)),
        (Sampling, {}, "min_p", (0, 1), (-0.001, 1.001)),
        (Sampling, {"backend": "vllm"}, "temperature", (0.01, 2.0), (0.0099, 2.01)),
    ],
)
def test_shares_and_temperatures_have_limits(rules: Any, given: Any, name: str, taken: Any, refused: Any) -> None:
    for value in taken:
        assert getattr(rules(**given, **{name: value}), name) == value
    for value in refused:
        with pytest.raises(ConfigError, match=f"`{name}` is {value}"):
            rules(**given, **{name: value})


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"samples": 2}, False),
        ({"samples": 2, "method": "greedy"}, True),
        ({"samples": 2, "method": "beam"}, True),
        ({"method": "beam"}, False),
        ({"method": "beam", "backend": "vllm"}, True),
        ({"method": "greedy", "temperature": 9, "backend": "vllm"}, False),
        ({"typical_p": 0.99, "backend": "vllm"}, True),
        ({"min_p": 0.1, "backend": "vllm"}, False),
        ({"top_p": 0.9, "backend": "vllm"}, False),
        ({"min_p": 0.1, "top_p": 0.9, "backend": "vllm"}, True),
        ({"min_p": 0.1, "top_p": 0.9, "typical_p": 0.9}, False),
    ],
)
def test_what_decoding_cannot_do_is_refused(given: dict[str, Any], refused: bool) -> None:
    if not refused:
        assert asdict(Sampling(**given)).items() >= given.items()
        return
    with pytest.raises(ConfigError, match=r"expected 1|`backend` is vllm"):
        Sampling(**given)


def test_lengths_of_compared_texts() -> None:
    assert GenerationProtocol(prefix=3, continuation=5, margin=7).shortest == 15
    assert GenerationProtocol(prefix=3, continuation=5, sampling=Sampling(extra_tokens=2)).text_tokens == 10
    assert GenerationProtocol(unit="words").text_tokens is None
    models = GenerationProtocol(oracle=OracleRule(model="a"), coherence=CoherenceRule(encoder="b")).auxiliary_models
    assert {part: (model.name, model.use) for part, model in models.items()} == {
        "featurizer": ("pretrained", "features"), "oracle": ("a", "lm"), "coherence": ("b", "sentences"),
    }  # fmt: skip
    assert set(GenerationProtocol().auxiliary_models) == {"featurizer"}
    assert SurrogateProtocol(model="c").auxiliary.name == "c"
