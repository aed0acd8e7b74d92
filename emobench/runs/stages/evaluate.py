"""The stages of an evaluation: a model becomes generated texts or answers, then scores and per-example results.

Generations are a stage of their own: a metric that fails, or changes, never costs them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emobench.core.settings import PRETRAINED, build
from emobench.core.versions import minor_versions
from emobench.inference.vllm.package import generating_program, packages_of
from emobench.kinds.interface import KeyFacts, Kind
from emobench.leaderboard.run_files import Recorded, read_examples, write_examples
from emobench.models.model import Model
from emobench.models.quiet import quiet_libraries
from emobench.registry.families import kind_identity, load_kind
from emobench.runs.execution.environment import join_environments, write_environment
from emobench.runs.stages.stage import Stage
from emobench.runs.stages.train import PlannedTraining, machine
from emobench.tasks.scores import Score
from emobench.tasks.spec import Task

if TYPE_CHECKING:
    from emobench.runs.execution.execution import Execution

SCORES, EXAMPLES, SECONDS = "scores.json", "examples.jsonl", "seconds.txt"
COMMAND = "command.txt"
"""Next to the per-example results of a run: the command as given. An entry has it without the paths of a machine."""


class Evaluation:
    """The scores of one task of one run, as they are on disk."""

    def __init__(self, folder: Path, key: str) -> None:
        data = json.loads((folder / SCORES).read_text())
        self.folder, self.key = folder, key
        self.missing: dict[str, str] = data["missing"]
        self.seconds: float = data["seconds"]
        self._scores = data["scores"]

    def scores(self) -> dict[str, Score]:
        """Return the scores with their per-example results, by "<task>/<metric>"."""
        recorded, scores = read_examples(self.folder / EXAMPLES), {}
        for name, values in self._scores.items():
            of = recorded.get(name, Recorded())
            plain = {**values, "examples": of.examples or None, "units": of.units or None}
            scores[name] = build(Score, plain, str(self.folder / SCORES))
        return scores


@dataclass(frozen=True)
class PlannedTask:
    """One task of one run: of the model as it is, or of the model that a training made of it."""

    task: Task
    data: Any
    """What its kind reads; None in a plan that is not ready, if it is not on this machine."""
    model: Model
    training: PlannedTraining | None
    facts: KeyFacts

    @property
    def kind(self) -> Kind:
        return load_kind(self.task.kind)

    @cached_property
    def generation(self) -> Generation:
        return Generation(self)

    @cached_property
    def scores(self) -> Scoring:
        return Scoring(self)

    @cached_property
    def subject(self) -> Mapping[str, Any]:
        """The facts of the evaluated model."""
        options = self.model.options
        facts = {"model": self.model.identity, "dtype": options.dtype, **machine(options, "torch", "transformers")}
        if self.training is not None:
            facts["training"] = self.training.key
        return facts

    def auxiliary_facts(self, wanted: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """Return what identifies auxiliary models, by their part."""
        return {part: dict(self.model.beside(self.facts.models[part]).identity) for part in wanted}

    @property
    def models(self) -> dict[str, Mapping[str, Any]]:
        """The facts of the models other than the base model that decide the results, by their part."""
        return self.auxiliary_facts([part for part, model in self.facts.models.items() if model.name != PRETRAINED])

    @property
    def common_facts(self) -> dict[str, Any]:
        """The facts of both the generation and the scores."""
        facts = {
            "subject": dict(self.subject),
            "task": {"name": self.task.name, "version": self.task.version, "kind": self.task.kind},
            "texts": self.data.fingerprint,
        }
        if identity := kind_identity(self.task.kind):
            facts["kind"] = identity
        return facts


@dataclass(frozen=True, eq=False)
class Generation(Stage):
    """What a model generates for a task."""

    kind = "generate"
    described = continues = True
    of: PlannedTask

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        of = self.of
        rules = of.task.rules if of.facts.rules is None else of.facts.rules
        facts = {**of.common_facts, "rules": rules}
        if packages := minor_versions(*packages_of(of.facts.backend)):
            facts["packages"] = packages
        return {**facts, **of.facts.generation}

    @property
    def needs(self) -> Sequence[Stage]:
        return self.of.model.stages if self.of.training is None else (self.of.training,)

    def make(self, folder: Path, tools: Execution) -> None:
        of = self.of
        itself = generating_program(of.facts.backend, of.model.options.device) is None
        with quiet_libraries():
            subject, began = tools.subject(of, weights=itself), time.monotonic()
            of.kind.runtime.generate(subject, of.task, of.data, folder)
        (folder / SECONDS).write_text(f"{time.monotonic() - began}\n")


@dataclass(frozen=True, eq=False)
class Scoring(Stage):
    """The scores of a generation."""

    kind = "score"
    described = True
    of: PlannedTask

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        of = self.of
        scoring = [part for part, model in of.facts.models.items() if model.stage == "score"]
        facts = {
            **of.common_facts,
            "protocol": of.task.protocol_id,
            "rules": of.task.rules,
            "models": of.auxiliary_facts(scoring),
            "generation": of.generation.key,
            # 2: with their sampling units. 3: none of texts whose script a metric of words cannot read.
            # 4: examples with equal contents are one unit. 5: scores of a corpus have pseudo-values.
            # 6: contents that differ by case or white space are equal.
            "examples": 6,
            **of.facts.scores,
        }
        if packages := minor_versions(*of.facts.score_packages):
            facts["packages"] = packages
        return facts

    @property
    def title(self) -> str:
        return self.of.task.name

    @property
    def loads(self) -> str:
        return "" if self.of.training is None else self.of.training.key

    @property
    def needs(self) -> Sequence[Stage]:
        return (self.of.generation,)

    @property
    def made_of(self) -> Sequence[Stage]:
        return (self.of.generation,)

    def make(self, folder: Path, tools: Execution) -> None:
        of, generated = self.of, tools.folder(self.of.generation)
        with quiet_libraries():
            subject, began = tools.subject(of), time.monotonic()
            scored = of.kind.runtime.score(subject, of.task, of.data, generated)
        scores = {f"{of.task.name}/{name}": score for name, score in scored.scores.items()}
        missing = {f"{of.task.name}/{name}": reason for name, reason in scored.missing.items()}
        write_examples(folder / EXAMPLES, scores)
        for name, text in scored.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        plain = {}
        for name, score in scores.items():
            plain[name] = {key: value for key, value in vars(score).items() if key not in ("examples", "units")}
        seconds = float((generated / SECONDS).read_text()) + time.monotonic() - began
        text = json.dumps({"scores": plain, "missing": missing, "seconds": seconds}, indent=1)
        (folder / SCORES).write_text(text + "\n")
        write_environment(folder, of.model.options.device)


@dataclass(frozen=True, eq=False)
class RunExamples(Stage):
    """The per-example results of all tasks of a run, in one file; its key is the run's key in an entry."""

    kind = "examples"
    tasks: Sequence[PlannedTask]
    before: Sequence[Stage]
    """The stages that belong to the run besides its scores: its trainings, or the digests of a checkpoint."""
    command: str

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        return {"scores": [task.scores.key for task in self.tasks]}

    @property
    def needs(self) -> Sequence[Stage]:
        return (*self.before, *(task.scores for task in self.tasks))

    def make(self, folder: Path, tools: Execution) -> None:
        write_examples(folder / EXAMPLES, merged_scores(tools.evaluations(self.tasks)))
        join_environments(folder, list(map(tools.stages.folder, self.needs)))
        (folder / COMMAND).write_text(f"{self.command}\n", encoding="utf-8", errors="surrogateescape")


class Shared(Stage):
    """A result that several runs share: vectors, shots, judgements, the reading of a test text.

    A kind asks for it while it generates or scores. Its facts are digests of the texts that it reads there (those of
    prompts that fit, requests with the responses in them), so that it has no key before, and is in no plan.
    """

    continues = True

    def __init__(self, kind: str, facts: Mapping[str, Any], write: Callable[[Path], None]) -> None:
        super().__init__(kind, facts)
        self._write = write

    def make(self, folder: Path, tools: Execution) -> None:
        self._write(folder)


def merged_scores(evaluations: Sequence[Evaluation]) -> dict[str, Score]:
    """Return the scores of all tasks of a run."""
    scores: dict[str, Score] = {}
    for evaluation in evaluations:
        scores |= evaluation.scores()
    return scores
