"""Trainings on a CUDA device: half precision in the body and the loss, and the weights of a CPU."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from emobench.training.memory import limit_memory
from emobench.training.train import train
from emobench_objectives.emo import Emo

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

SETTINGS = {
    "float32": {"precision": "float32"},
    "bfloat16": {"precision": "bfloat16", "accumulation": 2},
    "float16, adapters": {"precision": "float16", "lora": True, "clip": 1.0},
    "bfloat16, compiled": {"precision": "bfloat16", "compile": True},
    "float32, liger": {"precision": "float32", "liger": True},
    "bfloat16, liger, adapters": {"precision": "bfloat16", "liger": True, "lora": True},
}


def log_of(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line["mle"] for line in lines if "loss" in line] + [
        line["eval_mle"] for line in lines if "eval_mle" in line
    ]


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("settings", SETTINGS)
def test_the_losses_are_those_of_a_cpu(kit: SimpleNamespace, tmp_path: Path, kind: str, settings: str) -> None:
    recipe = {"epochs": 2, "learning_rate": 1e-3, **SETTINGS[settings]}
    if "liger" in recipe and kind == "gpt2":
        pytest.skip("Liger has no kernels for GPT-2")
    seen = set()
    for device in ("cpu", "cuda"):
        model = kit.tiny(kind, dtype=torch.float32).to(device)
        layer = next(m for name, m in model.named_modules() if name.endswith(("mlp.c_proj", "mlp.down_proj")))
        if device == "cpu":
            on_cpu = {**recipe, "precision": "float32", "compile": False, "liger": False}
            train(kit.job(tmp_path / device, model=model, objective=Emo(), recipe=on_cpu))
            continue
        if "compile" not in recipe:
            layer.register_forward_hook(lambda module, given, out: seen.add(out.dtype) if module.training else None)
        before = torch.get_float32_matmul_precision()
        train(kit.job(tmp_path / device, model=model, objective=Emo(), device=device, recipe=recipe))
        assert torch.get_float32_matmul_precision() == before
    if "compile" not in recipe:
        assert seen == {getattr(torch, str(recipe["precision"]))}
    limit = 1e-4 if recipe["precision"] == "float32" else 0.02
    assert log_of(tmp_path / "cuda") == pytest.approx(log_of(tmp_path / "cpu"), rel=limit)


def test_the_memory_is_limited() -> None:
    try:
        limit_memory("cuda", 1 << 30)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
