"""Objectives in other trainings: the gradients are the engine's, and a trainer that passes them by is stopped."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import emobench
from emobench.core.errors import ConfigError, ModelError, PluginError
from emobench.models.head import final_hidden, probe_head
from emobench.registry import load_objective
from emobench.training.context import TrainingContext

VOCABULARY = 61


@pytest.fixture
def model() -> Any:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64}
    sizes["num_attention_heads"] = 4
    special: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 1}
    config = LlamaConfig(vocab_size=VOCABULARY, max_position_embeddings=64, initializer_range=0.3, **sizes, **special)
    return LlamaForCausalLM(config).train()


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    """Three sequences with padding and a masked prompt."""
    torch.manual_seed(1)
    ids_BT = torch.randint(2, VOCABULARY, (3, 12))
    labels_BT = ids_BT.clone()
    labels_BT[0, :5] = labels_BT[1, 9:] = -100
    mask_BT = torch.ones_like(ids_BT)
    mask_BT[1, 9:] = 0
    return {"input_ids": ids_BT, "attention_mask": mask_BT, "labels": labels_BT}


def engine_gradients(model: Any, name: str, *batches: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the gradients of the mean over the tokens of batches, by the definition: autograd on whole logits."""
    model = copy.deepcopy(model)
    objective, head = load_objective(name).objective, probe_head(model)
    objective.setup(TrainingContext(head, 0, True, lambda other: torch.zeros(0), model))
    total, count = torch.zeros(()), 0
    for batch in batches:
        hidden_BTD = final_hidden(model, input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
        labels_N = batch["labels"][:, 1:].flatten()
        found = emobench.objective_loss(
            objective, hidden_BTD[:, :-1].flatten(0, 1), head.linear.weight, None, labels_N, impl="reference"
        )
        total, count = total + found.total, count + found.count
    (total / count).backward()
    return gradients(model)


def gradients(model: Any) -> dict[str, torch.Tensor]:
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float = 1e-6) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert (found[name] - gradient).norm() <= tolerance * gradient.norm() + 1e-9, name


NAMES = ["mle", "emo", "0.5*emo + 0.5*mle", "tailr(gamma=0.2)", "mixce", "label-smoothing", "brier"]


@pytest.mark.parametrize("name", NAMES)
def test_logits_and_hidden_states_give_the_gradients_of_the_engine(model: Any, batch: Any, name: str) -> None:
    tolerance = 1e-6 if name == "emo" else 1e-12
    model = model if name == "emo" else model.double()
    expected = engine_gradients(model, name, batch)
    loss = emobench.objective(name, model=model)
    labels_BT = batch.pop("labels")
    value = loss(model(**batch).logits, labels_BT)
    parts = loss.parts
    value.backward()
    assert_same(gradients(model), expected, tolerance)
    model.zero_grad()
    again = loss.linear(final_hidden(model, **batch), model.lm_head.weight, labels_BT)
    again.backward()
    assert_same(gradients(model), expected, tolerance)
    assert value.item() == pytest.approx(again.item(), rel=1e-6)
    assert parts["mle"] == pytest.approx(loss.parts["mle"], rel=1e-6)


def test_targets_by_themselves_and_a_number_of_items(model: Any, batch: Any) -> None:
    labels_BT = batch.pop("labels")
    with torch.no_grad():
        logits_BTV = model(**batch).logits
    weight = model.get_output_embeddings().weight
    loss = emobench.objective("emo", head_weight=weight)
    rows = loss(logits_BTV[:, :-1].flatten(0, 1), labels_BT[:, 1:].flatten())
    assert float(rows) == pytest.approx(float(loss(logits_BTV, labels_BT)))
    assert float(loss(logits_BTV, labels_BT, num_items_in_batch=50)) == pytest.approx(
        float(rows) * int((labels_BT[:, 1:] != -100).sum()) / 50
    )
    assert float(loss(logits_BTV, torch.full_like(labels_BT, -100))) == 0


