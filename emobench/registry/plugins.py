"""Entry points to plugins: the only module that reads entry points.

Plugins are loaded by name, one at a time, so that a broken one breaks only itself. Built-ins come in by the same door.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pluggy

from emobench.core.errors import EmobenchError, PluginError, UnknownNameError, UserError
from emobench.core.hooks import PROJECT
from emobench.core.reading import is_file
from emobench.core.settings import code_sha256
from emobench.core.versions import brought_versions, name_of
from emobench.registry import hookspecs

OBJECTIVES, TASKS, KINDS, RETRIEVERS, METRICS, JUDGES = (
    f"emobench.{group}" for group in ("objectives", "tasks", "kinds", "components", "metrics", "judges")
)

T = TypeVar("T")


def plugin_names(group: str) -> list[str]:
    """Return the names of the plugins of a group, without importing them."""
    return sorted({point.name for point in _points(group)})


def origin(group: str, name: str) -> str:
    """Return the distribution and version of a plugin, such as "emobench 0.1.0"."""
    found = [point.dist for point in _points(group, name) if point.dist]
    return f"{found[0].name} {found[0].version}" if found else "unknown"


def load_plugin(group: str, name: str, kind: str, hint: str = "") -> ModuleType:
    points = _points(group, name)
    if not points:
        raise _absent(group, name, kind, hint)
    # A distribution that is installed and on the path is listed twice; it is the same plugin.
    if len({point.value for point in points}) > 1:
        owners = " and ".join(sorted(f"{owner(point)} ({point.value})" for point in points))
        raise PluginError(f"Two plugins are named '{name}': {owners}. Uninstall one.")
    return run_foreign(lambda: points[0].load(), f"The plugin '{name}' from {owner(points[0])}")


def _absent(group: str, name: str, kind: str, hint: str) -> UserError:
    """Return the error for a name that no plugin has; it may be the folder of a package, or named like one."""
    known, folder = plugin_names(group), Path(name)
    own = folder.resolve().name
    if "/" in name and own in known:
        return PluginError(f"'{name}' is a path; expected the name of the {kind}, {own}.")
    if is_file(folder / "pyproject.toml"):
        place = folder if folder.is_absolute() or ".." in folder.parts else f"./{folder}"
        return PluginError(f"The {kind} '{own}' is not installed: pip install -e {place}, and give its name, {own}.")
    if "/" in name:
        return PluginError(f"'{name}' is a path; expected the name of an installed {kind}: {', '.join(known)}.")
    return UnknownNameError(kind, name, known, hint=hint)


def brought(group: str, name: str) -> Mapping[str, str]:
    """Return the versions of what the distribution of a plugin brings."""
    points = _points(group, name)
    return brought_versions(points[0].dist) if points else {}


def _points(group: str, name: str | None = None) -> list[EntryPoint]:
    places = (_folder(place) for place in sys.path)
    found = _installed(group, tuple((str(place), place.stat().st_mtime_ns) for place in places if place.is_dir()))
    return [point for point in found if name in (None, point.name)]


@cache
def _folder(place: str) -> Path:
    return Path(place)


@lru_cache(maxsize=8)
def _installed(group: str, places: tuple[tuple[str, int], ...]) -> EntryPoints:
    """Return the entry points of a group in folders, given with the times of their last change.

    Reading them takes 15 ms, and a plan asks 150 times.
    """
    return entry_points(group=group)


def owner(point: EntryPoint) -> str:
    return name_of(point.dist) if point.dist else "an unknown distribution"


def run_foreign(load: Callable[[], T], label: str, does: str = "does not import", file: str | None = None) -> T:
    """Run a stranger's code; `file` is the user's own one that it is in, if it is."""
    try:
        return load()
    except (Exception, SystemExit) as error:  # whatever a stranger's code raises
        # A class that breaks the contract says so in a sentence; anything else is named with its place.
        plain = isinstance(error, EmobenchError)
        reason = str(error) if plain else f"{type(error).__name__}: {error} ({_place(error, file)})"
        mend = "Mend it." if file else "Mend or uninstall it; others still work."
        raise PluginError(f"{label} {does}: {reason.rstrip('.')}. {mend}") from error


def _place(error: BaseException, file: str | None) -> str:
    """Return where an error arose: the last place in the user's own file, if it was on the way."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    at = [frame for frame in frames if frame.filename == file] or frames
    return f"{at[-1].filename}:{at[-1].lineno}"


@cache
def call_hook(module: ModuleType, hook: str, name: str) -> list[Any]:
    """Return what a plugin's implementations of a hook return."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(module)
    except pluggy.PluginValidationError as error:
        raise PluginError(f"The plugin '{name}' does not keep the contract: {error}") from None
    results = run_foreign(getattr(manager.hook, hook), f"The plugin '{name}'", f"fails in its hook `{hook}`")
    if not results:
        raise PluginError(f"The plugin '{name}' implements no `{hook}`; mark it with @emobench.hookimpl.")
    return results


def class_of(group: str, name: str, hook: str, base: type[T], kind: str, hint: str = "") -> type[T]:
    """Return the class of a name that the plugin of that name offers in a hook; a stranger's may return anything."""
    results = call_hook(load_plugin(group, name, kind, hint=hint), hook, name)
    found = [cls for result in results for cls in (result if isinstance(result, (list, tuple)) else [result])]
    for cls in found:
        if not (isinstance(cls, type) and issubclass(cls, base) and isinstance(getattr(cls, "name", None), str)):
            raise PluginError(f"The plugin '{name}' returns {cls!r}; expected a list of {kind} classes with a `name`.")
    named = {cls.name: cls for cls in found}
    if name not in named:
        raise PluginError(f"The plugin '{name}' offers {', '.join(named) or 'nothing'}, not '{name}'.")
    return named[name]


def files_digest(classes: Iterable[type]) -> str:
    """Return the sha256 of the code in the files that define classes."""
    return code_sha256(dict.fromkeys(inspect.getfile(cls) for cls in classes))
