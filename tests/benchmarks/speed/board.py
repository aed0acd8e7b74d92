"""What a board of 10,000 entries costs: appending, then listing, reading, `show`, `verify` and `site`.

    python tests/benchmarks speed.board [--entries 10000] [--rounds 3] [--out FILE]

Each is a fresh process; the files are in the page cache. Seconds are of the wall clock, the best of the rounds, with
the CPU seconds of the same round beside them: where other work takes the cores, only these are the board's own. The
store's part is measured inside of its process, after imports.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import RESULTS, origin, write
from speed.boards import made_entries

from emobench.leaderboard.entry import read_entry
from emobench.leaderboard.store import Leaderboard

LIMITS = {"rows": 2.0, "show": 2.5, "site": 20.0}
"""Seconds of the wall clock that a process may take with 10,000 entries."""
STORE = """
import sys, time
from pathlib import Path
from emobench.leaderboard.store import Leaderboard
board, began = Leaderboard(Path(sys.argv[1])), time.perf_counter()
found = getattr(board, sys.argv[2])()
assert found and not board.problems, board.problems[:1]
print(time.perf_counter() - began)
"""


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS / "speed" / "board.json")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "board"
        appending = append_all(root, options.entries)
        rows = [measured(name, root, options.rounds) for name in ("rows", "entries", "show", "site", "verify")]
    found = {"entries": options.entries, "append_seconds": round(appending, 3), "measured": rows}
    write({**origin(__file__, argv, "cpu"), **found}, options.out)
    for row in rows:
        print(f"{row['name']:8}{shown(row)}")
        if options.entries == 10_000 and row["name"] in LIMITS:
            limit = LIMITS[row["name"]]
            print(f"{'':8}{'within' if row['seconds'] <= limit else 'OVER'} the limit of {limit} s")


def append_all(root: Path, count: int) -> float:
    """Append made entries to a board, each synced to the disk; return the seconds that this took."""
    board, entries = Leaderboard(root), [read_entry(plain, "made") for plain in made_entries(count)]
    began = time.perf_counter()
    for entry in entries:
        board.append(entry)
    return time.perf_counter() - began


def measured(name: str, root: Path, rounds: int) -> dict[str, Any]:
    """Return the best seconds of one kind of work."""
    return {"name": name, **min((timed(name, root) for _ in range(rounds)), key=_seconds)}


def timed(name: str, root: Path) -> dict[str, float]:
    """Return the seconds of a fresh process, and of the store alone where that is all that is measured."""
    out = root.parent / "site"
    command = {
        "show": ["-m", "emobench", "leaderboard", "show", "--leaderboard", root],
        "site": ["-m", "emobench", "leaderboard", "site", out, "--leaderboard", root],
        "verify": ["-m", "emobench", "leaderboard", "verify", "--leaderboard", root, "--entries-only", "--quiet"],
    }.get(name, ["-c", STORE, root, name])
    used, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=root.parent)
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{name}: {done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    found = {"seconds": round(seconds, 3), "cpu_seconds": round(cpu, 3)}
    if name in ("rows", "entries"):
        found["store_seconds"] = round(float(done.stdout), 3)
    if name == "site":
        found["bytes"] = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    return found


def shown(found: dict[str, float]) -> str:
    parts = [f"{found['seconds']:.2f} s ({found['cpu_seconds']:.2f} s of CPU)"]
    parts += [f"store {found['store_seconds']:.2f} s"] if "store_seconds" in found else []
    parts += [f"{found['bytes'] / 1e6:.1f} MB"] if "bytes" in found else []
    return ", ".join(parts)


def _seconds(found: dict[str, float]) -> float:
    return found["seconds"]


if __name__ == "__main__":
    main(sys.argv[1:])
