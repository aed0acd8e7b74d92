"""A plan in words: each stage, how much it is, what it may take, and whether it is finished."""

from __future__ import annotations

import time
from dataclasses import dataclass

from emobench.pipeline.plan import Plan, PlannedTraining
from emobench.pipeline.reporter import Silent
from emobench.pipeline.stages import Stages
from emobench.pipeline.train import Trainer

EFFICIENCY = 0.5
"""Share of the speed of a large matrix product that a training step is taken to reach."""
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class StageLine:
    """One stage of a plan. `estimate` is rough: within a factor of two or three."""

    stage: str
    what: str
    amount: str
    estimate: str
    state: str


def describe(plan: Plan) -> list[StageLine]:
    """Return a line for each stage. Corpora are tokenized to count, and the device is timed; nothing is trained."""
    stages = Stages(plan.request.runs)
    trainer = Trainer(stages, Silent())
    rate = _operations_per_second(plan.request.device)
    lines = [_training(planned, trainer, stages, rate) for planned in plan.trainings()]
    for row in plan.rows:
        for run in row.runs:
            lines += [
                StageLine(
                    "evaluate",
                    f"{row.label}, seed {run.seed}, {planned.task.name} {planned.task.protocol_id}",
                    f"{min(len(planned.data), planned.task.protocol.limit or 10**9):,} test examples at most",
                    "",
                    _state(stages.is_finished(planned.scores)),
                )
                for _, tasks in run.parts
                for planned in tasks
            ]
    return lines


def _training(planned: PlannedTraining, trainer: Trainer, stages: Stages, rate: float) -> StageLine:
    from emobench.training.train import torch_processes, total_steps

    packed = trainer.pack(planned, "train")
    recipe = planned.recipe
    tokens = int(packed.target_count * recipe.epochs)
    steps = total_steps(recipe, len(packed), torch_processes())
    facts = planned.model.checked
    estimate = ""
    finished = stages.is_finished(planned.stage)
    if facts is not None and not finished:
        seconds = 6 * facts.parameters * tokens / (rate * EFFICIENCY)
        # Weights, gradients and Adam's two moments; adapters have so few that only the weights count.
        width = BYTES[planned.model.request.dtype]
        held = facts.parameters * (width if recipe.adapters else 4 * width)
        estimate = f"about {_duration(seconds)}, {held / 2**30:.1f} GiB and activations"
    return StageLine(
        "train",
        f"{planned.objective.objective}, seed {planned.seed}, on {recipe.corpus}",
        f"{tokens:,} target tokens, {steps:,} steps",
        estimate,
        _state(finished),
    )


def _operations_per_second(device: str) -> float:
    """Time a matrix product for a moment: a look at what the device can do, not a benchmark."""
    import torch

    size = 4096 if device.startswith("cuda") else 768
    a = torch.randn(size, size, device=device)
    began, products = time.monotonic(), 0
    while products < 3 or time.monotonic() - began < 0.2:
        (a @ a).sum().item()
        products += 1
    return 2 * size**3 * products / (time.monotonic() - began)


def _duration(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _state(finished: bool) -> str:
    return "finished" if finished else "to do"
