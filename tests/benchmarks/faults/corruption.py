"""Flips, cuts, empties, deletes and replaces every kind of file of runs and boards, and looks at what comes of it.

Each case damages one file of a finished job, or of one that was killed. Then the results are compared (as a reader
would), the job is run again on an empty board (its numbers come from what is on disk), and the results are compared
once more. Right is what an undisturbed job gives, or a sentence that names the file; wrong are other numbers, a
traceback, a command that hangs, and a file that running again does not mend.

    python tests/benchmarks faults.corruption [--cases 300] [--job NAME] [--seed 0] [--folder DIR] [--out FILE]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.jobs import HUNG, JOBS, Command, Finished, Job, copied, entries, jobs, quiet_machine, stable
from measuring import RESULTS, origin, write

KEY = re.compile(r"[0-9a-f]{12,16}")
WRONG = ("wrong numbers", "traceback", "hung", "unnamed", "not mended")


def flip(path: Path, draw: random.Random) -> None:
    """Flip a bit, and leave the file's size and time as they were."""
    status, data = path.stat(), bytearray(path.read_bytes())
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def cut(path: Path, draw: random.Random) -> None:
    os.truncate(path, draw.randrange(path.stat().st_size))


def cut_line(path: Path, draw: random.Random) -> None:
    """Cut at an end of line, where what is left can be read; anywhere in a file of one line."""
    data = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(data[:-1]) if byte == 10]
    path.write_bytes(data[: draw.choice(ends)] if ends else data[: len(data) // 2])


def empty(path: Path, draw: random.Random) -> None:
    path.write_bytes(b"")


def delete(path: Path, draw: random.Random) -> None:
    path.unlink()


def replace(path: Path, draw: random.Random) -> None:
    """Put something else there: JSON of another type, random bytes, or a folder."""
    kind = draw.randrange(3)
    path.unlink()
    if kind == 2:
        path.mkdir()
    else:
        path.write_bytes([b"[]", draw.randbytes(200)][kind])


VERIFY = ("leaderboard", "verify", "--leaderboard", "{}/board", "--runs", "{}/runs")
DAMAGES = (flip, cut, cut_line, empty, delete, replace)
Damage = Callable[[Path, random.Random], None]


@dataclass(frozen=True)
class State:
    """A folder of runs and a board to be copied and damaged; what its job ends in, and what its readers print."""

    job: Job
    folder: Path
    finished: bool
    entries: dict[str, Any]
    read: list[Any]

    def files(self) -> list[Path]:
        """Return one file of each kind, by its place without keys."""
        kinds: dict[str, Path] = {}
        for path in sorted(self.folder.rglob("*")):
            place = path.relative_to(self.folder)
            if path.is_file() and path.stat().st_size and place.parts[0] in ("runs", "board"):
                kinds.setdefault(KEY.sub("KEY", str(place)), place)
        return list(kinds.values())


class Cases:
    """Makes the states once, then damages copies of them."""

    def __init__(self, root: Path, names: Collection[str]) -> None:
        self._root = root
        self._jobs = [job for job in jobs(made(root / "inputs"), seeds=1) if job.name in names]

    def states(self) -> Iterator[State]:
        for job in self._jobs:
            whole = self._root / f"whole-{job.name}"
            self._done(job.words(whole))
            expected = entries(whole)
            read = [stable(one.out, whole) for one in self._read(job, whole, job.read)]
            yield State(job, whole, True, expected, read)
            for pattern in ("train/*.part/checkpoints/*/seal.json", "generate/*.part/unfinished.jsonl"):
                if killed := self._killed(job, pattern):
                    yield State(job, killed, False, expected, [])

    def outcome(self, state: State, file: Path, damage: Damage, draw: random.Random) -> tuple[str, str]:
        """Return what came of a damage, and the words that show it."""
        folder = copied(state.folder, self._root / "case")
        damage(folder / file, draw)
        if state.finished:
            for one, expected in zip(self._read(state.job, folder, state.job.read), state.read, strict=True):
                said = _judged(one, stable(one.out, folder) == expected, file)
                if said in WRONG:
                    return said, _shown(one)
        again = self._run(state.job.words(folder, "fresh"))
        said = _judged(again, entries(folder, "fresh") == state.entries, file)
        if said in WRONG or again.code:
            return said, _shown(again)
        if state.finished and file.parts[0] == "runs":
            self._done(state.job.words(folder))
            for one in self._read(state.job, folder, (*state.job.read[:1], VERIFY)):
                if one.code or (one.words[0] == "compare" and stable(one.out, folder) != state.read[0]):
                    return "not mended", _shown(one)
        return said, ""

    def _read(self, job: Job, folder: Path, read: tuple[tuple[str, ...], ...]) -> list[Finished]:
        return [self._run([word.format(folder) for word in words]) for words in read]

    def _run(self, words: list[str]) -> Finished:
        return Command(words, self._root / "out").finish()

    def _done(self, words: list[str]) -> None:
        done = self._run(words)
        assert done.code == 0, done.err

    def _killed(self, job: Job, pattern: str) -> Path | None:
        """Return the folder of a job that was killed when a file was there; None where it had ended before."""
        folder = made(self._root / f"killed-{job.name}-{pattern.partition('/')[0]}")
        command = Command(job.words(folder), self._root / "out")
        while command.running() and not any((folder / "runs").glob(pattern)):
            time.sleep(0.001)
        command.kill()
        command.finish()
        return folder if any((folder / "runs").glob(pattern)) else None


def made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _judged(done: Finished, equal: bool, file: Path) -> str:
    """Say what a command came to: the stage or the file that was damaged may be named."""
    if done.code == HUNG or done.code < 0:
        return "hung"
    if done.traceback:
        return "traceback"
    named = any(name in done.err + done.out for name in (file.name, file.parts[-2])) and bool(done.err + done.out)
    if equal and done.code == 0:
        return "equal, and said" if named and done.err else "equal"
    # An entry that was deleted is on no board: what asks for it says that it is not there.
    if named or (done.code == 2 and file.parts[0] == "board"):
        return "a sentence"
    return "unnamed" if done.code else "wrong numbers"


def _shown(done: Finished) -> str:
    return f"{' '.join(done.words[:3])}: exit {done.code}: {done.err[-700:]}{done.out[-300:] if done.code else ''}"


def run(root: Path, names: Collection[str], count: int, seed: int) -> dict[str, Any]:
    """Return the counts of outcomes and the cases that went wrong."""
    cases, draw = Cases(root, names), random.Random(seed)
    chosen = [(state, file, damage) for state in cases.states() for file in state.files() for damage in DAMAGES]
    draw.shuffle(chosen)
    outcomes: Counter[str] = Counter()
    by_damage: dict[str, Counter[str]] = {damage.__name__: Counter() for damage in DAMAGES}
    wrong = []
    for number, (state, file, damage) in enumerate(chosen[:count], 1):
        outcome, words = cases.outcome(state, file, damage, draw)
        outcomes[outcome] += 1
        by_damage[damage.__name__][outcome] += 1
        if outcome in WRONG:
            place = KEY.sub("KEY", str(file))
            where = f"{state.job.name}{'' if state.finished else ', killed'}"
            wrong.append({"job": where, "file": place, "damage": damage.__name__, "outcome": outcome, "words": words})
            print(f"{number}: {outcome}: {where}: {damage.__name__} {file}\n  {words}", flush=True)
    kinds = {(state.job.name, state.finished, KEY.sub("KEY", str(file))) for state, file, _ in chosen}
    return {
        "possible_cases": len(chosen),
        "kinds_of_file": len(kinds),
        "cases": min(count, len(chosen)),
        "outcomes": dict(outcomes.most_common()),
        "by_damage": {name: dict(found.most_common()) for name, found in by_damage.items()},
        "wrong": wrong,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=300, help="How many, drawn from all; there are over 500.")
    parser.add_argument("--job", choices=JOBS, help="Default: all.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="Where to work. Default: a temporary folder.")
    parser.add_argument("--out", type=Path, default=RESULTS / "faults" / "corruption.json")
    given = parser.parse_args()
    quiet_machine()
    began, root = time.monotonic(), given.folder or Path(tempfile.mkdtemp())
    found = run(root, JOBS if given.job is None else (given.job,), given.cases, given.seed)
    shutil.rmtree(root, ignore_errors=True)
    write({**origin(__file__, sys.argv[1:], "cpu"), "seconds": round(time.monotonic() - began), **found}, given.out)
    print(f"{found['cases']} of {found['possible_cases']} cases: {found['outcomes']}")
    return bool(found["wrong"])


if __name__ == "__main__":
    sys.exit(main())
