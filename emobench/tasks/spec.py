"""What a task, its protocols and a suite are: the typed form of the YAML in a tasks plugin.

A protocol holds every rule that decides a score. Its id is its name and a digest of its resolved rules, so that any
override makes another protocol, and results of different rules are never ranked together.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from emobench.config import Located, build, content_hash, to_plain
from emobench.data.labelled import LabelledSource
from emobench.errors import ConfigError, UnknownNameError
from emobench.reading import expand_home, is_folder
from emobench.tasks.checks import positive, seeds
from emobench.tasks.generation import GROUPS, GenerationProtocol, OracleProtocol, SurrogateProtocol
from emobench.tasks.icl import IclProtocol
from emobench.tasks.lm_eval import LmEvalProtocol

Protocol: TypeAlias = GenerationProtocol | OracleProtocol | SurrogateProtocol | IclProtocol | LmEvalProtocol
KINDS: dict[str, type[Protocol]] = {
    "generation": GenerationProtocol,
    "oracle": OracleProtocol,
    "surrogate": SurrogateProtocol,
    "icl": IclProtocol,
    "lm_eval": LmEvalProtocol,
}
P = TypeVar("P", GenerationProtocol, OracleProtocol, SurrogateProtocol, IclProtocol, LmEvalProtocol)
_MODELS = ("model", "encoder", "featurizer")
"""Rules that name a model beside the evaluated one."""
MOST_PARTS = 1000
"""Trainings and tasks of a suite, each of which is a file that is read and a row of every table."""
LM_EVAL = "lm-eval:"
"""What the name of a task of lm-evaluation-harness begins with; the rest is its name there."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One evaluation, with the protocol that was chosen for it."""

    name: str
    kind: str
    version: int
    corpus: str
    """The corpus, or the data set, that the examples are from."""
    protocol_name: str
    protocol: Protocol
    description: str = ""
    dataset: LabelledSource | None = None
    """icl: where the examples are from."""
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The rules that differ from the protocol of that name, such as {"sampling.top_p": 0.9}."""

    def protocol_as(self, kind: type[P]) -> P:
        """Return the protocol, of the type that the task's kind has."""
        assert isinstance(self.protocol, kind)
        return self.protocol

    @property
    def rules(self) -> dict[str, Any]:
        """The protocol's rules as plain values: without where things lie and how they are computed.

        What lies there is identified by its content, elsewhere in a key and among an entry's data.
        """
        return _rules(self.protocol)

    @property
    def protocol_id(self) -> str:
        """The protocol's name and six hex digits of its rules, such as "paper@3fa9c1"."""
        facts = {"task": self.name, "version": self.version, "kind": self.kind, "rules": self.rules}
        return f"{self.protocol_name}@{content_hash(facts)[:6]}"


def _rules(protocol: Protocol) -> dict[str, Any]:
    plain = to_plain(protocol)
    if isinstance(protocol, LmEvalProtocol):
        return {name: value for name, value in plain.items() if name not in protocol.PLACES}
    if isinstance(protocol, IclProtocol):
        del plain["engine"]  # all engines give the same losses
    return _without_folders(plain)


def _changes(base: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the rules of `other` that are not those of `base`, by their dotted names."""
    found: dict[str, Any] = {}
    for name, value in other.items():
        if isinstance(value, dict) and isinstance(base.get(name), dict):
            found |= _changes(base[name], value, f"{prefix}{name}.")
        elif value != base.get(name):
            found[prefix + name] = value
    return found


def _without_folders(plain: dict[str, Any]) -> dict[str, Any]:
    """Return rules with "local" for each model that is a folder."""
    found = dict(plain)
    for name, value in plain.items():
        if isinstance(value, dict):
            found[name] = _without_folders(value)
        elif name in _MODELS and isinstance(value, str) and is_folder(expand_home(value)):
            found[name] = "local"
    return found


@dataclass(frozen=True, kw_only=True)
class _TaskFile:
    name: str
    kind: str
    version: int
    protocols: Mapping[str, Any]
    corpus: str = ""
    dataset: LabelledSource | None = None
    description: str = ""

    def __post_init__(self) -> None:
        positive(self, "version")
        wanted, other = ("dataset", "corpus") if self.kind == "icl" else ("corpus", "dataset")
        if not getattr(self, wanted):
            raise ConfigError(f"`{wanted}` is missing; give it a value.")
        if getattr(self, other):
            raise ConfigError(f"`{other}` is not read by a task of kind {self.kind}; drop it.")


def task_from(data: Located, *, protocol: str | None = None, overrides: Mapping[str, Any] | None = None) -> Task:
    """Return the task of a file with one of its protocols (the first unless named) and overridden rules."""
    file = build(_TaskFile, data, data.where())
    if file.kind not in KINDS:
        raise UnknownNameError("kind of task", file.kind, KINDS, where=f"{data.where('kind')}: ")
    if not file.protocols:
        raise ConfigError(f"{data.where('protocols')}: the task has no protocol; give at least one.")
    name = protocol or next(iter(file.protocols))
    if name not in file.protocols:
        raise UnknownNameError("protocol", name, file.protocols, where=f"Task {file.name}: ")
    # Every protocol is built, so that a slip in the one that nobody asked for shows, too.
    built = {n: build(KINDS[file.kind], rules or {}, data.where("protocols")) for n, rules in file.protocols.items()}
    chosen = override(built[name], overrides or {}, f"--set {file.kind}")
    places = {n: rules.where() if isinstance(rules, Located) else data.where() for n, rules in file.protocols.items()}
    for where, rules in [*((places[n], rules) for n, rules in built.items()), (f"--set {file.kind}", chosen)]:
        if file.dataset is not None and isinstance(rules, IclProtocol):
            _check_fields(rules, file.dataset, f"{where}: task {file.name}")
    return Task(
        name=file.name,
        kind=file.kind,
        version=file.version,
        corpus=file.dataset.name if file.dataset else file.corpus,
        protocol_name=name,
        protocol=chosen,
        description=file.description,
        dataset=file.dataset,
        changes=_changes(_rules(built[name]), _rules(chosen)),
    )


def lm_eval_task(name: str, overrides: Mapping[str, Any] | None = None) -> Task:
    """Return a task or group of lm-evaluation-harness, by its name there."""
    own = LmEvalProtocol(task=name)
    rules = override(own, overrides or {}, "--set lm_eval")
    return Task(
        name=LM_EVAL + name,
        kind="lm_eval",
        version=1,
        corpus=name,
        protocol_name="lm-eval",
        protocol=rules,
        changes=_changes(_rules(own), _rules(rules)),
    )


def _check_fields(rules: IclProtocol, dataset: LabelledSource, where: str) -> None:
    """Check that a prompt asks for fields that the data set has, and has a text for each of its classes."""
    known = {*dataset.fields, *(dataset.classes if dataset.choices else ()), *(("group",) if dataset.group else ())}
    for name in rules.fields:
        if name not in known:
            raise UnknownNameError("field", name, known, where=f"{where}: the template or query: ")
    if set(rules.labels) != set(dataset.classes):
        raise ConfigError(
            f"{where}: `labels` has texts for {', '.join(rules.labels)}; expected one for each of "
            f"{', '.join(dataset.classes)}."
        )


def short_name(name: str) -> str:
    """Return a task's own name of what it is found by: "ptb" of "generation/ptb"."""
    return name if name.startswith(LM_EVAL) else name.rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)
