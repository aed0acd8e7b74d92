"""Engine `plain`: each label's whole prompt by itself. Every causal model can do it: what the others are measured by.

Legend: R rows, one of each label of each example, T positions, N pairs, D hidden width.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from emobench.kinds.icl.prompts.prompts import Prompt
from emobench.kinds.icl.scoring.pairs import Pairs
from emobench.kinds.icl.scoring.passes import Pass
from emobench.metrics.batching import pad
from emobench.models.head import final_hidden


def slots(prompt: Prompt) -> int:
    """Return the number of tokens that an example's rows hold, padded to the longest."""
    return len(prompt.tokens) * max(map(len, prompt.tokens))


def run(model: Any, prompts: Sequence[Prompt], pairs: Pairs, device: torch.device) -> Pass:
    """Return the final hidden state that predicts each pair; one of all labels is read in the first label's row."""
    rows = [ids for prompt in prompts for ids in prompt.tokens]
    first_B = np.array([0, *accumulate(len(prompt.tokens) for prompt in prompts)])
    ids_RT, mask_RT = pad(rows, 0, device)
    hidden_RTD = final_hidden(model, input_ids=ids_RT, attention_mask=mask_RT)
    row_N = first_B[pairs.example_N] + np.maximum(pairs.label_N, 0)
    source_N = torch.from_numpy(row_N * ids_RT.shape[1] + pairs.place_N - 1).to(device)
    return Pass(hidden_RTD.flatten(0, 1)[source_N], sum(map(len, rows)), ids_RT.numel())
