"""A paper's table made again: choose parameters off the test split, run the rows, set them next to the paper's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from emobench.data.rows import local_file
from emobench.data.sources import SPLITS
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.run_files import ExamplesReader
from emobench.leaderboard.stats.compare import compare
from emobench.models.catalog import CATALOG
from emobench.report.render.duels import Duel
from emobench.report.render.paper_table import PaperComparison
from emobench.reproduce.choice import Choice, choose
from emobench.reproduce.requests import (
    PaperModel,
    at_scale,
    firsts,
    models_of,
    of_model,
    published_entries,
    scale_of,
    selection_request,
    selection_tasks,
    table_request,
)
from emobench.reproduce.taught_oracle import oracle_outline, with_oracle, without_oracle
from emobench.runs.dry_run.make_outline import Read, make_outline
from emobench.runs.dry_run.outline import Outline
from emobench.runs.execution.reporter import Reporter, Silent
from emobench.runs.planning.ingredients import shown_name
from emobench.runs.planning.make_plan import make_plan
from emobench.runs.planning.request import Request
from emobench.runs.run import run_plan, score_plan
from emobench.tasks.table import Oracle, Scale, Table


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """One model's part of a table."""

    model: str
    published_model: str
    found: PaperComparison
    choices: tuple[Choice, ...]
    request: Request
    """Of its runs, with all that the table and the scale set."""
    duels: tuple[Duel, ...] = ()
    """Of a figure of wins, ties and losses."""


def outline_table(table: Table, request: Request, scale: str | None = None, *, exact: bool = True) -> Outline:
    """Return what making a table again comes to; the first candidate stands for the one that will be chosen.

    `exact` is that of `make_outline`.
    """
    chosen = scale_of(table, scale)
    oracle = _oracle_of(chosen, request)
    given, subjects, said = _scaled(table, chosen, request, None if oracle is None else without_oracle(table))
    found = None if oracle is None else oracle_outline(table, oracle, given, exact=exact)
    read = Read()
    for subject in subjects:
        its = of_model(table, given, subject)
        for part in row_outlines(table, its, subject.model, exact=exact, read=read):
            if oracle is not None:  # its texts take the place of these downloads
                kept = (line for line in part.lines if not line.what.startswith(f"corpus {oracle.corpus} ("))
                part = replace(part, lines=tuple(kept))
            found = part if found is None else found.joined(part)
    assert found is not None
    remarks = candidate_remarks(table)
    names = [text.partition("(")[0] for text in firsts(table)]
    if swept := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        remarks.append(f"{', '.join(swept)}: every value is a row of its own; none is chosen.")
    title = f"{table.name}: {table.description}"
    return replace(found, title=title, assumptions=(*found.assumptions, *remarks, *said), several=True)


def requests_of(table: Table, request: Request, scale: str | None = None) -> list[tuple[str, Request]]:
    """Return the models of a table that makes no oracle, each with the request of its runs."""
    scaled, subjects, _ = _scaled(table, scale_of(table, scale), request, None)
    return [(shown_name(one.model), of_model(table, scaled, one)) for one in subjects]


def reproduce(
    table: Table, request: Request, reporter: Reporter | None = None, scale: str | None = None
) -> list[Reproduction]:
    """Make a table again, model by model; finished stages are reused."""
    reporter, chosen = reporter or Silent(), scale_of(table, scale)
    oracle = _oracle_of(chosen, request)
    prepare = None if oracle is None else with_oracle(table, oracle, reporter)
    scaled, subjects, said = _scaled(table, chosen, request, prepare)
    makers = [_Maker(table, request, of_model(table, scaled, subject), subject, said, reporter) for subject in subjects]
    for maker in makers:  # what would fail after another model's days fails here
        maker.check()
    return [maker.make() for maker in makers]


def _scaled(
    table: Table, scale: Scale | None, request: Request, prepare: Callable[[Request], Request] | None
) -> tuple[Request, list[PaperModel], list[str]]:
    """Return the request at a scale, the models with those that are run for them, and remarks.

    At a scale one model is run: for the paper's model that `--model` names, else for the first one.
    """
    subjects = models_of(table, request)
    if scale is None:
        return request, subjects, []
    scaled, remarks = at_scale(table, scale, request, prepare)
    assert scaled.model is not None
    return scaled, [PaperModel(subjects[0].paper, scaled.model)], remarks


def _oracle_of(scale: Scale | None, request: Request) -> Oracle | None:
    """Return the oracle that a scale makes, None where it makes none or the data folders hold an oracle's texts."""
    oracle = None if scale is None else scale.oracle
    own = oracle is not None and all(local_file(oracle.corpus, split, request.data_dirs) for split in SPLITS)
    return None if own else oracle


