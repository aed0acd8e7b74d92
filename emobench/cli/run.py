"""`emobench run`, and its halves `train` and `evaluate`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from emobench.cli import options
from emobench.cli.console import print_json, print_out, print_table, remark, reporter
from emobench.cli.leaderboard.show import print_board
from emobench.config import PRETRAINED, parse_overrides
from emobench.errors import ConfigError
from emobench.leaderboard.schema.entry import Entry
from emobench.models.catalog import CATALOG
from emobench.models.device import resolve_device
from emobench.pipeline.dry_run.grouping import grouped
from emobench.pipeline.dry_run.long_runs import advised, require_short
from emobench.pipeline.dry_run.make_outline import make_evaluation_outline, make_outline
from emobench.pipeline.dry_run.outline import Outline
from emobench.pipeline.planning.make_plan import make_plan
from emobench.pipeline.planning.plan import Plan
from emobench.pipeline.planning.request import Request
from emobench.pipeline.run import evaluate_plan, run_plan, train_plan


def run(
    objective: options.Objectives = None,
    model: options.Model = None,
    suite: options.Suite = options.DEFAULT_SUITE,
    seed: options.Seeds = None,
    set_: options.Set = None,
    limit: options.Limit = None,
    data_dir: options.DataDirs = None,
    runs: options.Runs = options.DEFAULT_RUNS,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    offline: options.Offline = False,
    device: options.Device = options.DEFAULT_DEVICE,
    dtype: options.Dtype = "float32",
    from_scratch: options.FromScratch = False,
    trust_remote_code: options.RemoteCode = False,
    track: options.Trackers = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train with each objective, evaluate, and record.

    Each objective becomes one leaderboard entry over its seeds. `--objective pretrained` adds the model without
    training. The default is a tiny model on a synthetic language with a known distribution, with the objectives of the
    EMO paper. If a run was stopped, give the same command again: it continues where it stopped.
    """
    request = request_of(
        suite=suite,
        objectives=objective,
        model=model,
        seeds=seed,
        settings=set_,
        data_dirs=data_dir,
        runs=runs,
        offline=offline,
        device=device,
        dtype=dtype,
        from_scratch=from_scratch,
        trust_remote_code=trust_remote_code,
        limit=limit,
        leaderboard=leaderboard,
        trackers=track,
    )
    if dry_run:
        _show(request, json)
    else:
        _record(request, json=json, quiet=quiet)


def train(
    objective: options.Objectives = None,
    model: options.Model = None,
    recipe: Annotated[str, typer.Option("--recipe", help="The recipe: how to train.")] = "lm-finetune",
    seed: options.Seeds = None,
    set_: options.Set = None,
    data_dir: options.DataDirs = None,
    runs: options.Runs = options.DEFAULT_RUNS,
    offline: options.Offline = False,
    device: options.Device = options.DEFAULT_DEVICE,
    dtype: options.Dtype = "float32",
    from_scratch: options.FromScratch = False,
    trust_remote_code: options.RemoteCode = False,
    track: options.Trackers = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train only, and print the folder of each model."""
    if PRETRAINED in (objective or ()):
        raise ConfigError(
            f"--objective {PRETRAINED} trains nothing; use `emobench evaluate` to score a model as it is."
        )
    request = request_of(
        recipe=recipe,
        objectives=objective,
        model=model,
        seeds=seed,
        settings=set_,
        data_dirs=data_dir,
        runs=runs,
        offline=offline,
        device=device,
        dtype=dtype,
        from_scratch=from_scratch,
        trust_remote_code=trust_remote_code,
        trackers=track,
    )
    if dry_run:
        _show(request, json)
        return
    plan = _short_plan(request)
    found = train_plan(plan, reporter(quiet))
    rows = [{"objective": str(t.objective.objective), "seed": t.seed, "model": str(folder)} for t, folder in found]
    if json:
        print_json({"trained": rows})
        return
    for row in rows:
        print_out(f"{row['objective']}, seed {row['seed']}: {row['model']}")


def evaluate(
    objective: options.Objectives = None,
    model: options.Model = None,
    suite: options.Suite = options.DEFAULT_SUITE,
    seed: options.Seeds = None,
    set_: options.Set = None,
    limit: options.Limit = None,
    data_dir: options.DataDirs = None,
    runs: options.Runs = options.DEFAULT_RUNS,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    offline: options.Offline = False,
    device: options.Device = options.DEFAULT_DEVICE,
    dtype: options.Dtype = "float32",
    from_scratch: options.FromScratch = False,
    trust_remote_code: options.RemoteCode = False,
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
    if seed and not objective:
        raise ConfigError("--seed is the seed of a training, and a model as it is has none; add --objective NAME.")
    if dry_run and rescore:
        raise ConfigError("--dry-run shows what is not finished, and --rescore does what is; give one of them.")
    request = request_of(
        suite=suite,
        objectives=objective or [PRETRAINED],
        model=model,
        seeds=seed,
        settings=set_,
        data_dirs=data_dir,
        runs=runs,
        offline=offline,
        device=device,
        dtype=dtype,
        from_scratch=from_scratch,
        trust_remote_code=trust_remote_code,
        limit=limit,
        leaderboard=leaderboard,
    )
    if dry_run:
        _show(request, json, evaluates=True)
    else:
        _record(request, json=json, quiet=quiet, evaluates=True, rescore=rescore)


def _record(request: Request, *, json: bool, quiet: bool, evaluates: bool = False, rescore: bool = False) -> None:
    """Do what `run` and `evaluate` share: make the plan's entries, and show them."""
    plan = make_plan(request) if rescore else _short_plan(request, evaluates=evaluates)
    began = datetime.now(UTC)
    told = reporter(quiet)
    entries = evaluate_plan(plan, told, rescore=rescore) if evaluates else run_plan(plan, told)
    if json:
        print_json({"entries": entries, "leaderboard": str(request.leaderboard)})
        return
    print_board(request.leaderboard, request.runs, around={entry.id for entry in entries})
    if not quiet:
        remark(_where(request.leaderboard, request.runs, entries, began))


def request_of(
    *,
    model: str | None,
    seeds: Sequence[int] | None,
    settings: Sequence[str] | None,
    data_dirs: Sequence[Path] | None,
    runs: Path,
    offline: bool,
    device: str,
    dtype: Any,
    trust_remote_code: bool,
    suite: str | None = None,
    recipe: str | None = None,
    objectives: Sequence[str] | None = None,
    stand_ins: Mapping[str, str] | None = None,
    limit: int | None = None,
    leaderboard: Path | None = None,
    from_scratch: bool = False,
    trackers: Sequence[str] | None = None,
) -> Request:
    """Return what a command's options ask for."""
    if offline:
        # Read by huggingface_hub when it is imported, which is later.
        os.environ["HF_HUB_OFFLINE"] = "1"
    _require_one_process()
    return Request(
        suite=suite,
        recipe=recipe,
        objectives=tuple(objectives or ()),
        model=model,
        stand_ins=stand_ins or {},
        seeds=tuple(seeds or ()),
        settings=parse_overrides(settings or ()),
        limit=limit,
        data_dirs=tuple(data_dirs or ()),
        runs=runs,
        leaderboard=leaderboard or Path(),
        offline=offline,
        device=resolve_device(device),
        asked_device=device,
        dtype=dtype,
        from_scratch=from_scratch,
        trust_remote_code=trust_remote_code,
        trackers=tuple(trackers or ()),
        command=shlex.join(["emobench", *sys.argv[1:]]),
    )


def _require_one_process() -> None:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            "The command line trains in one process, and torchrun started several. Give each objective or seed its own "
            "command and GPU (--device cuda:0, cuda:1, ...): they share finished stages and the leaderboard."
        )


