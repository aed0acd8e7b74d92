"""Engines that find the hidden states from which prompts are scored: `trie`, `cache` and `plain`, fastest first.

- `trie`: rows of prompts that begin alike, each token once (`trie.py`); what all rows begin with is read once for many
  batches, and its keys and values are kept. A token stands at the position that it has in its prompt.
- `cache`: the shared prefix of each example once, then each label's tokens behind its keys and values. For models that
  refuse a mask of their caller's own, such as those with ALiBi. A second, short pass and a copy of the keys and values
  for each label make it slower.
- `plain`: each label's whole prompt by itself. Every causal model can do it: what the others are measured by.

Legend: N scored tokens, B examples, L labels of one, R rows, T slots of a row, D hidden width, C tokens of the trunk,
P tokens of a shared prefix (padded on the left in `cache`), k tokens of a label behind it, S slots of these.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from emobench.core.errors import ModelError
from emobench.inference.scoring.prompts import LabelPrompts
from emobench.inference.scoring.trie import TRUNK, TrieRow, make_row
from emobench.metrics.batching import pad
from emobench.models.head import base_model, final_hidden

if TYPE_CHECKING:
    from transformers import DynamicCache


@dataclass(frozen=True)
class ScoredTokens:
    """The tokens of a batch that are scored, each once however many prompts have it; int64 (N,) each."""

    example_N: np.ndarray
    """The place in the batch of a prompt that has the token."""
    label_N: np.ndarray
    """The place of that prompt's label."""
    place_N: np.ndarray
    """The token's own place in the prompt, at least 1: it is predicted from the place before."""
    target_N: np.ndarray
    """The token."""
    row_N: np.ndarray
    parent_N: np.ndarray
    """The row and the node from which `trie` predicts the token."""

    def __len__(self) -> int:
        return len(self.target_N)

    def __getitem__(self, chosen_N: np.ndarray) -> ScoredTokens:
        return ScoredTokens(*(getattr(self, one.name)[chosen_N] for one in fields(self)))


def scored_tokens(rows: Sequence[TrieRow], chosen: Sequence[np.ndarray]) -> ScoredTokens:
    """Return the chosen nodes of each row, bool (K,), as scored tokens. Places are at least 1."""
    nodes = [np.flatnonzero(chosen_K) for chosen_K in chosen]
    owner_N2 = np.concatenate([row.owner_K[node_N] for row, node_N in zip(rows, nodes, strict=True)])

    def of(name: str) -> np.ndarray:
        return np.concatenate([getattr(row, name)[node_N] for row, node_N in zip(rows, nodes, strict=True)])

    row_N = np.repeat(np.arange(len(rows)), [len(node_N) for node_N in nodes])
    return ScoredTokens(owner_N2[:, 0], owner_N2[:, 1], of("place_K"), of("token_K"), row_N, of("parent_K"))


@dataclass(frozen=True)
class KeptTrunk:
    """The states of the tokens that all prompts of a batch begin with."""

    tokens: tuple[int, ...]
    layers: Sequence[tuple[Tensor, Tensor]]
    """Keys and values, (1, heads, C, width), of each layer."""
    hidden_CD: Tensor

    @classmethod
    def read(cls, model: Any, tokens: tuple[int, ...], device: torch.device) -> KeptTrunk:
        """Read a trunk. Raises ModelError for a model that keeps no keys and values of all its tokens."""
        read = base_model(model)(input_ids=torch.tensor([tokens], device=device), use_cache=True)
        kept = getattr(read, "past_key_values", None)
        if kept is None:
            raise ModelError(f"{type(model).__name__} keeps no keys and values.")
        layers = [(layer.keys, layer.values) for layer in kept.layers]
        if any(keys.shape[-2] != len(tokens) for keys, _ in layers):
            raise ModelError(f"{type(model).__name__} keeps the keys and values of a window alone.")
        return cls(tokens, layers, read[0][0])

    def behind(self, rows: int) -> DynamicCache:
        """Return keys and values for so many rows; they are copied where a layer adds its own."""
        from transformers import DynamicCache  # slow to import, and a dry run needs no model

        return DynamicCache(
            [(keys.expand(rows, -1, -1, -1), values.expand(rows, -1, -1, -1)) for keys, values in self.layers]
        )


