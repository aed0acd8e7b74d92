"""A kind of task: how a task is evaluated. One folder is all of a kind; no other module asks which kind it has.

A kind is a class, found by an entry point of the group `emobench.kinds`, whose module imports nothing heavy: it answers
what the command line and the plan ask. What reads data and models is its `runtime`, imported at first use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar

from emobench.core.errors import MetricError
from emobench.core.family import Family, imported
from emobench.inference.vllm.package import OtherProgram
from emobench.models.model import AuxiliaryModel, Model
from emobench.tasks.rules import Rules, rule_groups
from emobench.tasks.scores import Measure, Score
from emobench.tasks.spec import Task

if TYPE_CHECKING:
    from emobench.data.labelled import LabelledSource
    from emobench.kinds.cost import Cost
    from emobench.models.encoder import SentenceEncoder


@dataclass(frozen=True, kw_only=True)
class Packages:
    """The packages that a task uses besides torch and transformers; the keys of these stages hold their versions."""

    generation: tuple[str, ...] = ()
    scores: tuple[str, ...] = ()


V = TypeVar("V")


class TaskData(Protocol):
    """What a task reads. Its length is the number of test examples."""

    @property
    def fingerprint(self) -> str: ...

    @property
    def provenance(self) -> Mapping[str, str]: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Subject:
    """The model that is evaluated, and what an evaluation may use besides it."""

    model: Any
    """In memory; None where another program generates (see `Kind.generated_by`)."""
    tokenizer: Any
    other: Callable[[AuxiliaryModel], Model]
    """Returns a causal LM or a featurizer."""
    work: Callable[[str, str], AbstractContextManager[Callable[[int, int], None]]]
    """Begins a piece of work, (title, unit), and gives its progress callback."""
    sentence_encoder: Callable[[str], SentenceEncoder]
    """Returns a sentence encoder by name; its weights are read when it is used."""
    keep: Callable[[str, Mapping[str, Any], Callable[[Path], None]], Path]
    """Returns the folder of a stage that runs share, of a kind and by its facts, after making it at first use.

    What makes it may get the folder of an interrupted attempt."""
    facts: Mapping[str, Any]
    """What identifies the evaluated model, for what is kept of it alone."""
    files: Model | None = None
    """The evaluated model on disk, for a program that reads it by itself; the model is None then."""


@dataclass
class Scored:
    """The metrics that could be computed, and why the others could not."""

    scores: dict[str, Score] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    """What else is known of the results: file name -> text, written next to the scores."""

    def add(self, names: tuple[str, ...], compute: Callable[[], Mapping[str, Score]]) -> None:
        """Compute metrics; a MetricError makes all of `names` missing, with its reason, and costs no other metric."""
        try:
            self.scores.update(compute())
        except MetricError as error:
            self.missing.update(dict.fromkeys(names, str(error)))


class Runtime(Protocol):
    """The part of a kind that reads data and models: a module of functions, or an object with these methods."""

    def load(self, task: Task, *, data_dirs: Sequence[Path], offline: bool) -> TaskData:
        """Read the examples, or what identifies them. Offline, raises Missing for data that a run would download."""
        ...

    def cost(self, task: Task, data: Any | None, model: Model) -> Cost:
        """Estimate the evaluation of one trained model; `data` is None if it is not on this machine."""
        ...

    def check(self, task: Task, data: Any, model: Model, /) -> None:
        """Raise a UserError for what would fail after hours of training."""
        ...

    def generate(self, subject: Subject, task: Task, data: Any, folder: Path, /) -> None:
        """Write what the model generates; `folder` may hold the files of an interrupted attempt."""
        ...

    def score(self, subject: Subject, task: Task, data: Any, folder: Path, /) -> Scored:
        """Read what was generated, and compute every metric."""
        ...


class Kind(ABC):
    """A kind of task. Subclasses name themselves and their rules, and override what differs from these defaults."""

    name: ClassVar[str]
    """That of the entry point, of `kind:` in a task's file, and of `--set <name>.*`."""
    rules: ClassVar[type[Rules]]
    example: ClassVar[str]
    """A setting, for error messages: "shots=8"."""
    reads: ClassVar[Literal["corpus", "dataset"]] = "corpus"
    """What a task's file names: a corpus of texts, or a labelled data set."""
    any_corpus: ClassVar[bool] = False
    """Whether `--set corpus=NAME` takes the place of the task's corpus."""

    families: ClassVar[tuple[Family[Any], ...]] = ()
    """Plugins that its rules name, such as judges: they get commands, checks and a template like all families."""

    views: ClassVar[Mapping[type, str]] = {}
    """A protocol of `kinds.views` -> the "module" or "module:attribute" that has its functions."""

    def __init__(self, identity: Mapping[str, Any] | None = None) -> None:
        self.identity = identity or {}
        """The source and the versions of a stranger's package, part of every key; empty for a built-in kind."""

    @property
    @abstractmethod
    def runtime(self) -> Runtime:
        """What reads data and models, imported here."""

    @property
    def groups(self) -> list[str]:
        """The shared groups of rules that tasks of this kind have; a kind of a group's name has the name for itself."""
        return [name for name in rule_groups(self.rules) if name != self.name]

    # What a task is, from its file and from the command line.

    def check_rules(self, rules: Any, dataset: LabelledSource | None, where: str) -> None:  # noqa: B027
        """Raise ConfigError, which begins with `where`, for rules that do not fit the data set of a task's file."""

    def check_consent(self, changes: Mapping[str, Any], trusted: bool) -> None:  # noqa: B027
        """Raise ConfigError for changed rules that run foreign code without `--trust-remote-code`."""

    def check_access(self, task: Task) -> None:  # noqa: B027
        """Raise a UserError for what a run needs and a dry run does not, such as a key for an endpoint."""

    def fitting(self, rules: Any, changes: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
        """Return which changes of `--set` a task takes, and what `--limit` is for it; `rules` have all of them."""
        return dict(changes)

    def check_template(self, task: Task, template: str) -> None:  # noqa: B027
        """Raise ConfigError for a task whose prompts a training with this `recipe.template` makes no model for."""

    # What identifies its results.

    def auxiliary_models(self, task: Task) -> Mapping[str, AuxiliaryModel]:
        """Return the models that a task uses besides the evaluated one, by their part."""
        return {}

    def packages(self, task: Task) -> Packages:
        """Return the packages that a task computes with."""
        return Packages()

    def generated_by(self, task: Task, device: str) -> OtherProgram | None:
        """Return the program that generates in the place of the harness; None where there is none.

        It gets the model as files, while no other copy is in memory.
        """
        return None

    def generation_rules(self, task: Task) -> dict[str, Any]:
        """Return the rules that decide what is generated, for the generate stage's key; others can change later."""
        return task.rules

    def generation_facts(self, task: Task, model: Model) -> dict[str, Any]:
        """Return what else decides what is generated, such as plugins by their source and version."""
        return {}

    def score_facts(self, task: Task) -> dict[str, Any]:
        """Return what else decides the scores, such as metrics of packages by their source and version."""
        return {}

    def cost(self, task: Task, data: Any | None, model: Model) -> Cost:
        """Estimate the evaluation of one trained model, before anything runs; `data` as for `Runtime.cost`."""
        return self.runtime.cost(task, data, model)

    # What its results can decide.

    def metrics(self, task: Task) -> Mapping[str, Measure | str]:
        """Return what the values of a task's metrics mean, or why one will be missing; empty if only results tell.

        Metrics that only describe a result may be left out.
        """
        return {}

    @property
    def measures(self) -> Mapping[str, Measure]:
        """The metrics that entries of its tasks may have, by name, with titles and definitions; imports no torch."""
        return {}

    # Features of some kinds alone.

    def view(self, protocol: type[V]) -> V | None:
        """Return a feature that the kind declares in `views`, imported here; None if it has none."""
        reference = self.views.get(protocol)
        return None if reference is None else imported(reference)
