"""Families of plugins: how objectives, kinds of task, metrics, judges and retrievers are found, loaded and identified.

A plugin is a class with a `name`. An entry point of its family's group, such as `emobench.judges`, has that name as its
key and names a module. The module returns its classes from the family's hook:

    @emobench.hookimpl
    def emobench_judges():
        return [MyJudge]

Plugins are loaded by name, one at a time, so that a broken one breaks only itself. Built-ins come in by the same door.
A kind of task declares families of its own in `Kind.families`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.metadata import EntryPoint, EntryPoints, PackageNotFoundError, entry_points
from pathlib import Path
from pkgutil import resolve_name
from types import CodeType, ModuleType
from typing import Any, Generic, TypeVar

import pluggy

from emobench.core.errors import ConfigError, EmobenchError, PluginError, UnknownNameError, UserError
from emobench.core.extras import MissingPackageError, extra_of, missing_packages_explained
from emobench.core.hooks import PROJECT, hookspec
from emobench.core.reading import is_file, read_bytes
from emobench.core.settings import build, code_sha256, parse_call
from emobench.core.versions import OWN, brought_versions, minor_versions, name_of

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Loaded(Generic[T_co]):
    """A plugin with its parameters, and what identifies its code."""

    plugin: T_co
    source_sha256: str
    versions: Mapping[str, str]
    """Of the packages that it computes with; for a third-party plugin, of its package and requirements."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Family(Generic[T]):
    """Plugins of one sort. Code that is needed by some commands alone is named as "module:attribute"."""

    name: str
    """In messages, such as "judge"; its plural is the command, `emobench judges`."""
    title: str
    """Such as "Judges of responses"."""
    bases: tuple[str, ...]
    """A plugin is a subclass of one of them."""
    checks: str
    """A function of a plugin that returns its conformance checks, in order, and their subject."""
    templates: Path
    """A folder with the files of a new package; `$name`, `$module` and `$class_name` are filled in."""
    variants: tuple[str, ...] = ()
    """The folders in `templates` to choose from; without any, its files are the only example."""
    usage: tuple[str, ...]
    """Commands that use a plugin called `$name`, for a new package."""
    facts: str = ""
    """A function of a class that returns facts for `list` and `show`, as plain values."""
    columns: tuple[str, ...] = ()
    """The facts that `list` shows between name and summary."""
    example: str = ""
    """A function of a plugin that returns an example of its work for `show`, as plain values."""
    glossary: str = ""
    """A function that returns facts of names that are no plugins, for `list` and `show`."""
    group: str = ""
    """Of entry points; by default `emobench.` and the plural."""

    @property
    def plural(self) -> str:
        return f"{self.name}s"

    @property
    def points(self) -> str:
        """The group of entry points."""
        return self.group or f"emobench.{self.plural}"

    @property
    def hook(self) -> str:
        return f"emobench_{self.plural}"

    def base_classes(self) -> tuple[type, ...]:
        return tuple(map(resolve_name, self.bases))

    def names(self) -> list[str]:
        """Return the names of the installed plugins, without importing them."""
        return plugin_names(self.points)

    def origin(self, name: str) -> str:
        """Return the distribution and version of a plugin, such as "emobench 0.1.0"."""
        dists = [point.dist for point in _points(self.points, name) if point.dist]
        return f"{dists[0].name} {dists[0].version}" if dists else "unknown"

    def class_of(self, name: str) -> type[T]:
        """Return the class of an installed plugin. Raises PluginError if it does not keep the contract."""
        hint = f"See `emobench {self.plural} list`."
        results = call_hook(load_module(self.points, name, self.name, hint), self.hook, name)
        classes: list[Any] = []
        for result in results:  # a stranger's hook may return anything
            classes += result if isinstance(result, (list, tuple)) else [result]
        bases = self.base_classes()
        for cls in classes:
            is_plugin = isinstance(cls, type) and issubclass(cls, bases)
            if not is_plugin or not isinstance(getattr(cls, "name", None), str):
                raise PluginError(
                    f"The plugin '{name}' returns {cls!r}; expected a list of {self.name} classes with a `name`."
                )
        named = {cls.name: cls for cls in classes}
        if name not in named:
            raise PluginError(f"The plugin '{name}' offers {', '.join(named) or 'nothing'}, not '{name}'.")
        check_contract(named[name], f"The plugin '{name}': {named[name].__name__}")
        return named[name]

    def load(self, text: str) -> Loaded[T]:
        """Build the plugin that a text names: `dense`, or with parameters, `bm25(k1=1.2)`.

        A plugin refuses a parameter's value with a ValueError in its `__post_init__`.
        """
        name, given = parse_call(text)
        cls: Any = self.class_of(name)
        has_parameters = hasattr(cls, "__dataclass_fields__")
        if given and not has_parameters:
            raise ConfigError(f"The {self.name} '{name}' has no parameters; expected {name} alone.")
        try:
            versions = minor_versions(*getattr(cls, "packages", ()))
        except PackageNotFoundError as error:
            extra = extra_of(str(error.name))
            install = f": pip install '{OWN}[{extra}]'" if extra else "."
            raise PluginError(f"The {self.name} '{name}' needs {error.name}, which is not installed{install}") from None
        try:
            plugin = build(cls, given, f"{self.name} {name}") if has_parameters else cls()
        except ValueError as error:
            raise ConfigError(f"{self.name} {name}: {error}") from None
        return Loaded(plugin, self.digest(cls), {**versions, **self.brought(name)})

    def terms(self, text: str) -> list[tuple[str, str]]:
        """Return the plugins that a text names, each with its weight in a sum or with ""."""
        return [(text, "")]

    def usable(self) -> dict[str, type[T]]:
        """Return the classes of all plugins that can be loaded, by name."""
        classes = {}
        for name in self.names():
            try:
                classes[name] = self.class_of(name)
            except PluginError:
                continue  # whoever names it is told why
        return classes

    def brought(self, name: str) -> Mapping[str, str]:
        """Return the versions of what the distribution of a plugin brings."""
        points = _points(self.points, name)
        return brought_versions(points[0].dist) if points else {}

    def digest(self, *classes: type) -> str:
        """Return the sha256 of the code in the files that define classes and their bases outside the library.

        Comments, docstrings and layout are no code. Other modules that they import are not covered: raise `version`
        when such a helper changes the meaning.
        """
        bases = self.base_classes()
        files: dict[str, None] = {}
        for cls in classes:
            for base in cls.__mro__:
                if issubclass(base, bases) and (base is cls or not in_library(base)):
                    files[inspect.getfile(base)] = None
        return code_sha256(files)


