"""`emobench answers`: what a model answered, class by class, and where it is most wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from emobench.cli import options
from emobench.cli.console import print_json, print_lines, print_table
from emobench.cli.show.prompts import posterior_line
from emobench.leaderboard.query.references import select
from emobench.leaderboard.schema.labels import clean
from emobench.pipeline.inspect.answers import find_answers, pooled, worst

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emobench.pipeline.inspect.answers import FoundAnswers

ABSENT = "–"


def answers(
    entry: Annotated[
        str,
        typer.Argument(
            help="An objective (emo), an id or its first digits, or a query (model=gpt2,objective=emo).",
            show_default=False,
        ),
    ],
    task: Annotated[
        list[str] | None, typer.Option("--task", help="Only this task. Repeatable. Default: all tasks.")
    ] = None,
    worst: Annotated[
        int, typer.Option("--worst", min=0, help="The number of worst mistakes to show: those with the largest margin.")
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
    found, named = find_answers(select(entry, leaderboard), runs, task or ())
    if json:
        print_json({"answers": found, "older": [one.id for one in named.older]})
        return
    if named.said():
        print_lines(named.said(), "")
    for name in dict.fromkeys(one.task for one in found):
        _print([one for one in found if one.task == name], worst)


def _print(found: Sequence[FoundAnswers], count: int) -> None:
    """Print the answers of an entry's runs to one task."""
    table, one = pooled(found), found[0]
    rows = table["examples"]
    right = sum(row["right"] == row["answer"] for row in rows)
    title = [one.task, one.suite, one.model, f"{one.objective} [{one.entry[:6]}]", _seeds(found)]
    title += [f"{len(rows)} examples", f"accuracy {100 * right / len(rows):.1f} %", *_remarks(found, table["tied"])]
    print_lines(clean(" · ".join(filter(None, title))))
    header = ("class", "n", "precision", "recall", "F1", *(f"→ {clean(name)}" for name in table["classes"]))
    print_table(
        "", header, [_row(row, counts) for row, counts in zip(table["per_class"], table["confusion"], strict=True)]
    )
    if table["per_group"]:
        print_table("", ("group", "n", "accuracy"), [_group_row(row) for row in table["per_group"]])
    given = {row["answer"] for row in rows}
    if len(given) == 1:
        print_lines(f"Every answer is {clean(given.pop())}.")
    _print_worst(found, table["unit"], count)
    print_lines("")


def _print_worst(found: Sequence[FoundAnswers], unit: str, count: int) -> None:
    mistakes = worst(found, count)
    if not mistakes:
        return
    header = ("worst mistakes", "right", "answer", f"margin ({unit})", "posterior")
    rows = [
        (
            row["id"],
            clean(row["right"]),
            clean(row["answer"]),
            f"{row['margin']:.5f}",
            f"{100 * row['confidence']:.1f} %",
        )
        for _, row in mistakes
    ]
    if len(found) > 1:
        header, rows = (*header, "seed"), [(*row, str(one.seed)) for row, (one, _) in zip(rows, mistakes, strict=True)]
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


def _remarks(found: Sequence[FoundAnswers], tied: int) -> list[str]:
    remarks = []
    if tied:
        remarks.append(f"{tied} {'tie' if tied == 1 else 'ties'}")
    # Prompts are the same for all seeds.
    table = found[0].table
    if table["shortened"]:
        lost = [row["id"] for row in table["examples"] if row["dropped"]]
        more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
        shots = f"{table['dropped_shots']} {'shot' if table['dropped_shots'] == 1 else 'shots'}"
        remarks.append(f"{shots} lost by prompts that were too long: {', '.join(lost[:3])}{more}")
    if table.get("cut"):
        remarks.append(f"{table['cut']} {'prompt' if table['cut'] == 1 else 'prompts'} cut at the end: too long")
    return remarks


def _row(row: dict[str, Any], counts: list[int]) -> tuple[str, ...]:
    # Without an example of the class, an F1 says nothing of it.
    shares = [row["precision"], row["recall"], row["f1"] if row["support"] else None]
    shown = (ABSENT if share is None else f"{100 * share:.1f} %" for share in shares)
    return (clean(row["name"]), str(row["support"]), *shown, *map(str, counts))


def _group_row(row: dict[str, Any]) -> tuple[str, ...]:
    return (clean(row["name"]), str(row["n"]), f"{100 * row['accuracy']:.1f} %")
