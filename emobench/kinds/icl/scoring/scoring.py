"""The losses of prompts: which engine computes them, in which batches.

Legend: N scored tokens of a batch, B its examples, D hidden width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from emobench.errors import ModelError
from emobench.kinds.icl.prompts import ExamplePrompts
from emobench.kinds.icl.scoring.engines import ENGINES, SHARED, ScoredTokens, pairs_of
from emobench.kinds.icl.scoring.probe import MADE_LENGTH, extreme_prompts, made_prompts, refusal
from emobench.metrics.batching import reading
from emobench.models.head import probe_head
from emobench.objectives import token_statistics

TOKEN_BUDGET = {"cpu": 2048, "cuda": 16384}
"""Slots of a batch. A CPU gains nothing from more, and loses its cache."""
PADDING = 0.1
"""Most padding of a batch, as a share."""


@dataclass(frozen=True)
class Losses:
    """The losses of one example's prompts, one of each label: sums in nats, and the tokens that they are divided by.

    A literal EOS token is neither scored nor counted, as in OpenICL, whose padding it is. A prompt's first token is
    counted but not scored. The labels' are empty where the tokenizer gives no offsets.
    """

    prompt_nats: tuple[float, ...]
    prompt_tokens: tuple[int, ...]
    label_nats: tuple[float, ...]
    label_tokens: tuple[int, ...]


@dataclass
class TokenCounts:
    """What went through the model so far."""

    tokens: int = 0
    slots: int = 0
    """Tokens and padding."""

    @property
    def padding(self) -> float:
        """The share of padding."""
        return 1 - self.tokens / self.slots if self.slots else 0.0


def context_of(model: Any) -> int | None:
    """Return the most tokens that a model reads; None where its configuration names no limit."""
    return getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)


class PromptScorer:
    """Scores prompts. `engine` is tree, cache, plain, or auto: the first of these that the model computes rightly.

    What an engine computes is compared with `plain` once, before it is used: on small made prompts, and on the longest
    prompt. `engine` then names the one that is used, and `refused` says why others are not. Raises ModelError where a
    named engine is wrong for the model, and for prompts longer than its context.
    """

    def __init__(self, model: Any, tokenizer: Any, engine: str = "auto", *, token_budget: int | None = None) -> None:
        self.model = model
        self.engine = engine
        self.refused: dict[str, str] = {}
        self.counts = TokenCounts()
        self._wanted = engine
        self._probed = 0
        self._budget = token_budget
        # All rows of the head, those that stand for no token among them: as OpenICL and lm-eval.
        self._head = probe_head(model)
        self._eos = tokenizer.eos_token_id

    def batches(self, prompts: Sequence[ExamplePrompts]) -> list[list[int]]:
        """Return the places of prompts of like length, batch by batch, longest first. The engine is chosen here."""
        if not prompts:
            return []
        self.engine = self._choose(prompts)
        budget = self._budget or TOKEN_BUDGET.get(next(self.model.parameters()).device.type, TOKEN_BUDGET["cuda"])
        return like_lengths([ENGINES[self.engine].slots(prompt) for prompt in prompts], budget)

    def losses(self, prompts: Sequence[ExamplePrompts]) -> list[Losses]:
        """Return the losses of each prompt's labels; log-probabilities are float32, whatever the model's precision."""
        # Longer ones than were probed do not change what is used for others: an interrupted run gives the same numbers.
        engine = self.engine if _longest(prompts) <= self._probed else self._choose(prompts)
        with reading(self.model) as device:
            shared = [0 if engine == "plain" else prompt.shared for prompt in prompts]
            pairs = pairs_of(prompts, shared, self._eos)
            done = ENGINES[engine].run(self.model, prompts, pairs, device)
            targets_N = torch.from_numpy(pairs.target_N).to(device)
            log_prob_N = token_statistics(done.hidden_ND, self._head, targets_N).log_prob
            nats_N = -log_prob_N.double().cpu().numpy()
        self.counts.tokens += done.tokens
        self.counts.slots += done.slots
        edges = np.searchsorted(pairs.example_N, np.arange(len(prompts) + 1))
        parts = [slice(a, b) for a, b in pairwise(edges.tolist())]
        return [
            _sums(prompt, pairs[part], nats_N[part], self._eos) for prompt, part in zip(prompts, parts, strict=True)
        ]

    def _choose(self, prompts: Sequence[ExamplePrompts]) -> str:
        """Return the engine for prompts, and note why others are not; ModelError for prompts that do not fit."""
        longest = max(prompts, key=lambda prompt: _longest([prompt]))
        _check_context(self.model, longest)
        trials = [extreme_prompts(prompts)]
        if (context_of(self.model) or MADE_LENGTH) >= MADE_LENGTH:
            vocabulary = min(self._head.tokens, self.model.get_input_embeddings().weight.shape[0])
            trials.insert(0, made_prompts(vocabulary))
        for name in ENGINES if self._wanted == "auto" else [self._wanted]:
            with reading(self.model) as device:
                engine = ENGINES[name]
                reasons = (refusal(engine, self.model, trial, device) for trial in trials if name != "plain")
                reason = next(filter(None, reasons), None)
            if reason is None:
                self._probed = max(self._probed, _longest(prompts))
                return name
            self.refused[name] = reason
        raise ModelError(
            f"icl.engine={self._wanted} does not give what {type(self.model).__name__} computes from each prompt by "
            f"itself: {self.refused[self._wanted]}. Use --set icl.engine=auto."
        )


def like_lengths(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Group indices, longest first: rows x longest stays within `budget`, padding within PADDING, or a row is alone.

    Longest first: if memory does not suffice, the first batch says so.
    """
    batches: list[list[int]] = []
    filled = 0
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        filled += lengths[index]
        area = (len(batches[-1]) + 1) * lengths[batches[-1][0]] if batches else 0
        if batches and area <= budget and filled >= (1 - PADDING) * area:
            batches[-1].append(index)
        else:
            batches.append([index])
            filled = lengths[index]
    return batches


def _longest(prompts: Sequence[ExamplePrompts]) -> int:
    return max((len(ids) for prompt in prompts for ids in prompt.tokens), default=0)


def _check_context(model: Any, longest: ExamplePrompts) -> None:
    """Raise ModelError for a prompt that the model cannot read: on a GPU its own error says nothing."""
    context = context_of(model)
    if context is not None and _longest([longest]) > context:
        raise ModelError(
            f"The prompt of example {longest.id} has {_longest([longest])} tokens, but {type(model).__name__} reads at "
            f"most {context}; use --set icl.max_length={context}, or fewer shots."
        )


def _sums(prompt: ExamplePrompts, pairs: ScoredTokens, nats_N: np.ndarray, eos: int | None) -> Losses:
    """Add up one example's losses for each label, in float64; a label's own may begin in the shared prefix."""
    prompt_nats, label_nats, label_tokens = [], [], []
    for label, ids in enumerate(prompt.tokens):
        mine_N = (pairs.label_N == SHARED) | (pairs.label_N == label)
        prompt_nats.append(float(nats_N[mine_N].sum()))
        if prompt.label_starts is not None:
            start = prompt.label_starts[label]
            label_nats.append(float(nats_N[mine_N & (pairs.place_N >= start)].sum()))
            label_tokens.append(sum(token != eos for token in ids[start:]))
    counts = [sum(token != eos for token in ids) for ids in prompt.tokens]
    return Losses(tuple(prompt_nats), tuple(counts), tuple(label_nats), tuple(label_tokens))
