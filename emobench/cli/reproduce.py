"""`emobench reproduce`: a table or figure of a paper, with its numbers and ours; `emobench sample-corpus`: its data."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer

from emobench.cli import options
from emobench.cli.options.groups import takes_groups
from emobench.cli.options.request import LoadingOptions, PlanningOptions
from emobench.cli.run import show_outline
from emobench.cli.terminal.console import print_json, print_lines, print_out, print_table, reporter
from emobench.cli.terminal.reports import Format, print_report
from emobench.cli.terminal.streams import remark
from emobench.core.errors import ConfigError
from emobench.models.device import resolve_dtype
from emobench.registry import find_table, suite_names
from emobench.report.charts import compare_chart
from emobench.report.charts.paper_chart import scaling_picture, write_duels, write_scatter
from emobench.report.charts.vega_lite import require_picture, write_pictures
from emobench.report.numbers import large
from emobench.report.paper_table import cells, duel_table, paper_table
from emobench.report.tables import Report
from emobench.reproduce import run as tables
from emobench.reproduce import sample_corpus as corpora
from emobench.reproduce import scaling
from emobench.runs.dry_run import Outline, advised, require_short
from emobench.runs.planning.request import Request

AXES = {tables.MODEL: "parameters of the model", tables.DATA: "training tokens"}
HEADER = ("over", "objective", "model", "size", "mean accuracy (%)", "seeds", "gain per tenfold (points)")


@takes_groups
def reproduce(
    table: Annotated[
        str,
        typer.Argument(
            help="table-1 (open-ended generation), table-2 (an oracle's texts), figure-1 (sizes of models and data), "
            "figure-2 (distances to a surrogate), table-3, table-6, table-7, table-8 (in-context learning), table-9, "
            "table-10 (AlpacaEval), table-11 (Auto-J), or figure-3 to figure-6 (EMO against MLE by two judges).",
        ),
    ],
    planning: PlanningOptions,
    scale: Annotated[
        str | None,
        typer.Option(
            "--scale",
            help="small: the same rows, seeds and choices with a tiny model and the texts in --data-dir, "
            "for a machine without a GPU. Default: the paper's scale.",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            help="Another model than the table's: an alias, a folder or a Hugging Face id. NAME=FOLDER "
            "reads the table's model NAME from a folder, such as opt-125m=./opt-125m. Repeatable. figure-1: instead "
            "of its models, from small to large.",
        ),
    ] = None,
    seed: options.Seeds = None,
    limit: options.Limit = None,
    leaderboard: options.OwnBoard = options.DEFAULT_BOARD,
    track: options.Trackers = None,
    dry_run: options.DryRun = False,
    format: Annotated[Format, typer.Option("--format", help="The format of the table.")] = "text",
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            help="Also draw the figure, or the differences of a table, to FILE.png, FILE.svg or FILE.pdf. figure-1: to "
            "PNG and SVG.",
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Repeat a table or figure of a paper.

    It runs missing trainings and evaluations, and prints our numbers and the paper's. The rows are the table's models
    and objectives. A parameter with several values in the paper is chosen on the validation split, or on training
    examples that are held out, never on the test split. The output says which value was chosen, and by which scores.
    Differences from our baseline row are tested. With another --model or other --set values the output says that the
    paper's numbers belong to another setting. A figure without printed numbers shows only ours.

    --dry-run lists every run with tokens, time and memory (--json: one by one) and downloads nothing. If the command
    was stopped, give it again: it continues where it stopped.
    """
    require_picture(plot, "--plot")
    chosen = find_table(table)
    if chosen.tokens and format != "text":
        raise ConfigError(f"--format {format}: {table} is printed as text; --json and --plot have its numbers, too.")
    alone, stand_ins = _models(model or [], several=bool(chosen.tokens))
    single = alone[0] if alone and not chosen.tokens else None
    request = planning.request(
        suite=chosen.suite,
        model=single,
        stand_ins=stand_ins,
        seeds=seed or [],
        limit=limit,
        leaderboard=leaderboard,
        trackers=track or [],
    )

    def outline_of(request: Request, *, exact: bool = True) -> Outline:
        return tables.outline_table(chosen, request, scale, alone, exact=exact)

    if dry_run:
        show_outline(advised(request, outline_of), json)
        return
    require_short(request, outline_of)
    if chosen.tokens:
        show_scaling(scaling.reproduce_scaling(chosen, request, alone, reporter(quiet), scale), plot, json=json)
        return
    results = tables.reproduce(chosen, request, reporter(quiet), scale)
    if json:
        print_json({"table": chosen, "results": list(map(_plain, results))})
    else:
        for result in results:
            shown = [paper_table(result.found)]
            if result.duels:
                shown.insert(0, duel_table(f"{result.found.title}: responses compared", result.duels))
            print_report(Report(tuple(shown)), format)
    if plot is not None:
        if chosen.judges:
            duels = list(chain.from_iterable(result.duels for result in results))
            write_duels(f"{table}: wins, ties and losses", duels, plot)
        elif chosen.scatter:
            write_scatter([result.found for result in results], plot)
        else:
            compare_chart.write([result.found.comparison for result in results], plot)
        remark(f"drawn into {plot}")


