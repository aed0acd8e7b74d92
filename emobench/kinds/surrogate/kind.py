"""Tasks of kind `surrogate`: the model against a larger one of the same tokenizer, token by token, on human texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from emobench.core.hooks import hookimpl
from emobench.core.settings import check_settings, setting
from emobench.kinds.interface import KeyFacts, Kind, Runtime
from emobench.kinds.views import KnownMetrics
from emobench.models.model import AuxiliaryModel, Model
from emobench.tasks.rules import Rules, model_rule
from emobench.tasks.scores import Measure
from emobench.tasks.spec import Task


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


class SurrogateKind(Kind):
    """Distances to a surrogate of the data's distribution (EMO paper, A.4.1, Figure 2)."""

    name = "surrogate"
    rules = SurrogateProtocol
    views: ClassVar = dict.fromkeys((Runtime, KnownMetrics), "emobench.kinds.surrogate.evaluate")

    @property
    def measures(self) -> Mapping[str, Measure]:
        from emobench.metrics.distances import MEASURES

        return MEASURES

    def key_facts(self, task: Task, model: Model | None) -> KeyFacts:
        """No rules: nothing is generated."""
        return KeyFacts(rules={}, models={"surrogate": task.protocol_as(SurrogateProtocol).auxiliary})


@hookimpl
def emobench_kinds() -> list[type[Kind]]:
    return [SurrogateKind]
