"""`emobench compare`: is one entry better than another, by how much, and are we sure?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from emobench.cli import options
from emobench.cli.console import print_json
from emobench.cli.reports import print_report, remark_unpaired
from emobench.cli.streams import print_text, remark
from emobench.errors import ConfigError, UnknownNameError
from emobench.leaderboard.charts import compare_chart
from emobench.leaderboard.exchange.result_files import compare_files, names_results
from emobench.leaderboard.query.references import select
from emobench.leaderboard.query.view import wanted
from emobench.leaderboard.render import compare_table
from emobench.leaderboard.render.compare_table import to_json
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.schema.examples import ExamplesReader
from emobench.leaderboard.stats.across_bases import compare_across_bases
from emobench.leaderboard.stats.compare import Comparison, comparisons

FILES = "A result file of lm_eval, inspect or Every Eval Ever (JSON), or the folder that holds it."


def compare(
    entries: Annotated[
        list[str],
        typer.Argument(
            metavar="A B [C ...]", help=f"Entries or result files: {options.ENTRY} {FILES}", show_default=False
        ),
    ],
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", help="The entry that the others are compared with. Default: the last one."),
    ] = None,
    metric: options.Metrics = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Show entries that are not comparable side by side, without a verdict.")
    ] = False,
    across_bases: Annotated[
        bool,
        typer.Option(
            "--across-bases",
            help="Compare over several pre-trained models of one recipe. The pre-trained model is then the sample.",
        ),
    ] = False,
    markdown: options.Markdown = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX tables (booktabs).")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, with the numbers as they are stored.")] = False,
    json: options.Json = False,
    png: Annotated[Path | None, typer.Option("--png", help="Also draw the differences to this file.")] = None,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
) -> None:
    """Compare entries: difference, 95 % interval, p, verdict.

    Seeds are paired, and so are test examples if both entries kept them. The p of the suite's primary endpoint is not
    adjusted; any other p is adjusted for the tests of its family (Holm). With fewer than 3 seeds the verdict is
    undetermined. Entries that differ in data, protocol, model or recipe are refused; the message says what differs.

    Of result files the two models are compared, example by example (McNemar, paired t); nothing is recorded.
    """
    if across_bases and anyway:
        raise ConfigError("--across-bases compares what is comparable, base by base; drop --anyway.")
    if sum((markdown, latex, csv, json)) > 1:
        raise ConfigError("--markdown, --latex, --csv and --json are one choice; give one of them.")
    if png is not None and png.suffix.lower() != ".png":
        raise ConfigError(f"--png {png}: expected the name of a PNG file, such as differences.png.")
    if any(map(names_results, filter(None, [*entries, baseline]))):
        found, problems = _of_files(entries, baseline, metric, anyway=anyway, across_bases=across_bases)
    else:
        chosen = [select(text, leaderboard) for text in entries]
        base = None if baseline is None else select(baseline, leaderboard)
        examples = ExamplesReader(runs, [leaderboard])
        problems, shown = examples.problems, _metrics(metric, chosen)
        if across_bases:
            found = compare_across_bases(chosen, base, examples, metrics=shown)
        else:
            found = comparisons(chosen, base, examples, metrics=shown, anyway=anyway)
    if json:
        print_json({"comparisons": [to_json(comparison) for comparison in found]})
    elif csv:
        print_text(compare_table.to_csv(found))
    else:
        print_report(compare_table.report(found), "markdown" if markdown else "latex" if latex else "text")
    remark_unpaired(problems)
    if png is not None:
        compare_chart.write(found, png)
        remark(f"drawn into {png}")


def _of_files(
    texts: Sequence[str], baseline: str | None, patterns: Sequence[str] | None, *, anyway: bool, across_bases: bool
) -> tuple[list[Comparison], list[str]]:
    """Compare result files, and return with the comparison which of them have no per-example results."""
    if across_bases:
        raise ConfigError("--across-bases compares entries of a board; drop it to compare result files.")
    if entry := next((text for text in filter(None, [*texts, baseline]) if not names_results(text)), None):
        raise ConfigError(
            f"{entry} is no result file, and others are. Give files and folders alone, or record the files with "
            "`emobench leaderboard import` and compare entries."
        )
    found, problems = compare_files(texts, baseline, anyway=anyway)
    shown = _metrics(patterns, [[found.baseline, *found.candidates]])
    kept = tuple(c for c in found.contrasts if shown is None or c.metric in shown)
    return [replace(found, contrasts=kept)], problems


def _metrics(patterns: Sequence[str] | None, chosen: Sequence[Sequence[Entry]]) -> list[str] | None:
    """Return the metrics that `--metric` means."""
    if not patterns:
        return None
    known = dict.fromkeys(metric for entries in chosen for entry in entries for metric in entry.metrics)
    for pattern in patterns:
        if not any(wanted(metric, [pattern]) for metric in known):
            raise UnknownNameError("metric", pattern, known)
    return [metric for metric in known if wanted(metric, patterns)]
