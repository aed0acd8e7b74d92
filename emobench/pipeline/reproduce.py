"""A published table made again: choose parameters off the test split, run the rows, set them beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from emobench.errors import ConfigError, MetricError
from emobench.leaderboard.compare import compare
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.examples import ExamplesReader
from emobench.leaderboard.published import published_root
from emobench.leaderboard.side_by_side import SideBySide
from emobench.leaderboard.store import Leaderboard
from emobench.pipeline.at_hand import shown_name
from emobench.pipeline.evaluate import Evaluation
from emobench.pipeline.outline import Outline
from emobench.pipeline.outliner import make_outline
from emobench.pipeline.plan import make_plan
from emobench.pipeline.reporter import Reporter, Silent
from emobench.pipeline.request import Request
from emobench.pipeline.run import run_plan, score_plan
from emobench.tasks.scores import Score
from emobench.tasks.table import Selection, Table


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What one of the paper's rows stands for here: the chosen objective, and the scores it was chosen by, if any."""

    row: str
    objective: str
    scores: Mapping[str, float]
    """Each candidate -> its mean over the selection's tasks."""


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """One model's part of a table."""

    model: str
    found: SideBySide
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class Subject:
    """A model of the table, by the paper's name, and the one that is run for it."""

    paper: str
    model: str


def subjects(table: Table, request: Request) -> list[Subject]:
    """Return the paper's models; with `--model` that one of them, or the given one beside the first of them."""
    known = list(dict.fromkeys(entry.model.name for entry in published_entries(table)))
    if request.model is None:
        return [Subject(name, name) for name in known]
    return [Subject(request.model if request.model in known else known[0], request.model)]


def published_entries(table: Table) -> list[Entry]:
    """Return the paper's rows, in its order. Raises ConfigError where the published board has none of this table."""
    found = Leaderboard(published_root()).entries(suite=table.published)
    if not found:
        raise ConfigError(f"{table.name}: the published board has no entry of {table.published}; install it whole.")
    missing = {entry.objective.name for entry in found} ^ set(table.rows)
    if missing:
        raise ConfigError(f"{table.name}: its `rows` and those of {table.published} differ in {', '.join(missing)}.")
    return found


def outline_table(table: Table, request: Request) -> Outline:
    """Return what making a table again comes to; the first candidate stands for the one that will be chosen."""
    found: Outline | None = None
    for subject in subjects(table, request):
        of_model = replace(request, model=subject.model)
        wanted = _selection_request(table, of_model)
        parts = [] if wanted is None else [_marked(make_outline(wanted), subject.model, ", to choose")]
        parts.append(_marked(make_outline(_table_request(table, of_model, _firsts(table))), subject.model, ""))
        for part in parts:
            found = part if found is None else found.joined(part)
    assert found is not None
    remarks = [
        f"{row}: {', '.join(candidates)}; one is chosen, and the first stands for it here."
        for row, candidates in table.rows.items()
        if len(candidates) > 1
    ]
    title = f"{table.name}: {table.description}"
    return replace(found, title=title, assumptions=(*found.assumptions, *remarks), several=True)


def reproduce(table: Table, request: Request, reporter: Reporter | None = None) -> list[Reproduction]:
    """Make a table again, model by model; finished stages are reused."""
    return [_Maker(table, request, subject, reporter or Silent()).make() for subject in subjects(table, request)]


class _Maker:
    def __init__(self, table: Table, request: Request, subject: Subject, reporter: Reporter) -> None:
        self.table = table
        self.subject = subject
        self.request = replace(request, model=subject.model)
        self.reporter = reporter

    def make(self) -> Reproduction:
        # What would fail after the candidates' hours fails here.
        make_plan(_table_request(self.table, self.request, _firsts(self.table)))
        choices = self._choices()
        objectives = tuple(choice.objective for choice in choices)
        entries = run_plan(make_plan(_table_request(self.table, self.request, objectives)), self.reporter)
        measured = {choice.row: entry for choice, entry in zip(choices, entries, strict=True)}
        published = {e.objective.name: e for e in published_entries(self.table) if e.model.name == self.subject.paper}
        baseline = measured[self.table.baseline]
        others = [entry for entry in entries if entry.id != baseline.id]
        examples = ExamplesReader(self.request.runs)
        first = next(iter(published.values()))
        found = SideBySide(
            title=f"{self.table.name} · {baseline.model.name}",
            columns=tuple(metric for metric in first.metrics if any(metric in e.metrics for e in entries)),
            published=published,
            measured=measured,
            baseline=self.table.baseline,
            comparison=compare(baseline, others, examples, anyway=True),
            remarks=(*self._said(choices), *self._differences(baseline), *examples.problems),
        )
        return Reproduction(model=self.subject.model, found=found, choices=tuple(choices))

    def _choices(self) -> list[Choice]:
        """Return an objective for each row, after training and evaluating the candidates where there are several."""
        found: dict[str, tuple[float, float]] = {}
        wanted = _selection_request(self.table, self.request)
        if wanted is not None:
            assert self.table.select is not None
            self.reporter.note(f"{shown_name(self.subject.model)}: candidates, on held-out examples")
            rows = score_plan(make_plan(wanted), self.reporter)
            means = [_mean_score(self.table.select, runs) for runs in rows]
            found = dict(zip(wanted.objectives, means, strict=True))
        return [
            Choice(
                row=row,
                # The first of equal ones.
                objective=max(candidates, key=lambda text: found.get(text, (0.0, 0.0))[1]),
                scores={text: found[text][0] for text in candidates if text in found},
            )
            for row, candidates in self.table.rows.items()
        ]

    def _said(self, choices: Sequence[Choice]) -> list[str]:
        select = self.table.select
        lines = []
        for choice in choices:
            if choice.scores and select is not None:
                shown = ", ".join(f"{text} {100 * score:.1f}" for text, score in choice.scores.items())
                lines.append(
                    f"{choice.row} is {choice.objective}, chosen by the mean {select.metric} (%) over "
                    f"{', '.join(_selection_tasks(self.table, self.request))} on training examples that are held out "
                    f"and are no shots: {shown}{' (the first of equal ones)' if _tied(choice) else ''}."
                )
        return lines

    def _differences(self, entry: Entry) -> list[str]:
        """Return what makes these numbers others than the paper's, as far as the request and an entry say it."""
        lines = []
        if self.subject.model != self.subject.paper:
            lines.append(
                f"The paper's numbers are of {self.subject.paper}, and these of {entry.model.name}: their difference "
                "says nothing of an objective."
            )
        if self.request.limit is not None:
            lines.append(f"--limit {self.request.limit}: the first examples of each test split only.")
        changed = _flat(self.request.settings)
        if changed:
            lines.append(f"Set for this run: {', '.join(changed)}.")
        local = [name for name, origin in entry.provenance.data.items() if "(local: " in origin]
        if local:
            lines.append(f"Read from --data-dir, whose splits may be others: {', '.join(local)}.")
        return lines


