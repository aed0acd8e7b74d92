"""A paper's table or figure, repeated: choose parameters off the test split, run the rows, compare with the paper.

For each of the table's models: candidates of a row are trained and the best one is chosen; then all rows are trained
and evaluated. Judges of a figure compare the responses of each row with those of the baseline. Finished stages are
reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, product
from typing import Any

from emobench.core.errors import ConfigError, DataError, MetricError, UnknownNameError
from emobench.core.settings import dotted_settings
from emobench.data.rows import local_file
from emobench.data.sources import SPLITS
from emobench.leaderboard.boards import PUBLISHED, board_folder
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.run_files import ExamplesReader
from emobench.leaderboard.stats.compare import compare
from emobench.leaderboard.store import Leaderboard
from emobench.models.catalog import CATALOG
from emobench.models.model import Model
from emobench.registry import find_suite, load_kind
from emobench.report.numbers import plain
from emobench.report.paper_table import Duel, PaperComparison
from emobench.reproduce.sample_corpus import oracle_outline, with_oracle, without_oracle
from emobench.runs.dry_run import Outline, Read, StageLine, make_outline, requests_words
from emobench.runs.execution.reporter import Reporter, Silent
from emobench.runs.inspect.samples import compared, judge_tables, judged_pairs
from emobench.runs.planning.ingredients import Ingredients, base_model, shown_name
from emobench.runs.planning.plan import make_plan
from emobench.runs.planning.request import Request
from emobench.runs.planning.resolve import merged, parts_of
from emobench.runs.run import run_plan, score_plan
from emobench.runs.stages.evaluate import Evaluation
from emobench.runs.tuned import score_of
from emobench.tasks.spec import Task
from emobench.tasks.table import CandidateSelection, Oracle, Scale, Table
from emobench.training.recipe import Recipe

MODEL, DATA = "model", "data"
"""The panels of a figure of scaling: over the size of the model, and over the number of training tokens."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A model of a table or figure, and the request for its rows."""

    request: Request
    title: str
    paper: str = ""
    """The paper's model whose numbers stand beside these."""
    tokens: int = 0
    panels: tuple[str, ...] = ()
    """Of a figure of scaling: the training tokens, and the panels that it is a point of."""


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
            yield f"{self.row} is {self.objective}, chosen by the mean {metric} (%) over {where}: {', '.join(scores)}."
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


def outline_table(
    table: Table, request: Request, scale: str | None = None, models: Sequence[str] = (), *, exact: bool = True
) -> Outline:
    """Return the dry run of a table or figure, with the requests to its judges.

    The first candidate of a row stands for the one that will be chosen. `exact` is that of `make_outline`.
    """
    oracle = _oracle_of(table, scale, request)
    outlines = []
    judging = []
    read = Read()
    scaled, steps, remarks = steps_of(table, request, scale, models, oracle and partial(without_oracle, table))
    for step in steps:
        outlines += row_outlines(table, step, exact=exact, read=read)
        judging += judging_lines(table, step)
    if oracle is not None:  # its texts take the place of these downloads
        download = f"corpus {oracle.corpus} ("
        for number, outline in enumerate(outlines):
            kept = [line for line in outline.lines if not line.what.startswith(download)]
            outlines[number] = replace(outline, lines=tuple(kept))
        outlines.insert(0, oracle_outline(table, oracle, scaled, exact=exact))
    outline = outlines[0]
    for other in outlines[1:]:
        outline = outline.joined(other)
    assumptions = list(outline.assumptions)
    for row, candidates in table.rows.items():
        if len(candidates) > 1:
            assumptions.append(f"{row}: {', '.join(candidates)}; one is chosen, and the first stands for it here.")
    title = f"{table.name}: {table.description}"
    return replace(
        outline,
        title=title,
        lines=(*outline.lines, *judging),
        assumptions=(*assumptions, *remarks),
        several=True,
    )


