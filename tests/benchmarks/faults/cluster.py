"""A sweep of 24 cells on a Ray cluster of two nodes: one node is killed in the middle, and the driver is killed once.

    python tests/benchmarks faults.cluster [--folder FOLDER] [--out FILE]

The nodes are two of Ray's own on this machine, each with one CPU. `emobench sweep run --on ray` is killed by SIGKILL,
and given again. At the end the entries must be those of a sweep in local processes, and no finished stage may have been
made again: the files of each are those that were seen first. Needs the package ray.
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
from typing import Any

from measuring import RESULTS, origin, write

from emobench.leaderboard.store.board import Leaderboard
from emobench.pipeline.planning.tiny_models import TINY_MODELS, write_untrained

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
"""Cells, and the finished trainings at which a node and the driver are killed."""


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "faults" / "cluster.json")
    options = parser.parse_args(argv)
    folder = options.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "tiny").exists():
        write_untrained(TINY_MODELS["tiny-oracle"], folder / "tiny")
    (folder / "sweep.toml").write_text(SWEEP)
    found = on_two_nodes(folder)
    subprocess.run(command("local", "--processes", "2"), cwd=folder, check=True, stdout=subprocess.DEVNULL)
    cluster, local = (results(folder / f"board-{name}") for name in ("ray", "local"))
    found |= {"entries": len(cluster), "equal_to_local": cluster == local}
    write({**origin(__file__, argv, "cpu"), "cells": CELLS, **found}, options.out)
    print(json.dumps(found, indent=1))
    whole = found["equal_to_local"] and not found["made_again"] and found["trainings"] == CELLS
    print("every cell was made once, with the local results" if whole else "NOT EQUAL, or made again")


def on_two_nodes(folder: Path) -> dict[str, Any]:
    """Run the sweep on a cluster, kill a node and the driver, run it to its end, and return what was seen."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    second = cluster.add_node(num_cpus=1)
    seen: dict[Path, int] = {}
    again: set[Path] = set()
    environment = {**os.environ, "RAY_ADDRESS": cluster.address}
    killed: dict[str, int] = {}
    driver = _driver(folder, environment)
    try:
        while driver.poll() is None:
            look(folder / "ray", seen, again)
            trained = _trained(seen)
            if trained >= NODE_AT and "node" not in killed:
                cluster.remove_node(second, allow_graceful=False)
                killed["node"] = trained
            if trained >= DRIVER_AT and "driver" not in killed:
                driver.send_signal(signal.SIGKILL)
                driver.wait()
                killed["driver"] = trained
                driver = _driver(folder, environment)
            time.sleep(0.2)
        look(folder / "ray", seen, again)
    finally:
        driver.kill()
        cluster.shutdown()
    counts = {"trainings": _trained(seen), "stages": len(seen), "made_again": len(again)}
    return {"exit_code": driver.returncode, "killed_at": killed, **counts}


def _driver(folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    given = command("ray", "--on", "ray", "--processes", "2")
    with (folder / "driver.log").open("ab") as log:
        return subprocess.Popen(given, cwd=folder, env=environment, stdout=log, stderr=log)


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
