"""`emobench stage run`: one stage of a run that was planned, made from what is written of it."""

from __future__ import annotations

from typing import Annotated

import typer

from emobench.cli import options
from emobench.cli.console import print_json, print_out, reporter
from emobench.models.device import resolve_device
from emobench.pipeline.run import run_stage

app = typer.Typer(help="Stages of a run: run one by its key.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Stages of a run: run one by its key."""


@app.command()
def run(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="Its key, or enough of its first digits.", show_default=False)
    ],
    runs: options.Runs = options.DEFAULT_RUNS,
    device: Annotated[
        str | None, typer.Option("--device", help="Another one than in the plan, such as cuda:1.", show_default=False)
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Make a stage, such as a training, with what it needs, and print its folder.

    A run writes each of its stages to RUNS/planned/KEY.json before it starts, so that another process, or a machine
    that sees the same folders, can make it. It is planned again from there, and made only if its key is the same:
    a stage is the hash of all that determines its results.
    """
    folder = run_stage(runs, key, reporter(quiet), None if device is None else resolve_device(device))
    if json:
        print_json({"kind": folder.parent.name, "key": folder.name, "folder": str(folder)})
        return
    print_out(str(folder))
