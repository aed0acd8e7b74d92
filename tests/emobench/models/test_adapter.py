"""Adapters of peft are models: with their base, merged in float32, both by content."""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

from emobench.core.errors import ModelError, UserError
from emobench.models.model import Model

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
CONFIGS = {
    "lora": peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM"),
    "dora": peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, use_dora=True),
    "head": peft.LoraConfig(r=2, target_modules=["c_fc"], fan_in_fan_out=True, modules_to_save=["ln_f"]),
    "ia3": peft.IA3Config(target_modules=["c_attn"], feedforward_modules=[], fan_in_fan_out=True),
}


def _save(base: Path, folder: Path, config: Any) -> Path:
    """Save an adapter that changes what its base computes."""
    torch.manual_seed(0)
    with warnings.catch_warnings(action="ignore"):
        made: Any = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    with torch.no_grad():
        for weight in made.parameters():
            if weight.requires_grad:
                weight += 0.1 * torch.randn_like(weight)
    made.save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EMOBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def adapter(small_model: Path, tmp_path: Path) -> Path:
    return _save(small_model, tmp_path / "adapter", CONFIGS["lora"])


@pytest.mark.parametrize("name", CONFIGS)
def test_an_adapter_computes_what_peft_merges(name: str, small_model: Path, tmp_path: Path) -> None:
    folder = _save(small_model, tmp_path / name, CONFIGS[name])
    ours = Model(str(folder))
    base: Any = AutoModelForCausalLM.from_pretrained(small_model, dtype=torch.float32)
    expected = peft.PeftModel.from_pretrained(base, folder).eval()
    ids = torch.tensor([[2, 3, 4, 5]])
    with torch.no_grad():
        torch.testing.assert_close(ours.model(ids).logits, expected(ids).logits, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(ours.model(ids).logits, Model(str(small_model)).model(ids).logits, atol=1e-3)
    assert ours.name == name
    assert ours.tokenizer.get_vocab() == Model(str(small_model)).tokenizer.get_vocab()


def test_base_and_adapter_identify_it_by_content(adapter: Path, small_model: Path, tmp_path: Path) -> None:
    first = Model(str(adapter)).identity
    moved = shutil.copytree(small_model, tmp_path / "moved")
    assert Model(str(adapter), base=str(moved)).identity == first
    other = _save(small_model, tmp_path / "other", replace(CONFIGS["lora"], r=3))
    assert Model(str(other)).identity != first
    config = json.loads((moved / "generation_config.json").read_text())
    (moved / "generation_config.json").write_text(json.dumps({**config, "top_k": 7}))
    assert Model(str(adapter), base=str(moved)).identity != first


def test_a_damaged_copy_in_the_cache_is_not_used(adapter: Path, cache: Path) -> None:
    _ = Model(str(adapter)).facts
    (weights,) = cache.rglob("model.safetensors")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(ModelError, match="altered"):
        _ = Model(str(adapter)).facts


def _without_base(folder: Path) -> None:
    _configure(folder, base_model_name_or_path=None)


def _configure(folder: Path, **changes: Any) -> None:
    file = folder / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def _pickled(folder: Path) -> None:
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (_without_base, "--from"),
        (lambda folder: _configure(folder, base_model_name_or_path="/nowhere/base"), "/nowhere/base"),
        (lambda folder: _configure(folder, base_model_name_or_path="x" * 5000, revision="main"), "--from"),
        (lambda folder: _configure(folder, base_model_name_or_path="a\0b", revision="main"), "--from"),
        (lambda folder: _configure(folder, base_model_name_or_path=[1]), "--from"),
        (lambda folder: _configure(folder, peft_type="PROMPT_TUNING"), "PROMPT_TUNING"),
        (lambda folder: _configure(folder, r=5), "does not fit"),
        (lambda folder: _configure(folder, target_modules=["c_fc"]), "does not fit"),
        (lambda folder: (folder / "adapter_config.json").write_text("[" * 100_000), "adapter_config.json"),
        (_pickled, "safetensors"),
        (lambda folder: (folder / "adapter_model.safetensors").write_bytes(b"x" * 99), "does not fit"),
    ],
)
def test_an_adapter_that_cannot_be_merged_is_refused(change: Any, named: str, adapter: Path, cache: Path) -> None:
    change(adapter)
    with pytest.raises(UserError) as error:
        _ = Model(str(adapter)).facts
    assert named in str(error.value)
    assert "\n" not in str(error.value)
    assert not list(cache.rglob("*.safetensors"))


def test_a_base_of_other_tokens_or_shapes_and_an_adapter_as_base_are_refused(
    adapter: Path, small_model: Path, byte_model: Path, tmp_path: Path
) -> None:
    wide = shutil.copytree(small_model, tmp_path / "wide")
    config = GPT2Config.from_pretrained(small_model, n_embd=32)
    GPT2LMHeadModel(config).save_pretrained(wide)
    AutoTokenizer.from_pretrained(small_model).save_pretrained(adapter)
    for base in (byte_model, wide, adapter):
        with pytest.raises(ModelError):
            _ = Model(str(adapter), base=str(base)).facts
