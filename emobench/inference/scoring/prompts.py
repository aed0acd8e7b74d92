"""The prompts to score: token lists that are alternatives of one another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, kw_only=True)
class LabelPrompts:
    """The tokenized prompts of one example, one for each label (or answer, or choice)."""

    id: str
    """Unique among those that are scored together."""
    tokens: tuple[tuple[int, ...], ...]
    """Of each label: the whole prompt. A model with a context of C tokens reads prompts of up to C + 1: it does not
    read the last token."""
    label_starts: tuple[int, ...] | None
    """Of each label: the place of its own first token; None if it is unknown."""

    @cached_property
    def shared(self) -> int:
        """The number of tokens that all labels' prompts begin with."""
        columns = zip(*self.tokens, strict=False)
        ends = (place for place, column in enumerate(columns) if len(set(column)) > 1)
        return next(ends, min(map(len, self.tokens)))
