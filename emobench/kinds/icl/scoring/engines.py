"""Engines that find the hidden states from which prompts are scored: `tree`, `cache` and `plain`, fastest first.

Each is a module with two functions, `run` and `slots`; `probe.py` finds out which one a model computes rightly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from emobench.kinds.icl.prompts.prompts import Prompt
from emobench.kinds.icl.scoring import cache, plain, tree
from emobench.kinds.icl.scoring.pairs import Pairs
from emobench.kinds.icl.scoring.passes import Pass


class Engine(Protocol):
    """What the module of an engine offers."""

    @staticmethod
    def slots(prompt: Prompt) -> int:
        """Return what an example weighs in a batch."""
        ...

    @staticmethod
    def run(model: Any, prompts: Sequence[Prompt], pairs: Pairs, device: torch.device) -> Pass:
        """Return the final hidden state that predicts each pair."""
        ...


ENGINES: dict[str, Engine] = {"tree": tree, "cache": cache, "plain": plain}
