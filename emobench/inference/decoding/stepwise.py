"""Decoding of prompts of one length, a step at a time: the model, the choice of a token, and nothing between them.

`generate` prepares masks and positions, copies the logits and searches them again at each step. Without padding all
follows from the cache. Rows that have ended leave the batch once they are a quarter of it. On CUDA a step of the model
is a CUDA graph where its cache has a fixed shape (`step_graph.py`).

Legend: R rows (prompt x sample), A rows that are still written, T positions, V vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, LogitsProcessorList

from emobench.inference.decoding.ancestral import Chooser
from emobench.inference.decoding.request import Batch
from emobench.inference.decoding.shared_cache import keep_rows
from emobench.inference.decoding.step_graph import GraphStep

LEAVE = 4
"""Rows leave when at least one in so many of those in the batch has ended."""
WAITING = frozenset({"opt"})
"""Types of models that read the cache's length from the device at each step."""
LOOK = 16
"""Steps between two looks for ended rows on CUDA, where a look waits for the device."""


def can_step(model: Any) -> bool:
    """Say whether a step needs ids and cache alone, as transformers' own classes do that take a cache."""
    own = type(model).__module__.startswith("transformers.models.")
    return own and "past_key_values" in inspect.signature(model.forward).parameters


def takes_fixed_layers(model: Any) -> bool:
    """Say whether the model masks the empty positions of a fixed layer, as for transformers' static cache."""
    # A model with its own attention, such as BLOOM, may fail with such a layer.
    takes = all(getattr(model, name, False) for name in ("_can_compile_fullgraph", "_supports_attention_backend"))
    return can_step(model) and takes and model.config.model_type not in WAITING


@contextmanager
def without_padding(model: Any) -> Iterator[None]:
    """Let a model not search its input for padding: some do at each step, and wait for the device."""
    token = getattr(model.config, "pad_token_id", None)
    if token is None:
        yield
        return
    model.config.pad_token_id = None
    try:
        yield
    finally:
        model.config.pad_token_id = token


def decode_steps(
    model: Any,
    batch: Batch,
    ids_RT: Tensor,
    logits_RV: Tensor,
    cache: Cache,
    processors: LogitsProcessorList,
    chooser: Chooser,
) -> Tensor:
    """Return ids_RT with the new tokens, after prompts that the cache holds and whose last logits are given.

    The tokens that follow an end are whatever stands there.
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


def _reader(model: Any, cache: Cache, steps: int, *, wide: bool) -> Callable[[Tensor], Tensor]:
    """Return a function that gives scores_AV, float32 if `wide`, after reading one more token of each row, ids_A1."""

    def read(ids_A1: Tensor) -> Tensor:
        logits_AV = model(input_ids=ids_A1, past_key_values=cache, use_cache=True).logits[:, -1]
        return logits_AV.float() if wide else logits_AV

    return GraphStep(read, cache) if GraphStep.is_possible(cache, steps) else read
