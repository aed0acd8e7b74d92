"""A training that runs out of memory goes on with smaller micro-batches: the same batch, and the same weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import RunError
from emobench.models.catalog import ModelSource
from emobench.models.folder import identity
from emobench.runs.execution.reporter import Silent
from emobench.runs.planning.plan import make_plan
from emobench.runs.planning.request import Request
from emobench.runs.run import train_plan

ROWS, LENGTH = 8, 32
OBJECTIVE = """
import emobench
import torch

class Tight(emobench.StatisticsObjective):
    name = "tight"
    version = "1"
    room: int = emobench.param(0, low=0, help="rows of a micro-batch that fit, as of a device; 0: all")

    def loss(self, s):
        if self.room and len(s.log_prob) > self.room * {length}:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return -s.log_prob
"""
Train = Callable[..., tuple[Path, list[str]]]


class Notes(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def trained(small_model: Path, small_data: Path, tmp_path: Path) -> Train:
    """What trains with room for some rows, and returns the folder of the training and what was said."""
    file = tmp_path / "tight.py"
    file.write_text(OBJECTIVE.format(length=LENGTH))

    def train(room: int, **recipe: Any) -> tuple[Path, list[str]]:
        values = {"batch": ROWS, "max_length": LENGTH, "max_tokens": 900, "epochs": 1, "corpus": "wikitext2", **recipe}
        request = Request(
            recipe="lm-finetune",
            objectives=(f"{file}:Tight(room={room})",),
            model=str(small_model),
            seeds=(0,),
            data_dirs=(small_data,),
            offline=True,
            runs=tmp_path / "runs",
            settings={"recipe": values},
        )
        notes = Notes()
        ((_, model),) = train_plan(make_plan(request), notes)
        return model.parent, notes.said

    return train


def weights(folder: Path) -> Any:
    return identity(ModelSource("m", str(folder / "model"), None, "local"))


def test_smaller_micro_batches_give_the_same_weights(trained: Train) -> None:
    """With room for 3 of 8 rows, 4 are too many and 2 fit; 28 rows leave 4 for the last step."""
    tight, said = trained(3)
    assert [line for line in said if "out of memory" in line] == [
        "  out of memory with 8 rows at once: 4 rows, 2 times a step, are the same batch",
        "  out of memory with 4 rows at once: 2 rows, 4 times a step, are the same batch",
    ]
    asked, _ = trained(0, accumulation=4)
    assert weights(tight) == weights(asked)
    found, expected = (json.loads((folder / "training.json").read_text()) for folder in (tight, asked))
    assert found["accumulation"] == 4
    assert "accumulation" not in expected
    assert all(found[name] == expected[name] for name in ("tokens", "steps", "validation_mle"))


def test_a_row_that_does_not_fit_is_an_error(trained: Train) -> None:
    with pytest.raises(RunError, match=r"not enough memory for one row of 48 tokens \(CUDA out of memory.\)"):
        trained(1, batch=1, max_length=48, max_tokens=96)
