"""Which engine a model computes rightly: found by comparing hidden states with those of `plain`, not by names.

A mask or positions of the caller are refused by some models (ALiBi), silently ignored by others, and overrule a sliding
window; keys and values behave otherwise in a state-space model.

Legend: N scored tokens, K nodes of a row, D hidden width.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from emobench.core.errors import first_line
from emobench.inference.scoring.engines import ENGINES, Batch, Engine, KeptTrunk, ScoredTokens, scored_tokens
from emobench.inference.scoring.prompts import LabelPrompts
from emobench.inference.scoring.trie import TrieRow, make_row

# Largest |h - h_plain| / |h_plain| of a token, by precision: labels that see one another move it by 0.4 in a model that
# was trained (7M parameters), in any precision. Where a model's own rounding is larger, it is measured.
TOLERANCES = {torch.float64: 1e-8, torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 2e-2}
TIMES_ROUNDING, MOST = 4, 0.1
"""Otherwise this many times the difference that another kernel makes to `plain` itself, and never more than MOST."""
PREFIXES, BEHIND = (9, 6), ((4, 1, 3), (1, 2, 4))
"""Tokens of the made prompts' prefixes, and of each label behind them; a label of one token is not read."""
MADE_LENGTH = max(prefix + max(behind) for prefix, behind in zip(PREFIXES, BEHIND, strict=True))


def made_prompts(vocabulary: int) -> list[LabelPrompts]:
    """Return two small prompts of random tokens, of unequal length, for which every part of an engine is needed."""
    draw = random.Random(0)
    prompts = []
    for shared, behind in zip(PREFIXES, BEHIND, strict=True):
        prefix = draw.choices(range(vocabulary), k=shared)
        first = draw.sample(range(vocabulary), len(behind))  # the labels part at once
        tokens = []
        for token, count in zip(first, behind, strict=True):
            tokens.append((*prefix, token, *draw.choices(range(vocabulary), k=count - 1)))
        prompts.append(LabelPrompts(id="made", tokens=tuple(tokens), label_starts=None))
    return prompts


def row_width(prompt: LabelPrompts) -> int:
    """Return the slots of an example's row of `trie`, or more: the shared tokens, and the others read of each label."""
    return prompt.shared + sum(max(0, len(ids) - 1 - prompt.shared) for ids in prompt.tokens)


def length(prompt: LabelPrompts) -> int:
    """Return the tokens of an example's longest prompt."""
    return max(map(len, prompt.tokens), default=0)


def branches(prompt: LabelPrompts) -> bool:
    """Say whether a row of `trie` may need a mask: tokens of two labels are read behind what all labels share."""
    return len({ids[prompt.shared :] for ids in prompt.tokens if len(ids) > prompt.shared + 1}) > 1


def extreme_prompts(prompts: Sequence[LabelPrompts]) -> list[LabelPrompts]:
    """Return the longest prompt, the one with the longest row of engine `trie`, and the longest one that branches.

    A window counts tokens in one model, and slots, those of other labels among them, in another. One row that branches
    gives all rows of a batch a mask, which may overrule a window.
    """
    chosen = [max(prompts, key=length), max(prompts, key=row_width)]
    masked = [prompt for prompt in prompts if branches(prompt)]
    if masked:
        chosen.append(max(masked, key=length))
    return list({id(prompt): prompt for prompt in chosen}.values())


def refusal(
    engine: Engine, model: Any, prompts: Sequence[LabelPrompts], device: torch.device, *, trunk: bool = False
) -> str | None:
    """Return why an engine is wrong for a model, or None; of each prompt, two labels are compared with `plain`.

    With `trunk`, half of what the labels of the first prompt share is read before, and the other prompts are left out.
    """
    common = prompts[0].shared // 2 if trunk else 0
    if trunk and not common:
        return None
    prompts = prompts[:1] if trunk else prompts
    rows = [make_row(prompts, [b], common) for b in range(len(prompts))]
    alone, chosen, labels = [], [], []
    for b, (prompt, row) in enumerate(zip(prompts, rows, strict=True)):
        end, longest = _extreme_paths(row)
        paths = {owner[1]: _on_path(row, *owner) for owner in (end, longest)}
        alone.append(replace(prompt, tokens=tuple(prompt.tokens[label] for label in paths)))
        chosen.append(np.logical_or.reduce(list(paths.values())))
        labels.append(np.where(paths[end[1]], 0, 1)[chosen[b]])
    scored = scored_tokens(rows, chosen)
    apart = replace(scored, label_N=np.concatenate(labels))
    return _difference_from_plain(engine, model, prompts, rows, common, scored, alone, apart, device)


