"""How an engine is found to be wrong: by its hidden states, by more than rounding, whatever it does instead."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from emobench.inference.scoring import probe
from emobench.inference.scoring.engines import ENGINES, Batch, Engine, Pass, ScoredTokens

sys.path.insert(0, str(Path(__file__).parent))  # the package of tests has no __init__.py

from tiny_models import VOCABULARY, tiny_model

CPU = torch.device("cpu")
PLAIN = ENGINES["plain"]


@pytest.fixture(scope="module")
def llama() -> Any:
    return tiny_model("llama")


def engine(change: Callable[[torch.Tensor], torch.Tensor]) -> Engine:
    """Return an engine that gives the hidden states of `plain`, changed."""

    def run(model: Any, batch: Batch, scored: ScoredTokens, device: torch.device) -> Pass:
        done = PLAIN.run(model, batch, scored, device)
        return done._replace(hidden_ND=change(done.hidden_ND))

    return PLAIN._replace(run=run)


def refused(model: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> str | None:
    with torch.no_grad():
        return probe.refusal(engine(change), model, probe.made_prompts(VOCABULARY), CPU)


def one_wrong(hidden_ND: torch.Tensor) -> torch.Tensor:
    wrong_ND = hidden_ND.clone()
    wrong_ND[-1] *= 1.001
    return wrong_ND


def test_rounding_is_allowed_and_one_wrong_position_is_not(llama: Any) -> None:
    assert refused(llama, lambda hidden_ND: hidden_ND) is None
    assert refused(llama, lambda hidden_ND: hidden_ND * (1 + 1e-5)) is None
    assert "differ by 1.0e-03 of their size, allowed 1e-04" in str(refused(llama, one_wrong))
    assert "differ by nan" in str(refused(llama, lambda hidden_ND: hidden_ND * float("nan")))


def test_half_precision_allows_what_another_kernel_does(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "allowed 1e-04" in str(refused(llama, lambda hidden_ND: hidden_ND * 1.01))
    monkeypatch.setattr(probe, "_otherwise", lambda *_: PLAIN.run(*_).hidden_ND * 1.004)  # as on a GPU, in many layers
    assert refused(llama, lambda hidden_ND: hidden_ND * 1.01) is None
    assert "allowed 2e-02" in str(refused(llama, lambda hidden_ND: hidden_ND * 1.03))
    monkeypatch.setattr(probe, "_otherwise", lambda *_: PLAIN.run(*_).hidden_ND * 2)
    assert "allowed 1e-01" in str(refused(llama, lambda hidden_ND: hidden_ND * 1.2))


def test_a_model_may_refuse_in_any_way_but_memory_is_no_refusal(llama: Any) -> None:
    def failing(error: Exception) -> Callable[[torch.Tensor], torch.Tensor]:
        def fail(hidden_ND: torch.Tensor) -> torch.Tensor:
            raise error

        return fail

    assert refused(llama, failing(KeyError("mask\nand more"))) == "KeyError: 'mask\\nand more'"
    assert refused(llama, failing(ValueError("no such\nargument"))) == "ValueError: no such"
    with pytest.raises(torch.OutOfMemoryError):
        refused(llama, failing(torch.OutOfMemoryError("full")))
