"""`emobench leaderboard view`: the pages of boards on this machine alone, written again when an entry is recorded."""

from __future__ import annotations

import io
import json
import re
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Annotated, Any

import typer

from emobench.cli import options
from emobench.cli.leaderboard.site import site
from emobench.cli.terminal.console import print_out
from emobench.core.errors import ConfigError
from emobench.leaderboard.store import Leaderboard
from emobench.report.site.build import MARK

HOST = "127.0.0.1"
POLL = 2.0
PAGE, STATE = "view.html", "state.json"
STAGE = re.compile(r'"(\w+/[0-9a-f]{16})"')
"""A stage in the file of a sweep."""
FRAME = """<!doctype html><html lang="en"><meta charset="utf-8"><title>emobench</title>
<link rel="icon" href="data:,">
<style>body{margin:0;height:100vh;display:flex;flex-direction:column;font:14px sans-serif;color-scheme:light dark}
p{margin:4px 12px}p:empty{display:none}iframe{flex:1;border:0}</style>
<p id="sweeps" role="status"></p><iframe src="index.html" title="Leaderboards"></iframe>
<script>
const status = document.getElementById("sweeps"), frame = document.querySelector("iframe").contentWindow;
let shown = null;
async function look() {
  try {
    const state = await (await fetch("state.json", {cache: "no-store"})).json();
    status.textContent = state.sweeps;
    if (shown !== null && shown !== state.written) frame.location.reload();
    shown = state.written;
  } catch { status.textContent = "emobench leaderboard view has ended."; }
}
setInterval(look, 2000);
</script></html>
"""
BUILDING = f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>emobench</title>
{MARK}<meta http-equiv="refresh" content="1"><link rel="icon" href="data:,"><p>Building the page ...</p></html>
"""


class _Handler(SimpleHTTPRequestHandler):
    """Serves a folder to this machine: another name of the host is a web page that wants to read it."""

    def send_head(self) -> Any:
        port = self.connection.getsockname()[1]
        if self.headers.get("Host") in (f"{HOST}:{port}", f"localhost:{port}"):
            return super().send_head()
        self.send_error(403)
        return None

    def log_message(self, format: str, *args: Any) -> None:
        pass


def view(
    leaderboard: options.Boards = None,
    runs: options.Runs = options.DEFAULT_RUNS,
    all_: options.All = False,
    port: Annotated[int, typer.Option("--port", help="The port on 127.0.0.1. 0: any free one.")] = 8040,
    open_: Annotated[bool, typer.Option("--open", help="Open the pages in the browser.")] = False,
) -> None:
    """Show boards in the browser, live: new entries appear, and a line has the progress of sweeps.

    Ctrl-C ends it. Only this machine can read the pages.
    """
    boards = list(map(Leaderboard, leaderboard or [options.DEFAULT_BOARD]))
    with TemporaryDirectory(prefix="emobench-view-") as folder, suppress(KeyboardInterrupt):
        try:
            server = ThreadingHTTPServer((HOST, port), partial(_Handler, directory=folder))
        except (OSError, OverflowError) as error:
            raise ConfigError(f"--port {port} cannot be used ({error}); give another port, or 0 for any.") from None
        Path(folder, PAGE).write_text(FRAME, encoding="utf-8")
        Path(folder, "index.html").write_text(BUILDING, encoding="utf-8")
        Thread(target=server.serve_forever, daemon=True).start()
        shown, written = None, 0
        while True:
            files = [list(board.files()) for board in boards]
            if files != shown:
                with redirect_stdout(io.StringIO()) as quiet, redirect_stderr(quiet):  # the pages have the notes
                    site(Path(folder), leaderboard, runs, all_=all_)
                written += 1
            state = Path(folder, f"{STATE}.part")
            state.write_text(json.dumps({"written": written, "sweeps": _sweeps(runs)}))
            state.replace(Path(folder, STATE))
            if shown is None:
                address = f"http://{HOST}:{server.server_port}/{PAGE}"
                print_out(address)
                if open_:
                    typer.launch(address)
            shown = files
            time.sleep(POLL)


def _sweeps(runs: Path) -> str:
    """Return how far the sweeps are that are not finished."""
    lines = []
    for path in sorted(runs.glob("sweeps/*.json")):
        stages = set(STAGE.findall(path.read_text(encoding="utf-8", errors="replace")))
        made = sum((runs / stage).exists() for stage in stages)
        if made < len(stages):
            lines.append(f"Sweep {path.stem[:6]}: {made} of {len(stages)} stages are finished.")
    return " ".join(lines)
