"""Objectives from other papers against their authors' formulas, on three models, through `attach`.

The formulas are written as the authors' code writes them, on whole logits: EAFT and ASFT as in LLaMA-Factory and in
`train_v2.py` of ASFT, ProFit as in its fork of LLaMA-Factory, PSFT as `compute_policy_loss` of its fork of verl,
iw-SFT as its `IwSFTLoss`. Target-SFT is written as on its authors' page: the base is its teacher. NTL
is the loss of its package.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

import emobench
from emobench.objectives import TokenStatistics
from emobench_objectives.eaft import Eaft, EaftTopK

SMALL = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {
        "vocab_size": 61,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 32,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },  # tied
    "llama": SMALL | {"num_key_value_heads": 2},
    "phi": SMALL | {"resid_pdrop": 0.0},  # a head with a bias
}
Formula = Callable[[Tensor, Tensor, Tensor], Tensor]


def tiny(kind: str) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **MODELS[kind]))
    return model.double().eval()


def moved(model: Any) -> Any:
    """Move the weights as a training does, so that the model is not its base; far, so that no two losses are alike."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.2 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return model


def eaft(logits_NV: Tensor, targets_N: Tensor, base_NV: Tensor) -> Tensor:
    top_NK = logits_NV.detach().topk(20, dim=-1).values
    log_q_NK = top_NK - top_NK.logsumexp(dim=-1, keepdim=True)
    entropy_N = -(log_q_NK.exp() * log_q_NK).sum(dim=-1)
    return F.cross_entropy(logits_NV, targets_N, reduction="none") * entropy_N / math.log(20)


def eaft_whole(logits_NV: Tensor, targets_N: Tensor, base_NV: Tensor) -> Tensor:
    entropy_N = torch.distributions.Categorical(logits=logits_NV.detach()).entropy()
    return F.cross_entropy(logits_NV, targets_N, reduction="none") * (entropy_N / math.log(20)) ** 0.5


def dft(logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    losses_N = F.cross_entropy(logits_NV, targets_N, reduction="none")
    return losses_N * (-losses_N).exp().detach()


def asft(logits_NV: Tensor, targets_N: Tensor, base_NV: Tensor) -> Tensor:
    divergence_N = F.kl_div(logits_NV.log_softmax(-1), base_NV.softmax(-1), reduction="none").sum(-1)
    return dft(logits_NV, targets_N) + 0.3 * divergence_N


def profit(logits_NV: Tensor, targets_N: Tensor, base_NV: Tensor) -> Tensor:
    prob_N = logits_NV.softmax(-1).gather(1, targets_N[:, None])[:, 0].detach()
    losses_N = F.cross_entropy(logits_NV, targets_N.masked_fill(prob_N < 0.02, -100), reduction="none")
    assert 5 < int((losses_N == 0).sum()) < len(losses_N) - 5
    return losses_N


def label_log_prob(logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    return -F.cross_entropy(logits_NV, targets_N, reduction="none")


def psft(logits_NV: Tensor, targets_N: Tensor, base_NV: Tensor) -> Tensor:
    advantages, clip_ratio_low, clip_ratio_high = 1.0, 0.2, 0.28
    log_prob, old_log_prob = label_log_prob(logits_NV, targets_N), label_log_prob(base_NV, targets_N)
    ratio = torch.exp(torch.clamp(log_prob - old_log_prob, min=-20.0, max=20.0))
    pg_losses1 = -advantages * ratio
    pg_losses2 = -advantages * torch.clamp(ratio, 1 - clip_ratio_low, 1 + clip_ratio_high)
    assert 5 < int((ratio > 1.28).sum()) < len(ratio) - 5
    assert (ratio < 0.8).any()
    return torch.maximum(pg_losses1, pg_losses2)


def iw_sft(logits_NV: Tensor, targets_N: Tensor, base_NV: Tensor) -> Tensor:
    nll_loss, ref_log_probs = -label_log_prob(logits_NV, targets_N), label_log_prob(base_NV, targets_N)
    iw = torch.clamp(torch.exp(-ref_log_probs - nll_loss.detach()), 1 - 0.8, 1 + 0.8)
    assert len(iw.unique()) > 10
    return nll_loss * iw


def target_sft(logits_NV: Tensor, targets_N: Tensor, base_NV: Tensor) -> Tensor:
    with torch.no_grad():
        model_NV, teacher_NV = logits_NV.softmax(-1), base_NV.softmax(-1)
        guided_NV = model_NV**0.7 * teacher_NV**0.3
        guided_NV /= guided_NV.sum(-1, keepdim=True)
        p_N1 = model_NV.gather(1, targets_N[:, None])
        target_NV = p_N1 * F.one_hot(targets_N, logits_NV.shape[1]) + (1 - p_N1) * guided_NV
    return F.cross_entropy(logits_NV, target_NV, reduction="none")


def digit_tokenizer() -> Any:
    texts = [*map(str, range(14)), "3.5", "120", *(f"w{place}" for place in range(16, 61))]
    vocabulary = {text: place for place, text in enumerate(texts)}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(vocabulary, unk_token="w16")))


