"""A training from a recipe to a folder: what is kept, what is written, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import Adafactor, AutoModelForCausalLM, AutoTokenizer

import emobench
from emobench.core.errors import ConfigError, NonFiniteLossError, PluginError
from emobench.data.packing import RowCollator
from emobench.objectives import ModelObjective, UnitLosses
from emobench.training.recipe import FIXED, SET_BY, Lora
from emobench.training.train import total_steps, train, training_arguments
from emobench_objectives.emo import Emo

# peft calls it.
deprecated = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")


def mle_of(model: Any, rows: list[dict[str, Any]]) -> float:
    """Return nats per target token, one row at a time, from the model's logits."""
    total, tokens = 0.0, 0
    with torch.no_grad():
        for row in rows:
            ids = torch.from_numpy(row["input_ids"]).long()[None]
            labels = torch.from_numpy(row["labels"]).long()
            total += F.cross_entropy(model(ids).logits[0, :-1].double(), labels[1:], reduction="sum").item()
            tokens += int((labels[1:] != -100).sum())
    return total / tokens


@pytest.mark.parametrize("kind", ["gpt2", "opt", "llama", "phi", "gemma2", "granite"])
def test_the_result_is_a_plain_folder(kit: SimpleNamespace, tmp_path: Path, kind: str) -> None:
    job = kit.job(tmp_path, model=kit.tiny(kind, dtype=torch.float32), objective=Emo(), train=kit.ragged(16))
    before = kit.weights(job.model)
    summary = train(job)
    files = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert files == {
        "log.jsonl", "training.json", "model/config.json", "model/generation_config.json", "model/model.safetensors",
        "model/tokenizer.json", "model/tokenizer_config.json", "seal.json",
    }  # fmt: skip
    assert json.loads((tmp_path / "training.json").read_text()) | {"accumulation": None} == vars(summary)

    model, info = AutoModelForCausalLM.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert type(model) is type(job.model)
    assert model.config.architectures == [type(job.model).__name__]
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert tied == (kind in ("gpt2", "opt", "gemma2"))
    ids = torch.arange(3, 12)[None]
    assert torch.equal(model(ids).logits, job.model.eval()(ids).logits)
    assert kit.difference(kit.weights(model), before) > 1e-3
    assert model.generate(ids, max_new_tokens=4, min_new_tokens=4, pad_token_id=0).shape == (1, 13)
    assert AutoTokenizer.from_pretrained(tmp_path / "model")("w5 w7")["input_ids"] == [5, 7]
    assert summary.validation_mle == pytest.approx(mle_of(model, job.validation), rel=1e-5)


class Backwards(emobench.StatisticsObjective):
    """The negative of MLE: its own loss falls while MLE rises."""

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return s.log_prob


@pytest.mark.parametrize(("select", "step"), [("mle", 2), ("objective", 6), ("last", 6)])
def test_the_checkpoint_that_is_kept(kit: SimpleNamespace, tmp_path: Path, select: str, step: int) -> None:
    """Three epochs of an objective that makes MLE worse with every step."""
    after: dict[int, dict[str, Tensor]] = {}
    model = kit.tiny()
    job = kit.job(
        tmp_path,
        model=model,
        objective=Backwards(),
        train=kit.ragged(16),
        recipe={"epochs": 3, "select": select},
        progress=lambda line: after.update({line["step"]: kit.weights(model)}) if "loss" in line else None,
    )
    summary = train(job)
    assert (summary.selected_by, summary.selected_step, summary.steps) == (select, step, 6)
    kept = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float64)
    assert kit.difference(kit.weights(kept), after[step]) == 0
    validated = {line["step"]: line for line in kit.log_of(tmp_path) if "eval_mle" in line}
    assert sorted(validated) == [2, 4, 6]
    mle = [validated[s]["eval_mle"] for s in (2, 4, 6)]
    assert mle == sorted(mle)
    if select == "objective":
        assert [validated[s]["eval_objective"] for s in (2, 4, 6)] == pytest.approx([-m for m in mle], rel=1e-12)
    for line_step, expected in zip((2, 4, 6), mle, strict=True):
        model.load_state_dict(after[line_step], strict=False)
        assert expected == pytest.approx(mle_of(model, job.validation), rel=1e-12)
    assert summary.validation_mle == validated[step]["eval_mle"]


