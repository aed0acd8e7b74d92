"""A paper's table or figure, repeated: choose parameters off the test split, run the rows, compare with the paper.

For each of the table's models: candidates of a row are trained and the best one is chosen; then all rows are trained
and evaluated. Judges of a figure compare the responses of each row with those of the baseline. Finished stages are
reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from typing import Any

from emobench.core.errors import MetricError
from emobench.data.rows import local_file
from emobench.data.sources import SPLITS
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.run_files import ExamplesReader
from emobench.leaderboard.stats.compare import compare
from emobench.models.catalog import CATALOG
from emobench.registry import find_suite
from emobench.report.numbers import plain
from emobench.report.paper_table import Duel, PaperComparison
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
from emobench.reproduce.sample_corpus import oracle_outline, with_oracle, without_oracle
from emobench.runs.dry_run import Outline, Read, StageLine, make_outline, requests_words
from emobench.runs.execution.reporter import Reporter, Silent
from emobench.runs.inspect.samples import RoundRobin, judged_pairs
from emobench.runs.planning.ingredients import Ingredients, shown_name
from emobench.runs.planning.plan import make_plan
from emobench.runs.planning.request import Request
from emobench.runs.planning.resolve import parts_of
from emobench.runs.run import run_plan, score_plan
from emobench.runs.stages.evaluate import Evaluation
from emobench.tasks.scores import Score
from emobench.tasks.table import CandidateSelection, Oracle, Scale, Table


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The objective of one of the paper's rows, and the scores by which it was chosen, if any."""

    row: str
    objective: str
    scores: Mapping[str, float] = field(default_factory=dict)
    """Each candidate that has every score -> its mean over the selection's tasks and seeds."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Each other candidate -> the first reason why a score is missing."""

    def remarks(self, metric: str, where: str) -> Iterator[str]:
        """Yield the scores that decided, by a metric, and excluded candidates; nothing for one candidate."""
        if self.scores:
            scores = [f"{text} {plain(score, 'fraction', 1)}" for text, score in self.scores.items()]
            tied = list(self.scores.values()).count(self.scores[self.objective]) > 1
            first = " (the first of equal ones)" if tied else ""
            yield (
                f"{self.row} is {self.objective}, chosen by the mean {metric} (%) over {where}: "
                f"{', '.join(scores)}{first}."
            )
        for text, why in self.left_out.items():
            yield f"{text} could not be chosen for {self.row}, without a {metric} of every task and seed: {why}"


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """One model's part of a table."""

    model: str
    published_model: str
    found: PaperComparison
    choices: tuple[Choice, ...]
    duels: tuple[Duel, ...] = ()
    """Of a figure of wins, ties and losses."""


@dataclass(frozen=True)
class MeasuredRows:
    """The rows of a table for one request, in the table's order."""

    choices: tuple[Choice, ...]
    entries: list[Entry]
    remarks: list[str]
    """The choices, in words."""
    ingredients: Ingredients
    """The files that were read."""


def outline_table(table: Table, request: Request, scale: str | None = None, *, exact: bool = True) -> Outline:
    """Return the dry run of a table or figure, with the requests to its judges.

    The first candidate of a row stands for the one that will be chosen. `exact` is that of `make_outline`.
    """
    chosen = scale_of(table, scale)
    oracle = _oracle_of(chosen, request)
    outlines: list[Outline] = []
    prepare = None
    if oracle is not None:
        prepare = without_oracle(table)
    scaled, subjects, remarks = scaled_request(table, chosen, request, prepare)
    if oracle is not None:
        outlines.append(oracle_outline(table, oracle, scaled, exact=exact))
    judging: list[StageLine] = []
    read = Read()
    for subject in subjects:
        own = of_model(table, scaled, subject)
        for outline in row_outlines(table, own, subject.model, exact=exact, read=read):
            if oracle is not None:  # its texts take the place of these downloads
                replaced = f"corpus {oracle.corpus} ("
                kept = [line for line in outline.lines if not line.what.startswith(replaced)]
                outline = replace(outline, lines=tuple(kept))
            outlines.append(outline)
        judging += judging_lines(table, own, shown_name(subject.model))
    outline = joined_outline(table, outlines, remarks)
    return replace(outline, lines=(*outline.lines, *judging))


