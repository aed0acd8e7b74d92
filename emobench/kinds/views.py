"""Views: features that some kinds of task have. A kind declares them in `Kind.views`, with the code that has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from emobench.kinds.cost import Requests
    from emobench.kinds.interface import Keep, Subject, Work
    from emobench.tasks.scores import Measure
    from emobench.tasks.spec import Task


@dataclass(frozen=True, kw_only=True)
class WrittenText:
    """One continuation of one prompt."""

    prompt: str
    sample: int
    prefix: str | None
    human: str | None
    """None if unknown."""
    generated: str
    ended: bool | None
    """Whether the model ended the text before the full length; None if unknown."""
    source: str | None = None
    """The beginning of the human text, prefix included, where these two are not known apart."""
    preferred: float | None = None
    """A judge's preference for it over the human text, from 0 to 1; None without a verdict."""


class WrittenTexts(Protocol):
    """Texts that a model wrote, for `emobench samples`."""

    def written_texts(self, path: Path) -> list[WrittenText]:
        """Return the texts in a file of samples."""
        ...


class SourceTexts(Protocol):
    """Human texts from which prompts are cut."""

    def source_texts(self, task: Task, data: Any) -> Mapping[str, str]:
        """Return the whole text of each prompt's id, which has the text's digest."""
        ...


@dataclass(frozen=True)
class TestSize:
    """How many examples a metric has at most, and how many sampling units; None: not known without the data."""

    __test__: ClassVar = False
    """For pytest: no test."""
    examples: int | None = None
    units: int | None = None


class KnownMetrics(Protocol):
    """Metrics that are known before anything runs: a plan says which of them can have a verdict."""

    def metrics(self, task: Task) -> Mapping[str, Measure | str]:
        """Return the measures of a task's metrics, or why one will be missing.

        Metrics that only describe a result may be left out.
        """
        ...

    def test_size(self, task: Task, metric: str, data: Any | None) -> TestSize:
        """Return the maximum size of a metric's data; `data` is None if it is not on this machine."""
        ...


class Preferences(Protocol):
    """A judge's preferences between texts that a model wrote and human texts."""

    def preferences(self, folder: Path) -> Mapping[str, float]:
        """Return how much the text of each prompt is preferred to the human text, from a folder of scores."""
        ...


class NamedTasks(Protocol):
    """Tasks without a file, such as "lm-eval:hellaswag"."""

    def named_task(self, name: str, overrides: Mapping[str, Any]) -> Task:
        """Return the task that "<kind>:<name>" means, with overridden rules."""
        ...


@dataclass(frozen=True, kw_only=True)
class Piece:
    """The text of one token; None for its token where no token holds the text (spaces that the tokenizer drops)."""

    part: str
    """header, shot 1 (the nearest), shot 2, ..., input, or label (to the end); BOS for a token of no text."""
    text: str
    """The text of the token; of a BOS, its name."""
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
    """Prompts that are answered by a label, for `emobench prompts` and `emobench tasks export`."""

    def unit(self, task: Task) -> str:
        """Return the unit of a label's loss."""
        ...

    def show(self, subject: Subject, task: Task, data: Any, count: int, ids: Sequence[str], /) -> list[ShownPrompt]:
        """Return the first prompts, or the prompts of examples whose ids begin with one of `ids`."""
        ...

    def check_export(self, task: Task, data: Any) -> None:
        """Raise a UserError for a task whose prompts cannot be made; no model is read."""
        ...

    def export(self, subject: Subject, task: Task, data: Any, folder: Path, /) -> list[Path]:
        """Write a task for lm-evaluation-harness into a folder; `subject` has no model. Return the files."""
        ...


class NewTask(Protocol):
    """The first version of a task's file, which `emobench tasks new` writes."""

    def task_file(self, name: str, dataset: Mapping[str, Any]) -> str:
        """Return the YAML of a task on a data set, as `emobench.data.hub_corpus` or `labelled` describes it."""
        ...


class LabelAnswers(Protocol):
    """Answers by labels, which `emobench answers` shows: a table next to the scores."""

    @property
    def METRICS(self) -> tuple[str, ...]:
        """The metrics by which a task with answers is known in an entry."""
        ...

    @property
    def TABLE(self) -> str:
        """The file of the table, in the folder of the scores."""
        ...

    def pooled_table(self, tables: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return one table of the answers of several runs to one task: its counts are sums over the runs."""
        ...


class Compared(Protocol):
    """Texts that several models wrote for one task, row by row; see `runs.inspect.samples.SideBySide`."""

    @property
    def task(self) -> str: ...

    @property
    def writers(self) -> tuple[Any, ...]: ...

    @property
    def rows(self) -> tuple[Mapping[str, Any], ...]: ...


FolderOf = Callable[[str, Mapping[str, Any]], Path]
"""The folder of a stage, by its kind and facts."""


class JudgedPairs(Protocol):
    """Judges' verdicts between responses: `emobench judge`, `judges score`, and figures of wins and losses."""

    def rule_of(self, settings: Mapping[str, Any]) -> Any:
        """Return the rule of `--set judge.*`. Raises ConfigError for other settings, or if no judge is named."""
        ...

    def judged(
        self, rule: Any, tables: Sequence[Compared], keep: Keep, work: Work, *, device: str, offline: bool
    ) -> Sequence[Any]:
        """Return the outcome of each table: duels and ratings of its writers."""
        ...

    def expected(self, rule: Any, tables: Sequence[Compared], folder_of: FolderOf, offline: bool) -> Sequence[Any]:
        """Return the requests and tokens of `judged` for each table, without asking."""
        ...

    def unanswered(self, rule: Any, task: Task, data: Any) -> Requests:
        """Return the requests of comparing two models' responses to a task, before there are responses."""
        ...

    def read_annotations(self, path: Path) -> list[dict[str, Any]]:
        """Read AlpacaEval's annotations of one model from a file."""
        ...

    def rates(self, rows: Sequence[Mapping[str, Any]], data_dirs: Sequence[Path] = (), *, offline: bool) -> Any:
        """Return AlpacaEval's metrics of annotations."""
        ...
