"""Rounds of twelve commands at once on one folder of runs and one board: the same ones, overlapping ones, and readers.

All have to end without an error, and each row has to be recorded once, with what it has when it runs alone.

    python tests/benchmarks faults.concurrency [--rounds 20] [--seed 0] [--folder DIR] [--out FILE]
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from faults.jobs import Command, Finished, Job, copied, entries, jobs, quiet_machine
from measuring import RESULTS, origin, write

AT_ONCE = 12
APART = 0.15
"""Most seconds between two starts: some commands meet at once, others in each other's middle."""


def commands(job: Job, folder: Path, draw: random.Random, *, made: bool) -> list[list[str]]:
    """Return twelve commands: on a finished job half of them rescore, on an empty folder all make it."""
    whole = job.words(folder)
    one = [word for place, word in enumerate(whole) if "emo" not in (word, *whole[place + 1 : place + 2][:1])]
    rescore = ["evaluate", "--rescore", *whole[1:]]
    board = ["--leaderboard", str(folder / "board")]
    show, compare = ["leaderboard", "show", "--json", *board], [word.format(folder) for word in job.read[0]]
    readers = [show, show, compare, compare] if made else []
    writers = [whole, one, rescore] if made else [whole, whole, one]
    chosen = readers + [writers[place % len(writers)] for place in range(AT_ONCE - len(readers))]
    draw.shuffle(chosen)
    return chosen


def at_once(chosen: list[list[str]], root: Path, draw: random.Random) -> list[Finished]:
    started = []
    for words in chosen:
        started.append(Command(words, root / "out"))
        time.sleep(draw.random() * APART)
    return [command.finish(900.0) for command in started]


def judged(done: list[Finished], folder: Path, expected: dict[str, Any]) -> list[str]:
    """Return what went wrong in a round."""
    wrong = [f"{' '.join(one.words[:3])}: exit {one.code}: {one.err[-700:]}" for one in done if one.code]
    found = entries(folder)
    wrong += [f"{len(rows)} entries of {name}" for name, rows in found.items() if len(rows) > 1]
    files = len(list((folder / "board").glob("*/[0-9a-f]*.json")))
    if files != len(expected):
        wrong.append(f"{files} files for {len(expected)} entries")
    if found != expected:
        wrong.append("other results than alone")
    left = [path.relative_to(folder) for pattern in ("*.lock", "*.part", "*.old") for path in folder.rglob(pattern)]
    return wrong + [f"left: {path}" for path in left]


def run(root: Path, rounds: int, seed: int) -> dict[str, Any]:
    """Return how many rounds and commands there were, and what went wrong."""
    (root / "inputs").mkdir(parents=True, exist_ok=True)
    todo = jobs(root / "inputs", seeds=1)
    wrong, count = [], 0
    for number in range(rounds):
        job, draw = todo[number % len(todo)], random.Random(seed * 10_000 + number)
        whole, folder = root / f"whole-{job.name}", root / "round"
        if number < len(todo):
            done = Command(job.words(whole), root / "out").finish()
            assert done.code == 0, done.err
        shutil.rmtree(folder, ignore_errors=True)
        made = number % 2 == 0
        if made:
            copied(whole, folder)
        found = at_once(commands(job, folder, draw, made=made), root, draw)
        count += len(found)
        said = judged(found, folder, entries(whole))
        wrong += [{"round": number, "job": job.name, "wrong": said}] if said else []
        print(f"round {number}, {job.name}, {'finished' if made else 'empty'}: {said or 'right'}", flush=True)
    return {"rounds": rounds, "commands": count, "wrong": wrong}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="Where to work. Default: a temporary folder.")
    parser.add_argument("--out", type=Path, default=RESULTS / "faults" / "concurrency.json")
    given = parser.parse_args()
    quiet_machine()
    found = run(given.folder or Path(tempfile.mkdtemp()), given.rounds, given.seed)
    write({**origin(__file__, sys.argv[1:], "cpu"), **found}, given.out)
    print(f"{found['rounds']} rounds, {found['commands']} commands, {len(found['wrong'])} rounds wrong")
    return bool(found["wrong"])


if __name__ == "__main__":
    sys.exit(main())
