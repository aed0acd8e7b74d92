"""Tasks of kind `surrogate`: the model against a larger one of the same tokenizer, token by token, on human texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from emobench.core.hooks import hookimpl
from emobench.kinds.interface import Kind
from emobench.kinds.surrogate.rules import SurrogateProtocol
from emobench.models.model import AuxiliaryModel
from emobench.tasks.scores import Measure
from emobench.tasks.spec import Task

if TYPE_CHECKING:
    pass


class SurrogateKind(Kind):
    """Distances to a surrogate of the data's distribution (EMO paper, A.4.1, Figure 2)."""

    name = "surrogate"
    rules = SurrogateProtocol
    example = "model=gpt-neo-1.3b"

    @property
    def runtime(self):
        from emobench.kinds.surrogate import evaluate

        return evaluate

    def auxiliary_models(self, task: Task) -> Mapping[str, AuxiliaryModel]:
        return {"surrogate": task.protocol_as(SurrogateProtocol).auxiliary}

    @property
    def measures(self) -> Mapping[str, Measure]:
        from emobench.metrics.distances import MEASURES

        return MEASURES

    def metrics(self, task: Task) -> Mapping[str, Measure]:
        """Return the metrics that decide something."""
        from emobench.metrics.distances import PRIMARY

        return {name: self.measures[name] for name in PRIMARY}

    def generation_rules(self, task: Task) -> dict[str, Any]:
        """No rules: nothing is generated."""
        return {}


@hookimpl
def emobench_kinds() -> list[type[Kind]]:
    return [SurrogateKind]
