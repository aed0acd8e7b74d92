"""Attention of one new position to all before it: two batched products on a CPU, one kernel on a GPU.

torch's own kernels are made for many queries. Measured on a CPU with SmolLM2-135M, 120 rows and 20 + 80 tokens: 5.9 s
of 39 with it, 4.2 s as here, where the cache has its positions outermost (`shared_cache.py`).

Legend: R rows, H heads of keys and values, G queries of each, N = R H, T positions, D width of a head.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "emobench_one_query"
OTHERS = ("position_bias", "softcap", "s_aux", "cache")
"""Arguments that change what attention is, and that plain products do not have."""


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **given: Any
) -> tuple[Tensor, None]:
    """Return what transformers' `sdpa` returns, (R, queries, H G, D).

    One query is attended here, unless an argument of `OTHERS` is given: on a GPU by a kernel, with or without a mask of
    positions, and on a CPU without a mask. `sdpa` does everything else.
    """
    scaling = query.shape[-1] ** -0.5 if given.get("scaling") is None else given["scaling"]
    if query.shape[2] != 1 or any(given.get(name) is not None for name in OTHERS):
        return sdpa_attention_forward(module, query, key, value, attention_mask, **given)
    if has_kernel(query):
        from emobench.inference.decoding.attention_kernel import attend_once, fits

        # A kernel takes a mask of positions that are seen, the same ones by all heads: (R, 1, queries, T).
        by_position = attention_mask is None or (attention_mask.dtype == torch.bool and attention_mask.shape[1] == 1)
        if by_position and fits(query, key, value):
            seen_RT = None if attention_mask is None else attention_mask[:, 0, 0]
            return attend_once(query[:, :, 0], key, value, seen_RT, scaling)[:, None], None
    elif attention_mask is None:
        rows, heads, _, width = query.shape
        key_NTD, value_NTD = key.flatten(0, 1), value.flatten(0, 1)
        query_NGD = query.reshape(len(key_NTD), -1, width) * scaling
        share_NGT = torch.bmm(query_NGD, key_NTD.transpose(1, 2)).softmax(-1)
        return torch.bmm(share_NGT, value_NTD).view(rows, 1, heads, -1), None
    return sdpa_attention_forward(module, query, key, value, attention_mask, **given)


def has_kernel(query: Tensor) -> bool:
    return query.is_cuda


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)


@contextmanager
def one_query_attention(model: PreTrainedModel) -> Iterator[None]:
    """Let a float32 model on a CPU, or a model on a GPU, use `attend` instead of `sdpa`.

    Models with another attention keep theirs.
    """
    parts = [part for part in model.modules() if isinstance(part, PreTrainedModel)]
    # Falcon calls torch by itself and would log that it cannot be changed.
    usual = all(part.config._attn_implementation == "sdpa" and part._can_set_attn_implementation() for part in parts)
    # Models that choose the positions to attend to turn the choice into a mask for the names "eager" and "sdpa" alone.
    usual &= not any(name.endswith("indexer") for name, _ in model.named_modules())
    usual &= model.device.type == "cuda" or (model.device.type == "cpu" and model.dtype == torch.float32)
    if not usual:
        yield
        return
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation("sdpa")
