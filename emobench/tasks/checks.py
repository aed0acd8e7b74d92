"""Checks of values that several protocols share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emobench.errors import ConfigError

MOST_SEEDS = 1000


def positive(owner: Any, *names: str) -> None:
    """Raise ConfigError for a number below 1; None is none."""
    for name in names:
        value = getattr(owner, name)
        if value is not None and value < 1:
            raise ConfigError(f"`{name}` is {value}; expected at least 1.")


def once(name: str, values: Sequence[Any], why: str) -> None:
    """Raise ConfigError for a value that is given twice; `why` says what that would do."""
    twice = next((value for place, value in enumerate(values) if value in values[:place]), None)
    if twice is not None:
        raise ConfigError(f"`{name}` holds {twice!r} twice, {why}; give each once.")


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
