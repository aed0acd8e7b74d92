"""Small random models of many architectures, and prompts of random tokens."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import transformers as hf

from emobench.inference.scoring.trie import LabelPrompts

VOCABULARY, CONTEXT, EOS = 97, 64, 1


def _llama_like(config: Callable[..., Any], **more: Any) -> Callable[[], Any]:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    return lambda: config(vocab_size=VOCABULARY, max_position_embeddings=CONTEXT, **sizes, **_SPECIAL, **more)


_SPECIAL = {"bos_token_id": EOS, "eos_token_id": EOS, "pad_token_id": EOS}
_GPT = {"vocab_size": VOCABULARY, "n_positions": CONTEXT, "n_embd": 32, "n_layer": 2, "n_head": 4, **_SPECIAL}
_WIDE = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, **_SPECIAL}
WINDOW = 16
CONFIGS: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: hf.GPT2Config(**_GPT),
    "llama": _llama_like(hf.LlamaConfig, num_key_value_heads=2),
    "opt": lambda: hf.OPTConfig(
        num_attention_heads=4, ffn_dim=64, word_embed_proj_dim=32, max_position_embeddings=CONTEXT, **_WIDE
    ),
    "gpt-neox": _llama_like(hf.GPTNeoXConfig),
    "mixtral": _llama_like(hf.MixtralConfig, num_key_value_heads=2, num_local_experts=4),
    "mistral, long window": _llama_like(hf.MistralConfig, num_key_value_heads=2, sliding_window=CONTEXT + 1),
    "mistral, short window": _llama_like(hf.MistralConfig, num_key_value_heads=2, sliding_window=WINDOW),
    "gemma2, short window": _llama_like(hf.Gemma2Config, num_key_value_heads=2, head_dim=8, sliding_window=WINDOW),
    "gpt-neo, local": lambda: hf.GPTNeoConfig(
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=WINDOW,
        max_position_embeddings=CONTEXT,
        **{k: v for k, v in _WIDE.items() if k != "num_hidden_layers"},
    ),
    "bloom": lambda: hf.BloomConfig(n_layer=2, n_head=4, **{k: v for k, v in _WIDE.items() if "layers" not in k}),
    "mpt": lambda: hf.MptConfig(vocab_size=VOCABULARY, d_model=32, n_layers=2, n_heads=4, max_seq_len=CONTEXT),
    "mamba": lambda: hf.MambaConfig(state_size=4, **_WIDE),
    "recurrent-gemma": lambda: hf.RecurrentGemmaConfig(
        num_attention_heads=4,
        intermediate_size=64,
        lru_width=32,
        attention_window_size=WINDOW,
        **{**_WIDE, "num_hidden_layers": 3},
    ),
    "falcon-h1": _llama_like(
        hf.FalconH1Config,
        num_key_value_heads=2,
        mamba_d_ssm=32,
        mamba_n_heads=4,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_chunk_size=16,
    ),
}
WINDOWED = ("mistral, short window", "gemma2, short window", "gpt-neo, local")
BEST = dict.fromkeys(CONFIGS, "trie")
BEST |= dict.fromkeys((*WINDOWED, "bloom", "mpt", "mamba", "recurrent-gemma", "falcon-h1"), "plain")
"""The engine that each of them ends in, for prompts longer than the window."""


def tiny_model(name: str, dtype: torch.dtype = torch.float32, *, config: Any = None, **more: Any) -> Any:
    """Return a model with so wide an init that its predictions vary; `config` is another one of its architecture."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = hf.AutoModelForCausalLM.from_config(config or CONFIGS[name](), **more)
        for weight in model.parameters():
            if weight.dim() > 1:
                torch.nn.init.normal_(weight, std=0.15)
    return model.to(dtype).eval()


def random_prompts(
    count: int, seed: int = 0, *, labels: int = 4, shared: tuple[int, int] = (5, 40)
) -> list[LabelPrompts]:
    """Return prompts with prefixes and labels of many lengths; every third label is a part of its first one."""
    draw = random.Random(seed)
    prompts = []
    for number in range(count):
        prefix = draw.choices(range(2, VOCABULARY), k=draw.randint(*shared))
        rows = [(*prefix, *draw.choices(range(2, VOCABULARY), k=draw.randint(1, 6))) for _ in range(labels)]
        if number % 3 == 0 and labels > 1:
            rows[1] = rows[0][:-1]
        starts = tuple(max(0, len(row) - draw.randint(1, 8)) for row in rows)
        prompts.append(LabelPrompts(id=str(number), tokens=tuple(rows), label_starts=starts))
    return prompts
