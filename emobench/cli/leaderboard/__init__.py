"""`emobench leaderboard`: the recorded entries."""

from __future__ import annotations

import typer

from emobench.cli.commands import lazy_group

COMMANDS = {
    "show": ("show:show", "Show the newest comparable entries in a table."),
    "site": ("site:site", "Write each board as one web page."),
    "view": ("view:view", "Show boards in the browser, live."),
    "export": ("exchange:export", "Write entries for other tools, or as a plain table."),
    "verify": ("show:verify", "Check every entry, and the files of its runs."),
    "pack": ("share:pack", "Copy the files of the runs into the board, compressed."),
    "push": ("share:push", "Add the entries to a shared board."),
    "pull": ("share:pull", "Add the entries of a shared board to this one."),
    "import": ("exchange:import_", "Record results of lm-evaluation-harness."),
}
"""Each command's name, its `module:attribute` in this package, and the first sentence of its help."""

app = typer.Typer(
    help="Recorded results: show, site, view, export, verify, pack, push, pull, import.",
    cls=lazy_group(__name__, COMMANDS),
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    pass
