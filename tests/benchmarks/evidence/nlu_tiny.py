"""The accuracies of the suite `nlu-tiny` with 8 retrieved shots and with none, as the README gives their ranges.

    python tests/benchmarks evidence.nlu_tiny [--runs DIR] [--leaderboard DIR] [--out FILE]

Runs what is missing (finished stages are reused): four objectives, three seeds, minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from measuring import RESULTS, origin, write

SHOTS = {"retrieved": (), "none": ("--set", "icl.shots=0")}


def accuracies(arguments: tuple[str, ...]) -> dict[str, list[float]]:
    """Run the suite, and return each objective's accuracy by seed, as fractions."""
    command = [sys.executable, "-m", "emobench", "run", "--suite", "nlu-tiny", *arguments, "--offline", "--json"]
    entries: list[Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["entries"]
    return {entry["objective"]["name"]: entry["metrics"]["nlu-tiny/accuracy"]["values"] for entry in entries}


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="runs")
    parser.add_argument("--leaderboard", default="leaderboards/studies/smollm2")
    parser.add_argument("--out", type=Path, default=RESULTS / "evidence" / "nlu_tiny-cpu.json")
    options = parser.parse_args(argv)
    places = ("--runs", options.runs, "--leaderboard", options.leaderboard)
    found: dict[str, Any] = {**origin(__file__, [], "cpu"), "accuracy": {}, "range": {}}
    for name, given in SHOTS.items():
        found["accuracy"][name] = accuracies((*given, *places))
        values = [value for row in found["accuracy"][name].values() for value in row]
        found["range"][name] = [min(values), max(values)]
        print(f"shots {name}: {100 * min(values):.1f} to {100 * max(values):.1f} %")
    write(found, options.out)


if __name__ == "__main__":
    main(sys.argv[1:])
