"""`emobench leaderboard push` and `pull`: a board that several people share."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from emobench.cli import options
from emobench.cli.terminal.console import print_json, reporter
from emobench.cli.terminal.streams import print_text, remark
from emobench.exchange.sharing import share
from emobench.exchange.sharing.places import find_place
from emobench.leaderboard.store import Leaderboard

Repo = Annotated[
    str,
    typer.Argument(
        metavar="REPO",
        help="A folder, such as the clone of a git repository, or hf://datasets/OWNER/NAME.",
    ),
]


def push(
    repo: Repo,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
    sign_key: Annotated[
        Path | None,
        typer.Option("--sign-key", help="A private key of ssh: sign the list of digests. It vouches for all entries."),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Add the entries to a shared board, with the files of their runs.

    The files are packed first, as by `emobench leaderboard pack`. Both boards are verified before anything is written.
    Nothing there is replaced, and two pushes at once do not conflict. A push that was stopped is given again.
    """
    place = find_place(repo)
    done = share.push(Leaderboard(leaderboard), place, runs, sign_key, reporter(quiet).note)
    if json:
        print_json({"repo": place.name, "sent": done.entries, "skipped": done.there, "files": done.files})
        return
    print_text(
        f"{place.name}: {_counted(done.entries)} sent with {done.files:,} files of runs; {done.there:,} skipped, which "
        f"it has. Others get them with: emobench leaderboard pull {shlex.quote(place.name)}"
    )


def pull(
    repo: Repo,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    allowed_signers: Annotated[
        Path | None,
        typer.Option(
            "--allowed-signers",
            help="A file of names and keys, as of ssh-keygen(1): refuse a board that none of them signed.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Add the entries of a shared board to this one, with the files of their runs.

    All of it is verified before anything is written. Nothing here is replaced.
    """
    place = find_place(repo)
    done = share.pull(Leaderboard(leaderboard), place, allowed_signers)
    if json:
        received = {"received": done.entries, "skipped": done.there, "files": done.files, "hidden": done.hidden}
        print_json({"repo": place.name, **received})
        return
    board = "" if leaderboard == options.DEFAULT_BOARD else f" --leaderboard {shlex.quote(str(leaderboard))}"
    print_text(
        f"{leaderboard}: {_counted(done.entries)} received with {done.files:,} files of runs; {done.there:,} skipped, "
        f"which it has. See them: emobench leaderboard show{board}"
    )
    if done.hidden:
        remark(f"New entries of the same runs now stand for {', '.join(done.hidden)}; an id still shows its entry.")


def _counted(entries: int) -> str:
    return "1 entry" if entries == 1 else f"{entries:,} entries"
