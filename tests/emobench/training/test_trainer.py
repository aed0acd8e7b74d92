"""The trainer: one division, whatever the micro-batches; a loss that is not finite moves nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModelForCausalLM

import emobench
from emobench.core.errors import NonFiniteLossError
from emobench.data.packing import WEIGHTS, RowCollator
from emobench.objectives import LogitsObjective, ModelObjective, UnitLosses
from emobench.objectives.combination import combine
from emobench.objectives.expression import Cosine, Linear, Schedule, Step
from emobench.training.train import train
from emobench_objectives.emo import Emo
from emobench_objectives.mixce import MixCE
from emobench_objectives.mle import Mle


class Brier(LogitsObjective):
    """The squared distance between q and the one-hot target."""

    def loss(self, logits_NV: Tensor, targets_N: Tensor, side: Mapping[str, Tensor]) -> Tensor:
        return (logits_NV.softmax(-1) - F.one_hot(targets_N, logits_NV.shape[1])).square().sum(-1)


class AfterToken(emobench.StatisticsObjective):
    """MLE weighted by the context: a token costs as many times its MLE as the id before it is large."""

    needs = frozenset({"before"})

    def side_data(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {"before": batch["input_ids"].roll(1, dims=1).double()}

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return -s.side["before"] * s.log_prob


class ColumnWeight(emobench.StatisticsObjective):
    """MLE with a weight per token that the data bring, in a column of the batch."""

    needs = frozenset({"column"})

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return -s.side["column"] * s.log_prob


def with_column(rows: list[dict[str, Any]]) -> dict[str, Tensor]:
    batch = RowCollator(0)(rows)
    return batch | {"column": batch["input_ids"].roll(1, dims=1).double()}


class PerSequence(ModelObjective):
    """Each sequence counts as its weight, 1 or 2, and costs the mean MLE of its tokens."""

    def total_weight(self, batch: Mapping[str, Tensor]) -> Tensor:
        return self._weights(batch).sum()

    def loss(self, model: Any, batch: Mapping[str, Tensor]) -> UnitLosses:
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
        targets = batch["labels"][:, 1:]
        mle_BT = F.cross_entropy(logits.mT, targets, reduction="none")
        return UnitLosses(mle_BT.sum(1) / (targets != -100).sum(1).clamp(min=1), self._weights(batch))

    def _weights(self, batch: Mapping[str, Tensor]) -> Tensor:
        return 1.0 + batch["input_ids"][:, 0] % 2


OBJECTIVES = {"Brier": Brier, "AfterToken": AfterToken, "ColumnWeight": ColumnWeight, "PerSequence": PerSequence}


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "gpt2") for name in ("mle", "emo", *OBJECTIVES)), ("emo", "phi"), ("ColumnWeight", "phi")],
)
def test_accumulation_leaves_gradients_and_logs_unchanged(
    kit: SimpleNamespace, tmp_path: Path, name: str, kind: str
) -> None:
    cls = (kit.objectives | OBJECTIVES)[name]
    values: dict[str, Any] = {"train": kit.ragged(16), "model": kit.tiny(kind)}
    if name == "ColumnWeight":
        values["collate"] = with_column
    before = kit.weights(values["model"])
    found = {}
    for accumulation in (1, 4):
        job = kit.job(tmp_path, **values | {"objective": cls(), "recipe": {"accumulation": accumulation}})
        job.model.load_state_dict(before, strict=False)
        log = kit.train_sgd(job, rate=0.05)
        found[accumulation] = kit.weights(job.model), log
    assert kit.difference(found[1][0], before) > 1e-3
    assert kit.difference(found[4][0], found[1][0]) < 1e-9
    for one, four in zip(found[1][1], found[4][1], strict=True):
        assert one.keys() == four.keys()
        for part in one.keys() - {"seconds", "tokens_per_second"}:
            assert four[part] == pytest.approx(one[part], rel=1e-9, abs=1e-12), part


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("name", ["mle", "emo", "Brier"])
def test_examples_of_weight_zero_are_not_trained_on_and_the_others_in_proportion(
    kit: SimpleNamespace, tmp_path: Path, name: str, accumulation: int
) -> None:
    """0 and 3 are the same as no target and 1: the loss is divided by the weights of the whole batch."""
    rows = kit.ragged(16)
    masked = [{**row, "labels": row["labels"] * 0 - 100} if i % 3 else row for i, row in enumerate(rows)]
    weighed = [{**row, WEIGHTS: [0.0 if i % 3 else 3.0] * len(row["labels"])} for i, row in enumerate(rows)]
    model = kit.tiny()
    before, found = kit.weights(model), {}
    for what, given in (("masked", masked), ("weighed", weighed)):
        values = {"objective": (kit.objectives | OBJECTIVES)[name](), "recipe": {"accumulation": accumulation}}
        job = kit.job(tmp_path, train=given, model=model, **values)
        job.model.load_state_dict(before, strict=False)
        log = kit.train_sgd(job, rate=0.05)
        found[what] = kit.weights(job.model), [line["loss"] for line in log if "loss" in line], log
    assert kit.difference(found["masked"][0], before) > 1e-3
    assert kit.difference(found["weighed"][0], found["masked"][0]) < 1e-6
    assert found["weighed"][1] == pytest.approx(found["masked"][1], rel=1e-6)
    assert all(0 < line["example_weight"] < 3 for line in found["weighed"][2] if "loss" in line)


def test_the_step_is_the_gradient_of_the_mean_over_target_tokens(kit: SimpleNamespace, tmp_path: Path) -> None:
    job = kit.job(tmp_path, train=kit.ragged(8), recipe={"accumulation": 4})
    reference = kit.tiny()
    batch = RowCollator(0)(job.train)
    logits = reference(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"][:, 1:].flatten())
    loss.backward()
    expected = {n: p.detach() - 0.5 * p.grad for n, p in reference.named_parameters()}
    log = kit.train_sgd(job, rate=0.5)
    assert kit.difference(kit.weights(job.model), expected) < 1e-12
    assert log[0]["loss"] == pytest.approx(loss.item(), rel=1e-12)
    assert log[0]["mle"] == pytest.approx(loss.item(), rel=1e-12)
    assert log[0]["tokens"] == (batch["labels"][:, 1:] != -100).sum()
    norm = torch.stack([p.grad.norm() for p in reference.parameters()]).norm().item()
    assert log[0]["grad_norm"] == pytest.approx(norm, rel=1e-9)


def test_a_model_objective_divides_by_its_own_weights(kit: SimpleNamespace, tmp_path: Path) -> None:
    job = kit.job(tmp_path, train=kit.ragged(8), objective=PerSequence(), recipe={"accumulation": 2})
    units = PerSequence().loss(job.model, RowCollator(0)(job.train))
    expected = (units.losses_U * units.weights_U).sum() / units.weights_U.sum()
    log = kit.train_sgd(job, rate=0.0)
    assert log[0]["loss"] == pytest.approx(expected.item(), rel=1e-12)
    assert log[0]["tokens"] == units.weights_U.sum()


class Breaking(emobench.StatisticsObjective):
    """MLE, until the given call: then the loss, or a part of it, is the given value for one token."""

    def __init__(self, call: int, value: float, where: str) -> None:
        super().__init__()
        self.call, self.value, self.where, self.calls = call, value, where, 0

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        self.calls += 1
        return -s.log_prob + (self._bad(s) if self.where == "loss" else 0)

    def parts(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        return {"curve": self._bad(s)} if self.where == "curve" else {}

    def _bad(self, s: emobench.TokenStatistics) -> Tensor:
        bad = torch.zeros_like(s.log_prob)
        if self.calls == self.call:
            bad[-1] = self.value
        return bad


@pytest.mark.parametrize(
    ("where", "value", "found"),
    [
        ("loss", math.nan, "loss became NaN"),
        ("loss", -math.inf, "loss became infinite"),
        ("curve", math.inf, "curve became infinite"),
    ],
)
def test_a_loss_that_is_not_finite_stops_before_it_moves_the_weights(
    kit: SimpleNamespace, tmp_path: Path, where: str, value: float, found: str
) -> None:
    """Epochs of 2 steps of 2 micro-batches of 2 rows: call 8 is the second micro-batch of step 4, in epoch 2."""
    seen: list[list[int]] = []
    after: list[dict[str, Tensor]] = []
    model = kit.tiny()

    def collate(rows: list[dict[str, Any]]) -> dict[str, Tensor]:
        seen.append([row["row"] for row in rows])
        return RowCollator(0)(rows)

    job = kit.job(
        tmp_path,
        model=model,
        train=kit.ragged(8),
        objective=Breaking(8, value, where),
        collate=collate,
        recipe={"epochs": 3, "batch": 4, "accumulation": 2, "select": "last"},
        progress=lambda line: after.append(kit.weights(model)) if "loss" in line else None,
    )
    with pytest.raises(NonFiniteLossError, match=found) as stopped:
        train(job)
    text = str(stopped.value)
    assert "at step 4" in text
    assert "recipe.learning_rate" in text
    assert f"training rows {seen[-1]}" in text
    assert max(line["step"] for line in kit.log_of(tmp_path)) == 3 == len(after)
    assert kit.difference(kit.weights(model), after[-1]) == 0
    kept = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoints" / "checkpoint-2", dtype=torch.float64)
    assert kit.difference(kit.weights(kept), after[1]) == 0
    assert not (tmp_path / "model").exists()


class SlowToSave(Mle):
    def state(self) -> dict[str, Tensor]:
        time.sleep(0.5)
        return {"slow": torch.ones(1)}


def test_seconds_leave_saving_and_validation_out(kit: SimpleNamespace, tmp_path: Path) -> None:
    summary = train(kit.job(tmp_path, objective=SlowToSave(), recipe={"epochs": 2, "batch": 24}))
    steps = [line for line in kit.log_of(tmp_path) if "loss" in line]
    assert summary.seconds == pytest.approx(sum(line["seconds"] for line in steps))
    assert 0 < summary.seconds < 0.5
    assert steps[0]["tokens_per_second"] == pytest.approx(steps[0]["tokens"] / steps[0]["seconds"])


def test_weights_follow_the_steps_of_the_trainer(kit: SimpleNamespace, tmp_path: Path) -> None:
    """Three epochs of three steps."""
    recipe = {"epochs": 3, "batch": 8, "accumulation": 2, "warmup": 0.2, "schedule": "cosine"}
    weights: list[Schedule] = [Linear(1, 0), Cosine(0, 0.8), Step(0.1, 0.7, at=0.5)]
    combined = combine([Mle(), Emo(), MixCE()], weights)
    lines = kit.train_sgd(kit.job(tmp_path, objective=combined, recipe=recipe), rate=0.01)
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