def ntl(logits_NV: Tensor, targets_N: Tensor, *, digits: bool) -> Tensor:
    """Return losses whose mean is that of the package, with a sum over numbers that is divided by all targets."""
    ntloss = pytest.importorskip("ntloss", reason="needs the package ntloss")
    theirs = ntloss.NTLoss(digit_tokenizer(), digit_level=digits)
    expected = theirs(logits_NV[None], targets_N[None], reduction="sum") / len(targets_N)
    return F.cross_entropy(logits_NV, targets_N, reduction="none") + 0.7 * expected


FORMULAS: dict[str, Formula] = {
    "ntl(weight=0.7)": lambda z, t, base: ntl(z, t, digits=True),
    "ntl(weight=0.7, cost=numbers)": lambda z, t, base: ntl(z, t, digits=False),
    "eaft-top-k": eaft,
    "eaft(alpha=0.5)": eaft_whole,
    "asft(kl_weight=0.3)": asft,
    "asft(kl_weight=0)": lambda z, t, base: dft(z, t),
    "profit(min_prob=0.02)": profit,
    "psft": psft,
    "iw-sft": iw_sft,
    "target-sft(eta=0.3)": target_sft,
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("objective", FORMULAS)
def test_an_objective_is_its_authors_formula(objective: str, kind: str) -> None:
    model = tiny(kind)
    base, theirs = copy.deepcopy(model), moved(copy.deepcopy(model))
    attached = emobench.attach(model, objective, tokenizer=digit_tokenizer())
    attached.begin_step(0, 8)
    ours = moved(model).train()
    ids_BT = torch.randint(61, (4, 16), generator=torch.Generator().manual_seed(3))
    columns = {}
    if objective == "iw-sft":
        all_BTV = base(input_ids=ids_BT).logits.detach().log_softmax(-1)
        found_BT = all_BTV[:, :-1].gather(2, ids_BT[:, 1:, None])[..., 0]
        columns["behavior_log_prob"] = F.pad(found_BT, (1, 0))
    loss = ours(input_ids=ids_BT, labels=ids_BT, **columns).loss
    loss.backward()

    logits_NV = theirs(input_ids=ids_BT).logits[:, :-1].flatten(0, 1)
    base_NV = base(input_ids=ids_BT).logits[:, :-1].flatten(0, 1).detach()
    expected = FORMULAS[objective](logits_NV, ids_BT[:, 1:].flatten(), base_NV).mean()
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-9)
    gradients = {name: weight.grad for name, weight in ours.named_parameters()}
    assert any(float(weight.grad.abs().max()) > 1e-4 for weight in theirs.parameters())
    for name, weight in theirs.named_parameters():
        torch.testing.assert_close(gradients[name], weight.grad, rtol=1e-6, atol=1e-9, msg=name)


def test_entropy_of_twenty_equal_tokens_has_weight_one() -> None:
    entropy_N = torch.tensor([math.log(20), 0.0, -1e-17], dtype=torch.float64)
    statistics = TokenStatistics({"log_prob": torch.tensor([-1.0, -5.0, -5.0]), "entropy": entropy_N}, torch.zeros(3))
    torch.testing.assert_close(Eaft().weight(statistics), torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64))
    logits_NV = torch.full((2, 30), -torch.inf, dtype=torch.float64)
    logits_NV[0, :20] = 3.0
    logits_NV[1, 4] = 3.0
    torch.testing.assert_close(EaftTopK().weight(logits_NV), torch.tensor([1.0, 0.0], dtype=torch.float64))
