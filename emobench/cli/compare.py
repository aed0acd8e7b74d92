"""`emobench compare`: is one entry better than another, by how much, and are we sure?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emobench import results
from emobench.cli import options
from emobench.cli.terminal.console import print_json
from emobench.cli.terminal.reports import format_of, print_report, remark_unpaired
from emobench.cli.terminal.streams import print_text, remark
from emobench.leaderboard.query.newest import older_groups
from emobench.report import compare_table
from emobench.report.charts import compare_chart
from emobench.report.charts.vega_lite import require_picture

FILES = (
    "A result file of lm_eval, inspect or Every Eval Ever (JSON), or its folder. A table with columns "
    "example and score, and optionally task, metric, seed and unit (CSV, JSON Lines, Parquet)."
)


def compare(
    entries: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="A B [C ...]",
            help=f"Entries or result files: {options.ENTRY} {FILES} Default: all entries of the newest table.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            help="The entry to compare the others with. Default: the last of several names; else mle or, "
            "without it, the suite's first objective.",
        ),
    ] = None,
    suite: options.OfSuite = None,
    metric: options.Metrics = None,
    all_: options.All = False,
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
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Explain the numbers, the tests and the sources of noise."),
    ] = False,
    markdown: options.Markdown = False,
    latex: options.Latex = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, with the numbers as they are stored.")] = False,
    json: options.Json = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Also draw the differences to FILE.png, FILE.svg or FILE.pdf.")
    ] = None,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
) -> None:
    """Compare entries: difference, 95 % interval, p, verdict.

    Seeds are paired, and so are test examples if both entries kept them. The p of the suite's primary endpoint is not
    adjusted; any other p is adjusted for the tests of its family (Holm). With fewer than 3 seeds the verdict is
    undetermined. Entries that differ in data, protocol, model or recipe are refused; the message says what differs.

    Of result files the two models are compared, example by example (McNemar, paired t). Tables of several seeds
    are compared as entries are. Nothing is recorded.
    """
    format = format_of(markdown, latex, csv, json)
    require_picture(plot, "--plot")
    compared = results.compare(
        *(entries or ()),
        baseline=baseline,
        suite=suite,
        metrics=metric or (),
        anyway=anyway,
        across_bases=across_bases,
        older=all_,
        leaderboard=leaderboard,
        runs=runs,
    )
    comparisons = compared.comparisons
    if json:
        print_json({"comparisons": list(map(compare_table.to_json, comparisons))})
    elif csv:
        print_text(compare_table.to_csv(comparisons))
    else:
        print_report(compare_table.report(comparisons, explain=explain), format)
    if more := older_groups(compared.older, f"see `emobench compare {compared.older_query}`, or give --all"):
        remark(more)
    remark_unpaired(compared.problems)
    if plot is not None:
        compare_chart.write(comparisons, plot)
        remark(f"drawn into {plot}")
