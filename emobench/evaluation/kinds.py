"""The kinds of task, and how each is checked, generated for and scored.

A kind is a module with four functions:

    check(task, texts, model)                     raises a UserError for what would fail later
    generation_rules(task)                        the rules that decide the samples, for the generate stage's key
    generate(subject, task, texts, folder)        writes the samples
    score(subject, task, texts, folder) -> Scored reads them again, and computes every metric
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from emobench.data.texts import Texts
from emobench.errors import MetricError
from emobench.tasks.scores import Score
from emobench.tasks.spec import Task


@dataclass(frozen=True)
class Subject:
    """The model that is evaluated, and what an evaluation may use beside it."""

    model: Any
    tokenizer: Any
    encoder: Callable[[str], Any]
    """Returns a loaded model with its tokenizer by name; "pretrained" is the model before training."""
    features: dict[tuple[str, ...], Any]
    """Features of human texts, kept between runs by (encoder, texts)."""
    work: Callable[[str, str], AbstractContextManager[Callable[[int, int], None]]]
    """Begins a piece of work, (title, unit), and gives its progress callback."""


@dataclass
class Scored:
    """The metrics that could be computed, and why the others could not."""

    scores: dict[str, Score] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, names: tuple[str, ...], compute: Callable[[], Mapping[str, Score]]) -> None:
        """Compute metrics; a MetricError makes all of `names` missing, with its reason, and costs no other metric."""
        try:
            self.scores.update(compute())
        except MetricError as error:
            self.missing.update(dict.fromkeys(names, str(error)))


class BaseModel(Protocol):
    """What a check may ask of the model that a run starts from."""

    @property
    def name(self) -> str: ...

    @property
    def tokenizer(self) -> Any: ...

    @property
    def context(self) -> int | None: ...


class Kind(Protocol):
    """What the module of a kind offers."""

    def check(self, task: Task, texts: Texts, model: BaseModel) -> None: ...

    def generation_rules(self, task: Task) -> dict[str, Any]: ...

    def generate(self, subject: Subject, task: Task, texts: Texts, folder: Path) -> None: ...

    def score(self, subject: Subject, task: Task, texts: Texts, folder: Path) -> Scored: ...


MODULES = {
    "generation": "emobench.evaluation.generation.task",
    "oracle": "emobench.evaluation.oracle_task",
}


def evaluator(kind: str) -> Kind:
    """Return the module of a kind of task."""
    return importlib.import_module(MODULES[kind])  # type: ignore[return-value]
