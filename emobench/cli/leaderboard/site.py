"""`emobench leaderboard site`: boards as web pages that need no server and no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emobench.cli import options
from emobench.cli.terminal.reports import remark_unpaired
from emobench.cli.terminal.streams import print_text, remark
from emobench.core.errors import ConfigError, UserError
from emobench.core.extras import missing_packages_explained, require
from emobench.core.reading import read_text
from emobench.kinds.views import WrittenText
from emobench.leaderboard.entry import Entry, Run
from emobench.leaderboard.labels import clean
from emobench.leaderboard.query.newest import newest_first, older_groups
from emobench.leaderboard.run_files import ExamplesReader
from emobench.leaderboard.store import Leaderboard
from emobench.report.site.build import About, Board, write_site
from emobench.report.site.runs import RunFiles

if TYPE_CHECKING:
    from emobench.runs.inspect.samples import SourceReader

LONGEST = 20_000
"""Characters of code that a page holds."""
MOST_NOTES = 100_000


def site(
    out: Annotated[Path, typer.Argument(help="The folder to write the pages to.")],
    leaderboard: options.Boards = None,
    runs: options.Runs = options.DEFAULT_RUNS,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="The baseline of the differences when the page opens.")
    ] = None,
    all_: options.All = False,
    data_dir: Annotated[
        list[Path] | None,
        typer.Option(
            "--data-dir", help="A folder with the data of packed samples: shows their human texts. Repeatable."
        ),
    ] = None,
    title: Annotated[
        str, typer.Option("--title", help="The heading of the front page and the first board.", show_default=False)
    ] = "",
    author: Annotated[str, typer.Option("--author", help="Shown below the heading.", show_default=False)] = "",
    notes: Annotated[Path | None, typer.Option("--notes", help="A Markdown file to show on the pages.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the pages in the browser.")] = False,
) -> None:
    """Write the newest comparable entries of each board as one web page; with --all, all of them."""
    require("itables")
    about = About(title=clean(title), author=clean(author), notes=_notes(notes) if notes else "")
    boards = []
    roots = leaderboard or [options.DEFAULT_BOARD]
    for root in roots:
        board = Leaderboard(root)
        entries = board.entries()
        if not all_ and entries:
            newest, *older = newest_first(entries)
            entries = newest
            if more := older_groups(len(older), "give --all"):
                remark(f"{root}: {more}")
        # A page is published: it names files, and not where this machine has them.
        problems = tuple(problem.replace(f"{root}/", "") for problem in board.problems)
        boards.append(Board(name=root.resolve().name, entries=entries, problems=problems))
        for problem in board.problems:
            remark(f"skipped: {problem}")
        if not entries:
            remark(board.without_entries())
    examples = ExamplesReader(runs, roots)

    @cache
    def sources() -> SourceReader:
        from emobench.runs.inspect.samples import SourceReader

        return SourceReader(data_dir or ())

    def texts_of(entry: Entry, run: Run) -> Mapping[str, Sequence[WrittenText]]:
        with missing_packages_explained():  # with the kinds of task comes torch
            from emobench.runs.inspect import recorded_runs, samples

            if not samples.has_texts(entry, runs, (), None, roots):
                return {}
            return sources().add(entry, recorded_runs.texts_of(entry, run, runs, roots))

    page, *pages = write_site(boards, out, examples, RunFiles(runs, roots, texts_of), baseline, _terms_of, about)
    remark_unpaired(examples.problems)
    for shown, path in zip(boards, pages, strict=True):
        remark(f"the board {shown.name}: {path}")
    print_text(str(page))
    if open_:
        typer.launch(page.resolve().as_uri())


def _notes(path: Path) -> str:
    try:
        if path.stat().st_size > MOST_NOTES:
            raise ConfigError(f"--notes {path}: expected at most {MOST_NOTES:,} bytes; shorten it.")
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--notes {path}: cannot be read ({error}). Give a Markdown file in UTF-8.") from None


def _terms_of(entry: Entry) -> Sequence[dict[str, Any]]:
    """Return the facts of each term of an entry's objective, () if it or torch is missing here. No entry's file is run.

    The code is there only if its digest is the one that the entry recorded.
    """
    from emobench.cli.families import facts_of_terms  # with the objectives comes torch
    from emobench.registry import OBJECTIVES, load_objective, require_installed

    try:
        with missing_packages_explained():
            require_installed(entry.objective.name)
            terms = facts_of_terms(OBJECTIVES, entry.objective.name)
            same = load_objective(entry.objective.name).source_sha256 == entry.objective.source_sha256
    except UserError:
        return ()
    shown = []
    for term in terms:
        facts = {name: term[name] for name in ("name", "version", "equation", "about", "source")}
        code = Path(term["file"]).read_text(encoding="utf-8") if same else ""
        shown.append({**facts, "code": code if 0 < len(code) <= LONGEST else None})
    return shown
