"""Tasks of kind `beginnings`: the loss of the first tokens of texts. This module imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import emobench
from emobench_beginnings.weighting import WEIGHTINGS


@dataclass(frozen=True, kw_only=True)
class BeginningsProtocol(emobench.Rules):
    """How much of each text is read."""

    tokens: int = 8
    """Tokens of each text, at most."""
    limit: int | None = None
    """Texts at most."""
    weighting: str = "even"
    """How much the loss of each token counts: a weighting's name, with parameters, such as "fading(part=0.9)"."""


class BeginningsKind(emobench.Kind):
    """How well a model predicts the first tokens of texts."""

    name = "beginnings"
    rules = BeginningsProtocol
    families = (WEIGHTINGS,)

    @property
    def runtime(self) -> emobench.Runtime:
        from emobench_beginnings import evaluate

        return evaluate

    def key_facts(self, task: emobench.Task, model: Any) -> emobench.KeyFacts:
        """The weighting decides what is generated: another one, or another version, generates again."""
        loaded = WEIGHTINGS.load(task.protocol_as(BeginningsProtocol).weighting)
        weighting = {"source": loaded.source_sha256, "packages": dict(loaded.versions)}
        return emobench.KeyFacts(generation={"weighting": weighting})


@emobench.hookimpl
def emobench_kinds() -> list[type[emobench.Kind]]:
    return [BeginningsKind]
