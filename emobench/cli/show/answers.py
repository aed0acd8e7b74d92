"""`emobench prompts` and `emobench answers`: what a model sees of a task, what it answers, and where it is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer
from rich.text import Text

from emobench.cli import options
from emobench.cli.options.groups import takes_groups
from emobench.cli.options.request import PlanningOptions
from emobench.cli.terminal.console import print_json, print_lines, print_table, reporter, visible
from emobench.kinds.views import ShownPrompt
from emobench.leaderboard.labels import clean, listed
from emobench.report.numbers import LOSS_PLACES, percent, plain
from emobench.runs.inspect.answers import FoundAnswers, answered_tasks, find_answers, pooled, worst
from emobench.runs.inspect.prompts import ShownRow, ShownTask, show_prompts, show_training_rows
from emobench.runs.inspect.recorded_runs import newest_of

STYLES = {"BOS": "dim", "header": "dim", "input": "green", "label": "bold magenta"}
SHOTS = ("cyan", "blue")
"""Of odd and even shots."""
NEWLINE = "↵"
"""Marks a newline of the prompt; other line breaks are the terminal's."""
POSTERIOR = "posterior: the probability of {} by the summed losses (softmax over the labels)."
MEAN_LOSS = (
    " The answer is by the mean loss, so that the two can differ: under the rule `prompt`, longer labels' prompts are "
    "divided by more tokens."
)


