"""Combinations in a training: their steps are the weighted sums of their terms' steps, and weights follow the steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from emobench.objectives import LogitsObjective, Objective
from emobench.objectives.combination import combine
from emobench.objectives.expression import Constant, Cosine, Linear, Schedule, Step
from emobench.training.train import train
from emobench_objectives.emo import Emo
from emobench_objectives.mixce import MixCE
from emobench_objectives.mle import Mle

RECIPE = {"epochs": 3, "batch": 8, "accumulation": 2, "warmup": 0.2, "schedule": "cosine"}  # 3 epochs of 3 steps
ONE_STEP = {"batch": 24, "accumulation": 4}  # one step on all 24 rows, in micro-batches of unequal tokens


class Margin(LogitsObjective):
    """max(0, 1 - z_t + max_v z_v)"""

    def loss(self, logits_NV: Tensor, targets_N: Tensor, side: Mapping[str, Tensor]) -> Tensor:
        return (1 - logits_NV.gather(1, targets_N[:, None])[:, 0] + logits_NV.amax(1)).clamp(min=0)


def sgd_step(kit: SimpleNamespace, folder: Path, objective: Objective) -> dict[str, Tensor]:
    """Return what one step of plain SGD adds to the weights."""
    job = kit.job(folder, objective=objective, recipe=ONE_STEP)
    before = kit.weights(job.model)
    kit.train_sgd(job)
    return {name: value - before[name] for name, value in kit.weights(job.model).items()}


@pytest.mark.parametrize("classes", [(Emo, MixCE), (Emo, Margin), (MixCE, Margin, Mle)])
def test_a_step_is_the_weighted_sum_of_the_terms_steps(
    kit: SimpleNamespace, tmp_path: Path, classes: tuple[Any, ...]
) -> None:
    weights = [0.3, 0.9, 0.2][: len(classes)]
    combined = combine([cls() for cls in classes], [Constant(w) for w in weights])
    found = sgd_step(kit, tmp_path / "both", combined)
    alone = [sgd_step(kit, tmp_path / str(i), cls()) for i, cls in enumerate(classes)]
    expected = {n: sum(w * steps[n] for w, steps in zip(weights, alone, strict=True)) for n in found}
    # Each step is a difference of float64 weights near 1, which keeps some 1e-16 / 1e-3 of its digits.
    assert kit.difference(found, expected) < 1e-11


def test_weights_follow_the_steps_of_the_trainer(kit: SimpleNamespace, tmp_path: Path) -> None:
    weights: list[Schedule] = [Linear(1, 0), Cosine(0, 0.8), Step(0.1, 0.7, at=0.5)]
    combined = combine([Mle(), Emo(), MixCE()], weights)
    lines = kit.train_sgd(kit.job(tmp_path, objective=combined, recipe=RECIPE), rate=0.01)
    assert [line["step"] for line in lines] == list(range(1, 10))
    shares = {name: [line[f"{name}.share"] for line in lines] for name in ("mle", "emo", "mixce")}
    # The first of the 9 steps has progress 0, the fifth 1/2, the last 1.
    assert shares["mle"] == pytest.approx([1 - i / 8 for i in range(9)], abs=1e-12)
    assert shares["emo"][::4] == pytest.approx([0.0, 0.4, 0.8], abs=1e-12)
    assert shares["mixce"] == pytest.approx([0.1] * 4 + [0.7] * 5, rel=1e-12)
    for line in lines:
        terms = sum(line[f"{name}.share"] * line[f"{name}.loss"] for name in shares)
        assert line["loss"] == pytest.approx(terms, rel=1e-4)  # the Trainer rounds its own to four digits
    assert lines[0]["mle.loss"] == pytest.approx(lines[0]["emo.loss"], rel=1e-9)  # EMO's value is MLE's


class Killed(Exception):
    """The process is gone."""


def scheduled(kit: SimpleNamespace, folder: Path, progress: Any = None) -> Any:
    combined = combine([Mle(), Emo(), MixCE()], [Linear(1, 0.1), Cosine(0, 0.8), Step(0.1, 0.7, at=0.4)])
    model = kit.tiny(dtype=torch.float32, resid_pdrop=0.2)
    return kit.job(folder, model=model, objective=combined, recipe=RECIPE, progress=progress)


def test_a_resumed_training_has_the_weights_that_it_would_have_had(kit: SimpleNamespace, tmp_path: Path) -> None:
    def kill(line: dict[str, float]) -> None:
        if "loss" in line and line["step"] == 5:
            raise Killed

    train(scheduled(kit, tmp_path / "whole"))
    with pytest.raises(Killed):
        train(scheduled(kit, tmp_path / "killed", kill))
    assert (tmp_path / "killed/checkpoints/checkpoint-3").is_dir()
    train(scheduled(kit, tmp_path / "killed"))
    files = [(tmp_path / name / "model/model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert files[0] == files[1]
    wanted = (".share", ".loss", "step")
    logged = [
        [{k: v for k, v in line.items() if k.endswith(wanted)} for line in kit.log_of(tmp_path / name)]
        for name in ("whole", "killed")
    ]
    assert logged[0] == logged[1]
    assert [line["mixce.share"] for line in logged[1] if "mixce.share" in line] == pytest.approx([0.1] * 4 + [0.7] * 5)
