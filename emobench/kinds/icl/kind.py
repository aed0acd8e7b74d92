"""Tasks of kind `icl`: classification from a prompt with shots, answered by the label of lowest loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from emobench.core.errors import ConfigError, UnknownNameError
from emobench.core.hooks import hookimpl
from emobench.core.versions import minor_versions
from emobench.data.labelled import LabelledSource
from emobench.kinds.icl.retrieval.retriever import RETRIEVERS
from emobench.kinds.icl.rules import IclProtocol
from emobench.kinds.interface import Kind, Packages
from emobench.kinds.views import LabelAnswers, LabelPrompts
from emobench.models.model import AuxiliaryModel, Model
from emobench.tasks.scores import Measure
from emobench.tasks.spec import Task

if TYPE_CHECKING:
    from emobench.models.model import Model


class IclKind(Kind):
    """In-context learning (EMO paper, 4.2 and A.5)."""

    name = "icl"
    rules = IclProtocol
    example = "shots=8"
    reads = "dataset"
    families = (RETRIEVERS,)
    views: ClassVar = {LabelPrompts: "emobench.kinds.icl.show_prompts", LabelAnswers: "emobench.kinds.icl.answers"}

    @property
    def runtime(self):
        from emobench.kinds.icl import evaluate

        return evaluate

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

    def auxiliary_models(self, task: Task) -> Mapping[str, AuxiliaryModel]:
        """Return the sentence encoder of a retriever that uses one."""
        rules = task.protocol_as(IclProtocol)
        if rules.shots == 0 or not RETRIEVERS.load(rules.retriever).plugin.encodes:
            return {}
        instead = "another retriever with --set icl.retriever=bm25"
        setting, kind = "icl.encoder", "sentences"
        encoder = AuxiliaryModel(rules.encoder, kind, setting=setting, instead=instead, stage="generate")
        return {"encoder": encoder}

    @property
    def measures(self) -> Mapping[str, Measure]:
        from emobench.kinds.icl.metrics import MEASURES

        return MEASURES

    def metrics(self, task: Task) -> Mapping[str, Measure]:
        return {"accuracy": self.measures["accuracy"]}

    def packages(self, task: Task) -> Packages:
        """OpenICL where it scores; a retriever names its own."""
        if task.protocol_as(IclProtocol).engine == "openicl":
            return Packages(generation=("openicl",))
        return Packages()

    def generation_rules(self, task: Task) -> dict[str, Any]:
        """All rules that decide a loss: those of the answer are not among them, so that it can be changed later."""
        rules = task.protocol_as(IclProtocol)
        decided = {**task.rules, "engine": rules.engine}
        del decided["scorer"]
        return {**decided, "calibrated": rules.scorer == "calibrated"}

    def generation_facts(self, task: Task, model: Model) -> dict[str, Any]:
        """Return what identifies the retriever of a task's shots and its encoder; empty for a task without shots."""
        rules = task.protocol_as(IclProtocol)
        if rules.shots == 0:
            return {}
        loaded = RETRIEVERS.load(rules.retriever)
        facts: dict[str, Any] = {
            "name": rules.retriever,
            "source": loaded.source_sha256,
            "packages": dict(loaded.versions),
        }
        if encoder := self.auxiliary_models(task).get("encoder"):
            facts["packages"] |= minor_versions("sentence-transformers")
            facts["encoder"] = model.beside(encoder).identity
        return {"retrieval": facts}


@hookimpl
def emobench_kinds() -> list[type[Kind]]:
    return [IclKind]
