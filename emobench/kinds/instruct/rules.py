"""The rules of tasks of kind `instruct`: how instructions become prompts, and how responses are decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emobench.config import check_ranges, ranged
from emobench.errors import ConfigError
from emobench.kinds.shared_rules import Sampling
from emobench.tasks.rules import Rules, seeds


@dataclass(frozen=True, kw_only=True)
class InstructProtocol(Rules):
    """Responses to instructions, compared with those of the data set."""

    template: Literal["alpaca", "chat"] = "alpaca"
    """What the model reads, which must be what it was trained on: recipe.template. alpaca: the prompt of Stanford
    Alpaca. chat: the chat template of the model's tokenizer."""
    max_new_tokens: int = ranged(512, low=1, high=2**20)
    """Tokens of a response at most. It ends before them at EOS, or where the template ends a turn."""
    temperature: float = ranged(0.0, low=0, high=1000)
    """0: the likeliest token at each step. Otherwise tokens are drawn, after the logits are divided by it."""
    top_p: float = ranged(1.0, above=0, high=1)
    """Draw from the likeliest tokens that together have this probability. 1 keeps all."""
    seed: int = 0
    """Of the draws; all objectives have the same random numbers."""
    limit: int | None = ranged(None, low=1, high=10**12)
    """Instructions at most, the first ones."""

    def __post_init__(self) -> None:
        check_ranges(self)
        seeds("seed", self.seed)
        if self.top_p < 1 and not self.temperature:
            raise ConfigError(
                f"`top_p` is {self.top_p}, and `temperature` is 0, which draws nothing; add --set "
                "instruct.temperature=1, or drop top_p."
            )

    @property
    def sampling(self) -> Sampling:
        """The rules of decoding, as the engine takes them."""
        if not self.temperature:
            return Sampling(method="greedy", suppress_eos=False)
        return Sampling(seed=self.seed, suppress_eos=False, temperature=self.temperature, top_p=self.top_p)
