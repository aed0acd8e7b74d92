"""`emobench run`, its halves `train` and `evaluate`, and `stage run`: one stage of a run that was planned."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from emobench.cli import options
from emobench.cli.leaderboard.show import print_board
from emobench.cli.options.request import BudgetOptions, LaunchOptions, ParallelOptions, takes_groups
from emobench.cli.terminal.console import print_json, print_out, print_table, reporter
from emobench.cli.terminal.streams import remark
from emobench.core.errors import ConfigError
from emobench.core.settings import PRETRAINED
from emobench.leaderboard.entry import Entry
from emobench.models.catalog import CATALOG
from emobench.models.device import resolve_device
from emobench.registry import DEFAULT_RECIPE
from emobench.runs.dry_run.make_outline import make_evaluation_outline, make_outline
from emobench.runs.dry_run.outline import Outline, advised, grouped, require_short
from emobench.runs.execution.launch import Launch
from emobench.runs.planning.make_plan import Planner, make_plan
from emobench.runs.planning.plan import Plan
from emobench.runs.planning.request import Request
from emobench.runs.probe import time_parts
from emobench.runs.run import evaluate_plan, run_plan, run_stage, train_plan

stage = typer.Typer(help="Stages of a run: run one by its key.", no_args_is_help=True)


@takes_groups
def run(
    training: LaunchOptions,
    budget: BudgetOptions,
    suite: options.Suite = options.DEFAULT_SUITE,
    limit: options.Limit = None,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    track: options.Trackers = None,
    dry_run: options.DryRun = False,
    probe: options.Probe = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train with each objective, evaluate, and record.

    Each objective becomes one leaderboard entry over its seeds. `--objective pretrained` adds the model without
    training. The default is a tiny model on a synthetic language with a known distribution, with the objectives of the
    EMO paper. If a run was stopped, give the same command again: it continues where it stopped.
    """
    require_dry_run(probe, dry_run)
    with together(training) as (launch, leads):
        if not leads:
            return
        own: dict[str, Any] = {"suite": suite, "limit": limit, "leaderboard": leaderboard, "trackers": track or []}
        request, places = training.planned(launch, **own, max_memory=budget.memory)
        if dry_run:
            outline = advised(
                request, partial(make_outline, timed=partial(time_parts, reporter=reporter(quiet)) if probe else None)
            )
            show_outline(outline, json, launch.size if launch else len(places))
            return
        with budget.in_time():
            began, plan = datetime.now(UTC), short_plan(request, make_outline)
            budget.check_tokens([request])
            entries = run_plan(plan, reporter(quiet), places, launch)
    _show_entries(request, entries, began, json=json, quiet=quiet)


