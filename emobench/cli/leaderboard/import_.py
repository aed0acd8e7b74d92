"""`emobench leaderboard import`: results of lm-evaluation-harness beside our own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emobench.cli import options
from emobench.cli.console import print_json, print_out
from emobench.config import PRETRAINED
from emobench.errors import DataError, UserError


def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="A results_*.json, or a folder of lm_eval --output_path.")
    ],
    objective: Annotated[
        str, typer.Option("--objective", help="What the model was trained with; pretrained is a model as it is.")
    ] = PRETRAINED,
    model: Annotated[
        str | None, typer.Option("--model", help="What it was trained from. Default: the name in the file.")
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option("--seed", help="The seed of that training. Repeated, one for each file: the files are one entry."),
    ] = None,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
    json: options.Json = False,
) -> None:
    """Record results files of lm_eval, each as an entry of kind `imported`, or as the seeds of one.

    The samples_*.jsonl beside them come along as per-example results. A file that is on the board adds nothing.
    """
    from emobench.leaderboard.exchange.lm_eval_entry import Subject
    from emobench.leaderboard.exchange.lm_eval_import import Imported, find_results, import_each, import_results
    from emobench.leaderboard.labels import clean
    from emobench.leaderboard.store import Leaderboard

    subject, board = Subject(model, objective, tuple(seed or ())), Leaderboard(leaderboard)
    paths: list[Path] = []
    found: list[tuple[Path, Imported]] = []
    problems: list[str] = []
    for given in files:
        try:
            paths += find_results(given)
        except UserError as error:
            problems.append(clean(str(error)))
    for group in import_each(paths, subject) if paths else ():
        try:
            found.append((group[0], import_results(group, board, runs, subject)))
        except UserError as error:
            problems.append(clean(str(error)))
    for path, done in found:
        for note in done.notes:
            typer.echo(clean(f"{path}: without per-example results: {note}"), err=True)
    if json:
        print_json({"entries": [done.entry for _, done in found], "added": sum(done.added for _, done in found)})
    else:
        for path, done in found:
            state = "imported as" if done.added else "on the board already as"
            amount = f"{len(done.entry.metrics)} metrics, {done.paired} with per-example results"
            print_out(clean(f"{path}: {state} {done.entry.id} ({amount})"))
    if problems:
        raise DataError("\n".join(problems))
