"""What an objective gets at setup: the pre-trained head, or a sentence about where to take one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from emobench.core.errors import ConfigError, ModelError
from emobench.models.head import probe_head
from emobench.training.context import TrainingContext
from emobench.training.train import train
from emobench_objectives.emo import Emo


def context_of(model: Any, **values: Any) -> TrainingContext:
    values = {"total_steps": 3, "pretrained": True, "load_head": refuse} | values
    return TrainingContext(probe_head(model), **values)


def refuse(name: str) -> Tensor:
    raise ModelError(f"There is no model '{name}'.")


def unit(weight_VD: Tensor) -> Tensor:
    return weight_VD.detach() / weight_VD.detach().norm(dim=1, keepdim=True)


def test_from_scratch_there_is_no_pretrained_head(kit: SimpleNamespace) -> None:
    context = context_of(kit.tiny(), pretrained=False)
    for ask in (context.head_weight, context.cost_embedding, lambda: Emo().setup(context)):
        with pytest.raises(ConfigError, match=r"this model starts from scratch; .*'emo\(cost=gpt2\)'.*cost=initial"):
            ask()
    head = context.head.linear.weight
    torch.testing.assert_close(context.cost_embedding("initial").rows_VE, unit(head), rtol=0, atol=1e-15)


def test_the_head_of_another_model(kit: SimpleNamespace) -> None:
    other = torch.randn(kit.vocabulary, 5, generator=torch.Generator().manual_seed(0))  # of another width
    asked: list[str] = []

    def load(name: str) -> Tensor:
        asked.append(name)
        return other

    context = context_of(kit.tiny(), pretrained=False, load_head=load)
    objective = Emo(cost="models/gpt2")
    objective.setup(context)
    assert asked == ["models/gpt2"]
    torch.testing.assert_close(objective.frozen_state()["cost_embedding"], unit(other))


def test_a_head_of_another_vocabulary_is_refused(kit: SimpleNamespace) -> None:
    context = context_of(kit.tiny(), load_head=lambda name: torch.ones(kit.vocabulary + 1, 4))
    with pytest.raises(ConfigError, match=r"cost=opt: its head has 62 rows; expected 61, .*the same tokenizer"):
        context.cost_embedding("opt")


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_what_the_context_gave_does_not_change_while_the_model_trains(kit: SimpleNamespace, kind: str) -> None:
    model = kit.tiny(kind)
    context = context_of(model)
    head, costs = context.head_weight(), context.cost_embedding().rows_VE
    expected = model.get_output_embeddings().weight.detach().clone()
    with torch.no_grad():
        model.get_output_embeddings().weight += 1
    assert torch.equal(head, expected)
    torch.testing.assert_close(costs, unit(expected), rtol=0, atol=1e-15)
    assert not head.requires_grad
    assert context.vocabulary == kit.vocabulary


def test_training_from_scratch_with_emo(kit: SimpleNamespace, tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="starts from scratch"):
        train(kit.job(tmp_path / "refused", objective=Emo(), pretrained=False))
    assert not (tmp_path / "refused").exists()
    job = kit.job(tmp_path / "initial", objective=Emo(cost="initial"), pretrained=False)
    initial = job.model.get_output_embeddings().weight.detach().clone()
    train(job)
    torch.testing.assert_close(job.objective.frozen_state()["cost_embedding"], unit(initial), rtol=0, atol=1e-15)
    trained = load_file(tmp_path / "initial/model/model.safetensors")["transformer.wte.weight"]
    assert (trained - initial).abs().max().item() > 1e-3
