"""Names to kinds of task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from emobench.errors import PluginError, UnknownNameError
from emobench.kinds.interface import Kind
from emobench.registry.components import load_retriever
from emobench.registry.plugins import KINDS, brought, classes_of, files_digest, load_plugin, plugin_names
from emobench.tasks.spec import BY_KIND, Task

if TYPE_CHECKING:
    from emobench.kinds.icl.retrieval.retriever import LoadedRetriever


class _Components:
    """What kinds may load by the names in their rules."""

    def retriever(self, text: str) -> LoadedRetriever:
        return load_retriever(text)


def kind_names() -> list[str]:
    """Return the names of the installed kinds of task, without importing them."""
    return plugin_names(KINDS)


@cache
def load_kind(name: str) -> Kind:
    """Return a kind of task; raises PluginError where it does not keep the contract."""
    found = classes_of(load_plugin(KINDS, name, "kind of task"), "emobench_kinds", name)
    for cls in found:
        if not (isinstance(cls, type) and issubclass(cls, Kind) and isinstance(getattr(cls, "name", None), str)):
            raise PluginError(f"The plugin '{name}' returns {cls!r}; expected a list of classes of emobench.Kind.")
    named = {cls.name: cls for cls in found}
    if name not in named:
        raise PluginError(f"The plugin '{name}' offers {', '.join(named) or 'nothing'}, not '{name}'.")
    missing = [part for part in ("rules", "example") if not hasattr(named[name], part)]
    missing += sorted(getattr(named[name], "__abstractmethods__", ()))
    if missing:
        raise PluginError(f"The plugin '{name}': {named[name].__name__} does not define {', '.join(missing)}.")
    versions = brought(KINDS, name)
    identity = {"source": files_digest([named[name]]), "packages": dict(versions)} if versions else {}
    return named[name](_Components(), identity)


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
    if name not in kind_names():
        raise UnknownNameError("kind of task", name, kind_names(), where=f"{where}: ")
    return load_kind(name)


def kind_of_name(name: str) -> tuple[Kind, Callable[[Mapping[str, Any]], Task]] | None:
    """Return the kind of a task without a file, such as "lm-eval:hellaswag", and what makes it from overridden rules.

    None for a task that has a file.
    """
    prefix, separator, rest = name.partition(BY_KIND)
    if not separator:
        return None
    kind = load_kind(prefix.replace("-", "_"))
    return kind, lambda overrides: kind.named_task(rest, overrides)
