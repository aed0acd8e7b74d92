"""`emobench leaderboard verify`: whether a board is whole, and what to do where it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emobench.cli import options
from emobench.cli.terminal.console import print_json, reporter
from emobench.cli.terminal.streams import print_text
from emobench.leaderboard.store import Leaderboard
from emobench.leaderboard.verify import verify as check


def verify(
    leaderboard: Annotated[
        list[Path] | None,
        typer.Option(
            "--leaderboard", help=f"A board's folder. Repeatable. Default: {options.DEFAULT_BOARD}.", show_default=False
        ),
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
    boards = [Leaderboard(folder) for folder in leaderboard or [options.DEFAULT_BOARD]]
    for board in boards:
        board.require_folder()
    results = []
    for board in boards:
        with reporter(quiet).work(f"verify {board.root}", "files") as progress:
            count, findings = check(board, None if entries_only else runs, progress)
        results.append({"board": str(board.root), "entries": count, "findings": findings})
        if not json:
            for finding in findings:
                print_text(finding.text)
            counted = "1 entry" if count == 1 else f"{count:,} entries"
            wrong = "1 thing" if len(findings) == 1 else f"{len(findings):,} things" if findings else "nothing"
            print_text(f"{board.root}: {counted}, {wrong} wrong.")
    if json:
        print_json({"boards": results})
    if any(result["findings"] for result in results):
        raise typer.Exit(1)
