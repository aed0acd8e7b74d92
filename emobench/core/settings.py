"""Configuration: strict frozen dataclasses <-> plain mappings, `--set a.b=c`, `name(key=value)`, content hashes.

Nothing here evaluates code: values are read as YAML scalars or Python literals.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import hashlib
import json
import operator
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from emobench.core.errors import ConfigError, UnknownNameError, UserError
from emobench.core.reading import MOST_BITS, PlainLoader, RefusedError, open_file, read_bytes

T = TypeVar("T")
_SCALARS = frozenset((str, int, float, bool, type(None)))
PRETRAINED = "pretrained"
"""A reserved name: a model without training. As a featurizer or a cost: the trained model before training."""


class Located(dict[str, Any]):
    """A mapping from a file that knows the line of each key. Errors of `build` show the line."""

    def __init__(self, file: str, line: int) -> None:
        super().__init__()
        self.file, self.line = file, line
        self.lines: dict[str, int] = {}

    def where(self, key: str | None = None) -> str:
        """Return "file:line" of a key, or of the mapping itself."""
        return f"{self.file}:{self.lines.get(key, self.line) if key else self.line}"


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys, without spaces. Dataclasses become mappings, paths text. NaN raises ValueError."""
    return json.dumps(to_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_hash(value: Any) -> str:
    """Return the sha256 of the canonical JSON of a value, as 64 hex digits. Raises as `utf8`."""
    return hashlib.sha256(utf8(canonical_json(value))).hexdigest()


def utf8(text: str) -> bytes:
    """Return text as UTF-8. Raises ConfigError for half a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        near = text[max(error.start - 20, 0) : error.end + 20]
        raise ConfigError(f"{near!a} has half a surrogate pair; expected text that is valid UTF-8.") from None


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file as 64 hex digits."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def code_sha256(files: Iterable[str]) -> str:
    """Return the sha256 of the code in Python files as 64 hex digits, without comments, docstrings and layout."""
    code = [_code_text(read_bytes(file)) for file in files]
    return hashlib.sha256("\n".join(code).encode(errors="surrogatepass")).hexdigest()


@functools.lru_cache(maxsize=64)
def _code_text(source: bytes) -> str:
    """Return the code of a file's content; kept, because many plans ask for the same files."""
    return _code(ast.parse(source))


def _code(node: Any) -> str:
    """Return a syntax tree as text without positions and bare strings. `ast.dump` differs between Python versions."""
    if isinstance(node, list):
        return f"[{', '.join(_code(item) for item in node if not _is_bare_string(item))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = []
    for name, value in ast.iter_fields(node):
        if value not in (None, []):
            fields.append(f"{name}={_code(value)}")
    return f"{type(node).__name__}({', '.join(fields)})"


def _is_bare_string(node: Any) -> bool:
    """Return whether a statement is only a string, such as a docstring."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def to_plain(value: Any) -> Any:
    """Return a value made of dicts, lists and scalars only."""
    if type(value) in _SCALARS:
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain = {}
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            if "optional" not in field.metadata or item != field.default:
                plain[field.name] = to_plain(item)
        return plain
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(to_plain(item) for item in value)
    if isinstance(value, Path):
        return str(value)
    return value


OPTIONAL = {"optional": True}
"""Metadata of a field that `to_plain` leaves out where it has its default.

A setting that is added to a dataclass in this way changes no key and no entry of those that do not use it.
"""


def build(cls: type[T], mapping: Mapping[str, Any], where: str) -> T:
    """Build the dataclass `cls` from a mapping.

    Unknown keys, missing keys and values of a wrong type raise ConfigError. The message starts with `where` (the option
    on the command line), or with the file and line of a mapping from a file. A class can check more in `__post_init__`
    by raising ConfigError; the message gets the same prefix.
    """
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{where}: expected a mapping of settings, got {_shown(mapping)}.")
    converters, required = _shape(cls)
    located = mapping if isinstance(mapping, Located) else None
    values = {}
    for key, value in mapping.items():
        place = located.where(key) if located else where
        if key not in converters:
            raise UnknownNameError("setting", str(key), converters, where=f"{place}: ")
        exact, to_type = converters[key]
        values[key] = value if type(value) in exact else to_type(value, f"{place}: `{key}`")
    where = located.where() if located else where
    for name in required:
        if name not in values:
            raise ConfigError(f"{where}: `{name}` is missing; give it a value.")
    try:
        return cls(**values)
    except ConfigError as error:
        # Some classes already name themselves in their errors.
        text = str(error)
        raise ConfigError(text if text.startswith(f"{where}:") else f"{where}: {text}") from None


def setting(
    default: Any,
    *,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    choices: Sequence[Any] = (),
    help: str = "",
    optional: bool = False,
) -> Any:
    """Declare a setting of a dataclass, such as a parameter of an objective or a value of a recipe.

    `low` and `high` are allowed values, `above` is not. Without `help`, the docstring below the field is its meaning.
    `optional` leaves the setting out of keys and entries where it has its default, as `OPTIONAL` does.

    `check_settings` checks the values. None is not checked. Limits of recipes and rules are far beyond useful values: a
    number outside is a typing error that would run for years or overflow.
    """
    metadata: dict[str, Any] = {"low": low, "above": above, "high": high, "choices": tuple(choices), "help": help}
    if optional:
        metadata |= OPTIONAL
    return dataclasses.field(default=default, metadata=metadata)


def check_settings(owner: Any) -> None:
    """Raise ConfigError for the first setting of a dataclass outside of its declared range or choices."""
    for field in dataclasses.fields(owner):
        value = getattr(owner, field.name)
        allowed = describe_range(field)
        if allowed and value is not None and not _is_allowed(value, field.metadata):
            raise ConfigError(f"`{field.name}` is {value!r}; expected {allowed}.")


_LIMITS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "low": ("at least", operator.ge),
    "above": ("a number above", operator.gt),
    "high": ("at most", operator.le),
}
"""Limit of a setting -> its words, and what a value has to be to it; NaN is nothing of this to any number."""


def _is_allowed(value: Any, limits: Mapping[str, Any]) -> bool:
    if limits["choices"]:
        return value in limits["choices"]
    for name, (_, holds) in _LIMITS.items():
        if limits[name] is not None and not holds(value, limits[name]):
            return False
    return True


def describe_range(field: dataclasses.Field[Any]) -> str:
    """Return the allowed values of a setting as text, such as "at least 0, at most 1". Empty: all are allowed."""
    limits = field.metadata
    if limits.get("choices"):
        return "one of " + ", ".join(map(str, limits["choices"]))
    ends = []
    for name, (words, _) in _LIMITS.items():
        if limits.get(name) is not None:
            ends.append(f"{words} {limits[name]:,}")
    return ", ".join(ends)


Converter = Callable[[Any, str], Any]
"""(value, where) -> the converted value. Raises ConfigError."""


def convert(hint: Any, value: Any, where: str) -> Any:
    """Return `value` converted to the annotated type `hint`. Raises ConfigError."""
    return _converter(hint)(value, where)


@functools.cache
def _shape(cls: type) -> tuple[dict[str, tuple[frozenset[Any], Converter]], list[str]]:
    """Return each field's types that need no conversion and its converter, and the names of the required fields."""
    shape = {}
    required = []
    hints = get_type_hints(cls)
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if not field.init:
            continue
        hint = hints[field.name]
        shape[field.name] = (_exact(hint), _converter(hint))
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            required.append(field.name)
    return shape, required


@functools.cache
def _exact(hint: Any) -> frozenset[Any]:
    """Return the scalar types whose values need no conversion to `hint`."""
    options = (hint,)
    if get_origin(hint) in (Union, types.UnionType):
        options = get_args(hint)
    first, *others = options  # with several types, the first might convert a value of a later one
    if first in _SCALARS and others in ([], [type(None)]):
        return frozenset(options)
    return frozenset()


@functools.cache
def _converter(hint: Any) -> Converter:
    """Return the converter to a type. It is cached, because a board has millions of values."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return lambda value, where: value
    if origin in (Union, types.UnionType):
        options = [_converter(option) for option in args if option is not type(None)]
        return functools.partial(_to_union, options, type(None) in args)
    if origin is Literal:
        return functools.partial(_to_literal, args)
    if origin in (tuple, list) or hint in (tuple, list):
        return functools.partial(_to_sequence, list if origin is list else tuple, args[0] if args else Any)
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        key, item = args
        return functools.partial(_to_mapping, _converter(key), _converter(item), item is Any)
    if dataclasses.is_dataclass(hint):
        cls = typing.cast(type, hint)
        return lambda value, where: value if isinstance(value, cls) else build(cls, value, where)
    return functools.partial(_to_scalar, hint)


def _to_union(options: list[Converter], optional: bool, value: Any, where: str) -> Any:
    if value is None and optional:
        return None
    problem: UserError | None = None
    for option in options:
        try:
            return option(value, where)
        except UserError as error:
            # An error inside a mapping is more useful than the error that a mapping was not expected.
            if problem is None or isinstance(value, Mapping):
                problem = error
    raise typing.cast(UserError, problem)


def _to_literal(choices: tuple[Any, ...], value: Any, where: str) -> Any:
    if value in choices:
        return value
    raise ConfigError(f"{where} is {_shown(value)}; expected one of {', '.join(map(repr, choices))}.")


def _to_sequence(result: type[list[Any] | tuple[Any, ...]], item: Any, value: Any, where: str) -> Any:
    if not isinstance(value, (list, tuple)):
        example = f"[{value:.40}]" if item is str and isinstance(value, str) else "[1, 2]"
        raise ConfigError(f"{where} is {_shown(value)}; expected a list, such as {example}.")
    if _exact(item).issuperset(map(type, value)):
        return result(value)
    to_item = _converter(item)
    return result([to_item(v, f"{where}[{i}]") for i, v in enumerate(value)])


def _to_mapping(to_key: Converter, to_item: Converter, of_any: bool, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} is {_shown(value)}; expected a mapping.")
    if isinstance(value, Located) and of_any:
        return value  # keep the line numbers for later errors
    converted = {}
    for key, item in value.items():
        converted[to_key(key, where)] = to_item(item, f"{where}.{key}")
    return converted


def _to_scalar(hint: Any, value: Any, where: str) -> Any:
    if type(value) is hint:
        return value
    if hint is float and isinstance(value, (int, str)) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):  # YAML reads 5e-5 as text
            return float(value)
    if hint is Path and isinstance(value, str):
        return Path(value)
    if isinstance(value, hint) and not (isinstance(value, bool) and hint is not bool):
        return value
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    expected = names.get(hint, getattr(hint, "__name__", hint))
    raise ConfigError(f"{where} is {_shown(value)}; expected {expected}.")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def parse_overrides(given: Iterable[str]) -> dict[str, Any]:
    """Read `--set a.b=c` options into a nested mapping. Values are YAML scalars or lists.

    >>> parse_overrides(["recipe.epochs=1", "recipe.lora=false"])
    {'recipe': {'epochs': 1, 'lora': False}}
    """
    tree: dict[str, Any] = {}
    for text in given:
        path, equals, raw = text.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys):
            raise ConfigError(f"--set {text}: expected key=value, such as --set recipe.epochs=1.")
        node = tree
        for key in keys[:-1]:
            node = node.setdefault(key, {}) if isinstance(node, dict) else node
        if not isinstance(node, dict) or keys[-1] in node:
            raise ConfigError(f"--set {text}: `{path}` is set twice; keep one.")
        try:
            node[keys[-1]] = yaml.load(raw, PlainLoader)
        except RefusedError as error:
            raise ConfigError(f"--set {path}: {error.problem}.") from None
        except (yaml.YAMLError, ValueError):  # ValueError: an invalid date or number, such as 2020-13-45
            node[keys[-1]] = raw
    return tree


def dotted_settings(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested settings by their dotted names, the reverse of `parse_overrides`.

    >>> dict(dotted_settings({"recipe": {"epochs": 1}}))
    {'recipe.epochs': 1}
    """
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from dotted_settings(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def setting_word(value: Any) -> str:
    """Return the value of a setting in a TOML file as `--set` takes it; text is read as on the command line."""
    return value if isinstance(value, str) else json.dumps(value)


def parse_call(text: str) -> tuple[str, dict[str, Any]]:
    """Parse `name` or `name(key=value, ...)`. No code is evaluated.

    >>> parse_call("tailr(gamma=0.2)")
    ('tailr', {'gamma': 0.2})
    """
    text = text.strip()
    name, bracket, _ = text.partition("(")
    if not bracket:
        return text, {}
    try:
        # The name may be a path, which is not a Python expression, so only the arguments are parsed.
        positional, named = parse_arguments(text[len(name) :])
        if positional:
            raise ValueError("arguments are named and stand in one pair of brackets")
    except ValueError as error:
        raise ConfigError(
            f"{_shown(text)} could not be read ({error}); expected name(key=value, ...), such as tailr(gamma=0.2)."
        ) from None
    return name.strip(), named


def parse_arguments(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and the named arguments of `(value, ..., key=value, ...)`. Raises ValueError."""
    source = "f" + text
    try:
        call = ast.parse(source, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("arguments are named and stand in one pair of brackets")
        positional = [_argument(value, source) for value in call.args]
        named: dict[str, Any] = {}
        for word in call.keywords:
            if word.arg is None or word.arg in named:
                raise ValueError("each argument is named once")
            named[word.arg] = _argument(word.value, source)
    except SyntaxError as error:
        raise ValueError(error.msg) from None
    except (TypeError, RecursionError, MemoryError):
        raise ValueError("its values cannot be read") from None
    return positional, named


def _argument(value: ast.expr, source: str) -> Any:
    if isinstance(value, ast.Name):  # a word; true, false and null as in --set
        return {"true": True, "false": False, "null": None}.get(value.id, value.id)
    try:
        parsed = ast.literal_eval(value)
    except ValueError:
        text = ast.get_source_segment(source, value) or ""
        if re.fullmatch(r"[A-Za-z_][\w./@-]*", text):  # a model's name, such as gpt2-large, is not a Python name
            return text
        raise ValueError("a value is a number, true, false, a word, or text in quotes") from None
    if isinstance(parsed, int) and parsed.bit_length() > MOST_BITS:
        raise ValueError(f"a whole number of more than {MOST_BITS:,} bits")
    return parsed
