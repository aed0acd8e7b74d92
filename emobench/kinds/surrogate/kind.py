"""Tasks of kind `surrogate`: the model against a larger one of the same tokenizer, token by token, on human texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from emobench.core.hooks import hookimpl
from emobench.kinds.interface import KeyFacts, Kind, Runtime
from emobench.kinds.surrogate.rules import SurrogateProtocol
from emobench.kinds.views import KnownMetrics
from emobench.models.model import Model
from emobench.tasks.scores import Measure
from emobench.tasks.spec import Task


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
