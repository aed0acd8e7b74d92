"""What a result file of any harness says of one model: numbers, what decides them, and examples by their content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emobench.leaderboard.schema.examples import Recorded

MOST_NAMED = 4
"""Differences that are named one by one."""
LONGEST = 60
"""Characters of a value that is shown."""
EXPECTED = "results_*.json of lm-evaluation-harness, JSON logs of inspect, or records of Every Eval Ever"
"""The files that are read."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One number; `n` counts its examples. `interval` is a 95 % one, where the file has it; `covers` says of what."""

    value: float
    unit: str
    higher_is_better: bool | None
    n: int | None = None
    interval: tuple[float, float] | None = None
    covers: str = "items"


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One model's evaluation. Numbers and examples are by "<task>/<metric>", the rest by task.

    Examples are identified by their content, so that those of two files pair whatever their order. `prompts` holds a
    digest of what the model was shown and of the target; `rules` all else that decides a task's numbers. `members` are
    the tasks of a group.

    Where the file says so, `base` is the model that it was trained from, as an entry has it, and `objective` what it
    was trained with. `created` is a date, or seconds since 1970.
    """

    path: Path
    format: str
    harness: str
    version: str | None
    model: str
    numbers: Mapping[str, Measured]
    examples: Mapping[str, Recorded]
    prompts: Mapping[str, Mapping[str, str]]
    rules: Mapping[str, Mapping[str, Any]]
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    base: Mapping[str, Any] | None = None
    objective: str | None = None
    created: str | None = None


def by_content(contents: Mapping[str, str]) -> dict[str, str]:
    """Return example -> an id of its content, from example -> its digest; equal documents are numbered in order."""
    seen: Counter[str] = Counter()
    found = {}
    for example, content in contents.items():
        seen[content] += 1
        found[example] = content if seen[content] == 1 else f"{content}#{seen[content]}"
    return found


def renamed(recorded: Recorded, names: Mapping[str, str]) -> Recorded:
    """Return per-example results under other names of the examples."""
    units = {names[example]: unit for example, unit in recorded.units.items()}
    return Recorded({names[example]: value for example, value in recorded.examples.items()}, units)


def unpaired(ours: Evaluation, theirs: Evaluation, task: str) -> list[str]:
    """Return in words why a task's examples are not the same in two evaluations; empty where they are."""
    found = []
    for member in ours.members.get(task, ()):
        found += [f"{member}: {why}" for why in unpaired(ours, theirs, member)]
    left, right = ours.rules.get(task, {}), theirs.rules.get(task, {})
    for name in dict.fromkeys([*left, *right]):
        if left.get(name) != right.get(name):
            found.append(f"{name}: {_shown(left.get(name))} and {_shown(right.get(name))}")
    mine, others = ours.prompts.get(task, {}), theirs.prompts.get(task, {})
    if mine and others:
        found += _unlike_examples(mine, others)
    return found


def _unlike_examples(mine: Mapping[str, str], others: Mapping[str, str]) -> Iterable[str]:
    common = mine.keys() & others.keys()
    if common != mine.keys() or common != others.keys():
        yield f"{len(common)} examples in both, {len(mine) - len(common)} and {len(others) - len(common)} in one alone"
    elif changed := sum(mine[example] != others[example] for example in common):
        yield f"prompts or targets of {changed} of {len(common)} examples differ"


def _shown(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."
