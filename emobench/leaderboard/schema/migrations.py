"""Older entry files: what turns their plain data into that of the current schema.

A file is never rewritten: it is migrated each time it is read, and its id stays the hash of what is written in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from emobench.core.errors import ConfigError
from emobench.tasks.families import endpoint, families

Plain = Mapping[str, Any]

DECLARED = {
    "academic": "acc",
    "alpaca-eval": "win_rate",
    "alpaca-eval-rivals": "win_rate",
    "alpaca-eval-sets": "win_rate",
    "figure-2": "reverse_cross_entropy",
    "generation": "mauve",
    "gpt2-oracle": "mauve",
    "instruct": "win_rate",
    "lm-quick": "mauve",
    "mmlu": "accuracy",
    "nlu": "accuracy",
    "nlu-tiny": "accuracy",
    "oracle-language": "total_variation",
}
"""Suite -> the metric of the primary endpoint that version 1 of it declares.

Entries before schema 4 recorded no endpoint, and those of schema 4 none of a run of only some of a suite's tasks.
"""


def migrate(plain: Plain, version: int, where: str) -> Plain:
    """Return the plain data of an entry in a schema version; raises ConfigError for a schema that is not known.

    Schema 2 added `curves` and `samples` to a run, schema 3 `components` to a metric and `changes` of protocols, and
    schema 4 `units` to a metric and `pretraining` to a model: all of these may be absent. The families of metrics (of
    schema 4) and the primary endpoint (of schema 5 for a run of only some of a suite's tasks) follow from the rules by
    which they are recorded now.
    """
    given = plain.get("schema")
    if type(given) is not int:  # True and 1.0 would be 1
        raise ConfigError(f"{where}: does not hold an entry (`schema` is {given!r:.60}; expected {version}).")
    if given > version:
        raise ConfigError(f"{where}: `schema` is {given}; this emobench reads {version} at most. Install a newer one.")
    if given < 1:
        raise ConfigError(f"{where}: `schema` is {given}; expected 1 to {version}.")
    if given == version:
        return plain
    families = {} if given >= 4 else {"families": families_of(plain)}
    return {**plain, "schema": version, "primary": plain.get("primary") or _declared(plain), **families}


_NOT_AN_ENTRY = (AttributeError, LookupError, TypeError)
"""What plain data raises that is not an entry, which is refused when it is built."""


def _declared(plain: Plain) -> str | None:
    with suppress(*_NOT_AN_ENTRY):
        if plain["suite"]["version"] == 1:
            return endpoint(DECLARED.get(plain["suite"]["name"]), [*plain["metrics"], *plain["missing"]])
    return None


def families_of(plain: Plain) -> dict[str, str]:
    """Return the families of the metrics of a plain entry."""
    with suppress(*_NOT_AN_ENTRY):
        return families(plain["metrics"], plain["missing"])
    return {}
