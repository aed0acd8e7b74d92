"""`emobench objectives`: what is installed, and what each one computes."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Annotated, Any

import typer

from emobench.cli import options
from emobench.cli.console import print_json, print_out, print_table
from emobench.config import parse_call
from emobench.errors import EmobenchError

app = typer.Typer(help="Training objectives: list, show.", no_args_is_help=True)


@app.command("list")
def list_(json: options.Json = False) -> None:
    """List the installed objectives; one that does not import is named with its error, and the others still work."""
    from emobench.registry import objective_class, objective_names

    rows: list[dict[str, Any]] = []
    for name in objective_names():
        try:
            rows.append(_facts(objective_class(name)))
        except EmobenchError as error:
            rows.append({"name": name, "version": "", "parameters": [], "summary": f"unusable: {error}"})
    if json:
        print_json(rows)
        return
    cells = [
        [r["name"], r["version"], ", ".join(f"{p['name']}={p['default']}" for p in r["parameters"]), r["summary"]]
        for r in rows
    ]
    print_table("Objectives", ("name", "version", "parameters", "what"), cells)


@app.command()
def show(name: Annotated[str, typer.Argument(help="A name, or ./file.py:Class.")], json: options.Json = False) -> None:
    """Show an objective: its equation, parameters with ranges, and what it reads of the model's distribution."""
    from emobench.registry import objective_class

    facts = _facts(objective_class(parse_call(name)[0]))
    if json:
        print_json(facts)
        return
    print_out(f"{facts['name']} (version {facts['version']}): {facts['summary']}", "", facts["equation"], "")
    print_out(f"reads: {', '.join(facts['needs'])}")
    for p in facts["parameters"]:
        print_out(
            f"{p['name']}: {p['type']} = {p['default']}"
            + (f"  [{p['range']}]" if p["range"] else "")
            + f"  {p['help']}"
        )


def _facts(cls: Any) -> dict[str, Any]:
    from emobench.objectives.parameters import describe_range

    module = inspect.getdoc(inspect.getmodule(cls)) or ""
    return {
        "name": cls.name,
        "version": cls.version,
        "summary": (module or inspect.getdoc(cls) or "").partition("\n")[0],
        "equation": inspect.getdoc(cls) if cls.__dict__.get("__doc__") else "",
        "needs": sorted({"log_prob", *cls.needs}),
        "parameters": [
            {
                "name": field.name,
                "type": field.type if isinstance(field.type, str) else field.type.__name__,
                "default": field.default,
                "range": describe_range(field),
                "help": field.metadata.get("help", ""),
            }
            for field in dataclasses.fields(cls)
        ],
    }
