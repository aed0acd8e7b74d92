"""Continuations of prompts, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

import torch

from emobench.core.errors import ConfigError, ModelError
from emobench.inference.decoding.request import Batch, Continuation, Decoding, eos_ids
from emobench.metrics.batching import by_length, check_context, reading


def sample_continuations(
    model: Any,
    prompts_ids: Sequence[Sequence[int]],
    *,
    prompt_keys: Sequence[str],
    decoding: Decoding,
    vocabulary: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[list[Continuation]]:
    """Return `decoding.rule.samples` continuations of each prompt, in the order of the prompts.

    Ids from `vocabulary` on are padding of the head, and are never drawn.

    `prompt_keys` are the prompts' ids: with the seed and the sample's index they fix the randomness of a row.
    Raises ModelError if a prompt is empty or does not fit the model's context, MetricError if a logit is not finite.
    """
    by_prompt: list[list[Continuation]] = [[] for _ in prompts_ids]
    batches = iter_continuations(model, prompts_ids, prompt_keys=prompt_keys, decoding=decoding, vocabulary=vocabulary)
    done = 0
    for batch in batches:
        for index, continuations in batch:
            by_prompt[index] = continuations
            done += 1
            if progress is not None:
                progress(done, len(prompts_ids))
    return by_prompt


def iter_continuations(
    model: Any,
    prompts_ids: Sequence[Sequence[int]],
    *,
    prompt_keys: Sequence[str],
    decoding: Decoding,
    vocabulary: int | None = None,
    ends: Sequence[int] = (),
    done: Container[int] = (),
) -> Iterator[list[tuple[int, list[Continuation]]]]:
    """Yield (prompt index, its continuations) of each batch as it ends, longest prompts first.

    `ends` are ids that end a text besides those of the model's configuration.

    Batches without a prompt outside `done` are left out. The others are those of an undisturbed run, so that a run
    that was interrupted goes on to the same texts in bfloat16, too, where the batch matters.
    """
    from emobench.inference.decoding.batched import decode  # a plan does without transformers

    if len(prompt_keys) != len(prompts_ids):
        raise ConfigError(f"{len(prompts_ids)} prompts came with {len(prompt_keys)} keys; give one key for each.")
    _check_lengths(model, prompts_ids, decoding)
    get_base = getattr(model, "get_base_model", None)
    # peft's own `generate` would overwrite the base model's settings.
    bare: Any = get_base() if callable(get_base) else model
    samples = decoding.rule.samples
    widths = [decoding.rows * (len(ids) + decoding.new_tokens) for ids in prompts_ids]
    for members in by_length(widths, decoding.token_budget or token_budget(bare, device_memory(bare))):
        if all(index in done for index in members):
            continue
        batch = Batch(
            prompts_ids=[prompts_ids[i] for i in members],
            keys=[prompt_keys[i] for i in members],
            eos=tuple(dict.fromkeys((*eos_ids(bare), *ends))),
            vocabulary=vocabulary,
            decoding=decoding,
        )
        with reading(bare):
            rows = decode(bare, batch)
        yield [(index, rows[place * samples : (place + 1) * samples]) for place, index in enumerate(members)]


LEAST_BUDGET, LARGEST_BUDGET = 16_384, 131_072
"""Tokens of a batch: where the memory is not known or small, and where more rows make a step no faster."""


def token_budget(model: Any, memory: int | None) -> int:
    """Return rows x tokens of a batch whose keys and values take about half of so many bytes.

    It depends on the device and not on the memory that is free at a time, so that an interrupted run goes on with its
    batches.
    """
    if memory is None:
        return LEAST_BUDGET
    config = model.config.get_text_config()
    queries = getattr(config, "num_attention_heads", None)
    if not queries:  # a state-space model keeps no keys and values
        return LEAST_BUDGET
    heads = getattr(config, "num_key_value_heads", None) or queries
    width = getattr(config, "head_dim", None) or config.hidden_size // queries
    weights = sum(weight.nbytes for weight in model.parameters())
    a_token = 2 * config.num_hidden_layers * heads * width * next(model.parameters()).itemsize
    return min(LARGEST_BUDGET, max(LEAST_BUDGET, (memory - weights) // 2 // a_token))


def device_memory(model: Any) -> int | None:
    """Return the bytes of the CUDA device that a model is on; None on a CPU."""
    device = next(model.parameters()).device
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None


def _check_lengths(model: Any, prompts_ids: Sequence[Sequence[int]], decoding: Decoding) -> None:
    lengths = [len(ids) for ids in prompts_ids]
    if 0 in lengths:
        raise ModelError(f"Prompt {lengths.index(0)} has no token; use bos: one, or a prefix of at least one token.")
    longest = max(lengths, default=0)
    what = f"A prompt of {longest} tokens and {decoding.new_tokens} new ones, the last of which is not read"
    check_context(model, longest + decoding.new_tokens - 1, what)
