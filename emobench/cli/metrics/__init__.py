"""`emobench metrics`: what is measured on generated texts, its contract, and a metric of your own."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from emobench.cli import options, scaffold
from emobench.cli.objectives.views import checked
from emobench.cli.terminal.console import print_json, print_out, print_table
from emobench.core.errors import ConfigError, EmobenchError
from emobench.registry import load_metric, metric_class, metric_names, metric_origin
from emobench.registry.measures import describe, known_measures

app = typer.Typer(help="Metrics of generated texts: list, show, check, new.", no_args_is_help=True)
TEMPLATES = Path(__file__).parent / "templates"
DIRECTIONS = {True: "higher", False: "lower", None: "neither"}


@app.command("list")
def list_(json: options.Json = False) -> None:
    """List the installed metrics of generated texts.

    A metric that does not import is listed with its error.
    """
    found = [_facts(name) for name in metric_names()]
    if json:
        print_json(found)
        return
    rows = []
    for one in found:
        measures = [(key, m["unit"], m["better"]) for key, m in one.get("metrics", {}).items()] or [("", "", "")]
        first = (one["name"], *measures[0], one.get("summary") or one["error"])
        rows += [first, *(("", *more, "") for more in measures[1:])]
    print_table(
        "Metrics of generated texts", ("name", "in an entry", "unit", "better", "what"), rows, unbroken=("name",)
    )
    measured = {key for one in found for key in one.get("metrics", {})}
    others = []
    for name, measure in known_measures().items():
        if name not in measured:
            better = DIRECTIONS[measure.higher_is_better]
            others.append((name, measure.unit, better, measure.range, measure.definition))
    print_out("")
    print_table("Other metrics of entries", ("name", "unit", "better", "range", "what"), others, unbroken=("name",))
    print_out("`emobench metrics show NAME` says more; `emobench metrics new NAME` begins one of your own.")


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A name from the list.")],
    json: options.Json = False,
) -> None:
    """Show a metric: what it measures, its unit and direction, its parameters; of a name in entries its definition."""
    if name not in metric_names() and (info := describe(name)).definition:
        if json:
            print_json({"name": name, **dataclasses.asdict(info)})
        else:
            facts = f"unit {info.unit}, better: {DIRECTIONS[info.higher_is_better]}, range: {info.range}"
            source = [f"from {info.source}"] if info.source else []
            print_out(f"{name}: {info.title}", "", info.definition, "", facts, *source)
        return
    found = _facts(metric_class(name).name)
    if json:
        print_json(found)
        return
    print_out(f"{found['name']}: {found['about']}", "")
    for key, one in found["metrics"].items():
        secondary = ", secondary" if one["secondary"] else ""
        print_out(f"  {key}: {one['unit']}, better: {one['better']}{secondary}")
    for key, default in found["parameters"].items():
        print_out(f"  parameter {key}, default {default!r}")
    print_out("", f"from {found['origin']}")
    if not found["built_in"]:
        print_out(f'use  emobench run --suite lm-quick --set generation.metrics="[{found["name"]}]"')


@app.command()
def check(
    names: Annotated[list[str], typer.Argument(help='A name, or "name(key=value)".')],
    json: options.Json = False,
) -> None:
    """Check that metrics keep the contract.

    It prints one line for each check. A failure comes with what it usually means.
    """
    from emobench.testing.metric_checks import run_metric_checks

    metrics = {name: load_metric(name).component for name in names}
    found: list[dict[str, Any]] = []
    for name, metric in metrics.items():
        outcomes = run_metric_checks(metric)
        found.append({"metric": name, "ok": all(o.status != "failed" for o in outcomes), "checks": outcomes})
        if not json:
            print_out(*([""] if len(found) > 1 else []), *checked(name, outcomes))
    if json:
        print_json(found if len(found) > 1 else found[0])
    if not all(one["ok"] for one in found):
        raise typer.Exit(1)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="The name of the metric, such as my-metric.")],
    directory: Annotated[
        Path, typer.Option("--directory", help="The folder in which the package's folder is created.")
    ] = Path(),
) -> None:
    """Write a package with a metric of your own."""
    if name in metric_names():
        raise ConfigError(f"'{name}' is taken, by {metric_origin(name)}; give the metric another name.")
    templates = {
        "pyproject.toml": TEMPLATES / "pyproject.toml.tmpl",
        "README.md": TEMPLATES / "README.md.tmpl",
        "$module.py": TEMPLATES / "metric.py.tmpl",
        "tests/test_$module.py": TEMPLATES / "test_metric.py.tmpl",
    }
    folder = scaffold.write_package(name, directory, templates, {}, what="a metric")
    print_out(
        f"Wrote {folder}: a metric that works. Make it yours in {folder / scaffold.module_name(name)}.py.",
        "",
        f"pip install -e {folder.resolve()}",
        f"emobench metrics check {name}",
        f'emobench evaluate --suite lm-quick --model gpt2 --limit 64 --set generation.metrics="[{name}]"',
    )


def _facts(name: str) -> dict[str, Any]:
    """Return what is known of a metric; of one that cannot be used, its error."""
    known = {"name": name, "origin": metric_origin(name)}
    try:
        cls = metric_class(name)
    except EmobenchError as error:
        return {**known, "error": str(error)}
    about = inspect.cleandoc(cls.__doc__ or "")
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    return {
        **known,
        "summary": about.partition("\n")[0],
        "about": about,
        "built_in": cls.__module__.startswith("emobench."),
        "metrics": {
            key: {"unit": m.unit, "better": DIRECTIONS[m.higher_is_better], "secondary": m.secondary}
            for key, m in cls.measures.items()
        },
        "parameters": {one.name: one.default for one in fields},
    }
