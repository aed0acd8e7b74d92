"""What a command costs before it works: the CPU seconds of fresh processes, user and system together.

    python tests/benchmarks speed.start_up [--rounds 5] [--out FILE]

The commands alternate; each ran once before, so that its files are in the page cache. The first dry run is of a model
and of data that are not on the machine: the caches of models and data sets are empty folders. That of the default suite
counts the tokens of a corpus that it makes, for a model that is not made yet.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from measuring import RESULTS, fresh_process, median_and_range, origin, write

COMMANDS = {
    "python": ["-c", "pass"],
    "import torch": ["-c", "import torch"],
    "--help": ["-m", "emobench", "--help"],
    "objectives list": ["-m", "emobench", "objectives", "list"],
    "run --dry-run": [
        *("-m", "emobench", "run", "--objective", "emo", "--model", "llama-7b", "--suite", "nlu", "--dry-run")
    ],
    "run --dry-run, default suite": ["-m", "emobench", "run", "--dry-run"],
}
"""The arguments of Python; the first two are what the others cannot be below."""
LIMITS = {"run --dry-run": 4.0}
"""CPU seconds."""


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "speed" / "start_up.json")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(Path(folder), options.rounds)
    write({**origin(__file__, argv, "cpu"), "cpu_seconds": measured}, options.out)
    for name, found in measured.items():
        limit = LIMITS.get(name)
        verdict = "" if limit is None else f"  {'within' if found['median'] <= limit else 'OVER'} the limit of {limit}"
        print(f"{name:30}{found['median']:6.2f} s of CPU, {found['least']:.2f} to {found['most']:.2f}{verdict}")


def measure(folder: Path, rounds: int) -> dict[str, Any]:
    """Return the median CPU seconds of each command, and their range."""
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for number in range(rounds + 1):
        for name in list(COMMANDS)[:: 1 if number % 2 else -1]:
            used = fresh_process([sys.executable, *COMMANDS[name]], folder, {"HF_HOME": str(folder)})
            if number:  # the first round fills the page cache
                seconds[name].append(used.cpu_seconds)
    return {name: median_and_range(found) for name, found in seconds.items()}


if __name__ == "__main__":
    main(sys.argv[1:])
