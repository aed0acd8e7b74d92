"""The kinds of task, and how each is checked, generated for and scored.

A kind is a module with seven functions:

    load(task, data_dirs=, offline=) -> TaskData  reads the examples, or what identifies them
    models(task)                                  the models that it uses beside the evaluated one, by their part
    packages(task)                                the packages that it computes with
    check(task, data, model)                      raises a UserError for what would fail later
    generation_rules(task)                        the rules that decide the samples, for the generate stage's key
    generate(subject, task, data, folder)         writes the samples; `folder` may hold those of an interrupted attempt
    score(subject, task, data, folder) -> Scored  reads them again, and computes every metric
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from emobench.errors import MetricError
from emobench.models.encoder import SentenceEncoder
from emobench.tasks.scores import Score
from emobench.tasks.spec import Task

if TYPE_CHECKING:
    from emobench.kinds.icl.retrieval.retriever import LoadedRetriever


@dataclass(frozen=True)
class Beside:
    """A model beside the evaluated one, by name; "pretrained" is the evaluated one before training."""

    name: str
    use: Literal["lm", "features", "sentences"]
    """A causal LM; anything that gives hidden states; or a sentence encoder."""


@dataclass(frozen=True, kw_only=True)
class Packages:
    """What a task computes with besides torch and transformers: its versions are part of the keys of these stages."""

    generation: tuple[str, ...] = ()
    scores: tuple[str, ...] = ()


class Known(Protocol):
    """What is known of a model before its weights are read."""

    @property
    def facts(self) -> Mapping[str, Any]: ...

    @property
    def context(self) -> int | None: ...

    @property
    def tokenizer(self) -> Any: ...


class OtherModel(Protocol):
    """A model beside the evaluated one; its weights are read at first use."""

    @property
    def facts(self) -> Mapping[str, Any]: ...

    @property
    def model(self) -> Any: ...

    @property
    def tokenizer(self) -> Any: ...


@dataclass(frozen=True)
class Subject:
    """The model that is evaluated, and what an evaluation may use beside it."""

    model: Any
    tokenizer: Any
    other: Callable[[Beside], OtherModel]
    """Returns a causal LM or a featurizer."""
    work: Callable[[str, str], AbstractContextManager[Callable[[int, int], None]]]
    """Begins a piece of work, (title, unit), and gives its progress callback."""
    sentence_encoder: Callable[[str], SentenceEncoder]
    """Returns a sentence encoder by name; its weights are read when it is used."""
    retriever: Callable[[str], LoadedRetriever]
    """Returns a retriever by name, such as "dense" or "bm25(k1=1.2)"."""
    keep: Callable[[str, Mapping[str, Any], Callable[[Path], None]], Path]
    """Returns the folder of a stage that runs share, of a kind and by its facts, after making it at first use."""
    facts: Mapping[str, Any]
    """What identifies the evaluated model, for what is kept of it alone."""


@dataclass
class Scored:
    """The metrics that could be computed, and why the others could not."""

    scores: dict[str, Score] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    """What else is known of the results: file name -> text, written beside the scores."""

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

    def known(self, beside: Beside) -> Known: ...


class TaskData(Protocol):
    """What a task reads. Its length is the number of test examples."""

    @property
    def fingerprint(self) -> str: ...

    @property
    def provenance(self) -> Mapping[str, str]: ...

    def __len__(self) -> int: ...


class Kind(Protocol):
    """What the module of a kind offers."""

    def load(self, task: Task, *, data_dirs: Sequence[Path], offline: bool) -> TaskData: ...

    def models(self, task: Task) -> Mapping[str, Beside]: ...

    def packages(self, task: Task) -> Packages: ...

    def check(self, task: Task, data: Any, model: BaseModel) -> None: ...

    def generation_rules(self, task: Task) -> dict[str, Any]: ...

    def generate(self, subject: Subject, task: Task, data: Any, folder: Path) -> None: ...

    def score(self, subject: Subject, task: Task, data: Any, folder: Path) -> Scored: ...


MODULES = {
    "generation": "emobench.kinds.generation.kind",
    "oracle": "emobench.kinds.oracle.kind",
    "surrogate": "emobench.kinds.surrogate.kind",
    "icl": "emobench.kinds.icl.kind",
    "lm_eval": "emobench.kinds.lm_eval.kind",
}


def evaluator(kind: str) -> Kind:
    """Return the module of a kind of task."""
    return importlib.import_module(MODULES[kind])  # type: ignore[return-value]