def reproduce(
    table: Table, request: Request, reporter: Reporter | None = None, scale: str | None = None
) -> list[Reproduction]:
    """Repeat a table or figure, model by model; judges of a figure then compare the rows of each model."""
    reporter = reporter or Silent()
    oracle = _oracle_of(table, scale, request)
    prepare = None
    if oracle is not None:
        prepare = partial(with_oracle, table, oracle, reporter)
    _, steps, remarks = steps_of(table, request, scale, prepare=prepare)
    results = []
    for step, rows in zip(steps, measure(table, steps, reporter), strict=True):
        by_row = dict(zip(table.rows, rows.entries, strict=True))
        duels, missing = _duels(table, step.request, by_row, reporter)
        model = step.request.model
        assert model is not None
        compared_rows = _compared(table, request, step, by_row, [*rows.remarks, *remarks], missing)
        result = Reproduction(
            model=model,
            published_model=step.paper,
            found=compared_rows,
            choices=rows.choices,
            duels=tuple(duels),
        )
        results.append(result)
    return results


# From a table to the requests that repeat it: its rows, their models, and the scale


def published_entries(table: Table) -> list[Entry]:
    """Return the paper's rows, in its order, with tasks by our names; none if nothing is published.

    Raises ConfigError if the published board has none of this table.
    """
    if table.published is None:
        return []
    entries = Leaderboard(board_folder(PUBLISHED)).entries(suite=table.published)
    if not entries:
        raise ConfigError(f"{table.name}: the published board has no entry of {table.published}; install it whole.")
    missing = {entry.objective.name for entry in entries} ^ set(table.rows)
    if missing:
        raise ConfigError(f"{table.name}: its `rows` and those of {table.published} differ in {', '.join(missing)}.")
    return [_renamed(entry, table.renamed) for entry in entries]


def _renamed(entry: Entry, names: Mapping[str, str]) -> Entry:
    """Return an entry whose tasks or columns have other names."""
    ours, metrics, families, protocols = {}, {}, {}, {}
    for key, summary in entry.metrics.items():
        task, slash, metric = key.partition("/")
        name = names.get(key) or f"{names.get(task, task)}{slash}{metric}"
        ours[key] = name
        metrics[name] = summary
        protocols[name.partition("/")[0]] = entry.protocols[task]
    for key, family in entry.families.items():
        families[ours[key]] = family
    primary = entry.primary and ours[entry.primary]
    return replace(entry, metrics=metrics, families=families, primary=primary, protocols=protocols)


def models_of(table: Table, request: Request) -> dict[str, str]:
    """Return the model that is run for each of the paper's models.

    With `--model` it is that one of them alone, or the given one in the place of the first of them.

    `--model NAME=MODEL` reads one of the paper's models from elsewhere. Raises UnknownNameError for another NAME.
    """
    papers = paper_models(table)
    wanted = papers if request.model is None else [request.model]
    for name in request.stand_ins:
        if name not in wanted:
            allowed = set(wanted).intersection(papers)
            raise UnknownNameError("model", name, allowed, where=f"{table.name}, --model: ")
    models = {}
    for name in wanted:
        paper = name if name in papers else papers[0]
        models[paper] = request.stand_ins.get(name, name)
    return models


def paper_models(table: Table) -> list[str]:
    """Return the names of the paper's models, in its order."""
    names = {}
    for entry in published_entries(table):
        names[entry.model.name] = None
    return list(names) or list(table.models)


def of_model(table: Table, request: Request, paper: str, model: str) -> Request:
    """Return a request for the model that stands for one of the paper's, with the table's settings for that one.

    Settings of the request win.
    """
    of_table = merged(table.settings, table.of_models.get(paper, {}))
    settings = merged(of_table, request.settings)
    return replace(request, model=model, seeds=request.seeds or table.seeds, settings=settings)


def scale_of(table: Table, name: str | None) -> Scale | None:
    """Return a scale of a table by name, None for the table as it is."""
    if name is None:
        return None
    if name not in table.scales:
        raise UnknownNameError("scale", name, table.scales, where=f"{table.name}: ")
    return table.scales[name]


