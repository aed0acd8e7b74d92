"""A published table that can be made again: which of our rows stand for its rows, and how parameters are chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from emobench.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Selection:
    """How one of several candidates is chosen: by the best mean over tasks of a metric, evaluated with `settings`.

    The settings take the evaluation off the test split. The first of equal candidates is chosen.
    """

    metric: str
    tasks: tuple[str, ...]
    settings: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of a paper. Its models, rows and columns are those of the published board's suite `published`."""

    name: str
    description: str
    published: str
    suite: str
    rows: dict[str, tuple[str, ...]]
    """The paper's row -> the objectives, as `--objective` takes them, that it was chosen among."""
    baseline: str
    """The row that others are compared with."""
    select: Selection | None = None

    def __post_init__(self) -> None:
        for row, candidates in self.rows.items():
            if not candidates:
                raise ConfigError(f"`rows`: '{row}' has no objective; expected one or more.")
            if len(candidates) > 1 and self.select is None:
                raise ConfigError(f"`select` is missing: '{row}' has {len(candidates)} objectives to choose among.")
        if self.baseline not in self.rows:
            raise ConfigError(f"`baseline` is '{self.baseline}'; expected one of {', '.join(self.rows)}.")
