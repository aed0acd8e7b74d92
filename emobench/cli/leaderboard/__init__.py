"""`emobench leaderboard`: the recorded entries, one file per command."""

from __future__ import annotations

import typer

from emobench.cli.lazy import lazy_group

COMMANDS = {
    "show": ("emobench.cli.leaderboard.show:show", "Show the entries, grouped into tables of what may be compared."),
    "site": (
        "emobench.cli.leaderboard.site:site",
        "Write each board as one page that holds everything: table, charts, entries and comparisons.",
    ),
    "export": (
        "emobench.cli.leaderboard.export:export",
        "Write entries for lm-evaluation-harness, for the Hugging Face Hub, or as a plain table.",
    ),
    "verify": (
        "emobench.cli.leaderboard.verify:verify",
        "Check every entry, and the files of its runs; name what is wrong, a line each, with exit code 1.",
    ),
    "import": (
        "emobench.cli.leaderboard.import_:import_",
        "Record results files of lm_eval, each as an entry of kind `imported`, or as the seeds of one.",
    ),
}
"""Each command's name, where it is, and the first sentence of its help."""

app = typer.Typer(
    help="Recorded results: show, site, export, import, verify.", cls=lazy_group(COMMANDS), no_args_is_help=True
)


@app.callback()
def _group() -> None:
    pass
