"""Checkpoints that another program trained: whether they belong to their base."""

from __future__ import annotations

from typing import Any

from emobench.core.errors import ModelError
from emobench.models.model import Model


def require_base(checkpoint: Model) -> None:
    """Raise ModelError unless a checkpoint may have been trained from its base, by its sizes and its tokens.

    The checkpoint may have more tokens than its base, such as those of a chat template.
    """
    base = checkpoint.trained_from
    assert base is not None
    names = ["layers", "width"]
    if checkpoint.facts.vocabulary == base.facts.vocabulary:
        names.append("parameters")
    for name in names:
        size, expected = getattr(checkpoint.facts, name), getattr(base.facts, name)
        if size != expected:
            raise _other_base(checkpoint, base, f"different {name}: {size:,} and {expected:,}")
    token = other_token(checkpoint.tokenizer, base.tokenizer)
    if token is not None:
        raise _other_base(checkpoint, base, f"different ids for the token {token!r:.40}")


def other_token(tokenizer: Any, base: Any) -> str | None:
    """Return a token of the base's tokenizer that the other one lacks, or has under another id; None if there is none.

    The other tokenizer may have more tokens.
    """
    tokens = tokenizer.get_vocab()
    for token, number in base.get_vocab().items():
        if tokens.get(token) != number:
            return token
    return None


def _other_base(checkpoint: Model, base: Model, difference: str) -> ModelError:
    return ModelError(
        f"{checkpoint.given} was not trained from {base.given}: they have {difference}. Give the model that it was "
        "trained from: --from BASE."
    )
