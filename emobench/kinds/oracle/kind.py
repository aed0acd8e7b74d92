"""Tasks of kind `oracle`: a model of the oracle language against the language itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from emobench.core.hooks import hookimpl
from emobench.core.settings import check_settings, setting
from emobench.kinds.interface import KeyFacts, Kind, Runtime
from emobench.kinds.shared_rules import MAUVE_PACKAGES, MauveRule, rouge_packages
from emobench.kinds.views import KnownMetrics, WrittenTexts
from emobench.models.model import Model
from emobench.tasks.rules import Rules, seeds
from emobench.tasks.scores import Measure
from emobench.tasks.spec import Task


@dataclass(frozen=True, kw_only=True)
class OracleProtocol(Rules):
    """Exact comparison with the oracle language, and samples from the model alone."""

    ABSENT_BY_DEFAULT: ClassVar = ("split",)

    split: Literal["test", "validation"] = "test"
    """The split of the corpus that the model reads."""
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


class OracleKind(Kind):
    """Exact comparison with the oracle language, and samples from the model alone."""

    name = "oracle"
    rules = OracleProtocol
    validation: ClassVar = {"split": "validation"}
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
            generation={"samples": 2},  # 2: a file of samples has the prefixes and the human continuations, too
            score_packages=packages,
        )


@hookimpl
def emobench_kinds() -> list[type[Kind]]:
    return [OracleKind]
