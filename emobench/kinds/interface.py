"""A kind of task: how a task is evaluated. One folder is all of a kind; no other module asks which kind it has.

A kind is a class, found by an entry point of the group `emobench.kinds`, whose module imports nothing heavy: it answers
questions of the command line and of the plan. Its `runtime` reads data and models, and is imported at first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar

from emobench.core.errors import MetricError, PluginError
from emobench.core.family import Family
from emobench.models.model import AuxiliaryModel, Model
from emobench.tasks.rules import Rules
from emobench.tasks.scores import Measure, Score
from emobench.tasks.spec import Task

if TYPE_CHECKING:
    from emobench.data.labelled import LabelledSource
    from emobench.kinds.cost import Cost
    from emobench.models.encoder import SentenceEncoder

V = TypeVar("V")
Scores = Mapping[str, Score]
"""Scores by the names of their metrics."""
Progress = Callable[[int, int], None]
"""Reports the finished parts of a piece of work, and all parts."""
Work = Callable[[str, str], AbstractContextManager[Progress]]
"""Begins a piece of work, (title, unit), and gives its progress callback."""
Keep = Callable[[str, Mapping[str, Any], Callable[[Path], None]], Path]
"""Returns the folder of a stage that runs share, of a kind and by its facts, after making it at first use.

The function that makes it may get the folder of an interrupted attempt."""


@dataclass(frozen=True, kw_only=True)
class KeyFacts:
    """The facts that decide a task's results besides its data: parts of the keys of its stages."""

    rules: Mapping[str, Any] | None = None
    """The rules that decide what is generated; others can change without generating again. None: all rules."""
    models: Mapping[str, AuxiliaryModel] = field(default_factory=dict)
    """The models that a task uses besides the evaluated one, by their part."""
    backend: str = ""
    """"vllm" if vLLM generates in the place of the harness; its version is in the key. It gets the model as files
    (`Subject.files`), while no other copy is in memory."""
    generation: Mapping[str, Any] = field(default_factory=dict)
    """Other facts that decide the generation, such as plugins by their source and version."""
    scores: Mapping[str, Any] = field(default_factory=dict)
    """Other facts that decide the scores."""
    score_packages: tuple[str, ...] = ()
    """Packages besides torch and transformers that compute the scores; the key has their versions."""


class TaskData(Protocol):
    """The data of a task. Its length is the number of test examples."""

    @property
    def fingerprint(self) -> str: ...

    @property
    def provenance(self) -> Mapping[str, str]: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Subject:
    """The evaluated model, and the tools of an evaluation."""

    model: Any
    """In memory; None if another program generates (see `KeyFacts.backend`)."""
    tokenizer: Any
    other: Callable[[AuxiliaryModel], Model]
    """Returns a causal LM or a featurizer."""
    work: Work
    sentence_encoder: Callable[[str], SentenceEncoder]
    """Returns a sentence encoder by name; its weights are read when it is used."""
    keep: Keep
    facts: Mapping[str, Any]
    """The facts that identify the evaluated model, for stages of this model alone."""
    files: Model | None = None
    """The evaluated model on disk, for a program that reads it by itself; the model is None then."""


@dataclass
class Scored:
    """The metrics that could be computed, and why the others could not."""

    scores: dict[str, Score] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    """Further files of results: name -> text, written next to the scores."""

    def add(self, names: tuple[str, ...], compute: Callable[[], Scores]) -> None:
        """Compute metrics; a MetricError makes all of `names` missing, with its reason, and costs no other metric."""
        try:
            self.scores.update(compute())
        except MetricError as error:
            self.missing.update(dict.fromkeys(names, str(error)))


class Runtime(Protocol):
    """The part of a kind that reads data and models: a module of functions, or an object with these methods."""

    def load(self, task: Task, *, data_dirs: Sequence[Path], offline: bool) -> TaskData:
        """Read the examples, or their identity. Offline, raises Missing for data that a run would download."""
        ...

    def cost(self, task: Task, data: Any | None, model: Model) -> Cost:
        """Estimate the evaluation of one trained model; `data` is None if it is not on this machine."""
        ...

    def check(self, task: Task, data: Any, model: Model, /) -> None:
        """Raise a UserError for a problem that would otherwise appear after hours of training."""
        ...

    def generate(self, subject: Subject, task: Task, data: Any, folder: Path, /) -> None:
        """Write the generated texts or answers; `folder` may have the files of an interrupted attempt."""
        ...

    def score(self, subject: Subject, task: Task, data: Any, folder: Path, /) -> Scored:
        """Read the generated files, and compute every metric."""
        ...


class Kind:
    """A kind of task. Subclasses name themselves and their rules, and override defaults where they differ."""

    name: ClassVar[str]
    """The name of the entry point, also in `kind:` of a task's file and in `--set <name>.*`."""
    rules: ClassVar[type[Rules]]
    reads: ClassVar[Literal["corpus", "any corpus", "dataset"]] = "corpus"
    """The data that a task's file names: a corpus of texts, or a labelled data set. "any corpus": `--set corpus=NAME`
    replaces the corpus."""

    validation: ClassVar[Mapping[str, Any]] = {}
    """The rules that move an evaluation from the test data to validation data, for tuning; empty if it has none."""

    families: ClassVar[tuple[Family[Any], ...]] = ()
    """Plugins that its rules name, such as judges: they get commands, checks and a template like all families."""

    views: ClassVar[Mapping[type, str]] = {}
    """`Runtime` or a protocol of `kinds.views` -> the module that has its functions."""

    @property
    def runtime(self) -> Runtime:
        """The module or object that reads data and models, imported here: the view `Runtime` by default."""
        runtime = self.view(Runtime)
        if runtime is None:
            raise PluginError(f"The kind {self.name} has no runtime; name its module in `views`.")
        return runtime

    # The definition of a task, from its file and from the command line.

    def check_rules(self, rules: Any, dataset: LabelledSource | None, where: str) -> None:
        """Raise ConfigError, which begins with `where`, for rules that do not fit the data set of a task's file."""

    def check_use(self, task: Task, *, template: str | None, trusted: bool, dry: bool) -> None:
        """Raise a UserError for a task that a request cannot use, before any data is read.

        `template` is the training's `recipe.template`, None without a training; `trusted` is `--trust-remote-code`.
        A `dry` run needs no access, such as a key for an endpoint.
        """

    def fitting(self, rules: Any, changes: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
        """Return the changes of `--set` that apply to a task, with `--limit`; `rules` have all of them."""
        return dict(changes)

    # The identity of its results.

    def key_facts(self, task: Task, model: Model | None) -> KeyFacts:
        """Return the facts of the keys of a task's stages; `model` is None in a plan that is only shown."""
        return KeyFacts()

    @property
    def measures(self) -> Mapping[str, Measure]:
        """The metrics that entries of its tasks may have, by name, with titles and definitions; imports no torch."""
        return {}

    def view(self, protocol: type[V]) -> V | None:
        """Return a feature that the kind declares in `views`, imported here; None if it has none."""
        reference = self.views.get(protocol)
        if reference is None:
            return None
        module: Any = import_module(reference)
        return module
