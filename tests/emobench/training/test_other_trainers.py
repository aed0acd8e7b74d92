"""The real Trainer of transformers and TRL's SFTTrainer: one step of SGD is that of the mean over all target tokens."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from datasets import Dataset
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments

import emobench
from emobench.core.errors import ConfigError, ModelError

OUTDATED = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:.*deprecated")
PEFT = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning", "ignore:fan_in_fan_out")
GPT: dict[str, Any] = {
    "vocab_size": 61, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "bos_token_id": 1, "eos_token_id": 1,
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "pad_token_id": 1,
}  # fmt: skip
EXPERTS: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 1,
    "num_local_experts": 4, "num_experts_per_tok": 2, "experts_implementation": "eager",
}  # fmt: skip
BATCHES = [(4, 1), (1, 4), (2, 2)]
"""Rows of a micro-batch, and micro-batches of a step."""
RATE = 0.5


def tiny(kind: str, **more: Any) -> Any:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **more))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model.train()


def rows() -> list[list[int]]:
    return torch.randint(2, 61, (4, 9), generator=torch.Generator().manual_seed(1)).tolist()


def options(folder: Path, micro: int, accumulated: int, kind: Any = TrainingArguments, **more: Any) -> Any:
    values: dict[str, Any] = {
        "max_steps": 1, "learning_rate": RATE, "lr_scheduler_type": "constant", "optim": "sgd", "max_grad_norm": 0.0,
        "report_to": [], "use_cpu": True, "disable_tqdm": True, "logging_steps": 1, "save_strategy": "no",
    }  # fmt: skip
    return kind(
        str(folder), per_device_train_batch_size=micro, gradient_accumulation_steps=accumulated, **(values | more)
    )


def after_one_step(model: Any) -> tuple[float, dict[str, Tensor]]:
    """Return the loss, and the weights after a step of SGD, from the model's own logits in float64."""
    model = copy.deepcopy(model).double()
    ids_BT = torch.tensor(rows())
    logits_BTV = model(input_ids=ids_BT).logits
    loss = F.cross_entropy(logits_BTV[:, :-1].flatten(0, 1), ids_BT[:, 1:].flatten())
    loss.backward()
    weights = {name: (p - RATE * p.grad).detach() for name, p in model.named_parameters() if p.grad is not None}
    return loss.item(), weights


def check(trainer: Any, start: Any) -> None:
    """Train one step, and compare the logged loss and the weights."""
    loss, weights = after_one_step(start)
    trainer.train()
    logged = next(line["loss"] for line in trainer.state.log_history if "loss" in line)
    assert logged == pytest.approx(loss, rel=1e-3)  # rounded to four digits
    before = dict(start.named_parameters())
    for name, weight in trainer.model.named_parameters():
        begun = before[name].detach().double()
        moved, expected = weight.detach().double() - begun, weights[name] - begun
        assert float((moved - expected).norm()) <= 2e-5 * float(expected.norm()) + 1e-6, name


class OwnLoss(Trainer):
    """A trainer with a loss of the caller's."""

    loss: Any = None

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        inputs = dict(inputs)
        labels = inputs.pop("labels")
        return self.loss(model(**inputs).logits, labels, num_items_in_batch=num_items_in_batch)


def attached_before(model: Any, arguments: Any, data: Any) -> Any:
    emobench.attach(model, "mle")
    return Trainer(model, arguments, train_dataset=data)


def attached_after(model: Any, arguments: Any, data: Any) -> Any:
    trainer = Trainer(model, arguments, train_dataset=data)
    emobench.attach(trainer.model, "mle")
    return trainer


def by_function(model: Any, arguments: Any, data: Any) -> Any:
    function = emobench.compute_loss_func("mle", model=model)
    return Trainer(model, arguments, train_dataset=data, compute_loss_func=function)


def by_own_loss(model: Any, arguments: Any, data: Any) -> Any:
    loss = emobench.objective("mle", model=model)
    trainer = OwnLoss(model, arguments, train_dataset=data)
    trainer.loss = loss
    trainer.loss_is_scaled_for_ga = True
    return trainer


WAYS = (attached_before, attached_after, by_function, by_own_loss)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["gpt2", "openai-gpt", "ctrl"])
def test_a_class_without_a_loss_type_divides_by_its_targets(kind: str, way: Callable[..., Any], tmp_path: Path) -> None:
    start = tiny(kind, **(GPT | ({"dff": 24} if kind == "ctrl" else {})))
    data = Dataset.from_list([{"input_ids": ids, "labels": ids} for ids in rows()])
    for micro, accumulated in BATCHES:
        check(way(copy.deepcopy(start), options(tmp_path, micro, accumulated), data), start)


@pytest.fixture
def sft(tmp_path: Path, kit: SimpleNamespace) -> Callable[..., Any]:
    trl = pytest.importorskip("trl")

    def make(model: Any, micro: int = 4, accumulated: int = 1, **more: Any) -> Any:
        data = Dataset.from_list([{"input_ids": ids} for ids in rows()])
        function = {"compute_loss_func": more.pop("function")} if "function" in more else {}
        arguments = options(tmp_path, micro, accumulated, trl.SFTConfig, bf16=False, **more)
        return trl.SFTTrainer(model, arguments, train_dataset=data, processing_class=kit.tokenizer(), **function)

    return make


