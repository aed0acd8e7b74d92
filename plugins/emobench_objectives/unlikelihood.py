"""Unlikelihood: tokens that the context already contains become less likely (Welleck et al., ICLR 2020)."""

from collections.abc import Mapping

import torch
from torch import Tensor

import emobench

NONE = -1  # no candidate


class Unlikelihood(emobench.LogitsObjective):
    """-log q_t - alpha sum_{c in C} log(1 - q_c),  C = tokens of the context, each once, without t

    Token-level unlikelihood training with the previous context as candidates (official code:
    `candidate_penalty_ce_loss.py` in facebookresearch/unlikelihood_training). The context is all tokens before the
    target in its row, also those of other texts, without padding. log(1 - q_c) is exact, also for q_c near 1. The
    official code bounds 1 - q_c from below by 1e-5, and so the gradient, too.
    """

    needs = frozenset({"context_tokens"})
    alpha: float = emobench.param(1.0, low=0.0, help="weight of the unlikelihood of the context's tokens")

    def side_data(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the distinct tokens before each label, (B, T, T), int32, filled with -1."""
        ids_BT = batch["input_ids"]
        mask_BT = batch.get("attention_mask", torch.ones_like(ids_BT)).bool()
        before_TT = torch.ones(ids_BT.shape[1], ids_BT.shape[1], dtype=torch.bool, device=ids_BT.device).tril(-1)
        same_BTT = (ids_BT[:, :, None] == ids_BT[:, None, :]) & mask_BT[:, None, :] & before_TT
        first_BT = mask_BT & ~same_BTT.any(dim=-1)
        tokens_BT = ids_BT.int().masked_fill(~first_BT, NONE)
        return {"context_tokens": tokens_BT[:, None, :].where(before_TT, NONE)}

    def loss(self, logits_NV: Tensor, targets_N: Tensor, side: Mapping[str, Tensor]) -> Tensor:
        log_q_NV = logits_NV.log_softmax(dim=-1)
        # One candidate for each token may come as (N,).
        candidates_NK = side["context_tokens"].long()[..., None].flatten(1)
        real_NK = (candidates_NK != NONE) & (candidates_NK != targets_N[:, None])
        # Only the likeliest token can have q over 1/2, where 1 - q loses digits: there it is the sum of the others.
        top_N1 = logits_NV.argmax(dim=-1, keepdim=True)
        log_rest_N1 = log_q_NV.scatter(1, top_N1, -torch.inf).logsumexp(dim=-1, keepdim=True)
        is_top_NK = candidates_NK == top_N1
        q_NK = log_q_NV.gather(1, candidates_NK.clamp(min=0)).masked_fill(is_top_NK | ~real_NK, -torch.inf).exp()
        log_not_NK = torch.log1p(-q_NK) + torch.where(is_top_NK & real_NK, log_rest_N1, 0.0)
        mle_N = -log_q_NV.gather(1, targets_N[:, None])[:, 0]
        return mle_N - self.alpha * log_not_NK.sum(dim=-1)


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [Unlikelihood]
