"""Engine `tree`: one forward pass over [shared prefix | label 1 | label 2 | ...] of each example.

A label's tokens see the prefix and their own, and stand at the positions that they have behind the prefix. The last
token of a label predicts nothing, so that it is no input: an example costs P + sum(k - 1) tokens.

Legend: B examples, T slots of a row, N pairs, D hidden width, P tokens of the prefix, k of a label behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from emobench.kinds.icl.prompts.prompts import Prompt
from emobench.kinds.icl.scoring.pairs import Pairs
from emobench.kinds.icl.scoring.passes import Pass
from emobench.models.head import final_hidden

PREFIX, PADDING = 0, -1


def slots(prompt: Prompt) -> int:
    """Return the number of tokens that an example's pass reads."""
    return prompt.shared + sum(max(0, len(ids) - prompt.shared - 1) for ids in prompt.tokens)


def run(model: Any, prompts: Sequence[Prompt], pairs: Pairs, device: torch.device) -> Pass:
    """Return the final hidden state that predicts each pair."""
    rows = [_row(prompt) for prompt in prompts]
    width = max(1, *(len(ids) for ids, _, _, _ in rows))
    ids_BT, places_BT = (np.zeros((len(rows), width), dtype=np.int64) for _ in range(2))
    block_BT = np.full((len(rows), width), PADDING, dtype=np.int64)
    for row, (ids, places, blocks, _) in enumerate(rows):
        ids_BT[row, : len(ids)], places_BT[row, : len(ids)], block_BT[row, : len(ids)] = ids, places, blocks
    hidden_BTD = final_hidden(
        model,
        input_ids=torch.from_numpy(ids_BT).to(device),
        position_ids=torch.from_numpy(places_BT).to(device),
        attention_mask=_mask(torch.from_numpy(block_BT).to(device), model.dtype),
    )
    source_N = torch.from_numpy(_sources(prompts, pairs, [starts for *_, starts in rows], width)).to(device)
    return Pass(hidden_BTD.flatten(0, 1)[source_N], sum(len(ids) for ids, *_ in rows), ids_BT.size)


def _row(prompt: Prompt) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return tokens, positions and blocks of an example's row, and where each label's block begins in it."""
    together = prompt.shared
    ids, places, blocks = list(prompt.tokens[0][:together]), list(range(together)), [PREFIX] * together
    starts = []
    for label, tokens in enumerate(prompt.tokens, start=1):
        starts.append(len(ids))
        inner = tokens[together:-1] if len(tokens) > together else ()
        ids += inner
        places += range(together, together + len(inner))
        blocks += [label] * len(inner)
    return ids, places, blocks, starts


def _mask(block_BT: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what is added to attention scores, (B, 1, T, T): 0 where a slot sees another, the lowest number elsewhere.

    Added, not Boolean: plain attention adds whatever it is given. Padding sees itself, so that no row is empty.
    """
    width = block_BT.shape[1]
    earlier_TT = torch.ones(width, width, dtype=torch.bool, device=block_BT.device).tril_()
    query_BT1, key_B1T = block_BT[:, :, None], block_BT[:, None, :]
    seen_BTT = ((key_B1T == PREFIX) | (key_B1T == query_BT1)) & earlier_TT
    hidden_BTT = torch.zeros(seen_BTT.shape, dtype=dtype, device=block_BT.device)
    return hidden_BTT.masked_fill_(~seen_BTT, torch.finfo(dtype).min)[:, None]


def _sources(prompts: Sequence[Prompt], pairs: Pairs, starts: Sequence[Sequence[int]], width: int) -> np.ndarray:
    """Return, for each pair, the slot before it, counted through all rows."""
    labels = max(len(prompt.tokens) for prompt in prompts)
    start_BL = np.array([[*row, *[0] * (labels - len(row))] for row in starts])
    shared_N = np.array([prompt.shared for prompt in prompts])[pairs.example_N]
    before_N = pairs.place_N - 1
    # A pair of all labels is in the prefix, so that its label (-1) is not looked up in earnest.
    own_N = start_BL[pairs.example_N, pairs.label_N] + before_N - shared_N
    return pairs.example_N * width + np.where(before_N < shared_N, before_N, own_N)
