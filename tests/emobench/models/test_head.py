"""The probe finds the head's map of each class, checked against the model's own logits, and refuses the others."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from emobench.core.errors import ModelError
from emobench.metrics.batching import check_context
from emobench.models.head import LogitMap, context_of, final_hidden, probe_head, require_unchanged
from emobench.models.suitability import refuse_auxiliary_loss, require_generation, why_untrainable

LLAMA = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GPT2 = {
    "vocab_size": 97,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
OPT = {
    **{key: LLAMA[key] for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")},
    "ffn_dim": 48, "max_position_embeddings": 64, "word_embed_proj_dim": 16, "do_layer_norm_before": False,
}  # fmt: skip
NEO = {
    "vocab_size": 97, "hidden_size": 32, "num_layers": 2, "num_heads": 2, "max_position_embeddings": 64,
    "attention_types": [[["global", "local"], 1]], "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip

EXPERTS = LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 2}
CLASSES: dict[str, tuple[dict[str, Any], LogitMap]] = {
    "gpt2": (GPT2, LogitMap()),
    "opt": (OPT, LogitMap()),  # projects its hidden states down before the head, as OPT-350M does
    "llama": (LLAMA, LogitMap()),
    "gpt_neo": (NEO, LogitMap()),
    "gptj": ({**GPT2, "rotary_dim": 8}, LogitMap()),  # bias
    "phi": (LLAMA, LogitMap()),  # bias
    "mistral": (LLAMA, LogitMap()),
    "qwen2": (LLAMA, LogitMap()),
    "gpt_neox": (LLAMA, LogitMap()),
    "gemma2": ({**LLAMA, "head_dim": 16, "final_logit_softcapping": 30.0}, LogitMap(cap=30.0)),
    "gemma": ({**LLAMA, "head_dim": 16}, LogitMap()),
    "granite": ({**LLAMA, "logits_scaling": 4.0}, LogitMap(scale=0.25)),
    "hyperclovax": ({**LLAMA, "logits_scaling": 4.0}, LogitMap(scale=4.0)),
    "cohere": ({**LLAMA, "logit_scale": 0.0625}, LogitMap(scale=0.0625)),
    "nanochat": ({**LLAMA, "final_logit_softcapping": 15.0}, LogitMap(cap=15.0)),
}


def tiny(kind: str, settings: dict[str, Any], dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings)).to(dtype)
    head = model.get_output_embeddings()
    if head.bias is not None:
        nn.init.normal_(head.bias)  # a bias of zeros would hide that it was forgotten
    return model


@pytest.mark.parametrize("kind", CLASSES)
def test_the_map_of_each_class_reproduces_its_logits(kind: str) -> None:
    settings, expected = CLASSES[kind]
    model = tiny(kind, settings)
    head = probe_head(model)
    assert head.logit_map == expected
    assert head.linear is model.get_output_embeddings()
    ids = torch.arange(3, 40)[None]
    model.eval()
    with torch.no_grad():
        logits = head.logit_map.apply(head.linear(final_hidden(model, input_ids=ids)))
        torch.testing.assert_close(logits, model(input_ids=ids).logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("kind", ["llama", "gptj", "gemma2", "granite"])
def test_other_precisions_find_the_declared_map_exactly(kind: str, dtype: torch.dtype) -> None:
    settings, expected = CLASSES[kind]
    assert probe_head(tiny(kind, settings, dtype)).logit_map == expected


def llama_with(change: Callable[[torch.Tensor], torch.Tensor], **settings: Any) -> Any:
    class Changed(transformers.LlamaForCausalLM):
        def forward(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
            output = super().forward(*args, **kwargs)
            output.logits = change(output.logits)
            return output

    torch.manual_seed(0)
    return Changed(transformers.LlamaConfig(**LLAMA, **settings))


@pytest.mark.parametrize("cap", [5.0, 30.0, 1000.0])
def test_an_undeclared_cap_is_refused_even_where_small_logits_would_hide_it(cap: float) -> None:
    model = llama_with(lambda z: cap * torch.tanh(z / cap))
    with pytest.raises(ModelError, match="LM head of Changed cannot be used: its logits are not a scaled"):
        probe_head(model)


def test_a_declared_cap_that_the_class_ignores_is_not_applied() -> None:
    assert probe_head(llama_with(lambda z: z, final_logit_softcapping=30.0)).logit_map == LogitMap()


def test_scale_before_a_declared_cap_is_found_and_an_undeclared_scale_is_measured() -> None:
    both = llama_with(lambda z: 30 * torch.tanh(z * 0.5 / 30), final_logit_softcapping=30.0, output_multiplier=0.5)
    assert probe_head(both).logit_map == LogitMap(scale=0.5, cap=30.0)
    assert probe_head(llama_with(lambda z: z * 0.3)).logit_map.scale == pytest.approx(0.3, rel=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda z: z[..., :90], "cut or reshaped"),
        (lambda z: z.clamp(max=20), "declared-capped"),
        (lambda z: z + 1, "declared-capped"),
    ],
)
def test_other_changes_of_the_logits_are_refused(change: Callable[[torch.Tensor], torch.Tensor], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        probe_head(llama_with(change))


class TwoPasses(transformers.LlamaForCausalLM):
    def forward(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        super().forward(*args, **kwargs)
        return super().forward(*args, **kwargs)


class ScaledHidden(transformers.LlamaForCausalLM):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.lm_head.register_forward_pre_hook(lambda _module, args: (args[0] * 2,))


class NoWeights(transformers.LlamaForCausalLM):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.lm_head.to("meta")


class Zeros(transformers.LlamaForCausalLM):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        nn.init.zeros_(self.lm_head.weight)


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (TwoPasses, "called it 2 times"),
        (ScaledHidden, "a hook changes its input"),
        (NoWeights, "on device 'meta'"),
        (Zeros, "all zeros"),
    ],
)
def test_other_heads_are_refused_by_name(cls: Any, words: str) -> None:
    with pytest.raises(ModelError, match=f"LM head of {cls.__name__} cannot be used.*{words}"):
        probe_head(cls(transformers.LlamaConfig(**LLAMA)))


def test_a_model_without_a_causal_head_is_refused() -> None:
    with pytest.raises(ModelError, match="LlamaModel cannot be used: it has no output embeddings"):
        probe_head(transformers.LlamaModel(transformers.LlamaConfig(**LLAMA)))


# peft asks transformers for a property by its old name.
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_lora_on_the_head_is_refused_and_elsewhere_is_seen_through() -> None:
    on_head = get_peft_model(tiny("llama", LLAMA), LoraConfig(r=2, target_modules=["lm_head"]))
    with pytest.raises(ModelError, match=r"LlamaForCausalLM cannot be used: it is a peft\."):
        probe_head(on_head)
    elsewhere = get_peft_model(
        tiny("llama", LLAMA), LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    )
    head = probe_head(elsewhere)
    ids = torch.arange(3, 20)[None]
    elsewhere.eval()
    with torch.no_grad():
        logits = head.linear(final_hidden(elsewhere, input_ids=ids))
        torch.testing.assert_close(logits, elsewhere(input_ids=ids).logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("declared", "asked"), [(True, None), (False, True), (True, True)])
def test_an_auxiliary_router_loss_is_refused(declared: bool, asked: bool | None) -> None:
    settings = EXPERTS | {"output_router_logits": declared}
    with pytest.raises(ModelError, match=r"MixtralForCausalLM"):
        refuse_auxiliary_loss(tiny("mixtral", settings), asked)


def test_what_asks_for_no_auxiliary_loss_is_not_refused() -> None:
    model = tiny("mixtral", EXPERTS)
    assert probe_head(model).logit_map == LogitMap()
    refuse_auxiliary_loss(model)
    model.config.output_router_logits = True
    refuse_auxiliary_loss(model, False)  # the argument goes before the configuration
    refuse_auxiliary_loss(tiny("llama", LLAMA))


LLAMA4 = {**LLAMA, "head_dim": 16, "num_local_experts": 2, "intermediate_size_mlp": 48, "attention_chunk_size": 16}
MINICPM3 = {
    **LLAMA, "num_key_value_heads": 2, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8, "v_head_dim": 16, "dim_model_base": 8,
}  # fmt: skip


@pytest.mark.parametrize(("kind", "settings", "scale"), [("llama4_text", LLAMA4, 1.0), ("minicpm3", MINICPM3, 0.25)])
def test_bodies_that_the_class_does_not_name_and_scaled_hidden_states(kind: str, settings: Any, scale: float) -> None:
    """The prefix of Llama 4's text class names no part of it; MiniCPM3 divides its hidden states by 32 / 8."""
    model = tiny(kind, settings).eval()
    head = probe_head(model)
    assert head.logit_map == LogitMap(scale=scale)
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        logits = head.logit_map.apply(head.linear(final_hidden(model, input_ids=ids)))
        torch.testing.assert_close(logits, model(input_ids=ids).logits, rtol=1e-5, atol=1e-5)


