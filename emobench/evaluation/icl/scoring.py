"""The losses of prompts: which engine computes them, in which batches.

Legend: B prompts of a batch, T positions, N scored tokens, D hidden width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from emobench.evaluation.generation.batching import by_length, pad, reading
from emobench.evaluation.icl.prompts import Prompt
from emobench.models.head import final_hidden, probe_head
from emobench.objectives import token_statistics


@dataclass(frozen=True)
class Losses:
    """The losses of one example's prompts, one of each label: sums in nats, and the tokens that they are divided by."""

    prompt_nats: tuple[float, ...]
    prompt_tokens: tuple[int, ...]
    label_nats: tuple[float, ...]
    label_tokens: tuple[int, ...]


def context_of(model: Any) -> int | None:
    """Return the most tokens that a model reads; None where its configuration names no limit."""
    return getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)


class PromptScorer:
    """Scores prompts with one engine."""

    def __init__(self, model: Any, tokenizer: Any, engine: str, *, token_budget: int = 4096) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.engine = engine
        self.token_budget = token_budget
        self._head = probe_head(model, tokenizer)

    def batches(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """Return the places of prompts of like length, batch by batch."""
        lengths = [prompt.shared + sum(len(ids) - prompt.shared for ids in prompt.tokens) for prompt in prompts]
        return by_length(lengths, self.token_budget)

    def losses(self, prompts: Sequence[Prompt]) -> list[Losses]:
        """Return the losses of each prompt's labels."""
        eos = self.tokenizer.eos_token_id
        rows = [ids for prompt in prompts for ids in prompt.tokens]
        with reading(self.model) as device:
            ids_BT, mask_BT = pad(rows, 0, device)
            hidden_BTD = final_hidden(self.model, input_ids=ids_BT, attention_mask=mask_BT)
            scored_BT = mask_BT[:, 1:].bool()
            if eos is not None:
                scored_BT &= ids_BT[:, 1:] != eos
            log_prob_N = token_statistics(hidden_BTD[:, :-1][scored_BT], self._head, ids_BT[:, 1:][scored_BT]).log_prob
            nats_BT = torch.zeros(scored_BT.shape, dtype=torch.float64)
            nats_BT[scored_BT.cpu()] = -log_prob_N.double().cpu()
        found, place = [], 0
        for prompt in prompts:
            part = nats_BT[place : place + len(prompt.tokens)]
            starts = prompt.label_starts
            place += len(prompt.tokens)
            found.append(
                Losses(
                    prompt_nats=tuple(part.sum(1).tolist()),
                    prompt_tokens=tuple(sum(token != eos for token in ids) for ids in prompt.tokens),
                    label_nats=()
                    if starts is None
                    else tuple(float(row[max(0, start - 1) :].sum()) for row, start in zip(part, starts, strict=True)),
                    label_tokens=()
                    if starts is None
                    else tuple(len(ids) - start for ids, start in zip(prompt.tokens, starts, strict=True)),
                )
            )
        return found