def test_a_cost_from_another_model(small_model: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(small_model)
    ids_BT = torch.arange(12).view(2, 6)
    other, same = emobench.objective(f"emo(cost='{small_model}')", model=model), emobench.objective("emo", model=model)
    for loss in (other, same):
        loss(model(input_ids=ids_BT).logits, ids_BT)
    assert other.parts == same.parts
    assert other.parts["demd"] > 0


def test_what_cannot_be_computed_is_said(model: Any, batch: Any) -> None:
    with pytest.raises(ConfigError, match=r"reads the pre-trained model; give emobench\.objective"):
        emobench.objective("emo")
    with pytest.raises(ConfigError, match=r"reads the head as it is trained"):
        emobench.objective("emo-1-adaptive", model=model)(torch.zeros(2, VOCABULARY), torch.tensor([1, 2]))
    with pytest.raises(PluginError, match=r"of each batch; use emobench\.attach"):
        emobench.objective("unlikelihood", model=model)
    with pytest.raises(ConfigError, match=r"shape \(3, 11\), for \(3, 12, 61\)"):
        emobench.objective("mle")(torch.zeros(3, 12, VOCABULARY), batch["labels"][:, 1:])


@pytest.mark.parametrize("name", [*NAMES, "emo-1-adaptive", "unlikelihood"])
def test_an_attached_model_has_the_gradients_of_the_engine(model: Any, batch: Any, name: str) -> None:
    model = model if name == "emo" else model.double()
    expected = {} if name == "unlikelihood" else engine_gradients(model, name, batch)
    attached = emobench.attach(model, name)
    loss = model(**batch).loss
    loss.backward()
    if expected:
        assert_same(gradients(model), expected, 1e-6 if name == "emo" else 1e-12)
    assert attached.parts["loss"] == pytest.approx(loss.item(), rel=1e-6)
    assert attached.parts == {}
    with torch.no_grad():
        assert model(**batch).logits.shape == (3, 12, VOCABULARY)
    with pytest.raises(ConfigError, match="first call detach"):
        emobench.attach(model, "mle")
    attached.detach()
    assert "forward" not in vars(model)


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"The model is 'gpt2'; expected one that transformers' from_pretrained ret"):
        emobench.objective("emo", model="gpt2")
    with pytest.raises(ConfigError, match=r"The model is 3; expected one"):
        emobench.attach(3, "emo")


def test_a_loss_of_the_caller_is_refused(model: Any, batch: Any) -> None:
    attached = emobench.attach(model, "emo")
    with pytest.raises(ModelError, match=r"no `labels`, add them.* computes a loss by itself: with TRL's SFTTrainer"):
        model(input_ids=batch["input_ids"])
    with torch.no_grad():
        model(input_ids=batch["input_ids"])
    model.eval()
    assert model.generate(batch["input_ids"][:1, :4], max_new_tokens=2).shape == (1, 6)
    attached.detach()
    model.train()(input_ids=batch["input_ids"])


def test_a_schedule_needs_steps(model: Any, batch: Any) -> None:
    attached = emobench.attach(copy.deepcopy(model), "linear(1, 0)*emo + linear(0, 1)*mle")
    with pytest.raises(ConfigError, match=r"has a schedule; add what emobench\.attach returned"):
        attached._model(**batch)
    expected = engine_gradients(model, "emo", batch)
    attached = emobench.attach(model, "linear(1, 0)*emo + linear(0, 1)*mle")
    attached.begin_step(0, 10)
    model(**batch).loss.backward()
    assert_same(gradients(model), expected)


@pytest.mark.parametrize("name", ["psft", "0.5*psft + 0.5*mle"])
def test_a_copy_of_the_model_needs_steps(name: str, model: Any, batch: Any) -> None:
    attached = emobench.attach(model, name)
    with pytest.raises(ConfigError, match="has a schedule"):
        model(**batch)
    attached.begin_step(5, 10)  # as after a resume, between two copies
    with pytest.raises(ConfigError, match="There is no copy of the model of an earlier step"):
        model(**batch)
    attached.begin_step(8, 10)
    model(**batch).loss.backward()
    if name == "psft":
        assert attached.parts["ratio"] == pytest.approx(1, abs=1e-5)


def stopped(trainer: Trainer) -> dict[str, torch.Tensor]:
    """Return the gradients of a trainer's first step."""
    found: dict[str, torch.Tensor] = {}

    def keep(*_: Any) -> None:
        found.update({name: gradient.clone() for name, gradient in gradients(trainer.model).items()})
        raise StopIteration

    trainer.create_optimizer()
    optimizer: Any = trainer.optimizer
    optimizer.register_step_pre_hook(keep)
    with pytest.raises(StopIteration):
        trainer.train()
    return found


def rows_of(batch: dict[str, torch.Tensor]) -> Dataset:
    return Dataset.from_dict({name: value.tolist() for name, value in batch.items()})


OPTIONS: dict[str, Any] = {"max_grad_norm": 0.0, "report_to": [], "use_cpu": True, "max_steps": 1, "disable_tqdm": True}


