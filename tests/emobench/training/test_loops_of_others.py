"""What loops and wrappers of other tools do to a model with an objective: the loss stays right, or is refused."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from datasets import Dataset
from torch import Tensor
from torch.optim.swa_utils import AveragedModel
from transformers import LlamaForCausalLM, Trainer, TrainingArguments

import emobench
from emobench.core.errors import ConfigError, ModelError

SETTINGS: dict[str, Any] = {
    "max_steps": 1, "learning_rate": 0.1, "optim": "sgd", "max_grad_norm": 0.0, "report_to": [], "use_cpu": True,
    "disable_tqdm": True, "logging_steps": 1, "save_strategy": "no",
}  # fmt: skip


class NoMore(LlamaForCausalLM):
    """A class whose forward takes no further arguments, as older ones of the hub do."""

    def forward(  # type: ignore[override]
        self, input_ids: Any = None, attention_mask: Any = None, labels: Any = None, use_cache: Any = None
    ) -> Any:
        return super().forward(input_ids=input_ids, attention_mask=attention_mask, labels=labels, use_cache=use_cache)


@pytest.fixture
def model(kit: SimpleNamespace) -> Any:
    return kit.tiny("llama", dtype=torch.float32).train()


def batch() -> dict[str, Tensor]:
    """Four rows with 8, 6, 3 and 1 targets."""
    ids_BT = torch.randint(2, 61, (4, 9), generator=torch.Generator().manual_seed(1))
    labels_BT = ids_BT.clone()
    for row, begin in enumerate((0, 3, 6, 8)):
        labels_BT[row, :begin] = -100
    return {"input_ids": ids_BT, "labels": labels_BT}


def data() -> Dataset:
    return Dataset.from_dict({name: value.tolist() for name, value in batch().items()})


def cross_entropy(logits_BTV: Tensor, labels_BT: Tensor) -> float:
    return F.cross_entropy(logits_BTV[:, :-1].flatten(0, 1).double(), labels_BT[:, 1:].flatten()).item()


def adapted(model: Any, config: Any) -> Any:
    from peft import get_peft_model

    with warnings.catch_warnings():  # about names in transformers
        warnings.simplefilter("ignore")
        wrapped = get_peft_model(model, config)
    with torch.no_grad():
        for parameter in wrapped.parameters():
            if parameter.requires_grad:
                parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2))
    return wrapped.train()


def logged(trainer: Any) -> float:
    trainer.train()
    return next(line["loss"] for line in trainer.state.log_history if "loss" in line)


def arguments(folder: Path, micro: int, accumulated: int, **more: Any) -> Any:
    return TrainingArguments(
        str(folder), per_device_train_batch_size=micro, gradient_accumulation_steps=accumulated, **(SETTINGS | more)
    )


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
@pytest.mark.parametrize("kind", ["PromptTuningConfig", "PromptEncoderConfig", "PrefixTuningConfig"])
def test_virtual_tokens_predict_the_first_label(kind: str, model: Any, tmp_path: Path) -> None:
    import peft

    wrapped = adapted(model, getattr(peft, kind)(task_type="CAUSAL_LM", num_virtual_tokens=3))
    given = batch()
    logits_BTV = wrapped(input_ids=given["input_ids"]).logits
    added = logits_BTV.shape[1] - 9
    assert added == (0 if kind == "PrefixTuningConfig" else 3)
    expected = cross_entropy(logits_BTV, F.pad(given["labels"], (added, 0), value=-100))
    emobench.attach(wrapped, "mle")
    for micro, accumulated in ((4, 1), (1, 4)):
        trainer = Trainer(wrapped, arguments(tmp_path, micro, accumulated, learning_rate=0.0), train_dataset=data())
        assert logged(trainer) == pytest.approx(expected, rel=1e-4)


def test_a_loss_of_logits_with_virtual_tokens_is_refused_with_advice(model: Any, tmp_path: Path) -> None:
    import peft

    wrapped = adapted(model, peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    function = emobench.compute_loss_func("mle", model=wrapped)
    trainer = Trainer(wrapped, arguments(tmp_path, 4, 1), train_dataset=data(), compute_loss_func=function)
    with pytest.raises(ConfigError, match=r"virtual tokens.*emobench\.attach"):
        trainer.train()


@pytest.mark.parametrize(("micro", "accumulated"), [(4, 1), (1, 4), (3, 2)])
def test_a_trainer_made_before_for_a_class_without_further_arguments(
    micro: int, accumulated: int, model: Any, tmp_path: Path
) -> None:
    given, own = batch(), NoMore(model.config)
    own.load_state_dict(model.state_dict())
    expected = cross_entropy(model(given["input_ids"]).logits, given["labels"])
    trainer = Trainer(own.train(), arguments(tmp_path, micro, accumulated), train_dataset=data())
    emobench.attach(own, "mle")
    assert logged(trainer) == pytest.approx(expected, rel=1e-4)


def test_a_backward_pass_of_a_model_in_eval_mode_is_refused(model: Any) -> None:
    """from_pretrained returns models in eval mode: a loop that forgets train() would train the model's own loss."""
    attached = emobench.attach(model.eval(), "emo")
    loss = model(**batch()).loss
    assert loss.item() == pytest.approx(cross_entropy(model(batch()["input_ids"]).logits, batch()["labels"]), rel=1e-5)
    with pytest.raises(ModelError, match=r"train\(\)"):
        loss.backward()
    attached.detach()
    model(**batch()).loss.backward()