def test_validation_does_not_depend_on_the_batch(kit: SimpleNamespace, tmp_path: Path) -> None:
    found = set()
    for batch in (1, 3, 16):
        job = kit.job(tmp_path / str(batch), train=kit.ragged(1), recipe={"batch": batch, "learning_rate": 1e-12})
        found.add(round(train(job).validation_mle or 0, 9))
    assert found == {round(mle_of(kit.tiny(), job.validation), 9)}


@pytest.mark.parametrize(
    ("rows", "values"),
    [
        (1, {"batch": 8, "epochs": 1}),
        (25, {"batch": 8, "accumulation": 4, "epochs": 2}),
        (8, {"batch": 6, "accumulation": 3, "epochs": 1.5}),
        (25, {"batch": 32, "accumulation": 2, "epochs": 0.3}),
    ],
)
def test_total_steps_are_the_trainers(kit: SimpleNamespace, tmp_path: Path, rows: int, values: dict[str, Any]) -> None:
    seen: list[dict[str, float]] = []

    class Stop(Exception):
        pass

    def stop(line: dict[str, float]) -> None:
        seen.append(line)
        raise Stop

    job = kit.job(tmp_path, train=kit.ragged(rows), recipe=values, progress=stop)
    with pytest.raises(Stop):
        train(job)
    assert seen[0]["steps"] == total_steps(job.recipe, rows)


@pytest.mark.parametrize(
    ("values", "factors"),
    [
        ({}, [1, 0.75, 0.5, 0.25]),
        ({"warmup": 0.5}, [0, 0.5, 1, 0.5]),
        ({"warmup": 1.0}, [0, 0.25, 0.5, 0.75]),
        ({"schedule": "constant"}, [1, 1, 1, 1]),
        ({"schedule": "cosine"}, [0.5 * (1 + math.cos(math.pi * i / 4)) for i in range(4)]),
    ],
)
def test_the_rate_of_each_step(
    kit: SimpleNamespace, tmp_path: Path, values: dict[str, Any], factors: list[float]
) -> None:
    train(kit.job(tmp_path, recipe={"batch": 6, **values}))
    rates = [line["learning_rate"] for line in kit.log_of(tmp_path) if "loss" in line]
    assert rates == pytest.approx([1e-2 * factor for factor in factors])


class Whole(ModelObjective):
    """Costs nothing and does nothing."""

    def loss(self, model: Any, batch: Mapping[str, Tensor]) -> UnitLosses:
        return UnitLosses(torch.zeros(1), torch.ones(1))