def steps_of(
    table: Table,
    request: Request,
    scale: str | None = None,
    models: Sequence[str] = (),
    prepare: Callable[[Request], Request] | None = None,
) -> tuple[Request, list[Step], list[str]]:
    """Return the request at a scale, the steps of a table or figure, and remarks.

    At a scale one model of a table is run: for the paper's model that `--model` names, else for the first one. Of a
    figure of scaling, `models` are instead of its own, from small to large. `prepare` is that of `at_scale`.
    """
    chosen = scale_of(table, scale)
    remarks = []
    if table.tokens:
        sized = chosen or table
        names = list(models or sized.models)
        if chosen is not None:
            request, remarks = at_scale(table, chosen, replace(request, model=names[-1]))
        return request, list(_scaling_steps(table, request, names, sized.tokens)), remarks
    subjects = models_of(table, request)
    if chosen is not None:
        request, remarks = at_scale(table, chosen, request, prepare)
        assert request.model is not None
        subjects = {next(iter(subjects)): request.model}
    steps = []
    for paper, model in subjects.items():
        own = of_model(table, request, paper, model)
        steps.append(Step(request=own, title=shown_name(model), paper=paper))
    return request, steps, remarks


def _scaling_steps(table: Table, request: Request, names: Sequence[str], tokens: Sequence[int]) -> Iterator[Step]:
    """Yield each model on the most tokens, and the last one on fewer, too."""
    if len(set(names)) < len(names):
        raise ConfigError(f"--model is given as {', '.join(names)}; expected each model once, from small to large.")
    if "max_tokens" in request.section("recipe"):
        raise ConfigError(f"--set recipe.max_tokens: {table.name} is over the number of tokens, and sets it; drop it.")
    last = names[-1]
    most = tokens[-1]
    points: list[tuple[str, int, tuple[str, ...]]] = []
    for name in names[:-1]:
        points.append((name, most, (MODEL,)))
    for count in tokens[:-1]:
        points.append((last, count, (DATA,)))
    points.append((last, most, (MODEL, DATA)))
    for name, count, panels in points:
        settings = {**request.settings, "recipe": {**request.section("recipe"), "max_tokens": count}}
        own = replace(
            request,
            model=request.stand_ins.get(name, name),
            settings=settings,
            stand_ins={},
            seeds=request.seeds or table.seeds,
        )
        yield Step(request=own, title=f"{shown_name(name)}, {count:,} tokens", tokens=count, panels=panels)


def at_scale(
    table: Table, scale: Scale, request: Request, prepare: Callable[[Request], Request] | None = None
) -> tuple[Request, list[str]]:
    """Return a request with a scale's model and settings, for tasks whose texts are available, and remarks on it.

    The request's own model, settings and tasks stay. For one of the paper's models, by name, the scale's model stands
    in. `prepare` adds the texts that the scale makes. Raises DataError if no task is left.
    """
    for name, place in request.stand_ins.items():
        raise ConfigError(
            f"--model {name}={place}: at this scale {table.name} has a model of its own; drop one of --scale and "
            f"{name}=, or give --model {place}."
        )
    model = request.model or scale.model
    if request.model in paper_models(table):
        model = scale.model
    scaled = replace(request, model=model, settings=merged(scale.settings, request.settings))
    if prepare is not None:
        scaled = prepare(scaled)
    remarks = [f"At this scale: {scale.why.replace('{model}', shown_name(model))}."]
    if scaled.words("tasks") is not None:
        return scaled, remarks
    left_out: dict[str, list[str]] = {}
    for name, why in _problems(table, scaled, base_model(model, scaled)):
        left_out.setdefault(why, []).append(name)
    kept = left_out.pop("", [])
    if not kept:
        names = list(chain.from_iterable(left_out.values()))
        recipe, _ = parts_of(scaled, find_suite(table.suite))[0]
        raise DataError(
            f"{table.name}: the data folders have texts for none of its tasks ({', '.join(names)}); "
            f"add --data-dir DIR, a folder with {recipe.corpus}.train.jsonl and {names[0]}.test.jsonl."
        )
    if left_out:
        for why, names in left_out.items():
            remarks.append(f"Left out: {', '.join(names)}, {why}.")
        scaled = replace(scaled, settings={**scaled.settings, "tasks": kept})
    return scaled, remarks