def resized(model: Any) -> None:
    model.resize_token_embeddings(101, mean_resizing=False)


def replaced(model: Any) -> None:
    model.lm_head = nn.Linear(32, 97, bias=False)


def recapped(model: Any) -> None:
    model.config.final_logit_softcapping = 5.0


def adapted(model: Any) -> None:
    get_peft_model(model, LoraConfig(r=2, target_modules=["lm_head"]))


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.parametrize("change", [resized, replaced, recapped, adapted])
def test_a_head_that_changed_after_it_was_measured_is_refused(change: Callable[[Any], None]) -> None:
    model = tiny("gemma2", CLASSES["gemma2"][0] | {"tie_word_embeddings": False})
    head = probe_head(model)
    require_unchanged(model, head)
    change(model)
    with pytest.raises(ModelError, match="Gemma2ForCausalLM"):
        require_unchanged(model, head)


def test_modes_hooks_and_random_state_are_left_as_they_were() -> None:
    model = tiny("gpt2", {**GPT2, "resid_pdrop": 0.5})
    model.train()
    model.transformer.h[0].eval()
    modes = [module.training for module in model.modules()]
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    head = probe_head(model)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not head.linear._forward_pre_hooks
    assert all(parameter.grad is None for parameter in model.parameters())


def test_rows_without_a_token_are_padding() -> None:
    class Tokens:
        """A tokenizer whose ids end before the head's rows do."""

        def __init__(self, count: int) -> None:
            self.ids = {f"w{i}": i for i in range(count)}

        def get_vocab(self) -> dict[str, int]:
            return self.ids

    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **LLAMA))
    assert (probe_head(model).vocabulary, probe_head(model).tokens) == (None, 97)
    assert (probe_head(model, Tokens(97)).vocabulary, probe_head(model, Tokens(97)).tokens) == (None, 97)
    assert (probe_head(model, Tokens(90)).vocabulary, probe_head(model, Tokens(90)).tokens) == (90, 90)
    # More ids than rows: the model never sees the others.
    assert probe_head(model, Tokens(120)).tokens == 97