class Pass(NamedTuple):
    """The outcome of scoring a batch."""

    hidden_ND: Tensor
    """The head's input that predicts each pair."""
    tokens: int
    """Tokens that went through the model."""
    slots: int
    """The same with padding."""


class Batch(NamedTuple):
    """Examples that are scored together."""

    prompts: Sequence[LabelPrompts]
    rows: Sequence[TrieRow]
    trunk: KeptTrunk | None = None
    """What all prompts begin with; `trie` alone may have one."""


class Engine(NamedTuple):
    """How prompts are read."""

    slots: Callable[[LabelPrompts], int]
    """Returns what an example weighs in a batch, by itself."""
    run: Callable[[Any, Batch, ScoredTokens, torch.device], Pass]
    """Returns the final hidden state that predicts each scored token."""


def _plain_slots(prompt: LabelPrompts) -> int:
    """Return the number of tokens that an example's rows hold, padded to the longest."""
    return len(prompt.tokens) * max(1, max(map(len, prompt.tokens)) - 1)


def _plain_pass(model: Any, batch: Batch, scored: ScoredTokens, device: torch.device) -> Pass:
    rows = [ids[:-1] or ids for prompt in batch.prompts for ids in prompt.tokens]
    first_B = np.array([0, *accumulate(len(prompt.tokens) for prompt in batch.prompts)])
    ids_RT, mask_RT = pad(rows, 0, device)
    hidden_RTD = final_hidden(model, input_ids=ids_RT, attention_mask=mask_RT)
    row_N = first_B[scored.example_N] + scored.label_N
    source_N = torch.from_numpy(row_N * ids_RT.shape[1] + scored.place_N - 1).to(device)
    return Pass(hidden_RTD.flatten(0, 1)[source_N], sum(map(len, rows)), ids_RT.numel())


def trie_slots(prompt: LabelPrompts) -> int:
    """Return the number of tokens that a row of one example reads."""
    return int(make_row([prompt], [0], 0).read_K.sum())


def _trie_pass(model: Any, batch: Batch, scored: ScoredTokens, device: torch.device) -> Pass:
    reads = [row.read_K for row in batch.rows]
    counts = [int(read_K.sum()) for read_K in reads]
    tokens, width = sum(counts), max(1, *counts)
    if batch.trunk is not None and tokens == 0:  # all that is scored comes directly behind the trunk
        return Pass(batch.trunk.hidden_CD[-1:].expand(len(scored), -1), 0, 0)
    ids_RT = np.zeros((len(reads), width), dtype=np.int64)
    places_RT = np.zeros_like(ids_RT)
    end_RT = np.tile(np.arange(1, width + 1), (len(reads), 1))  # padding sees itself, so that nothing is empty
    slots, branches = [], False
    for r, (row, read_K) in enumerate(zip(batch.rows, reads, strict=True)):
        before_K = np.concatenate([[0], np.cumsum(read_K)])
        count = before_K[-1]
        ids_RT[r, :count], places_RT[r, :count] = row.token_K[read_K], row.place_K[read_K]
        end_RT[r, :count] = before_K[row.end_K[read_K]]
        branches |= bool((end_RT[r, :count] < count).any())
        slots.append(before_K)
    inputs: dict[str, Any] = {"input_ids": torch.from_numpy(ids_RT).to(device), "use_cache": batch.trunk is not None}
    if batch.trunk is not None:
        inputs["past_key_values"] = batch.trunk.behind(len(reads))
    if branches:  # else rows are plain texts, whose padding comes last: the causal kernel without a mask is faster
        before = 0 if batch.trunk is None else len(batch.trunk.tokens)
        inputs["position_ids"] = torch.from_numpy(places_RT).to(device)
        inputs["attention_mask"] = _trie_mask(torch.from_numpy(end_RT).to(device), before, model.dtype)
    hidden_RTD = base_model(model)(**inputs)[0]
    hidden = [hidden_RTD.flatten(0, 1)]
    first_R = np.cumsum([0, *map(len, slots)])
    source_N = np.concatenate(slots)[first_R[scored.row_N] + scored.parent_N] + scored.row_N * width
    if batch.trunk is not None:
        hidden.append(batch.trunk.hidden_CD[-1:])
        source_N[scored.parent_N == TRUNK] = len(reads) * width
    return Pass(torch.cat(hidden)[torch.from_numpy(source_N).to(device)], tokens, ids_RT.size)


