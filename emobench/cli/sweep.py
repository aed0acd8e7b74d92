"""`emobench sweep`: many models, objectives, settings and seeds from one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from emobench.cli import options
from emobench.cli.options.groups import takes_groups
from emobench.cli.options.request import BudgetOptions, SweepOptions
from emobench.cli.terminal.console import print_json, print_out, print_table, reporter
from emobench.cli.terminal.streams import remark
from emobench.core.errors import RunError
from emobench.models.device import AUTO
from emobench.runs.dry_run import DONE, Read
from emobench.runs.execution.clusters import cluster_of
from emobench.runs.planning.estimate import duration
from emobench.runs.sweep import Sweep, differing_settings, read_sweep, run_sweep, status_of
from emobench.runs.tuned import run_tuned, tuned_outline

app = typer.Typer(help="Sweeps over models, objectives, settings and seeds: run, status.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(metavar="SWEEP.toml", help="The file of the sweep.")]
SHOWN_FIRST = ("failed", "begun", "to do")
SHOWN = 100
"""Rows of a table, and failures, that are shown: a terminal has no use for ten thousand."""
REASON = 300
"""Characters of the reason of a failure in a table."""


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
        ),
    ] = None,
    runs: options.Runs = options.DEFAULT_RUNS,
    leaderboard: options.OwnBoard = options.DEFAULT_BOARD,
    dry_run: options.DryRun = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run each cell of a file of a sweep, and record the entries.

    The default is one process on each GPU, or one on the CPU. Failures are listed at the end with their
    reasons, and do not stop the rest. Cells are stages: the same command again runs the missing ones, and two sweeps
    never run the same one.
    """
    fields, places = loading.placed()
    given: dict[str, Any] = {**fields, "runs": runs, "leaderboard": leaderboard, "max_memory": budget.memory}
    if loading.dtype == AUTO:
        del given["dtype"]  # the file may give one
    sweep = read_sweep(file, options.DEFAULT_SUITE, **given)
    if dry_run:
        _show_plan(sweep, json)
        return
    start = None
    if on is not None:
        device = sweep.requests[0].device
        places, start = cluster_of(on, runs=runs, device=device, processes=loading.processes, memory=budget.memory)
    with budget.in_time():
        budget.check_tokens(sweep.requests)
        if sweep.requests[0].search is not None:
            entries, failed = run_tuned(sweep.requests, places, reporter(quiet), start), []
        else:
            entries, failed = run_sweep(sweep, places, reporter(quiet), start)
    if json:
        unmade = [{**vars(row), "reason": reason} for row, reason in failed]
        print_json({"entries": entries, "failed": unmade})
    elif failed:
        rows = [(row.model, row.label, row.settings, _short(reason)) for row, reason in failed]
        print_table("failed", ("model", "objective", "settings", "reason"), rows, unbroken=("model", "objective"))
    if failed:
        raise RunError(
            f"{len(failed)} of {len(failed) + len(entries)} entries failed; give the same command again to try "
            "them once more."
        )
    if not quiet:
        remark(f"recorded in {leaderboard}; `emobench leaderboard show` shows the tables.")


@app.command()
def status(file: File, runs: options.Runs = options.DEFAULT_RUNS, json: options.Json = False) -> None:
    """Show the finished and failed cells of a sweep, which may be running."""
    rows = status_of(runs, read_sweep(file, options.DEFAULT_SUITE))
    if json:
        print_json({"rows": rows})
    else:
        _show_status(rows)


def _show_plan(sweep: Sweep, json: bool) -> None:
    """Print the totals of each request's dry run."""
    read, plans, rows, machine = Read(), [], [], ""
    for request, settings in zip(sweep.requests, differing_settings(sweep.requests), strict=True):
        outline = tuned_outline(request, read=read)
        totals, machine = outline.totals(), outline.machine.name
        plans.append({"command": request.command, "totals": totals})
        states = Counter(line.state for line in outline.lines if line.stage in ("train", "evaluate"))
        done = f"{states[DONE]} of {sum(states.values())}"
        seeds = ", ".join(map(str, request.seeds))
        model = request.model or "of the suite"
        rows.append((", ".join(settings), model, ", ".join(request.objectives), seeds, done, duration(totals.time)))
    if json:
        print_json({"cells": sweep.cells, "requests": plans, "machine": machine})
        return
    header = ("settings", "model", "objectives", "seeds", "finished", "rough time")
    print_table(f"cells: {sweep.cells}, runs: {len(rows)}, on {machine}", header, rows)


def _show_status(rows: Sequence[dict[str, Any]]) -> None:
    counts = Counter(row["state"] for row in rows)
    states = [f"{count} {state}" for state, count in sorted(counts.items())]
    print_out(f"{len(rows)} entries: {', '.join(states)}")
    left = [row for row in rows if row["state"] != "done"]
    left.sort(key=lambda row: SHOWN_FIRST.index(row["state"]))
    cells = []
    for row in left[:SHOWN]:
        made, why = f"{row['made']} of {len(row['stages'])}", _short(row["failed"] or "")
        cells.append((row["model"], row["label"], row["settings"], made, row["state"], why))
    if cells:
        print_table("", ("model", "objective", "settings", "stages", "state", "reason"), cells)
    if len(left) > SHOWN:
        print_out(f"... and {len(left) - SHOWN:,} more; --json has all.")


def _short(reason: str) -> str:
    line = " ".join(reason.split())
    # The end of a traceback has the error.
    return line if len(line) <= REASON else f"{line[: REASON // 3]} ... {line[-2 * REASON // 3 :]}"
