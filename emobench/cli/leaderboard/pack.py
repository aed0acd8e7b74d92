"""`emobench leaderboard pack`: a board that takes the files of its runs with it."""

from __future__ import annotations

from emobench.cli import options
from emobench.cli.terminal.console import reporter
from emobench.cli.terminal.streams import print_text, remark
from emobench.leaderboard.pack import PROMPTS
from emobench.leaderboard.pack import pack as pack_files
from emobench.leaderboard.store import Leaderboard


def pack(
    leaderboard: options.Board = options.DEFAULT_BOARD,
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
