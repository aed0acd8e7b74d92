"""The rules of tasks of kind `oracle`: how many texts, of what length, the oracle language and the model compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emobench.core.settings import check_settings, setting
from emobench.kinds.shared_rules import MauveRule
from emobench.tasks.rules import Rules, seeds


@dataclass(frozen=True, kw_only=True)
class OracleProtocol(Rules):
    """Exact comparison with the oracle language, and samples from the model alone."""

    domain: Literal["source", "target"] = "target"
    """Reference version of the oracle language: target (of the training) or source (of the pre-training)."""
    texts: int = setting(1000, low=1, high=10**6)
    """Number of texts that are sampled from the model, and of texts of the language for comparison."""
    length: int = setting(63, low=1, high=2**20)
    """Maximum words, with end-of-text, of a sample; only as many of each test text are read."""
    prefix: int = setting(8, low=1, high=2**20)
    """Words of the prefix of the continuations that ROUGE compares."""
    continuation: int = setting(16, low=1, high=2**20)
    """Words of the continuations that ROUGE compares."""
    seed: int = 0
    """Seed of the texts that are sampled from the model and from the language, shared by all objectives."""
    mauve: MauveRule = MauveRule()
    """How MAUVE is computed."""
    limit: int | None = setting(None, low=1, high=10**12)
    """Maximum number of test texts, of samples and of prompts."""

    def __post_init__(self) -> None:
        check_settings(self)
        seeds("seed", self.seed)

    @property
    def count(self) -> int:
        """The samples, and the texts that are compared with them."""
        return min(self.texts, self.limit or self.texts)

    @property
    def text_tokens(self) -> int | None:
        """The most symbols of a compared text."""
        return self.length
