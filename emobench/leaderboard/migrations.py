"""Older entry files: for each schema version, what turns its plain data into that of the next version.

A file is never rewritten: it is migrated each time it is read, and its id stays the hash of what is written in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from emobench.errors import ConfigError

Plain = Mapping[str, Any]


def _add_curves_and_samples(plain: Plain) -> Plain:
    """Schema 2 added `curves` and `samples` to a run, which may be absent."""
    return {**plain, "schema": 2}


def _add_components_and_changes(plain: Plain) -> Plain:
    """Schema 3 added `components` to a metric and `changes` of protocols, which may be absent."""
    return {**plain, "schema": 3}


MIGRATIONS: dict[int, Callable[[Plain], Plain]] = {1: _add_curves_and_samples, 2: _add_components_and_changes}


def migrate(plain: Plain, version: int, where: str) -> Plain:
    """Return the plain data of an entry in a schema version; raises ConfigError where nothing leads there."""
    given = plain.get("schema")
    if type(given) is not int:  # True and 1.0 would be 1
        raise ConfigError(f"{where}: holds no entry (`schema` is {given!r:.60}; expected {version}).")
    if given > version:
        raise ConfigError(f"{where}: `schema` is {given}; this emobench reads {version} at most. Install a newer one.")
    while plain["schema"] != version:
        if plain["schema"] not in MIGRATIONS:
            raise ConfigError(f"{where}: `schema` is {given}; expected 1 to {version}.")
        plain = MIGRATIONS[plain["schema"]](plain)
    return plain
