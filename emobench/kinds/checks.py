"""The contract of kinds of task, for `emobench kinds check`, `list` and `show`."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any

from emobench.core.conformance import Broken, Check, check, docstrings
from emobench.core.family import check_arguments
from emobench.kinds.interface import Kind, Runtime
from emobench.tasks.rules import Rules


@check("Write `@dataclass(frozen=True, kw_only=True)` above a subclass of emobench.Rules.", gate=True)
def rules(kind: Kind) -> None:
    """Its rules are a frozen dataclass, a subclass of Rules, whose fields have a default or come from a task's file."""
    cls = kind.rules
    if not (isinstance(cls, type) and issubclass(cls, Rules)):
        raise Broken(f"its `rules` are {cls!r}, which is no subclass of Rules")
    if not dataclasses.is_dataclass(cls) or not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise Broken(f"{cls.__name__} is no frozen dataclass")


@check("The runtime has the methods of emobench.Runtime, with the same arguments. It may be the class itself.")
def runtime(kind: Kind) -> None:
    """Its runtime has every method, with the arguments that are passed."""
    for name, method in vars(Runtime).items():
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        own = getattr(kind.runtime, name, None)
        if own is None:
            raise Broken(f"its runtime has no `{name}`")
        check_arguments(own, method, f"Runtime.{name}", f"The runtime of the kind {kind.name}")


@check("Describe the measurements of such a task in the docstring of the class.")
def documentation(kind: Kind) -> None:
    """The class has a docstring about its measurements."""
    if not docstrings(type(kind)):
        raise Broken("it has no docstring")


def checks(kind: Kind) -> tuple[Sequence[Check], Kind]:
    """Return the checks of a kind, in order, and the kind."""
    return (rules, runtime, documentation), kind


def facts(cls: type[Kind]) -> dict[str, Any]:
    """Return the data and the families of a kind, for `emobench kinds list` and `show`."""
    return {"reads": cls.reads, "families": [family.plural for family in cls.families]}
