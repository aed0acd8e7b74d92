"""`emobench leaderboard`: the recorded entries, one file per command."""

from __future__ import annotations

import typer

from emobench.cli.leaderboard.show import show

app = typer.Typer(help="Recorded results: show.", no_args_is_help=True)
for command in (show,):
    app.command()(command)


@app.callback()
def _group() -> None:
    pass
