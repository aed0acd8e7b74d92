"""Rules of sampling as requests to vLLM, which need no vLLM to be read."""

from __future__ import annotations

from typing import Any

import pytest

from emobench.core.errors import ConfigError
from emobench.inference.decoding.request import Continuation, Decoding, Sampling
from emobench.inference.vllm.engine import request_seeds, sampling_params


def decoding(length: int = 80, **rule: Any) -> Decoding:
    return Decoding(rule=Sampling(backend="vllm", **rule), length=length)


def test_the_default_rules_draw_from_the_whole_distribution_without_eos() -> None:
    assert sampling_params(decoding(), (0, 7)) == {
        "max_tokens": 80,
        "min_tokens": 80,
        "stop_token_ids": [0, 7],
        "ignore_eos": True,
        "detokenize": False,
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
    }


@pytest.mark.parametrize(
    ("rule", "asked"),
    [
        ({"temperature": 0.7, "top_k": 40, "top_p": 0.9}, {"temperature": 0.7, "top_k": 40, "top_p": 0.9}),
        ({"min_p": 0.05}, {"min_p": 0.05}),
        ({"method": "greedy", "temperature": 0.7}, {"temperature": 0.0}),
        ({"suppress_eos": False}, {"min_tokens": 0, "max_tokens": 80}),
        ({"extra_tokens": 1}, {"min_tokens": 80, "max_tokens": 81}),
        ({"suppress_eos": False, "extra_tokens": 2}, {"min_tokens": 0, "max_tokens": 82}),
    ],
)
def test_each_rule_is_a_parameter(rule: dict[str, Any], asked: dict[str, Any]) -> None:
    found = sampling_params(decoding(**rule), (0,))
    assert {name: found[name] for name in asked} == asked
    if rule.get("method") == "greedy":
        assert found.keys().isdisjoint({"top_k", "top_p", "min_p"})


def test_a_seed_belongs_to_a_prompt_and_a_sample() -> None:
    seeds = [seed for key in ("a", "b") for seed in request_seeds(decoding(samples=3, seed=5), key)]
    assert len(set(seeds)) == 6
    assert all(seed is not None and 0 <= seed < 2**63 for seed in seeds)
    assert request_seeds(decoding(samples=2, seed=5), "b") == seeds[3:5]
    assert set(request_seeds(decoding(samples=3, seed=6), "a")).isdisjoint(seeds)
    # sha256 of "5\na\n0", its first eight bytes, without the sign
    assert seeds[0] == 707_354_313_719_396_904
    assert request_seeds(decoding(method="greedy"), "a") == [None]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"method": "beam"}, "no beam search"),
        ({"typical_p": 0.9}, r"no typical sampling; drop typical_p=0\.9"),
        ({"min_p": 0.1, "top_p": 0.9}, r"cuts by min_p before top_p.*drop min_p=0\.1 or top_p=0\.9"),
        ({"temperature": 0.001}, r"from 0\.01 to 2\.0, and `temperature` is 0\.001"),
        ({"temperature": 3.0}, r"from 0\.01 to 2\.0, and `temperature` is 3\.0"),
    ],
)
def test_what_vllm_does_otherwise_is_refused(rule: dict[str, Any], words: str) -> None:
    Sampling(**rule)
    with pytest.raises(ConfigError, match=rf"`backend` is vllm.*{words}"):
        Sampling(backend="vllm", **rule)


def test_an_end_is_cut_where_it_is_allowed() -> None:
    assert decoding(4, suppress_eos=False).cut([5, 0], (0,)) == Continuation([5], True)
    assert decoding(4, extra_tokens=1).cut([5, 6, 7, 8, 0], (0,)) == Continuation([5, 6, 7, 8], True)
    assert decoding(4).cut([5, 6, 7, 8], (0,)) == Continuation([5, 6, 7, 8], False)
