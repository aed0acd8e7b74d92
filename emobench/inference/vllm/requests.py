"""A batch of prompts as requests to vLLM: plain data, so that requests can be read without vLLM.

The parameters are those of `vllm.SamplingParams` (0.32). Its order of steps is ours: EOS and padding are masked, the
logits are divided by the temperature, then min-p, top-k and top-p cut. Ours has min-p last, which is the same unless
top-p cuts, too; `Sampling` refuses the two together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from emobench.inference.decoding.request import Decoding


def sampling_params(decoding: Decoding, ends: Sequence[int]) -> dict[str, Any]:
    """Return the parameters that all requests share; `ends` are the ids that end a text.

    vLLM gives these ids no mass in the first `min_tokens` steps. Its own idea of EOS is switched off, and so is its
    tokenizer.
    """
    rule = decoding.rule
    shared = {
        "max_tokens": decoding.new_tokens,
        "min_tokens": decoding.suppressed_steps,
        "stop_token_ids": list(ends),
        "ignore_eos": True,
        "detokenize": False,
    }
    if rule.method == "greedy":
        return {**shared, "temperature": 0.0}
    drawn = {"temperature": rule.temperature, "top_k": rule.top_k, "top_p": rule.top_p, "min_p": rule.min_p}
    return {**shared, **drawn}


def request_seeds(decoding: Decoding, prompt_key: str) -> list[int | None]:
    """Return the seeds of a prompt's requests, one for each sample; None for what draws nothing.

    A seed depends on (seed, prompt id, sample index) only, so that a text does not depend on the order of prompts.
    """
    rule = decoding.rule
    if rule.method == "greedy":
        return [None]
    return [_seed(rule.seed, prompt_key, sample) for sample in range(rule.samples)]


def _seed(seed: int, prompt_key: str, sample: int) -> int:
    """Return a number from 0 to 2**63 - 1: what vLLM takes, without -1, which means none."""
    digest = hashlib.sha256(f"{seed}\n{prompt_key}\n{sample}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
