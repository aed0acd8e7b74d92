"""`emobench leaderboard export`: entries in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from emobench.cli import options
from emobench.cli.terminal.console import print_json_text
from emobench.cli.terminal.streams import print_text, remark
from emobench.core.errors import ConfigError, DataError
from emobench.core.files import write_whole
from emobench.exchange import every_eval_ever, tables
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.query.rows import select
from emobench.leaderboard.run_files import run_examples
from emobench.leaderboard.store import Leaderboard

Format = Literal["jsonl", "csv", "model-card", "every-eval-ever"]


def export(
    entries: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ENTRY",
            help=f"{options.ENTRY} Default: the whole board.",
        ),
    ] = None,
    to: Annotated[
        Format,
        typer.Option(
            "--to",
            help="jsonl: JSON Lines, one line for each entry and metric; csv: the same as a table; "
            "model-card: a Hugging Face model card with model-index; every-eval-ever: records of its schema 0.3, with "
            "instances where there is a folder.",
        ),
    ] = "jsonl",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="A file (jsonl, csv) or a folder (model-card, every-eval-ever). Default: stdout."),
    ] = None,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
) -> None:
    """Write entries for other tools, or as a plain table.

    In a folder, records of Every Eval Ever lie as in its datastore, with an instance for each example. Instances have
    texts where the runs folder has them; a board that was packed has none of data sets.
    """
    found = _entries(entries or [], leaderboard)
    if to == "every-eval-ever" and out is not None:
        texts = {name: text for entry in found for name, text in _with_instances(entry, leaderboard, runs).items()}
    else:
        texts = _texts(found, to)
    if out is None:
        if len(texts) > 1:
            raise ConfigError(
                f"--to {to} writes a file for each of {len(texts)} entries; name a folder with --out DIR."
            )
        (print_json_text if to in ("jsonl", "every-eval-ever") else print_text)(next(iter(texts.values())))
        return
    for name, text in texts.items():
        path = out if to in ("jsonl", "csv") else out / name
        write_whole(path, text, "The export", "Choose another place with --out.")
        remark(f"written: {path}")


def _entries(wanted: list[str], root: Path) -> list[Entry]:
    if wanted:
        return list({entry.id: entry for text in wanted for entry in select(text, root)}.values())
    board = Leaderboard(root)
    board.require_folder()
    found = board.entries()
    for problem in board.problems:
        remark(f"skipped: {problem}")
    if not found:
        raise ConfigError(f"{root} holds no entry to export; `emobench run` makes the first.")
    return found


def _texts(entries: list[Entry], to: Format) -> dict[str, str]:
    """Return the documents by the names that they have in a folder; for a table it is one without a name."""
    if to == "jsonl":
        return {"": tables.to_json_lines(entries)}
    if to == "csv":
        return {"": tables.to_csv(entries)}
    if to == "every-eval-ever":
        return {entry.id: next(iter(every_eval_ever.files(entry).values())) for entry in entries}
    return {tables.card_name(e): tables.model_card(e) for e in entries}


def _with_instances(entry: Entry, board: Path, runs: Path) -> dict[str, str]:
    from emobench.runs.inspect.recorded_runs import instance_texts

    if not entry.runs:  # a paper's row
        return every_eval_ever.files(entry)
    try:
        examples = [run_examples(run, runs, entry, [board]) for run in entry.runs]
    except DataError as error:
        remark(f"without instances: {error}")
        return every_eval_ever.files(entry)
    return every_eval_ever.files(entry, examples, instance_texts(entry, runs))
