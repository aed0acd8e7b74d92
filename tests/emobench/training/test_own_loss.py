"""A model whose own loss is more than the next token's cross-entropy is refused, however the rest comes in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import emobench
from emobench.core.errors import ModelError
from emobench.models.head import probe_head
from emobench.models.suitability import require_next_token_loss

BAMBA: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 32, "attn_layer_indices": [1], "mamba_n_heads": 4,
    "mamba_d_head": 8, "mamba_d_state": 4, "mamba_n_groups": 1, "pad_token_id": 0,
}  # fmt: skip
XLNET: dict[str, Any] = {"vocab_size": 61, "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24, "dropout": 0.0}
XLM: dict[str, Any] = {"vocab_size": 61, "emb_dim": 16, "n_layers": 2, "n_heads": 2, "dropout": 0.0, "pad_index": 1}
BART: dict[str, Any] = {
    "vocab_size": 61, "d_model": 16, "decoder_layers": 2, "decoder_ffn_dim": 24, "decoder_attention_heads": 2,
    "is_decoder": True, "is_encoder_decoder": False,
}  # fmt: skip
GEMMA: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8, "layer_types": ["full_attention"] * 2, "use_bidirectional_attention": True,
}  # fmt: skip


def tiny(kind: str, **settings: Any) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings))


def batch() -> dict[str, torch.Tensor]:
    ids_BT = torch.randint(2, 61, (2, 9), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids_BT, "labels": ids_BT}


def refused_by_every_door(model: Any, words: str) -> None:
    for door in (emobench.attach, emobench.compute_loss_func, emobench.objective):
        with pytest.raises(ModelError, match=words):
            door(name="mle", model=model)


def test_a_z_loss_is_refused_before_and_after_the_model_is_given() -> None:
    refused_by_every_door(tiny("bamba", **BAMBA, z_loss_coefficient=1e-4), "z_loss_coefficient")
    model = tiny("bamba", **BAMBA, z_loss_coefficient=0.0).train()
    emobench.attach(model, "mle")
    logits_BTV = model.eval()(input_ids=batch()["input_ids"]).logits
    expected = F.cross_entropy(logits_BTV[:, :-1].flatten(0, 1), batch()["labels"][:, 1:].flatten())
    assert model.train()(**batch()).loss.item() == pytest.approx(expected.item(), rel=1e-5)
    model.z_loss_coefficient = 1e-4
    with pytest.raises(ModelError, match="z_loss_coefficient"):
        model(**batch())


class Penalised(LlamaForCausalLM):
    """A further part of the loss under a name that nobody has heard of."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        found: Any = super().forward(*args, **kwargs)
        if found.loss is not None:
            found.loss = found.loss + 1e-2 * found.logits.square().mean() + 1e-2
        return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_what_the_loss_is_more_than_is_measured(dtype: torch.dtype, kit: SimpleNamespace) -> None:
    config = kit.tiny("llama").config
    changed: Any = Penalised(config)
    refused_by_every_door(changed.to(dtype), "Penalised.* own loss")
    plain: Any = LlamaForCausalLM(config)
    model = plain.to(dtype)
    assert emobench.objective("mle", model=model)
    model.loss_function = lambda logits, labels, **_: logits.square().mean()
    refused_by_every_door(model, "LlamaForCausalLM.* own loss")


@pytest.mark.parametrize("kind", ["gpt2", "opt", "phi", "gemma2", "granite"])
def test_a_plain_loss_is_not_refused_and_leaves_the_model_as_it_was(kind: str, kit: SimpleNamespace) -> None:
    model = kit.tiny(kind).train()
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    require_next_token_loss(model)
    assert model.training
    assert torch.equal(torch.random.get_rng_state(), before)


class NoLabels(LlamaForCausalLM):
    def forward(self, input_ids: Any = None, attention_mask: Any = None, use_cache: Any = None) -> Any:  # type: ignore[override]
        return super().forward(input_ids=input_ids, attention_mask=attention_mask, use_cache=use_cache)


class NoLoss(LlamaForCausalLM):
    def forward(self, *args: Any, labels: Any = None, **kwargs: Any) -> Any:  # type: ignore[override]
        return super().forward(*args, **kwargs)


@pytest.mark.parametrize("cls", [NoLabels, NoLoss])
def test_a_model_without_a_loss_of_its_own_has_none_to_lose(cls: Any, kit: SimpleNamespace) -> None:
    model = cls(kit.tiny("llama").config)
    batch_ = batch()
    logits_BTV = model.eval()(input_ids=batch_["input_ids"]).logits
    expected = F.cross_entropy(logits_BTV[:, :-1].flatten(0, 1), batch_["labels"][:, 1:].flatten())
    loss = emobench.objective("mle", model=model)
    assert loss(logits_BTV, batch_["labels"]).item() == pytest.approx(expected.item(), rel=1e-5)


def test_labels_that_are_not_shifted_are_refused() -> None:
    """The decoder of BART takes labels that are shifted already."""
    refused_by_every_door(tiny("bart", **BART), "BartForCausalLM.* own loss")


@pytest.mark.parametrize(("kind", "settings"), [("xlnet", XLNET), ("xlm", XLM), ("gemma3_text", GEMMA)])
def test_a_model_that_sees_the_next_token_is_refused(kind: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="sees the tokens after"):
        probe_head(tiny(kind, **settings))


def test_training_refuses_what_the_library_does(tmp_path: Any, kit: SimpleNamespace) -> None:
    from emobench.training.train import train

    torch.manual_seed(0)
    config = LlamaConfig(**kit.tiny("llama").config.to_dict())
    with pytest.raises(ModelError, match=r"Penalised.* own loss"):
        train(kit.job(tmp_path, model=Penalised(config)))
