"""`emobench run`, its halves `train` and `evaluate`, and `stage run`: one stage of a run that was planned."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from emobench.cli import options
from emobench.cli.commands import OPTIONS_FILE
from emobench.cli.leaderboard.show import print_board
from emobench.cli.options.file import OptionsFile
from emobench.cli.options.groups import takes_groups
from emobench.cli.options.request import (
    BudgetOptions,
    CheckpointOptions,
    LaunchOptions,
    ParallelOptions,
    TuneOptions,
)
from emobench.cli.terminal.console import print_json, print_out, print_table, reporter
from emobench.cli.terminal.streams import remark
from emobench.core.errors import ConfigError
from emobench.core.settings import PRETRAINED
from emobench.exchange.model_repo import check_name, send, upload_command, write_repo
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.query.newest import newest_first
from emobench.models.catalog import CATALOG
from emobench.models.device import MPS, MPS_NOTE, Place, default_places, resolve_device
from emobench.registry import DEFAULT_RECIPE
from emobench.report.baseline import default_baseline
from emobench.runs.dry_run import (
    Outline,
    advised,
    grouped,
    make_evaluation_outline,
    make_outline,
    require_short,
    time_parts,
)
from emobench.runs.execution.launch import JoinedLaunch, Launch
from emobench.runs.execution.reporter import Reporter
from emobench.runs.planning.plan import Plan, Planner, make_plan
from emobench.runs.planning.request import Request, RequestFields, declared_fields
from emobench.runs.run import evaluate_plan, require_one_model, run_plan, run_stage, train_plan, trained_model
from emobench.runs.tuned import run_tuned, tuned_outline

stage = typer.Typer(help="Stages of a run: run one by its key.", no_args_is_help=True)


@dataclass(frozen=True, kw_only=True)
class StartOptions(BudgetOptions):
    """Whether and how trainings start."""

    dry_run: options.DryRun = False
    probe: options.Probe = False
    json: options.Json = False
    quiet: options.Quiet = False


@takes_groups
def run(
    context: typer.Context,
    training: LaunchOptions,
    start: StartOptions,
    tuning: TuneOptions,
    options_file: OptionsFile = None,
    suite: options.Suite = options.DEFAULT_SUITE,
    limit: options.Limit = None,
    leaderboard: options.OwnBoard = options.DEFAULT_BOARD,
    track: options.Trackers = None,
    push: options.Push = None,
) -> None:
    """Train with each objective, evaluate, and record.

    Each objective becomes one leaderboard entry over its seeds. `--objective pretrained` adds the model without
    training. The default is a tiny model on a synthetic language with a known distribution, with the objectives of the
    EMO paper. A TOML file has options by the same names, and settings in a table [set]. If a run was stopped, give the
    same command again: it continues where it stopped.
    """
    command = shlex.join(["emobench", "run", *context.meta[OPTIONS_FILE]])
    fields = {"suite": suite, "limit": limit, "leaderboard": leaderboard, "trackers": track or [], "command": command}
    search = tuning.search()
    if search:
        if push is not None or training.launch is not None or start.probe:
            raise ConfigError("--tune makes several trainings, each in one process; drop --push, --launch and --probe.")
        entries = _run_tuned(training, start, {**fields, **search})
        _show_entries(leaderboard, training.runs, entries, json=start.json, quiet=start.quiet)
        return
    with ExitStack() as stack:
        planned = _planned(stack, training, start, fields)
        if planned is None:  # nothing is left to do, as after a dry run
            return
        _check_push(planned[0], push)
        entries = run_plan(*planned)
    _show_entries(leaderboard, training.runs, entries, json=start.json, quiet=start.quiet)
    _push(planned[0], entries, push)


def _run_tuned(training: LaunchOptions, start: StartOptions, fields: RequestFields) -> list[Entry]:
    """Tune, choose and test within the limits of the budget; return the entries, none after a dry run."""
    places = training.places(training.device) or default_places(training.device)
    request = replace(training, device=places[0].device).training(**fields, max_memory=start.memory)
    request = replace(request, asked_device=training.device)  # the default places are not asked for
    if start.dry_run:
        show_outline(advised(request, tuned_outline), start.json)
        raise typer.Exit
    require_short(request, tuned_outline)
    with start.in_time():
        start.check_tokens([request])
        return run_tuned([request], places, reporter(start.quiet))


@takes_groups
def train(
    training: LaunchOptions,
    start: StartOptions,
    recipe: Annotated[str, typer.Option("--recipe", help="The recipe: how to train.")] = DEFAULT_RECIPE,
    track: options.Trackers = None,
) -> None:
    """Train only, and print the folder of each model."""
    if PRETRAINED in (training.objective or ()):
        raise ConfigError(
            f"--objective {PRETRAINED} trains nothing; use `emobench evaluate` to score an untrained model."
        )
    fields = {"recipe": recipe, "trackers": track or []}
    with ExitStack() as stack:
        planned = _planned(stack, training, start, fields)
        if planned is None:
            return
        trained = train_plan(*planned)
    rows = []
    for done, folder in trained:
        rows.append({"objective": str(done.objective.objective), "seed": done.seed, "model": str(folder)})
    if start.json:
        print_json({"trained": rows})
        return
    for row in rows:
        print_out(f"{row['objective']}, seed {row['seed']}: {row['model']}")


@takes_groups
def evaluate(
    training: ParallelOptions,
    checkpoint: CheckpointOptions,
    suite: options.Suite = options.DEFAULT_SUITE,
    limit: options.Limit = None,
    leaderboard: options.OwnBoard = options.DEFAULT_BOARD,
    rescore: Annotated[
        bool,
        typer.Option(
            "--rescore", help="Compute the metrics of texts that were generated before. Nothing is generated."
        ),
    ] = False,
    push: options.Push = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Evaluate models without training them.

    Without --objective, the model itself is evaluated. It is recorded as `pretrained`, in the same tables as the models
    trained from it. With --objective, the models that `emobench train` trained are evaluated. With --trained-with, the
    model is a checkpoint of another program, which is compared with checkpoints of the same base and --recipe-name.
    With --rescore, texts that were generated before are scored again, for example with --set mauve.seeds=[5,6,7]; give
    the options of the run.
    """
    declared = declared_fields(
        training.objective or (), checkpoint.from_, checkpoint.trained_with, checkpoint.recipe_name
    )
    if not declared["objectives"]:
        if training.seed:
            raise ConfigError(
                "--seed is the seed of a training, and an untrained model has none; add --objective NAME, or "
                "--trained-with NAME for a checkpoint of another program."
            )
        declared["objectives"] = (PRETRAINED,)
    if dry_run and rescore:
        raise ConfigError(
            "--dry-run shows unfinished stages, and --rescore repeats finished ones; give only one of these options."
        )
    request, places = training.planned(suite=suite, limit=limit, leaderboard=leaderboard, **declared)
    if places and rescore:
        raise ConfigError("--rescore runs in one process; drop --devices and --processes.")
    if dry_run:
        show_outline(advised(request, make_evaluation_outline), json)
        return
    plan = make_plan(request) if rescore else short_plan(request, make_evaluation_outline)
    _check_push(plan, push)
    entries = evaluate_plan(plan, reporter(quiet), places, rescore=rescore)
    _show_entries(leaderboard, training.runs, entries, json=json, quiet=quiet)
    _push(plan, entries, push)


