"""What a reader may look at of a kind's tasks: texts that were written, prompts with labels, and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from emobench.kinds.interface import Subject
    from emobench.tasks.spec import Task


@dataclass(frozen=True, kw_only=True)
class WrittenText:
    """One continuation of one prompt."""

    prompt: str
    sample: int
    prefix: str | None
    human: str | None
    """None where they are not known."""
    generated: str
    ended: bool
    """By the model, before the full length."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """The text of one token; None for its token where no token holds the text (spaces that the tokenizer drops)."""

    part: str
    """header, shot 1 (the nearest), shot 2, ..., input, or label (to the end); BOS for a token of no text."""
    text: str
    """What the token stands for; of a BOS, its name."""
    token: int | None


@dataclass(frozen=True, kw_only=True)
class ShownLabel:
    """One label of a prompt: its loss by the protocol's rule, the posterior, and the tokens of its whole prompt."""

    name: str
    text: str
    loss: float
    posterior: float
    tokens: int


@dataclass(frozen=True, kw_only=True)
class ShownPrompt:
    """One test example's prompt with the right label, and how each label scores."""

    id: str
    right: str
    answer: str
    tied: bool
    text: str
    """The whole prompt, as the tokenizer gets it."""
    tokens: int
    first_ids: tuple[int, ...]
    shots: tuple[tuple[str, str], ...]
    """(id, class) of each shot, the most similar first."""
    dropped: int
    cut: int
    labels: tuple[ShownLabel, ...]
    pieces: tuple[Piece, ...]


class LabelPrompts(Protocol):
    """Prompts that are answered by a label: what `emobench prompts` shows and `emobench tasks export` writes."""

    def check_shown(self, task: Task) -> None:
        """Raise ConfigError for rules by which prompts cannot be scored one by one."""
        ...

    def unit(self, task: Task) -> str:
        """Return the unit of a label's loss."""
        ...

    def show(self, subject: Subject, task: Task, data: Any, count: int, ids: Sequence[str], /) -> list[ShownPrompt]:
        """Return the first prompts, or those of the examples whose ids begin so."""
        ...

    def check_export(self, task: Task, data: Any) -> None:
        """Raise a UserError for a task whose prompts cannot be made; no model is read."""
        ...

    def export(self, subject: Subject, task: Task, data: Any, folder: Path, /) -> list[Path]:
        """Write a task for lm-evaluation-harness into a folder; `subject` has no model. Return the files."""
        ...


class LabelAnswers(Protocol):
    """Answers by labels, which `emobench answers` shows: a table beside the scores."""

    @property
    def METRICS(self) -> tuple[str, ...]:
        """The metrics by which a task with answers is known in an entry."""
        ...

    @property
    def TABLE(self) -> str:
        """The file of the table, beside the scores."""
        ...

    def pooled_table(self, tables: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return one table of the answers of several runs to one task: its counts are sums over the runs."""
        ...
