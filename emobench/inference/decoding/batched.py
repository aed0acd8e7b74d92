"""Decoding in batches whose prompts are read once for all samples.

Prompts of one length, as most protocols have them, are decoded by `stepwise.py`. Left-padded batches, beams and models
whose states are not the usual ones take transformers' own `generate`, which knows the arguments of each model.

Legend: P prompts, R rows (prompt x sample), T positions, V vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from emobench.core.errors import MetricError
from emobench.inference.decoding.ancestral import (
    Allowed,
    Chooser,
    Largest,
    TreeSampler,
    levels_of,
    row_uniforms,
)
from emobench.inference.decoding.attention import one_query_attention
from emobench.inference.decoding.request import Batch, Continuation
from emobench.inference.decoding.shared_cache import repeat_cache
from emobench.inference.decoding.stepwise import can_step, decode_steps, takes_fixed_layers, without_padding
from emobench.kinds.shared_rules import Sampling
from emobench.metrics.batching import pad


def decode(model: Any, batch: Batch) -> list[Continuation]:
    """Return the continuations of one batch, prompt by prompt and sample by sample; `model` is in eval mode.

    Raises MetricError if a logit is not finite.
    """
    rule, device = batch.decoding.rule, next(model.parameters()).device
    ids_PT, mask_PT = pad(batch.prompts_ids, batch.eos[0] if batch.eos else 0, device, left=True)
    width = ids_PT.shape[1]
    allowed = Allowed(width, batch.eos, batch.decoding.suppressed_steps, batch.vocabulary)
    processors = LogitsProcessorList([allowed, *_warpers(rule)])
    chooser: Chooser = Largest(device)
    if rule.method == "sample":
        uniform_RSL = torch.from_numpy(_uniforms(model, batch)).to(device)
        chooser = TreeSampler(uniform_RSL, width, _reading_alone(model, batch, width, LogitsProcessorList(processors)))
    if rule.method == "beam":
        output_RT = _decode_alone(model, ids_PT, mask_PT, LogitsProcessorList([*processors, chooser]), batch)
    else:
        output_RT = _decode_shared(model, ids_PT, mask_PT, processors, chooser, batch)
    if not chooser.finite:
        raise MetricError(
            "The model's logits are not finite, so no text can be decoded; look at its weights or use --dtype float32."
        )
    return [batch.cut(row) for row in output_RT[:, width:].tolist()]


def _decode_alone(
    model: Any, ids_PT: Tensor, mask_PT: Tensor, processors: LogitsProcessorList, batch: Batch, *, cached: bool = True
) -> Tensor:
    """Return ids_RT where each row reads its own prompt, at each step anew unless `cached`."""
    beams = batch.decoding.rule.beams if batch.decoding.rule.method == "beam" else 1
    with _only(model, _config(batch, batch.decoding.new_tokens, num_beams=beams, use_cache=cached)):
        return model.generate(input_ids=ids_PT, attention_mask=mask_PT, logits_processor=processors)


def _decode_shared(
    model: Any, ids_PT: Tensor, mask_PT: Tensor, processors: LogitsProcessorList, chooser: Chooser, batch: Batch
) -> Tensor:
    """Return ids_RT, after reading each prompt once: its cache and its last logits are those of all its samples."""
    samples, left = batch.decoding.rule.samples, batch.decoding.new_tokens - 1
    with _only(model, _config(batch, 1, return_dict_in_generate=True, output_logits=True)):
        read = model.generate(input_ids=ids_PT, attention_mask=mask_PT)
    ids_RT, mask_RT = ids_PT.repeat_interleave(samples, 0), mask_PT.repeat_interleave(samples, 0)
    stepwise = can_step(model) and bool(mask_PT.all())
    fixed = ids_PT.is_cuda and stepwise and takes_fixed_layers(model)
    if not repeat_cache(read.past_key_values, samples, left, fixed=fixed):
        # RWKV's states, a list, give wrong logits for more than one row (transformers 5.23 broadcasts rows with rows).
        cached = not isinstance(read.past_key_values, list)
        return _decode_alone(model, ids_RT, mask_RT, LogitsProcessorList([*processors, chooser]), batch, cached=cached)
    logits_RV = read.logits[0].repeat_interleave(samples, 0)
    if stepwise:
        with one_query_attention(model), without_padding(model):
            return decode_steps(model, batch, ids_RT, logits_RV, read.past_key_values, processors, chooser)
    rows_R = torch.arange(len(ids_RT), device=ids_RT.device)
    first_R1 = chooser.choose(ids_RT, processors(ids_RT, logits_RV), rows_R)[:, None]  # type: ignore[arg-type]
    ids_RT, mask_RT = torch.cat((ids_RT, first_R1), 1), torch.cat((mask_RT, torch.ones_like(first_R1)), 1)
    if not left:
        return ids_RT
    with _only(model, _config(batch, left)):
        return model.generate(
            input_ids=ids_RT,
            attention_mask=mask_RT,
            past_key_values=read.past_key_values,
            logits_processor=LogitsProcessorList([*processors, chooser]),
        )


def _reading_alone(
    model: Any, batch: Batch, width: int, processors: LogitsProcessorList
) -> Callable[[Tensor, int], Tensor] | None:
    """Return a function that gives a row's scores without its batch; None but in float32 on a CPU.

    Elsewhere the noise is as large as the limit of a near tie would be (half precision), or each step would wait for
    the device.
    """
    weight = next(model.parameters())
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        return None

    # The others would be as many rows of the head's product as a third of a whole step's.
    last = {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}

    def alone(ids_1T: Tensor, row: int) -> Tensor:
        padding = width - len(batch.prompts_ids[row // batch.decoding.rule.samples])
        logits_1V = model(input_ids=ids_1T[:, padding:], use_cache=False, **last).logits[:, -1]
        return processors(ids_1T, logits_1V)  # type: ignore[arg-type]

    return alone


def _config(batch: Batch, new_tokens: int, **more: Any) -> GenerationConfig:
    return GenerationConfig(
        max_new_tokens=new_tokens,
        do_sample=False,
        eos_token_id=list(batch.ends) or None,
        pad_token_id=batch.ends[0] if batch.ends else None,
        **more,
    )


def _warpers(rule: Sampling) -> list[Any]:
    """Return transformers' own processors, in the order in which `generate` applies them when it samples."""
    if rule.method != "sample":
        return []
    asked: tuple[tuple[bool, Any, Any], ...] = (
        (rule.temperature != 1.0, TemperatureLogitsWarper, rule.temperature),
        (rule.top_k > 0, TopKLogitsWarper, rule.top_k),
        (rule.top_p < 1.0, TopPLogitsWarper, rule.top_p),
        (rule.min_p > 0.0, MinPLogitsWarper, rule.min_p),
        (rule.typical_p < 1.0, TypicalLogitsWarper, rule.typical_p),
    )
    return [warper(value) for active, warper, value in asked if active]  # type: ignore[arg-type]


def _uniforms(model: Any, batch: Batch) -> np.ndarray:
    """Return uniform_RSL of all rows."""
    rule, steps = batch.decoding.rule, batch.decoding.new_tokens
    levels = levels_of(model.get_output_embeddings().weight.shape[0])
    rows = []
    for key in batch.keys:
        rows += [row_uniforms(rule.seed, key, sample, steps, levels) for sample in range(rule.samples)]
    return np.stack(rows)


@contextmanager
def _only(model: Any, config: GenerationConfig) -> Iterator[None]:
    """Let no other generation setting act: what a call leaves unset, `generate` takes from the model's own file."""
    kept = model.generation_config
    model.generation_config = config
    try:
        yield
    finally:
        model.generation_config = kept
