"""Liger's kernels in a training. What they compute is tested on a GPU, in `test_on_a_gpu.py`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers.models.llama import modeling_llama

from emobench.core.errors import ConfigError
from emobench.training import recipe
from emobench.training.model_changes import liger_body, require_liger

OTHERS = {"rms_norm": False, "swiglu": False}
"""What Triton's interpreter cannot run."""


@pytest.mark.parametrize(
    ("kind", "device", "installed", "message"),
    [
        ("llama", "cpu", True, "which needs a CUDA device, and --device is cpu; drop it"),
        ("llama", "cuda", False, "liger-kernel is not installed: pip install liger-kernel"),
        ("gpt2", "cuda:1", True, "has no kernels for models of type gpt2; drop it"),
    ],
)
def test_what_it_cannot_do_is_refused(
    kind: str, device: str, installed: bool, message: str, kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not installed:
        monkeypatch.setattr(recipe, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=message):
        require_liger(kit.tiny(kind), device)


def test_a_model_computes_by_it_and_transformers_is_as_before(kit: SimpleNamespace) -> None:
    model, ids_BT = kit.tiny("llama", dtype=torch.float32), torch.arange(12).view(2, 6)
    expected = model(input_ids=ids_BT).logits
    before = {owner: dict(vars(owner)) for owner in (modeling_llama, modeling_llama.LlamaAttention)}
    with liger_body(model, **OTHERS):
        assert modeling_llama.apply_rotary_pos_emb.__module__.startswith("liger_kernel")
        torch.testing.assert_close(model(input_ids=ids_BT).logits, expected)
    assert all(dict(vars(owner)) == values for owner, values in before.items())


def test_its_layers_are_for_the_trained_model_alone(kit: SimpleNamespace) -> None:
    """A teacher that is loaded during the training gets the usual ones."""
    model = kit.tiny("llama")
    with liger_body(model):
        other = kit.tiny("llama")
    forwards: list[Any] = [one.model.layers[0].mlp.forward for one in (model, other)]
    assert [forward.__module__.split(".")[0] for forward in forwards] == ["liger_kernel", "transformers"]


def test_an_error_puts_all_back(kit: SimpleNamespace) -> None:
    rope = modeling_llama.apply_rotary_pos_emb

    def fails() -> None:
        with liger_body(kit.tiny("llama")):
            assert modeling_llama.apply_rotary_pos_emb is not rope
            raise RuntimeError("stops here")

    with pytest.raises(RuntimeError, match="stops here"):
        fails()
    assert modeling_llama.apply_rotary_pos_emb is rope
