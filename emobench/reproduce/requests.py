"""From a paper's table to the requests that repeat it: its rows, their models, and the scale."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from emobench.core.errors import ConfigError, DataError, UnknownNameError
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.store import Leaderboard, published_root
from emobench.models.model import Model
from emobench.registry import find_suite, load_kind
from emobench.runs.planning.ingredients import Ingredients, base_model, shown_name
from emobench.runs.planning.request import Request
from emobench.runs.planning.resolve import parts_of
from emobench.tasks.spec import Task
from emobench.tasks.table import Scale, Table
from emobench.training.recipe import Recipe


@dataclass(frozen=True)
class PaperModel:
    """A model of the table, by the paper's name, and the one that is run for it."""

    paper: str
    model: str


def published_entries(table: Table) -> list[Entry]:
    """Return the paper's rows, in its order, with tasks by our names; none if nothing is published.

    Raises ConfigError if the published board has none of this table.
    """
    if table.published is None:
        return []
    entries = Leaderboard(published_root()).entries(suite=table.published)
    if not entries:
        raise ConfigError(f"{table.name}: the published board has no entry of {table.published}; install it whole.")
    missing = {entry.objective.name for entry in entries} ^ set(table.rows)
    if missing:
        raise ConfigError(f"{table.name}: its `rows` and those of {table.published} differ in {', '.join(missing)}.")
    return [_renamed(entry, table.renamed) for entry in entries]


def models_of(table: Table, request: Request) -> list[PaperModel]:
    """Return the paper's models; with `--model` that one of them, or the given one in the place of the first of them.

    `--model NAME=MODEL` reads one of the paper's models from elsewhere. Raises UnknownNameError for another NAME.
    """
    papers = paper_models(table)
    wanted = papers if request.model is None else [request.model]
    for name in request.stand_ins:
        if name not in wanted:
            allowed = [wanted_name for wanted_name in wanted if wanted_name in papers]
            raise UnknownNameError("model", name, allowed, where=f"{table.name}, --model: ")
    models = []
    for name in wanted:
        paper = name if name in papers else papers[0]
        models.append(PaperModel(paper, request.stand_ins.get(name, name)))
    return models


def paper_models(table: Table) -> list[str]:
    """Return the names of the paper's models, in its order."""
    return list(dict.fromkeys(entry.model.name for entry in published_entries(table))) or list(table.models)


def of_model(table: Table, request: Request, subject: PaperModel) -> Request:
    """Return a request for one of the table's models, with the table's settings for it; settings of the request win."""
    of_table = merged(table.settings, table.of_models.get(subject.paper, {}))
    settings = merged(of_table, request.settings)
    return replace(request, model=subject.model, seeds=request.seeds or table.seeds, settings=settings)


def scale_of(table: Table, name: str | None) -> Scale | None:
    """Return a scale of a table by name, None for the table as it is."""
    if name is None:
        return None
    if not table.scales:
        raise ConfigError(f"{table.name} has one scale, the paper's; drop --scale {name}.")
    if name not in table.scales:
        raise UnknownNameError("scale", name, table.scales, where=f"{table.name}: ")
    return table.scales[name]


def at_scale(
    table: Table, scale: Scale, request: Request, prepare: Callable[[Request], Request] | None = None
) -> tuple[Request, list[str]]:
    """Return a request with a scale's model and settings, for tasks whose texts are available, and remarks on it.

    The request's own model, settings and tasks stay. For one of the paper's models, by name, the scale's model stands
    in. `prepare` adds the texts that the scale makes. Raises DataError if no task is left.
    """
    if request.stand_ins:
        name, place = next(iter(request.stand_ins.items()))
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
    problems = dict(_problems(table, scaled, base_model(model, scaled)))
    kept = [name for name, why in problems.items() if why is None]
    if not kept:
        recipe, _ = parts_of(scaled, find_suite(table.suite))[0]
        raise DataError(
            f"{table.name}: the data folders have texts for none of its tasks ({', '.join(problems)}); "
            f"add --data-dir DIR, a folder with {recipe.corpus}.train.jsonl and {next(iter(problems))}.test.jsonl."
        )
    left_out: dict[str, list[str]] = {}
    for name, why in problems.items():
        if why is not None:
            left_out.setdefault(why, []).append(name)
    if left_out:
        remarks += [f"Left out: {', '.join(names)}, {why}." for why, names in left_out.items()]
        scaled = replace(scaled, settings={**scaled.settings, "tasks": kept})
    return scaled, remarks


def firsts(table: Table) -> tuple[str, ...]:
    """Return the first candidate of each row."""
    return tuple(candidates[0] for candidates in table.rows.values())


def selection_request(table: Table, request: Request) -> Request | None:
    """Return the request whose scores choose among candidates. None if each row has one."""
    candidates: list[str] = []
    for texts in table.rows.values():
        if len(texts) > 1:
            candidates += texts
    if not candidates or table.select is None:
        return None
    settings: dict[str, Any] = {**request.settings, "tasks": selection_tasks(table, request)}
    for section, values in table.select.settings.items():
        given = request.section(section)
        for key in values.keys() & given.keys():
            if not given[key] or given[key] == "test":  # it would leave the choice to the test split
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


def _renamed(entry: Entry, names: Mapping[str, str]) -> Entry:
    """Return an entry whose tasks or columns have other names."""

    def ours(key: str) -> str:
        task, slash, metric = key.partition("/")
        return names.get(key) or f"{names.get(task, task)}{slash}{metric}"

    protocols = {}
    for key in entry.metrics:
        protocols[ours(key).partition("/")[0]] = entry.protocols[key.partition("/")[0]]
    return replace(
        entry,
        metrics={ours(key): summary for key, summary in entry.metrics.items()},
        families={ours(key): family for key, family in entry.families.items()},
        primary=entry.primary and ours(entry.primary),
        protocols=protocols,
    )


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings of both; `above` wins."""
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            value = merged(old, value)
        both[key] = value
    return both


def _problems(table: Table, request: Request, base: Model) -> Iterator[tuple[str, str | None]]:
    """Yield each task with the reason why it cannot be evaluated, or None."""
    at, suite = Ingredients(request, look=True), find_suite(table.suite)
    parts = parts_of(request, suite)
    choosing = selection_request(table, request)
    by_name: dict[str, list[Task]] = {}
    all_parts = list(parts)
    if choosing is not None:
        all_parts += parts_of(choosing, suite)
    for _, tasks in all_parts:
        for task in tasks:
            by_name.setdefault(task.name, []).append(task)
    for recipe, tasks in parts:
        for task in tasks:
            yield task.name, _problem(at, recipe, by_name[task.name], base)


def _problem(at: Ingredients, recipe: Recipe, alike: list[Task], base: Model) -> str | None:
    if not all(at.training_texts(recipe, split) for split in ("train", "validation")):
        return "whose texts are not in the data folders"
    for task in alike:
        data = at.task_data(task)
        if data is None:
            return "whose texts are not in the data folders"
        try:
            load_kind(task.kind).runtime.check(task, data, base)
        except DataError:
            return "none of whose texts is long enough"
    return None
