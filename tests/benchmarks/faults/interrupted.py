"""Interrupts small jobs at random places, runs them again until they finish, and compares with undisturbed ones.

Each job trains, generates, scores, rescores, and writes a page and an export; its stages are made by the command's own
process, by two workers, or by a sweep. A step is interrupted again and again, and is then finished:

    kill, term   by SIGKILL or SIGTERM, after a random share of the time that it took undisturbed
    full-disk    by a disk (a tmpfs, which root may mount) with a random share of the room that it took undisturbed;
                 the command has to say so, and may end only with an error

Results have to be those of one process that nothing disturbed, nothing that an interruption left may stay, and no
command may fail or show a traceback.

    python tests/benchmarks faults.interrupted [--fault kill] [--count 200] [--job NAME] [--executor NAME] [--seed 0]
        [--folder DIR] [--out FILE]

Run again with the same --folder it goes on: what is counted there is not done again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from faults.jobs import EXECUTORS, HUNG, JOBS, Command, Finished, Job, entries, jobs, quiet_machine
from measuring import RESULTS, origin, write

PAGE = 4096
LEAST_ROOM = 8 * PAGE
"""What a step may need that leaves fewer bytes than it found."""
PLENTY = 1 << 30
NO_ROOM = re.compile(r"No space left|cut short")
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
        yield "export", ["leaderboard", "export", "--out", str(folder / "export.csv"), *board]

    def __str__(self) -> str:
        return f"{self.job.name}, {self.executor}"


class Fault(ABC):
    """What interrupts a command."""

    @contextmanager
    def place(self, folder: Path) -> Iterator[None]:
        """Make the folder that a case works in."""
        folder.mkdir(parents=True)
        yield

    @abstractmethod
    def attempt(self, words: list[str], folder: Path, share: float, whole: Step) -> Finished | None:
        """Run a command that is interrupted after a share of what it took undisturbed; None where it was."""


class Signal(Fault):
    """Ends the process after a share of its time."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number

    def attempt(self, words: list[str], folder: Path, share: float, whole: Step) -> Finished | None:
        command = Command(words, folder.parent / "out")
        while command.running() and time.monotonic() - command.began < share * whole.seconds:
            time.sleep(0.002)
        if not command.running():
            return command.finish()
        command.kill(self.number)
        done = command.finish()
        return done if done.traceback or done.code == HUNG else None


class FullDisk(Fault):
    """Leaves a share of the room that a command takes."""

    @contextmanager
    def place(self, folder: Path) -> Iterator[None]:
        folder.mkdir(parents=True)
        self._mount(folder, PLENTY)
        try:
            yield
        finally:
            subprocess.run(["umount", folder], check=True)

    def attempt(self, words: list[str], folder: Path, share: float, whole: Step) -> Finished | None:
        disk = os.statvfs(folder)
        used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        self._mount(folder, used + int(share * max(whole.end_bytes - used, LEAST_ROOM)), "remount")
        done = run_command(words, folder.parent)
        self._mount(folder, PLENTY, "remount")
        return None if done.code and not done.traceback and NO_ROOM.search(done.out + done.err) else done

    @staticmethod
    def _mount(folder: Path, size: int, *options: str) -> None:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", ",".join((*options, f"size={size}")), "tmpfs", folder], check=True
        )


FAULTS: dict[str, Fault] = {
    "kill": Signal(signal.SIGKILL),
    "term": Signal(signal.SIGTERM),
    "full-disk": FullDisk(),
}


def run_command(words: list[str], root: Path) -> Finished:
    return Command(words, root / "out").finish()


class Step(NamedTuple):
    """What a command takes undisturbed: its time, and the room of all files when it has ended."""

    seconds: float
    end_bytes: int


class Undisturbed:
    """What a case ends in, and what each of its steps takes."""

    def __init__(self, case: Case, root: Path) -> None:
        folder = root / "whole"
        self.case = case
        self.steps: dict[str, Step] = {}
        for name, words in case.steps(folder):
            began = time.monotonic()
            done = run_command(words, root)
            assert done.code == 0, done.err
            self.steps[name] = Step(time.monotonic() - began, _room_of(folder))
        self.entries = entries(folder)


