"""Tasks of kind `icl`: classification from a prompt with shots, answered by the label of lowest loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from emobench.core.errors import ConfigError, UnknownNameError
from emobench.core.hooks import hookimpl
from emobench.core.versions import minor_versions
from emobench.data.labelled import LabelledSource
from emobench.kinds.icl.retrieval.retriever import RETRIEVERS
from emobench.kinds.icl.rules import IclProtocol
from emobench.kinds.interface import KeyFacts, Kind, Runtime
from emobench.kinds.views import KnownMetrics, LabelAnswers, LabelPrompts, NewTask
from emobench.models.model import AuxiliaryModel, Model
from emobench.tasks.scores import Measure
from emobench.tasks.spec import Task


class IclKind(Kind):
    """In-context learning (EMO paper, 4.2 and A.5)."""

    name = "icl"
    rules = IclProtocol
    validation: ClassVar = {"held_out": 200}
    reads = "dataset"
    families = (RETRIEVERS,)
    views: ClassVar = {
        **dict.fromkeys((Runtime, KnownMetrics), "emobench.kinds.icl.evaluate"),
        LabelPrompts: "emobench.kinds.icl.show_prompts",
        LabelAnswers: "emobench.kinds.icl.answers",
        NewTask: "emobench.kinds.icl.new_file",
    }

    def check_rules(self, rules: IclProtocol, dataset: LabelledSource | None, where: str) -> None:
        """Check that a prompt asks for fields that the data set has, and has a text for each of its classes."""
        assert dataset is not None
        known = {*dataset.fields, *(dataset.classes if dataset.choices else ()), *(("group",) if dataset.group else ())}
        for name in rules.fields:
            if name not in known:
                raise UnknownNameError("field", name, known, where=f"{where}: the template or query: ")
        if set(rules.labels) != set(dataset.classes):
            raise ConfigError(
                f"{where}: `labels` has texts for {', '.join(rules.labels)}; expected one for each of "
                f"{', '.join(dataset.classes)}."
            )

    def fitting(self, rules: IclProtocol, changes: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
        """An encoder is a rule of those tasks alone whose retriever has a use for it."""
        fitting = dict(changes)
        if "encoder" in fitting and not RETRIEVERS.load(rules.retriever).plugin.encodes:
            del fitting["encoder"]
        return fitting

    @property
    def measures(self) -> Mapping[str, Measure]:
        from emobench.kinds.icl.answers import MEASURES

        return MEASURES

    def key_facts(self, task: Task, model: Model | None) -> KeyFacts:
        """All rules that decide a loss, and the retriever with its encoder; the rule of the answer can change later."""
        rules = task.protocol_as(IclProtocol)
        decided = {**task.rules, "engine": rules.engine, "calibrated": rules.scorer == "calibrated"}
        del decided["scorer"]
        if not rules.shots:
            return KeyFacts(rules=decided)
        loaded = RETRIEVERS.load(rules.retriever)
        models = {}
        packages = dict(loaded.versions)
        facts: dict[str, Any] = {"name": rules.retriever, "source": loaded.source_sha256, "packages": packages}
        if loaded.plugin.encodes:
            instead = "another retriever with --set icl.retriever=bm25"
            encoder = AuxiliaryModel(
                rules.encoder, "sentences", setting="icl.encoder", instead=instead, stage="generate"
            )
            models["encoder"] = encoder
            if model is not None:
                packages |= minor_versions("sentence-transformers")
                facts["encoder"] = model.beside(encoder).identity
        return KeyFacts(rules=decided, models=models, generation={"retrieval": facts})


@hookimpl
def emobench_kinds() -> list[type[Kind]]:
    return [IclKind]
