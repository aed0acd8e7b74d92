"""Tasks that ask about the same items, such as one data set in several wordings.

Legend: S seeds, I items. The mean over such tasks is over the items that any of them has, each with the mean of its
values: five wordings of 20 texts are 20 texts. Taken for five samples, the variance of the mean could be five times too
small.

Items are the same if their names are, and if these have a digest of the content in them: the rows of two corpora are
called "row 17", too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emobench.leaderboard.stats.random_effects import Array

_CONTENT = re.compile(r"(?:.*[ -])?[0-9a-f]{12}(?:-.*)?")
"""Such as "9f86d081884c-17", "17-9f86d081884c" and "text 9f86d081884c"."""


@dataclass(frozen=True)
class TaskItems:
    """The names of a task's items, both sides' (S, I) values, and how many items of equal weight these are worth.

    `examples` are the names of the examples that the items consist of: a document has a row for a name, and its prompts
    have digests. `data` is a digest of the task's texts, if it is known.
    """

    names: tuple[str, ...]
    values: tuple[Array, Array]
    effective: float
    examples: frozenset[str] = frozenset()
    data: str = ""

    @property
    def contents(self) -> set[str]:
        found = {name for name in (*self.names, *self.examples) if _CONTENT.fullmatch(name)}
        return found | {self.data} if self.data else found


def joined_tasks(tasks: Sequence[TaskItems]) -> list[TaskItems]:
    """Return the tasks, with those that share items as one; the mean over them stays that over the tasks."""
    if len(tasks) == 1:
        return list(tasks)
    groups = _groups([task.contents for task in tasks])
    if len(groups) == len(tasks):
        return list(tasks)
    return [_joined([tasks[i] for i in group], len(group) * len(groups) / len(tasks)) for group in groups]


def _groups(names_of: Sequence[set[str]]) -> list[list[int]]:
    """Return the places of sets that have a name in common, directly or through other sets."""
    groups: list[tuple[set[str], list[int]]] = []
    for place, names in enumerate(names_of):
        near = [group for group in groups if group[0] & names]
        together = names.union(*(known for known, _ in near))
        places = [one for _, places in near for one in places]
        groups = [group for group in groups if group not in near] + [(together, [*places, place])]
    return [sorted(places) for _, places in groups]


def _joined(tasks: Sequence[TaskItems], scale: float) -> TaskItems:
    names = tuple(sorted({name for task in tasks for name in task.names}))
    place_of = {name: place for place, name in enumerate(names)}
    left_SI, right_SI = (_pooled(tasks, side, place_of) * scale for side in (0, 1))
    return TaskItems(names, (left_SI, right_SI), min(task.effective for task in tasks))


def _pooled(tasks: Sequence[TaskItems], side: int, place_of: dict[str, int]) -> Array:
    """Return (S, I) values of all items, whose mean is that of the tasks' means.

    An item counts by its deviations from the means of the tasks that have it, and more in a task of fewer items.
    """
    seeds = len(tasks[0].values[side])
    pooled_SI = np.zeros((seeds, len(place_of)))
    for task in tasks:
        values_SI = task.values[side]
        mean_S1 = values_SI.mean(axis=1, keepdims=True)
        places = [place_of[name] for name in task.names]
        pooled_SI += mean_S1
        pooled_SI[:, places] += len(place_of) / len(task.names) * (values_SI - mean_S1)
    return pooled_SI / len(tasks)