@pytest.mark.parametrize("copied", [copy.deepcopy, AveragedModel])
def test_a_copy_computes_with_its_own_weights(copied: Callable[[Any], Any], model: Any) -> None:
    emobench.attach(model, "emo")
    other = copied(model).eval()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
        assert other(batch()["input_ids"]).logits.abs().max() == 0
        assert other(**batch()).loss.item() == pytest.approx(torch.log(torch.tensor(61.0)).item(), rel=1e-5)
    with pytest.raises(ModelError, match="LlamaForCausalLM"):
        other.train()(**batch())


@pytest.mark.parametrize("name", ["mle", "emo"])
def test_a_compiled_model_has_the_gradients_of_the_other_one(name: str, model: Any) -> None:
    plain = copy.deepcopy(model)
    emobench.attach(plain, name)
    plain(**batch()).loss.backward()
    emobench.attach(model, name)
    torch.compile(model, backend="eager")(**batch()).loss.backward()
    for expected, found in zip(plain.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad)


def test_labels_that_are_left_out_by_another_number_are_refused(model: Any) -> None:
    emobench.attach(model, "mle")
    expected = model(**batch()).loss.item()
    assert model(**batch(), ignore_index=-100).loss.item() == expected
    with pytest.raises(ModelError, match="`ignore_index` is 0"):
        model(**batch(), ignore_index=0)


@pytest.mark.parametrize("change", [Tensor.float, Tensor.flatten, lambda labels_BT: labels_BT[:, 1:]])
def test_labels_of_another_type_or_shape_are_a_sentence(change: Callable[[Tensor], Tensor], model: Any) -> None:
    given = batch()
    labels = change(given["labels"])
    loss = emobench.objective("mle", model=model)
    with pytest.raises(ConfigError, match="labels"):
        loss(model(given["input_ids"]).logits, labels)
    with pytest.raises(ConfigError, match="labels"):
        loss.linear(model.model(given["input_ids"])[0], model.lm_head.weight, labels)
    emobench.attach(model, "mle")
    with pytest.raises(ConfigError, match="labels"):
        model(input_ids=given["input_ids"], labels=labels)


@pytest.mark.parametrize("items", [0, 0.0, torch.tensor(0), torch.tensor(0.0)])
def test_a_step_without_targets_has_a_loss_of_0(items: Any, model: Any) -> None:
    ids_BT = batch()["input_ids"]
    labels_BT = torch.full_like(ids_BT, -100)
    loss = emobench.objective("emo", model=model)
    assert loss(model(ids_BT).logits, labels_BT, num_items_in_batch=items).item() == 0
    hidden_BTD = model.model(ids_BT)[0]
    assert loss.linear(hidden_BTD, model.lm_head.weight, labels_BT, num_items_in_batch=items).item() == 0
    emobench.attach(model, "emo")
    value = model(input_ids=ids_BT, labels=labels_BT, num_items_in_batch=items).loss
    assert value.item() == 0
    value.backward()
    assert all(p.grad is None or not p.grad.abs().sum() for p in model.parameters())


def test_adapters_that_transformers_adds_are_trained(model: Any) -> None:
    from peft import LoraConfig

    model.add_adapter(LoraConfig(r=2, target_modules=["q_proj"]))
    given = batch()
    expected = cross_entropy(model(given["input_ids"]).logits, given["labels"])
    emobench.attach(model.train(), "mle")
    assert model(**given).loss.item() == pytest.approx(expected, rel=1e-5)


def test_a_head_that_peft_trains_already_is_the_head(model: Any) -> None:
    from peft import LoraConfig

    wrapped = adapted(model, LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["lm_head"]))
    trained = wrapped.get_base_model().lm_head.modules_to_save["default"]
    given = batch()
    expected = cross_entropy(wrapped(given["input_ids"]).logits, given["labels"])
    loss = emobench.objective("mle", model=wrapped)
    hidden_BTD = wrapped.get_base_model().model(given["input_ids"])[0]
    assert loss.linear(hidden_BTD, trained.weight, given["labels"]).item() == pytest.approx(expected, rel=1e-5)
    attached = emobench.attach(wrapped, "mle")
    found = wrapped(**given).loss
    assert found.item() == pytest.approx(expected, rel=1e-5)
    found.backward()
    assert trained.weight.grad.abs().sum() > 0
    attached.detach()
    assert wrapped(**given).loss.item() == pytest.approx(expected, rel=1e-5)
