"""Tasks of kind `instruct`: responses to instructions, compared with those of the data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from emobench.core.errors import ConfigError
from emobench.core.hooks import hookimpl
from emobench.core.reading import expand_home, is_folder
from emobench.data.chat_templates import RULES as CHAT_RULES
from emobench.data.labelled import LabelledSource
from emobench.kinds.instruct.judging.judge import JUDGES
from emobench.kinds.instruct.rules import InstructProtocol
from emobench.kinds.interface import KeyFacts, Kind, Runtime
from emobench.kinds.shared_rules import rouge_packages
from emobench.kinds.views import JudgedPairs, KnownMetrics, Preferences, WrittenTexts
from emobench.models.model import Model
from emobench.tasks.scores import Measure
from emobench.tasks.spec import Task

NO_TEMPLATE = "none"
"""`recipe.template` of a training on plain text, which has no prompts."""


class InstructKind(Kind):
    """Responses to instructions (EMO paper, 4.3)."""

    name = "instruct"
    rules = InstructProtocol
    families = (JUDGES,)
    views: ClassVar = {
        **dict.fromkeys((Runtime, KnownMetrics, Preferences, WrittenTexts), "emobench.kinds.instruct.evaluate"),
        JudgedPairs: "emobench.kinds.instruct.judging.entries",
    }

    def check_rules(self, rules: InstructProtocol, dataset: LabelledSource | None, where: str) -> None:
        """Check that the judge that a protocol names is installed, and takes its parameters."""
        if rules.judge.used:
            JUDGES.load(rules.judge.name)

    def check_use(self, task: Task, *, template: str | None, trusted: bool, dry: bool) -> None:
        """Check an endpoint's key, and that the prompts are the training's, unless `other_template` allows others."""
        rules = task.protocol_as(InstructProtocol)
        if rules.judge.used and rules.judge.backend == "endpoint" and not dry:
            rules.judge.endpoint(JUDGES.load(rules.judge.name).plugin).check_key()
        if template in (None, NO_TEMPLATE, rules.template) or rules.other_template:
            return
        raise ConfigError(
            f"Task {task.name}: the prompts have the template {rules.template}, and the training has {template}, so "
            f"that the model would read what it was not trained on. Add --set recipe.template={rules.template} or "
            f"--set instruct.template={template}, or --set instruct.other_template=true if you want that."
        )

    @property
    def measures(self) -> Mapping[str, Measure]:
        from emobench.kinds.instruct.judged import MEASURES, PUBLISHED
        from emobench.kinds.instruct.responses import ENDED, TOKENS
        from emobench.metrics.rouge import ROUGE

        return {**MEASURES, **PUBLISHED, "ended": ENDED, "response_tokens": TOKENS, "rougeL": ROUGE["rougeL"]}

    def key_facts(self, task: Task, model: Model | None) -> KeyFacts:
        """All rules but the judge's, which reads the same responses, and the version of the rules of chat templates.

        The judge's prompt and parser decide the scores, and its model unless an endpoint knows it by name alone.
        """
        rules, scores, models = task.protocol_as(InstructProtocol), {}, {}
        if rules.judge.used:
            judge = JUDGES.load(rules.judge.name)
            scores = {"judge": {"source": judge.source_sha256, "packages": dict(judge.versions)}}
            answers = rules.judge.local_model(judge.plugin)
            if rules.judge.backend == "local" or is_folder(expand_home(answers.name)):
                models = {"judge": answers}
        return KeyFacts(
            rules={name: value for name, value in task.rules.items() if name != "judge"},
            models=models,
            backend=rules.backend,
            generation={"chat": CHAT_RULES} if rules.template == "chat" else {},
            scores=scores,
            score_packages=rouge_packages(stemming=False),
        )


@hookimpl
def emobench_kinds() -> list[type[Kind]]:
    return [InstructKind]
