"""What the benchmarks of faults share: small jobs of every kind of stage, and commands as processes that start at once.

Each command is a fork of this process, which has imported everything: it is killed in its work and not in its imports.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import emobench.cli
from emobench.data.texts import load_texts
from emobench.runs.planning.tiny_models import TINY_MODELS, write_untrained

TRACEBACK = "Traceback (most recent call last)"
HUNG = -1
"""The code of a command that was ended after its time."""
JOBS = ("oracle", "generation", "icl")
EXECUTORS = ("in-process", "processes", "sweep")
"""What makes the stages of a job: the command's own process, two workers of it, or those of a sweep."""
PROCESSES = ("--processes", "2")
COMMON = ("--offline", "--device", "cpu", "--json")
OBJECTIVES = ("mle", "emo")
LIMIT = 12
SMALL: Mapping[str, Any] = {"recipe.epochs": 2, "recipe.max_tokens": 1024}
TEXTS = {"train": 60, "validation": 12, "test": 20}


@dataclass(frozen=True)
class Finished:
    """What a command printed, and its exit code; minus a signal's number where that ended it."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def traceback(self) -> bool:
        return TRACEBACK in self.err or (self.code == 1 and not self.err.strip() and not self.out.strip())


class Command:
    """A command that runs in a fork of this process."""

    def __init__(self, words: Sequence[object], folder: Path) -> None:
        self.words = tuple(map(str, words))
        folder.mkdir(parents=True, exist_ok=True)
        self._streams = [folder / f"{time.monotonic_ns()}.{name}" for name in ("out", "err")]
        self.began = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        self.child = os.fork()
        if not self.child:
            os._exit(self._do())

    def _do(self) -> int:
        for descriptor, path in enumerate(self._streams, 1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
        sys.argv = ["emobench", *self.words]
        code: Any = 1
        try:
            emobench.cli.main()
            code = 0
        except SystemExit as stopped:
            code = stopped.code or 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                code = code or 1
        return code if isinstance(code, int) else 1

    def running(self) -> bool:
        return os.waitid(os.P_PID, self.child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.child, number)

    def finish(self, seconds: float = 300.0) -> Finished:
        """Wait for its end, and end it after so many seconds."""
        hung = False
        while self.running():
            time.sleep(0.005)
            if time.monotonic() - self.began > seconds:
                hung = True
                self.kill()
                break
        code = os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])
        out, err = (path.read_text(errors="replace") if path.exists() else "" for path in self._streams)
        for path in self._streams:
            path.unlink(missing_ok=True)
        return Finished(self.words, HUNG if hung else code, out, err)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What trains with two objectives and evaluates, and the commands that read its results; `{}` is their folder."""

    name: str
    suite: str
    model: Path
    data_dir: Path | None = None
    seeds: int
    settings: Mapping[str, Any]
    read: tuple[tuple[str, ...], ...]

    def words(self, folder: Path, board: str = "board", executor: str = EXECUTORS[0]) -> list[str]:
        """Return the command by one of `EXECUTORS`; the file of a sweep is written into the folder."""
        places = [*COMMON, "--runs", str(folder / "runs"), "--leaderboard", str(folder / board)]
        if executor == "sweep":
            return ["sweep", "run", str(self._sweep_file(folder)), *PROCESSES, *places]
        given = [("--objective", one) for one in OBJECTIVES] + [("--seed", str(one)) for one in range(self.seeds)]
        given += [("--set", f"{name}={json.dumps(value)}") for name, value in {**SMALL, **self.settings}.items()]
        given += [] if self.data_dir is None else [("--data-dir", str(self.data_dir))]
        words = ["run", "--suite", self.suite, "--model", str(self.model), "--limit", str(LIMIT)]
        return [
            *words,
            *(word for pair in given for word in pair),
            *(PROCESSES if executor == "processes" else ()),
            *places,
        ]

    def _sweep_file(self, folder: Path) -> Path:
        fixed: dict[str, Any] = {"suite": self.suite, "model": str(self.model), "limit": LIMIT}
        fixed |= {} if self.data_dir is None else {"data_dir": str(self.data_dir)}
        tables = {"set": {**SMALL, **self.settings}, "grid": {"objective": OBJECTIVES, "seed": list(range(self.seeds))}}
        lines = [f"{name} = {json.dumps(value)}" for name, value in fixed.items()]
        for table, values in tables.items():
            lines += [f"[{table}]", *(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in values.items())]
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "sweep.toml"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path


