"""`emobench leaderboard pack`, `push` and `pull`: a board with the files of its runs, which several people share."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from emobench.cli import options
from emobench.cli.terminal.console import print_json, reporter
from emobench.cli.terminal.streams import print_text, remark
from emobench.exchange import sharing
from emobench.leaderboard.pack import PROMPTS
from emobench.leaderboard.pack import pack as pack_files
from emobench.leaderboard.store import Leaderboard

Repo = Annotated[
    str,
    typer.Argument(
        metavar="REPO",
        help="A folder, such as the clone of a git repository, or hf://datasets/OWNER/NAME.",
    ),
]


def pack(
    leaderboard: options.OwnBoard = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
    quiet: options.Quiet = False,
) -> None:
    """Copy the files of the runs into the board, compressed.

    A clone of the board then compares entries example by example and shows their curves and samples, without the folder
    of runs. Of samples, only the generated texts are copied. Commit the board's folder afterwards.
    """
    with reporter(quiet).work(f"pack {leaderboard}", "files") as progress:
        done = pack_files(Leaderboard(leaderboard), runs, progress)
    for path, why in done.left_out.items():
        remark(f"left out: {path}: {why}.")
    print_text(
        f"{leaderboard}: {done.files:,} files of runs ({done.new:,} new), {done.bytes / 1e6:.1f} MB. Of samples, the "
        f"generated texts of the first {PROMPTS} prompts."
    )


def push(
    repo: Repo,
    leaderboard: options.OwnBoard = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Add the entries to a shared board, with the files of their runs.

    The files are packed first, as by `emobench leaderboard pack`. Both boards are verified before anything is written.
    No entry there is replaced, and two pushes at once do not conflict. If a push was stopped, give it again.
    """
    place = sharing.find_place(repo)
    done = sharing.push(Leaderboard(leaderboard), place, runs, reporter(quiet).note)
    if json:
        print_json({"repo": place.name, "sent": done.entries, "skipped": done.there, "files": done.files})
        return
    print_text(
        f"{place.name}: entries sent: {done.entries:,}, with {done.files:,} files of runs; skipped, which it has: "
        f"{done.there:,}. Others get them with: emobench leaderboard pull {shlex.quote(place.name)}"
    )


def pull(
    repo: Repo,
    leaderboard: options.OwnBoard = options.DEFAULT_BOARD,
    json: options.Json = False,
) -> None:
    """Add the entries of a shared board to this one, with the files of their runs.

    The shared board is verified before anything is written. No entry here is replaced.
    """
    place = sharing.find_place(repo)
    done = sharing.pull(Leaderboard(leaderboard), place)
    if json:
        plain = {
            "repo": place.name,
            "received": done.entries,
            "skipped": done.there,
            "files": done.files,
            "hidden": done.hidden,
        }
        print_json(plain)
        return
    print_text(
        f"{leaderboard}: entries received: {done.entries:,}, with {done.files:,} files of runs; skipped, which it has: "
        f"{done.there:,}. See them: emobench leaderboard show --leaderboard {shlex.quote(str(leaderboard))}"
    )
    if done.hidden:
        remark(f"New entries of the same runs now stand for {', '.join(done.hidden)}; an id still shows its entry.")
