"""Names of rows and metrics, as a reader types them and as they are shown, free of control characters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from emobench.core.errors import ConfigError
from emobench.core.settings import parse_arguments, parse_call
from emobench.leaderboard.entry import Entries

MEAN = "mean"
"""Stands for the task where a number is of the mean over tasks."""


def clean(text: str) -> str:
    """Return text in one line, with anything that a terminal would act on replaced."""
    shown = text.replace("\n", " ")
    for sign in set(shown):
        if not sign.isprintable():
            shown = shown.replace(sign, "�")
    return shown


def listed(names: Sequence[str], most: int = 6, separator: str = ", ") -> str:
    """Return names, at most so many of them and the number of the rest: "a, b and 3 more"."""
    shown = separator.join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def is_row(text: str, identity: str, name: str, label: str) -> bool:
    """Return whether `text` means a row: its objective (`is_meant`), or the first 6 digits or more of its id."""
    return (len(text) >= 6 and identity.startswith(text)) or is_meant(text, name, label)


def is_meant(text: str, name: str, label: str) -> bool:
    """Return whether `text` means the objective with this name and label (`tailr`, `tailr(gamma=0.2, floor=0.0)`).

    A name means all of its settings, `tailr(gamma=0.2)` those that have this value whatever the others are.
    Raises ConfigError for text that is neither a name nor `name(key=value)`.
    """
    if text in (name, label):
        return True
    try:
        _, own = parse_arguments(label.removeprefix(name) or "()")
    except ValueError:  # a value that was no number or word: only the whole label means it
        return False
    try:
        given, params = parse_call(text)
    except ConfigError as error:
        raise ConfigError(f"--objective or --baseline: {error}") from None
    return given == name and bool(params) and all(key in own and own[key] == params[key] for key in params)


def wanted(metric: str, patterns: Sequence[str]) -> bool:
    """Return whether "<task>/<metric>" is requested: as it is, by its metric's name, or by a pattern of either."""
    name = metric.split("/", 1)[1]
    return not patterns or any(fnmatchcase(metric, p) or fnmatchcase(name, p) for p in patterns)


def named(name: str, metrics: Iterable[str]) -> tuple[str, ...]:
    """Return the metrics that a name means: `sst2/accuracy` one, `accuracy` that of each task."""
    given = tuple(metrics)
    return (name,) if name in given else tuple(m for m in given if m.split("/", 1)[1] == name)


def labels(group: Entries, older: Collection[str]) -> list[str]:
    """Return the rows' objectives with the parameters in which rows of one name differ, or else the entry's id.

    `older` holds the ids of rows of older code, which always show theirs.
    """
    shared = _shared_params(group)
    texts = []
    for entry in group:
        own = dict(entry.objective.params)
        for key in shared[entry.objective.name]:
            own.pop(key, None)
        texts.append(clean(replace(entry.objective, params=own).label))
    current = Counter(text for text, entry in zip(texts, group, strict=True) if entry.id not in older)
    for place, entry in enumerate(group):
        if entry.id in older or current[texts[place]] > 1:
            texts[place] += f" [{entry.id[:6]}]"
    return texts


def parameters(group: Entries) -> str:
    """Return the parameters that all rows of a name have alike, such as "tailr with gamma=0.1; emo with cost=x"."""
    parts = []
    for name, params in _shared_params(group).items():
        if params:
            settings = [f"{key}={value}" for key, value in params.items()]
            parts.append(f"{name} with {', '.join(settings)}")
    return "; ".join(parts)


def _shared_params(group: Entries) -> dict[str, dict[str, Any]]:
    shared = {}
    for entry in group:
        params = entry.objective.params
        kept = shared.setdefault(entry.objective.name, dict(params))
        shared[entry.objective.name] = {k: v for k, v in kept.items() if k in params and params[k] == v}
    return shared