def _models(given: list[str], *, several: bool) -> tuple[list[str], dict[str, str]]:
    """Return the models that replace all of the table's, one unless `several`, and those that replace some, by name."""
    alone, stand_ins = [], {}
    for text in given:
        name, sign, place = text.partition("=")
        if not sign or Path(text).expanduser().exists():
            alone.append(text)
        elif not place or name in stand_ins:
            raise ConfigError(f"--model {text}: expected NAME=FOLDER, each NAME once, such as opt-125m=./opt-125m.")
        else:
            stand_ins[name] = place
    if len(alone) > 1 and not several:
        raise ConfigError(f"--model is given as {', '.join(alone)}; expected one model, or NAME=FOLDER for each.")
    return alone, stand_ins


def _plain(result: tables.Reproduction) -> dict[str, object]:
    compared = result.found
    plain: dict[str, object] = {
        "model": result.model,
        "published_model": result.published_model if compared.published else None,
        "chosen": result.choices,
        "cells": cells(compared),
    }
    plain["entries"] = {row: entry.id for row, entry in compared.measured.items()}
    plain["remarks"] = compared.remarks
    if result.duels:
        plain["duels"] = result.duels
    return plain


def show_scaling(figure: scaling.Scaling, plot: Path | None, *, json: bool) -> None:
    """Print a figure's numbers, and with `plot` draw it: FILE.png and FILE.svg."""
    lines = figure.lines()
    rows: list[list[str]] = []
    for point in sorted(figure.points, key=lambda point: (list(AXES).index(point.panel), point.row, point.size)):
        mean, gain = f"{100 * fmean(point.values):.1f}", "–"
        line = lines.get((point.panel, point.row))
        if line is not None:
            gain = f"{100 * line.slope:+.1f}"
            if line.slope_ci95 is not None:
                low, high = line.slope_ci95
                gain += f" [{100 * low:+.1f}, {100 * high:+.1f}]"
        size = large(point.size)
        rows.append([AXES[point.panel], point.objective, point.model, size, mean, str(len(point.values)), gain])
    if json:
        fitted = []
        for (panel, row), line in lines.items():
            fitted.append({"panel": panel, "row": row, "slope": line.slope, "slope_ci95": line.slope_ci95})
        print_json({"tasks": figure.tasks, "points": figure.points, "lines": fitted, "remarks": figure.remarks})
    else:
        print_table(figure.title, HEADER, rows)
        print_out("", f"Means over {', '.join(figure.tasks)}.", *figure.remarks)
    if plot is None:
        return
    panels = {}
    for panel, axis in AXES.items():
        drawn = []
        for point in figure.points:
            if point.panel == panel:
                for value in point.values:
                    drawn.append({"series": point.row, "size": point.size, "value": value})
        of_panel = {row: line for (name, row), line in lines.items() if name == panel}
        panels[axis] = drawn, of_panel
    written = write_pictures(scaling_picture(figure.title, figure.metric, panels), plot.parent, plot.stem)
    remark(f"drawn into {', '.join(map(str, written))}")


@dataclass(frozen=True, kw_only=True)
class CorpusOptions(LoadingOptions):
    """The texts of a corpus that a model writes."""

    train: Annotated[int, typer.Option("--train", help="Number of texts in the training split.")] = 250_000
    validation: Annotated[int, typer.Option("--validation", help="Number of texts in the validation split.")] = 5_000
    test: Annotated[int, typer.Option("--test", help="Number of texts in the test split.")] = 5_000
    length: Annotated[
        int | None, typer.Option("--length", help="Most tokens of a text. Default: 1024, or the model's context.")
    ] = None
    name: Annotated[str, typer.Option("--name", help="The files are NAME.<split>.jsonl.")] = "gpt2-oracle"
    seed: Annotated[int, typer.Option("--seed", help="The seed of the random numbers.")] = 0
    batch: Annotated[
        int | None, typer.Option("--batch", help="Number of texts that are sampled at once. Default: 16; on a GPU 64.")
    ] = None

    def request(self, model: str, out: Path) -> corpora.CorpusRequest:
        """Return the request for a corpus; nothing is trained, which decides the data type."""
        loading = {**self.loading(), "dtype": resolve_dtype(self.dtype)}
        texts = {"train": self.train, "validation": self.validation, "test": self.test}
        return corpora.CorpusRequest(
            model=model,
            out=out,
            texts=texts,
            length=self.length,
            name=self.name,
            seed=self.seed,
            batch=self.batch,
            **loading,
        )


@takes_groups
def sample_corpus(
    model: Annotated[str, typer.Argument(help="An alias, a local folder, or a Hugging Face id.")],
    out: Annotated[Path, typer.Option("--out", help="The folder in which a folder of files is made.")],
    corpus: CorpusOptions,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Sample a corpus from a model, to be used with --data-dir.

    Each text starts without a prompt and runs until the model ends it. Use it for the suite of its name with an oracle
    of your own. If the command was stopped, give it again: it continues where it stopped.
    """
    request = corpus.request(model, out)
    folder = corpora.sample_corpus(request, reporter(quiet))
    if json:
        print_json({"folder": folder, "texts": request.texts})
        return
    print_lines(str(folder))
    if corpus.name in suite_names():
        print_lines(f"emobench run --suite {corpus.name} --data-dir {folder} --set oracle.model={model} --model MODEL")
