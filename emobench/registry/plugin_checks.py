"""Check that the class of a plugin defines its methods with the right arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from emobench.core.errors import PluginError

if TYPE_CHECKING:
    from emobench.objectives import Objective


def check_concrete(cls: type[Objective], label: str) -> None:
    """Raise PluginError unless a class defines the methods of its level with the right arguments."""
    from emobench.objectives import LogitsObjective, ModelObjective, StatisticsObjective

    if inspect.isabstract(cls):
        missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
        raise PluginError(f"{label} does not define {missing}; write `def {missing}(self, ...)`.")
    bare = object.__new__(cls)  # bound to an instance, the signature of a method has no `self`
    for level in (StatisticsObjective, LogitsObjective, ModelObjective):
        for name in ("loss", "slopes", "parts") if issubclass(cls, level) else ():
            if hasattr(level, name):
                check_arguments(getattr(bare, name), level, name, label)


def check_arguments(method: Callable[..., Any], level: type, name: str, label: str) -> None:
    """Raise PluginError unless a method takes the same arguments as the method of its base class."""
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
