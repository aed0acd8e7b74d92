"""The contract of kinds of task, for `emobench kinds check`, `list` and `show`."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emobench.core.conformance import Broken, Check, Skipped, check, docstrings
from emobench.core.errors import UserError
from emobench.core.family import check_arguments
from emobench.core.settings import parse_overrides
from emobench.kinds.interface import Kind, Runtime
from emobench.tasks.rules import Rules, override


@dataclass
class CheckedKind:
    """A kind under test."""

    kind: Kind

    @property
    def name(self) -> str:
        return self.kind.name

    def defaults(self) -> Rules:
        """Return the rules with their default values. Raises Skipped if a task's file must give some."""
        required = []
        for field in dataclasses.fields(self.kind.rules):
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                required.append(field.name)
        if required:
            raise Skipped(f"a task's file gives {', '.join(required)}")
        return self.kind.rules()


@check("Write `@dataclass(frozen=True, kw_only=True)` above a subclass of emobench.Rules.", gate=True)
def rules(subject: CheckedKind) -> None:
    """Its rules are a frozen dataclass, a subclass of Rules, whose fields have a default or come from a task's file."""
    cls = subject.kind.rules
    if not (isinstance(cls, type) and issubclass(cls, Rules)):
        raise Broken(f"its `rules` are {cls!r}, which is no subclass of Rules")
    if not dataclasses.is_dataclass(cls) or not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise Broken(f"{cls.__name__} is no frozen dataclass")


@check("`example` is a setting as `--set KIND.` takes it, such as shots=8: a field of the rules and a value.")
def example(subject: CheckedKind) -> None:
    """Its example is a setting of its rules."""
    given = parse_overrides([subject.kind.example])
    name = next(iter(given))
    if name not in {field.name for field in dataclasses.fields(subject.kind.rules)}:
        raise Broken(f"its example is '{subject.kind.example}', and its rules have no `{name}`")
    try:
        override(subject.defaults(), given, f"--set {subject.name}")
    except UserError as error:
        raise Broken(f"its example is refused: {str(error).rstrip('.')}") from None


@check("The runtime has the methods of emobench.Runtime, with the same arguments. It may be the class itself.")
def runtime(subject: CheckedKind) -> None:
    """Its runtime has every method, with the arguments that are passed."""
    for name, method in vars(Runtime).items():
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        own = getattr(subject.kind.runtime, name, None)
        if own is None:
            raise Broken(f"its runtime has no `{name}`")
        check_arguments(own, method, f"Runtime.{name}", f"The runtime of the kind {subject.name}")


@check("Write what a task of this kind measures in the docstring of the class.")
def documentation(subject: CheckedKind) -> None:
    """The docstring of the class says what it measures."""
    if not docstrings(type(subject.kind)):
        raise Broken("it has no docstring")


def checks(kind: Kind) -> tuple[Sequence[Check], CheckedKind]:
    """Return the checks of a kind, in order, and their subject."""
    return (rules, example, runtime, documentation), CheckedKind(kind)


def facts(cls: type[Kind]) -> dict[str, Any]:
    """Return a setting and the families of a kind, for `emobench kinds list` and `show`."""
    return {
        "example": f"--set {cls.name}.{cls.example}",
        "reads": cls.reads,
        "families": [family.plural for family in cls.families],
    }
