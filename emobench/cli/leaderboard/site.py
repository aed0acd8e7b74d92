"""`emobench leaderboard site`: boards as web pages that need no server and no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from emobench.cli import options
from emobench.cli.leaderboard.recorded_objectives import recorded_objective
from emobench.cli.terminal.reports import remark_unpaired
from emobench.cli.terminal.streams import print_text, remark
from emobench.core.extras import require
from emobench.kinds.views import WrittenText
from emobench.leaderboard.entry import Entry, Run
from emobench.leaderboard.run_files import ExamplesReader
from emobench.leaderboard.store import Leaderboard, published_root
from emobench.report.site.build import Board, write_site
from emobench.report.site.runs import RunFiles
from emobench.training.curves import mean_curve, read_curves


def site(
    out: Annotated[Path, typer.Argument(help="The folder to write the pages to.")],
    leaderboard: Annotated[
        list[Path] | None,
        typer.Option(
            "--leaderboard",
            help=f"A board's folder. Repeatable. Default: {options.DEFAULT_BOARD}, and the papers' own numbers.",
            show_default=False,
        ),
    ] = None,
    runs: options.Runs = options.DEFAULT_RUNS,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="The baseline of the differences when the page opens.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the pages in the browser.")] = False,
) -> None:
    """Write each board as one web page."""
    require("itables")
    boards = []
    roots = leaderboard or [options.DEFAULT_BOARD, published_root()]
    for root in roots:
        found = Leaderboard(root)
        if leaderboard:
            found.require_folder()
        entries = found.entries()
        # A page is published: it names files, and not where this machine has them.
        problems = tuple(problem.replace(f"{root}/", "") for problem in found.problems)
        boards.append(Board(name=root.resolve().name, entries=entries, problems=problems))
        for problem in found.problems:
            remark(f"skipped: {problem}")
        if not entries:
            remark(found.without_entries())
    examples = ExamplesReader(runs, roots)
    files = RunFiles(runs, _read_curves, mean_curve, roots, lambda entry, run: _texts(entry, run, runs))
    page, *pages = write_site(boards, out, examples, files, baseline, recorded_objective)
    remark_unpaired(examples.problems)
    remark(*(f"the board {board.name}: {of_board}" for board, of_board in zip(boards, pages, strict=True)))
    print_text(str(page))
    if open_:
        typer.launch(page.resolve().as_uri())


def _texts(entry: Entry, run: Run, runs: Path) -> Mapping[str, Sequence[WrittenText]]:
    from emobench.runs.inspect.recorded_runs import texts_of  # with the kinds of task comes torch

    return texts_of(entry, run, runs)


def _read_curves(path: Path) -> Mapping[str, Mapping[int, float]]:
    return read_curves(path.parent).curves
