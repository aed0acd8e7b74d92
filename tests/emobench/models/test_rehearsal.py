"""Models on the meta device: what cannot be trained or sampled is refused before its weights are read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from emobench.core.errors import ModelError
from emobench.models.suitability import require_generation, why_untrainable

SIZES: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GPT: dict[str, Any] = {"vocab_size": 61, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
EXPERTS: dict[str, Any] = SIZES | {"num_local_experts": 4, "num_experts_per_tok": 2}
OPT: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 24,
    "max_position_embeddings": 32, "word_embed_proj_dim": 8,
}  # fmt: skip
LLAMA4: dict[str, Any] = SIZES | {"head_dim": 8, "num_local_experts": 2, "intermediate_size_mlp": 24}
MINICPM3: dict[str, Any] = SIZES | {
    "num_key_value_heads": 2, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4,
    "v_head_dim": 8,
}  # fmt: skip
XLSTM: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 16, "embedding_dim": 16, "num_heads": 2, "num_blocks": 2, "num_hidden_layers": 2,
    "chunk_size": 4, "ffn_round_up_to_multiple_of": 8, "mlstm_round_up_to_multiple_of": 8,
    "chunkwise_kernel": "chunkwise--native_autograd", "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def skeleton(kind: str, settings: dict[str, Any]) -> Any:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings))


USABLE = {
    "gpt2": GPT, "ctrl": GPT | {"dff": 24}, "opt": OPT, "llama": SIZES, "phi": SIZES, "gemma2": SIZES | {"head_dim": 8},
    "bloom": {"vocab_size": 61, "hidden_size": 16, "n_layer": 2, "n_head": 2}, "mixtral": EXPERTS, "minicpm3": MINICPM3,
    "llama4_text": LLAMA4, "bert-generation": SIZES | {"is_decoder": True},
}  # fmt: skip


@pytest.mark.parametrize("kind", USABLE)
def test_what_can_be_used_is_not_refused(kind: str) -> None:
    model = skeleton(kind, USABLE[kind])
    assert why_untrainable(model) is None
    require_generation(kind, model)
    assert model.training  # as it was
    assert not any(module._forward_hooks for module in model.modules())


def test_layers_between_the_base_model_and_the_head_are_told() -> None:
    refusal = why_untrainable(skeleton("bert", SIZES | {"is_decoder": True}))
    assert refusal is not None
    assert "BertLMHeadModel" in refusal
    assert "Linear, LayerNorm" in refusal


def test_a_cache_that_does_not_fit_the_class_is_told() -> None:
    model = skeleton("xlstm", XLSTM)
    with pytest.raises(ModelError, match="xLSTMForCausalLM"):
        require_generation("mine", model)
    require_generation("mine", skeleton("xlstm", XLSTM | {"hidden_size": 128, "embedding_dim": 128}))


def test_a_training_with_an_auxiliary_loss_is_refused_in_the_plan(
    small_model: Path, small_data: Path, tmp_path: Path, command: Callable[..., Any]
) -> None:
    folder = tmp_path / "experts"
    shutil.copytree(small_model, folder)
    rows = AutoConfig.from_pretrained(small_model).vocab_size
    settings = EXPERTS | {"vocab_size": rows, "max_position_embeddings": 64, "output_router_logits": True}
    AutoModelForCausalLM.from_config(AutoConfig.for_model("mixtral", **settings)).save_pretrained(folder)
    places = ("--runs", tmp_path / "runs", "--data-dir", small_data)
    done = command("train", "--objective", "mle", "--model", folder, *places, "--offline", "--dry-run")
    done.refused("MixtralForCausalLM", "output_router_logits")
