"""What a dry run with a probe estimates, against what the same run then takes: time of its stages, memory of trainings.

    python tests/benchmarks speed.estimates --data-dir FOLDER --model FOLDER/base-en-7m [--case NAME] [--out FILE]

FOLDER holds `wikitext2`, `sst2`, `trec` and `responses` as `emobench run --data-dir` reads them; may be repeated. Each
case is estimated and then run, in this process and in a new folder. Goal: within 25 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from measuring import RESULTS, origin, write

from emobench.core.settings import parse_overrides
from emobench.runs.dry_run import make_outline, time_parts
from emobench.runs.execution.reporter import Silent
from emobench.runs.planning.plan import make_plan
from emobench.runs.planning.request import Request
from emobench.runs.run import score_plan, train_plan
from emobench.runs.stages.stage import Stages

GOAL = 0.25
FEW = ("recipe.max_length=128", "recipe.batch=8")
CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "lm-quick, MLE and EMO": (
        {"suite": "lm-quick", "objectives": ("mle", "emo"), "limit": 100},
        (*FEW, "recipe.max_tokens=65536", "recipe.epochs=1"),
    ),
    "lm-quick, three epochs, TaiLr": (
        {"suite": "lm-quick", "objectives": ("tailr(gamma=0.2)",), "limit": 60},
        (*FEW, "recipe.epochs=3", "recipe.max_tokens=32768"),
    ),
    "nlu, two tasks, EMO": (
        {"suite": "nlu", "objectives": ("emo",), "limit": 200},
        (
            *FEW,
            "recipe.corpus=wikitext2",
            "recipe.max_tokens=65536",
            "recipe.lora=false",
            "tasks=sst2,trec",
            "icl.shots=0",
            "icl.retriever=none",
        ),
    ),
    "responses, MLE": (
        {"recipe": "instruct-responses", "objectives": ("mle",)},
        ("recipe.epochs=1", "recipe.batch=8", "recipe.max_length=256", "recipe.max_tokens=100000"),
    ),
    "SmolLM2, LoRA, EMO": (
        {"recipe": "lm-finetune", "objectives": ("emo",), "model": "smollm2-135m-instruct"},
        (*FEW, "recipe.max_tokens=16384", "recipe.epochs=1", "recipe.lora=true"),
    ),
}
"""What is asked for, and the settings."""


def case(given: Mapping[str, Any], settings: tuple[str, ...], model: str, data: tuple[Path, ...]) -> dict[str, Any]:
    """Return what was estimated and what was taken."""
    with tempfile.TemporaryDirectory() as place:
        asked: dict[str, Any] = {"model": model, "seeds": (0,), **given}
        request = Request(
            **asked,
            settings=parse_overrides(settings),
            data_dirs=data,
            runs=Path(place) / "runs",
            leaderboard=Path(place) / "board",
            offline=True,
            device="cpu",
            asked_device="cpu",
        )
        began = time.monotonic()
        outline = make_outline(request, timed=partial(time_parts, reporter=Silent()))
        found: dict[str, Any] = {"probe_seconds": time.monotonic() - began}
        plan = make_plan(request)
        began = time.monotonic()
        train_plan(plan)
        measured = {"training": time.monotonic() - began}
        estimated = {"training": sum(line.seconds or 0.0 for line in outline.lines if line.stage == "train")}
        if request.suite is not None:
            measured["evaluation"] = sum(one.seconds for row in score_plan(plan) for of in row for one in of)
            lines = (line for line in outline.lines if line.stage == "evaluate")
            estimated["evaluation"] = sum(line.seconds or 0.0 for line in lines)
        stages = Stages(request.runs)
        peaks = [
            json.loads((stages.folder(planned) / "training.json").read_text())["peak_memory_bytes"]
            for planned in plan.trainings()
        ]
        measured["memory"] = max(peaks)
        estimated["memory"] = max(line.memory_bytes or 0 for line in outline.lines if line.stage == "train")
    ratios = {name: estimated[name] / value for name, value in measured.items()}
    return {**found, "estimated": estimated, "measured": measured, "estimated_over_measured": ratios}


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="The model of the cases that name none.")
    parser.add_argument("--data-dir", type=Path, action="append", required=True)
    parser.add_argument("--case", action="append", choices=list(CASES), help="Repeatable. Default: all.")
    parser.add_argument("--out", type=Path, default=RESULTS / "speed" / "estimates-cpu.json")
    options = parser.parse_args(argv)
    found: dict[str, Any] = {}
    for name in options.case or CASES:
        found[name] = case(*CASES[name], options.model, tuple(options.data_dir))
        ratios = found[name]["estimated_over_measured"]
        verdict = "within 25 %" if all(abs(ratio - 1) <= GOAL for ratio in ratios.values()) else "NOT within 25 %"
        told = ", ".join(f"{what} {ratio:.2f}" for what, ratio in ratios.items())
        print(f"{name:32}{told}  {verdict} (probe: {found[name]['probe_seconds']:.0f} s)", flush=True)
    write({**origin(__file__, argv, "cpu"), "cases": found}, options.out)


if __name__ == "__main__":
    main(sys.argv[1:])
