"""`emobench tasks`, `emobench suites` and `emobench models`: what there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from emobench.cli import options
from emobench.cli.console import print_json, print_out, print_table, remark, width_left
from emobench.cli.export_task import export
from emobench.config import to_plain
from emobench.errors import EmobenchError

tasks = typer.Typer(help="Evaluation tasks: list, show, export.", no_args_is_help=True)
suites = typer.Typer(help="Suites of trainings and tasks: list, show.", no_args_is_help=True)
models = typer.Typer(help="Models: list, convert.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="A name from the list.")]
T = TypeVar("T")
DESCRIPTION = 30
"""Width that a list's last column needs; where it is not left, the list has fewer columns."""

tasks.command("export")(export)


@tasks.command("list")
def list_tasks(json: options.Json = False) -> None:
    """List the tasks with their default protocol."""
    from emobench.registry import find_task, task_names

    found = _usable(lambda name: (name, find_task(name)), task_names())
    if json:
        print_json([{**_task(task), "name": name, "rules": None, "dataset": None} for name, task in found])
        return
    header = ("name", "version", "kind", "corpus", "protocol", "what")
    rows = [(name, str(t.version), t.kind, t.corpus, t.protocol_id, t.description) for name, t in found]
    if width_left([header[:-1], *(row[:-1] for row in rows)]) < DESCRIPTION:
        header, rows = (header[0], *header[4:]), [(row[0], *row[4:]) for row in rows]
    print_table("Tasks", header, rows, unbroken=("name", "protocol"))


@tasks.command("show")
def show_task(
    name: Name,
    protocol: Annotated[str | None, typer.Option(help="A protocol of the task. Default: its first protocol.")] = None,
    json: options.Json = False,
) -> None:
    """Show a task: all rules of one of its protocols."""
    from emobench.registry import find_task

    facts = _task(find_task(name, protocol=protocol))
    if json:
        print_json(facts)
        return
    print_out(
        f"{facts['name']} (version {facts['version']}, {facts['kind']}): {facts['description']}",
        f"protocol {facts['protocol']}",
        *_alike(name),
    )
    _print_values(facts["rules"])
    if facts["dataset"]:
        print_out("data set")
        # `golden` is for the check of a download, and says nothing to a reader.
        _print_values({key: value for key, value in facts["dataset"].items() if key != "golden"})


@suites.command("list")
def list_suites(json: options.Json = False) -> None:
    """List the suites."""
    from emobench.registry import find_suite, suite_names

    found = _usable(find_suite, suite_names())
    if json:
        print_json(found)
        return
    rows = [
        [s.name, str(s.version), ", ".join(t for r in s.runs for t in r.tasks), s.model or "", s.description]
        for s in found
    ]
    print_table("Suites", ("name", "version", "tasks", "model", "what"), rows, unbroken=("name", "model"))


@suites.command("show")
def show_suite(name: Name, json: options.Json = False) -> None:
    """Show a suite: its recipes with all their values, and its tasks."""
    from emobench.registry import find_recipe, find_suite

    suite = find_suite(name)
    runs = [{"recipe": to_plain(find_recipe(r.recipe, r.settings)), "tasks": list(r.tasks)} for r in suite.runs]
    if json:
        print_json({**to_plain(suite), "runs": runs})
        return
    print_out(f"{suite.name} (version {suite.version}): {suite.description}")
    if suite.primary:
        many = sum(len(run.tasks) for run in suite.runs) > 1
        print_out(f"primary endpoint: {suite.primary}{', the mean over the tasks that have it' if many else ''}")
    for run in runs:
        print_out(f"recipe {run['recipe']['name']}, then {', '.join(run['tasks'])}")
        _print_values(run["recipe"])


@models.command("list")
def list_models(json: options.Json = False) -> None:
    """List the aliases of models. A local folder or a Hugging Face id works, too."""
    from emobench.models.catalog import CATALOG

    if json:
        print_json(list(CATALOG.values()))
        return
    rows = [
        [a.name, a.source, f"{a.parameters:,}" if a.parameters else "", "" if a.tried else "not tried here", a.note]
        for a in CATALOG.values()
    ]
    print_table("Models", ("name", "source", "parameters", "state", "note"), rows)


@models.command()
def convert(
    folder: Annotated[Path, typer.Argument(help="The folder to read.", callback=options.holdable)],
    out: Annotated[Path, typer.Argument(help="The folder to write.", callback=options.holdable)],
) -> None:
    """Convert a model folder with pytorch_model.bin to safetensors.

    No code in the folder is executed.
    """
    from emobench.models.convert import convert_bin

    convert_bin(folder, out)
    print_out(f"Wrote {out}; use it as --model {out}.")


def _usable(find: Callable[[str], T], names: Sequence[str]) -> list[T]:
    """Return what `find` reads by each name, and name on stderr the files and plugins that cannot be used."""
    from emobench.registry import tasks_plugins

    found: list[T] = []
    problems: list[EmobenchError] = [problem for problem in tasks_plugins().values() if problem is not None]
    for name in names:
        try:
            found.append(find(name))
        except EmobenchError as error:
            problems.append(error)
    for problem in problems:
        remark(f"skipped: {problem}")
    return found


def _task(task: Any) -> dict[str, Any]:
    names = ("name", "version", "kind", "corpus", "description")
    plain = {name: getattr(task, name) for name in names}
    return {
        **plain,
        "protocol": task.protocol_id,
        "rules": to_plain(task.protocol),
        "dataset": to_plain(task.dataset),
    }


def _print_values(values: Any) -> None:
    for key, value in _flat(values):
        # A text whose ends cannot be seen, such as a line's end or none, is shown in quotes.
        hidden = isinstance(value, str) and (not value or value != value.strip() or "\n" in value)
        print_out(f"  {key} = {repr(value) if hidden else value}")


def _flat(values: Any, prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        found += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return found


def _alike(name: str) -> list[str]:
    """Return a line that names the other tasks of the same last name, if there are any."""
    from emobench.registry import task_names
    from emobench.tasks.spec import short_name

    others = [other for other in task_names() if other != name and short_name(other) == short_name(name)]
    return [f"also: {', '.join(others)}"] if others else []