@pytest.mark.parametrize(
    ("recipe", "values", "named"),
    [
        ({"precision": "float16"}, {}, "`precision` is float16"),  # the Trainer would train in float32 without a word
        ({"trainer": {"adam_beta2": 2.0}}, {}, "adam_beta2"),
        ({"trainer": {"lr_scheduler_kwargs": {"cycles": 2}}, "schedule": "cosine"}, {}, "lr_scheduler_kwargs"),
        ({"select": "objective"}, {"objective": Whole()}, "whole"),
    ],
)
def test_a_recipe_that_cannot_be_trained_is_refused(
    kit: SimpleNamespace, tmp_path: Path, recipe: dict[str, Any], values: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        train(kit.job(tmp_path, recipe=recipe, **values))


def test_half_precision_is_near_and_does_not_leak_into_the_next_training(kit: SimpleNamespace, tmp_path: Path) -> None:
    found = {}
    for name, precision in (("first", "float32"), ("half", "bfloat16"), ("again", "float32")):
        model = kit.tiny("llama", dtype=torch.float32)
        train(kit.job(tmp_path / name, model=model, objective=Emo(), recipe={"epochs": 2, "precision": precision}))
        found[name] = [line["loss"] for line in kit.log_of(tmp_path / name) if "loss" in line]
        assert {value.dtype for value in kit.saved(tmp_path / name).values()} == {torch.float32}
    assert found["again"] == found["first"]
    assert found["half"] != found["first"]
    assert found["half"] == pytest.approx(found["first"], rel=0.01)


def test_all_arguments_that_the_harness_sets_are_refused_in_a_recipe(
    kit: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = {"trainer": {"adam_beta2": 0.5}}
    assert training_arguments(kit.job(tmp_path, recipe=recipe), tmp_path).adam_beta2 == 0.5
    given: set[str] = set()
    monkeypatch.setattr(
        "emobench.training.train.TrainingArguments", lambda **values: given.update(values) or SimpleNamespace(n_gpu=1)
    )
    training_arguments(kit.job(tmp_path), tmp_path)
    assert given
    assert given <= FIXED.union(*map(str.split, SET_BY.values()))


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("auto", partial(torch.optim.AdamW, weight_decay=0.0)),
        ("adamw_torch", partial(torch.optim.AdamW, weight_decay=0.0)),
        ("adamw_torch_fused", partial(torch.optim.AdamW, weight_decay=0.0)),
        ("adafactor", partial(Adafactor, scale_parameter=False, relative_step=False)),
        ("sgd", torch.optim.SGD),
        ("adagrad", torch.optim.Adagrad),
        ("rmsprop", torch.optim.RMSprop),
    ],
)
def test_a_step_is_that_of_the_named_optimizer(
    kit: SimpleNamespace, tmp_path: Path, name: str, reference: Callable[..., Any]
) -> None:
    """One step on 24 rows, against the optimizer itself on the gradient of plain PyTorch."""
    model, rows = kit.tiny("llama"), kit.ragged(24)
    optimizer = reference(model.parameters(), lr=1e-2)
    batch = RowCollator(0)(rows)
    labels = batch["labels"][:, 1:]
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    F.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
    optimizer.step()
    train(kit.job(tmp_path, model=kit.tiny("llama"), recipe={"batch": 24, "optimizer": name, "select": "last"}))
    found = kit.weights(AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float64))
    for weight, expected in kit.weights(model).items():
        torch.testing.assert_close(found[weight], expected, rtol=1e-6, atol=1e-7)


@deprecated
@pytest.mark.parametrize("lora", [False, True])
def test_gradient_checkpointing_computes_layers_twice_and_changes_no_weight(
    kit: SimpleNamespace, tmp_path: Path, lora: bool
) -> None:
    weights, calls = {}, {}
    for on in (False, True):
        model, seen = kit.tiny("llama"), []
        model.model.layers[0].mlp.register_forward_pre_hook(lambda *_, seen=seen: seen.append(torch.is_grad_enabled()))
        recipe = {"gradient_checkpointing": on, "lora": lora, "select": "last"}
        train(kit.job(tmp_path / str(on), model=model, recipe=recipe))
        weights[on] = kit.weights(AutoModelForCausalLM.from_pretrained(tmp_path / str(on) / "model"))
        calls[on] = sum(seen)
    assert calls[True] == 2 * calls[False] > 0
    for name, expected in weights[False].items():
        torch.testing.assert_close(weights[True][name], expected)


@deprecated
@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False:UserWarning")  # peft sets it right itself
@pytest.mark.parametrize(
    ("kind", "lora", "adapted"),
    [
        ("gpt2", True, {"c_attn"}),
        ("llama", True, {"q_proj", "v_proj"}),
        ("gpt2", Lora(rank=2, alpha=8, targets=("c_proj",)), {"c_proj"}),
        ("llama", Lora(rank=2, alpha=8, targets=("o_proj", "up_proj")), {"o_proj", "up_proj"}),
    ],
)
def test_lora_trains_adapters_only(
    kit: SimpleNamespace, tmp_path: Path, kind: str, lora: bool | Lora, adapted: set[str]
) -> None:
    job = kit.job(tmp_path, model=kit.tiny(kind), objective=Emo(), recipe={"epochs": 2, "lora": lora, "select": "last"})
    before, names = kit.weights(job.model), [n for n, _ in job.model.named_modules()]
    summary = train(job)
    model, info = AutoModelForCausalLM.from_pretrained(
        tmp_path / "model", dtype=torch.float64, output_loading_info=True
    )
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert [n for n, _ in model.named_modules()] == names
    after = kit.weights(model)
    changed = [n for n in after if not torch.equal(after[n], before[n])]
    assert {n.split(".")[-2] for n in changed} == adapted
    if isinstance(lora, Lora):
        for name in changed:
            assert torch.linalg.matrix_rank(after[name] - before[name], rtol=1e-6) == lora.rank
    # The weights that were validated are the merged ones.
    assert summary.validation_mle == pytest.approx(mle_of(model, job.validation), rel=1e-9)
    assert not list(tmp_path.rglob("adapter*"))


