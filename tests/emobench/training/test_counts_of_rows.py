"""Two processes train EMO on any count of rows as one process does, with a vocabulary of a real model's kind.

The last batch of an epoch then has any number of rows, 0 of them in the second process for some counts.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emobench.training.train import train
from emobench_objectives.emo import Emo

VOCABULARY, BATCH = 8192, 8
COUNTS = range(16, 41)
RECIPE = {"batch": BATCH, "select": "last"}

CHILD = """
import os, runpy, sys
from pathlib import Path
kit = runpy.run_path(sys.argv[1])["KIT"]
runpy.run_path(sys.argv[2])["train_all"](kit, Path(sys.argv[3]))
"""


def train_all(kit: Any, folder: Path) -> None:
    """Train on each count of rows, from the same weights."""
    for count in COUNTS:
        model = kit.tiny(vocab_size=VOCABULARY, n_embd=8, n_layer=1)
        rows = {"train": kit.ragged(count), "validation": kit.ragged(2, seed=1)}
        tokenizer = kit.tokenizer(VOCABULARY)
        train(kit.job(folder / str(count), model=model, tokenizer=tokenizer, objective=Emo(), recipe=RECIPE, **rows))


def losses_of(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


@pytest.mark.slow
def test_two_processes_train_on_any_count_of_rows_as_one_does(kit: SimpleNamespace, tmp_path: Path) -> None:
    kit.in_two_processes("-c", CHILD, kit.path, __file__, tmp_path / "two")
    train_all(kit, tmp_path / "one")
    for count in COUNTS:
        one, two = (tmp_path / name / str(count) for name in ("one", "two"))
        losses = losses_of(one)
        assert len(losses) == -(-count // BATCH)
        assert losses_of(two) == pytest.approx(losses, rel=1e-9), count
        assert kit.difference(kit.saved(two), kit.saved(one)) < 1e-6, count
