"""`emobench leaderboard import`: results of other tools on a board."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emobench.cli import options
from emobench.cli.terminal.console import print_json, print_out
from emobench.cli.terminal.streams import remark
from emobench.core.errors import DataError, UserError
from emobench.core.settings import PRETRAINED
from emobench.exchange.results_import import Imported, ImportedModel, find_results, import_each, import_results
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.labels import clean
from emobench.leaderboard.store import Leaderboard

SHOWN = 5
"""Metrics that could not be taken, named in a line; the entry has them all."""


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="A results_*.json of lm_eval, a JSON log of inspect, a record of Every Eval Ever, or a folder.",
        ),
    ],
    objective: Annotated[
        str,
        typer.Option(
            "--objective", help="The objective that the model was trained with; pretrained is a model without training."
        ),
    ] = PRETRAINED,
    model: Annotated[
        str | None, typer.Option("--model", help="The model that it was trained from. Default: the name in the file.")
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(
            "--seed", help="The seed of that training. Repeat it, once for each file, and the files become one entry."
        ),
    ] = None,
    renamed: Annotated[
        bool, typer.Option("--renamed", help="Rename results that are on the board under another name.")
    ] = False,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
    json: options.Json = False,
) -> None:
    """Record results of lm-evaluation-harness, inspect and Every Eval Ever.

    Each file becomes an entry of kind `imported`, or one seed of an entry (--seed). The samples in the same folder, or
    in the log, become its per-example results. A file that is already on the board adds nothing.
    """
    subject, board = ImportedModel(model, objective, tuple(seed or ())), Leaderboard(leaderboard)
    paths: list[Path] = []
    found: list[tuple[str, Imported]] = []
    problems: list[str] = []
    for given in files:
        try:
            paths += find_results(given)
        except UserError as error:
            problems.append(clean(str(error)))
    for group in import_each(paths, subject) if paths else ():
        try:
            done = import_results(group, board, runs, subject, renamed=renamed)
            found.append((_named(group, done.entry), done))
        except UserError as error:
            problems.append(clean(str(error)))
    for name, done in found:
        for note in _notes(done):
            remark(clean(f"{name}: {note}"))
    if json:
        print_json({"entries": [done.entry for _, done in found], "added": sum(done.added for _, done in found)})
    else:
        for name, done in found:
            print_out(clean(f"{name}: {_outcome(done)}"))
    if problems:
        raise DataError("\n".join(problems))


def _named(paths: list[Path], entry: Entry) -> str:
    seeds = ", ".join(map(str, entry.seeds))
    return str(paths[0]) if len(paths) == 1 else f"{len(paths)} files, seeds {seeds}"


def _outcome(done: Imported) -> str:
    amount = f"{len(done.entry.metrics)} metrics, {done.paired} with per-example results"
    if not done.added:
        return f"on the board already as {done.entry.id} ({amount})"
    old = done.replaced
    place = "" if old is None else f", in the place of {old.id} ({old.objective.label})"
    return f"imported as {done.entry.id}{place} ({amount})"


def _notes(done: Imported) -> list[str]:
    """Return what could not be taken, and why."""
    notes = list(done.notes)
    if missing := done.entry.missing:
        shown = [f"{name} ({why})" for name, why in missing.items()][:SHOWN]
        more = f", and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        notes.insert(0, f"not taken: {', '.join(shown)}{more}")
    return notes
