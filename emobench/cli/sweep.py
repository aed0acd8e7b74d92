"""`emobench sweep`: many models, objectives, settings and seeds from one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from emobench.cli import options
from emobench.cli.options.request import BudgetOptions, SweepOptions, takes_groups
from emobench.cli.terminal.console import print_json, print_out, print_table, reporter
from emobench.cli.terminal.streams import remark
from emobench.core.errors import ConfigError, RunError
from emobench.models.device import AUTO, Place
from emobench.runs.dry_run.make_outline import Read, make_outline
from emobench.runs.dry_run.outline import DONE
from emobench.runs.execution.clusters import cluster_of
from emobench.runs.planning.estimate import duration
from emobench.runs.sweep import RowStatus, Sweep, SweepResult, differing_settings, read_sweep, run_sweep, status_of

app = typer.Typer(help="Sweeps over models, objectives, settings and seeds: run, status.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(metavar="SWEEP.toml", help="The file of the sweep.", show_default=False)]
STATES = ("done", "begun", "failed", "to do")
SHOWN_FIRST = ("failed", "begun", "to do")
SHOWN = 100
"""Rows of a table, and failures, that are shown: a terminal has no use for ten thousand."""
REASON = 300
"""Characters of the reason of a failure in a table."""


@app.callback()
def group() -> None:
    """Sweeps over models, objectives, settings and seeds: run, status."""


@app.command()
@takes_groups
def run(
    file: File,
    loading: SweepOptions,
    budget: BudgetOptions,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            help="A cluster whose nodes see this folder of runs: ray or slurm, with parameters of Ray's tasks or of "
            'submitit, such as "slurm(partition=gpu, timeout_min=600)". --processes: stages at once.',
            show_default=False,
        ),
    ] = None,
    runs: options.Runs = options.DEFAULT_RUNS,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    dry_run: options.DryRun = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run each cell of a file of a sweep, and record the entries.

    The default is one process on each GPU, or one on the CPU. What fails is listed at the end with its reason, and
    stops nothing else. Cells are stages: the same command again makes what is missing, and two sweeps never make the
    same one.
    """
    sweep, places = _sweep(file, loading, runs, leaderboard, max_memory=budget.memory)
    if dry_run:
        _show_plan(sweep, len(places), json)
        return
    start = None
    if on is not None:
        first = sweep.requests[0]
        cluster = cluster_of(on, runs=runs, device=first.device, processes=loading.processes, memory=budget.memory)
        places, start = cluster.places, cluster.start
    with budget.in_time():
        budget.check_tokens(sweep.requests)
        result = run_sweep(sweep, places, reporter(quiet), start)
    _show_result(result, json)
    if result.failed:
        raise RunError(
            f"{len(result.failed)} of {len(result.failed) + len(result.entries)} entries failed; give the same command "
            "again to try them once more."
        )
    if not quiet:
        remark(f"recorded in {leaderboard}; `emobench leaderboard show` shows the tables.")


@app.command()
def status(file: File, runs: options.Runs = options.DEFAULT_RUNS, json: options.Json = False) -> None:
    """Show what is done of a sweep, and what failed, without looking into anything: it may be running."""
    found = status_of(runs, read_sweep(file, options.DEFAULT_SUITE))
    if found is None:
        raise ConfigError(
            f"{runs} has no sweep of {file}; start it with `emobench sweep run {file}`, or give its folder with --runs."
        )
    if json:
        rows = [{**vars(one.row), "state": one.state, "made": one.made, "failed": one.failed} for one in found]
        print_json({"rows": rows})
        return
    _show_status(found)


def _sweep(file: Path, loading: SweepOptions, runs: Path, leaderboard: Path, **more: Any) -> tuple[Sweep, list[Place]]:
    fields, places = loading.placed()
    own: dict[str, Any] = {**fields, "runs": runs, "leaderboard": leaderboard, **more}
    if loading.dtype == AUTO:
        del own["dtype"]  # the file may give one
    return read_sweep(file, options.DEFAULT_SUITE, **own), places


def _show_plan(sweep: Sweep, processes: int, json: bool) -> None:
    """Print what each request comes to, as a dry run of it would."""
    read = Read()
    outlines = [make_outline(request, read=read) for request in sweep.requests]
    totals = [outline.totals() for outline in outlines]
    if json:
        plans = [{"command": r.command, "totals": t} for r, t in zip(sweep.requests, totals, strict=True)]
        print_json({"cells": sweep.cells, "requests": plans, "machine": outlines[0].machine.name})
        return
    rows = []
    differing = differing_settings(sweep.requests)
    for request, settings, outline, total in zip(sweep.requests, differing, outlines, totals, strict=True):
        states = Counter(line.state for line in outline.lines if line.stage in ("train", "evaluate"))
        done = f"{states[DONE]} of {sum(states.values())}"
        seeds = ", ".join(map(str, request.seeds)) or "of the suite"
        objectives = ", ".join(request.objectives) or "of the suite"
        rows.append(
            (", ".join(settings), request.model or "of the suite", objectives, seeds, done, duration(total.time))
        )
    print_table(
        f"cells: {sweep.cells}, runs: {len(rows)}, on {outlines[0].machine.name}",
        ("settings", "model", "objectives", "seeds", "finished", "rough time"),
        rows,
    )
    whole = sum(total.time for total in totals)
    share = f", and about {duration(whole / processes)} by {processes}" if processes > 1 else ""
    print_out("", f"In all about {duration(whole)} by one process{share}.")


def _show_result(result: SweepResult, json: bool) -> None:
    if json:
        failed = [{**vars(row), "reason": reason} for row, reason in result.failed]
        print_json({"entries": result.entries, "failed": failed})
        return
    if result.failed:
        rows = [(row.model, row.label, row.settings, _short(reason)) for row, reason in result.failed]
        print_table("failed", ("model", "objective", "settings", "reason"), rows, unbroken=("model", "objective"))


def _show_status(found: Sequence[RowStatus]) -> None:
    counts = Counter(one.state for one in found)
    title = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    print_out(f"{len(found)} entries: {title}")
    left = sorted((one for one in found if one.state != "done"), key=lambda one: SHOWN_FIRST.index(one.state))
    rows = [
        (one.row.model, one.row.label, one.row.settings, f"{one.made} of {len(one.row.stages)}", one.state)
        for one in left[:SHOWN]
    ]
    if rows:
        print_table("", ("model", "objective", "settings", "stages", "state"), rows)
    if len(left) > SHOWN:
        print_out(f"... and {len(left) - SHOWN:,} more; --json has all.")
    for one in left[:SHOWN]:
        if one.state == "failed":
            print_out("", f"{one.row.label}, {one.row.model}, {one.row.settings}:", _short(one.failed or ""))


def _short(reason: str) -> str:
    line = " ".join(reason.split())
    # The end of a traceback has the error.
    return line if len(line) <= REASON else f"{line[: REASON // 3]} ... {line[-2 * REASON // 3 :]}"
