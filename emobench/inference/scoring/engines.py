"""The hidden states from which prompts are scored, by two engines, and their comparison.

- `trie`: rows of prompts that begin alike, each token once (`trie.py`). The trunk of many batches is read once, and its
  keys and values are kept. A token stands at the position that it has in its prompt.
- `plain`: each label's whole prompt by itself. Every causal model can do it, so `trie` is measured by it: a caller's
  mask or positions are refused by some models (ALiBi), silently ignored by others, and overrule a sliding window; keys
  and values behave otherwise in a state-space model.

Legend: N scored tokens, B examples, R rows, T slots of a row, D hidden width, C tokens of the trunk, K nodes of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from emobench.core.errors import ModelError, first_line
from emobench.inference.scoring.trie import TRUNK, LabelPrompts, TrieRow, make_row
from emobench.metrics.batching import pad
from emobench.models.head import base_model, final_hidden

if TYPE_CHECKING:
    from transformers import DynamicCache

# Largest |h - h_plain| / |h_plain| of a token, by precision: labels that see one another move it by 0.4 in a trained
# model (7M parameters), in any precision. Where a model's own rounding is larger, it is measured.
TOLERANCES = {torch.float64: 1e-8, torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 2e-2}
TIMES_ROUNDING, MOST = 4, 0.1
"""Otherwise this many times the difference that another kernel makes to `plain` itself, and never more than MOST."""


class ScoredTokens(NamedTuple):
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


def scored_tokens(rows: Sequence[TrieRow], chosen: Sequence[np.ndarray]) -> ScoredTokens:
    """Return the chosen nodes of each row, bool (K,), as scored tokens."""
    parts = []
    for r, (row, chosen_K) in enumerate(zip(rows, chosen, strict=True)):
        owner_N2 = row.owner_K[chosen_K]
        row_N = np.full(len(owner_N2), r)
        nodes = (row.place_K[chosen_K], row.token_K[chosen_K], row_N, row.parent_K[chosen_K])
        parts.append((owner_N2[:, 0], owner_N2[:, 1], *nodes))
    return ScoredTokens(*map(np.concatenate, zip(*parts, strict=True)))


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
            raise ModelError(f"{type(model).__name__} keeps only the keys and values of a window.")
        return cls(tokens, layers, read[0][0])

    def behind(self, rows: int) -> DynamicCache:
        """Return keys and values for so many rows; they are copied when a layer adds its own."""
        from transformers import DynamicCache  # slow to import, and a dry run needs no model

        expanded = []
        for keys, values in self.layers:
            expanded.append((keys.expand(rows, -1, -1, -1), values.expand(rows, -1, -1, -1)))
        return DynamicCache(expanded)


class Pass(NamedTuple):
    """The outcome of reading a batch."""

    hidden_ND: Tensor
    """The head's input that predicts each scored token."""
    tokens: int
    """Tokens that went through the model."""
    slots: int
    """Tokens and padding."""


def read_plain(model: Any, prompts: Sequence[LabelPrompts], scored: ScoredTokens, device: torch.device) -> Pass:
    """Read each label's whole prompt."""
    rows: list[tuple[int, ...]] = []
    for prompt in prompts:
        rows += [ids[:-1] or ids for ids in prompt.tokens]
    first_B = np.array([0, *accumulate(len(prompt.tokens) for prompt in prompts)])
    ids_RT, mask_RT = pad(rows, 0, device)
    hidden_RTD = final_hidden(model, input_ids=ids_RT, attention_mask=mask_RT)
    row_N = first_B[scored.example_N] + scored.label_N
    source_N = torch.from_numpy(row_N * ids_RT.shape[1] + scored.place_N - 1).to(device)
    return Pass(hidden_RTD.flatten(0, 1)[source_N], sum(map(len, rows)), ids_RT.numel())


