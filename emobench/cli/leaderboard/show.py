"""`emobench leaderboard show` and `verify`: tables of comparable entries, and the check of a board."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from emobench.cli import options
from emobench.cli.options.groups import takes_groups
from emobench.cli.terminal.console import print_json, reporter
from emobench.cli.terminal.reports import Format, format_of, print_report, remark_unpaired
from emobench.cli.terminal.streams import print_text, remark
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.labels import clean
from emobench.leaderboard.query.rows import Filters, read_page
from emobench.leaderboard.query.standings import View
from emobench.leaderboard.run_files import ExamplesReader
from emobench.leaderboard.store import Leaderboard
from emobench.leaderboard.verify import verify as check
from emobench.report import board_table

ROWS = 40


@dataclass(frozen=True, kw_only=True)
class FilterOptions:
    """Which entries are shown."""

    model: Annotated[str | None, typer.Option("--model", help="Only this model.")] = None
    objective: Annotated[
        list[str] | None,
        typer.Option("--objective", help='Only this objective: tailr, or "tailr(gamma=0.2)". Repeatable.'),
    ] = None
    suite: options.OfSuite = None
    metric: options.Metrics = None
    since: Annotated[
        str | None, typer.Option("--since", help="Only entries since a date (2026-01-31), or an age (7d, 12h).")
    ] = None
    kind: Annotated[
        str | None, typer.Option("--kind", help="Only entries of this kind: measured, published or imported.")
    ] = None

    def filters(self, baseline: str | None) -> Filters:
        """Return these filters. A baseline passes the filter of objectives."""
        objectives = list(self.objective or ())
        if objectives and baseline:
            objectives.append(baseline)
        metrics = tuple(self.metric or ())
        return Filters(
            model=self.model,
            objectives=tuple(objectives),
            suite=self.suite,
            metrics=metrics,
            kind=self.kind,
            since=self.since,
        )


@takes_groups
def show(
    chosen: FilterOptions,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="Show and test differences from this row: an objective or an id.")
    ] = None,
    sort: Annotated[str | None, typer.Option("--sort", help="Sort by a metric (best first, with ranks).")] = None,
    intervals: Annotated[bool, typer.Option("--intervals", help="Show 95 % intervals and n instead of ±.")] = False,
    rows: Annotated[int, typer.Option("--rows", min=1, help="The largest number of rows.")] = ROWS,
    all_: options.All = False,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
    markdown: options.Markdown = False,
    latex: options.Latex = False,
    json: options.Json = False,
) -> None:
    """Show the newest comparable entries in a table.

    A table is ranked by the mean over its tasks, or by --sort. Objectives without a difference beyond the noise share
    a rank.
    """
    if leaderboard != options.DEFAULT_BOARD:
        Leaderboard(leaderboard).require_folder()
    format = format_of(markdown, latex, json)
    filters = chosen.filters(baseline)
    view = View(metrics=filters.metrics, sort=sort, baseline=baseline, intervals=intervals)
    print_board(leaderboard, runs, filters=filters, view=view, rows=rows, older=all_, format=format, json=json)


def print_board(
    root: Path,
    runs: Path,
    *,
    filters: Filters | None = None,
    view: View | None = None,
    rows: int = ROWS,
    older: bool = False,
    around: Collection[str] = (),
    format: Format = "text",
    json: bool = False,
) -> tuple[Entry, ...]:
    """Print the newest table of a board, with `older` all of them, or those around some entries' ids, which stand out.

    Return the entries that were printed. Skipped files are named on stderr.
    """
    view = view or View(own=frozenset(around))
    board, examples = Leaderboard(root), ExamplesReader(runs, [root])
    page = read_page(board, (filters or Filters()).of(board.rows()), rows, around, older=older)
    if json:
        print_json({**board_table.to_json(page.entries, examples, view), "left_out": page.left_out})
    elif not page.entries:
        print_text(board.without_entries())
    else:
        print_report(board_table.report(page.entries, examples, view), format)
        if page.more:
            more = {"text": page.more, "markdown": f"\n{page.more}", "latex": f"\n% {page.more}"}
            print_text(more[format])
    for problem in (*board.problems, *page.problems):
        remark(f"skipped: {clean(problem)}")
    remark_unpaired(examples.problems)
    return page.entries


def verify(
    leaderboard: options.Boards = None,
    runs: options.Runs = options.DEFAULT_RUNS,
    entries_only: Annotated[
        bool,
        typer.Option(
            "--entries-only", help="Do not check the files that entries name. Use it if the runs are elsewhere."
        ),
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Check every entry, and the files of its runs.

    Each problem is one line, and the exit code is then 1. Entries are checked against their hash and the schema, and
    the per-example results, step logs and samples that they name against their digests. Entries that supersede a
    missing one, and files that a stopped write left, are problems, too.
    """
    boards = list(map(Leaderboard, leaderboard or [options.DEFAULT_BOARD]))
    for board in boards:
        board.require_folder()
    results = []
    for board in boards:
        with reporter(quiet).work(f"verify {board.root}", "files") as progress:
            count, findings = check(board, None if entries_only else runs, progress)
        results.append({"board": str(board.root), "entries": count, "findings": findings})
        if not json:
            for finding in findings:
                print_text(finding.text)
            print_text(f"{board.root}: entries: {count:,}, problems: {len(findings):,}.")
    if json:
        print_json({"boards": results})
    if any(result["findings"] for result in results):
        raise typer.Exit(1)
