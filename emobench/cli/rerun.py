"""`emobench rerun`: an entry is run again from its own record, and its numbers are compared."""

from __future__ import annotations

import shlex
from dataclasses import replace
from json import dumps
from typing import Annotated

import typer

from emobench.cli import options
from emobench.cli.options.request import LoadingOptions
from emobench.cli.run import short_plan, show_outline
from emobench.cli.terminal.console import print_json, print_out, print_table, reporter
from emobench.cli.terminal.streams import remark
from emobench.core.errors import ConfigError
from emobench.core.files import write_whole
from emobench.core.settings import parse_overrides, to_plain
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.query.rows import select
from emobench.reproduce.rerun import (
    BOARD,
    COMPARED,
    agreements,
    differences_of,
    new_folder_of,
    request_of,
    require_recorded,
    run_keys,
)
from emobench.runs.dry_run import advised, make_outline
from emobench.runs.planning.plan import Plan, make_plan
from emobench.runs.planning.request import Request
from emobench.runs.run import run_plan

DIGITS = 6


def rerun(
    entry: Annotated[str, typer.Argument(metavar="ENTRY", help=options.ENTRY)],
    model: Annotated[
        str | None,
        typer.Option(
            "--model", help="The present place of the model. It is refused if its digest is not the recorded one."
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option("--objective", help="The present place of the objective, if it is from a file: ./mine.py:MyLoss."),
    ] = None,
    suite: Annotated[
        str | None, typer.Option("--suite", help="The present place of the suite, if it is a file: ./mine.yaml.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="A folder that a rule names, such as mauve.featurizer=FOLDER. Repeatable."),
    ] = None,
    data_dir: options.DataDirs = None,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
    reuse: Annotated[
        bool,
        typer.Option("--reuse", help="Use finished stages of --runs again. Default: everything is computed again."),
    ] = False,
    offline: options.Offline = False,
    device: options.Device = options.DEFAULT_DEVICE,
    trust_remote_code: options.TrustRemoteCode = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run an entry again, and compare its numbers.

    The suite, protocols and changed rules, model, recipe, seeds and objective come from the record of the entry.
    Differences here, such as packages or data, are listed before it starts. The rerun has its own runs and board, in
    RUNS/rerun/, and the board of the entry does not change. At the end, each metric agrees exactly, but for float
    rounding, or not; if anything differs here, also within the entry's own standard deviation over seeds. The exit code
    is 1 if a metric does not agree.
    """
    entries = select(entry, leaderboard)
    if len(entries) > 1:
        ids = ", ".join(one.id for one in entries)
        raise ConfigError(f"{entry} names {len(entries)} entries ({ids}); give the id of one.")
    (recorded,) = entries
    loading = LoadingOptions(offline=offline, device=device, trust_remote_code=trust_remote_code)
    settings = parse_overrides(set_ or [])
    command = shlex.join(["emobench", "rerun", recorded.id])
    given = Request(
        suite=suite or recorded.suite.name,
        model=model,
        objectives=(objective,) if objective else (),
        settings=settings,
        data_dirs=tuple(data_dir or ()),
        runs=runs,
        command=command,
        **loading.loading(),
    )
    folder = new_folder_of(recorded, runs)
    request = replace(request_of(recorded, given), runs=runs if reuse else folder, leaderboard=folder / BOARD)
    plan = make_plan(request, look=True) if dry_run else short_plan(request, make_outline)
    require_recorded(recorded, plan)
    differences = differences_of(recorded, plan)
    if dry_run or not quiet:  # on stderr: stdout is for a document or for the tables below
        remark(*_difference_lines(recorded, plan, differences))
    if dry_run:
        show_outline(advised(request, make_outline), json)
        return
    (again,) = run_plan(plan, reporter(quiet))
    compared = agreements(recorded, again)
    wrong = [one for one in compared if not one.expected(elsewhere=bool(differences))]
    result = {"entry": recorded.id, "rerun": again.id, "differences": differences, "metrics": to_plain(compared)}
    text = dumps(result, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(folder / COMPARED, text, "The comparison", "Free space, and give the same command again.")
    if json:
        print_json({**result, "agrees": not wrong})
    else:
        rows = []
        for one in compared:
            row = [one.metric]
            for value in (one.recorded, one.rerun, one.difference, one.std):
                row.append("" if value is None else f"{value:.{DIGITS}g}")
            rows.append([*row, one.verdict])
        print_table("", ("metric", "recorded", "rerun", "difference", "sd over seeds", "agrees"), rows)
        board = shlex.quote(str(folder / BOARD))
        print_out(
            "",
            f"{len(compared) - len(wrong)} of {len(compared)} metrics of {recorded.id} agree. Its entry is {again.id}: "
            f"emobench leaderboard show --leaderboard {board}",
        )
    if wrong:
        raise typer.Exit(1)


def _difference_lines(entry: Entry, plan: Plan, differences: list[str]) -> list[str]:
    keys, other = run_keys(plan), ""
    if keys is not None and keys != [run.key for run in entry.runs]:
        other = ", and its runs have other keys"
    about = f"{entry.id}: {entry.objective.label} on {entry.suite}, recorded {entry.provenance.created[:10]}"
    lines = [f"{about}; {len(differences) or 'nothing'} different here{other}."]
    for line in differences:
        lines.append(f"  {line}")
    return lines