def _problems(table: Table, request: Request, base: Model) -> Iterator[tuple[str, str]]:
    """Yield each task with the reason why it cannot be evaluated, or an empty one.

    A task that also chooses among candidates must have texts for that, too.
    """
    at = Ingredients(request, look=True)
    suite = find_suite(table.suite)
    parts = parts_of(request, suite)
    every_part = list(parts)
    choosing = selection_request(table, request)
    if choosing is not None:
        every_part += parts_of(choosing, suite)
    by_name: dict[str, list[Task]] = {}
    for _, tasks in every_part:
        for task in tasks:
            by_name.setdefault(task.name, []).append(task)
    for recipe, tasks in parts:
        for task in tasks:
            yield task.name, _problem(at, recipe, by_name[task.name], base)


def _problem(at: Ingredients, recipe: Recipe, alike: list[Task], base: Model) -> str:
    given = list(map(at.task_data, alike))
    readable = None not in given
    for split in ("train", "validation"):
        readable = readable and bool(at.training_texts(recipe, split))
    if not readable:
        return "whose texts are not in the data folders"
    try:
        for task, data in zip(alike, given, strict=True):
            load_kind(task.kind).runtime.check(task, data, base)
    except DataError:
        return "none of whose texts is long enough"
    return ""


def firsts(table: Table) -> tuple[str, ...]:
    """Return the first candidate of each row."""
    return tuple(candidates[0] for candidates in table.rows.values())


def selection_request(table: Table, request: Request) -> Request | None:
    """Return the request whose scores choose among candidates. None if each row has one.

    Raises ConfigError for a setting that would leave the choice to the test split.
    """
    candidates = []
    for texts in table.rows.values():
        if len(texts) > 1:
            candidates += texts
    if not candidates or table.select is None:
        return None
    settings: dict[str, Any] = {**request.settings, "tasks": selection_tasks(table, request)}
    for section, values in table.select.settings.items():
        given = request.section(section)
        for key in values.keys() & given.keys():
            if not given[key] or given[key] == "test":
                raise ConfigError(
                    f"--set {section}.{key}={given[key]}: {table.name} chooses parameters by {section}.{key}, so that "
                    f"the test split does not; expected another value, such as {values[key]}, or drop it."
                )
        settings[section] = {**values, **given}
    return replace(request, objectives=tuple(candidates), settings=settings)


def selection_tasks(table: Table, request: Request) -> list[str]:
    """Return the requested tasks whose scores choose."""
    assert table.select is not None
    wanted = request.words("tasks")
    tasks = [task for task in table.select.tasks if wanted is None or task in wanted]
    if not tasks:
        raise ConfigError(
            f"--set tasks={','.join(wanted or ())}: none of them can choose the parameters of {table.name}; add one of "
            f"{', '.join(table.select.tasks)}."
        )
    return tasks


def table_request(table: Table, request: Request, objectives: tuple[str, ...]) -> Request:
    """Return the request of the table's rows, without settings that are for choosing, such as icl.held_out."""
    chooses: Mapping[str, Any] = {}
    if table.select is not None:
        chooses = table.select.settings
    settings = {}
    for section, given in request.settings.items():
        kept = given
        if section in chooses:
            kept = dict(request.section(section))
            for key in chooses[section]:
                kept.pop(key, None)
        if kept and not (table.judges and section == "judge"):  # they compare rows, and none of them by itself
            settings[section] = kept
    return replace(request, objectives=objectives, settings=settings)


def _oracle_of(table: Table, scale: str | None, request: Request) -> Oracle | None:
    """Return the oracle that a scale trains. None if it trains none or the data folders have an oracle's texts."""
    chosen = scale_of(table, scale)
    if chosen is None or chosen.oracle is None:
        return None
    files = [local_file(chosen.oracle.corpus, split, request.data_dirs) for split in SPLITS]
    return None if all(files) else chosen.oracle


# The rows of a step


