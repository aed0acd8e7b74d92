"""Tasks of kind `lm_eval`: any task, group or tag of lm-evaluation-harness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from emobench.core.errors import ConfigError
from emobench.core.hooks import hookimpl
from emobench.core.settings import check_settings, setting
from emobench.kinds.interface import KeyFacts, Kind, Runtime
from emobench.kinds.views import NamedTasks
from emobench.models.model import Model
from emobench.tasks.lm_eval_numbers import MEASURES
from emobench.tasks.rules import Rules, changed_rules, identifying_rules, override
from emobench.tasks.scores import Measure
from emobench.tasks.spec import Task


@dataclass(frozen=True, kw_only=True)
class LmEvalProtocol(Rules):
    """A task or group of lm-evaluation-harness, run by itself on the model in memory."""

    NOT_IDENTIFYING: ClassVar = ("include", "data", "batch", "engine")
    ABSENT_BY_DEFAULT: ClassVar = ("backend", "chat_template")

    task: str
    """A task or group of lm-evaluation-harness."""
    include: str = ""
    """A folder with your own YAML, which lm-eval reads besides its own tasks. It runs the Python that these files name,
    so --trust-remote-code is required."""
    data: str = ""
    """A folder or repository that takes the place of the task's `dataset_path`, laid out alike."""
    num_fewshot: int | None = setting(None, low=0, high=10_000)
    """Number of shots. None: the task's own."""
    chat_template: bool = False
    """Whether prompts and shots are turns of the tokenizer's chat template, as lm-eval writes them."""
    max_length: int | None = setting(None, low=2, high=2**20)
    """Maximum tokens of a prompt, cut on the left as lm-eval does. None: the model's context."""
    batch: int = setting(8, low=1, high=100_000)
    """Batch size of lm-eval."""
    engine: Literal["auto", "lm-eval"] = "auto"
    """Engine of log-likelihoods. auto: common beginnings of requests are read once; the answers equal lm-eval's up to
    rounding. lm-eval: computed by lm-eval, with the same bits."""
    backend: Literal["transformers", "vllm"] = "transformers"
    """Backend of generation, for tasks that only generate. vllm: vLLM, greedily and without the generation
    settings of the model's folder, so that it makes another protocol; its version is part of the key."""
    limit: int | None = setting(None, low=1, high=10**12)
    """Maximum examples of each task."""

    def __post_init__(self) -> None:
        check_settings(self)


class LmEvalKind(Kind):
    """Tasks of lm-evaluation-harness. Its whole version is in their data's fingerprint, with the tasks' definitions.

    Answers and scores come from one pass, so that all rules are part of the key of the generation.
    """

    name = "lm_eval"
    rules = LmEvalProtocol
    views: ClassVar = {Runtime: "emobench.kinds.lm_eval.evaluate", NamedTasks: "emobench.kinds.lm_eval.kind"}

    @property
    def measures(self) -> Mapping[str, Measure]:
        return MEASURES

    def key_facts(self, task: Task, model: Model | None) -> KeyFacts:
        return KeyFacts(backend=task.protocol_as(LmEvalProtocol).backend)

    def check_use(self, task: Task, *, template: str | None, trusted: bool, dry: bool) -> None:
        """Ask for consent before lm-eval looks into a folder: it imports what `!function` and `class` name there."""
        include = task.protocol_as(LmEvalProtocol).include
        if include and not trusted:
            raise ConfigError(
                f"--set lm_eval.include={include}: lm-eval runs the Python that YAML in this folder names, "
                "also in a dry run. Read it, and add --trust-remote-code if you trust it."
            )


def named_task(name: str, overrides: Mapping[str, Any] | None = None) -> Task:
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