def _short_plan(request: Request, *, evaluates: bool = False) -> Plan:
    """Return the plan of a request; one that is too long for a CPU is refused before anything is downloaded.

    How large a model is that the catalog has not, is known when its configuration is here, which the plan downloads.
    """
    outline_of = make_evaluation_outline if evaluates else make_outline
    require_short(request, outline_of)
    plan = make_plan(request)
    if plan.model.source.kind == "hub" and plan.model.name not in CATALOG:
        require_short(request, outline_of)
    return plan


def _show(request: Request, json: bool, *, evaluates: bool = False) -> None:
    show_outline(advised(request, make_evaluation_outline if evaluates else make_outline), json)


def show_outline(outline: Outline, json: bool) -> None:
    """Print a dry run."""
    if json:
        totals, machine = outline.totals(), outline.machine.name
        print_json({"plan": outline.lines, "totals": totals, "machine": machine, "notes": outline.notes()})
        return
    header = ("stage", "what", "amount", "rough estimate", "state")
    print_table(outline.title, header, [line.cells() for line in grouped(outline)])
    print_out("", *outline.notes())


def _where(board: Path, runs: Path, entries: list[Entry], began: datetime) -> str:
    """Say where the entries are, which of them were there before, and what shows more of them."""
    old = {e.id: e for e in entries if datetime.fromisoformat(e.provenance.created) < began.replace(microsecond=0)}
    count = len({entry.id for entry in entries} - old.keys())
    said = [f"recorded in {board} ({count} {'entry' if count == 1 else 'entries'})"] if count else []
    said += [f"on {board} before, with the same results: {_of_seeds(entry)}" for entry in old.values()]
    trained = [entry for entry in entries if not entry.untrained]
    names = list(dict.fromkeys(entry.objective.name for entry in trained))
    rows = [entry.objective.label if len(names) < len(trained) else entry.objective.name for entry in entries]
    on_board = () if board == options.DEFAULT_BOARD else ("--leaderboard", str(board))
    with_runs = () if runs == options.DEFAULT_RUNS else ("--runs", str(runs))
    hints = {}
    if len(set(rows)) > 1:  # the first one is the baseline
        hints["how sure the differences are"] = ["compare", *rows[1:], rows[0], *on_board, *with_runs]
    if names:
        hints["the trainings"] = ["curves", *names, *with_runs]
    hints["a page of the board"] = ["leaderboard", "site", "pages", "--open", *on_board, *with_runs]
    width = max(len(hint) for hint in hints) + 1
    return "\n".join(
        said + [f"{hint + ':':{width}} {shlex.join(['emobench', *words])}" for hint, words in hints.items()]
    )


def _of_seeds(entry: Entry) -> str:
    seeds = ", ".join(map(str, entry.seeds))
    said = f" of {'seed' if len(entry.seeds) == 1 else 'seeds'} {seeds}" if seeds else ""
    return f"{entry.objective.label}{said}"