def row_outlines(table: Table, step: Step, *, exact: bool, read: Read) -> Iterator[Outline]:
    """Yield the dry runs of choosing among candidates, if some row has several, and of the table's rows.

    Their trainings and evaluations name the step, so that the outlines of several can be joined.
    """
    rows = table_request(table, step.request, firsts(table))
    for planned, purpose in ((selection_request(table, step.request), ", to choose"), (rows, "")):
        if planned is None:
            continue
        outline = make_outline(planned, exact=exact, read=read)
        lines = []
        for line in outline.lines:
            if line.objective:
                subject = step.title + (purpose if line.stage == "evaluate" else "")
                line = replace(line, what=f"{subject}: {line.what}", subject=subject)
            lines.append(line)
        yield replace(outline, lines=tuple(lines))


def measure(table: Table, steps: Sequence[Step], reporter: Reporter) -> list[MeasuredRows]:
    """Train and evaluate the rows of each step, after choosing among the candidates of rows that have several.

    All are planned first, so that what would fail after another model's days fails now.
    """
    cache: Ingredients | None = None
    for step in steps:
        cache = make_plan(table_request(table, step.request, firsts(table)), known=cache).ingredients
    measured = []
    for step in steps:
        request = step.request
        selection = selection_request(table, request)
        remarks = []
        choices = []
        if selection is None:
            for row, candidates in table.rows.items():
                choices.append(Choice(row=row, objective=candidates[0]))
        else:
            assert table.select is not None
            reporter.note(f"{step.title}: candidates, on {table.select.judged_on}")
            evaluated = score_plan(make_plan(selection, known=cache), reporter)
            scores = dict(zip(selection.objectives, evaluated, strict=True))
            where = f"{', '.join(selection_tasks(table, request))} on {table.select.judged_on}"
            for row, candidates in table.rows.items():
                choice = choose(row, candidates, table.select, scores)
                choices.append(choice)
                remarks += choice.remarks(table.select.metric, where)
        objectives = tuple(choice.objective for choice in choices)
        plan = make_plan(table_request(table, request, objectives), known=cache)
        measured.append(MeasuredRows(tuple(choices), run_plan(plan, reporter), remarks))
    return measured


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
    means = {}
    left_out = {}
    sign = 1
    for text in candidates:
        try:
            tasks = list(chain.from_iterable(measured[text]))
            scores = [score_of(task, select.metric) for task in tasks]
        except MetricError as error:
            left_out[text] = str(error)
        else:
            values = [score.value for score in scores]
            means[text] = sum(values) / len(values)
            sign = 1 if scores[0].higher_is_better else -1
    if not means:
        raise MetricError(
            f"No {select.metric} of every task and seed was computed for any candidate of {row}, so that no parameter "
            f"can be chosen by it: {left_out[candidates[0]]}"
        )
    best = max(means, key=lambda text: sign * means[text])
    return Choice(row=row, objective=best, scores=means, left_out=left_out)


# The paper's numbers and ours


def _compared(
    table: Table,
    given: Request,
    step: Step,
    measured: Mapping[str, Entry],
    remarks: Sequence[str],
    missing: Sequence[str],
) -> PaperComparison:
    """Return the measured rows next to the paper's. `given` is the user's request."""
    published = {}
    for entry in published_entries(table):
        if entry.model.name == step.paper:
            published[entry.objective.name] = entry
    entries = list(measured.values())
    baseline = measured[table.baseline]
    examples = ExamplesReader(step.request.runs, [step.request.leaderboard])
    others = [entry for entry in entries if entry.id != baseline.id]
    contrasts = compare(baseline, others, examples, anyway=True)
    available = {}
    reasons = {}
    for entry in entries:
        available.update(entry.metrics)
        for metric, why in entry.missing.items():
            reasons.setdefault(metric, why)
    if published:
        wanted = list(next(iter(published.values())).metrics)
    else:
        tasks = dict.fromkeys(metric.split("/", 1)[0] for metric in available)
        wanted = [f"{task}/{metric}" for task, metric in product(tasks, table.metrics)]
    columns = [metric for metric in wanted if metric in available]
    sentences = [*remarks, *_differences(given, step, baseline, bool(published)), *table.remarks]
    of_paper = set()
    for entry in published.values():
        of_paper.update(entry.metrics)
    for metric in sorted(of_paper.difference(available)):
        if metric in reasons:
            sentences.append(f"{metric} is missing here: {reasons[metric]}")
    return PaperComparison(
        title=f"{table.name} · {baseline.model.name}",
        columns=tuple(columns),
        published=published,
        measured=measured,
        baseline=table.baseline,
        comparison=contrasts,
        remarks=(*sentences, *examples.problems, *missing),
    )


