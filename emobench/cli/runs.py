"""`emobench runs`: the stages in the folder of runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from emobench.cli import options
from emobench.cli.terminal.console import print_json, print_out, print_table
from emobench.core.errors import ConfigError
from emobench.runs.inspect import stored
from emobench.runs.inspect.stored import StoredStage

app = typer.Typer(help="Stages on disk: list, prune.", no_args_is_help=True)


@app.command("list")
def list_(
    runs: options.Runs = options.DEFAULT_RUNS, leaderboard: options.Boards = None, json: options.Json = False
) -> None:
    """List the stages on disk with their sizes, and the entries or sweeps that need them."""
    stages = stored.stored_stages(runs, leaderboard or [options.DEFAULT_BOARD])
    if json:
        print_json({"stages": stages})
        return
    _show(f"{len(stages)} stages in {runs}, {_size(stages)}", stages)


@app.command()
def prune(
    runs: options.Runs = options.DEFAULT_RUNS,
    leaderboard: options.Boards = None,
    unfinished: Annotated[
        bool,
        typer.Option(
            "--unfinished",
            help="Also delete unfinished stages, and trainings without an evaluation.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted, and stop.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete the stages that no entry and no sweep needs.

    Give every board with entries of these runs. What several runs share, such as vectors and a judge's replies, stays.
    """
    stored.require_idle(runs, unfinished=unfinished)
    stages = stored.stored_stages(runs, leaderboard or [options.DEFAULT_BOARD], unfinished=unfinished)
    unneeded = [stage for stage in stages if not stage.needed_by]
    _show(f"{len(unneeded)} of {len(stages)} stages in {runs} are not needed: {_size(unneeded)}", unneeded)
    if dry_run or not unneeded:
        return
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError("There is no terminal to confirm the deletion of these stages. Add --yes.")
        typer.confirm("Delete them?", abort=True, err=True)
    stored.prune(runs, unneeded)
    print_out(f"Freed {_size(unneeded)}.")


def _show(title: str, stages: Sequence[StoredStage]) -> None:
    rows = []
    for stage in stages:
        user, *others = stage.needed_by or ["nothing"]
        if others:
            user += f" and {len(others)} more"
        rows.append((stage.stage, _size([stage]), user))
    print_out(title)
    if rows:
        print_table("", ("stage", "size", "needed by"), rows)


def _size(stages: Sequence[StoredStage]) -> str:
    size = sum(stage.bytes for stage in stages)
    return f"{size / 1e6:,.2f} MB"