@takes_groups
def prompts(
    task: Annotated[
        str,
        typer.Argument(help="A task of kind icl, such as trec. With --train: a suite or a recipe."),
    ],
    planning: PlanningOptions,
    count: Annotated[int, typer.Option("--count", min=1, help="The number of test examples, from the first one.")] = 1,
    example: Annotated[
        list[str] | None,
        typer.Option("--example", help="Show the test example whose id begins with this text instead. Repeatable."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="An alias, a folder, or a hub id. Default: the model of the task's suite."),
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
        _print_prompt(shown, prompt)


def _print_row(row: ShownRow) -> None:
    counted = sum(token.loss for token in row.tokens)
    title = f"{row.recipe} · {row.where} · {len(row.tokens)} tokens, {counted} with loss, {row.cut} cut off"
    print_lines(title if row.weight == 1 else f"{title} · weight {row.weight}")
    cells = []
    for place, token in enumerate(row.tokens):
        cells.append((str(place), str(token.id), repr(token.text), "loss" if token.loss else ""))
    print_table("", ("place", "id", "token", ""), cells)


def _print_prompt(shown: ShownTask, prompt: ShownPrompt) -> None:
    title = [f"{shown.task} {prompt.id}", f"{shown.protocol} with {shown.model}", f"{prompt.tokens} tokens"]
    if prompt.dropped:
        title.append(f"too long, without its {prompt.dropped} least similar shots")
    if prompt.cut:
        title.append(f"too long, without the last {prompt.cut} tokens of its longest label's prompt")
    print_lines(" · ".join(title), "", *_lines(prompt), "")
    if prompt.shots:
        shots = []
        for place, (identity, label) in enumerate(prompt.shots, 1):
            shots.append(f"{place}. {identity} ({label})")
        print_lines(f"shots: {', '.join(shots)}")
    print_lines(f"first ids: {' '.join(map(str, prompt.first_ids))}", "")
    rows = []
    for label in prompt.labels:
        verdict = []
        if label.name == prompt.answer:
            verdict.append("answer (a tie)" if prompt.tied else "answer")
        if label.name == prompt.right:
            verdict.append("right")
        loss, posterior = plain(label.loss, shown.unit, LOSS_PLACES), percent(label.posterior)
        rows.append((label.name, label.text, loss, posterior, str(label.tokens), ", ".join(verdict)))
    print_table("", ("class", "label", f"loss ({shown.unit})", "posterior", "tokens", ""), rows)
    print_lines(_posterior_line(shown.unit, "each label"), "")


def _posterior_line(unit: str, whose: str) -> str:
    """Return what a posterior is, and why it can contradict an answer by losses of this unit."""
    line = POSTERIOR.format(whose)
    return line if unit == "nats" else line + MEAN_LOSS


def _lines(prompt: ShownPrompt) -> Iterator[Text]:
    """Yield a line for each line of each part, with the part's name at the left of its first one."""
    width = max(len(piece.part) for piece in prompt.pieces)
    line, part, count, empty = Text(), "", 0, True
    for piece in prompt.pieces:
        if piece.part != part:
            if not empty:
                yield line
            part, empty = piece.part, True
            line = Text().append(f"{part:>{width}} | ", style="dim")
        count += piece.token is not None
        shot = part.removeprefix("shot ")
        style = STYLES[part] if shot == part else SHOTS[int(shot) % len(SHOTS)]
        style += " underline" if count % 2 else ""
        for number, chunk in enumerate(piece.text.split("\n")):
            if number:
                yield line.append(NEWLINE, style="dim")
                line, empty = Text().append(f"{'':>{width}} | ", style="dim"), True
            if chunk:
                line, empty = line.append(visible(chunk), style=style), False
    if not empty:
        yield line


def answers(
    entry: Annotated[str, typer.Argument(help=options.ENTRY)],
    task: options.Tasks = None,
    worst: Annotated[
        int, typer.Option("--worst", min=0, help="The number of mistakes to show: those with the largest margin.")
    ] = 5,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
    json: options.Json = False,
) -> None:
    """Show the answers behind an entry's accuracies.

    It prints scores of each class, the confusion matrix and the worst mistakes. A row is a right class; the columns
    after F1 count the answers. The seeds of an entry are pooled; --json has the answers of each seed. If several
    entries match, the newest one is shown.
    """
    wanted = set(task or ())
    (chosen,), notes = newest_of([entry], leaderboard, lambda one: bool(wanted & answered_tasks(one) or not wanted))
    seeds = find_answers(chosen, runs, task or ())
    if json:
        print_json({"answers": seeds})
        return
    print_lines(*notes)
    by_task: dict[str, list[FoundAnswers]] = {}
    for one in seeds:
        by_task.setdefault(one.task, []).append(one)
    for of_task in by_task.values():
        _print_answers(of_task, worst)


def _print_answers(seeds: Sequence[FoundAnswers], count: int) -> None:
    """Print the answers of an entry's seeds to one task."""
    table, one = pooled(seeds), seeds[0]
    rows = table["examples"]
    title = [one.task, one.suite, one.model, f"{one.objective} [{one.entry[:6]}]"]
    if len(seeds) > 1:
        title.append(f"{len(seeds)} seeds pooled")
    elif one.seed is not None:
        title.append(f"seed {one.seed}")
    right = 0
    given = set()
    for row in rows:
        right += row["right"] == row["answer"]
        given.add(row["answer"])
    title += [f"{len(rows)} examples", f"accuracy {percent(right / len(rows))}"]
    if table["tied"]:
        title.append(f"ties: {table['tied']}")
    of_one = one.table  # prompts are the same for all seeds
    if of_one["shortened"]:
        lost = [row["id"] for row in of_one["examples"] if row["dropped"]]
        title.append(f"shots lost by prompts that were too long: {of_one['dropped_shots']} ({listed(lost, 3)})")
    if of_one.get("cut"):
        title.append(f"prompts that were too long and cut at the end: {of_one['cut']}")
    print_lines(clean(" · ".join(title)))
    classes = []
    for row, counts in zip(table["per_class"], table["confusion"], strict=True):
        # Without an example of the class, an F1 says nothing of it.
        f1 = row["f1"] if row["support"] else None
        shares = map(percent, [row["precision"], row["recall"], f1])
        classes.append((clean(row["name"]), str(row["support"]), *shares, *map(str, counts)))
    answered = [f"→ {clean(name)}" for name in table["classes"]]
    print_table("", ("class", "n", "precision", "recall", "F1", *answered), classes)
    groups = []
    for row in table["per_group"]:
        groups.append((clean(row["name"]), str(row["n"]), percent(row["accuracy"])))
    if groups:
        print_table("", ("group", "n", "accuracy"), groups)
    if len(given) == 1:
        print_lines(f"Every answer is {clean(given.pop())}.")
    mistakes = worst(seeds, count)
    if mistakes:
        _print_mistakes(mistakes, table["unit"], several=len(seeds) > 1)
    print_lines("")


def _print_mistakes(mistakes: Sequence[tuple[FoundAnswers, dict[str, Any]]], unit: str, *, several: bool) -> None:
    header = ["worst mistakes", "right", "answer", f"margin ({unit})", "posterior"]
    if several:
        header.append("seed")
    rows = []
    for one, row in mistakes:
        margin, posterior = plain(row["margin"], unit, LOSS_PLACES), percent(row["confidence"])
        cells = [row["id"], clean(row["right"]), clean(row["answer"]), margin, posterior, str(one.seed)]
        rows.append(cells[: len(header)])
    print_lines("")
    print_table("", header, rows, unbroken=header[:1])
    print_lines(_posterior_line(unit, "the answer given"))
    first, row = mistakes[0]
    print_lines(f"See the first with: {first.prompts} --example {row['id']}")
    print_lines(*(f"({remark})" for remark in first.remarks))
