"""`emobench answers`: what a model answered, class by class, and where it is most wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from emobench.cli import options
from emobench.cli.console import print_json, print_lines, print_table

if TYPE_CHECKING:
    from emobench.pipeline.answers import FoundAnswers

ABSENT = "–"


def answers(
    entry: Annotated[
        str,
        typer.Argument(
            help="An objective (emo), an id or its first digits, or a query (model=gpt2,objective=emo).",
            show_default=False,
        ),
    ],
    task: Annotated[list[str] | None, typer.Option("--task", help="Only this one. Repeatable. Default: all.")] = None,
    worst: Annotated[int, typer.Option("--worst", min=0, help="How many mistakes of the largest margin to name.")] = 5,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
    json: options.Json = False,
) -> None:
    """Show the answers behind an entry's accuracies: scores of each class, the confusion matrix, the worst mistakes.

    A row is a right class; the columns after F1 count what was answered.
    """
    from emobench.leaderboard.select import select
    from emobench.pipeline.answers import find_answers

    found = find_answers(select(entry, leaderboard), runs, task or ())
    if json:
        print_json({"answers": found})
        return
    for one in found:
        _print(one, worst)


def _print(found: FoundAnswers, worst: int) -> None:
    from emobench.leaderboard.labels import clean

    table = found.table
    title = [found.task, f"{found.objective} [{found.entry[:6]}]", "" if found.seed is None else f"seed {found.seed}"]
    title += [f"{len(table['examples'])} examples", f"accuracy {100 * found.accuracy:.1f} %", *_remarks(table)]
    print_lines(clean(" · ".join(filter(None, title))))
    header = ("class", "n", "precision", "recall", "F1", *(f"→ {clean(name)}" for name in table["classes"]))
    print_table(
        "", header, [_row(row, counts) for row, counts in zip(table["per_class"], table["confusion"], strict=True)]
    )
    mistakes = [
        (
            row["id"],
            clean(row["right"]),
            clean(row["answer"]),
            f"{row['margin']:.5f}",
            f"{100 * row['confidence']:.1f} %",
        )
        for row in found.worst(worst)
    ]
    if mistakes:
        print_lines("")
        print_table("", ("worst mistakes", "right", "answer", f"margin ({table['unit']})", "posterior"), mistakes)
        print_lines(f"See one with: emobench prompts {found.task} --example {mistakes[0][0]} --model ...")
    print_lines("")


def _remarks(table: dict[str, Any]) -> list[str]:
    found = []
    if table["tied"]:
        found.append(f"{table['tied']} {'tie' if table['tied'] == 1 else 'ties'}")
    if table["shortened"]:
        lost = [row["id"] for row in table["examples"] if row["dropped"]]
        more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
        found.append(f"{table['dropped_shots']} shots lost by prompts that were too long: {', '.join(lost[:3])}{more}")
    return found


def _row(row: dict[str, Any], counts: list[int]) -> tuple[str, ...]:
    from emobench.leaderboard.labels import clean

    shares = (ABSENT if row[name] is None else f"{100 * row[name]:.1f} %" for name in ("precision", "recall", "f1"))
    return (clean(row["name"]), str(row["support"]), *shares, *map(str, counts))
