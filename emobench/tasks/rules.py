"""Rules of all kinds: the rules that identify a protocol, changes of rules, and checks of values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from emobench.core.errors import ConfigError, UnknownNameError
from emobench.core.reading import expand_home, is_folder
from emobench.core.settings import Located, build, to_plain

MOST_SEEDS = 1000


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The rules of a kind of task: a frozen dataclass. One set of values is a protocol.

    Each has a field `limit`, which `--limit` sets: examples at most, None for all.
    """

    NOT_IDENTIFYING: ClassVar[tuple[str, ...]] = ()
    """Rules that are not part of the protocol's id, such as where data lie, which their content identifies elsewhere,
    or how the same numbers are computed."""
    ABSENT_BY_DEFAULT: ClassVar[tuple[str, ...]] = ()
    """Rules that are part of the protocol's id only if they are not the default: protocols are older than they."""


@dataclass(frozen=True, kw_only=True)
class RuleGroup:
    """Rules that several kinds share, with a `--set` of its own: `--set mauve.featurizer=X` reaches every task that has
    a field `mauve` of it."""

    NOT_IDENTIFYING: ClassVar[tuple[str, ...]] = ()
    """As of `Rules`."""


def model_rule(default: Any) -> Any:
    """Declare a field that names a model. A folder is "local" in a protocol's id: its content identifies it."""
    return dataclasses.field(default=default, metadata={"model": True})


def identifying_rules(rules: Rules) -> dict[str, Any]:
    """Return the rules that identify a protocol, as plain values."""
    plain = _plain(rules)
    for name in rules.ABSENT_BY_DEFAULT:
        if getattr(rules, name) == getattr(type(rules), name):
            plain.pop(name, None)
    return plain


def _plain(value: Any) -> dict[str, Any]:
    plain = to_plain(value)
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        if field.name in getattr(value, "NOT_IDENTIFYING", ()):
            del plain[field.name]
        elif dataclasses.is_dataclass(inner):
            plain[field.name] = _plain(inner)
        elif field.metadata.get("model") and isinstance(inner, str) and is_folder(expand_home(inner)):
            plain[field.name] = "local"
    return plain


def not_identifying(rules: type[Rules] | RuleGroup, prefix: str = "") -> set[str]:
    """Return the names of the rules of a kind that are not part of a protocol's id, such as "judge.url"."""
    names = {prefix + name for name in rules.NOT_IDENTIFYING}
    for field in dataclasses.fields(rules):
        if isinstance(field.default, RuleGroup):
            names |= not_identifying(field.default, f"{prefix}{field.name}.")
    return names


def changed_rules(base: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the rules of `other` that differ from those of `base`, by their dotted names."""
    changes: dict[str, Any] = {}
    for name, value in other.items():
        if isinstance(value, dict) and isinstance(base.get(name), dict):
            changes |= changed_rules(base[name], value, f"{prefix}{name}.")
        elif value != base.get(name):
            changes[prefix + name] = value
    return changes


def rule_groups(rules: type[Rules]) -> dict[str, RuleGroup]:
    """Return the groups of rules that a kind has, by the names of their fields."""
    return {f.name: f.default for f in dataclasses.fields(rules) if isinstance(f.default, RuleGroup)}


def override(value: Any, changes: Mapping[str, Any], where: str) -> Any:
    """Return a copy of a dataclass with some fields changed, nested ones too; checked like a file.

    `where` is the option that gave the changes, such as "--set recipe"; changes from a file name their line instead.
    """
    merged = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    for key, change in changes.items():
        if key not in merged:
            raise _no_setting(value, key, changes, where)
        current = merged[key]
        if isinstance(change, Mapping) and dataclasses.is_dataclass(current):
            place = f"--set {key}" if isinstance(current, RuleGroup) else f"{where}.{key}"
            change = override(current, change, place)
        merged[key] = change
    if isinstance(changes, Located):
        where = changes.where()
    return build(type(value), merged, where)


def _no_setting(value: Any, key: str, changes: Mapping[str, Any], where: str) -> ConfigError | UnknownNameError:
    """Return the error of a name that a dataclass has not, with the nearest ones."""
    place, prefix = "--set", where.removeprefix("--set ") + "."
    if isinstance(changes, Located):
        place, prefix = changes.where(key), ""
    if deeper := [repr(prefix + name) for name in dotted(value) if name.endswith(f".{key}")]:
        return ConfigError(f"{place}: There is no setting '{prefix}{key}'; did you mean {' or '.join(deeper)}?")
    known = [prefix + field.name for field in dataclasses.fields(value)]
    return UnknownNameError("setting", f"{prefix}{key}", known, where=f"{place}: ")


def dotted(value: Any, prefix: str = "") -> list[str]:
    """Return the names of all settings within a dataclass or an instance of one, such as "sampling.top_p"."""
    names: list[str] = []
    for field in dataclasses.fields(value):
        names.append(prefix + field.name)
        within = field.default if isinstance(value, type) else getattr(value, field.name)
        if dataclasses.is_dataclass(within):
            names += dotted(within, f"{prefix}{field.name}.")
    return names


def once(name: str, values: Sequence[Any], why: str) -> None:
    """Raise ConfigError for a value that is given twice; `why` says what that would do."""
    seen = set()
    for value in values:
        if value in seen:
            raise ConfigError(f"`{name}` holds {value!r} twice, {why}; give each once.")
        seen.add(value)


def seeds(name: str, *values: int) -> None:
    """Raise ConfigError unless there are seeds, each one that numpy takes, and each once."""
    if not values:
        raise ConfigError(f"`{name}` is empty; give at least one seed.")
    if len(values) > MOST_SEEDS:
        raise ConfigError(f"`{name}` holds {len(values):,} seeds; expected {MOST_SEEDS:,} at most.")
    for seed in values:
        if not 0 <= seed < 2**32:
            raise ConfigError(f"`{name}` holds {seed}; expected a number from 0 to 2**32 - 1.")
    once(name, values, "which repeats a draw and would count as another one")
