"""What a training writes is what it trained: adapters are merged in float32, and every export is compared."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from emobench.core.errors import RunError
from emobench.training.recipe import Lora
from emobench.training.train import train

ADAPTERS = Lora(rank=4, dropout=0.0)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_adapters_of_a_half_precision_model_are_merged_in_float32(
    kit: SimpleNamespace, tmp_path: Path, kind: str
) -> None:
    """What they add to a weight has their rank; rounding to half precision would give it all ranks."""
    model = kit.tiny(kind, dtype=torch.bfloat16, vocab_size=61)
    base = kit.weights(model)
    recipe = {"lora": ADAPTERS, "weight_dtype": "bfloat16", "precision": "bfloat16", "learning_rate": 1e-3}
    train(kit.job(tmp_path, model=model, recipe=recipe))
    saved = kit.saved(tmp_path)
    adapted = [name for name in saved if name in base and not torch.equal(saved[name], base[name].float())]
    assert adapted
    assert {weight.dtype for weight in saved.values()} == {torch.float32}
    for name in adapted:
        added = saved[name].double() - base[name].double()
        sizes = torch.linalg.svdvals(added)
        assert sizes[4] < 1e-3 * sizes[0], name
        assert float((added != 0).double().mean()) > 0.95


def rounded(model: Any) -> None:
    for weight in model.parameters():
        weight.data = weight.data.bfloat16().to(weight.dtype)


def one_weight(model: Any) -> None:
    weight = next(model.parameters())
    weight.data[0, 0] = torch.nextafter(weight.data[0, 0], torch.tensor(9.0, dtype=weight.dtype))


@pytest.mark.parametrize("loss", [rounded, one_weight])
def test_one_process_compares_what_it_wrote(kit: SimpleNamespace, tmp_path: Path, loss: Any) -> None:
    job = kit.job(tmp_path, model=kit.tiny(dtype=torch.float32), recipe={"max_length": 16})
    save = job.model.save_pretrained

    def save_another(folder: Path, **values: Any) -> None:
        if Path(folder).name != "model":  # a checkpoint
            return save(folder, **values)
        before = kit.weights(job.model)
        loss(job.model)
        save(folder, **values)
        job.model.load_state_dict(before, strict=False)
        return None

    job.model.save_pretrained = save_another
    with pytest.raises(RunError, match="does not hold the model that was trained"):
        train(job)
    assert list((tmp_path / "checkpoints").iterdir())


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_a_merge_that_loses_the_adapters_is_found(kit: SimpleNamespace, tmp_path: Path) -> None:
    """All that was merged is written, bit by bit, and is not what was trained."""
    job = kit.job(tmp_path, model=kit.tiny("llama", dtype=torch.float32), recipe={"lora": ADAPTERS})
    base, save = kit.weights(job.model), job.model.save_pretrained

    def save_without(folder: Path, **values: Any) -> None:
        job.model.load_state_dict(base)
        save(folder, **values)

    job.model.save_pretrained = save_without
    with pytest.raises(RunError, match="its MLE on validation rows"):
        train(job)