def _trie_mask(end_RT: Tensor, before: int, dtype: torch.dtype) -> Tensor:
    """Return the addend of attention scores, (R, 1, T, C + T): 0 where a slot sees another, else the lowest number.

    A slot sees the trunk, and the slots up to itself whose subtree it lies in. Added, not Boolean: plain attention adds
    whatever it is given.
    """
    rows, width = end_RT.shape
    slot_T = torch.arange(width, device=end_RT.device)
    seen_RTT = (slot_T[:, None] >= slot_T) & (slot_T[:, None] < end_RT[:, None, :])
    mask_RTT = torch.zeros((rows, width, before + width), dtype=dtype, device=end_RT.device)
    mask_RTT[:, :, before:].masked_fill_(~seen_RTT, torch.finfo(dtype).min)
    return mask_RTT[:, None]


def _cache_slots(prompt: LabelPrompts) -> int:
    """Return the number of tokens whose keys and values an example holds: those of the prefix for each label."""
    return sum(map(len, prompt.tokens))


def _cache_pass(model: Any, batch: Batch, scored: ScoredTokens, device: torch.device) -> Pass:
    prompts = batch.prompts
    if any(prompt.shared == 0 for prompt in prompts):
        return _plain_pass(model, batch, scored, device)  # there is nothing to keep
    ids_BP, mask_BP = pad([prompt.tokens[0][: prompt.shared] for prompt in prompts], 0, device, left=True)
    prefix = base_model(model)(
        input_ids=ids_BP, attention_mask=mask_BP, use_cache=True, **_positions(model, mask_BP.cumsum(1) - 1)
    )
    rows, inputs = [], []
    for b, prompt in enumerate(prompts):
        for label, ids in enumerate(prompt.tokens):
            if len(ids) > prompt.shared + 1:
                rows.append((b, label))
                inputs.append(ids[prompt.shared : -1])
    hidden = [prefix[0].flatten(0, 1)]
    width = 0
    if rows:
        owner_R = torch.tensor([b for b, _ in rows], device=device)
        suffix_RSD = _behind(model, prefix, owner_R, inputs, mask_BP)
        hidden.append(suffix_RSD.flatten(0, 1))
        width = suffix_RSD.shape[1]
    source_N = torch.from_numpy(_cache_sources(prompts, scored, rows, ids_BP.shape[1], width)).to(device)
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
    prompts: Sequence[LabelPrompts], scored: ScoredTokens, rows: Sequence[tuple[int, int]], prefix: int, suffix: int
) -> np.ndarray:
    """Return, for each scored token, the slot before it: first those of all prefixes, then those of all suffixes."""
    shared_B = np.array([prompt.shared for prompt in prompts])
    row_BL = np.zeros((len(prompts), max(len(prompt.tokens) for prompt in prompts)), dtype=np.int64)
    for row, (b, label) in enumerate(rows):
        row_BL[b, label] = row
    shared_N, before_N = shared_B[scored.example_N], scored.place_N - 1
    in_prefix_N = scored.example_N * prefix + prefix - shared_N + before_N
    behind_N = len(prompts) * prefix + row_BL[scored.example_N, scored.label_N] * suffix + before_N - shared_N
    return np.where(before_N < shared_N, in_prefix_N, behind_N)


ENGINES = {
    "trie": Engine(trie_slots, _trie_pass),
    "cache": Engine(_cache_slots, _cache_pass),
    "plain": Engine(_plain_slots, _plain_pass),
}
