"""Typed parameters of objectives: `gamma: float = emobench.param(0.1, low=0, high=1, help="...")`."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Sequence
from typing import Any

from emobench.core.errors import ConfigError
from emobench.core.settings import convert


def param(
    default: Any, *, low: float | None = None, high: float | None = None, choices: Sequence[Any] = (), help: str = ""
) -> Any:
    """Declare a parameter of an objective.

    `low` and `high` are allowed values themselves. `emobench objectives show` prints `help`.
    """
    metadata = {"low": low, "high": high, "choices": tuple(choices), "help": help}
    return dataclasses.field(default=default, metadata=metadata)


def check_parameters(owner: Any, label: str) -> None:
    """Convert every parameter of `owner` to its annotated type. Raises ConfigError if one is out of range."""
    hints = typing.get_type_hints(type(owner))
    for field in dataclasses.fields(owner):
        value = convert(hints[field.name], getattr(owner, field.name), f"{label}: `{field.name}`")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{label}: `{field.name}` is {value}; expected a finite number.")
        low, high, choices = (field.metadata.get(rule) for rule in ("low", "high", "choices"))
        if choices and value not in choices:
            raise ConfigError(f"{label}: `{field.name}` is {value!r}; expected one of {', '.join(map(repr, choices))}.")
        if (low is not None and value < low) or (high is not None and value > high):
            ends = [f"of at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
            raise ConfigError(f"{label}: `{field.name}` is {value!r}; expected a number {' and '.join(ends)}.")
        setattr(owner, field.name, value)


def describe_range(field: dataclasses.Field[Any]) -> str:
    """Return the allowed values of a parameter as text, such as "from 0 to 1". Empty: all values are allowed."""
    low, high, choices = (field.metadata.get(rule) for rule in ("low", "high", "choices"))
    if choices:
        return "one of " + ", ".join(map(str, choices))
    if low is not None and high is not None:
        return f"from {low} to {high}"
    if low is not None:
        return f"at least {low}"
    return f"at most {high}" if high is not None else ""
