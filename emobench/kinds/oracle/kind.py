"""Tasks of kind `oracle`: a model of the oracle language against the language itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from emobench.core.hooks import hookimpl
from emobench.kinds.interface import KeyFacts, Kind, Runtime
from emobench.kinds.oracle.rules import OracleProtocol
from emobench.kinds.shared_rules import MAUVE_PACKAGES, rouge_packages
from emobench.kinds.views import KnownMetrics, WrittenTexts
from emobench.models.model import Model
from emobench.tasks.scores import Measure
from emobench.tasks.spec import Task


class OracleKind(Kind):
    """Exact comparison with the oracle language, and samples from the model alone."""

    name = "oracle"
    rules = OracleProtocol
    views: ClassVar = dict.fromkeys((Runtime, KnownMetrics, WrittenTexts), "emobench.kinds.oracle.evaluate")

    @property
    def measures(self) -> Mapping[str, Measure]:
        from emobench.metrics.distances import DISTANCES, MEASURES
        from emobench.metrics.mauve import MAUVE
        from emobench.metrics.perplexity import PPL_ORACLE, PPL_TEST
        from emobench.metrics.rouge import ROUGE

        distances = {name: MEASURES[name] for name in DISTANCES}
        rouge = {name: ROUGE[name] for name in ("rouge1", "rougeL")}
        return {"ppl_test": PPL_TEST, "ppl_oracle": PPL_ORACLE, **distances, **MAUVE, **rouge}

    def key_facts(self, task: Task, model: Model | None) -> KeyFacts:
        rules = task.protocol_as(OracleProtocol)
        decided = ("domain", "texts", "length", "prefix", "continuation", "seed", "limit")
        packages = (*MAUVE_PACKAGES, *rouge_packages(stemming=False))
        return KeyFacts(
            rules={name: getattr(rules, name) for name in decided},
            models={"featurizer": rules.mauve.model},
            score_packages=packages,
        )


@hookimpl
def emobench_kinds() -> list[type[Kind]]:
    return [OracleKind]
