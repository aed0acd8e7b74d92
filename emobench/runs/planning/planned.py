"""One training and one evaluation of a plan: what identifies them, and the stages that they make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from emobench.core.settings import PRETRAINED, to_plain
from emobench.core.versions import minor_versions
from emobench.data.chat_templates import RULES as CHAT_RULES
from emobench.data.oracle.language import TEXT_COUNTS, HiddenMarkovLanguage, oracle_language
from emobench.data.texts import Texts
from emobench.kinds.auxiliary import AuxiliaryModel
from emobench.kinds.interface import Kind
from emobench.models.device import LoadOptions
from emobench.registry import LoadedObjective, load_kind
from emobench.runs.planning.base_model import BaseModel
from emobench.runs.stages.stage import Stage
from emobench.tasks.spec import Task
from emobench.training.recipe import Recipe, computed_with


@dataclass(frozen=True)
class PlannedTraining:
    """One training of one seed."""

    model: BaseModel
    objective: LoadedObjective
    recipe: Recipe
    seed: int
    texts: Mapping[str, Texts]
    """The train and validation splits of the recipe's corpus, as far as they are here."""

    @property
    def options(self) -> LoadOptions:
        """How the model is loaded for training: --dtype is for evaluations, and the recipe has the weights' type."""
        return replace(self.model.options, dtype=self.recipe.weight_dtype)

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """All that determines the weights."""
        model, objective, recipe, texts = self.model, self.objective, self.recipe, self.texts
        peft = () if recipe.adapters is None else ("peft",)
        return {
            "model": dict(model.facts),
            "from_scratch": model.options.from_scratch,
            "objective": {
                "name": objective.name,
                "version": objective.objective.version,
                "params": objective.objective.params,
                "source": objective.source_sha256,
                **({"packages": dict(objective.versions)} if objective.versions else {}),
                "reads": {name: dict(model.known(AuxiliaryModel(name, "lm")).facts) for name in models_read(objective)},
            },
            "recipe": to_plain(recipe),
            "texts": {split: texts[split].fingerprint for split in sorted(texts)},
            "seed": self.seed,
            **({"chat": CHAT_RULES} if recipe.template != "none" else {}),
            "dtype": recipe.weight_dtype,
            **computed_with(model.options.device, recipe),
            **_machine(model.options, "torch", "transformers", "accelerate", *peft),
        }

    @cached_property
    def stage(self) -> Stage:
        return Stage("train", self.facts)


@dataclass(frozen=True)
class PlannedTask:
    """One task of one run: of the model as it is, or of what a training made of it."""

    task: Task
    data: Any
    """What its kind reads; None in a plan that is not ready, where it is not here."""
    model: BaseModel
    training: PlannedTraining | None
    auxiliary: Mapping[str, AuxiliaryModel]
    """The models that it uses besides the evaluated one, by their part."""
    generation_facts: Mapping[str, Any]
    """What decides its generation besides rules and packages, as its kind says."""

    @property
    def kind(self) -> Kind:
        return load_kind(self.task.kind)

    @cached_property
    def subject(self) -> Mapping[str, Any]:
        """What identifies the model that is evaluated."""
        options = self.model.options
        facts = {"model": self.model.facts, "dtype": options.dtype, **_machine(options, "torch", "transformers")}
        return facts if self.training is None else {**facts, "training": self.training.stage.key}

    @cached_property
    def auxiliary_facts(self) -> Mapping[str, Mapping[str, Any]]:
        """What identifies the auxiliary models, by their part."""
        return {part: self.model.known(found).facts for part, found in self.auxiliary.items()}

    @cached_property
    def generation(self) -> Stage:
        facts = {**self._common, "rules": self.kind.generation_rules(self.task)}
        if packages := minor_versions(*self.kind.packages(self.task).generation):
            facts["packages"] = packages
        return Stage("generate", {**facts, **self.generation_facts})

    @cached_property
    def scores(self) -> Stage:
        facts = {
            **self._common,
            "protocol": self.task.protocol_id,
            "rules": self.task.rules,
            "models": {p: dict(f) for p, f in self.auxiliary_facts.items() if self.auxiliary[p].stage == "score"},
            "generation": self.generation.key,
            # 2: with their sampling units. 3: none of texts whose script a metric of words cannot read.
            # 4: examples with equal contents are one unit. 5: scores of a corpus have pseudo-values.
            # 6: contents that differ by case or white space are equal.
            "examples": 6,
            **self.kind.score_facts(self.task),
        }
        packages = minor_versions(*self.kind.packages(self.task).scores)
        return Stage("score", {**facts, "packages": packages} if packages else facts)

    @property
    def models(self) -> dict[str, Mapping[str, Any]]:
        """The models other than the base model that decide the results, by their part."""
        others = {part: found for part, found in self.auxiliary.items() if found.name != PRETRAINED}
        return {part: self.model.known(found).facts for part, found in others.items()}

    @property
    def _common(self) -> dict[str, Any]:
        return {
            "subject": dict(self.subject),
            "task": {"name": self.task.name, "version": self.task.version, "kind": self.task.kind},
            "texts": self.data.fingerprint,
            **({"kind": dict(self.kind.identity)} if self.kind.identity else {}),
        }


def models_read(objective: LoadedObjective) -> list[str]:
    """Return the models that an objective reads; the known language, which the texts identify, is none."""
    from emobench.objectives.dense import LANGUAGE

    return [name for name in objective.objective.reads if name != LANGUAGE]


def known_language(texts: Iterable[Texts]) -> HiddenMarkovLanguage | None:
    """Return the language that all of these texts were sampled from; None where that is not known."""
    origins = {text.origin for text in texts}
    domain = next((d for d in TEXT_COUNTS if origins == {f"generated: oracle-{d}, version 1"}), None)
    return None if domain is None else oracle_language(domain)


def _machine(options: LoadOptions, *packages: str) -> dict[str, Any]:
    """Return the device class and the minor versions of the packages that compute."""
    return {"device": options.device.partition(":")[0], "packages": minor_versions("emobench", *packages)}