@pytest.mark.parametrize("way", ["attach", "compute_loss_func"])
@pytest.mark.parametrize("accumulated", [1, 3])
def test_transformers_trainer(model: Any, batch: Any, tmp_path: Path, way: str, accumulated: int) -> None:
    expected = engine_gradients(model, "emo", batch)
    options = TrainingArguments(
        str(tmp_path),
        per_device_train_batch_size=3 // accumulated,
        gradient_accumulation_steps=accumulated,
        **OPTIONS,
    )
    func: Callable[..., Any] | None = None
    if way == "attach":
        emobench.attach(model, "emo")
    else:
        func = emobench.compute_loss_func("emo", model=model)
    trainer = Trainer(model, options, train_dataset=rows_of(batch), compute_loss_func=func)
    assert_same(stopped(trainer), expected)


def test_an_accelerate_loop(model: Any, batch: Any) -> None:
    from accelerate import Accelerator

    expected = engine_gradients(model, "emo", batch)
    emobench.attach(model, "emo")
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    count = (batch["labels"][:, 1:] != -100).sum()
    for row in range(3):
        with accelerator.accumulate(model):
            part = {name: value[row : row + 1] for name, value in batch.items()}
            # accelerate divides by the number of micro-batches.
            accelerator.backward(3 * model(**part, num_items_in_batch=count).loss)
    assert_same(gradients(accelerator.unwrap_model(model)), expected)


OUTDATED = pytest.mark.filterwarnings("ignore::FutureWarning")
"""SFTConfig sets an option that transformers has renamed."""


@pytest.fixture
def sft(tmp_path: Path) -> Callable[..., Any]:
    trl = pytest.importorskip("trl")

    def make(model: Any, batch: dict[str, torch.Tensor], **more: Any) -> Any:
        from tokenizers import Tokenizer, models
        from transformers import PreTrainedTokenizerFast

        words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w1", pad_token="w1", unk_token="w0")
        rows = [
            {"input_ids": ids[mask].tolist(), "completion_mask": (labels[mask] != -100).long().tolist()}
            for ids, labels, mask in zip(
                batch["input_ids"], batch["labels"], batch["attention_mask"].bool(), strict=True
            )
        ]
        accumulated = more.pop("accumulated", 1)
        options = trl.SFTConfig(
            output_dir=str(tmp_path),
            completion_only_loss=True,
            bf16=False,
            per_device_train_batch_size=3 // accumulated,
            gradient_accumulation_steps=accumulated,
            **{**OPTIONS, **{k: v for k, v in more.items() if k != "peft_config"}},
        )
        peft = {"peft_config": more["peft_config"]} if "peft_config" in more else {}
        return trl.SFTTrainer(model, options, train_dataset=Dataset.from_list(rows), processing_class=tokenizer, **peft)

    return make


@OUTDATED
@pytest.mark.parametrize("accumulated", [1, 3])
def test_sft_trainer(model: Any, batch: Any, sft: Callable[..., Any], accumulated: int) -> None:
    expected, mle = engine_gradients(model, "emo", batch), engine_gradients(model, "mle", batch)
    trainer = sft(model, batch, accumulated=accumulated)
    emobench.attach(trainer.model, "emo")
    found = stopped(trainer)
    assert_same(found, expected)
    assert any((found[name] - mle[name]).norm() > 1e-2 * mle[name].norm() for name in mle)
    assert 0 < trainer._metrics["train"]["entropy"][0] < 4.2


@OUTDATED
@pytest.mark.parametrize("packing", [False, True])
def test_sft_trainer_with_lora_and_packing(model: Any, batch: Any, sft: Callable[..., Any], packing: bool) -> None:
    from peft import LoraConfig

    config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    trainer = sft(model, batch, peft_config=config, packing=packing, max_length=32, shuffle_dataset=False)
    (given,) = trainer.get_train_dataloader()
    labels_BT = given.pop("labels")
    loss = emobench.objective("emo", model=trainer.model)
    loss(trainer.model.train()(**given).logits, labels_BT).backward()
    expected = {name: gradient.clone() for name, gradient in gradients(trainer.model).items()}
    trainer.model.zero_grad()
    emobench.attach(trainer.model, "emo")
    assert_same(stopped(trainer), expected)
    assert expected
    assert all("lora_" in name for name in expected)


@OUTDATED
def test_sft_trainer_that_passes_the_loss_by_is_stopped(model: Any, batch: Any, sft: Callable[..., Any]) -> None:
    emobench.attach(model, "emo")
    trainer = sft(model, batch)
    with pytest.raises(ModelError, match=r"attach to `trainer\.model` after the trainer was made"):
        trainer.train()
