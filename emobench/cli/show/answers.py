"""`emobench answers`: what a model answered, class by class, and where it is most wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from emobench.cli import options
from emobench.cli.show.prompts import posterior_line
from emobench.cli.terminal.console import print_json, print_lines, print_table
from emobench.leaderboard.labels import clean
from emobench.leaderboard.query.rows import select
from emobench.report.numbers import LOSS_PLACES, percent, plain
from emobench.runs.inspect.answers import FoundAnswers, find_answers, pooled, worst


def answers(
    entry: Annotated[str, typer.Argument(help=options.ENTRY, show_default=False)],
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
    entries match, the newest one is shown. Where the runs are not here, the answers are made again from the losses that
    a packed board has, which tell no groups.
    """
    found, named = find_answers(select(entry, leaderboard), runs, task or (), [leaderboard])
    if json:
        print_json({"answers": found, "older": [one.id for one in named.older]})
        return
    if named.note():
        print_lines(named.note(), "")
    for name in dict.fromkeys(one.task for one in found):
        _print([one for one in found if one.task == name], worst)


def _print(found: Sequence[FoundAnswers], count: int) -> None:
    """Print the answers of an entry's runs to one task."""
    table, one = pooled(found), found[0]
    rows = table["examples"]
    right = sum(row["right"] == row["answer"] for row in rows)
    title = [one.task, one.suite, one.model, f"{one.objective} [{one.entry[:6]}]", _seeds(found)]
    title += [f"{len(rows)} examples", f"accuracy {percent(right / len(rows))}", *_remarks(found, table["tied"])]
    print_lines(clean(" · ".join(filter(None, title))))
    header = ("class", "n", "precision", "recall", "F1", *(f"→ {clean(name)}" for name in table["classes"]))
    print_table(
        "", header, [_row(row, counts) for row, counts in zip(table["per_class"], table["confusion"], strict=True)]
    )
    if table["per_group"]:
        groups = [(clean(row["name"]), str(row["n"]), percent(row["accuracy"])) for row in table["per_group"]]
        print_table("", ("group", "n", "accuracy"), groups)
    given = {row["answer"] for row in rows}
    if len(given) == 1:
        print_lines(f"Every answer is {clean(given.pop())}.")
    _print_worst(found, table["unit"], count)
    print_lines("")


def _print_worst(found: Sequence[FoundAnswers], unit: str, count: int) -> None:
    mistakes = worst(found, count)
    if not mistakes:
        return
    header = [
        "worst mistakes",
        "right",
        "answer",
        f"margin ({unit})",
        "posterior",
        *(["seed"] if len(found) > 1 else []),
    ]
    rows = [
        [
            row["id"],
            clean(row["right"]),
            clean(row["answer"]),
            plain(row["margin"], unit, LOSS_PLACES),
            percent(row["confidence"]),
        ]
        + ([str(one.seed)] if len(found) > 1 else [])
        for one, row in mistakes
    ]
    print_lines("")
    print_table("", header, rows, unbroken=header[:1])
    print_lines(posterior_line(unit, "the answer given"))
    first, row = mistakes[0]
    print_lines(f"See the first with: {first.prompts} --example {row['id']}")
    print_lines(*(f"({remark})" for remark in first.remarks))


def _seeds(found: Sequence[FoundAnswers]) -> str:
    if len(found) > 1:
        return f"{len(found)} seeds pooled"
    return "" if found[0].seed is None else f"seed {found[0].seed}"


def _remarks(found: Sequence[FoundAnswers], ties: int) -> list[str]:
    remarks = [f"ties: {ties}"] if ties else []
    table = found[0].table  # prompts are the same for all seeds
    if table["shortened"]:
        lost = [row["id"] for row in table["examples"] if row["dropped"]]
        more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
        remarks.append(
            f"shots lost by prompts that were too long: {table['dropped_shots']} ({', '.join(lost[:3])}{more})"
        )
    if table.get("cut"):
        remarks.append(f"prompts that were too long and cut at the end: {table['cut']}")
    return remarks


def _row(row: dict[str, Any], counts: list[int]) -> tuple[str, ...]:
    # Without an example of the class, an F1 says nothing of it.
    shares = [row["precision"], row["recall"], row["f1"] if row["support"] else None]
    return (clean(row["name"]), str(row["support"]), *map(percent, shares), *map(str, counts))