def _check_push(plan: Plan, repo: str | None) -> None:
    """Raise ConfigError for a --push of anything but one trained model, before it is trained."""
    if repo is not None:
        check_name(repo)
        require_one_model(plan)


def _push(plan: Plan, entries: list[Entry], repo: str | None) -> None:
    """Write the files of --push to a folder, and send them unless the plan is offline."""
    if repo is None:
        return
    seed, model = trained_model(plan)
    (entry,) = [entry for entry in entries if not entry.untrained]
    folder = plan.request.runs / "pushed" / f"{entry.id}-{seed}"
    write_repo(entry, seed, model, folder)
    if plan.request.offline:
        remark(f"Written and not sent, because of --offline: {folder}. Send it with: {upload_command(folder, repo)}")
    else:
        remark(f"sent to {send(folder, repo)}, from {folder}")


@stage.callback()
def group() -> None:
    """Stages of a run: run one by its key."""


@stage.command("run")
def stage_run(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Its key, or enough of its first digits.")],
    runs: options.Runs = options.DEFAULT_RUNS,
    device: Annotated[
        str | None,
        typer.Option("--device", help="A device other than the planned one, such as cuda:1."),
    ] = None,
    objective: Annotated[
        list[str] | None,
        typer.Option("--objective", help="The objective's file, if the plan has one: ./mine.py:MyLoss. It is run."),
    ] = None,
    trust_remote_code: options.TrustRemoteCode = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run a stage, such as a training, with the stages that it needs, and print its folder.

    A run writes each of its stages to RUNS/planned/KEY.json before it starts, so that another process, or a machine
    with the same folders, can run it. It is planned again from there, and run only if its key is the same: the key is
    the hash of all that determines its results. Python code that the plan names is run only if you name it again.
    """
    if device is not None:
        device = resolve_device(device)
    trusted = objective or ()
    folder = run_stage(runs, key, reporter(quiet), device, objectives=trusted, trust_remote_code=trust_remote_code)
    if json:
        print_json({"kind": folder.parent.name, "key": folder.name, "folder": str(folder)})
    else:
        print_out(str(folder))


def _planned(
    stack: ExitStack, training: LaunchOptions, start: StartOptions, fields: RequestFields
) -> tuple[Plan, Reporter, list[Place], Launch | None] | None:
    """Return what `run` and `train` work with, within the limits of the budget; `fields` are further ones of a request.

    None if a dry run was shown, or if this process has trained for the leading one of its launch.
    """
    if start.probe and not start.dry_run:
        raise ConfigError("--probe estimates what a run takes; add --dry-run, or drop --probe to start it.")
    launch = training.launched()
    if isinstance(launch, JoinedLaunch):
        stack.enter_context(launch)
        if launch.follows(training.runs):
            return None
    request, places = training.planned(**fields, max_memory=start.memory)
    if launch is not None:
        places = []  # its processes train one model together
    shown = reporter(start.quiet)
    if start.dry_run:
        timed = partial(time_parts, reporter=shown) if start.probe else None
        show_outline(advised(request, partial(make_outline, timed=timed)), start.json)
        return None
    stack.enter_context(start.in_time())
    plan = short_plan(request, make_outline)
    start.check_tokens([request])
    return plan, shown, places, launch


def short_plan(request: Request, outline_of: Callable[..., Outline]) -> Plan:
    """Return the plan of a request; one that is too long for a CPU is refused before anything is downloaded.

    The size of a model outside of the catalog comes from its configuration, which the plan downloads.
    """
    planner = Planner(request)
    outline_of = partial(outline_of, planner=planner)
    require_short(request, outline_of)
    plan = planner.plan()
    if plan.model.source.kind == "hub" and plan.model.name not in CATALOG:
        require_short(request, outline_of)
    if request.device == MPS:
        remark(MPS_NOTE)
    return plan


def show_outline(outline: Outline, json: bool) -> None:
    """Print a dry run. Its times are for one process."""
    if json:
        plain = {
            "plan": outline.lines,
            "totals": outline.totals(),
            "machine": outline.machine.name,
            "verdicts": outline.verdicts,
            "notes": outline.notes(),
        }
        print_json(plain)
        return
    rows = [(line.stage, line.what, line.amount, line.estimate, line.state) for line in grouped(outline)]
    print_table(outline.title, ("stage", "what", "amount", "rough estimate", "state"), rows)
    print_out("", *outline.notes())


def _show_entries(board: Path, runs: Path, entries: list[Entry], *, json: bool, quiet: bool) -> None:
    """Show the tables of the entries that a command recorded, and the next commands."""
    if json:
        print_json({"entries": entries, "leaderboard": str(board)})
        return
    trained: dict[str, None] = {}
    for entry in entries:
        if not entry.untrained and not entry.declared:
            trained[entry.objective.name] = None
    printed = print_board(board, runs, around={entry.id for entry in entries})
    if quiet:
        return
    places: list[str] = []
    if board != options.DEFAULT_BOARD:
        places += ["--leaderboard", str(board)]
    if runs != options.DEFAULT_RUNS:
        places += ["--runs", str(runs)]
    commands = [["leaderboard", "site", "pages", "--open"]]
    group = newest_first(printed)[0]
    usual = default_baseline(group)
    labels = {entry.objective.label: entry.objective.name == usual for entry in group}
    if len(labels) > 1:
        commands.append(["compare", *sorted(labels, key=lambda label: labels[label]), "--suite", entries[0].suite.name])
    if trained:
        commands.append(["curves", *trained])
    remark(f"recorded in {board}; see also:")
    for words in commands:
        remark(f"  {shlex.join(['emobench', *words, *places])}")
