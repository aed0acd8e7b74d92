"""Decoding in batches whose prompts are read once for all samples.

Prompts of one length, as most protocols have them, are decoded a step at a time: the model, the choice of a token, and
nothing between them. `generate` prepares masks and positions, copies the logits and searches them again at each step;
without padding all follows from the cache. Rows that have ended leave the batch once they are a quarter of it. On CUDA
a step of the model is a CUDA graph if its cache has a fixed shape (`shared_cache.py`).

Left-padded batches, beams and models whose states are not the usual ones take transformers' own `generate`, which knows
the arguments of each model.

Legend: P prompts, R rows (prompt x sample), A rows that are still written, T positions, V vocabulary, K rows that stay.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import transformers as hf
from torch import Tensor
from transformers import LogitsProcessorList

from emobench.inference.decoding.ancestral import Allowed, Chooser, Largest, TreeSampler, levels_of, row_uniforms
from emobench.inference.decoding.attention import one_query_attention
from emobench.inference.decoding.request import Batch, Continuation, Sampling, not_finite
from emobench.inference.decoding.shared_cache import GraphStep, keep_rows, repeat_cache
from emobench.metrics.batching import pad

LEAVE = 4
"""Rows leave when at least one in so many of those in the batch has ended."""
WAITING = frozenset({"opt"})
"""Types of models that read the cache's length from the device at each step."""
LOOK = 16
"""Steps between two looks for ended rows on CUDA, where a look waits for the device."""


def decode(model: Any, batch: Batch) -> list[Continuation]:
    """Return the continuations of one batch, prompt by prompt and sample by sample; `model` is in eval mode.

    Raises MetricError if a logit is not finite.
    """
    rule, device = batch.decoding.rule, next(model.parameters()).device
    ids_PT, mask_PT = pad(batch.prompts_ids, batch.eos[0] if batch.eos else 0, device, left=True)
    width = ids_PT.shape[1]
    allowed = Allowed(width, batch.eos, batch.decoding.suppressed_steps, batch.vocabulary)
    processors = LogitsProcessorList([allowed, *warpers(rule)])
    chooser: Chooser = Largest(device)
    if rule.method == "sample":
        levels = levels_of(model.get_output_embeddings().weight.shape[0])
        uniforms = []
        for key in batch.keys:
            for sample in range(rule.samples):
                uniforms.append(row_uniforms(rule.seed, key, sample, batch.decoding.new_tokens, levels))
        uniform_RSL = torch.from_numpy(np.stack(uniforms)).to(device)
        chooser = TreeSampler(uniform_RSL, width, _reading_alone(model, batch, width, processors))
    if rule.method == "beam":
        output_RT = _decode_alone(model, ids_PT, mask_PT, LogitsProcessorList([*processors, chooser]), batch)
    else:
        output_RT = _decode_shared(model, ids_PT, mask_PT, processors, chooser, batch)
    if not chooser.finite:
        raise not_finite()
    return [batch.decoding.cut(row, batch.eos) for row in output_RT[:, width:].tolist()]


def _decode_alone(
    model: Any, ids_PT: Tensor, mask_PT: Tensor, processors: LogitsProcessorList, batch: Batch, *, cached: bool = True
) -> Tensor:
    """Return ids_RT; each row reads its own prompt, at each step anew unless `cached`."""
    beams = batch.decoding.rule.beams if batch.decoding.rule.method == "beam" else 1
    with _only(model, batch, batch.decoding.new_tokens, num_beams=beams, use_cache=cached):
        return model.generate(input_ids=ids_PT, attention_mask=mask_PT, logits_processor=processors)


def _decode_shared(
    model: Any, ids_PT: Tensor, mask_PT: Tensor, processors: LogitsProcessorList, chooser: Chooser, batch: Batch
) -> Tensor:
    """Return ids_RT, after reading each prompt once: all its samples share its cache and its last logits."""
    samples, left = batch.decoding.rule.samples, batch.decoding.new_tokens - 1
    with _only(model, batch, 1, return_dict_in_generate=True, output_logits=True):
        read = model.generate(input_ids=ids_PT, attention_mask=mask_PT)
    ids_RT, mask_RT = ids_PT.repeat_interleave(samples, 0), mask_PT.repeat_interleave(samples, 0)
    stepwise = can_step(model) and bool(mask_PT.all())
    fixed = ids_PT.is_cuda and stepwise and takes_fixed_layers(model)
    chosen = LogitsProcessorList([*processors, chooser])
    if not repeat_cache(read.past_key_values, samples, left, fixed=fixed):
        # RWKV's states, a list, give wrong logits for more than one row (transformers 5.23 broadcasts rows with rows).
        cached = not isinstance(read.past_key_values, list)
        return _decode_alone(model, ids_RT, mask_RT, chosen, batch, cached=cached)
    logits_RV = read.logits[0].repeat_interleave(samples, 0)
    if stepwise:
        # Some models search their input for padding at each step, and wait for the device.
        with one_query_attention(model), _replaced(model.config, "pad_token_id", None):
            return decode_steps(model, batch, ids_RT, logits_RV, read.past_key_values, processors, chooser)
    rows_R = torch.arange(len(ids_RT), device=ids_RT.device)
    first_R1 = chooser.choose(ids_RT, processors(ids_RT, logits_RV), rows_R)[:, None]  # type: ignore[arg-type]
    ids_RT, mask_RT = torch.cat((ids_RT, first_R1), 1), torch.cat((mask_RT, torch.ones_like(first_R1)), 1)
    if not left:
        return ids_RT
    with _only(model, batch, left):
        return model.generate(
            input_ids=ids_RT, attention_mask=mask_RT, past_key_values=read.past_key_values, logits_processor=chosen
        )


