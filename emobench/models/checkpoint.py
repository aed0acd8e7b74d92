"""Checkpoints that another program trained: whether they belong to their base."""

from __future__ import annotations

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
            raise _other_base(checkpoint, base, f"{name} of {size:,} and {expected:,}")
    tokens = checkpoint.tokenizer.get_vocab()
    for token, number in base.tokenizer.get_vocab().items():
        if tokens.get(token) != number:
            raise _other_base(checkpoint, base, f"another id for the token {token!r:.40}")


def _other_base(checkpoint: Model, base: Model, difference: str) -> ModelError:
    return ModelError(
        f"{checkpoint.given} was not trained from {base.given}: they have {difference}. Give the model that it was "
        "trained from: --from BASE."
    )
