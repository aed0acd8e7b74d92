"""Which engine a model computes rightly: found by comparing hidden states with those of `plain`, not by names.

A mask or positions of one's own are refused by some models (ALiBi), silently ignored by others, and overrule a sliding
window; keys and values behave otherwise in a state-space model.

Legend: N pairs, D hidden width.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from emobench.evaluation.icl.engines import Engine, plain, tree
from emobench.evaluation.icl.engines.pairs import SHARED, pairs_of
from emobench.evaluation.icl.prompts import Prompt

# Largest |h - h_plain| / |h_plain| of a pair, by precision: one mask entry that is wrong moves tiny random models by
# 1e-3 and more; sums in another order move float32 by 1e-6, and bfloat16 by up to 2e-2 in deep models.
TOLERANCES = {torch.float64: 1e-8, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
PREFIXES, BEHIND = (9, 6), ((4, 1, 3), (1, 2, 4))
"""Tokens of the made prompts' prefixes, and of each label behind them; one token behind is no input."""
MADE_LENGTH = 12


def made_prompts(vocabulary: int) -> list[Prompt]:
    """Return two small prompts of random tokens, of unequal length, for which every part of an engine is needed."""
    draw = random.Random(0)
    prompts = []
    for shared, behind in zip(PREFIXES, BEHIND, strict=True):
        prefix = draw.choices(range(vocabulary), k=shared)
        first = draw.sample(range(vocabulary), len(behind))  # the labels part at once
        tokens = tuple(
            (*prefix, token, *draw.choices(range(vocabulary), k=count - 1))
            for token, count in zip(first, behind, strict=True)
        )
        prompts.append(Prompt(id="made", tokens=tokens, label_starts=None, shots=()))
    return prompts


def extreme_prompts(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Return the longest prompt and the one with the longest row of engine `tree`, their longest labels at the end.

    A window counts tokens in one model, and slots, those of other labels among them, in another.
    """
    longest = max(prompts, key=lambda prompt: max(map(len, prompt.tokens)))
    widest = max(prompts, key=tree.slots)
    chosen = [longest] if tree.slots(longest) == tree.slots(widest) else [longest, widest]
    return [replace(prompt, tokens=tuple(sorted(prompt.tokens, key=len))) for prompt in chosen]


def refusal(engine: Engine, model: Any, prompts: Sequence[Prompt], device: torch.device) -> str | None:
    """Return why an engine is no good for a model, or None: what it finds for each prompt's last label is compared."""
    pairs = pairs_of(prompts, [prompt.shared for prompt in prompts], None)
    last_B = np.array([len(prompt.tokens) - 1 for prompt in prompts])
    pairs = pairs[(pairs.label_N == SHARED) | (pairs.label_N == last_B[pairs.example_N])]
    try:
        found_ND = engine.run(model, prompts, pairs, device).hidden_ND
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a model may refuse in any way
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
    alone = [replace(prompt, tokens=prompt.tokens[-1:]) for prompt in prompts]
    expected_ND = plain.run(model, alone, replace(pairs, label_N=np.zeros_like(pairs.label_N)), device).hidden_ND
    size_N = expected_ND.double().norm(dim=1).clamp_min(1e-30)
    difference = float(((found_ND.double() - expected_ND.double()).norm(dim=1) / size_N).max()) if len(pairs) else 0.0
    # Not the other way round: NaN is a difference.
    if difference <= tolerance(found_ND):
        return None
    return f"its hidden states differ by {difference:.1e} of their size, allowed {tolerance(found_ND):.0e}"


def tolerance(like: torch.Tensor) -> float:
    """Return the relative difference of hidden states that rounding explains."""
    if like.dtype == torch.float32 and like.is_cuda and torch.backends.cuda.matmul.allow_tf32:
        return TOLERANCES[torch.float16]  # TF32 has the digits of float16
    return TOLERANCES[like.dtype]
