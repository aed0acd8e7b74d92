"""Tasks of kind `beginnings`: the loss of the first tokens of texts. This module imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

import emobench


@dataclass(frozen=True, kw_only=True)
class BeginningsProtocol(emobench.Rules):
    """How much of each text is read."""

    tokens: int = 8
    """Tokens of each text, at most."""
    limit: int | None = None
    """Texts at most."""


class BeginningsKind(emobench.Kind):
    """How well a model predicts the first tokens of texts."""

    name = "beginnings"
    rules = BeginningsProtocol
    example = "tokens=8"

    @property
    def runtime(self) -> emobench.Runtime:
        from emobench_beginnings import evaluate

        return evaluate


@emobench.hookimpl
def emobench_kinds() -> list[type[emobench.Kind]]:
    return [BeginningsKind]
