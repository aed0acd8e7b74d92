"""Engines that find the hidden states from which prompts are scored: `tree`, `cache` and `plain`, fastest first.

- `tree`: one forward pass over [shared prefix | label 1 | label 2 | ...] of each example. A label's tokens see the
  prefix and their own, and stand at the positions that they have behind the prefix. The last token of a label predicts
  nothing and is not read: an example costs P + sum(k - 1) tokens.
- `cache`: the shared prefix once, then each label's tokens behind its keys and values. For models that refuse a mask of
  their caller's own, such as those with ALiBi. A second, short pass and a copy of the keys and values for each label
  make it a little slower than `tree`.
- `plain`: each label's whole prompt by itself. Every causal model can do it: what the others are measured by.

Legend: N pairs, B examples, L labels of one, R rows (one of each label), T slots of a row, D hidden width, P tokens of
a shared prefix (padded on the left in `cache`), k tokens of a label behind it, S slots of these.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from emobench.errors import ModelError
from emobench.kinds.icl.prompts import ExamplePrompts
from emobench.metrics.batching import pad
from emobench.models.head import base_model, final_hidden

SHARED = -1
PREFIX, PADDING = 0, -1
"""Blocks of a row of `tree`; those of the labels are 1, 2, ..."""


@dataclass(frozen=True)
class ScoredTokens:
    """(position, next token) pairs of a batch, int64 (N,) each, by example: the prefix's once, then each label's."""

    example_N: np.ndarray
    """The prompt's place in the batch."""
    label_N: np.ndarray
    """The label's place among the prompt's, SHARED (-1) for a token that all labels have."""
    place_N: np.ndarray
    """The token's own place in its prompt, at least 1: it is predicted from the place before."""
    target_N: np.ndarray
    """The token."""

    def __len__(self) -> int:
        return len(self.target_N)

    def __getitem__(self, chosen_N: np.ndarray | slice) -> ScoredTokens:
        return ScoredTokens(
            self.example_N[chosen_N], self.label_N[chosen_N], self.place_N[chosen_N], self.target_N[chosen_N]
        )


def pairs_of(prompts: Sequence[ExamplePrompts], shared: Sequence[int], skip: int | None) -> ScoredTokens:
    """Return the pairs of prompts of which so many first tokens are scored once for all labels.

    A prompt's first token is never scored, nor is the token `skip`: as in OpenICL, whose padding is the EOS.
    """
    parts: list[tuple[int, int, int, Sequence[int]]] = []  # example, label, first place, tokens from there on
    for example, (prompt, together) in enumerate(zip(prompts, shared, strict=True)):
        if together > 1:
            parts.append((example, SHARED, 1, prompt.tokens[0][1:together]))
        first = max(1, together)
        parts += [(example, label, first, ids[first:]) for label, ids in enumerate(prompt.tokens) if len(ids) > first]
    if not parts:
        return ScoredTokens(*(np.zeros(0, dtype=np.int64) for _ in range(4)))
    counts = [len(ids) for _, _, _, ids in parts]
    pairs = ScoredTokens(
        np.repeat([example for example, _, _, _ in parts], counts),
        np.repeat([label for _, label, _, _ in parts], counts),
        np.concatenate([np.arange(first, first + len(ids)) for _, _, first, ids in parts]),
        np.concatenate([np.asarray(ids, dtype=np.int64) for _, _, _, ids in parts]),
    )
    return pairs if skip is None else pairs[pairs.target_N != skip]


class Pass(NamedTuple):
    """The outcome of scoring a batch."""

    hidden_ND: Tensor
    """The head's input that predicts each pair."""
    tokens: int
    """Tokens that went through the model."""
    slots: int
    """The same with padding."""


class Engine(NamedTuple):
    """How prompts are read."""

    slots: Callable[[ExamplePrompts], int]
    """Returns what an example weighs in a batch."""
    run: Callable[[Any, Sequence[ExamplePrompts], ScoredTokens, torch.device], Pass]
    """Returns the final hidden state that predicts each pair."""


def _plain_slots(prompt: ExamplePrompts) -> int:
    """Return the number of tokens that an example's rows hold, padded to the longest."""
    return len(prompt.tokens) * max(map(len, prompt.tokens))


def _plain_pass(model: Any, prompts: Sequence[ExamplePrompts], pairs: ScoredTokens, device: torch.device) -> Pass:
    """Return the final hidden state that predicts each pair; one of all labels is read in the first label's row."""
    rows = [ids for prompt in prompts for ids in prompt.tokens]
    first_B = np.array([0, *accumulate(len(prompt.tokens) for prompt in prompts)])
    ids_RT, mask_RT = pad(rows, 0, device)
    hidden_RTD = final_hidden(model, input_ids=ids_RT, attention_mask=mask_RT)
    row_N = first_B[pairs.example_N] + np.maximum(pairs.label_N, 0)
    source_N = torch.from_numpy(row_N * ids_RT.shape[1] + pairs.place_N - 1).to(device)
    return Pass(hidden_RTD.flatten(0, 1)[source_N], sum(map(len, rows)), ids_RT.numel())


