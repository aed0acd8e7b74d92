"""Continuations of prompts, batch by batch, by the backend that the rules name."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

import torch

from emobench.core.errors import ModelError
from emobench.inference.decoding.request import Batch, Continuation, Decoding, eos_ids
from emobench.metrics.batching import by_length, check_context, reading

LEAST_BUDGET, LARGEST_BUDGET = 16_384, 131_072
"""Tokens of a batch: if the memory is not known or small, and when more rows make a step no faster."""


def sample_continuations(
    model: Any,
    prompts_ids: Sequence[Sequence[int]],
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
    **given: Any,
) -> list[list[Continuation]]:
    """Return `decoding.rule.samples` continuations of each prompt, in the order of the prompts.

    The other arguments are those of `iter_continuations`.
    """
    by_prompt: dict[int, list[Continuation]] = {}
    for batch in iter_continuations(model, prompts_ids, **given):
        by_prompt.update(batch)
        progress(len(by_prompt), len(prompts_ids))
    return [by_prompt[index] for index in range(len(prompts_ids))]


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

    `model` is in memory; with the backend vllm, it is an `emobench.models.model.Model`. `prompt_keys` are the prompts'
    ids: with the seed and the sample's index they fix the randomness of a row. Ids from `vocabulary` on are padding of
    the head, and are never drawn. `ends` are further ids that end a text, added to those of the model's configuration.

    Batches without a prompt outside `done` are left out. The others are those of an undisturbed run, so that an
    interrupted run continues to the same texts in bfloat16, too, where the batch matters.

    Raises ModelError if a prompt is empty or does not fit the model's context, MetricError if a logit is not finite.
    """
    lengths = [len(ids) for ids in prompts_ids]
    if 0 in lengths:
        raise ModelError(f"Prompt {lengths.index(0)} has no token; use bos: one, or a prefix of at least one token.")
    if decoding.rule.backend == "vllm":
        from emobench.inference.vllm.engine import vllm_continuations

        given = {"prompt_keys": prompt_keys, "decoding": decoding, "vocabulary": vocabulary, "ends": ends, "done": done}
        yield from vllm_continuations(model, prompts_ids, **given)
        return
    from emobench.inference.decoding.batched import decode  # a plan does without transformers

    longest = max(lengths, default=0)
    what = f"A prompt of {longest} tokens and {decoding.new_tokens} new ones, the last of which is not read"
    check_context(model, longest + decoding.new_tokens - 1, what)
    if hasattr(model, "get_base_model"):
        model = model.get_base_model()  # peft's own `generate` would overwrite the base model's settings
    samples = decoding.rule.samples
    widths = [decoding.rows * (length + decoding.new_tokens) for length in lengths]
    for members in by_length(widths, decoding.token_budget or token_budget(model, device_memory(model))):
        if all(index in done for index in members):
            continue
        batch = Batch(
            prompts_ids=[prompts_ids[i] for i in members],
            keys=[prompt_keys[i] for i in members],
            eos=tuple(dict.fromkeys((*eos_ids(model), *ends))),
            vocabulary=vocabulary,
            decoding=decoding,
        )
        with reading(model):
            rows = decode(model, batch)
        yield [(index, rows[place * samples : (place + 1) * samples]) for place, index in enumerate(members)]


def token_budget(model: Any, memory: int | None) -> int:
    """Return rows x tokens of a batch whose keys and values take about half of so many bytes.

    It depends on the device and not on its free memory, so that an interrupted run continues with its batches.
    """
    config = model.config.get_text_config()
    queries = getattr(config, "num_attention_heads", None)
    if memory is None or not queries:  # a state-space model keeps no keys and values
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
