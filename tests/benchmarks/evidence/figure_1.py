"""Figure 1 of the paper at its small scale, on three models, as `docs/evidence.md` shows it.

    python tests/benchmarks evidence.figure_1 --data-dir DIR [--data-dir DIR] --base FOLDER/base-en-7m [--seed 1]

Runs what is missing (finished stages are reused): five trainings of each of four objectives and their evaluations on
tiny-lm, on --base and on SmolLM2-135M, an hour on an idle core. --plot FILE also draws the figure.

The committed numbers are of a time when the first step of each training had a learning rate of 0: one of two, four or
twelve steps. The table's small scale has no warm-up any more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from measuring import RESULTS, origin, write

AXES = {"model": "parameters", "data": "training tokens"}
BEGIN, END = "<!-- figure-1: begin -->", "<!-- figure-1: end -->"


def table(found: Mapping[str, Any]) -> str:
    """Return the figure's points and slopes as a table in Markdown: a row for each objective and axis."""
    lines: list[str] = []
    slopes = {(line["panel"], line["row"]): line for line in found["lines"]}
    for panel, axis in AXES.items():
        points = [point for point in found["points"] if point["panel"] == panel]
        sizes = sorted({(point["size"], point["model"]) for point in points})
        named = [f"{model} ({size:,})" if panel == "model" else f"{size:,} tokens" for size, model in sizes]
        lines += ["", f"| over {axis} | {' | '.join(named)} | gain for ten times as much |"]
        lines.append(f"|{' --- |' * (len(sizes) + 2)}")
        for row in dict.fromkeys(point["row"] for point in points):
            values = {
                point["size"]: 100 * sum(point["values"]) / len(point["values"])
                for point in points
                if point["row"] == row
            }
            line = slopes[panel, row]
            low, high = (100 * end for end in line["slope_ci95"])
            cells = [f"{values[size]:.1f}" for size, _ in sizes]
            lines.append(f"| `{row}` | {' | '.join(cells)} | {100 * line['slope']:+.1f} [{low:+.1f}, {high:+.1f}] |")
    return "\n".join(lines[1:])


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, action="append", required=True)
    parser.add_argument("--base", type=Path, required=True, help="The folder of the model of middle size.")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--leaderboard", type=Path, default=Path("leaderboards/studies/smollm2"))
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "evidence" / "figure_1-cpu.json")
    options = parser.parse_args(argv)
    models = ("tiny-lm", options.base, "smollm2-135m-instruct")
    given: list[object] = [word for one in options.data_dir for word in ("--data-dir", one)]
    given += [word for one in models for word in ("--model", one)]
    given += ["--seed", options.seed, "--runs", options.runs, "--leaderboard", options.leaderboard]
    given += ["--plot", options.plot] if options.plot else []
    command = [
        "-m",
        "emobench",
        "reproduce",
        "figure-1",
        "--scale",
        "small",
        "--device",
        "cpu",
        "--json",
        *map(str, given),
    ]
    made = subprocess.run([sys.executable, *command], check=True, stdout=subprocess.PIPE)
    found = json.loads(made.stdout)
    write({**origin(__file__, argv, "cpu"), **found}, options.out)
    print(table(found))


if __name__ == "__main__":
    main(sys.argv[1:])
