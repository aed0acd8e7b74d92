"""`emobench prompts`: exactly what the model sees of a task, and how each label scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.text import Text

from emobench.cli import options
from emobench.cli.options.request import PlanningOptions, takes_groups
from emobench.cli.terminal.console import print_json, print_lines, print_table, reporter, visible
from emobench.kinds.views import ShownPrompt
from emobench.report.numbers import LOSS_PLACES, percent, plain
from emobench.runs.inspect.prompts import ShownRow, ShownTask, show_prompts, show_training_rows

STYLES = {"BOS": "dim", "header": "dim", "input": "green", "label": "bold magenta"}
SHOTS = ("cyan", "blue")
"""Of odd and even shots."""
NEWLINE = "↵"
"""Marks a newline of the prompt; other line breaks are the terminal's."""


@takes_groups
def prompts(
    task: Annotated[
        str,
        typer.Argument(help="A task of kind icl, such as trec. With --train: a suite or a recipe.", show_default=False),
    ],
    planning: PlanningOptions,
    count: Annotated[int, typer.Option("--count", min=1, help="The number of test examples, from the first one.")] = 1,
    example: Annotated[
        list[str] | None,
        typer.Option("--example", help="Show the test example whose id begins with this text instead. Repeatable."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="An alias, a folder, or a hub id. Default: that of the task's suite.")
    ] = None,
    train: Annotated[
        bool, typer.Option("--train", help="Show the first training rows of a recipe on conversations instead.")
    ] = False,
    protocol: options.Protocol = None,
    limit: options.Limit = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show the prompts of a classification task, token by token.

    Each prompt is shown with the right label, and with the loss of each label. The parts of a prompt are named at the
    left, and coloured in a terminal; every second token is underlined. Shot 1 is the most similar one.
    """
    request = planning.request(suite=task, model=model, protocol=protocol, limit=limit)
    if train:
        rows = show_training_rows(request, task, count=count)
        if json:
            print_json(rows)
            return
        for row in rows:
            _print_row(row)
        return
    shown = show_prompts(request, task, count=count, ids=example or (), reporter=reporter(quiet))
    if json:
        print_json(shown)
        return
    for prompt in shown.prompts:
        _print(shown, prompt)


def _print_row(row: ShownRow) -> None:
    counted = sum(token.loss for token in row.tokens)
    title = f"{row.recipe} · {row.where} · {len(row.tokens)} tokens, {counted} with loss, {row.cut} cut off"
    print_lines(title if row.weight == 1 else f"{title} · weight {row.weight:g}")
    cells = [(str(i), str(t.id), repr(t.text), "loss" if t.loss else "") for i, t in enumerate(row.tokens)]
    print_table("", ("place", "id", "token", ""), cells)


def _print(shown: ShownTask, prompt: ShownPrompt) -> None:
    title = [f"{shown.task} {prompt.id}", f"{shown.protocol} with {shown.model}", f"{prompt.tokens} tokens"]
    if prompt.dropped:
        title.append(f"too long, without its {prompt.dropped} least similar shots")
    if prompt.cut:
        title.append(f"too long, without the last {prompt.cut} tokens of its longest label's prompt")
    print_lines(" · ".join(title), "", *_lines(prompt), "")
    shots = [f"{place}. {identity} ({label})" for place, (identity, label) in enumerate(prompt.shots, 1)]
    print_lines(*([f"shots: {', '.join(shots)}"] if shots else []))
    print_lines(f"first ids: {' '.join(map(str, prompt.first_ids))}", "")
    rows = [
        (
            x.name,
            x.text,
            plain(x.loss, shown.unit, LOSS_PLACES),
            percent(x.posterior),
            str(x.tokens),
            _verdict(prompt, x.name),
        )
        for x in prompt.labels
    ]
    print_table("", ("class", "label", f"loss ({shown.unit})", "posterior", "tokens", ""), rows)
    print_lines(posterior_line(shown.unit, "each label"), "")


def posterior_line(unit: str, whose: str) -> str:
    """Return what a posterior is, and why it can contradict an answer by losses of this unit."""
    line = f"posterior: the probability of {whose} by the summed losses (softmax over the labels)."
    if unit == "nats":
        return line
    differ = " The answer is by the mean loss, so that the two can differ"
    return f"{line}{differ}: under the rule `prompt`, longer labels' prompts are divided by more tokens."


def _verdict(prompt: ShownPrompt, name: str) -> str:
    answered = f"answer{' (a tie)' if prompt.tied else ''}" if name == prompt.answer else ""
    return ", ".join(filter(None, [answered, "right" if name == prompt.right else ""]))


def _lines(prompt: ShownPrompt) -> Iterator[Text]:
    """Yield a line for each line of each part, with the part's name at the left of its first one."""
    width = max(len(piece.part) for piece in prompt.pieces)

    def begun(part: str) -> Text:
        return Text().append(f"{part:>{width}} | ", style="dim")

    line, part, count, full = begun(""), "", 0, False
    for piece in prompt.pieces:
        if piece.part != part:
            if full:
                yield line
            part, line, full = piece.part, begun(piece.part), False
        count += piece.token is not None
        style = f"{_style(part)}{' underline' if count % 2 else ''}"
        for number, chunk in enumerate(piece.text.split("\n")):
            if number:
                yield line.append(NEWLINE, style="dim")
                line, full = begun(""), False
            if chunk:
                line, full = line.append(visible(chunk), style=style), True
    if full:
        yield line


def _style(part: str) -> str:
    shot = part.removeprefix("shot ")
    return SHOTS[int(shot) % len(SHOTS)] if shot != part else STYLES[part]
