"""Kills small jobs at random moments, runs them again until they finish, and compares with undisturbed ones.

Each job trains, generates, scores, rescores, and writes a page and an export; its stages are made by the command's own
process, by two workers, or by a sweep. A step gets a signal (SIGKILL) after a random share of the time that it took
undisturbed, again and again, and is then finished. Results have to be those of one process that nothing disturbed,
nothing that a kill left may stay, and no command may fail or show a traceback.

    python tests/benchmarks faults.interrupted [--kills 200] [--job NAME] [--executor NAME] [--signal KILL] [--seed 0]
        [--folder DIR] [--out FILE]

Run again with the same --folder it goes on: what is counted there is not done again.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from faults.jobs import EXECUTORS, HUNG, JOBS, Command, Finished, Job, entries, jobs, quiet_machine
from measuring import RESULTS, origin, write

LEFT = ("*.part", "*.lock", "*.old", ".*.part", ".lock")
"""What an unfinished write is called; none is there when all is finished."""


class Case(NamedTuple):
    """A job, and what makes its stages."""

    job: Job
    executor: str

    def steps(self, folder: Path) -> Iterator[tuple[str, list[str]]]:
        """Yield the commands, by what they do."""
        board, runs = ("--leaderboard", str(folder / "board")), ("--runs", str(folder / "runs"))
        yield "run", self.job.words(folder, executor=self.executor)
        yield "rescore", ["evaluate", "--rescore", *self.job.words(folder)[1:]]
        yield "page", ["leaderboard", "site", str(folder / "pages"), *board, *runs]
        yield "export", ["leaderboard", "export", "--out", str(folder / "export.jsonl"), *board]

    def __str__(self) -> str:
        return f"{self.job.name}, {self.executor}"


def run_command(
    words: list[str], root: Path, after: float | None = None, number: int = signal.SIGKILL
) -> Finished | None:
    """Run a command, and send it a signal after so many seconds; None where it was running."""
    command = Command(words, root / "out")
    if after is not None:
        while command.running() and time.monotonic() - command.began < after:
            time.sleep(0.002)
        if command.running():
            command.kill(number)
            done = command.finish()
            return done if done.traceback or done.code == HUNG else None
    return command.finish()


class Undisturbed:
    """What a case ends in, and how long each of its steps takes."""

    def __init__(self, case: Case, root: Path) -> None:
        folder = root / "whole"
        self.case = case
        self.seconds: dict[str, float] = {}
        for name, words in case.steps(folder):
            began = time.monotonic()
            done = run_command(words, root)
            assert done is not None
            assert done.code == 0, done.err
            self.seconds[name] = time.monotonic() - began
        self.entries = entries(folder)


def disturbed(
    whole: Undisturbed, folder: Path, draw: random.Random, kills: int, number: int
) -> tuple[Counter[str], list[str]]:
    """Do a case with at most so many kills; return these by step, and what went wrong."""
    killed: Counter[str] = Counter()
    wrong: list[str] = []
    for name, words in whole.case.steps(folder):
        done: Finished | None = None
        wanted = 4 if name == "run" else 1
        while done is None:
            hit = killed[name] < wanted and killed.total() < kills
            after = draw.random() * whole.seconds[name] if hit else None
            done = run_command(words, folder.parent, after, number)
            killed[name] += done is None
        if done.code or done.traceback:
            wrong.append(f"{name}: exit {done.code}: {done.err[-700:]}")
    if not wrong and entries(folder) != whole.entries:
        wrong.append("other results than undisturbed")
    wrong += [f"left: {path.relative_to(folder)}" for pattern in LEFT for path in folder.rglob(pattern)]
    return killed, wrong


def run(
    root: Path, names: Collection[str], executors: Collection[str], kills: int, seed: int, number: int
) -> dict[str, Any]:
    """Return how many kills hit each step of each job, and what went wrong; goes on with what `root` counts."""
    (root / "inputs").mkdir(parents=True, exist_ok=True)
    state = root / "rounds.jsonl"
    rounds = [json.loads(line) for line in state.read_text().splitlines()] if state.exists() else []
    todo = [Case(job, one) for job in jobs(root / "inputs", seeds=1) if job.name in names for one in executors]
    wholes: dict[str, Undisturbed] = {}

    def undisturbed(case: Case) -> Undisturbed:
        if str(case) not in wholes:
            wholes[str(case)] = Undisturbed(case, root / f"at-{time.monotonic_ns()}")
        return wholes[str(case)]

    while (count := sum(sum(one["killed"].values()) for one in rounds)) < kills:
        place = len(rounds)
        case = todo[place % len(todo)]
        whole, alone = undisturbed(case), undisturbed(case._replace(executor=EXECUTORS[0]))
        assert whole.entries == alone.entries, f"{case} gives other results than one process"
        folder = root / f"round-{place}-{time.monotonic_ns()}"
        killed, wrong = disturbed(whole, folder, random.Random(seed * 10_000 + place), kills - count, number)
        rounds.append({"job": case.job.name, "executor": case.executor, "killed": dict(killed), "wrong": wrong})
        with state.open("a") as file:
            file.write(json.dumps(rounds[-1]) + "\n")
        print(f"round {place}, {case}: kills {dict(killed)}, wrong {wrong}", flush=True)
    by_step: Counter[str] = Counter()
    by_executor: Counter[str] = Counter()
    for one in rounds:
        by_step.update({f"{one['job']} {step}": hits for step, hits in one["killed"].items()})
        by_executor[one["executor"]] += one["killed"].get("run", 0)
    found = {"rounds": len(rounds), "by_step": dict(by_step), "runs_by_executor": dict(by_executor)}
    return {"kills": by_step.total(), **found, "wrong": [one for one in rounds if one["wrong"]]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--job", choices=JOBS, help="Default: all.")
    parser.add_argument("--executor", choices=EXECUTORS, help="Default: all.")
    parser.add_argument("--signal", choices=("KILL", "TERM"), default="KILL")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="Where to work, and to go on. Default: a temporary folder.")
    parser.add_argument("--out", type=Path, default=RESULTS / "faults" / "interrupted.json")
    given = parser.parse_args()
    quiet_machine()
    root = given.folder or Path(tempfile.mkdtemp())
    names = JOBS if given.job is None else (given.job,)
    executors = EXECUTORS if given.executor is None else (given.executor,)
    number = signal.Signals[f"SIG{given.signal}"]
    found = run(root, names, executors, given.kills, given.seed, number)
    write({**origin(__file__, sys.argv[1:], "cpu"), "signal": number.name, **found}, given.out)
    print(f"{found['kills']} kills in {found['rounds']} rounds, {len(found['wrong'])} wrong")
    for name in ("by_step", "runs_by_executor"):
        print("\n".join(f"  {step:24} {hits:4}" for step, hits in found[name].items()))
    return bool(found["wrong"])


if __name__ == "__main__":
    sys.exit(main())
