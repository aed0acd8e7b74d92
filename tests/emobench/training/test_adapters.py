"""LoRA on architectures that peft has defaults for, and on others: checked without weights, with targets that fit."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from emobench.core.errors import ModelError
from emobench.training.model_changes import with_adapters
from emobench.training.recipe import Lora

SIZES = {
    "vocab_size": 420, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "num_key_value_heads": 2, "max_position_embeddings": 512,
}  # fmt: skip
LATENT = {
    "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8, "n_group": 2,
    "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "first_k_dense_replace": 1,
}  # fmt: skip
KNOWN = {
    "gpt2": hf.GPT2Config(vocab_size=420, n_embd=16, n_layer=2, n_head=2),
    "llama": hf.LlamaConfig(**SIZES),
    "phi": hf.PhiConfig(**SIZES),
}
UNKNOWN = {
    "deepseek-v3": hf.DeepseekV3Config(**SIZES, n_routed_experts=4, **LATENT),
    "glm": hf.GlmConfig(**SIZES, head_dim=8, pad_token_id=0),
    "gpt-oss": hf.GptOssConfig(**SIZES, head_dim=8, num_local_experts=4),
    "jamba": hf.JambaConfig(**SIZES, attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, num_experts=2),
    "lfm2": hf.Lfm2Config(**SIZES, layer_types=["conv", "full_attention"], block_ff_dim=32, block_multiple_of=16),
    "mamba": hf.MambaConfig(vocab_size=420, hidden_size=16, num_hidden_layers=2, state_size=4),
    "mixtral": hf.MixtralConfig(**SIZES, num_local_experts=4),
    "olmoe": hf.OlmoeConfig(**SIZES, num_experts=4, num_experts_per_tok=2),
    "phi3": hf.Phi3Config(**SIZES, pad_token_id=0),
    "qwen3-moe": hf.Qwen3MoeConfig(**SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, head_dim=8),
}


def skeleton(config: Any) -> Any:
    with torch.device("meta"):
        return hf.AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("kind", list(KNOWN))
def test_the_defaults_of_peft_are_taken(kind: str) -> None:
    with_adapters(skeleton(KNOWN[kind]), Lora())


@pytest.mark.parametrize("kind", list(UNKNOWN))
def test_an_architecture_without_defaults_names_its_layers(kind: str) -> None:
    model = skeleton(UNKNOWN[kind])
    with pytest.raises(ModelError, match=type(model).__name__) as caught:
        with_adapters(model, Lora())
    layers = str(caught.value).rpartition(": ")[2].rstrip(".").split(", ")
    assert layers
    assert "lm_head" not in layers
    with_adapters(skeleton(UNKNOWN[kind]), Lora(targets=tuple(layers[:2])))


@pytest.mark.parametrize("targets", [("q_proj", "nope"), ("nope",), ("proj",)])
def test_a_target_without_a_module_is_named(targets: tuple[str, ...]) -> None:
    with pytest.raises(ModelError, match=f"{targets[-1]} of recipe.lora.targets.*q_proj"):
        with_adapters(skeleton(KNOWN["llama"]), Lora(targets=targets))
    with pytest.raises(ModelError, match="c_attn"):
        with_adapters(skeleton(KNOWN["gpt2"]), Lora(targets=targets))


@pytest.mark.parametrize(("target", "tied"), [("embed_tokens", True), ("lm_head", False)])
def test_neither_the_head_nor_its_embedding_is_a_target(target: str, tied: bool) -> None:
    config = hf.LlamaConfig(**SIZES, tie_word_embeddings=tied)
    with pytest.raises(ModelError, match="not supported"):
        with_adapters(skeleton(config), Lora(targets=(target, "q_proj")))
    with_adapters(skeleton(hf.LlamaConfig(**SIZES)), Lora(targets=("embed_tokens", "q_proj")))


def test_all_linear_is_no_name_among_others() -> None:
    with pytest.raises(ModelError, match=r"all-linear of recipe\.lora\.targets"):
        with_adapters(skeleton(KNOWN["llama"]), Lora(targets=("all-linear", "q_proj")))
    with_adapters(skeleton(KNOWN["llama"]), Lora(targets=("all-linear",)))


def test_a_dry_run_refuses_adapters_that_do_not_fit(
    command: Callable[..., Any], byte_model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "mixtral"
    shutil.copytree(byte_model, folder)
    tokenizer = hf.AutoTokenizer.from_pretrained(byte_model)
    config = hf.MixtralConfig(**{**SIZES, "vocab_size": len(tokenizer)}, num_local_experts=2)
    hf.MixtralForCausalLM(config).save_pretrained(folder)
    (tmp_path / "own.train.jsonl").write_text('{"text": "A text of some letters."}\n' * 40)
    (tmp_path / "own.validation.jsonl").write_text('{"text": "Another text of some letters."}\n' * 9)
    given = ("--model", folder, "--objective", "mle", "--data-dir", tmp_path, "--runs", tmp_path / "runs", "--offline")
    sets = ("--set", "corpus=own", "--set", "recipe.max_length=16", "--set", "recipe.batch=2", "--dry-run")
    refused = command("train", *given, *sets, "--set", "recipe.lora=true")
    refused.refused("LoRA cannot be added to MixtralForCausalLM: peft has no default targets", "q_proj")
    command("train", *given, *sets, "--set", "recipe.lora.targets=[q_proj,v_proj]").ok()
    command("train", *given, *sets, "--set", "recipe.lora.targets=[c_attn]").refused("c_attn")