XLSTM: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 16, "embedding_dim": 16, "num_heads": 2, "num_blocks": 2, "num_hidden_layers": 2,
    "chunk_size": 4, "ffn_round_up_to_multiple_of": 8, "mlstm_round_up_to_multiple_of": 8,
    "chunkwise_kernel": "chunkwise--native_autograd", "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def skeleton(kind: str, settings: dict[str, Any]) -> Any:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings))


USABLE = {
    "gpt2": GPT2, "ctrl": GPT2 | {"dff": 24}, "opt": OPT, "llama": LLAMA, "phi": LLAMA, "gemma2": CLASSES["gemma2"][0],
    "bloom": {"vocab_size": 61, "hidden_size": 16, "n_layer": 2, "n_head": 2}, "mixtral": EXPERTS, "minicpm3": MINICPM3,
    "llama4_text": LLAMA4, "bert-generation": LLAMA | {"is_decoder": True},
}  # fmt: skip


@pytest.mark.parametrize("kind", USABLE)
def test_what_can_be_used_is_not_refused(kind: str) -> None:
    model = skeleton(kind, USABLE[kind])
    assert why_untrainable(model) is None
    require_generation(kind, model)
    assert model.training  # as it was
    assert not any(module._forward_hooks for module in model.modules())


def test_layers_between_the_base_model_and_the_head_are_refused() -> None:
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("bert", **LLAMA, is_decoder=True))
    with pytest.raises(ModelError, match=r"BertLMHeadModel .*first output of the base model"):
        probe_head(model)


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


@pytest.mark.parametrize(
    ("config", "context"),
    [
        (transformers.GPT2Config(n_positions=64), 64),
        (transformers.Gemma3Config(text_config={"max_position_embeddings": 32}), 32),
        (transformers.XLNetConfig(), None),
        (transformers.BloomConfig(), None),
    ],
)
def test_the_context_is_that_of_the_text_model(config: Any, context: int | None) -> None:
    model = nn.Module()
    model.config = config
    assert context_of(model) == context
    check_context(model, 32, "a row")
    if context is not None:
        with pytest.raises(ModelError):
            check_context(model, context + 1, "a row")