def _tree_slots(prompt: ExamplePrompts) -> int:
    """Return the number of tokens that an example's pass reads."""
    return prompt.shared + sum(max(0, len(ids) - prompt.shared - 1) for ids in prompt.tokens)


def _tree_pass(model: Any, prompts: Sequence[ExamplePrompts], pairs: ScoredTokens, device: torch.device) -> Pass:
    """Return the final hidden state that predicts each pair."""
    rows = [_tree_row(prompt) for prompt in prompts]
    width = max(1, *(len(ids) for ids, _, _, _ in rows))
    ids_BT, places_BT = (np.zeros((len(rows), width), dtype=np.int64) for _ in range(2))
    block_BT = np.full((len(rows), width), PADDING, dtype=np.int64)
    for row, (ids, places, blocks, _) in enumerate(rows):
        ids_BT[row, : len(ids)], places_BT[row, : len(ids)], block_BT[row, : len(ids)] = ids, places, blocks
    hidden_BTD = final_hidden(
        model,
        input_ids=torch.from_numpy(ids_BT).to(device),
        position_ids=torch.from_numpy(places_BT).to(device),
        attention_mask=_tree_mask(torch.from_numpy(block_BT).to(device), model.dtype),
    )
    source_N = torch.from_numpy(_tree_sources(prompts, pairs, [starts for *_, starts in rows], width)).to(device)
    return Pass(hidden_BTD.flatten(0, 1)[source_N], sum(len(ids) for ids, *_ in rows), ids_BT.size)


def _tree_row(prompt: ExamplePrompts) -> tuple[list[int], list[int], list[int], list[int]]:
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


def _tree_mask(block_BT: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what is added to attention scores, (B, 1, T, T): 0 where a slot sees another, the lowest number elsewhere.

    Added, not Boolean: plain attention adds whatever it is given. Padding sees itself, so that no row is empty.
    """
    width = block_BT.shape[1]
    earlier_TT = torch.ones(width, width, dtype=torch.bool, device=block_BT.device).tril_()
    query_BT1, key_B1T = block_BT[:, :, None], block_BT[:, None, :]
    seen_BTT = ((key_B1T == PREFIX) | (key_B1T == query_BT1)) & earlier_TT
    hidden_BTT = torch.zeros(seen_BTT.shape, dtype=dtype, device=block_BT.device)
    return hidden_BTT.masked_fill_(~seen_BTT, torch.finfo(dtype).min)[:, None]


def _tree_sources(
    prompts: Sequence[ExamplePrompts], pairs: ScoredTokens, starts: Sequence[Sequence[int]], width: int
) -> np.ndarray:
    """Return, for each pair, the slot before it, counted through all rows."""
    labels = max(len(prompt.tokens) for prompt in prompts)
    start_BL = np.array([[*row, *[0] * (labels - len(row))] for row in starts])
    shared_N = np.array([prompt.shared for prompt in prompts])[pairs.example_N]
    before_N = pairs.place_N - 1
    # A pair of all labels is in the prefix, so that its label (-1) is not looked up in earnest.
    own_N = start_BL[pairs.example_N, pairs.label_N] + before_N - shared_N
    return pairs.example_N * width + np.where(before_N < shared_N, before_N, own_N)


def _cache_slots(prompt: ExamplePrompts) -> int:
    """Return the number of tokens whose keys and values an example holds: those of the prefix for each label."""
    return sum(map(len, prompt.tokens))


def _cache_pass(model: Any, prompts: Sequence[ExamplePrompts], pairs: ScoredTokens, device: torch.device) -> Pass:
    """Return the final hidden state that predicts each pair."""
    if any(prompt.shared == 0 for prompt in prompts):
        return _plain_pass(model, prompts, pairs, device)  # there is nothing to keep
    ids_BP, mask_BP = pad([prompt.tokens[0][: prompt.shared] for prompt in prompts], 0, device, left=True)
    prefix = base_model(model)(
        input_ids=ids_BP, attention_mask=mask_BP, use_cache=True, **_positions(model, mask_BP.cumsum(1) - 1)
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
    source_N = torch.from_numpy(_cache_sources(prompts, pairs, rows, ids_BP.shape[1], width)).to(device)
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
    return base_model(model)(
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


def _cache_sources(
    prompts: Sequence[ExamplePrompts], pairs: ScoredTokens, rows: Sequence[tuple[int, int]], prefix: int, suffix: int
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


ENGINES = {
    "tree": Engine(_tree_slots, _tree_pass),
    "cache": Engine(_cache_slots, _cache_pass),
    "plain": Engine(_plain_slots, _plain_pass),
}
