"""The rules of tasks of kind `surrogate`: the larger model, and the human texts that both read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emobench.core.settings import check_settings, setting
from emobench.models.model import AuxiliaryModel
from emobench.tasks.rules import Rules, model_rule


@dataclass(frozen=True, kw_only=True)
class SurrogateProtocol(Rules):
    """Token by token, the model against a larger one of the same tokenizer on human texts (EMO paper, A.4.1)."""

    model: str = model_rule("gpt-neo-1.3b")
    """The surrogate of the data's distribution."""
    split: Literal["test", "validation"] = "validation"
    """Split of the corpus."""
    min_words: int = setting(20, low=0, high=10**9)
    """Minimum number of words of a text; shorter texts are skipped."""
    max_tokens: int = setting(500, low=1, high=2**20)
    """Maximum tokens of a text; longer texts are skipped, as in the official code."""
    limit: int | None = setting(None, low=1, high=10**12)
    """Maximum number of texts."""

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def auxiliary(self) -> AuxiliaryModel:
        """The surrogate."""
        return AuxiliaryModel(self.model, "lm", setting="surrogate.model")
