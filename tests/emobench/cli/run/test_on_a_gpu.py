"""`emobench run` on a CUDA device, from a command to an entry, against the same command on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

SHORT = (
    *("--suite", "lm-quick", "--limit", "24", "--offline", "--quiet", "--set", "mauve.seeds=[0,1]", "--seed", "0"),
    *("--set", "generation.max_length=32", "--set", "generation.prefix=4", "--set", "generation.continuation=20"),
    *("--set", "generation.sampling.samples=2", "--set", "recipe.max_length=32", "--set", "recipe.epochs=1"),
)
CASES = {
    "plain": (),
    "adapters": ("--set", "recipe.lora=true", "--set", "recipe.accumulation=2"),
    "limited": ("--max-memory", "8GB"),
    "compiled": ("--set", "recipe.compile=true"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_gives_the_numbers_of_a_cpu(
    command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path: Path, case: str
) -> None:
    for package in ("mauve", "rouge_score"):
        pytest.importorskip(package)
    given = ("--model", small_model, "--data-dir", small_data, *SHORT, "--objective", "mle", "--objective", "emo")
    found = {}
    for device in ("cpu", "auto"):
        there = ("--device", device, "--runs", tmp_path / device, "--leaderboard", tmp_path / f"board-{device}")
        extra = () if device == "cpu" and case in ("limited", "compiled") else CASES[case]
        found[device] = command("run", *given, *there, *extra, "--json").ok().json["entries"]
    for own, other in zip(found["auto"], found["cpu"], strict=True):
        assert own["missing"] == {}
        assert set(own["metrics"]) == set(other["metrics"])
        ppl, expected = (entry["metrics"]["lm-quick/ppl_test"]["values"] for entry in (own, other))
        assert ppl == pytest.approx(expected, rel=0.02)
        assert torch.cuda.get_device_name() in str(own)