def in_library(cls: type) -> bool:
    """Return whether a class is defined in `emobench` itself."""
    return cls.__module__.partition(".")[0] == OWN


# The contract that a class can be seen to break.


def check_contract(cls: type, label: str) -> None:
    """Raise PluginError unless a class has the attributes and methods that its bases in the library ask for.

    A method takes the same arguments as the base's method.
    """
    library = [base for base in cls.__mro__[1:] if in_library(base)]
    missing = [name for name in _declared(library) if not hasattr(cls, name)]
    if missing:
        raise PluginError(f"{label} does not define `{'`, `'.join(missing)}`.")
    if inspect.isabstract(cls):
        lines = []
        for name in sorted(cls.__abstractmethods__):
            method = getattr(cls, name)
            arguments = ", ".join(inspect.signature(method).parameters) if callable(method) else "self"
            lines.append(f"does not define {name}; write `def {name}({arguments}):`")
        raise PluginError(f"{label} {', and '.join(lines)}.")
    bare = object.__new__(cls)  # bound to an instance, the signature of a method has no `self`
    checked: set[str] = set()
    for base in library:
        for name, expected in vars(base).items():
            if inspect.isfunction(expected) and not name.startswith("_") and name not in checked:
                checked.add(name)
                if getattr(cls, name) is not expected:
                    check_arguments(getattr(bare, name), expected, f"{base.__name__}.{name}", label)


def _declared(bases: Iterable[type]) -> Iterator[str]:
    """Yield the class variables that bases declare without a value."""
    for base in bases:
        for name, hint in vars(base).get("__annotations__", {}).items():
            if str(hint).startswith("ClassVar") and not hasattr(base, name):
                yield name


def check_arguments(method: Callable[..., Any], expected: Callable[..., Any], name: str, label: str) -> None:
    """Raise PluginError unless a bound method can be called like the method `expected` of a class."""
    _, *parameters = inspect.signature(expected).parameters.values()
    positional = [one.name for one in parameters if one.kind is not one.KEYWORD_ONLY]
    named = {one.name: one for one in parameters if one.kind is one.KEYWORD_ONLY}
    try:
        inspect.signature(method).bind(*positional, **named)
    except ValueError:  # a method in C has no signature
        return
    except TypeError:
        given = ", ".join(one.name.partition("_")[0] for one in parameters)  # without the letters of the shape
        own = name.rpartition(".")[2]
        wanted = ", ".join(["self", *(one.name for one in parameters)])
        raise PluginError(f"{label}: {name} gets ({given}); write `def {own}({wanted}):`.") from None


# Entry points: this is the only module that reads them.


def plugin_names(group: str) -> list[str]:
    """Return the names of the plugins of a group, without importing them."""
    return sorted({point.name for point in _points(group)})