@takes_groups
def train(
    training: LaunchOptions,
    budget: BudgetOptions,
    recipe: Annotated[str, typer.Option("--recipe", help="The recipe: how to train.")] = DEFAULT_RECIPE,
    track: options.Trackers = None,
    dry_run: options.DryRun = False,
    probe: options.Probe = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train only, and print the folder of each model."""
    if PRETRAINED in (training.objective or ()):
        raise ConfigError(
            f"--objective {PRETRAINED} trains nothing; use `emobench evaluate` to score a model as it is."
        )
    require_dry_run(probe, dry_run)
    with together(training) as (launch, leads):
        if not leads:
            return
        own: dict[str, Any] = {"recipe": recipe, "trackers": track or [], "max_memory": budget.memory}
        request, places = training.planned(launch, **own)
        if dry_run:
            outline = advised(
                request, partial(make_outline, timed=partial(time_parts, reporter=reporter(quiet)) if probe else None)
            )
            show_outline(outline, json, launch.size if launch else len(places))
            return
        with budget.in_time():
            plan = short_plan(request, make_outline)
            budget.check_tokens([request])
            found = train_plan(plan, reporter(quiet), places, launch)
    rows = [{"objective": str(t.objective.objective), "seed": t.seed, "model": str(folder)} for t, folder in found]
    if json:
        print_json({"trained": rows})
        return
    for row in rows:
        print_out(f"{row['objective']}, seed {row['seed']}: {row['model']}")


@takes_groups
def evaluate(
    training: ParallelOptions,
    suite: options.Suite = options.DEFAULT_SUITE,
    limit: options.Limit = None,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    rescore: Annotated[
        bool,
        typer.Option(
            "--rescore", help="Compute the metrics of texts that were generated before. Nothing is generated."
        ),
    ] = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Evaluate models without training them.

    Without --objective, the model itself is evaluated. It is recorded as `pretrained`, in the same tables as the models
    trained from it. With --objective, the models that `emobench train` trained are evaluated. With --rescore, texts
    that were generated before are scored again, for example with --set mauve.seeds=[5,6,7]; give the options of the
    run.
    """
    objectives = training.objective or [PRETRAINED]
    if training.seed and not training.objective:
        raise ConfigError("--seed is the seed of a training, and a model as it is has none; add --objective NAME.")
    if dry_run and rescore:
        raise ConfigError("--dry-run shows what is not finished, and --rescore does what is; give one of them.")
    request, places = training.planned(suite=suite, objectives=objectives, limit=limit, leaderboard=leaderboard)
    if places and rescore:
        raise ConfigError("--rescore runs in one process; drop --devices and --processes.")
    if dry_run:
        show_outline(advised(request, make_evaluation_outline), json, len(places))
        return
    began = datetime.now(UTC)
    plan = make_plan(request) if rescore else short_plan(request, make_evaluation_outline)
    entries = evaluate_plan(plan, reporter(quiet), places, rescore=rescore)
    _show_entries(request, entries, began, json=json, quiet=quiet)


@stage.callback()
def group() -> None:
    """Stages of a run: run one by its key."""


@stage.command("run")
def stage_run(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="Its key, or enough of its first digits.", show_default=False)
    ],
    runs: options.Runs = options.DEFAULT_RUNS,
    device: Annotated[
        str | None, typer.Option("--device", help="Another one than in the plan, such as cuda:1.", show_default=False)
    ] = None,
    objective: Annotated[
        list[str] | None,
        typer.Option("--objective", help="The objective's file, if the plan has one: ./mine.py:MyLoss. It is run."),
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Allow Python code of a hub model to run, if the plan has it.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Make a stage, such as a training, with what it needs, and print its folder.

    A run writes each of its stages to RUNS/planned/KEY.json before it starts, so that another process, or a machine
    that sees the same folders, can make it. It is planned again from there, and made only if its key is the same:
    a stage is the hash of all that determines its results. Python that the plan names is run only if you name it again.
    """
    folder = run_stage(
        runs,
        key,
        reporter(quiet),
        None if device is None else resolve_device(device),
        objectives=objective or (),
        trust_remote_code=trust_remote_code,
    )
    if json:
        print_json({"kind": folder.parent.name, "key": folder.name, "folder": str(folder)})
        return
    print_out(str(folder))


@contextmanager
def together(training: LaunchOptions) -> Iterator[tuple[Launch | None, bool]]:
    """Start or join the processes that train together, if there are any; give them, and whether this one leads them.

    One that does not has done its work: it has trained as the leading one said.
    """
    launch = training.launched()
    with launch or nullcontext():
        yield launch, launch is None or not launch.follows(training.runs)


def require_dry_run(probe: bool, dry_run: bool) -> None:
    """Raise ConfigError for a probe of what is then done in full."""
    if probe and not dry_run:
        raise ConfigError("--probe estimates what a run takes; add --dry-run, or drop --probe to start it.")


def short_plan(request: Request, outline_of: Callable[..., Outline]) -> Plan:
    """Return the plan of a request; one that is too long for a CPU is refused before anything is downloaded.

    How large a model is that the catalog has not, is known when its configuration is here, which the plan downloads.
    """
    planner = Planner(request)
    outline_of = partial(outline_of, planner=planner)
    require_short(request, outline_of)
    plan = planner.plan()
    if plan.model.source.kind == "hub" and plan.model.name not in CATALOG:
        require_short(request, outline_of)
    return plan


def show_outline(outline: Outline, json: bool, processes: int = 0) -> None:
    """Print a dry run, whose times are those of one process."""
    if json:
        totals, machine = outline.totals(), outline.machine.name
        found = {"plan": outline.lines, "totals": totals, "machine": machine, "verdicts": outline.verdicts}
        print_json({**found, "notes": outline.notes()})
        return
    header = ("stage", "what", "amount", "rough estimate", "state")
    print_table(outline.title, header, [line.cells() for line in grouped(outline)])
    several = [f"The times are those of one process; {processes} processes share the work."] if processes > 1 else []
    print_out("", *outline.notes(), *several)


def _show_entries(request: Request, entries: list[Entry], began: datetime, *, json: bool, quiet: bool) -> None:
    """Show the tables of the entries that a command made, and what to do next."""
    if json:
        print_json({"entries": entries, "leaderboard": str(request.leaderboard)})
        return
    print_board(request.leaderboard, request.runs, around={entry.id for entry in entries})
    if not quiet:
        remark(_where(request.leaderboard, request.runs, entries, began))


def _where(board: Path, runs: Path, entries: list[Entry], began: datetime) -> str:
    """Return where the entries are, which of them were there before, and what shows more of them."""
    old = {e.id: e for e in entries if datetime.fromisoformat(e.provenance.created) < began.replace(microsecond=0)}
    count = len({entry.id for entry in entries} - old.keys())
    lines = [f"recorded in {board} ({count} {'entry' if count == 1 else 'entries'})"] if count else []
    for entry in old.values():
        seeds = f" (seeds: {', '.join(map(str, entry.seeds))})" if entry.seeds else ""
        lines.append(f"on {board} before, with the same results: {entry.objective.label}{seeds}")
    trained = [entry for entry in entries if not entry.untrained]
    names = list(dict.fromkeys(entry.objective.name for entry in trained))
    rows = [entry.objective.label if len(names) < len(trained) else entry.objective.name for entry in entries]
    on_board = () if board == options.DEFAULT_BOARD else ("--leaderboard", str(board))
    with_runs = () if runs == options.DEFAULT_RUNS else ("--runs", str(runs))
    hints = []
    if len(set(rows)) > 1:  # the first one is the baseline
        compare = ["compare", *rows[1:], rows[0], "--suite", entries[0].suite.name]
        hints.append(("how sure the differences are", [*compare, *on_board, *with_runs]))
    if names:
        hints.append(("the trainings", ["curves", *names, *with_runs]))
    hints.append(("a page of the board", ["leaderboard", "site", "pages", "--open", *on_board, *with_runs]))
    width = max(len(hint) for hint, _ in hints) + 1
    return "\n".join(lines + [f"{f'{hint}:':{width}} {shlex.join(['emobench', *words])}" for hint, words in hints])
