"""A table or figure of a paper that can be reproduced: its rows and models, and how parameters are chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from emobench.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class CandidateSelection:
    """How one of several candidates is chosen: by the best mean over tasks of a metric, evaluated with `settings`.

    The settings take the evaluation off the test split, and `judged_on` names what it is of then. The first of equal
    candidates is chosen.
    """

    metric: str
    tasks: tuple[str, ...]
    judged_on: str
    settings: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """The texts of a corpus that stand for an oracle's: sampled from a model that was trained on other texts."""

    corpus: str
    """The name of the samples."""
    taught: str
    """The corpus that the model, as it is before the table's trainings, is first trained on by the suite's recipe."""
    texts: dict[str, int]
    """How many texts each split has."""
    tokens: int
    """Of each text."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The same grid by other means, such as for a machine without a GPU: another model, and settings of the runs."""

    model: str
    why: str
    """What differs from the table as it is, in a sentence; `{model}` is the name of the model that is trained."""
    settings: dict[str, Any] = field(default_factory=dict)
    """As `--set` gives them, which wins over these."""
    oracle: Oracle | None = None
    models: tuple[str, ...] = ()
    """Of a figure of scaling, in the place of the table's, from small to large; the last one is `model`."""
    tokens: tuple[int, ...] = ()
    """Of a figure of scaling, in the place of the table's."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of a paper. With `published`, its models, rows and columns are those of that suite's published entries.

    A figure that is only plotted has none: its own `models`, `rows` and `metrics` define it.
    """

    name: str
    description: str
    suite: str
    rows: dict[str, tuple[str, ...]]
    """The paper's row -> the objectives, as `--objective` takes them, that it was chosen among."""
    baseline: str
    """The row that others are compared with."""
    seeds: tuple[int, ...] = ()
    """Of its trainings; those of the suite if empty."""
    published: str | None = None
    renamed: dict[str, str] = field(default_factory=dict)
    """The published board's name of a task, or of a column ("<task>/<metric>") -> the suite's."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of its runs, as `--set` gives them, which wins over these."""
    of_models: dict[str, dict[str, Any]] = field(default_factory=dict)
    """One of the paper's models -> further settings of its runs."""
    judges: tuple[str, ...] = ()
    """Who compares the responses of each row with those of the baseline, for a figure of wins, ties and losses."""
    remarks: tuple[str, ...] = ()
    """Remarks on its numbers, in sentences."""
    models: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    tokens: tuple[int, ...] = ()
    """Of a figure of scaling: the tokens that the last model is trained on. Fewer ones are the first of more; all
    models are trained on the most."""
    scatter: bool = False
    """Whether it is plotted as points, by its two metrics, instead of one panel for each."""
    select: CandidateSelection | None = None
    scales: dict[str, Scale] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for row, candidates in self.rows.items():
            if not candidates:
                raise ConfigError(f"`rows`: '{row}' has no objective; expected one or more.")
            if len(candidates) > 1 and self.select is None:
                raise ConfigError(f"`select` is missing: '{row}' has {len(candidates)} objectives to choose among.")
        if self.baseline not in self.rows:
            raise ConfigError(f"`baseline` is '{self.baseline}'; expected one of {', '.join(self.rows)}.")
