"""`emobench figures`: pictures of what models wrote, as PNG and SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emobench.cli import options
from emobench.cli.terminal.console import print_json, print_lines
from emobench.cli.terminal.streams import remark
from emobench.runs.inspect.figures import can_draw, draw, pictures_folder
from emobench.runs.inspect.recorded_runs import newest_of, notes_of


def figures(
    entry: options.Entries,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The folder to write the pictures to. Default: .figures, next to the entry."),
    ] = None,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
    json: options.Json = False,
) -> None:
    """Draw the figures of entries.

    Each figure has a panel for each task: divergence curves of MAUVE, lengths of human and generated continuations,
    entropies, and forward against reverse cross-entropy (Figure 2 of the EMO paper). Each is written as PNG and as SVG.
    If an objective has several entries, the newest one is drawn. A packed board has no divergence curves, and lengths
    of the first prompts alone.
    """
    named = newest_of(entry, leaderboard, lambda one: can_draw(one, runs, [leaderboard]))
    entries = [one.entry for one in named]
    drawn = draw(entries, runs, out or pictures_folder(entries, leaderboard), [leaderboard])
    if json:
        print_json({"files": [str(path) for path in drawn.files], "notes": drawn.notes})
        return
    print_lines(*notes_of(named), *map(str, drawn.files))
    for note in drawn.notes:
        remark(f"not drawn: {note}")
