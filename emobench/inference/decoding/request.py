"""Rules and prompts for decoding, and the continuations that it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from emobench.core.errors import ConfigError
from emobench.kinds.shared_rules import Sampling


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How continuations are decoded; everything but `token_budget` decides what they are."""

    rule: Sampling
    length: int
    """Tokens of a full continuation, without `rule.extra_tokens`."""
    token_budget: int | None = None
    """rows x (prefix + new tokens) of a batch, at most, where a single prompt does not need more; by default what fits
    the device's memory."""

    def __post_init__(self) -> None:
        if self.length < 1 or (self.token_budget is not None and self.token_budget < 1):
            raise ConfigError("length and token_budget must be at least 1.")

    @property
    def new_tokens(self) -> int:
        return self.length + self.rule.extra_tokens

    @property
    def suppressed_steps(self) -> int:
        """Steps, from the first, at which EOS gets no mass (official code: `min_new_tokens`)."""
        return self.length if self.rule.suppress_eos else 0

    @property
    def rows(self) -> int:
        """Rows of a batch that one prompt takes."""
        return self.rule.beams if self.rule.method == "beam" else self.rule.samples

    def ends(self, eos: tuple[int, ...]) -> tuple[int, ...]:
        """Return the ids that may end a text; none where EOS is suppressed to the last step."""
        return eos if self.suppressed_steps < self.new_tokens else ()

    def cut(self, ids: list[int], eos: tuple[int, ...]) -> Continuation:
        """Cut new ids at the first EOS; those before the full length cannot exist, those after it end the text."""
        ends = self.ends(eos)
        end = next((i for i, token in enumerate(ids) if token in ends), None)
        if end is None:
            return Continuation(ids, False)
        return Continuation(ids[:end], True)


class Continuation(NamedTuple):
    """New token ids, without the EOS that ended them, and whether one did."""

    ids: list[int]
    ended: bool


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Prompts that are decoded together."""

    prompts_ids: Sequence[Sequence[int]]
    keys: Sequence[str]
    """The prompts' ids: with the seed and the sample's index they fix the randomness of a row."""
    eos: tuple[int, ...]
    vocabulary: int | None = None
    """Ids from it on are padding of the head, and never decoded."""
    decoding: Decoding

    @property
    def ends(self) -> tuple[int, ...]:
        """The ids that may end a text."""
        return self.decoding.ends(self.eos)

    def cut(self, ids: list[int]) -> Continuation:
        return self.decoding.cut(ids, self.eos)


def eos_ids(model: Any) -> tuple[int, ...]:
    """Return the ids that end a text, from the model's generation configuration or else its configuration."""
    for config in (getattr(model, "generation_config", None), model.config):
        value = getattr(config, "eos_token_id", None)
        if value is not None:
            return tuple(value) if isinstance(value, (list, tuple)) else (int(value),)
    return ()
