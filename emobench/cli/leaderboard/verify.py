"""`emobench leaderboard verify`: whether a board is whole, and what to do where it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emobench.cli import options
from emobench.cli.console import print_json, print_text, reporter
from emobench.leaderboard.store.board import Leaderboard
from emobench.leaderboard.store.verify import verify as check


def verify(
    board: Annotated[
        list[Path] | None,
        typer.Argument(
            help=f"Folders of entries. Default: {options.DEFAULT_BOARD}.", show_default=False, callback=options.holdable
        ),
    ] = None,
    leaderboard: Annotated[
        list[Path] | None,
        typer.Option("--leaderboard", help="The same as the argument. Repeatable.", callback=options.holdable),
    ] = None,
    runs: options.Runs = options.DEFAULT_RUNS,
    entries_only: Annotated[
        bool,
        typer.Option(
            "--entries-only", help="Do not check the files that entries name. Use it if the runs are elsewhere."
        ),
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Check every entry, and the files of its runs.

    Each problem is one line, and the exit code is then 1. Entries are checked against their hash and the schema, and
    the per-example results, step logs and samples that they name against their digests. Entries that supersede a
    missing one, and files that a stopped write left, are problems, too.
    """
    folders = [*(board or []), *(leaderboard or [])] or [options.DEFAULT_BOARD]
    boards = [Leaderboard(folder) for folder in folders]
    for found in boards:
        found.require_folder()
    results = []
    for found in boards:
        with reporter(quiet).work(f"verify {found.root}", "files") as progress:
            count, findings = check(found, None if entries_only else runs, progress)
        results.append({"board": str(found.root), "entries": count, "findings": findings})
    if json:
        print_json({"boards": results})
    for result in [] if json else results:
        for finding in result["findings"]:
            print_text(finding.text)
        print_text(_summary(result["board"], result["entries"], len(result["findings"])))
    if any(result["findings"] for result in results):
        raise typer.Exit(1)


def _summary(board: str, entries: int, wrong: int) -> str:
    counted = "1 entry" if entries == 1 else f"{entries:,} entries"
    found = "nothing wrong" if not wrong else "1 thing wrong" if wrong == 1 else f"{wrong:,} things wrong"
    return f"{board}: {counted}, {found}."
