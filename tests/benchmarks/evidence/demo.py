"""What `make demo` and the README's comparison print, as the README shows them, and how far another run is from them.

    python tests/benchmarks evidence.demo [--runs DIR] [--leaderboard DIR] [--out FILE]
    python tests/benchmarks evidence.demo --against results/demo.json ...

Runs what is missing (finished stages are reused): minutes on two cores. With `--against` it also prints how far each
metric is from that result, relative to it: other processors and numbers of threads round differently.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from measuring import RESULTS, origin, write

RUN = ("run", "--offline", "--quiet")
SHOWN = ("total_variation", "ppl*", "mauve", "rouge1")
COMPARE = ("compare", "emo", "mle", *(word for name in SHOWN for word in ("--metric", name)))
COLUMNS = 120


def printed(*arguments: str) -> str:
    """Return what a command prints at the README's width, without spaces at the ends of lines."""
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "emobench", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


def results(places: tuple[str, ...]) -> dict[str, Any]:
    """Return both texts, and the values of every metric by objective and seed."""
    entries: list[Any] = json.loads(printed(*RUN, "--json", *places))["entries"]
    values = {
        entry["objective"]["name"]: {name: metric["values"] for name, metric in entry["metrics"].items()}
        for entry in entries
    }
    return {"run": printed(*RUN, *places), "compare": printed(*COMPARE, *places), "values": values}


def distances(found: dict[str, Any], known: dict[str, Any]) -> dict[str, float]:
    """Return the largest relative distance of each metric's values, over objectives and seeds."""
    largest: dict[str, float] = {}
    for objective, metrics in known["values"].items():
        for name, values in metrics.items():
            for ours, theirs in zip(found["values"][objective][name], values, strict=True):
                largest[name] = max(largest.get(name, 0.0), abs(ours / theirs - 1))
    return largest


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="runs")
    parser.add_argument("--leaderboard", default="leaderboards/studies/smollm2")
    parser.add_argument("--out", type=Path, default=RESULTS / "evidence" / "demo.json")
    parser.add_argument("--against", type=Path)
    options = parser.parse_args(argv)
    found = {
        **origin(__file__, [], "cpu"),
        **results(("--runs", options.runs, "--leaderboard", options.leaderboard)),
    }
    print(found["run"], found["compare"], sep="\n\n")
    if options.against is not None:
        found["largest_relative_distance"] = distances(found, json.loads(options.against.read_text()))
        for name, distance in found["largest_relative_distance"].items():
            print(f"{name}: {100 * distance:.2g} % from {options.against}")
    write(found, options.out)


if __name__ == "__main__":
    main(sys.argv[1:])