def read_trie(
    model: Any,
    rows: Sequence[TrieRow],
    trunk: KeptTrunk | None,
    scored: ScoredTokens,
    device: torch.device,
    *,
    masked: bool = False,
) -> Pass:
    """Read the rows of a batch behind their trunk. `masked`: with a mask even if no row branches."""
    counts = [row.slots for row in rows]
    tokens, width = sum(counts), max(1, *counts)
    if trunk is not None and tokens == 0:  # all scored tokens come directly behind the trunk
        return Pass(trunk.hidden_CD[-1:].expand(len(scored.target_N), -1), 0, 0)
    ids_RT = np.zeros((len(rows), width), dtype=np.int64)
    places_RT = np.zeros_like(ids_RT)
    end_RT = np.tile(np.arange(1, width + 1), (len(rows), 1))  # padding sees itself, so that nothing is empty
    slots = []
    for r, (row, count) in enumerate(zip(rows, counts, strict=True)):
        before_K = np.concatenate([[0], np.cumsum(row.read_K)])
        ids_RT[r, :count], places_RT[r, :count] = row.token_K[row.read_K], row.place_K[row.read_K]
        end_RT[r, :count] = before_K[row.end_K[row.read_K]]
        slots.append(before_K)
    inputs: dict[str, Any] = {"input_ids": torch.from_numpy(ids_RT).to(device), "use_cache": trunk is not None}
    before = 0
    if trunk is not None:
        inputs["past_key_values"] = trunk.behind(len(rows))
        before = len(trunk.tokens)
    # Else rows are plain texts, whose padding comes last: the causal kernel without a mask is faster.
    if masked or any(row.branches for row in rows):
        inputs["position_ids"] = torch.from_numpy(places_RT).to(device)
        inputs["attention_mask"] = _trie_mask(torch.from_numpy(end_RT).to(device), before, model.dtype)
    hidden = [base_model(model)(**inputs)[0].flatten(0, 1)]
    first_R = np.cumsum([0, *map(len, slots)])
    source_N = np.concatenate(slots)[first_R[scored.row_N] + scored.parent_N] + scored.row_N * width
    if trunk is not None:
        hidden.append(trunk.hidden_CD[-1:])
        source_N[scored.parent_N == TRUNK] = ids_RT.size
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


def difference_from_plain(
    model: Any, prompts: Sequence[LabelPrompts], members: Sequence[int], trunk: int, device: torch.device, masked: bool
) -> str | None:
    """Return how `trie` fails or differs from `plain` on a row of examples behind `trunk` tokens; None if it is right.

    Of the row, the prompt at its end and the longest one are compared, often the same: a window that counts slots hides
    the beginning from the former, and one that counts places from the latter.
    """
    row = make_row(prompts, members, trunk)
    longest = max(row.paths, key=lambda owner: len(row.paths[owner]))
    last = [(int(b), int(label)) for b, label in row.owner_K[row.read_K][-1:]]
    alone, parts = [], []
    for place, (b, label) in enumerate(dict.fromkeys([*last, longest])):
        alone.append(replace(prompts[b], tokens=(prompts[b].tokens[label],)))
        path_N = row.paths[b, label]
        path_N = path_N[row.place_K[path_N] > 0]
        zeros_N = np.zeros_like(path_N)
        nodes = (row.place_K[path_N], row.token_K[path_N], zeros_N, row.parent_K[path_N])
        parts.append((zeros_N + place, zeros_N, *nodes))
    scored = ScoredTokens(*map(np.concatenate, zip(*parts, strict=True)))
    try:
        kept = KeptTrunk.read(model, prompts[members[0]].tokens[0][:trunk], device) if trunk else None
        actual_ND = read_trie(model, [row], kept, scored, device, masked=masked).hidden_ND
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a model may refuse in any way
        return f"{type(error).__name__}: {first_line(error)[:200]}"
    expected_ND = read_plain(model, alone, scored, device).hidden_ND
    difference, allowed = relative_difference(actual_ND, expected_ND), TOLERANCES[expected_ND.dtype]
    if not difference <= allowed:  # not `>`: NaN is a difference
        allowed = max(allowed, min(MOST, TIMES_ROUNDING * _rounding(model, alone, scored, expected_ND)))
    if difference <= allowed:
        return None
    return f"its hidden states differ by {difference:.1e} of their size, allowed {allowed:.0e}"


def relative_difference(actual_ND: Tensor, expected_ND: Tensor) -> float:
    """Return the largest difference of a token's hidden states, as a share of their size."""
    if not len(actual_ND):
        return 0.0
    size_N = expected_ND.double().norm(dim=1).clamp_min(1e-30)
    return float(((actual_ND.double() - expected_ND.double()).norm(dim=1) / size_N).max())


def _rounding(model: Any, alone: Sequence[LabelPrompts], scored: ScoredTokens, expected_ND: Tensor) -> float:
    """Return the difference of `plain` in a batch with a shorter row: padding asks for a mask, so for another kernel.

    On a GPU in half precision (or TF32) that difference grows with each layer, and is not the engine's fault.
    """
    longest = max(alone, key=lambda prompt: prompt.longest)
    shorter = replace(longest, tokens=(longest.tokens[0][: (longest.longest + 1) // 2],))
    return relative_difference(read_plain(model, [*alone, shorter], scored, expected_ND.device).hidden_ND, expected_ND)