def _room_of(folder: Path) -> int:
    """Return the bytes of all files, each in whole pages, as a tmpfs counts them."""
    sizes = (path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return sum(-(-size // PAGE) * PAGE for size in sizes)


def disturbed(
    whole: Undisturbed, folder: Path, draw: random.Random, count: int, fault: Fault
) -> tuple[Counter[str], list[str]]:
    """Do a case with at most so many interruptions; return these by step, and what went wrong."""
    hits: Counter[str] = Counter()
    wrong: list[str] = []
    with fault.place(folder):
        for name, words in whole.case.steps(folder):
            done: Finished | None = None
            wanted = 4 if name == "run" else 1
            while done is None:
                if hits[name] < wanted and hits.total() < count:
                    done = fault.attempt(words, folder, draw.random(), whole.steps[name])
                    hits[name] += done is None
                else:
                    done = run_command(words, folder.parent)
            if done.code or done.traceback:
                wrong.append(f"{name}: exit {done.code}: {done.err[-700:]}")
        if not wrong and entries(folder) != whole.entries:
            wrong.append("other results than undisturbed")
        wrong += [f"left: {path.relative_to(folder)}" for pattern in LEFT for path in folder.rglob(pattern)]
    return hits, wrong


def run(
    root: Path, names: Collection[str], executors: Collection[str], count: int, seed: int, fault: Fault
) -> dict[str, Any]:
    """Return how many interruptions hit each step of each job, and what went wrong; goes on with what `root` counts."""
    (root / "inputs").mkdir(parents=True, exist_ok=True)
    state = root / "rounds.jsonl"
    rounds = [json.loads(line) for line in state.read_text().splitlines()] if state.exists() else []
    todo = [Case(job, one) for job in jobs(root / "inputs", seeds=1) if job.name in names for one in executors]
    wholes: dict[str, Undisturbed] = {}

    def undisturbed(case: Case) -> Undisturbed:
        if str(case) not in wholes:
            wholes[str(case)] = Undisturbed(case, root / f"at-{time.monotonic_ns()}")
        return wholes[str(case)]

    while (so_far := sum(sum(one["hits"].values()) for one in rounds)) < count:
        place = len(rounds)
        case = todo[place % len(todo)]
        whole, alone = undisturbed(case), undisturbed(case._replace(executor=EXECUTORS[0]))
        assert whole.entries == alone.entries, f"{case} gives other results than one process"
        folder = root / f"round-{place}-{time.monotonic_ns()}"
        hits, wrong = disturbed(whole, folder, random.Random(seed * 10_000 + place), count - so_far, fault)
        rounds.append({"job": case.job.name, "executor": case.executor, "hits": dict(hits), "wrong": wrong})
        with state.open("a") as file:
            file.write(json.dumps(rounds[-1]) + "\n")
        print(f"round {place}, {case}: {dict(hits)}, wrong {wrong}", flush=True)
    by_step: Counter[str] = Counter()
    by_executor: Counter[str] = Counter()
    for one in rounds:
        by_step.update({f"{one['job']} {step}": hits for step, hits in one["hits"].items()})
        by_executor[one["executor"]] += one["hits"].get("run", 0)
    found = {"rounds": len(rounds), "by_step": dict(by_step), "runs_by_executor": dict(by_executor)}
    return {"count": by_step.total(), **found, "wrong": [one for one in rounds if one["wrong"]]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", choices=FAULTS, default="kill")
    parser.add_argument("--count", type=int, default=200, help="Interruptions in all.")
    parser.add_argument("--job", choices=JOBS, help="Default: all.")
    parser.add_argument("--executor", choices=EXECUTORS, help="Default: all.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="Where to work, and to go on. Default: a temporary folder.")
    parser.add_argument("--out", type=Path, help="Default: results/faults/interrupted-FAULT.json beside this.")
    given = parser.parse_args()
    quiet_machine()
    root = given.folder or Path(tempfile.mkdtemp())
    names = JOBS if given.job is None else (given.job,)
    executors = EXECUTORS if given.executor is None else (given.executor,)
    found = run(root, names, executors, given.count, given.seed, FAULTS[given.fault])
    out = given.out or RESULTS / "faults" / f"interrupted-{given.fault}.json"
    write({**origin(__file__, sys.argv[1:], "cpu"), "fault": given.fault, **found}, out)
    print(f"{found['count']} interruptions in {found['rounds']} rounds, {len(found['wrong'])} wrong")
    for name in ("by_step", "runs_by_executor"):
        print("\n".join(f"  {step:24} {hits:4}" for step, hits in found[name].items()))
    return bool(found["wrong"])


if __name__ == "__main__":
    sys.exit(main())
