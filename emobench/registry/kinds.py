"""Names to kinds of task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from emobench.core.errors import PluginError, UnknownNameError
from emobench.kinds.interface import Kind
from emobench.registry.components import COMPONENTS
from emobench.registry.plugins import KINDS, brought, class_of, files_digest, plugin_names
from emobench.tasks.spec import BY_KIND, Task


def kind_names() -> list[str]:
    """Return the names of the installed kinds of task, without importing them."""
    return plugin_names(KINDS)


@cache
def load_kind(name: str) -> Kind:
    """Return a kind of task; raises PluginError where it does not keep the contract."""
    cls: Any = class_of(KINDS, name, "emobench_kinds", Kind, "kind of task")
    missing = [part for part in ("rules", "example") if not hasattr(cls, part)]
    missing += sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        raise PluginError(f"The plugin '{name}': {cls.__name__} does not define {', '.join(missing)}.")
    versions = brought(KINDS, name)
    return cls(COMPONENTS, {"source": files_digest([cls]), "packages": dict(versions)} if versions else {})


def usable_kinds() -> list[Kind]:
    """Return all kinds of task that can be loaded."""
    found = []
    for name in kind_names():
        try:
            found.append(load_kind(name))
        except PluginError:
            continue  # whoever names it is told why
    return found


def kind_of_file(name: str, where: str) -> Kind:
    """Return the kind that a task's file names at a place."""
    try:
        return load_kind(name)
    except UnknownNameError:
        raise UnknownNameError("kind of task", name, kind_names(), where=f"{where}: ") from None


def kind_of_name(name: str) -> tuple[Kind, Callable[[Mapping[str, Any]], Task]] | None:
    """Return the kind of a task without a file, such as "lm-eval:hellaswag", and what makes it from overridden rules.

    None for a task that has a file.
    """
    prefix, separator, rest = name.partition(BY_KIND)
    if not separator:
        return None
    kind = load_kind(prefix.replace("-", "_"))
    return kind, lambda overrides: kind.named_task(rest, overrides)
