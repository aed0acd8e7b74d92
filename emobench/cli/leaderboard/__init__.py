"""`emobench leaderboard`: the recorded entries, one file per command."""

from __future__ import annotations

import typer

from emobench.cli.leaderboard.export import export
from emobench.cli.leaderboard.import_ import import_
from emobench.cli.leaderboard.show import show
from emobench.cli.leaderboard.site import site
from emobench.cli.leaderboard.verify import verify

app = typer.Typer(help="Recorded results: show, site, export, import, verify.", no_args_is_help=True)
for command in (show, site, export, verify):
    app.command()(command)
app.command("import")(import_)


@app.callback()
def _group() -> None:
    pass
