"""One loss through every door: `run`'s training, attach, compute_loss_func, a loss of logits and one of hidden states.

Small models of many architectures in float64 against whole logits and plain autograd, with the equations written here:
padded left and right, in one micro-batch and in two, with rows of the head that stand for no token.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

import emobench
from emobench.models.head import final_hidden, probe_head
from emobench.registry import load_objective
from emobench.training.attach import attach
from emobench.training.context import TrainingContext

ROWS, TOKENS = 61, 58
"""Rows of the heads, and tokens of the tokenizer: three rows are padding."""

SIZES: dict[str, Any] = {
    "vocab_size": ROWS, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GPT: dict[str, Any] = {
    "vocab_size": ROWS, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32,
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}  # fmt: skip
OPT: dict[str, Any] = {
    "vocab_size": ROWS, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 24,
    "max_position_embeddings": 32, "word_embed_proj_dim": 8, "dropout": 0.0, "pad_token_id": 0,
}  # fmt: skip
EXPERTS: dict[str, Any] = SIZES | {
    "num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "experts_implementation": "eager",
}  # fmt: skip
FALCON_H1: dict[str, Any] = SIZES | {
    "mamba_d_ssm": 16, "mamba_n_heads": 2, "mamba_d_head": 8, "mamba_d_state": 4, "mamba_n_groups": 1,
    "mamba_chunk_size": 4, "head_dim": 8, "lm_head_multiplier": 0.3,
}  # fmt: skip
MINICPM3: dict[str, Any] = SIZES | {
    "num_key_value_heads": 2, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4,
    "v_head_dim": 8, "dim_model_base": 8,
}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", GPT),  # tied; its class has no loss type
    "openai-gpt": ("openai-gpt", GPT),
    "ctrl": ("ctrl", GPT | {"dff": 24}),  # a bias, and no loss type
    "opt": ("opt", OPT),  # projects before the head
    "llama": ("llama", SIZES),
    "phi": ("phi", SIZES | {"resid_pdrop": 0.0}),  # a bias
    "gemma2": ("gemma2", SIZES | {"head_dim": 8, "final_logit_softcapping": 2.0}),
    "granite": ("granite", SIZES | {"logits_scaling": 4.0}),
    "cohere": ("cohere", SIZES | {"logit_scale": 0.25}),
    "gpt_neox": ("gpt_neox", SIZES | {"hidden_dropout": 0.0}),
    "bloom": ("bloom", {"vocab_size": ROWS, "hidden_size": 16, "n_layer": 2, "n_head": 2}),
    "falcon_h1": ("falcon_h1", FALCON_H1),  # state spaces, and a factor
    "mixtral": ("mixtral", EXPERTS),
    "qwen2_moe": ("qwen2_moe", EXPERTS | {"moe_intermediate_size": 8, "shared_expert_intermediate_size": 8}),
    "llama4_text": (
        "llama4_text",
        SIZES | {"head_dim": 8, "num_local_experts": 2, "intermediate_size_mlp": 24, "attention_chunk_size": 16},
    ),
    "minicpm3": ("minicpm3", MINICPM3),  # divides its hidden states
}


class Words:
    """A tokenizer, as far as its ids go."""

    def get_vocab(self) -> dict[str, int]:
        return {f"w{i}": i for i in range(TOKENS)}


def tiny(kind: str, **more: Any) -> Any:
    model_type, settings = MODELS[kind]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **(settings | more)))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
    return model.double().train()


def batch(side: str) -> dict[str, Tensor]:
    """Return four rows of 9 tokens and fewer, with padding at a side; in one, the first labels are masked."""
    rng = torch.Generator().manual_seed(1)
    ids_BT = torch.randint(3, TOKENS, (4, 9), generator=rng)
    mask_BT = torch.ones_like(ids_BT)
    labels_BT = ids_BT.clone()
    padding = slice(5, None) if side == "right" else slice(0, 4)
    mask_BT[1, padding] = 0
    labels_BT[1, padding] = -100
    labels_BT[2, :6] = -100
    return {"input_ids": ids_BT, "attention_mask": mask_BT, "labels": labels_BT}


def emo(logits_NV: Tensor, targets_N: Tensor, head_VD: Tensor) -> Tensor:
    """Eq. 14 and 19 of the paper."""
    rows_VD = F.normalize(head_VD.detach()[:TOKENS], dim=-1)
    cost_NV = 1 - rows_VD[targets_N] @ rows_VD.T
    demd_N = (logits_NV.softmax(-1) * cost_NV).sum(-1)
    mle_N = F.cross_entropy(logits_NV, targets_N, reduction="none")
    return 0.5 * (mle_N + (mle_N / demd_N).detach() * demd_N)


def mle(logits_NV: Tensor, targets_N: Tensor, head_VD: Tensor) -> Tensor:
    return F.cross_entropy(logits_NV, targets_N, reduction="none")


EQUATIONS = {"mle": mle, "emo": emo}


def expected(model: Any, name: str, given: dict[str, Tensor], rows: int = TOKENS) -> tuple[float, dict[str, Tensor]]:
    """Return the loss and its gradients, from the model's own logits."""
    model = copy.deepcopy(model)
    inputs = {key: value for key, value in given.items() if key != "labels"}
    logits_NV = model(**inputs).logits[:, :-1, :rows].flatten(0, 1)
    targets_N = given["labels"][:, 1:].flatten()
    counted_N = targets_N != -100
    head_VD = model.get_output_embeddings().weight
    loss = EQUATIONS[name](logits_NV[counted_N], targets_N[counted_N], head_VD).mean()
    loss.backward()
    return loss.item(), gradients(model)


