"""Ten thousand cells of a sweep: planning all, and `sweep status`. Nothing is trained.

    python tests/benchmarks speed.sweep [--settings 500 10000] [--cells 10000] [--out FILE]

A cell is a model, an objective, a seed and a choice of settings. Cells of one choice of settings are planned together,
so that the number of choices decides the time: 500 with 4 objectives and 5 seeds, and one for each cell, which is the
worst case. Planning is all that `sweep run` does before its first stage: every name is looked up, model, texts and
rules are checked, each stage gets its key and its file. The model is a tiny one with weights as they are drawn.
Each is a fresh process; CPU seconds, user and system together, include the imports.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import RESULTS, fresh_process, origin, program, write

from emobench.runs.execution.reporter import Silent
from emobench.runs.planning.tiny_models import TINY_MODELS, write_untrained
from emobench.runs.sweep import plan_requests, read_sweep

OBJECTIVES, SEEDS = ("mle", "emo", "mixce", "tailr(gamma=0.2)"), 5
LIMITS = {"plan": 60.0, "status": 2.0}
"""CPU seconds."""
MEMORY = 2**30


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=int, nargs="+", default=(500, 10_000))
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=RESULTS / "speed" / "sweep.json")
    parser.add_argument("--plan", type=Path, help="plan the sweep of this file, and nothing else")
    options = parser.parse_args(argv)
    if options.plan:
        rows, jobs = plan_requests(read_sweep(options.plan, "", runs=Path("runs"), offline=True).requests, Silent())
        print(json.dumps({"entries": len(rows), "stages": len(jobs)}))
        return
    measured = [measure(count, options.cells // count) for count in options.settings]
    write({**origin(__file__, argv, "cpu"), "cells": options.cells, "measured": measured}, options.out)


def measure(settings: int, each: int) -> dict[str, Any]:
    """Return what planning takes, and `sweep status` of the planned sweep; `each` is the cells of each choice."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_untrained(TINY_MODELS["tiny-oracle"], folder / "tiny-oracle")
        sweep = folder / "sweep.toml"
        sweep.write_text(sweep_of(settings, each))
        found: dict[str, Any] = {"settings": settings, "cells_of_each": each}
        commands = {
            "plan": [*program(__file__), "--plan", sweep],
            "status": [sys.executable, "-m", "emobench", "sweep", "status", sweep],
        }
        for verb, command in commands.items():
            began = time.monotonic()
            used = fresh_process(command, folder)
            row = {"cpu_seconds": round(used.cpu_seconds, 2), "seconds": round(time.monotonic() - began, 2)}
            found[verb] = {**row, "peak_bytes": used.peak_bytes}
            within = used.cpu_seconds <= LIMITS[verb] and used.peak_bytes <= MEMORY
            verdict = f"{'within' if within else 'OVER'} {LIMITS[verb]:.0f} s and 1 GiB"
            print(
                f"{settings:6} settings, {verb:7} {row['cpu_seconds']:6.1f} s of CPU, {row['seconds']:6.1f} s, "
                f"{used.peak_bytes / 2**20:4.0f} MiB: {verdict}",
                flush=True,
            )
            if verb == "plan":
                found |= json.loads(used.output.splitlines()[-1])
        return found


def sweep_of(settings: int, each: int) -> str:
    """Return the file of a sweep with so many choices of settings, and cells of each: objectives times seeds."""
    objectives = OBJECTIVES if each > 1 else OBJECTIVES[:1]
    return f"""
suite = "oracle-language"
model = "./tiny-oracle"
limit = 16
[grid]
objective = {json.dumps(objectives)}
seed = {list(range(-(-each // len(objectives))))}
"recipe.learning_rate" = {[round(1e-8 * (place + 1), 12) for place in range(settings)]}
"""


if __name__ == "__main__":
    main(sys.argv[1:])
