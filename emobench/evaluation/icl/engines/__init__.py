"""Engines that find the hidden states from which prompts are scored: `tree`, `cache` and `plain`, fastest first.

Each is a module with two functions, `run` and `slots`; `probe.py` finds out which one a model computes rightly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from emobench.evaluation.icl.engines import cache, plain, tree
from emobench.evaluation.icl.engines.pairs import Pairs
from emobench.evaluation.icl.engines.passes import Pass
from emobench.evaluation.icl.prompts import Prompt


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