@OUTDATED
@pytest.mark.parametrize("by", ["attach", "function"])
@pytest.mark.parametrize("kind", ["gpt2", "mixtral"])
def test_sft_trainer_divides_by_the_targets(kind: str, by: str, sft: Callable[..., Any]) -> None:
    start = tiny(kind, **(GPT if kind == "gpt2" else EXPERTS))
    for micro, accumulated in BATCHES:
        model = copy.deepcopy(start)
        more: dict[str, Any] = {} if kind == "gpt2" else {"router_aux_loss_coef": 0.0}
        if by == "function":
            more["function"] = emobench.compute_loss_func("mle", model=model)
        trainer = sft(model, micro, accumulated, **more)
        if by == "attach":
            emobench.attach(trainer.model, "mle")
        check(trainer, start)


def expert_batch() -> dict[str, Tensor]:
    ids_BT = torch.tensor(rows())
    return {"input_ids": ids_BT, "labels": ids_BT}


def test_an_auxiliary_loss_is_refused_however_it_is_asked_for() -> None:
    model = tiny("mixtral", **EXPERTS)
    attached = emobench.attach(model, "emo")
    model(**expert_batch(), output_router_logits=False).loss.backward()
    with pytest.raises(ModelError, match="MixtralForCausalLM"):
        model(**expert_batch(), output_router_logits=True)
    model.config.output_router_logits = True
    with pytest.raises(ModelError, match="MixtralForCausalLM"):
        model(**expert_batch())
    model(**expert_batch(), output_router_logits=False).loss.backward()
    with torch.no_grad():
        assert model.eval()(**expert_batch()).aux_loss > 0  # evaluation stays as it is
    attached.detach()
    with pytest.raises(ModelError, match="MixtralForCausalLM"):
        emobench.attach(model, "mle")
    with pytest.raises(ModelError, match="MixtralForCausalLM"):
        emobench.compute_loss_func("mle", model=model)
    with pytest.raises(ModelError, match="MixtralForCausalLM"):
        emobench.objective("mle", model=model)


@OUTDATED
def test_sft_trainer_with_experts_is_refused_with_advice_that_works(sft: Callable[..., Any]) -> None:
    trainer = sft(tiny("mixtral", **EXPERTS), router_aux_loss_coef=0.01)
    with pytest.raises(ModelError, match=r"SFTConfig\(router_aux_loss_coef=0\.0\)"):
        emobench.attach(trainer.model, "emo")
    trainer.model.config.output_router_logits = False
    emobench.attach(trainer.model, "emo")
    with pytest.raises(ModelError, match=r"SFTConfig\(router_aux_loss_coef=0\.0\)"):
        trainer.train()  # it passes the argument


@OUTDATED
@pytest.mark.parametrize("more", [{"loss_type": "dft"}, {"label_smoothing_factor": 0.1}])
def test_sft_trainer_that_changes_the_loss_is_refused(sft: Callable[..., Any], more: dict[str, Any]) -> None:
    trainer = sft(tiny("gpt2", **GPT), **more)
    emobench.attach(trainer.model, "emo")
    with pytest.raises(ConfigError, match=next(iter(more))):
        trainer.train()


@PEFT
@pytest.mark.parametrize("change", ["lora", "resize", "replace"])
def test_a_head_that_changed_after_attach_is_refused(change: str) -> None:
    from peft import LoraConfig, get_peft_model

    model = tiny("gpt2", **(GPT | {"tie_word_embeddings": False}))
    emobench.attach(model, "emo")
    if change == "lora":
        get_peft_model(model, LoraConfig(r=2, target_modules=["c_attn", "lm_head"]))
    elif change == "resize":
        model.resize_token_embeddings(70, mean_resizing=False)
    else:
        model.lm_head = torch.nn.Linear(16, 61, bias=False)
    with pytest.raises(ModelError, match="The LM head of GPT2LMHeadModel"):
        model(**expert_batch())


@PEFT
def test_a_copy_of_the_head_that_peft_trains_is_the_head() -> None:
    from peft import LoraConfig, get_peft_model

    model = tiny("gpt2", **(GPT | {"tie_word_embeddings": False}))
    emobench.attach(model, "mle")
    wrapped: Any = get_peft_model(model, LoraConfig(r=2, target_modules=["c_attn"], modules_to_save=["lm_head"]))
    trained = wrapped.get_base_model().lm_head.modules_to_save["default"]
    with torch.no_grad():
        trained.weight += 0.3 * torch.randn_like(trained.weight)
    batch = expert_batch()
    logits_BTV = wrapped.eval()(input_ids=batch["input_ids"]).logits
    expected = F.cross_entropy(logits_BTV[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten())
    found = wrapped.train()(**batch, fused_lm_head=True)
    assert found.loss.item() == pytest.approx(expected.item(), rel=1e-5)
    entropy_BTV = torch.special.entr(logits_BTV[:, :-1].softmax(-1))
    torch.testing.assert_close(found.entropy, entropy_BTV.sum(-1).detach(), rtol=1e-4, atol=1e-4)
    found.loss.backward()
    assert trained.weight.grad.abs().sum() > 0
