"""Engine `cache`: the shared prefix once, then each label's tokens behind its keys and values.

For models that refuse a mask of their own caller, such as those with ALiBi. A second, short pass and a copy of the
keys and values for each label make it a little slower than `tree`.

Legend: B examples, P slots of a prefix (padded on the left), R rows, one of each label that has inputs, S their slots,
N pairs, D hidden width.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from emobench.errors import ModelError
from emobench.kinds.icl.prompts.prompts import Prompt
from emobench.kinds.icl.scoring import plain
from emobench.kinds.icl.scoring.pairs import Pairs
from emobench.kinds.icl.scoring.passes import Pass
from emobench.metrics.batching import pad
from emobench.models.head import base_model, base_outputs


def slots(prompt: Prompt) -> int:
    """Return the number of tokens whose keys and values an example holds: those of the prefix for each label."""
    return sum(map(len, prompt.tokens))


def run(model: Any, prompts: Sequence[Prompt], pairs: Pairs, device: torch.device) -> Pass:
    """Return the final hidden state that predicts each pair."""
    if any(prompt.shared == 0 for prompt in prompts):
        return plain.run(model, prompts, pairs, device)  # there is nothing to keep
    ids_BP, mask_BP = pad([prompt.tokens[0][: prompt.shared] for prompt in prompts], 0, device, left=True)
    prefix = base_outputs(
        model, input_ids=ids_BP, attention_mask=mask_BP, use_cache=True, **_positions(model, mask_BP.cumsum(1) - 1)
    )
    rows = [(b, label) for b, p in enumerate(prompts) for label, ids in enumerate(p.tokens) if len(ids) > p.shared + 1]
    inputs = [prompts[b].tokens[label][prompts[b].shared : -1] for b, label in rows]
    hidden = [prefix[0].flatten(0, 1)]
    width = 0
    if rows:
        owner_R = torch.tensor([b for b, _ in rows], device=device)
        suffix_RSD = _behind(model, prefix, owner_R, inputs, mask_BP)
        hidden.append(suffix_RSD.flatten(0, 1))
        width = suffix_RSD.shape[1]
    source_N = torch.from_numpy(_sources(prompts, pairs, rows, ids_BP.shape[1], width)).to(device)
    tokens = sum(prompt.shared for prompt in prompts) + sum(map(len, inputs))
    return Pass(torch.cat(hidden)[source_N], tokens, ids_BP.numel() + len(rows) * width)


def _behind(model: Any, prefix: Any, owner_R: Tensor, inputs: Sequence[Sequence[int]], mask_BP: Tensor) -> Tensor:
    """Return the hidden states of each row's tokens behind the prefix of its example."""
    kept = getattr(prefix, "past_key_values", None)
    if kept is None:
        raise ModelError(f"{type(model).__name__} keeps no keys and values.")
    kept.batch_select_indices(owner_R)
    ids_RS, mask_RS = pad(inputs, 0, mask_BP.device)
    mask_RP = mask_BP[owner_R]
    places_RS = mask_RP.sum(1, keepdim=True) + torch.arange(ids_RS.shape[1], device=mask_BP.device)
    places_RS = places_RS * mask_RS  # padding behind a prompt that fills the context would stand beyond it
    return base_outputs(
        model,
        input_ids=ids_RS,
        attention_mask=torch.cat([mask_RP, mask_RS], dim=1),
        past_key_values=kept,
        use_cache=True,
        **_positions(model, places_RS),
    )[0]


def _positions(model: Any, places: Tensor) -> dict[str, Tensor]:
    """Return the argument that names positions, where the model takes one; the others count by the mask."""
    takes = "position_ids" in inspect.signature(base_model(model).forward).parameters
    return {"position_ids": places.clamp_min(0)} if takes else {}


def _sources(
    prompts: Sequence[Prompt], pairs: Pairs, rows: Sequence[tuple[int, int]], prefix: int, suffix: int
) -> np.ndarray:
    """Return, for each pair, the slot before it: first those of all prefixes, then those of all suffixes."""
    shared_B = np.array([prompt.shared for prompt in prompts])
    row_BL = np.zeros((len(prompts), max(len(prompt.tokens) for prompt in prompts)), dtype=np.int64)
    for row, (b, label) in enumerate(rows):
        row_BL[b, label] = row
    shared_N, before_N = shared_B[pairs.example_N], pairs.place_N - 1
    in_prefix_N = pairs.example_N * prefix + prefix - shared_N + before_N
    behind_N = len(prompts) * prefix + row_BL[pairs.example_N, pairs.label_N] * suffix + before_N - shared_N
    return np.where(before_N < shared_N, in_prefix_N, behind_N)