def load_module(group: str, name: str, kind: str, hint: str = "") -> ModuleType:
    """Return the module of a plugin. Raises PluginError if it does not import or if two plugins have the name."""
    points = _points(group, name)
    if not points:
        raise _absent(plugin_names(group), name, kind, hint)
    # A distribution that is installed and on the path is listed twice; it is the same plugin.
    if len({point.value for point in points}) > 1:
        owners = " and ".join(sorted(f"{_owner(point)} ({point.value})" for point in points))
        raise PluginError(f"Two plugins are named '{name}': {owners}. Uninstall one.")
    return run_foreign(points[0].load, f"The plugin '{name}' from {_owner(points[0])}")


def _absent(names: list[str], name: str, kind: str, hint: str) -> UserError:
    """Return the error for a name that no plugin has; it may be the folder of a package, or named like one."""
    folder = Path(name)
    own = folder.resolve().name
    if "/" in name and own in names:
        return PluginError(f"'{name}' is a path; expected the name of the {kind}, {own}.")
    if is_file(folder / "pyproject.toml"):
        place = folder if folder.is_absolute() or ".." in folder.parts else f"./{folder}"
        return PluginError(f"The {kind} '{own}' is not installed: pip install -e {place}, and give its name, {own}.")
    if "/" in name:
        return PluginError(f"'{name}' is a path; expected the name of an installed {kind}: {', '.join(names)}.")
    return UnknownNameError(kind, name, names, hint=hint)


def _points(group: str, name: str | None = None) -> list[EntryPoint]:
    changes = []
    for place in map(_folder, sys.path):
        if place.is_dir():
            changes.append((str(place), place.stat().st_mtime_ns))
    return [point for point in _installed(group, tuple(changes)) if name in (None, point.name)]


@cache
def _folder(place: str) -> Path:
    return Path(place)


@lru_cache(maxsize=32)
def _installed(group: str, places: tuple[tuple[str, int], ...]) -> EntryPoints:
    """Return the entry points of a group in folders, given with the times of their last change.

    Reading them takes 15 ms, and a plan asks 150 times.
    """
    return entry_points(group=group)


def _owner(point: EntryPoint) -> str:
    return name_of(point.dist) if point.dist else "an unknown distribution"


class _ContentLoader(SourceFileLoader):
    """Loads a file's content as it was read.

    Python's own loader would take the bytecode of an earlier content that has the same size and second of change.
    """

    def __init__(self, name: str, path: Path, content: bytes) -> None:
        super().__init__(name, str(path))
        self._content = content

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self._content, self.path)


def module_of_file(path: Path, expected: str) -> ModuleType:
    """Run a Python file of the user's as it is now, and return its module. Raises ConfigError if it cannot be read."""
    if not is_file(path):
        raise ConfigError(f"There is no file {path}; expected {expected}.")
    try:
        content = read_bytes(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    # The digest in the name separates two files of one name, and an edited file from its earlier content.
    name = f"emobench_file_{hashlib.sha256(content).hexdigest()[:12]}"
    loader = _ContentLoader(name, path.absolute(), content)
    module = importlib.util.module_from_spec(ModuleSpec(name, loader, origin=loader.path))
    module.__file__ = loader.path
    sys.modules[name] = module
    run_foreign(lambda: loader.exec_module(module), f"The file {path}", file=loader.path)
    return module


def run_foreign(load: Callable[[], T], label: str, does: str = "does not import", file: str | None = None) -> T:
    """Run a stranger's code; `file` is the user's own file that has it, if any."""
    try:
        with missing_packages_explained():
            return load()
    except MissingPackageError as error:
        raise PluginError(f"{label} cannot be used yet. {error}") from error
    except (Exception, SystemExit) as error:  # whatever a stranger's code raises
        # A class that breaks the contract says so in a sentence; anything else is named with its place.
        plain = isinstance(error, EmobenchError)
        reason = str(error) if plain else f"{type(error).__name__}: {error} ({_place(error, file)})"
        advice = "Fix it." if file else "Fix or uninstall it; others still work."
        raise PluginError(f"{label} {does}: {reason.rstrip('.')}. {advice}") from error


def _place(error: BaseException, file: str | None) -> str:
    """Return where an error arose: the last place in the user's own file, if it was on the way."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == file] or frames
    return f"{own[-1].filename}:{own[-1].lineno}"


@cache
def call_hook(module: ModuleType, hook: str, name: str) -> list[Any]:
    """Return what the hook of a plugin's module returns, one item for each implementation."""

    def specification() -> None: ...

    specification.__name__ = hook
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(type("Hooks", (), {hook: staticmethod(hookspec(specification))}))
    try:
        manager.register(module)
    except pluggy.PluginValidationError as error:
        raise PluginError(f"The plugin '{name}' does not keep the contract: {error}") from None
    results = run_foreign(getattr(manager.hook, hook), f"The plugin '{name}'", f"fails in its hook `{hook}`")
    if not results:
        raise PluginError(f"The plugin '{name}' implements no `{hook}`; mark it with @emobench.hookimpl.")
    return results