def _firsts(table: Table) -> tuple[str, ...]:
    """Return the first candidate of each row."""
    return tuple(candidates[0] for candidates in table.rows.values())


def _selection_request(table: Table, request: Request) -> Request | None:
    """Return the request whose scores choose among candidates; None where each row has one."""
    candidates = tuple(text for texts in table.rows.values() if len(texts) > 1 for text in texts)
    if not candidates or table.select is None:
        return None
    settings: dict[str, Any] = {**request.settings, "tasks": _selection_tasks(table, request)}
    for section, values in table.select.settings.items():
        given = request.section(section)
        for key in values.keys() & given.keys():
            if not given[key]:  # switched off, it would leave the choice to the test split
                raise ConfigError(
                    f"--set {section}.{key}={given[key]}: {table.name} chooses parameters by {section}.{key}, so that "
                    f"the test split does not; expected another value, such as {values[key]}, or drop it."
                )
        settings[section] = {**values, **given}
    return replace(request, objectives=candidates, settings=settings)


def _table_request(table: Table, request: Request, objectives: tuple[str, ...]) -> Request:
    """Return the request of the table's rows: what `--set` says of choosing, such as icl.held_out, is not of them."""
    chooses = {} if table.select is None else table.select.settings
    settings = {}
    for section, given in request.settings.items():
        kept = given
        if section in chooses:
            kept = {key: value for key, value in request.section(section).items() if key not in chooses[section]}
        if kept:
            settings[section] = kept
    return replace(request, objectives=objectives, settings=settings)


def _selection_tasks(table: Table, request: Request) -> list[str]:
    """Return the tasks that choose, of those that the request wants."""
    assert table.select is not None
    wanted = request.words("tasks")
    found = [task for task in table.select.tasks if wanted is None or task in wanted]
    if not found:
        raise ConfigError(
            f"--set tasks={','.join(wanted or ())}: none of them can choose the parameters of {table.name}; add one of "
            f"{', '.join(table.select.tasks)}."
        )
    return found


def _mean_score(select: Selection, runs: Sequence[Sequence[Evaluation]]) -> tuple[float, float]:
    """Return the mean of a metric over tasks and seeds, and the same so that more is better. Raises MetricError."""
    scores = [score for evaluations in runs for evaluation in evaluations for score in _of(evaluation, select.metric)]
    if not scores:
        raise MetricError(f"No {select.metric} was computed, so that no parameter can be chosen by it.")
    mean = sum(score.value for score in scores) / len(scores)
    return mean, mean if scores[0].higher_is_better else -mean


def _of(evaluation: Evaluation, metric: str) -> list[Score]:
    return [score for name, score in evaluation.scores().items() if name.split("/", 1)[1] == metric]


def _marked(outline: Outline, model: str, what_for: str) -> Outline:
    """Return an outline whose trainings and evaluations name the model, so that several can be joined."""
    lines = []
    for line in outline.lines:
        name = shown_name(model) + (what_for if line.stage == "evaluate" else "")
        lines.append(replace(line, what=f"{name}: {line.what}", subject=name) if line.objective else line)
    return replace(outline, lines=tuple(lines))


def _tied(choice: Choice) -> bool:
    return list(choice.scores.values()).count(choice.scores[choice.objective]) > 1


def _flat(settings: Mapping[str, Any], prefix: str = "") -> list[str]:
    found: list[str] = []
    for key, value in settings.items():
        found += _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [f"{prefix}{key}={value}"]
    return found
