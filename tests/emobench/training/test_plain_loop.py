"""The trainer and the plain loop of the docs: the same losses, gradients, validation and weights."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from emobench.data.packing import RowCollator, pack_blocks
from emobench.registry import load_objective
from emobench.training.train import train

LOOP = runpy.run_path(str(Path(__file__).parents[3] / "docs" / "plain_loop.py"))
LENGTH = 8


def rows_of(blocks_BT: torch.Tensor) -> list[dict[str, Any]]:
    return [{"input_ids": ids, "labels": ids, "row": row} for row, ids in enumerate(blocks_BT.numpy().astype(np.int32))]


@pytest.mark.parametrize("name", LOOP["OBJECTIVES"])
def test_the_trainer_computes_what_the_plain_loop_computes(kit: SimpleNamespace, tmp_path: Path, name: str) -> None:
    """3 epochs of 3 batches, of 3 micro-batches in the trainer and of one in the loop; the best epoch is kept."""
    generator = torch.Generator().manual_seed(0)
    blocks_BT = torch.randint(3, kit.vocabulary, (26, LENGTH), generator=generator)
    train_BT, validation_BT = blocks_BT[:18], blocks_BT[18:]
    seen: list[torch.Tensor] = []

    def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        batch = RowCollator(0)(rows)
        seen.append(batch["input_ids"])
        return batch

    objective = load_objective(name).objective
    job = kit.job(
        tmp_path,
        model=kit.tiny("llama"),
        objective=objective,
        train=rows_of(train_BT),
        validation=rows_of(validation_BT),
        collate=collate,
        recipe={"epochs": 3, "batch": 6, "accumulation": 3},
    )
    train(job)
    log = kit.log_of(tmp_path)

    micro_batches = iter([ids_BT for ids_BT in seen if (ids_BT[0] == train_BT).all(1).any()])
    epochs = [[torch.cat([next(micro_batches) for _ in range(3)]) for _ in range(3)] for _ in range(3)]
    model = kit.tiny("llama")
    expected = LOOP["train"](model, epochs, validation_BT, LOOP["OBJECTIVES"][name], rate=job.recipe.learning_rate)
    for key in ("loss", "grad_norm", "eval_mle"):
        values = [line[key] for line in log if key in line]
        assert values == pytest.approx([line[key] for line in expected if key in line], rel=1e-6), key
    kept = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float64)
    assert kit.difference(kit.weights(kept), kit.weights(model)) < 1e-5


def test_its_blocks_are_those_of_the_harness(kit: SimpleNamespace) -> None:
    texts = [" ".join(f"w{(3 * row + word) % 50 + 3}" for word in range(row % 7)) for row in range(1500)]
    packed = pack_blocks(texts, kit.tokenizer(), length=LENGTH)
    assert torch.equal(LOOP["blocks"](texts, kit.tokenizer(), LENGTH), torch.from_numpy(packed.tokens).view(-1, LENGTH))