def can_step(model: Any) -> bool:
    """Return whether a step needs only ids and a cache: transformers' own classes that take a cache."""
    own = type(model).__module__.startswith("transformers.models.")
    return own and "past_key_values" in inspect.signature(model.forward).parameters


def takes_fixed_layers(model: Any) -> bool:
    """Return whether the model masks the empty positions of a fixed layer, as for transformers' static cache."""
    # A model with its own attention, such as BLOOM, may fail with such a layer.
    takes = all(getattr(model, name, False) for name in ("_can_compile_fullgraph", "_supports_attention_backend"))
    return can_step(model) and takes and model.config.model_type not in WAITING


def decode_steps(
    model: Any,
    batch: Batch,
    ids_RT: Tensor,
    logits_RV: Tensor,
    cache: hf.Cache,
    processors: LogitsProcessorList,
    chooser: Chooser,
) -> Tensor:
    """Return ids_RT with the new tokens, after prompts that the cache holds and whose last logits are given.

    Tokens after an end have no meaning.
    """
    (rows, width), steps = ids_RT.shape, batch.decoding.new_tokens
    all_RT = torch.cat((ids_RT, ids_RT.new_full((rows, steps), batch.ends[0] if batch.ends else 0)), 1)
    ends_E = torch.tensor(batch.ends, device=ids_RT.device)
    rows_A, ended_A = torch.arange(rows, device=ids_RT.device), torch.zeros_like(ids_RT[:, 0], dtype=torch.bool)
    # Cuts and temperatures compute with scores. A mask and the draw by a kernel read them in any dtype.
    wide = len(processors) > 1 or not ids_RT.is_cuda
    read, scores_AV = _reader(model, cache, steps, wide=wide), logits_RV.float() if wide else logits_RV
    for end in range(width, width + steps):
        written_RT = all_RT[:, :end]
        chosen_A = chooser.choose(written_RT, processors(written_RT, scores_AV), rows_A)  # type: ignore[arg-type]
        all_RT[rows_A, end] = chosen_A
        if end + 1 == width + steps:
            break
        if batch.ends:
            ended_A |= torch.isin(chosen_A, ends_E)
            if (not ids_RT.is_cuda or (end - width) % LOOK == 0) and LEAVE * int(ended_A.sum()) >= len(ended_A):
                kept_K = (~ended_A).nonzero()[:, 0]
                if not len(kept_K):
                    break
                if keep_rows(cache, kept_K):
                    rows_A, chosen_A, ended_A = rows_A[kept_K], chosen_A[kept_K], ended_A[kept_K]
                    read = _reader(model, cache, width + steps - end, wide=wide)
        scores_AV = read(chosen_A[:, None])
    return all_RT


def _reader(model: Any, cache: hf.Cache, steps: int, *, wide: bool) -> Callable[[Tensor], Tensor]:
    """Return a function that gives scores_AV, float32 if `wide`, after reading one more token of each row, ids_A1."""

    def read(ids_A1: Tensor) -> Tensor:
        logits_AV = model(input_ids=ids_A1, past_key_values=cache, use_cache=True).logits[:, -1]
        return logits_AV.float() if wide else logits_AV

    return GraphStep(read, cache) if GraphStep.is_possible(cache, steps) else read


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
    last = {}
    if "logits_to_keep" in inspect.signature(model.forward).parameters:
        last["logits_to_keep"] = 1  # the others would be as many rows of the head as a third of a whole step's

    def alone(ids_1T: Tensor, row: int) -> Tensor:
        padding = width - len(batch.prompts_ids[row // batch.decoding.rule.samples])
        logits_1V = model(input_ids=ids_1T[:, padding:], use_cache=False, **last).logits[:, -1]
        return processors(ids_1T, logits_1V)  # type: ignore[arg-type]

    return alone


def warpers(rule: Sampling) -> list[Any]:
    """Return transformers' own processors, in the order in which `generate` applies them when it samples."""
    active: list[Any] = []
    if rule.method != "sample":
        return active
    if rule.temperature != 1.0:
        active.append(hf.TemperatureLogitsWarper(rule.temperature))
    if rule.top_k > 0:
        active.append(hf.TopKLogitsWarper(rule.top_k))
    if rule.top_p < 1.0:
        active.append(hf.TopPLogitsWarper(rule.top_p))
    if rule.min_p > 0.0:
        active.append(hf.MinPLogitsWarper(rule.min_p))
    if rule.typical_p < 1.0:
        active.append(hf.TypicalLogitsWarper(rule.typical_p))
    return active


@contextmanager
def _only(model: Any, batch: Batch, new_tokens: int, **settings: Any) -> Iterator[None]:
    """Let no other generation setting act: unset arguments of `generate` come from the model's own file."""
    padding = batch.ends[0] if batch.ends else None
    settings |= {"eos_token_id": list(batch.ends) or None, "pad_token_id": padding}
    config = hf.GenerationConfig(max_new_tokens=new_tokens, do_sample=False, **settings)
    with _replaced(model, "generation_config", config):
        yield


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name, None)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
