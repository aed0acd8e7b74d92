"""What a reader may look at of a kind's tasks: texts that were written, and prompts with labels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class WrittenText:
    """One continuation of one prompt."""

    prompt: str
    sample: int
    prefix: str | None
    human: str | None
    """None where they are not known."""
    generated: str
    ended: bool | None
    """By the model, before the full length; None where that is not known."""
    preferred: float | None = None
    """How much a judge prefers it to the human text, from 0 to 1; None where no judge gave a verdict."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """The text of one token; None for its token where no token holds the text (spaces that the tokenizer drops)."""

    part: str
    """header, shot 1 (the nearest), shot 2, ..., input, or label (to the end); BOS for a token of no text."""
    text: str
    """What the token stands for; of a BOS, its name."""
    token: int | None


@dataclass(frozen=True, kw_only=True)
class ShownLabel:
    """One label of a prompt: its loss by the protocol's rule, the posterior, and the tokens of its whole prompt."""

    name: str
    text: str
    loss: float
    posterior: float
    tokens: int


@dataclass(frozen=True, kw_only=True)
class ShownPrompt:
    """One test example's prompt with the right label, and how each label scores."""

    id: str
    right: str
    answer: str
    tied: bool
    text: str
    """The whole prompt, as the tokenizer gets it."""
    tokens: int
    first_ids: tuple[int, ...]
    shots: tuple[tuple[str, str], ...]
    """(id, class) of each shot, the most similar first."""
    dropped: int
    cut: int
    labels: tuple[ShownLabel, ...]
    pieces: tuple[Piece, ...]
