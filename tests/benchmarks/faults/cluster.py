"""A sweep of 24 cells on a cluster: a node or a job is killed in the middle, and the driver is killed once.

    python tests/benchmarks faults.cluster [--on ray|slurm] [--folder FOLDER] [--out FILE]

The nodes of Ray are two of its own on this machine, each with one CPU. Slurm is the one of this machine; instead of a
node, a running job is killed. `emobench sweep run --on ...` is killed by SIGKILL, and given again until it succeeds.
At the end the entries must be those of a sweep in local processes, and no finished stage may have been made again: the
files of each are those that were seen first. Needs the package ray, or submitit and Slurm.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

from measuring import RESULTS, origin, write

from emobench.leaderboard.store import Leaderboard
from emobench.runs.planning.tiny_models import TINY_MODELS, write_untrained

SWEEP = """
suite = "oracle-language"
model = "./tiny"
limit = 8
[set]
"recipe.max_tokens" = 4096
"recipe.epochs" = 1
[grid]
objective = ["mle", "emo"]
seed = [0, 1, 2]
"recipe.learning_rate" = [1e-4, 2e-4, 4e-4, 8e-4]
"""
CELLS, NODE_AT, DRIVER_AT = 24, 6, 14
"""Cells, and the finished trainings at which a node (or a job) and the driver are killed."""
ATTEMPTS = 4
"""How often the command is given, at most."""


class Ray:
    """A cluster of two nodes on this machine."""

    on = "ray"

    def __enter__(self) -> Ray:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        self._second = self._cluster.add_node(num_cpus=1)
        self.environment = {**os.environ, "RAY_ADDRESS": self._cluster.address}
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.shutdown()

    def kill(self) -> bool:
        """Kill a node; False where there is nothing to kill yet."""
        self._cluster.remove_node(self._second, allow_graceful=False)
        return True


class Slurm:
    """The cluster of this machine."""

    on = "slurm(timeout_min=30)"
    environment: ClassVar = dict(os.environ)

    def __enter__(self) -> Slurm:
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["scancel", f"--user={os.getuid()}"], check=False)

    def kill(self) -> bool:
        """Kill a running job, without a signal before; False where none runs."""
        listing = ["squeue", "--noheader", "--states=RUNNING", "--format=%A"]
        jobs = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split()
        return (
            bool(jobs) and subprocess.run(["scancel", "--full", "--signal=KILL", jobs[0]], check=False).returncode == 0
        )


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", choices=("ray", "slurm"), default="ray")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    folder = options.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "tiny").exists():
        write_untrained(TINY_MODELS["tiny-oracle"], folder / "tiny")
    (folder / "sweep.toml").write_text(SWEEP)
    with {"ray": Ray, "slurm": Slurm}[options.on]() as cluster:
        found = on_cluster(folder, cluster)
    subprocess.run(command("local", "--processes", "2"), cwd=folder, check=True, stdout=subprocess.DEVNULL)
    together, local = (results(folder / f"board-{name}") for name in ("cluster", "local"))
    found |= {"entries": len(together), "equal_to_local": together == local}
    name = {"ray": "cluster", "slurm": "cluster-slurm"}[options.on]
    out = options.out or RESULTS / "faults" / f"{name}.json"
    write({**origin(__file__, argv, "cpu"), "cells": CELLS, **found}, out)
    print(json.dumps(found, indent=1))
    whole = found["equal_to_local"] and not found["made_again"] and found["trainings"] == CELLS
    print("every cell was made once, with the local results" if whole else "NOT EQUAL, or made again")


def on_cluster(folder: Path, cluster: Ray | Slurm) -> dict[str, Any]:
    """Run the sweep on a cluster, kill a part of it and the driver, run it to its end, and return what was seen."""
    seen: dict[Path, int] = {}
    again: set[Path] = set()
    killed: dict[str, int] = {}
    driver, attempts = _driver(folder, cluster), 1
    try:
        while driver.poll() is None or (driver.returncode and attempts < ATTEMPTS):
            if driver.poll() is not None:
                driver, attempts = _driver(folder, cluster), attempts + 1
            look(folder / "cluster", seen, again)
            trained = _trained(seen)
            if trained >= NODE_AT and "node" not in killed and cluster.kill():
                killed["node"] = trained
            if trained >= DRIVER_AT and "driver" not in killed:
                driver.send_signal(signal.SIGKILL)
                driver.wait()
                killed["driver"] = trained
            time.sleep(0.2)
        look(folder / "cluster", seen, again)
    finally:
        driver.kill()
    counts = {"trainings": _trained(seen), "stages": len(seen), "made_again": len(again)}
    return {"on": cluster.on, "exit_code": driver.returncode, "commands": attempts, "killed_at": killed, **counts}


def _driver(folder: Path, cluster: Ray | Slurm) -> subprocess.Popen[bytes]:
    given = command("cluster", "--on", cluster.on, "--processes", "2")
    with (folder / "driver.log").open("ab") as log:
        return subprocess.Popen(given, cwd=folder, env=cluster.environment, stdout=log, stderr=log)


def command(name: str, *more: str) -> list[str]:
    """Return the command of the sweep, with folders of its own."""
    places = ("--runs", name, "--leaderboard", f"board-{name}", "--offline", "--quiet")
    return [sys.executable, "-m", "emobench", "sweep", "run", "sweep.toml", *places, *more]


def look(runs: Path, seen: dict[Path, int], again: set[Path]) -> None:
    """Note each finished stage, and those that are others than when they were seen first."""
    for kind in ("train", "generate", "score"):
        for path in (runs / kind).glob("*/seal.json"):
            if "." not in path.parent.name:
                inode = path.stat().st_ino
                if seen.setdefault(path, inode) != inode:
                    again.add(path)


def _trained(seen: dict[Path, int]) -> int:
    return sum(path.parent.parent.name == "train" for path in seen)


def results(board: Path) -> dict[str, Any]:
    """Return the metrics and keys of each entry, by its objective and learning rate."""
    return {
        f"{entry.objective.label} {entry.recipe['learning_rate']}": (
            {name: metric.values for name, metric in entry.metrics.items()},
            sorted(run.key for run in entry.runs),
        )
        for entry in Leaderboard(board).entries()
    }


if __name__ == "__main__":
    main(sys.argv[1:])
