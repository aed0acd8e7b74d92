"""`emobench samples` and `emobench figures`: what models wrote, next to the human texts, and as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from emobench.cli import options
from emobench.cli.terminal.console import print_json, print_lines, print_out, visible
from emobench.cli.terminal.streams import remark
from emobench.leaderboard.boards import boards_of
from emobench.leaderboard.pack import PROMPTS
from emobench.runs.inspect.recorded_runs import newest_of
from emobench.runs.inspect.samples import SideBySide, has_texts, headings, side_by_side

END = "∎"
"""Stands where a model ended its text before the full length."""


def samples(
    entry: options.EntriesOrNewest = None,
    task: options.Tasks = None,
    count: Annotated[int, typer.Option("--count", min=1, help="The largest number of prompts of each task.")] = 5,
    seed: options.Seed = None,
    sample: Annotated[int, typer.Option("--sample", min=0, help="The number of the continuation, from 0.")] = 0,
    prompt: Annotated[str | None, typer.Option("--prompt", help="Only prompts whose id begins with this text.")] = None,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
    json: options.Json = False,
) -> None:
    """Show generated texts and human texts side by side.

    All entries are shown for the same prompts. If an objective has several entries, the newest one is shown. ↵ is a
    line break of the text; ∎ is an end that the model generated. Without the runs, a packed board has the texts of the
    first prompts, without prefixes and human texts.
    """
    entry = entry or []
    boards, tasks = boards_of(entry, leaderboard), task or ()
    entries, notes = newest_of(entry, leaderboard, lambda one: has_texts(one, runs, tasks, seed, boards))
    tables = side_by_side(entries, runs, tasks, boards=boards, seed=seed, sample=sample, prompt=prompt, count=count)
    if json:
        print_json({"samples": tables})
        return
    print_lines(*notes)
    for table in tables:
        _print(table)


def _print(table: SideBySide) -> None:
    """Print a task's prompts, a row each: columns share the width, so that prefix and texts stand side by side."""
    first = table.writers[0]
    title = [table.task, first.suite, first.model, f"sample {table.sample}"]
    title.append(f"{len(table.rows)} of {min(writer.prompts for writer in table.writers)} prompts")
    print_lines("", visible(" · ".join(title)))
    shown = Table(box=box.HORIZONTALS, show_lines=True, expand=True, pad_edge=False)
    shown.add_column("prefix", ratio=2, overflow="fold")
    shown.add_column("human", ratio=3, overflow="fold")
    for heading in headings(table.writers):
        shown.add_column(Text(heading), ratio=3, overflow="fold")
    for row in table.rows:
        cells = [Text().append(f"{visible(row['prompt'])}\n", style="dim").append(_text(row["prefix"]))]
        cells.append(_text(row["human"]))
        for one in row["generated"]:
            cell, preferred = _text(one["text"]), one["preferred"]
            if one["ended"]:
                cell.append(END, style="dim")
            if preferred is not None:
                winner = "this one" if preferred > 0.5 else "the human text"
                cell.append(f"\njudge: {'a tie' if preferred == 0.5 else winner}", style="dim")
            cells.append(cell)
        shown.add_row(*cells)
    print_out(shown)
    if any(writer.shortened for writer in table.writers):
        print_lines(
            f"A packed board has generated texts of the first {PROMPTS} prompts at most, and no texts of data sets. It "
            f"does not tell where a model ended its text ({END})."
        )


def _text(text: str | None) -> Text:
    """Return a text with its line breaks, which are marked; nothing else in it moves a terminal's cursor."""
    if text is None:
        return Text("not available", style="dim")
    shown = Text()
    for number, line in enumerate(text.strip(" ").split("\n")):
        if number:
            shown.append("↵\n", style="dim")
        shown.append(visible(line))
    return shown


def figures(
    entry: options.EntriesOrNewest = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="A folder, or one file: FILE.pdf, FILE.svg or FILE.png. Default: .figures, next to the entry.",
        ),
    ] = None,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
    json: options.Json = False,
) -> None:
    """Draw the figures of entries.

    Each figure has a panel for each task: divergence curves of MAUVE, lengths of human and generated continuations,
    entropies, and forward against reverse cross-entropy (Figure 2 of the EMO paper). They are written as PNG and SVG
    into a folder, or all into one file. If an objective has several entries, the newest one is drawn. A packed board
    has no divergence curves, and lengths of the first prompts alone.
    """
    from emobench.runs.inspect.figures import can_draw, draw, pictures_folder

    entry = entry or []
    boards = boards_of(entry, leaderboard)
    entries, notes = newest_of(entry, leaderboard, lambda one: can_draw(one, runs, boards))
    drawn = draw(entries, runs, out or pictures_folder(entries, leaderboard), boards)
    if json:
        print_json({"files": list(map(str, drawn.files)), "notes": drawn.notes})
        return
    print_lines(*notes, *map(str, drawn.files))
    for note in drawn.notes:
        remark(f"not drawn: {note}")
