"""Tasks, their protocols and suites: the typed form of the YAML in a tasks plugin.

A protocol holds every rule that decides a score. Its id is its name and a digest of its resolved rules, so that any
override makes another protocol, and results of different rules are never ranked together.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from emobench.core.errors import ConfigError
from emobench.core.settings import content_hash
from emobench.data.labelled import LabelledSource
from emobench.tasks.rules import Rules, identifying_rules, seeds
from emobench.tasks.yaml import ENDINGS

R = TypeVar("R", bound=Rules)
MOST_PARTS = 1000
"""Trainings and tasks of a suite, each of which is a file that is read and a row of every table."""
BY_KIND = ":"
"""In the name of a task without a file, between its kind and its name there: "lm-eval:hellaswag"."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One evaluation, with the protocol that was chosen for it."""

    name: str
    kind: str
    version: int
    corpus: str
    """The corpus, or the data set, that the examples are from."""
    protocol_name: str
    protocol: Rules
    description: str = ""
    dataset: LabelledSource | None = None
    """Where labelled examples are from; None for a task that reads a corpus."""
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The rules that differ from the protocol of that name, such as {"sampling.top_p": 0.9}."""

    def protocol_as(self, rules: type[R]) -> R:
        """Return the protocol, of the type that the task's kind has."""
        assert isinstance(self.protocol, rules)
        return self.protocol

    @property
    def rules(self) -> dict[str, Any]:
        """The protocol's rules as plain values, without paths (a key has the content of files) and ways to compute."""
        return identifying_rules(self.protocol)

    @property
    def protocol_id(self) -> str:
        """The protocol's name and six hex digits of its rules, such as "paper@3fa9c1"."""
        facts = {"task": self.name, "version": self.version, "kind": self.kind, "rules": self.rules}
        return f"{self.protocol_name}@{content_hash(facts)[:6]}"


def _check_version(version: int) -> None:
    if version < 1:
        raise ConfigError(f"`version` is {version}; expected at least 1.")


@dataclass(frozen=True, kw_only=True)
class TaskFile:
    """The content of a task's file."""

    name: str
    kind: str
    version: int
    protocols: Mapping[str, Any]
    corpus: str = ""
    dataset: LabelledSource | None = None
    description: str = ""

    def __post_init__(self) -> None:
        _check_version(self.version)


def short_name(name: str) -> str:
    """Return a task's own name of what it is found by: "ptb" of "generation/ptb" and of "./ptb.yaml"."""
    if BY_KIND in name:
        return name
    own = name.rpartition("/")[2]
    return own.rpartition(".")[0] if own.endswith(ENDINGS) else own


@dataclass(frozen=True, kw_only=True)
class SuiteRun:
    """One training of a suite, and the tasks that evaluate it."""

    recipe: str
    tasks: tuple[str, ...]
    """What they are found by; a task without a file by its kind and its name there, such as "lm-eval:hellaswag"."""
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Values of the recipe that this suite changes."""


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
        _check_version(self.version)
        seeds("seeds", *self.seeds)
        if self.primary is not None and not re.fullmatch(r"[^/\s]+", self.primary):
            raise ConfigError(f"`primary` is {self.primary!r}; expected a metric's name alone, such as accuracy.")
        if not self.runs:
            raise ConfigError("a suite needs at least one run: a recipe and its tasks.")
        if sum(1 + len(run.tasks) for run in self.runs) > MOST_PARTS:
            raise ConfigError(
                f"`runs` names more than {MOST_PARTS:,} trainings and tasks; make several suites of them."
            )
        names: set[str] = set()
        for run in self.runs:
            for name in map(short_name, run.tasks):
                if name in names:
                    raise ConfigError(
                        f"`runs`: two tasks have the name {name}; a suite's tasks have names of their own."
                    )
                names.add(name)
