"""`emobench leaderboard show`: tables of what may be compared."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emobench.cli import options
from emobench.cli.console import print_json, print_out
from emobench.errors import UnknownNameError

if TYPE_CHECKING:
    pass


def show(
    suite: Annotated[str | None, typer.Option("--suite", help="Only this suite.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="Only this model.")] = None,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
    markdown: Annotated[bool, typer.Option("--markdown", help="As Markdown.")] = False,
    json: options.Json = False,
) -> None:
    """Show the entries, grouped into tables of what may be compared."""
    print_board(leaderboard, runs, suite=suite, model=model, markdown=markdown, json=json)


def print_board(
    root: Path,
    runs: Path,
    *,
    suite: str | None = None,
    model: str | None = None,
    around: Collection[str] = (),
    markdown: bool = False,
    json: bool = False,
) -> None:
    """Print a board, or of it the tables around some entries' ids; files that are no entries are named on stderr."""
    from emobench.leaderboard import table
    from emobench.leaderboard.comparison import groups
    from emobench.leaderboard.examples import ExamplesReader
    from emobench.leaderboard.store import Leaderboard

    board = Leaderboard(root)
    everything = board.entries()
    entries = [e for e in everything if suite in (None, e.suite.name) and model in (None, e.model.name)]
    if everything and not entries:
        if suite not in (None, *(e.suite.name for e in everything)):
            raise UnknownNameError("entry of the suite", str(suite), {e.suite.name for e in everything})
        raise UnknownNameError("entry of the model", str(model), {e.model.name for e in everything})
    if around:
        entries = [e for group in groups(entries) if any(e.id in around for e in group) for e in group]
    for problem in board.problems:
        typer.echo(f"skipped: {problem}", err=True)
    examples = ExamplesReader(runs)
    if json:
        print_json(table.to_json(entries, examples))
    elif markdown:
        typer.echo(table.markdown(entries, examples), nl=False)
    else:
        print_out(table.render(entries, examples))
    for problem in examples.problems:
        typer.echo(f"without per-example results: {problem}", err=True)
