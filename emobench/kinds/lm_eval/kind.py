"""Tasks of kind `lm_eval`: any task, group or tag of lm-evaluation-harness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emobench.core.errors import ConfigError
from emobench.core.hooks import hookimpl
from emobench.inference.vllm.package import generating_program, packages_of
from emobench.kinds.auxiliary import Packages
from emobench.kinds.interface import Kind, OtherProgram
from emobench.kinds.lm_eval.rules import LmEvalProtocol
from emobench.tasks.lm_eval_numbers import MEASURES
from emobench.tasks.rules import changed_rules, identifying_rules, override
from emobench.tasks.scores import Measure
from emobench.tasks.spec import Task


class LmEvalKind(Kind):
    """Tasks of lm-evaluation-harness. Its whole version is in their data's fingerprint, with the tasks' definitions.

    It makes answers and scores in one go, so that all rules decide what is generated.
    """

    name = "lm_eval"
    rules = LmEvalProtocol
    example = "num_fewshot=5"

    @property
    def runtime(self):
        from emobench.kinds.lm_eval import evaluate

        return evaluate

    @property
    def measures(self) -> Mapping[str, Measure]:
        return MEASURES

    def named_task(self, name: str, overrides: Mapping[str, Any]) -> Task:
        return lm_eval_task(name, overrides)

    def packages(self, task: Task) -> Packages:
        return Packages(generation=packages_of(task.protocol_as(LmEvalProtocol).backend))

    def generated_by(self, task: Task, device: str) -> OtherProgram | None:
        return generating_program(task.protocol_as(LmEvalProtocol).backend, device)

    def check_consent(self, changes: Mapping[str, Any], trusted: bool) -> None:
        """Ask for consent before lm-eval looks into a folder: it imports what `!function` and `class` name there."""
        if changes.get("include") and not trusted:
            raise ConfigError(
                f"--set lm_eval.include={changes['include']}: lm-eval runs the Python that YAML in this folder names, "
                "also in a dry run. Read it, and add --trust-remote-code if you trust it."
            )


def lm_eval_task(name: str, overrides: Mapping[str, Any] | None = None) -> Task:
    """Return a task or group of lm-evaluation-harness, by its name there."""
    own = LmEvalProtocol(task=name)
    rules = override(own, overrides or {}, "--set lm_eval")
    return Task(
        name=f"lm-eval:{name}",
        kind="lm_eval",
        version=1,
        corpus=name,
        protocol_name="lm-eval",
        protocol=rules,
        changes=changed_rules(identifying_rules(own), identifying_rules(rules)),
    )


@hookimpl
def emobench_kinds() -> list[type[Kind]]:
    return [LmEvalKind]
