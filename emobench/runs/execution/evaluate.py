"""The generate and score stages: a trained model becomes samples, then scores and per-example results.

Generations are a stage of their own: a metric that fails, or changes, never costs them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from emobench.core.settings import PRETRAINED, build
from emobench.kinds.auxiliary import AuxiliaryModel
from emobench.kinds.interface import ModelFiles, Subject
from emobench.leaderboard.run_files import Recorded, read_examples, write_examples
from emobench.models.catalog import ModelSource
from emobench.models.folder import model_folder
from emobench.models.quiet import quiet_libraries
from emobench.registry import COMPONENTS
from emobench.runs.execution.environment import write_environment
from emobench.runs.execution.reporter import Reporter
from emobench.runs.planning.base_model import BaseModel
from emobench.runs.planning.planned import PlannedTask
from emobench.runs.stages.stage import Stage, Stages
from emobench.tasks.scores import Score

SCORES, EXAMPLES, SECONDS = "scores.json", "examples.jsonl", "seconds.txt"


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
        recorded = read_examples(self.folder / EXAMPLES)
        found = {}
        for name, values in self._scores.items():
            of = recorded.get(name, Recorded())
            plain = {**values, "examples": of.examples or None, "units": of.units or None}
            found[name] = build(Score, plain, str(self.folder / SCORES))
        return found


class Evaluator:
    """Makes generate and score stages. Auxiliary models are loaded once, where a metric asks for it."""

    def __init__(
        self, stages: Stages, reporter: Reporter, base: BaseModel, base_folder: Callable[[], Path | None]
    ) -> None:
        self._stages = stages
        self._reporter = reporter
        self._base = base
        self._base_folder = base_folder
        self._others: dict[AuxiliaryModel, _Other] = {}

    def evaluate(self, planned: PlannedTask, load: Callable[..., Any]) -> Evaluation:
        """Return the evaluation of a task.

        `load` gives the evaluated model where something is not finished; with `weights=False` they are not read.
        """
        if damage := self._stages.damage(planned.generation, full=True):
            # Another machine's rounding may generate others: scores are always those of the samples beside them.
            self._stages.drop(planned.scores, f"{damage}, of which scores were made")
        folder = self._stages.make(planned.scores, lambda folder: self._score(planned, load, folder))
        return Evaluation(folder, planned.scores.key)

    def generate(self, planned: PlannedTask, load: Callable[..., Any]) -> Path:
        """Return the folder of a task's generation, after making it if need be; `load` as of `evaluate`."""
        return self._generated(planned, load)

    def subject(self, loaded: Any, facts: Mapping[str, Any]) -> Subject:
        """Return a loaded model with all that its evaluation may use."""
        return Subject(
            model=loaded.model,
            tokenizer=loaded.tokenizer,
            other=self._other,
            work=self._reporter.work,
            sentence_encoder=self._base.sentence_encoder,
            components=COMPONENTS,
            keep=lambda kind, facts, work: self._stages.make(Stage(kind, facts), work, continues=True),
            facts=facts,
            files=None if loaded.model is not None else self._files(loaded.source),
        )

    def _files(self, source: ModelSource) -> ModelFiles:
        return ModelFiles(source.name, model_folder(source, offline=True), self._base.options)

    def _score(self, planned: PlannedTask, load: Callable[..., Any], folder: Path) -> None:
        with quiet_libraries():
            generated = self._generated(planned, load)
            subject = self.subject(load(), planned.subject)
            began = time.monotonic()
            found = planned.kind.runtime.score(subject, planned.task, planned.data, generated)
        scores = {f"{planned.task.name}/{name}": value for name, value in found.scores.items()}
        missing = {f"{planned.task.name}/{name}": reason for name, reason in found.missing.items()}
        write_examples(folder / EXAMPLES, scores)
        for name, text in found.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        seconds = float((generated / SECONDS).read_text()) + time.monotonic() - began
        apart = ("examples", "units")  # in the file of examples
        kept = {name: {k: v for k, v in vars(score).items() if k not in apart} for name, score in scores.items()}
        plain = {"scores": kept, "missing": missing, "seconds": seconds}
        (folder / SCORES).write_text(json.dumps(plain, indent=1) + "\n")
        write_environment(folder, planned.model.options.device)

    def _generated(self, planned: PlannedTask, load: Callable[..., Any]) -> Path:
        def generate(folder: Path) -> None:
            itself = planned.kind.generated_by(planned.task, planned.model.options.device) is None
            with quiet_libraries():
                subject, began = self.subject(load(weights=itself), planned.subject), time.monotonic()
                planned.kind.runtime.generate(subject, planned.task, planned.data, folder)
            (folder / SECONDS).write_text(f"{time.monotonic() - began}\n")

        return self._stages.make(planned.generation, generate, continues=True)

    def forget_models(self) -> None:
        """Let go of the auxiliary models; they are loaded again where they are needed."""
        self._others.clear()

    def _other(self, auxiliary: AuxiliaryModel) -> _Other:
        if auxiliary not in self._others:
            folder = self._base_folder if auxiliary.name == PRETRAINED else lambda: None
            self._others[auxiliary] = _Other(self._base, auxiliary, folder)
        return self._others[auxiliary]


@dataclass(frozen=True)
class _Other:
    """An auxiliary model; see `kinds.auxiliary.OtherModel`."""

    base: BaseModel
    auxiliary: AuxiliaryModel
    folder: Callable[[], Path | None]

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.base.known(self.auxiliary).facts

    @cached_property
    def _loaded(self) -> Any:
        return self.base.load_auxiliary(self.auxiliary, self.folder())

    @property
    def model(self) -> Any:
        return self._loaded.model

    @property
    def tokenizer(self) -> Any:
        return self._loaded.tokenizer
