"""What a class that is no part of the library must keep: it defines its methods, with the arguments that they get."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from emobench.errors import PluginError

if TYPE_CHECKING:
    from emobench.objectives import Objective


def check_concrete(cls: type[Objective], label: str) -> None:
    """Raise PluginError unless a class defines what its level asks for, with the arguments that it will get."""
    from emobench.objectives import LogitsObjective, ModelObjective, StatisticsObjective

    if inspect.isabstract(cls):
        missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
        raise PluginError(f"{label} does not define {missing}; write `def {missing}(self, ...)`.")
    bare = object.__new__(cls)  # a method's own signature has `self` only where it is no static method
    for level in (StatisticsObjective, LogitsObjective, ModelObjective):
        for name in ("loss", "slopes", "parts") if issubclass(cls, level) else ():
            if hasattr(level, name):
                check_arguments(getattr(bare, name), level, name, label)


def check_arguments(method: Callable[..., Any], level: type, name: str, label: str) -> None:
    """Raise PluginError unless a method takes the arguments that its level's, or its contract's, gets."""
    _, *expected = inspect.signature(getattr(level, name)).parameters
    try:
        inspect.signature(method).bind(*expected)
    except ValueError:  # a method in C has no signature
        return
    except TypeError:
        given = ", ".join(argument.partition("_")[0] for argument in expected)  # without the letters of the shape
        raise PluginError(
            f"{label}: {level.__name__}.{name} gets ({given}); write `def {name}(self, {', '.join(expected)}):`."
        ) from None
