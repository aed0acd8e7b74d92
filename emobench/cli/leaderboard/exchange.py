"""`emobench leaderboard export` and `import`: entries in the formats of other tools, and their results on a board."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from emobench.cli import options
from emobench.cli.terminal.console import print_json, print_json_text, print_out
from emobench.cli.terminal.streams import print_text, remark
from emobench.core.errors import ConfigError, DataError, UserError
from emobench.core.files import write_whole
from emobench.core.settings import PRETRAINED
from emobench.exchange import every_eval_ever, tables
from emobench.exchange.result_files import Imported, ImportedModel, find_results, import_each, import_results
from emobench.leaderboard.boards import boards_of
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.labels import clean, listed
from emobench.leaderboard.query.rows import select
from emobench.leaderboard.run_files import run_examples
from emobench.leaderboard.store import Leaderboard
from emobench.reproduce.options import options_file

Format = Literal["csv", "model-card", "every-eval-ever", "toml"]


def export(
    entries: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ENTRY",
            help=f"{options.ENTRY} Default: all entries of the board.",
        ),
    ] = None,
    to: Annotated[
        Format,
        typer.Option(
            "--to",
            help="csv: a table with a row for each entry and metric; "
            "model-card: a Hugging Face model card with model-index; every-eval-ever: records of its schema 0.3, with "
            "instances where there is a folder; toml: the options that repeat an entry, for `emobench run FILE.toml`.",
        ),
    ] = "csv",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="A file (csv) or a folder (the others). Default: stdout."),
    ] = None,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
) -> None:
    """Write entries for other tools, or as a plain table.

    In a folder, records of Every Eval Ever lie as in its datastore, with an instance for each example. Instances have
    scores and digests, and no texts.
    """
    chosen = _entries(entries or [], leaderboard)
    if out is None and to != "csv" and len(chosen) > 1:
        raise ConfigError(f"--to {to} writes a file for each of {len(chosen)} entries; name a folder with --out DIR.")
    files: dict[str, str] = {}
    if to == "csv":
        files[""] = tables.to_csv(chosen)  # --out itself
        chosen = []
    for entry in chosen:
        if to == "model-card":
            files[tables.card_name(entry)] = tables.model_card(entry)
        elif to == "toml":
            files[f"{entry.id}.toml"] = options_file(entry)
        elif out is None:
            files |= every_eval_ever.files(entry)
        else:
            files |= _with_instances(entry, boards_of(entries or [], leaderboard), runs)
    show = print_json_text if to == "every-eval-ever" else print_text
    for name, text in files.items():
        if out is None:
            show(text)
        else:
            _write(out / name, text)


def _write(path: Path, text: str) -> None:
    write_whole(path, text, "The export", "Choose another place with --out.")
    remark(f"written: {path}")


def _entries(names: list[str], root: Path) -> list[Entry]:
    if names:
        return list({entry.id: entry for text in names for entry in select(text, root)}.values())
    board = Leaderboard(root)
    board.require_folder()
    entries = board.entries()
    for problem in board.problems:
        remark(f"skipped: {problem}")
    if not entries:
        raise ConfigError(f"{root} has no entry to export; `emobench run` records one.")
    return entries


def _with_instances(entry: Entry, boards: list[Path], runs: Path) -> dict[str, str]:
    if not entry.runs:  # a paper's row
        return every_eval_ever.files(entry)
    try:
        examples = [run_examples(run, runs, entry, boards) for run in entry.runs]
    except DataError as error:
        remark(f"without instances: {error}")
        return every_eval_ever.files(entry)
    return every_eval_ever.files(entry, examples)


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="A results_*.json of lm_eval, a JSON log of inspect, a record of Every Eval Ever, or a folder.",
        ),
    ],
    objective: Annotated[
        str,
        typer.Option(
            "--objective", help="The objective that the model was trained with; pretrained is a model without training."
        ),
    ] = PRETRAINED,
    model: Annotated[
        str | None, typer.Option("--model", help="The model that it was trained from. Default: the name in the file.")
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(
            "--seed", help="The seed of that training. Repeat it, once for each file, and the files become one entry."
        ),
    ] = None,
    renamed: Annotated[
        bool, typer.Option("--renamed", help="Rename results that are on the board under another name.")
    ] = False,
    leaderboard: options.OwnBoard = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
    json: options.Json = False,
) -> None:
    """Record results of lm-evaluation-harness, inspect and Every Eval Ever.

    Each file becomes an entry of kind `imported`, or one seed of an entry (--seed). The samples in the same folder, or
    in the log, become its per-example results. A file that is already on the board adds nothing.
    """
    subject, board = ImportedModel(model, objective, tuple(seed or ())), Leaderboard(leaderboard)
    paths: list[Path] = []
    done: list[Imported] = []
    outcomes: list[str] = []
    problems: list[str] = []
    for given in files:
        try:
            paths += find_results(given)
        except UserError as error:
            problems.append(clean(str(error)))
    for group in import_each(paths, subject) if paths else ():
        try:
            imported = import_results(group, board, runs, subject, renamed=renamed)
        except UserError as error:
            problems.append(clean(str(error)))
            continue
        done.append(imported)
        name = str(group[0])
        if len(group) > 1:
            name = f"{len(group)} files, seeds {', '.join(map(str, imported.entry.seeds))}"
        notes = list(imported.notes)
        if missing := imported.entry.missing:
            shown = [f"{metric} ({why})" for metric, why in missing.items()]
            notes.insert(0, f"not taken: {listed(shown, 5)}")
        for note in notes:
            remark(clean(f"{name}: {note}"))
        outcomes.append(clean(f"{name}: {_outcome(imported)}"))
    if json:
        print_json({"entries": [one.entry for one in done], "added": sum(one.added for one in done)})
    else:
        print_out(*outcomes)
    if problems:
        raise DataError("\n".join(problems))


def _outcome(done: Imported) -> str:
    amount = f"{len(done.entry.metrics)} metrics, {done.paired} with per-example results"
    if not done.added:
        return f"on the board already as {done.entry.id} ({amount})"
    place = ""
    if old := done.replaced:
        place = f", in the place of {old.id} ({old.objective.label})"
    return f"imported as {done.entry.id}{place} ({amount})"