def reproduce(
    table: Table, request: Request, reporter: Reporter | None = None, scale: str | None = None
) -> list[Reproduction]:
    """Repeat a table or figure, model by model; judges of a figure then compare the rows of each model."""
    reporter = reporter or Silent()
    chosen = scale_of(table, scale)
    oracle = _oracle_of(chosen, request)
    prepare = None
    if oracle is not None:
        prepare = with_oracle(table, oracle, reporter)
    scaled, subjects, remarks = scaled_request(table, chosen, request, prepare)
    requests = [of_model(table, scaled, subject) for subject in subjects]
    cache = check_rows(table, requests)
    results = []
    for subject, own in zip(subjects, requests, strict=True):
        measured = measure_rows(table, own, reporter, shown_name(subject.model), cache)
        result = _compared(table, request, own, subject, measured, remarks)
        results.append(_judged(table, own, result, reporter))
    return results


def scaled_request(
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
    """Return the oracle that a scale trains. None if it trains none or the data folders have an oracle's texts."""
    if scale is None or scale.oracle is None:
        return None
    files = [local_file(scale.oracle.corpus, split, request.data_dirs) for split in SPLITS]
    return None if all(files) else scale.oracle


# The rows of a table for one request; `scaling` uses these, too.


def row_outlines(table: Table, request: Request, title: str, *, exact: bool, read: Read) -> list[Outline]:
    """Return the dry runs of choosing among candidates, if some row has several, and of the table's rows."""
    outlines = []
    selection = selection_request(table, request)
    if selection is not None:
        outlines.append(_marked(make_outline(selection, exact=exact, read=read), title, ", to choose"))
    rows = table_request(table, request, firsts(table))
    return [*outlines, _marked(make_outline(rows, exact=exact, read=read), title, "")]


def _marked(outline: Outline, model: str, purpose: str) -> Outline:
    """Return an outline whose trainings and evaluations name the model, so that several can be joined."""
    lines = []
    for line in outline.lines:
        if line.objective:
            name = shown_name(model)
            if line.stage == "evaluate":
                name += purpose
            line = replace(line, what=f"{name}: {line.what}", subject=name)
        lines.append(line)
    return replace(outline, lines=tuple(lines))


def joined_outline(table: Table, outlines: Sequence[Outline], remarks: Sequence[str]) -> Outline:
    """Return the dry runs of a table's requests as one."""
    outline = outlines[0]
    for other in outlines[1:]:
        outline = outline.joined(other)
    assumptions = list(outline.assumptions)
    for row, candidates in table.rows.items():
        if len(candidates) > 1:
            assumptions.append(f"{row}: {', '.join(candidates)}; one is chosen, and the first stands for it here.")
    names = [text.partition("(")[0] for text in firsts(table)]
    swept = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if swept:
        assumptions.append(f"{', '.join(swept)}: every value is a row of its own; none is chosen.")
    title = f"{table.name}: {table.description}"
    return replace(outline, title=title, assumptions=(*assumptions, *remarks), several=True)


def check_rows(table: Table, requests: Sequence[Request]) -> Ingredients | None:
    """Plan the rows of each request, so that what would fail after another model's days fails now.

    Returns the files that were read.
    """
    cache: Ingredients | None = None
    for request in requests:
        cache = make_plan(table_request(table, request, firsts(table)), known=cache).ingredients
    return cache


def measure_rows(
    table: Table, request: Request, reporter: Reporter, title: str, cache: Ingredients | None
) -> MeasuredRows:
    """Train and evaluate the candidates of rows that have several, choose, then train and evaluate the rows."""
    selection = selection_request(table, request)
    remarks: list[str] = []
    if selection is None:
        choices = [Choice(row=row, objective=candidates[0]) for row, candidates in table.rows.items()]
    else:
        assert table.select is not None
        reporter.note(f"{title}: candidates, on {table.select.judged_on}")
        evaluated = score_plan(make_plan(selection, known=cache), reporter)
        scores = dict(zip(selection.objectives, evaluated, strict=True))
        choices = [choose(row, candidates, table.select, scores) for row, candidates in table.rows.items()]
        where = f"{', '.join(selection_tasks(table, request))} on {table.select.judged_on}"
        for choice in choices:
            remarks += choice.remarks(table.select.metric, where)
    objectives = tuple(choice.objective for choice in choices)
    plan = make_plan(table_request(table, request, objectives), known=cache)
    return MeasuredRows(tuple(choices), run_plan(plan, reporter), remarks, plan.ingredients)


def choose(
    row: str,
    candidates: Sequence[str],
    select: CandidateSelection,
    measured: Mapping[str, Sequence[Sequence[Evaluation]]],
) -> Choice:
    """Return the best of a row's candidates, the first of equal ones; a single candidate needs no scores.

    `measured` has the evaluations of each candidate: of each seed, those of each task. A candidate without a score of a
    task and seed is left out: its mean would be one over other, maybe easier, tasks. Raises MetricError if none is
    left.
    """
    if len(candidates) == 1:
        return Choice(row=row, objective=candidates[0])
    means: dict[str, float] = {}
    left_out: dict[str, str] = {}
    more_is_better = True
    for text in candidates:
        try:
            scores = [_score(task, select.metric) for task in chain.from_iterable(measured[text])]
        except MetricError as error:
            left_out[text] = str(error)
        else:
            means[text] = sum(score.value for score in scores) / len(scores)
            more_is_better = bool(scores[0].higher_is_better)
    if not means:
        raise MetricError(
            f"No {select.metric} of every task and seed was computed for any candidate of {row}, so that no parameter "
            f"can be chosen by it: {left_out[candidates[0]]}"
        )
    best = max(means.values()) if more_is_better else min(means.values())
    first = next(text for text, mean in means.items() if mean == best)
    return Choice(row=row, objective=first, scores=means, left_out=left_out)


def _score(evaluation: Evaluation, metric: str) -> Score:
    """Return a task's score by a metric's name alone. Raises MetricError, with the reason, if it is missing."""
    for name, score in evaluation.scores().items():
        if name.split("/", 1)[1] == metric:
            return score
    for name, reason in evaluation.missing.items():
        if name.split("/", 1)[1] == metric:
            raise MetricError(f"{name}: {reason}")
    raise MetricError(f"a task has no metric {metric}.")


# The paper's numbers and ours.


def _compared(
    table: Table,
    given: Request,
    request: Request,
    subject: PaperModel,
    measured: MeasuredRows,
    remarks: Sequence[str],
) -> Reproduction:
    """Return the rows next to the paper's. `given` is the user's request, `request` that of the rows."""
    published: dict[str, Entry] = {}
    for entry in published_entries(table):
        if entry.model.name == subject.paper:
            published[entry.objective.name] = entry
    entries = measured.entries
    by_row = dict(zip((choice.row for choice in measured.choices), entries, strict=True))
    baseline = by_row[table.baseline]
    others = [entry for entry in entries if entry.id != baseline.id]
    examples = ExamplesReader(request.runs, [request.leaderboard])
    all_remarks = [*measured.remarks, *remarks]
    all_remarks += _differences(given, subject, baseline, published)
    all_remarks += table.remarks
    all_remarks += _absent(published, entries)
    contrasts = compare(baseline, others, examples, anyway=True)
    comparison = PaperComparison(
        title=f"{table.name} · {baseline.model.name}",
        columns=_columns(table, published, entries),
        published=published,
        measured=by_row,
        baseline=table.baseline,
        comparison=contrasts,
        remarks=(*all_remarks, *examples.problems),
    )
    return Reproduction(model=subject.model, published_model=subject.paper, found=comparison, choices=measured.choices)


def _columns(table: Table, published: Mapping[str, Entry], entries: Sequence[Entry]) -> tuple[str, ...]:
    """Return the paper's columns, else the table's metrics of each task, as far as they were measured."""
    measured = list(chain.from_iterable(entry.metrics for entry in entries))
    wanted: list[str] = []
    if published:
        wanted += next(iter(published.values())).metrics
    else:
        tasks = [metric.split("/", 1)[0] for metric in measured]
        for task, metric in product(dict.fromkeys(tasks), table.metrics):
            wanted.append(f"{task}/{metric}")
    return tuple(metric for metric in wanted if metric in measured)


def _absent(published: Mapping[str, Entry], entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the first reason for each column of the paper that was not measured."""
    columns = set(chain.from_iterable(entry.metrics for entry in published.values()))
    measured = set(chain.from_iterable(entry.metrics for entry in entries))
    for metric in sorted(columns - measured):
        reasons = [entry.missing[metric] for entry in entries if metric in entry.missing]
        if reasons:
            yield f"{metric} is missing here: {reasons[0]}"


def _differences(given: Request, subject: PaperModel, entry: Entry, published: Mapping[str, Entry]) -> Iterator[str]:
    """Yield the reasons why these numbers may differ from the paper's, as far as the request and an entry know."""
    alias = CATALOG.get(subject.paper)
    as_large = alias is not None and entry.model.parameters == alias.parameters
    if published and subject.paper in given.stand_ins and as_large:
        yield (
            f"{subject.paper} was read from what --model gives for it: {entry.model.name}, which has as many "
            "parameters."
        )
    elif published and subject.model != subject.paper:
        yield (
            f"The paper's numbers are of {subject.paper}, and these of {entry.model.name}: their difference "
            "says nothing of an objective."
        )
    if given.limit is not None:
        yield f"--limit {given.limit}: the first examples of each task only."
    changed = _flat(given.settings)
    if changed:
        yield f"Set for this run: {', '.join(changed)}."
    local = [name for name, origin in entry.provenance.data.items() if "(local: " in origin]
    if local:
        yield f"Read from --data-dir, whose splits may be others: {', '.join(local)}."


def _flat(settings: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return nested settings as `--set` takes them."""
    lines: list[str] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            lines += _flat(value, f"{prefix}{key}.")
        else:
            lines.append(f"{prefix}{key}={value}")
    return lines


# Judges of a figure of wins, ties and losses.


def judges_of(table: Table, request: Request) -> list[Any]:
    """Return the judges of a figure: the one that `--set judge.name` gives, or else the figure's own."""
    given = request.section("judge")
    names = [given["name"]] if "name" in given else table.judges
    return [judged_pairs().rule_of({"judge": {**given, "name": name}}) for name in names]


def _judged(table: Table, request: Request, result: Reproduction, reporter: Reporter) -> Reproduction:
    """Add the comparison of each row with the baseline by each judge, seed by seed, and reasons for missing ones.

    Replies are kept in the folder of runs.
    """
    if not table.judges:
        return result
    measured = result.found.measured
    baseline = measured[table.baseline]
    others = [row for row in measured if row != table.baseline]
    duels: list[Duel] = []
    missing: list[str] = []
    for rule, row in product(judges_of(table, request), others):
        for seed in measured[row].seeds:
            pair = [measured[row], baseline]
            judging = RoundRobin(entries=pair, rule=rule, runs=request.runs, seed=seed, offline=request.offline)
            try:
                tables = judging.judge(reporter, request.device)
            except MetricError as error:
                missing.append(f"{row} against {table.baseline}, seed {seed}: {error}")
                continue
            for judged in tables:
                (duel,) = judged.duels
                duels.append(
                    Duel(
                        subject=measured[row].model.name,
                        row=row,
                        baseline=table.baseline,
                        judge=judged.judge,
                        model=judged.model,
                        seed=seed,
                        instructions=judged.instructions,
                        wins=duel.wins,
                        ties=duel.ties,
                        losses=duel.losses,
                        win_rate=duel.win_rate,
                        ci95=duel.ci95,
                    )
                )
    comparison = replace(result.found, remarks=(*result.found.remarks, *missing))
    return replace(result, duels=tuple(duels), found=comparison)


def judging_lines(table: Table, request: Request, model: str) -> Iterator[StageLine]:
    """Yield the requests to the judges of a figure, for a dry run; nothing for a table."""
    if not table.judges:
        return
    suite, at = find_suite(table.suite), Ingredients(request, look=True)
    settings = {name: values for name, values in request.settings.items() if name != "judge"}
    others = [row for row in table.rows if row != table.baseline]
    comparisons = len(others) * len(request.seeds or suite.seeds)
    parts = parts_of(replace(request, settings=settings), suite)
    for rule, (_, tasks) in product(judges_of(table, request), parts):
        for task in tasks:
            cost = judged_pairs().unanswered(rule, task, at.task_data(task))
            count, tokens = cost.count * comparisons, (cost.read + cost.written) * comparisons
            yield StageLine(
                stage="evaluate",
                what=f"{model}: {rule.name} compares {', '.join(others)} with {table.baseline} on {task.name}",
                amount=requests_words(count, tokens),
                requests=count,
                request_tokens=tokens,
            )
