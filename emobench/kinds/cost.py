"""The cost of an evaluation, as its kind estimates it: examples, tokens by model, steps of sampling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from emobench.data.sources import CORPORA, SplitSource

if TYPE_CHECKING:
    from emobench.data.texts import Texts


@dataclass(frozen=True)
class Requests:
    """Requests to a model at an endpoint: their number, and the maximum tokens of prompts and of replies."""

    model: str
    count: int
    read: int
    written: int


@dataclass(frozen=True)
class Cost:
    """The examples that are answered and the tokens that the evaluated model reads; None if unknown."""

    examples: int | None
    tokens: int | None
    steps: int = 0
    """Of sampling: one after the other, each a token of a whole batch."""
    batch_tokens: int = 0
    """Tokens of a batch of samples, prefixes included, whose keys and values are in memory at once."""
    auxiliary_tokens: Mapping[str, int] = field(default_factory=dict)
    """Tokens that each auxiliary model reads, by its part."""
    requests: Requests | None = None


@dataclass(frozen=True)
class SplitSize:
    """The rows and tokens of a split, as far as they are known."""

    rows: int | None
    tokens: int | None


def split_size(corpus: str, split: str, texts: Texts | None, bytes_per_token: float) -> SplitSize:
    """Return the size of a split: of its local texts, else as the corpus documents it."""
    source = CORPORA.get(corpus)
    part: SplitSource | None = source.splits.get(split) if source else None  # type: ignore[call-overload]
    size, rows = (part.text_bytes, part.rows) if part else (None, None)
    if texts is not None:
        size = sum(len(text.encode()) for text in texts.texts)
        rows = len(texts)
    return SplitSize(rows, None if size is None else int(size / bytes_per_token))


def least(*numbers: int | None) -> int | None:
    """Return the smallest number; None counts as unknown."""
    return min((number for number in numbers if number is not None), default=None)
