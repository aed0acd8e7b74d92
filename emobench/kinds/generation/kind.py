"""Tasks of kind `generation`: continuations of the beginnings of real texts, and the perplexity of the split's text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from emobench.core.family import Family
from emobench.core.hooks import hookimpl
from emobench.data.labelled import LabelledSource
from emobench.kinds.generation.rules import GenerationProtocol, PromptRule
from emobench.kinds.interface import KeyFacts, Kind, Runtime
from emobench.kinds.shared_rules import MAUVE_PACKAGES, rouge_packages
from emobench.kinds.views import KnownMetrics, SourceTexts, WrittenTexts
from emobench.tasks.scores import Measure
from emobench.tasks.spec import Task

if TYPE_CHECKING:
    from emobench.kinds.generation.metric import MetricGroup
    from emobench.models.model import Model

BLOCKS = 20
"""Blocks of documents; without each of them a metric of a corpus is computed again, for its pseudo-values."""
METRICS: Family[MetricGroup] = Family(
    name="metric",
    title="Metrics of generated texts",
    bases=("emobench.kinds.generation.metric:MetricGroup",),
    checks="emobench.kinds.generation.checks:checks",
    facts="emobench.kinds.generation.checks:facts",
    columns=("measures",),
    glossary="emobench.registry.measures:definitions",
    templates=Path(__file__).parent / "templates",
    usage=('emobench evaluate --suite lm-quick --model gpt2 --limit 64 --set generation.metrics="[$name]"',),
)


class GenerationKind(Kind):
    """Continuations of prefixes of real texts (EMO paper, 4.1)."""

    name = "generation"
    rules = GenerationProtocol
    validation: ClassVar = {"split": "validation"}
    reads = "any corpus"
    families = (METRICS,)
    views: ClassVar = dict.fromkeys(
        (Runtime, KnownMetrics, SourceTexts, WrittenTexts), "emobench.kinds.generation.evaluate"
    )

    def check_rules(self, rules: GenerationProtocol, dataset: LabelledSource | None, where: str) -> None:
        """Check that the metrics that a protocol names are installed, and that no two metrics have one name."""
        if rules.metrics:
            from emobench.kinds.generation.evaluate import check_metrics

            check_metrics([METRICS.load(text).plugin for text in rules.metrics], where)

    def fitting(self, rules: GenerationProtocol, changes: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
        """The blocks of PPL_test are evaluation examples, so that `--limit` is for them, too."""
        if limit is None:
            return dict(changes)
        return {**changes, "test_blocks": min(limit, rules.test_blocks or limit)}

    @property
    def measures(self) -> Mapping[str, Measure]:
        from emobench.metrics.coherence import COHERENCE
        from emobench.metrics.mauve import MAUVE
        from emobench.metrics.perplexity import ENTROPY, PERPLEXITY, PPL_ORACLE, PPL_TEST
        from emobench.metrics.repetition import DISTINCTNESS, REPETITION, SELF_BLEU
        from emobench.metrics.rouge import ROUGE

        texts = {"ppl": PERPLEXITY, "ppl_test": PPL_TEST, "ppl_oracle": PPL_ORACLE, "entropy": ENTROPY}
        single = {"self_bleu": SELF_BLEU, "coherence": COHERENCE}
        return {**texts, **MAUVE, **ROUGE, **REPETITION, **DISTINCTNESS, **single}

    def key_facts(self, task: Task, model: Model | None) -> KeyFacts:
        """The rules of prompts and sampling decide what is generated, and the code of the named metrics the scores.

        The models of named metrics are `<metric>.<part>`.
        """
        rules = task.protocol_as(GenerationProtocol)
        decided = [*(field.name for field in fields(PromptRule)), "sampling", "limit"]
        metrics = []
        models = rules.auxiliary_models
        for text in rules.metrics:
            metric = METRICS.load(text)
            metrics.append({"name": text, "source": metric.source_sha256, "packages": dict(metric.versions)})
            for part, other in metric.plugin.models.items():
                setting = other.setting or "generation.metrics"
                models[f"{metric.plugin.name}.{part}"] = replace(other, setting=setting)
        encoder = () if rules.coherence.encoder is None else ("sentence-transformers",)
        return KeyFacts(
            rules={name: getattr(rules, name) for name in decided},
            models=models,
            backend=rules.sampling.backend,
            scores={"blocks": BLOCKS, "metrics": metrics},
            score_packages=(*MAUVE_PACKAGES, *rouge_packages(stemming=rules.stemming), *encoder),
        )


@hookimpl
def emobench_kinds() -> list[type[Kind]]:
    return [GenerationKind]
