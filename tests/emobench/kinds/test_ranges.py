"""The rules of every kind of task: their defaults, and the first and last value that each number may have."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from emobench.core.errors import ConfigError
from emobench.inference.decoding.request import VLLM_TEMPERATURES, Sampling
from emobench.kinds.generation.rules import GenerationProtocol
from emobench.kinds.icl.rules import IclProtocol
from emobench.kinds.lm_eval.kind import LmEvalProtocol
from emobench.kinds.oracle.rules import OracleProtocol
from emobench.kinds.shared_rules import CoherenceRule, MauveRule, OracleRule
from emobench.kinds.surrogate.rules import SurrogateProtocol

LONG, ROWS, ANY = 2**20, 10**12, 10**9
MAUVE = {"featurizer": "pretrained", "pooling": "mean", "max_length": 256, "seeds": (0, 1, 2, 3, 4)}
SAMPLING = {
    "method": "sample", "samples": 1, "seed": 0, "suppress_eos": True, "extra_tokens": 0, "temperature": 1.0,
    "top_k": 0, "top_p": 1.0, "typical_p": 1.0, "min_p": 0.0, "beams": 4, "backend": "transformers",
}  # fmt: skip
ICL = {"template": "{text} is {label}.", "labels": {"neg": "bad", "pos": "good"}}
DEFAULTS = [
    (MauveRule(), MAUVE),
    (OracleRule(), {"model": None, "scope": "text"}),
    (CoherenceRule(), {"encoder": None}),
    (Sampling(), SAMPLING),
    (
        GenerationProtocol(),
        {
            "split": "test", "unit": "tokens", "prefix": 20, "continuation": 80, "margin": 0, "min_characters": 0,
            "without": (), "first_texts": None, "bos": "none", "joiner": "", "sampling": SAMPLING, "mauve": MAUVE,
            "oracle": {"model": None, "scope": "text"}, "coherence": {"encoder": None}, "stemming": False,
            "max_length": 256, "test_blocks": None, "documents": None, "limit": None, "metrics": (),
        },
    ),
    (
        IclProtocol(**ICL),
        {
            **ICL, "ties": ("neg", "pos"), "header": "", "separator": "\n", "shots": 8, "retriever": "dense",
            "encoder": "all-mpnet-base-v2", "query": ("text",), "query_text": "raw", "order": "nearest-first",
            "pool": 1.0, "held_out": 0, "seed": 0, "exclude_duplicates": False, "scorer": "prompt",
            "content_free": ("N/A",), "bos": "tokenizer", "max_length": None, "too_long": "drop_shots",
            "engine": "auto", "limit": None,
        },
    ),
    (
        LmEvalProtocol(task="x"),
        {
            "task": "x", "include": "", "data": "", "num_fewshot": None, "chat_template": False, "max_length": None,
            "batch": 8, "engine": "auto", "backend": "transformers", "limit": None,
        },
    ),
    (
        OracleProtocol(),
        {
            "domain": "target", "texts": 1000, "length": 63, "prefix": 8, "continuation": 16, "seed": 0,
            "mauve": MAUVE, "limit": None,
        },
    ),
    (
        SurrogateProtocol(),
        {"model": "gpt-neo-1.3b", "split": "validation", "min_words": 20, "max_tokens": 500, "limit": None},
    ),
]  # fmt: skip
RANGES: list[tuple[Any, dict[str, Any], dict[str, tuple[float, float]]]] = [
    (
        GenerationProtocol, {},
        {"prefix": (1, LONG), "continuation": (1, LONG), "margin": (0, ANY), "min_characters": (0, ANY),
         "first_texts": (1, ROWS), "max_length": (1, LONG), "test_blocks": (1, ROWS), "limit": (1, ROWS)},
    ),
    (
        IclProtocol, ICL,
        {"shots": (0, 10_000), "held_out": (0, ANY), "max_length": (2, LONG), "limit": (1, ROWS),
         "seed": (0, 2**32 - 1)},
    ),
    (
        LmEvalProtocol, {"task": "x"},
        {"num_fewshot": (0, 10_000), "max_length": (2, LONG), "batch": (1, 100_000), "limit": (1, ROWS)},
    ),
    (
        OracleProtocol, {},
        {"texts": (1, 10**6), "length": (1, LONG), "prefix": (1, LONG), "continuation": (1, LONG), "limit": (1, ROWS),
         "seed": (0, 2**32 - 1)},
    ),
    (SurrogateProtocol, {}, {"min_words": (0, ANY), "max_tokens": (1, LONG), "limit": (1, ROWS)}),
    (MauveRule, {}, {"max_length": (1, LONG)}),
    (
        Sampling, {},
        {"samples": (1, 10_000), "seed": (0, 2**32 - 1), "extra_tokens": (0, LONG), "top_k": (0, 10**7),
         "beams": (1, 1000)},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("rules", "defaults"), DEFAULTS, ids=lambda value: type(value).__name__)
def test_the_defaults(rules: Any, defaults: dict[str, Any]) -> None:
    assert asdict(rules) == defaults


@pytest.mark.parametrize(
    ("rules", "given", "name", "low", "high"),
    [(rules, given, name, *ends) for rules, given, ranges in RANGES for name, ends in ranges.items()],
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
    assert VLLM_TEMPERATURES == (0.01, 2.0)
    if not refused:
        assert asdict(Sampling(**given)) == SAMPLING | given
        return
    with pytest.raises(ConfigError, match=r"expected 1|`backend` is vllm"):
        Sampling(**given)


def test_lengths_of_compared_texts() -> None:
    assert GenerationProtocol(prefix=3, continuation=5, margin=7).shortest == 15
    assert GenerationProtocol(prefix=3, continuation=5, sampling=Sampling(extra_tokens=2)).text_tokens == 10
    assert GenerationProtocol(unit="words").text_tokens is None
    assert OracleProtocol(length=9).text_tokens == 9
    models = GenerationProtocol(oracle=OracleRule(model="a"), coherence=CoherenceRule(encoder="b")).auxiliary_models
    assert {part: (model.name, model.use) for part, model in models.items()} == {
        "featurizer": ("pretrained", "features"), "oracle": ("a", "lm"), "coherence": ("b", "sentences"),
    }  # fmt: skip
    assert set(GenerationProtocol().auxiliary_models) == {"featurizer"}
    assert SurrogateProtocol(model="c").auxiliary.name == "c"