def joined_refusal(model: Any, prompts: Sequence[LabelPrompts], trunk: int, device: torch.device) -> str | None:
    """Return why several examples cannot be one row of `trie` behind a trunk of so many tokens, or None.

    The prompt at the end of the row and the longest one are compared.
    """
    row = make_row(prompts, range(len(prompts)), trunk)
    for b, label in dict.fromkeys(_extreme_paths(row)):
        scored = scored_tokens([row], [_on_path(row, b, label)])
        zeros_N = np.zeros_like(scored.label_N)
        alone = [replace(prompts[b], tokens=(prompts[b].tokens[label],))]
        apart = replace(scored, example_N=zeros_N, label_N=zeros_N)
        reason = _difference_from_plain(ENGINES["trie"], model, prompts, [row], trunk, scored, alone, apart, device)
        if reason is not None:
            return reason
    return None


def _extreme_paths(row: TrieRow) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the owners of the path at the end of a row's read nodes, and of the longest path; often the same.

    A window that counts slots hides the beginning from the former, and one that counts places from the latter.
    """
    last = {}
    for owner, path_K in row.paths.items():
        last[owner] = max(path_K[row.read_K[path_K]], default=-1)
    end = max(last, key=lambda owner: last[owner])
    return end, max(last, key=lambda owner: (len(row.paths[owner]), owner == end))


def _on_path(row: TrieRow, b: int, label: int) -> np.ndarray:
    """Return which nodes of a row are scored tokens of one prompt, bool (K,)."""
    chosen_K = np.zeros(len(row.token_K), dtype=bool)
    chosen_K[row.paths[b, label]] = True
    return chosen_K & (row.place_K > 0)


def _difference_from_plain(
    engine: Engine,
    model: Any,
    prompts: Sequence[LabelPrompts],
    rows: Sequence[TrieRow],
    trunk: int,
    scored: ScoredTokens,
    alone: Sequence[LabelPrompts],
    apart: ScoredTokens,
    device: torch.device,
) -> str | None:
    """Return how an engine fails or differs, or None; `apart` are the scored tokens among the prompts in `alone`."""
    try:
        kept = KeptTrunk.read(model, prompts[0].tokens[0][:trunk], device) if trunk else None
        found_ND = engine.run(model, Batch(prompts, rows, kept), scored, device).hidden_ND
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a model may refuse in any way
        return f"{type(error).__name__}: {first_line(error)[:200]}"
    expected_ND = ENGINES["plain"].run(model, Batch(alone, ()), apart, device).hidden_ND
    difference, allowed = _difference(found_ND, expected_ND), TOLERANCES[expected_ND.dtype]
    if not difference <= allowed:  # not `>`: NaN is a difference
        rounding = _difference(_otherwise(model, Batch(alone, ()), apart, device), expected_ND)
        allowed = max(allowed, min(MOST, TIMES_ROUNDING * rounding))
    if difference <= allowed:
        return None
    return f"its hidden states differ by {difference:.1e} of their size, allowed {allowed:.0e}"


def _difference(found_ND: Tensor, expected_ND: Tensor) -> float:
    """Return the largest difference of a token's hidden states, as a share of their size."""
    if not len(found_ND):
        return 0.0
    size_N = expected_ND.double().norm(dim=1).clamp_min(1e-30)
    return float(((found_ND.double() - expected_ND.double()).norm(dim=1) / size_N).max())


def _otherwise(model: Any, alone: Batch, scored: ScoredTokens, device: torch.device) -> Tensor:
    """Return the states of `plain` in a batch with a shorter row: padding asks for a mask, and so for another kernel.

    On a GPU in half precision (or TF32) that difference grows with each layer, and is not the engine's fault.
    """
    longest = max(alone.prompts, key=lambda prompt: len(prompt.tokens[0]))
    ids = longest.tokens[0]
    shorter = replace(longest, tokens=(ids[: (len(ids) + 1) // 2],))
    return ENGINES["plain"].run(model, Batch([*alone.prompts, shorter], ()), scored, device).hidden_ND
