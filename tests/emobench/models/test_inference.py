"""Operations of models that are only read: the same numbers, and only where they help."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import profile
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers.activations import ACT2FN, NewGELUActivation
from transformers.models.llama.modeling_llama import LlamaMLP
from transformers.pytorch_utils import Conv1D

from emobench.models.inference import optimize_for_inference

IDS = torch.arange(48).reshape(4, 12)


def gpt2() -> nn.Module:
    return GPT2LMHeadModel(GPT2Config(vocab_size=97, n_embd=48, n_layer=2, n_head=4, n_positions=32))


def llama() -> nn.Module:
    sizes: Any = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=97, num_attention_heads=6, num_key_value_heads=2, **sizes))


def packed(model: nn.Module) -> list[nn.Module]:
    return [layer for layer in model.modules() if "forward" in vars(layer) and hasattr(layer, "weight")]


def activations(model: nn.Module) -> list[Any]:
    return [layer for layer in model.modules() if type(layer) is NewGELUActivation]


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        return model(input_ids=IDS).logits


@pytest.fixture(params=[gpt2, llama])
def model(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(0)
    return request.param().eval()


def test_logits_are_those_of_the_plain_model(model: Any) -> None:
    before = logits(model)
    optimize_for_inference(model)
    layers = [layer for layer in model.modules() if type(layer) in (nn.Linear, Conv1D)]
    assert packed(model) == layers
    assert logits(model) == pytest.approx(before, rel=1e-5, abs=1e-6)
    assert not any(weight.requires_grad for weight in model.parameters())


def test_gelu_by_tanh_is_one_operation() -> None:
    states_XF = torch.linspace(-12, 12, 4096).reshape(64, 64)
    for name in ("gelu_new", "gelu_fast"):
        plain, fused = ACT2FN[name], nn.Sequential(ACT2FN[name])
        optimize_for_inference(fused)
        assert fused(states_XF) == pytest.approx(plain(states_XF), rel=1e-5, abs=1e-6)
        with profile(acc_events=True) as seen:
            fused(states_XF)
        assert [event.key for event in seen.key_averages() if event.key.startswith("aten::")] == ["aten::gelu"]


@pytest.mark.parametrize("activation", ["silu", "gelu_pytorch_tanh"])
def test_a_gate_is_applied_in_place(activation: str) -> None:
    config = LlamaConfig(hidden_size=48, num_attention_heads=6, intermediate_size=80, hidden_act=activation)
    mlp, states_XD = LlamaMLP(config).eval(), torch.randn(3, 5, 48)
    optimize_for_inference(mlp)
    gated = vars(mlp).pop("forward")
    with torch.no_grad(), profile(acc_events=True) as seen:
        assert torch.equal(gated(states_XD), mlp(states_XD))
    keys = {event.key for event in seen.key_averages()}
    assert {"aten::mul_", "aten::silu_" if activation == "silu" else "aten::gelu_"} <= keys


def test_an_mlp_that_computes_something_else_keeps_its_own() -> None:
    class Scaled(LlamaMLP):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    config = LlamaConfig(hidden_size=48, num_attention_heads=6, intermediate_size=80)
    layers = nn.ModuleList([Scaled(config), LlamaMLP(config), Scaled(config)])
    optimize_for_inference(layers)
    assert ["forward" in vars(mlp) for mlp in layers] == [False, True, False]


def test_a_copy_computes_with_its_own_weights(model: Any) -> None:
    optimize_for_inference(model)
    before, changed = logits(model), copy.deepcopy(model)
    with torch.no_grad():
        for weight in changed.parameters():
            weight.mul_(1.5)
    plain = type(model)(model.config)
    plain.load_state_dict(changed.state_dict())
    assert logits(changed) == pytest.approx(logits(plain.eval()), rel=1e-5, abs=1e-6)
    assert torch.equal(logits(model), before)
    assert torch.isfinite(logits(copy.deepcopy(model).bfloat16())).all()
    changed.requires_grad_(True)
    changed(input_ids=IDS, labels=IDS).loss.backward()
    assert all(weight.grad is not None for weight in changed.parameters())


def test_weights_that_changed_are_read(model: Any) -> None:
    optimize_for_inference(model)
    before = logits(model)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(2)
    assert not torch.allclose(logits(model), before)


def test_a_product_of_one_row_is_the_plain_one(model: Any) -> None:
    plain = copy.deepcopy(model)
    optimize_for_inference(model)
    for one in activations(model):
        del one.forward
    row_1T = IDS[:1, :1]
    with torch.no_grad():
        assert torch.equal(model(input_ids=row_1T).logits, plain(input_ids=row_1T).logits)


@pytest.mark.parametrize("reason", ["precision", "memory", "library"])
def test_products_stay_as_they_are(model: Any, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason == "precision":
        model.to(torch.bfloat16)
    elif reason == "memory":
        monkeypatch.setattr("emobench.models.inference.SHARE", 1e-9)
    else:
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    optimize_for_inference(model)
    assert packed(model) == []


def test_autocast_and_gradients_of_inputs_work(model: Any) -> None:
    plain = copy.deepcopy(model)
    optimize_for_inference(model)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(model(input_ids=IDS).logits, plain(input_ids=IDS).logits)
    vectors = [one.get_input_embeddings()(IDS).detach().requires_grad_() for one in (model, plain)]
    for one, vectors_BTD in zip((model, plain), vectors, strict=True):
        one(inputs_embeds=vectors_BTD).logits.sum().backward()
    assert vectors[0].grad == pytest.approx(vectors[1].grad, rel=1e-4, abs=1e-5)


def test_a_layer_of_another_class_keeps_its_own_product() -> None:
    class Doubled(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return 2 * super().forward(input)

    layers = nn.Sequential(Doubled(8, 8), nn.Linear(8, 8))
    optimize_for_inference(layers)
    assert packed(layers) == [layers[1]]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_head_is_padded_on_a_gpu(dtype: torch.dtype) -> None:
    config = GPT2Config(vocab_size=1009, n_embd=64, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    plain: Any = GPT2LMHeadModel(config).eval().to("cuda", dtype)
    padded = copy.deepcopy(plain)
    optimize_for_inference(padded)
    assert "forward" in vars(padded.lm_head)
    ids_BT = torch.randint(1009, (3, 17), device="cuda")
    with torch.no_grad():
        expected, found = plain(ids_BT).logits, padded(ids_BT).logits
        torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)
        for model in (plain, padded):
            model.lm_head.weight.mul_(2)
        torch.testing.assert_close(padded(ids_BT).logits, plain(ids_BT).logits, rtol=0.02, atol=0.04)