def _differences(given: Request, step: Step, entry: Entry, published: bool) -> Iterator[str]:
    """Yield the reasons why these numbers may differ from the paper's, as far as the request and an entry know."""
    alias = CATALOG.get(step.paper)
    converted = step.paper in given.stand_ins and alias is not None and entry.model.parameters == alias.parameters
    if published and step.request.model != step.paper and not converted:
        yield (
            f"The paper's numbers are of {step.paper}, and these of {entry.model.name}: their difference "
            "says nothing of an objective."
        )
    if given.limit is not None:
        yield f"--limit {given.limit}: the first examples of each task only."
    changed = [f"{name}={value}" for name, value in dotted_settings(given.settings)]
    if changed:
        yield f"Set for this run: {', '.join(changed)}."
    local = [name for name, origin in entry.provenance.data.items() if "(local: " in origin]
    if local:
        yield f"Read from --data-dir, whose splits may be others: {', '.join(local)}."


# Judges of a figure of wins, ties and losses


def judges_of(table: Table, request: Request) -> list[Any]:
    """Return the judges of a figure: the one that `--set judge.name` gives, or else the figure's own."""
    if not table.judges:
        return []
    given = request.section("judge")
    names = [given["name"]] if "name" in given else table.judges
    judges = []
    for name in names:
        judges.append(judged_pairs().rule_of({"judge": {**given, "name": name}}))
    return judges


def _duels(
    table: Table, request: Request, measured: Mapping[str, Entry], reporter: Reporter
) -> tuple[list[Duel], list[str]]:
    """Return the comparison of each row with the baseline by each judge, seed by seed, and reasons for missing ones.

    Replies are kept in the folder of runs.
    """
    duels = []
    missing = []
    for rule, (row, entry) in product(judges_of(table, request), measured.items()):
        if row == table.baseline:
            continue
        for seed in entry.seeds:
            pair = [entry, measured[table.baseline]]
            tables = compared(pair, request.runs, seed=seed)
            try:
                outcomes = judge_tables(
                    rule, tables, request.runs, reporter, device=request.device, offline=request.offline
                )
            except MetricError as error:
                missing.append(f"{row} against {table.baseline}, seed {seed}: {error}")
                continue
            for judged in outcomes:
                (counts,) = judged.duels
                duel = Duel(
                    subject=entry.model.name,
                    row=row,
                    baseline=table.baseline,
                    judge=judged.judge,
                    model=judged.model,
                    seed=seed,
                    instructions=judged.instructions,
                    wins=counts.wins,
                    ties=counts.ties,
                    losses=counts.losses,
                    win_rate=counts.win_rate,
                    ci95=counts.ci95,
                )
                duels.append(duel)
    return duels, missing


def judging_lines(table: Table, step: Step) -> Iterator[StageLine]:
    """Yield the requests to the judges of a figure, for a dry run; nothing for a table."""
    request = step.request
    suite = find_suite(table.suite)
    at = Ingredients(request, look=True)
    settings = dict(request.settings)
    settings.pop("judge", None)
    parts = parts_of(replace(request, settings=settings), suite)
    others = [row for row in table.rows if row != table.baseline]
    comparisons = len(others) * len(request.seeds or suite.seeds)
    for rule, (_, tasks) in product(judges_of(table, request), parts):
        for task in tasks:
            cost = judged_pairs().unanswered(rule, task, at.task_data(task))
            count = cost.count * comparisons
            tokens = (cost.read + cost.written) * comparisons
            what = f"{step.title}: {rule.name} compares {', '.join(others)} with {table.baseline} on {task.name}"
            amount = requests_words(count, tokens)
            yield StageLine(stage="evaluate", what=what, amount=amount, requests=count, request_tokens=tokens)
