"""Tasks of kind `instruct`: responses to instructions, compared with those of the data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from emobench.core.errors import ConfigError
from emobench.core.hooks import hookimpl
from emobench.core.reading import expand_home, is_folder
from emobench.data.chat_templates import RULES as CHAT_RULES
from emobench.data.labelled import LabelledSource
from emobench.inference.vllm.package import generating_program, packages_of
from emobench.kinds.instruct.judging.judge import JUDGES
from emobench.kinds.instruct.rules import InstructProtocol
from emobench.kinds.interface import Kind, OtherProgram, Packages
from emobench.kinds.shared_rules import rouge_packages
from emobench.kinds.views import JudgedPairs, Preferences, WrittenTexts
from emobench.models.model import AuxiliaryModel, Model
from emobench.tasks.scores import Measure
from emobench.tasks.spec import Task

NO_TEMPLATE = "none"
"""`recipe.template` of a training on plain text, which has no prompts."""


class InstructKind(Kind):
    """Responses to instructions (EMO paper, 4.3)."""

    name = "instruct"
    rules = InstructProtocol
    example = "max_new_tokens=256"
    families = (JUDGES,)
    views: ClassVar = {
        WrittenTexts: "emobench.kinds.instruct.evaluate",
        Preferences: "emobench.kinds.instruct.evaluate",
        JudgedPairs: "emobench.kinds.instruct.judging.entries",
    }

    @property
    def runtime(self):
        from emobench.kinds.instruct.evaluate import InstructRuntime

        return InstructRuntime()

    def check_rules(self, rules: InstructProtocol, dataset: LabelledSource | None, where: str) -> None:
        """Check that the judge that a protocol names is installed, and takes its parameters."""
        if rules.judge.used:
            JUDGES.load(rules.judge.name)

    def check_access(self, task: Task) -> None:
        rule = task.protocol_as(InstructProtocol).judge
        if rule.used and rule.backend == "endpoint":
            rule.endpoint(JUDGES.load(rule.name).plugin).check_key()

    def check_template(self, task: Task, template: str) -> None:
        """Check that the prompts are those of the training, unless `other_template` allows others."""
        rules = task.protocol_as(InstructProtocol)
        if template in (NO_TEMPLATE, rules.template) or rules.other_template:
            return
        raise ConfigError(
            f"Task {task.name}: the prompts have the template {rules.template}, and the training has {template}, so "
            f"that the model would read what it was not trained on. Add --set recipe.template={rules.template} or "
            f"--set instruct.template={template}, or --set instruct.other_template=true if you want that."
        )

    def auxiliary_models(self, task: Task) -> Mapping[str, AuxiliaryModel]:
        """Return the judge's model; at an endpoint it has a name alone, unless that is of a folder here."""
        rule = task.protocol_as(InstructProtocol).judge
        if not rule.used:
            return {}
        model = rule.local_model(JUDGES.load(rule.name).plugin)
        is_here = rule.backend == "local" or is_folder(expand_home(model.name))
        return {"judge": model} if is_here else {}

    @property
    def measures(self) -> Mapping[str, Measure]:
        from emobench.kinds.instruct.judged import MEASURES, PUBLISHED
        from emobench.kinds.instruct.responses import ENDED, TOKENS
        from emobench.metrics.rouge import ROUGE

        responses = {"ended": ENDED, "response_tokens": TOKENS, "rougeL": ROUGE["rougeL"]}
        return {**MEASURES, **PUBLISHED, **responses}

    def metrics(self, task: Task) -> Mapping[str, Measure | str]:
        """Return the metrics of responses, and those of a judge's verdicts if one is named."""
        return self.runtime.measures(task)

    def generated_by(self, task: Task, device: str) -> OtherProgram | None:
        return generating_program(task.protocol_as(InstructProtocol).backend, device)

    def generation_rules(self, task: Task) -> dict[str, Any]:
        """All rules but the judge's: another one reads the same responses."""
        return {name: value for name, value in task.rules.items() if name != "judge"}

    def generation_facts(self, task: Task, model: Model) -> dict[str, Any]:
        """Return the version of the rules by which chat templates are rendered, and responses end."""
        return {"chat": CHAT_RULES} if task.protocol_as(InstructProtocol).template == "chat" else {}

    def score_facts(self, task: Task) -> dict[str, Any]:
        """Return what identifies the judge's prompt and parser."""
        rule = task.protocol_as(InstructProtocol).judge
        if not rule.used:
            return {}
        judge = JUDGES.load(rule.name)
        return {"judge": {"source": judge.source_sha256, "packages": dict(judge.versions)}}

    def packages(self, task: Task) -> Packages:
        own = packages_of(task.protocol_as(InstructProtocol).backend)
        return Packages(generation=own, scores=rouge_packages(stemming=False))


@hookimpl
def emobench_kinds() -> list[type[Kind]]:
    return [InstructKind]
