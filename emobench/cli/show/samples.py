"""`emobench samples`: what models wrote after the same prefixes, next to the human texts."""

from __future__ import annotations

from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from emobench.cli import options
from emobench.cli.terminal.console import print_json, print_lines, print_out, visible
from emobench.leaderboard.pack import PROMPTS
from emobench.runs.inspect.recorded_runs import newest_of, notes_of
from emobench.runs.inspect.samples import SideBySide, Writer, has_texts, side_by_side

END = "∎"
"""Stands where a model ended its text before the full length."""


def samples(
    entry: options.Entries,
    task: options.Tasks = None,
    count: Annotated[int, typer.Option("--count", min=1, help="The largest number of prompts of each task.")] = 5,
    seed: Annotated[
        int | None, typer.Option("--seed", help="The training seed. Default: the entry's first seed.")
    ] = None,
    sample: Annotated[int, typer.Option("--sample", min=0, help="The number of the continuation, from 0.")] = 0,
    prompt: Annotated[str | None, typer.Option("--prompt", help="Only prompts whose id begins with this text.")] = None,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
    json: options.Json = False,
) -> None:
    """Show generated texts and human texts side by side.

    All entries are shown for the same prompts. If an objective has several entries, the newest one is shown. ↵ is a
    line break of the text; ∎ is an end that the model generated. Where the runs are not here, a packed board has the
    texts of the first prompts, without prefixes and human texts.
    """
    named = newest_of(entry, leaderboard, lambda one: has_texts(one, runs, task or (), seed, [leaderboard]))
    found = side_by_side(
        [one.entry for one in named],
        runs,
        task or (),
        boards=[leaderboard],
        seed=seed,
        sample=sample,
        prompt=prompt,
        count=count,
    )
    if json:
        print_json({"samples": found})
        return
    print_lines(*notes_of(named))
    for table in found:
        _print(table)


def _print(table: SideBySide) -> None:
    """Print a task's prompts, a row each: columns share the width, so that prefix and texts stand side by side."""
    first = table.writers[0]
    title = [table.task, first.suite, first.model, f"sample {table.sample}"]
    title.append(f"{len(table.rows)} of {min(writer.prompts for writer in table.writers)} prompts")
    print_lines("", visible(" · ".join(title)))
    shown = Table(box=box.HORIZONTALS, show_lines=True, expand=True, pad_edge=False)
    shown.add_column("prefix", ratio=2, overflow="fold")
    for name in ("human", *(_heading(writer, table.writers) for writer in table.writers)):
        shown.add_column(Text(name), ratio=3, overflow="fold")
    for row in table.rows:
        prefix = Text().append(f"{visible(row['prompt'])}\n", style="dim").append(_text(row["prefix"]))
        generated = (_text(one["text"], one["ended"]).append(_verdict(one["preferred"])) for one in row["generated"])
        shown.add_row(prefix, _text(row["human"]), *generated)
    print_out(shown)
    if any(writer.shortened for writer in table.writers):
        print_lines(
            f"A packed board has generated texts of the first {PROMPTS} prompts at most, and no texts of data sets. It "
            f"does not tell where a model ended its text ({END})."
        )


def _heading(writer: Writer, writers: tuple[Writer, ...]) -> str:
    model = f"{writer.model} " if len({one.model for one in writers}) > 1 else ""
    seed = "" if writer.seed is None else f", seed {writer.seed}"
    return visible(f"{model}{writer.objective} [{writer.entry[:6]}]{seed}")


def _verdict(preferred: float | None) -> Text:
    if preferred is None:
        return Text()
    name = "a tie" if preferred == 0.5 else "this one" if preferred > 0.5 else "the human text"
    return Text(f"\njudge: {name}", style="dim")


def _text(text: str | None, ended: bool | None = False) -> Text:
    """Return a text with its line breaks, which are marked; nothing else in it moves a terminal's cursor."""
    if text is None:
        return Text("not available", style="dim")
    shown = Text()
    for number, line in enumerate(text.strip(" ").split("\n")):
        if number:
            shown.append("↵\n", style="dim")
        shown.append(visible(line))
    return shown.append(END, style="dim") if ended else shown
