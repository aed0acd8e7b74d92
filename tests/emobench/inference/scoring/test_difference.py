"""An engine is refused for its hidden states: by more than rounding, whatever it does instead."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from emobench.inference.scoring import engines

sys.path.insert(0, str(Path(__file__).parent))  # the package of tests has no __init__.py

from tiny_models import random_prompts, tiny_model

READ_TRIE = engines.read_trie


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str | None]:
    """Return why a changed `trie` is refused; `rounding` is the difference that another kernel makes."""
    model = tiny_model("llama")

    def compare(change: Callable[[torch.Tensor], torch.Tensor], rounding: float = 0.0) -> str | None:
        def read(*args: Any, **named: Any) -> Any:
            done = READ_TRIE(*args, **named)
            return done._replace(hidden_ND=change(done.hidden_ND))

        monkeypatch.setattr(engines, "read_trie", read)
        monkeypatch.setattr(engines, "_rounding", lambda *_: rounding)
        with torch.no_grad():
            return engines.difference_from_plain(model, random_prompts(1), [0], 0, torch.device("cpu"), True)

    return compare


def one_wrong(hidden_ND: torch.Tensor) -> torch.Tensor:
    wrong_ND = hidden_ND.clone()
    wrong_ND[-1] *= 1.001
    return wrong_ND


def test_rounding_is_allowed_and_one_wrong_position_is_not(refused: Any) -> None:
    assert refused(lambda hidden_ND: hidden_ND * (1 + 1e-5)) is None
    assert "differ by 1.0e-03" in refused(one_wrong)
    assert "differ by nan" in refused(lambda hidden_ND: hidden_ND * float("nan"))


def test_half_precision_allows_what_another_kernel_does(refused: Any) -> None:
    assert refused(lambda hidden_ND: hidden_ND * 1.01, rounding=0.004) is None
    assert "allowed 2e-02" in refused(lambda hidden_ND: hidden_ND * 1.03, rounding=0.004)
    assert "allowed 1e-01" in refused(lambda hidden_ND: hidden_ND * 1.2, rounding=1.0)


@pytest.mark.parametrize("error", [KeyError("mask"), ValueError("no such\nargument"), torch.OutOfMemoryError("full")])
def test_a_model_may_refuse_in_any_way_but_memory_is_no_refusal(refused: Any, error: Exception) -> None:
    def fail(hidden_ND: torch.Tensor) -> torch.Tensor:
        raise error

    if isinstance(error, torch.OutOfMemoryError):
        with pytest.raises(torch.OutOfMemoryError):
            refused(fail)
    else:
        assert type(error).__name__ in refused(fail)
