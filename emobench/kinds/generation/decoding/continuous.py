"""Decoding with transformers' continuous batching (`generate_batch`): rows that end make room for others at once.

It draws with the device's own random numbers, in an order that its scheduler makes, and takes no sampler of ours: a
text depends on the seed and on all prompts of its call, not on (seed, prompt, sample) alone. Its rows are therefore
another protocol, and it is never the default; where it pays is measured by `tests/benchmarks/speed/generation.py`.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from emobench.errors import ConfigError, ModelError
from emobench.kinds.generation.decoding.request import Batch, Continuation

BATCHES_AT_ONCE = 16
"""It makes its own batches, and keeps them full only where it is given many prompts."""


def decode(model: Any, batch: Batch) -> list[Continuation]:
    """Return the continuations of one batch (see Backend). Raises ConfigError without a CUDA device."""
    check_device(next(model.parameters()).device.type)
    return decode_with(model, batch, ContinuousBatchingConfig(seed=_seed(batch)))


def decode_with(model: Any, batch: Batch, how: ContinuousBatchingConfig) -> list[Continuation]:
    """Return the continuations of one batch, on any device."""
    device = next(model.parameters()).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):  # it seeds the global generators
        found = model.generate_batch(
            [list(ids) for ids in batch.prompts_ids],
            generation_config=_config(model, batch),
            continuous_batching_config=how,
            progress_bar=False,
        )
    rows = len(batch.keys) * batch.decoding.rule.samples
    errors = [one.error for one in found.values() if one.error is not None]
    if len(found) != rows or errors:
        raise ModelError(
            f"Continuous batching gave {len(found) - len(errors)} of {rows} texts"
            + (f" ({errors[0]})" if errors else "")
            + "; use --set generation.sampling.backend=transformers."
        )
    return [batch.cut(one.generated_tokens) for one in found.values()]


def check_device(kind: str) -> None:
    """Raise ConfigError for a device, such as "cpu", that it does not run on."""
    if kind != "cuda":
        raise ConfigError(
            f"generation.sampling.backend is continuous, which needs a CUDA device, and this one is {kind}; expected "
            "backend=transformers."
        )


def _config(model: Any, batch: Batch) -> GenerationConfig:
    rule = batch.decoding.rule
    rows = model.get_output_embeddings().weight.shape[0]
    unused = [] if batch.vocabulary is None else list(range(batch.vocabulary, rows))
    return GenerationConfig(
        max_new_tokens=batch.decoding.new_tokens,
        num_return_sequences=rule.samples,
        eos_token_id=list(batch.ends) or -1,  # -1: none ends a text
        pad_token_id=0,
        suppress_tokens=[*(() if batch.ends else batch.eos), *unused] or None,
        **(_sampled(batch) if rule.method == "sample" else {"do_sample": False}),
    )


def _sampled(batch: Batch) -> dict[str, Any]:
    rule = batch.decoding.rule
    return {
        "do_sample": True,
        "temperature": rule.temperature,
        "top_k": rule.top_k,
        "top_p": rule.top_p,
        "typical_p": rule.typical_p,
        "min_p": rule.min_p or None,
    }


def _seed(batch: Batch) -> int:
    """Return a seed of 31 bits, so that no two calls of a task use the same random numbers."""
    text = "\n".join([str(batch.decoding.rule.seed), *batch.keys])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little") >> 1
