"""What the page of 10,000 entries costs in Chromium: until something is painted, and until the table is there.

    python tests/benchmarks speed.page [--entries 10000] [--rounds 5] [--out FILE]

Each round is a fresh profile that opens the file from the disk. `first_paint_ms` is the browser's own first contentful
paint, `table_ms` when the rows of the first suite stand in the table and its charts have their places. The load of the
machine is recorded with the numbers: they are of an idle machine only where it is near 0.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measuring import RESULTS, origin, write
from playwright.sync_api import Browser, sync_playwright
from speed.boards import fill_board

LIMIT_MS = 500
"""Until the first paint."""
MARKS = """
() => ({
  first_paint_ms: performance.getEntriesByName("first-contentful-paint")[0].startTime,
  table_ms: performance.getEntriesByName("table")[0].startTime,
})
"""


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "speed" / "page.json")
    options = parser.parse_args(argv)
    executable = shutil.which("chromium")
    if executable is None:
        sys.exit("There is no Chromium to open the page in: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = made(Path(folder), options.entries)
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        before = os.getloadavg()[0]
        rounds = [opened(browser, page) for _ in range(options.rounds)]
        found: dict[str, Any] = {
            "entries": options.entries,
            "bytes": page.stat().st_size,
            "chromium": browser.version,
            "load_average": [round(before, 2), round(os.getloadavg()[0], 2)],
            "rounds": rounds,
            "median": {name: statistics.median(one[name] for one in rounds) for name in rounds[0]},
        }
        browser.close()
    write({**origin(__file__, argv, "cpu"), **found}, options.out)
    median = found["median"]
    print(f"{options.entries:,} entries, {found['bytes'] / 1e6:.1f} MB, load average {before:.1f}")
    painted, table = (f"{median[name]:.0f} ms" for name in ("first_paint_ms", "table_ms"))
    print(f"first paint {painted}, table {table} (median of {options.rounds})")
    within = "within" if median["first_paint_ms"] <= LIMIT_MS else "OVER"
    print(f"{within} the limit of {LIMIT_MS} ms until the first paint")


def made(folder: Path, entries: int) -> Path:
    """Write the page of a board of made entries, and return it."""
    fill_board(folder / "board", entries)
    command = ["-m", "emobench", "leaderboard", "site", folder / "site", "--leaderboard", folder / "board"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=folder)
    if done.returncode:
        sys.exit(done.stderr)
    return folder / "site" / "board.html"


def opened(browser: Browser, path: Path) -> dict[str, float]:
    """Open a page in a fresh profile, and return its times in milliseconds since the navigation began."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]", timeout=60_000)
    times = {name: round(value, 1) for name, value in page.evaluate(MARKS).items()}
    context.close()
    return times


if __name__ == "__main__":
    main(sys.argv[1:])