class SuiteRun:
    """One training of a suite, and the tasks that evaluate it."""

    recipe: str
    tasks: tuple[str, ...]
    lm_eval: tuple[str, ...] = ()
    """Tasks and groups of lm-evaluation-harness, by their names there."""
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Values of the recipe that this suite changes."""

    @property
    def task_names(self) -> tuple[str, ...]:
        """What all tasks are found by, those of lm-evaluation-harness with "lm-eval:" before their names."""
        return (*self.tasks, *(LM_EVAL + name for name in self.lm_eval))


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A named, versioned list of trainings and their evaluations."""

    name: str
    version: int
    runs: tuple[SuiteRun, ...]
    model: str | None = None
    """The model to use where none is named; likewise the objectives and seeds."""
    objectives: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    primary: str | None = None
    """The metric of the primary endpoint: its mean over the tasks that have it, or that of the one task."""
    description: str = ""

    def __post_init__(self) -> None:
        positive(self, "version")
        seeds("seeds", *self.seeds)
        if self.primary is not None and not re.fullmatch(r"[^/\s]+", self.primary):
            raise ConfigError(f"`primary` is {self.primary!r}; expected a metric's name alone, such as accuracy.")
        if not self.runs:
            raise ConfigError("a suite needs at least one run: a recipe and its tasks.")
        if sum(1 + len(run.task_names) for run in self.runs) > MOST_PARTS:
            raise ConfigError(
                f"`runs` names more than {MOST_PARTS:,} trainings and tasks; make several suites of them."
            )
        names = Counter(short_name(name) for run in self.runs for name in run.task_names)
        for name, count in names.items():
            if count > 1:
                raise ConfigError(f"`runs`: two tasks have the name {name}; a suite's tasks have names of their own.")


def override(value: Any, changes: Mapping[str, Any], where: str) -> Any:
    """Return a copy of a dataclass with some fields changed, nested ones too; checked like a file.

    `where` is the option that gave the changes, such as "--set recipe"; changes from a file name their line instead.
    """
    merged = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    located = changes if isinstance(changes, Located) else None
    prefix = "" if located else where.removeprefix("--set ") + "."
    for key, change in changes.items():
        if key not in merged:
            place = located.where(key) if located else "--set"
            if deeper := [repr(prefix + name) for name in dotted(value) if name.endswith(f".{key}")]:
                raise ConfigError(f"{place}: There is no setting '{prefix}{key}'; did you mean {' or '.join(deeper)}?")
            raise UnknownNameError("setting", f"{prefix}{key}", [prefix + name for name in merged], where=f"{place}: ")
        current = merged[key]
        nested = isinstance(change, Mapping) and dataclasses.is_dataclass(current)
        # A group's rules have a `--set` of its own, for all tasks.
        place = f"--set {key}" if key in GROUPS else f"{where}.{key}"
        merged[key] = override(current, change, place) if nested else change
    return build(type(value), merged, located.where() if located else where)


def dotted(value: Any, prefix: str = "") -> list[str]:
    """Return the names of all settings within a dataclass, such as "sampling.top_p"."""
    found: list[str] = []
    for field in dataclasses.fields(value):
        found.append(prefix + field.name)
        if dataclasses.is_dataclass(within := getattr(value, field.name)):
            found += dotted(within, f"{prefix}{field.name}.")
    return found