def jobs(inputs: Path, seeds: int = 2) -> list[Job]:
    """Return jobs that leave every kind of stage, after making the small models and texts that they read."""
    models = {name: inputs / name for name in ("tiny-oracle", "tiny-icl")}
    for name, folder in models.items():
        write_untrained(TINY_MODELS[name], folder)
    for split, count in TEXTS.items():
        texts = load_texts("oracle-target", "test" if split == "test" else split, data_dirs=(), offline=True).texts
        rows = [json.dumps({"text": " ".join(texts[2 * i : 2 * i + 2])}) for i in range(count)]
        (inputs / f"wikitext2.{split}.jsonl").write_text("\n".join(rows) + "\n")
    board = ("--json", "--leaderboard", "{}/board", "--runs", "{}/runs")
    compare = ("compare", *OBJECTIVES[::-1], "--metric", "*", *board)
    short = {"max_length": 32, "prefix": 4, "continuation": 8, "sampling.samples": 2}
    oracle = Job(
        name="oracle",
        suite="oracle-language",
        model=models["tiny-oracle"],
        seeds=seeds,
        settings={"mauve.seeds": [0]},
        read=(compare,),
    )
    writing = Job(
        name="generation",
        suite="lm-quick",
        model=models["tiny-oracle"],
        data_dir=inputs,
        seeds=seeds,
        settings={"mauve.seeds": [0], "recipe.max_length": 32, **{f"generation.{k}": v for k, v in short.items()}},
        read=(compare, ("samples", *OBJECTIVES, *board), ("curves", *OBJECTIVES, *board)),
    )
    icl = Job(
        name="icl",
        suite="nlu-tiny",
        model=models["tiny-icl"],
        seeds=seeds,
        settings={},
        read=(compare, ("answers", "emo", *board)),
    )
    return [oracle, writing, icl]


def entries(folder: Path, board: str = "board") -> dict[str, Any]:
    """Return what the entries of a board say, without what differs from run to run: times, costs, and their ids.

    Entries that others supersede are left out.
    """
    plain = [json.loads(path.read_text()) for path in sorted((folder / board).glob("*/[0-9a-f]*.json"))]
    gone = {entry["supersedes"] for entry in plain}
    found: dict[str, Any] = {}
    for entry in plain:
        if entry["id"] in gone:
            continue
        names = ("objective", "seeds", "metrics", "missing", "protocols", "model", "recipe", "suite")
        runs = [{name: run[name] for name in ("key", "examples", "samples")} for run in entry["runs"]]
        kept = {**{name: entry[name] for name in names}, "runs": runs, "data": entry["provenance"]["data"]}
        found.setdefault(f"{entry['suite']['name']} {entry['objective']['name']}", []).append(kept)
    return found


def stable(out: str, folder: Path) -> Any:
    """Return what a reader printed, without entries' ids, times and places."""
    text = re.sub(r"\b([0-9a-f]{12}|[0-9a-f]{6})\b", "ID", out.replace(str(folder), "FOLDER"))
    try:
        return _without_identity(json.loads(text))
    except ValueError:
        return text


def _without_identity(value: Any) -> Any:
    if isinstance(value, Mapping):
        dropped = ("id", "created", "entry", "entries", "older", "cost", "findings")
        return {key: _without_identity(inner) for key, inner in value.items() if key not in dropped}
    return [_without_identity(inner) for inner in value] if isinstance(value, list) else value


def copied(source: Path, target: Path) -> Path:
    """Copy a folder with the times of its files."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


def quiet_machine() -> None:
    """Let forks be safe and equal: one thread, no network."""
    os.environ.update({"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"})
    torch.set_num_threads(1)