@dataclass(frozen=True)
class _Maker:
    table: Table
    asked: Request
    """As it was given."""
    request: Request
    """With the model, and what a scale changes."""
    subject: PaperModel
    said: Sequence[str]
    reporter: Reporter

    def check(self) -> None:
        """Make the plan of the rows, whose errors are raised."""
        make_plan(table_request(self.table, self.request, firsts(self.table)))

    def make(self) -> Reproduction:
        choices = choose_rows(self.table, self.request, self.reporter, shown_name(self.subject.model))
        objectives = tuple(choice.objective for choice in choices)
        entries = run_plan(make_plan(table_request(self.table, self.request, objectives)), self.reporter)
        measured = {choice.row: entry for choice, entry in zip(choices, entries, strict=True)}
        published = {e.objective.name: e for e in published_entries(self.table) if e.model.name == self.subject.paper}
        baseline = measured[self.table.baseline]
        others = [entry for entry in entries if entry.id != baseline.id]
        examples = ExamplesReader(self.request.runs, [self.request.leaderboard])
        found = PaperComparison(
            title=f"{self.table.name} · {baseline.model.name}",
            columns=self._columns(published, entries),
            published=published,
            measured=measured,
            baseline=self.table.baseline,
            comparison=compare(baseline, others, examples, anyway=True),
            remarks=(
                *choice_remarks(self.table, self.request, choices),
                *self._differences(baseline, published),
                *self.table.remarks,
                *self._absent(published, entries),
                *examples.problems,
            ),
        )
        return Reproduction(
            model=self.subject.model,
            published_model=self.subject.paper,
            found=found,
            choices=tuple(choices),
            request=self.request,
        )

    def _absent(self, published: Mapping[str, Entry], entries: Sequence[Entry]) -> Iterator[str]:
        """Yield why columns of the paper are not there: nothing was measured, with the first reason."""
        known = {metric for entry in published.values() for metric in entry.metrics}
        for metric in sorted(known - {name for entry in entries for name in entry.metrics}):
            reasons = [entry.missing[metric] for entry in entries if metric in entry.missing]
            if reasons:
                yield f"{metric} is missing here: {reasons[0]}"

    def _columns(self, published: Mapping[str, Entry], entries: Sequence[Entry]) -> tuple[str, ...]:
        """Return the paper's columns, else the table's metrics of each task, as far as they were measured."""
        tasks = dict.fromkeys(metric.split("/", 1)[0] for entry in entries for metric in entry.metrics)
        wanted = [f"{task}/{metric}" for task in tasks for metric in self.table.metrics]
        known = next((list(entry.metrics) for entry in published.values()), wanted)
        return tuple(metric for metric in known if any(metric in entry.metrics for entry in entries))

    def _stands_in(self, entry: Entry) -> bool:
        """Return whether a model was given as one of the paper's, and is as large as that one."""
        alias = CATALOG.get(self.subject.paper)
        given = self.subject.paper in self.asked.stand_ins
        return given and alias is not None and entry.model.parameters == alias.parameters

    def _differences(self, entry: Entry, published: Mapping[str, Entry]) -> list[str]:
        """Return what makes these numbers others than the paper's, as far as the request and an entry say it."""
        lines = list(self.said)
        if published and self._stands_in(entry):
            lines.append(
                f"{self.subject.paper} was read from what --model gives for it: {entry.model.name}, which has as many "
                "parameters."
            )
        elif published and self.subject.model != self.subject.paper:
            lines.append(
                f"The paper's numbers are of {self.subject.paper}, and these of {entry.model.name}: their difference "
                "says nothing of an objective."
            )
        if self.asked.limit is not None:
            lines.append(f"--limit {self.asked.limit}: the first examples of each task only.")
        changed = _flat(self.asked.settings)
        if changed:
            lines.append(f"Set for this run: {', '.join(changed)}.")
        local = [name for name, origin in entry.provenance.data.items() if "(local: " in origin]
        if local:
            lines.append(f"Read from --data-dir, whose splits may be others: {', '.join(local)}.")
        return lines


def choose_rows(table: Table, request: Request, reporter: Reporter, title: str) -> list[Choice]:
    """Return an objective for each row, after training and evaluating the candidates of rows that have several."""
    selection = selection_request(table, request)
    if selection is None:
        return [Choice(row=row, objective=candidates[0]) for row, candidates in table.rows.items()]
    assert table.select is not None
    reporter.note(f"{title}: candidates, on {table.select.judged_on}")
    evaluated = score_plan(make_plan(selection), reporter)
    by_objective = dict(zip(selection.objectives, evaluated, strict=True))
    return [choose(row, candidates, table.select, by_objective) for row, candidates in table.rows.items()]


def choice_remarks(table: Table, request: Request, choices: Sequence[Choice]) -> list[str]:
    """Return which candidate each row stands for, and by which scores it was chosen."""
    if table.select is None:
        return []
    where = f"{', '.join(selection_tasks(table, request))} on {table.select.judged_on}"
    return [line for choice in choices for line in choice.said(table.select.metric, where)]


def candidate_remarks(table: Table) -> list[str]:
    """Return the rows of which a dry run counts the first candidate."""
    return [
        f"{row}: {', '.join(candidates)}; one is chosen, and the first stands for it here."
        for row, candidates in table.rows.items()
        if len(candidates) > 1
    ]


def row_outlines(table: Table, request: Request, title: str, *, exact: bool, read: Read) -> list[Outline]:
    """Return what choosing candidates comes to, where some row has several, and what the table's rows come to."""
    outlines = []
    selection = selection_request(table, request)
    if selection is not None:
        outlines.append(marked(make_outline(selection, exact=exact, read=read), title, ", to choose"))
    rows = table_request(table, request, firsts(table))
    return [*outlines, marked(make_outline(rows, exact=exact, read=read), title, "")]


def marked(outline: Outline, model: str, what_for: str) -> Outline:
    """Return an outline whose trainings and evaluations name the model, so that several can be joined."""
    lines = []
    for line in outline.lines:
        name = shown_name(model) + (what_for if line.stage == "evaluate" else "")
        lines.append(replace(line, what=f"{name}: {line.what}", subject=name) if line.objective else line)
    return replace(outline, lines=tuple(lines))


def _flat(settings: Mapping[str, Any], prefix: str = "") -> list[str]:
    found: list[str] = []
    for key, value in settings.items():
        found += _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [f"{prefix}{key}={value}"]
    return found
