"""Tasks of kind `generation`: continuations of the beginnings of real texts, and the perplexity of the split's text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from emobench.hooks import hookimpl
from emobench.kinds.auxiliary import AuxiliaryModel, Packages
from emobench.kinds.generation.rules import GenerationProtocol, PromptRule
from emobench.kinds.interface import Kind
from emobench.kinds.views import WrittenText
from emobench.metrics.packages import MAUVE_PACKAGES, rouge_packages
from emobench.tasks.spec import Task


class GenerationKind(Kind):
    """Continuations of prefixes of real texts (EMO paper, 4.1)."""

    name = "generation"
    rules = GenerationProtocol
    example = "prefix=20"
    any_corpus = True

    @property
    def runtime(self):
        from emobench.kinds.generation import evaluate

        return evaluate

    def fitting(self, rules: GenerationProtocol, changes: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
        """The blocks of PPL_test are evaluation examples, so that `--limit` is for them, too."""
        if limit is None:
            return dict(changes)
        return {**changes, "test_blocks": min(limit, rules.test_blocks or limit)}

    def shortest_text(self, task: Task) -> int:
        return task.protocol_as(GenerationProtocol).shortest

    def check_device(self, task: Task, device: str) -> None:
        if task.protocol_as(GenerationProtocol).sampling.backend == "continuous":
            self.runtime.check_continuous(device)

    def auxiliary_models(self, task: Task) -> Mapping[str, AuxiliaryModel]:
        return task.protocol_as(GenerationProtocol).auxiliary_models

    def packages(self, task: Task) -> Packages:
        rules = task.protocol_as(GenerationProtocol)
        encoder = () if rules.coherence.encoder is None else ("sentence-transformers",)
        return Packages(scores=(*MAUVE_PACKAGES, *rouge_packages(stemming=rules.stemming), *encoder))

    def generation_rules(self, task: Task) -> dict[str, Any]:
        rules = task.protocol_as(GenerationProtocol)
        decided = [*(field.name for field in fields(PromptRule)), "sampling", "limit"]
        return {name: getattr(rules, name) for name in decided}

    def written_texts(self, path: Path, facts: Mapping[str, Any], data: Mapping[str, str]) -> list[WrittenText]:
        return self.runtime.written_texts(path)


@hookimpl
def emobench_kinds() -> list[type[Kind]]:
    return [GenerationKind]