@pytest.mark.parametrize("select", ["mle", "last"])
def test_weights_that_the_last_step_broke_are_not_kept(kit: SimpleNamespace, tmp_path: Path, select: str) -> None:
    """The loss of the last step is finite, its gradient is not: only validation can tell."""

    class Cliff(emobench.StatisticsObjective):
        def loss(self, s: emobench.TokenStatistics) -> Tensor:
            return (s.log_prob - s.log_prob.detach()).abs().sqrt() - s.log_prob

    job = kit.job(tmp_path, train=kit.ragged(8), objective=Cliff(), recipe={"select": select})
    with pytest.raises(NonFiniteLossError, match="validation loss became NaN at step 1"):
        train(job)
    assert not (tmp_path / "model").exists()


def test_tokens_and_parts_are_logged(kit: SimpleNamespace, tmp_path: Path) -> None:
    job = kit.job(tmp_path, objective=Emo(), recipe={"epochs": 2})
    summary = train(job)
    targets = int((RowCollator(0)(job.train)["labels"][:, 1:] != -100).sum())
    steps = [line for line in kit.log_of(tmp_path) if "loss" in line]
    assert summary.tokens == 2 * targets == sum(line["tokens"] for line in steps)
    for line in steps:
        assert {"mle", "demd", "weight", "zero_weight_count", "grad_norm", "learning_rate"} <= line.keys()
        assert line["loss"] == pytest.approx(line["mle"], rel=1e-12)  # the value of EMO is that of MLE
        assert 0 < line["demd"] < 2


COSTS = """
import numpy as np

def steps(texts, targets):
    places = np.arange(len(texts))
    return abs(places - places[targets][:, None])

def all_but(texts, targets):
    return steps(texts, targets) - 100 * (np.array(targets) == {rare})[:, None]
"""


def test_costs_of_a_users_function(kit: SimpleNamespace, tmp_path: Path) -> None:
    """Costs from every target are tried before the first step."""
    file = tmp_path / "costs.py"
    job = kit.job(tmp_path / "good", objective=kit.objectives["emo"](cost=f"{file}:steps"))
    targets = RowCollator(0)(job.train)["labels"][:, 1:].flatten()
    file.write_text(COSTS.format(rare=int(targets[targets > 10][-1])))
    train(job)
    for line in kit.log_of(job.folder):
        if "loss" in line:
            assert line["loss"] == pytest.approx(line["mle"], rel=1e-12)
            assert 2 < line["demd"] < len(job.tokenizer)
    bad = kit.job(tmp_path / "bad", objective=kit.objectives["emo"](cost=f"{file}:all_but"))
    with pytest.raises(PluginError, match=r"costs\.py is -"):
        train(bad)
    assert not bad.folder.exists()


def test_kept_cost_rows_change_no_number(kit: SimpleNamespace, tmp_path: Path) -> None:
    """Those of the most frequent targets; more than there are tokens, or as many as fit (0), keep all that occur."""
    logs = {}
    for rows in (1, 10, 1000, 0):
        objective = kit.objectives["emo"]()
        job = kit.job(tmp_path / str(rows), objective=objective, recipe={"cost_rows": rows})
        train(job)
        logs[rows] = [line for line in kit.log_of(job.folder) if "loss" in line]
        slots = objective.cost_embedding.slot_V
        kept = 0 if slots is None else int((slots >= 0).sum())
        targets = [int(i) for row in job.train for i in row["labels"][1:] if i != -100]  # type: ignore[attr-defined]
        assert kept == min(rows or 1000, len(set(targets)))
        if rows == 10:
            most = max(set(targets), key=targets.count)
            assert slots[most] >= 0
    for line, other in zip(logs[1] * 3, logs[10] + logs[1000] + logs[0], strict=True):
        assert other["loss"] == pytest.approx(line["loss"], rel=1e-9)
        assert other["grad_norm"] == pytest.approx(line["grad_norm"], rel=1e-9)
