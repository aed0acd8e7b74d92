"""A plan in words: each stage, how much it is, and whether it is finished."""

from __future__ import annotations

from emobench.pipeline.plan import Plan
from emobench.pipeline.reporter import Silent
from emobench.pipeline.stages import Stages
from emobench.pipeline.train import Trainer


def describe(plan: Plan) -> list[dict[str, str]]:
    """Return a row for each stage: stage, what, amount, state. Corpora are tokenized to count; nothing is trained."""
    stages = Stages(plan.request.runs)
    trainer = Trainer(stages, Silent())
    rows = []
    for planned in plan.trainings():
        packed = trainer.pack(planned, "train")
        steps = _steps(planned.recipe.batch, planned.recipe.epochs, len(packed))
        rows.append(
            {
                "stage": "train",
                "what": f"{planned.objective.objective}, seed {planned.seed}, on {planned.recipe.corpus}",
                "amount": f"{int(packed.target_count * planned.recipe.epochs):,} target tokens, {steps:,} steps",
                "state": _state(stages.is_finished(planned.stage)),
            }
        )
    for row in plan.rows:
        for run in row.runs:
            for _, tasks in run.parts:
                for planned in tasks:
                    rows.append(
                        {
                            "stage": "evaluate",
                            "what": f"{row.label}, seed {run.seed}, {planned.task.name} {planned.task.protocol_id}",
                            "amount": f"{len(planned.texts.texts):,} test texts",
                            "state": _state(stages.is_finished(planned.scores)),
                        }
                    )
    return rows


def _steps(batch: int, epochs: float, rows: int) -> int:
    return round(epochs * -(-rows // batch))


def _state(finished: bool) -> str:
    return "finished" if finished else "to do"