def gradients(model: Any) -> dict[str, Tensor]:
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def by_run(model: Any, name: str) -> Callable[..., Tensor]:
    """Attach as a training of `emobench run` does."""
    head, chosen = probe_head(model, Words()), load_objective(name).objective
    chosen.setup(TrainingContext(head, 1, True, lambda other: torch.zeros(0), model))
    attached = attach(model, chosen, head)
    return lambda given, count: attached.forward(model, given, count)


def by_attach(model: Any, name: str) -> Callable[..., Tensor]:
    emobench.attach(model, name, tokenizer=Words())
    return lambda given, count: model(**given, num_items_in_batch=count).loss


def by_function(model: Any, name: str) -> Callable[..., Tensor]:
    function = emobench.compute_loss_func(name, model=model, tokenizer=Words())

    def loss(given: dict[str, Tensor], count: Tensor) -> Tensor:
        inputs = {key: value for key, value in given.items() if key != "labels"}
        return function(model(**inputs), given["labels"], num_items_in_batch=count)

    return loss


def by_logits(model: Any, name: str) -> Callable[..., Tensor]:
    made = emobench.objective(name, model=model, tokenizer=Words())

    def loss(given: dict[str, Tensor], count: Tensor) -> Tensor:
        inputs = {key: value for key, value in given.items() if key != "labels"}
        return made(model(**inputs).logits, given["labels"], num_items_in_batch=count)

    return loss


def by_hidden(model: Any, name: str) -> Callable[..., Tensor]:
    made = emobench.objective(name, model=model, tokenizer=Words())

    def loss(given: dict[str, Tensor], count: Tensor) -> Tensor:
        inputs = {key: value for key, value in given.items() if key != "labels"}
        hidden_BTD = final_hidden(model, **inputs)
        weight_VD = model.get_output_embeddings().weight
        return made.linear(hidden_BTD, weight_VD, given["labels"], num_items_in_batch=count)

    return loss


NOT_AT_THE_LEFT = ("bloom", "gemma2")
"""Their own logits of rows that are padded at the left are NaN in float64: -inf minus -inf in a mask."""
DOORS = {"run": by_run, "attach": by_attach, "function": by_function, "logits": by_logits, "hidden": by_hidden}


@pytest.mark.parametrize("kind", MODELS)
def test_every_door_has_the_loss_of_the_models_own_logits(kind: str) -> None:
    start = tiny(kind)
    sides = ("right", "right") if kind in NOT_AT_THE_LEFT else ("left", "right")
    for side, name in zip(sides, ("mle", "emo"), strict=True):
        given = batch(side)
        loss, wanted = expected(start, name, given)
        count = (given["labels"][:, 1:] != -100).sum()
        largest = max(float(gradient.norm()) for gradient in wanted.values())
        for door, enter in DOORS.items():
            for rows in (4, 3):  # one micro-batch, and one of three rows beside one of a single row
                model = copy.deepcopy(start)
                train = enter(model, name)
                total = 0.0
                for part in (slice(0, rows), slice(rows, 4)):
                    micro = {key: value[part] for key, value in given.items()}
                    if len(micro["labels"]):
                        value = train(micro, count)
                        value.backward()
                        total += value.item()
                where = (kind, door, name, rows)
                assert total == pytest.approx(loss, rel=1e-8), where
                found = gradients(model)
                assert found.keys() == wanted.keys(), where
                for key, gradient in wanted.items():
                    assert float((found[key] - gradient).norm()) <= 1e-7 * largest, (*where, key)
