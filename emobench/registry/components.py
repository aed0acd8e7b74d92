"""Names to components that a protocol's rules name: retrievers of in-context examples."""

from __future__ import annotations

import inspect
from dataclasses import is_dataclass
from importlib.metadata import PackageNotFoundError
from typing import TYPE_CHECKING

from emobench.config import build, parse_call
from emobench.errors import ConfigError, PluginError
from emobench.plugin_checks import check_arguments
from emobench.registry.plugins import COMPONENTS, brought, classes_of, files_digest, load_plugin, plugin_names
from emobench.versions import minor_versions

if TYPE_CHECKING:
    from emobench.kinds.icl.retrieval.retriever import LoadedRetriever, Retriever


def retriever_names() -> list[str]:
    """Return the names of the installed retrievers, without importing them."""
    return plugin_names(COMPONENTS)


def load_retriever(text: str) -> LoadedRetriever:
    """Build the retriever that a protocol names: `dense`, or with parameters, `bm25(k1=1.2)`.

    A retriever refuses a parameter's value with a ValueError in its `__post_init__`.
    """
    from emobench.kinds.icl.retrieval.retriever import LoadedRetriever

    name, given = parse_call(text)
    cls = retriever_class(name)
    if given and not is_dataclass(cls):
        raise ConfigError(f"The retriever '{name}' has no parameters; expected retriever={name}.")
    try:
        retriever = build(cls, given, f"retriever {name}") if is_dataclass(cls) else cls()
    except ValueError as error:
        raise ConfigError(f"retriever {name}: {error}") from None
    try:
        named = minor_versions(*cls.packages)
    except PackageNotFoundError as error:
        raise PluginError(f"The retriever '{name}' computes with {error.name}, which is not installed.") from None
    return LoadedRetriever(retriever, files_digest([cls]), {**named, **brought(COMPONENTS, name)})


def retriever_class(name: str) -> type[Retriever]:
    """Return the class of an installed retriever; raises PluginError where it does not keep the contract."""
    from emobench.kinds.icl.retrieval.retriever import Retriever

    module = load_plugin(COMPONENTS, name, "retriever")
    found = classes_of(module, "emobench_retrievers", name)
    for cls in found:
        if not (isinstance(cls, type) and issubclass(cls, Retriever) and isinstance(getattr(cls, "name", None), str)):
            raise PluginError(
                f"The plugin '{name}' returns {cls!r}; expected a list of retriever classes with a `name`."
            )
    named = {cls.name: cls for cls in found}
    if name not in named:
        raise PluginError(f"The plugin '{name}' offers {', '.join(named) or 'nothing'}, not '{name}'.")
    label = f"The plugin '{name}': {named[name].__name__}"
    if inspect.isabstract(named[name]):
        raise PluginError(
            f"{label} does not define retrieve; write `def retrieve(self, pool, queries, count, context):`."
        )
    check_arguments(object.__new__(named[name]).retrieve, Retriever, "retrieve", label)
    return named[name]
