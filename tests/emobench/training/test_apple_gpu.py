"""`--device mps`: a class of its own in keys, refusals, and trainings on a simulated GPU without float64."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from emobench.core.errors import ModelError
from emobench.models.device import LoadOptions, check_device, evaluating, is_here, resolve_device
from emobench.runs.stages.train import machine

OBJECTIVES = ("mle", "emo", "tailr", "0.5*emo + 0.5*mle")


def test_a_device_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_device("mps") == "mps"
    classes = {machine(LoadOptions(device=device))["device"] for device in ("cpu", "cuda:1", "mps")}
    assert classes == {"cpu", "cuda", "mps"}
    assert evaluating(LoadOptions(device="mps", dtype="float16")) == LoadOptions(device="cpu", dtype="float16")
    assert evaluating(LoadOptions(device="cuda")) == LoadOptions(device="cuda")
    for available in (True, False):
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda available=available: available)
        assert is_here("mps") is available


def test_a_machine_without_it(command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if not torch.backends.mps.is_available():
        with pytest.raises(ModelError, match="mps"):
            check_device("mps")
        command("run", "--device", "mps", "--objective", "mle").refused("mps")
    shown = command("run", "--device", "mps", "--objective", "mle", "--dry-run").ok()
    assert "--device mps trains in float32" in " ".join(shown.out.split())  # and where it evaluates
    assert "H100" not in shown.out
    command("run", "--device", "mps:1", "--objective", "mle").refused("mps:1")
    command("objectives", "bench", "mle", "--device", "mps").refused("mps")
    command("sample-corpus", "gpt2", "--out", "sampled", "--device", "mps").refused("mps")
    command("run", "--device", "mps", "--processes", 2).refused("mps", "--processes")


@pytest.mark.parametrize(
    ("setting", "option"),
    [
        ("recipe.precision=bfloat16", "float32"),
        ("recipe.precision=float16", "float32"),
        ("recipe.weight_dtype=bfloat16", "float32"),
        ("recipe.compile=true", "auto"),
        ("recipe.liger=true", "auto"),
        ("recipe.lora=true", "bfloat16"),
    ],
)
def test_what_it_cannot_do_is_refused(
    dry: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, setting: str, option: str
) -> None:
    monkeypatch.setattr("emobench.runs.planning.plan.is_here", lambda device: True)
    monkeypatch.setattr("emobench.runs.planning.plan.check_device", lambda device: None)
    dry("--device", "mps", "--set", setting, "--dtype", option).refused("mps")


@pytest.fixture
def dry(command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path: Path) -> Callable[..., Any]:
    """What plans a run of a small model."""
    given = ("--model", small_model, "--data-dir", small_data, "--runs", tmp_path / "runs", "--suite", "lm-quick")
    short = ("--set", "recipe.max_length=32", "--set", "generation.max_length=32", "--limit", 8)
    return lambda *more: command("run", "--objective", "mle", *given, *short, "--dry-run", *more)


def test_a_training_needs_no_float64_on_the_device() -> None:
    program = Path(__file__).with_name("simulated_gpu.py")
    done = subprocess.run([sys.executable, program, *OBJECTIVES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    for name, (cpu, gpu) in json.loads(done.stdout).items():
        assert (cpu.pop("device"), gpu.pop("device")) == ("cpu", "applegpu"), name
        assert gpu["loss"] == pytest.approx(cpu["loss"], rel=1e-6), name
        assert gpu["sums"] == pytest.approx(cpu["sums"], rel=1e-5), name
        assert gpu["gradients"] == pytest.approx(cpu["gradients"], rel=1e-4), name
        for on_gpu, on_cpu in zip(gpu["sequences"], cpu["sequences"], strict=True):
            assert on_gpu == pytest.approx(on_cpu, rel=1e-6), name
