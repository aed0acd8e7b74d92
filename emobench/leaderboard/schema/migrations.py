"""Older entry files: for each schema version, what turns its plain data into that of the next version.

A file is never rewritten: it is migrated each time it is read, and its id stays the hash of what is written in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from emobench.errors import ConfigError
from emobench.tasks.families import endpoint, families

Plain = Mapping[str, Any]

DECLARED = {
    "figure-2": ("reverse_cross_entropy", 3),
    "generation": ("mauve", 6),
    "gpt2-oracle": ("mauve", 1),
    "lm-quick": ("mauve", 1),
    "mmlu": ("accuracy", 2),
    "nlu": ("accuracy", 8),
    "nlu-tiny": ("accuracy", 1),
    "oracle-language": ("total_variation", 1),
}
"""Suite -> the metric of the primary endpoint that its version 1 declared with schema 4, and its number of tasks.

Entries of earlier schemas recorded none.
"""


def _add_curves_and_samples(plain: Plain) -> Plain:
    """Schema 2 added `curves` and `samples` to a run, which may be absent."""
    return {**plain, "schema": 2}


def _add_components_and_changes(plain: Plain) -> Plain:
    """Schema 3 added `components` to a metric and `changes` of protocols, which may be absent."""
    return {**plain, "schema": 3}


def _add_families(plain: Plain) -> Plain:
    """Schema 4 added the primary endpoint and the families of metrics: by the rule by which they are recorded now.

    It added `units` to a metric and `pretraining` to a model, too, which may be absent.
    """
    return {**plain, "schema": 4, "primary": _declared(plain), "families": families_of(plain)}


_NO_ENTRY = (AttributeError, LookupError, TypeError)
"""What plain data raises that is no entry, which is refused when it is built."""


def _declared(plain: Plain) -> str | None:
    try:
        metric, tasks = DECLARED.get(plain["suite"]["name"], (None, 0))
        whole = plain["suite"]["version"] == 1 and len(plain["protocols"]) == tasks
        return endpoint(metric, [*plain["metrics"], *plain["missing"]]) if whole else None
    except _NO_ENTRY:
        return None


def families_of(plain: Plain) -> dict[str, str]:
    """Return the families of the metrics of a plain entry."""
    try:
        return families(plain["metrics"], plain["missing"])
    except _NO_ENTRY:
        return {}


MIGRATIONS: dict[int, Callable[[Plain], Plain]] = {
    1: _add_curves_and_samples,
    2: _add_components_and_changes,
    3: _add_families,
}


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
