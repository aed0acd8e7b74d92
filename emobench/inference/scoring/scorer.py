"""The losses of prompts: which engine computes them, in which batches.

Legend: N scored tokens of a batch, B its examples, D hidden width, K nodes of a row, C tokens of the trunk;
2: a token's loss in nats, and whether another token was more likely.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from emobench.core.errors import ModelError
from emobench.inference.scoring.engines import ENGINES, Batch, KeptTrunk, scored_tokens
from emobench.inference.scoring.probe import (
    MADE_LENGTH,
    branches,
    extreme_prompts,
    joined_refusal,
    length,
    made_prompts,
    refusal,
    row_width,
)
from emobench.inference.scoring.prompts import LabelPrompts
from emobench.inference.scoring.trie import TrieRow, make_row, read_count, shared_tokens, trunks
from emobench.metrics.batching import reading
from emobench.models.head import probe_head
from emobench.objectives import GREEDY, token_statistics

TOKEN_BUDGET = {"cpu": 2048, "cuda": 16384}
"""Slots of a batch. A CPU gains nothing from more, and loses its cache."""
PADDING = 0.05
"""Most padding of a batch, as a share."""
TRUNK, ROW = 32, 512
"""Least tokens of a trunk, and most slots of a row of several examples."""
NEVER = 2**62
TRUNK_SHARE = 4
"""A slot of keys and values that are copied weighs this much less than one that is read."""


@dataclass(frozen=True)
class Losses:
    """The losses of one example's prompts, one of each label: sums in nats, and the tokens that they are divided by.

    The prompts' are empty if only the labels' were requested. A prompt's first token is counted but not scored. The
    labels' are empty if their places in the prompts are unknown.
    """

    prompt_nats: tuple[float, ...]
    prompt_tokens: tuple[int, ...]
    label_nats: tuple[float, ...]
    label_tokens: tuple[int, ...]
    label_greedy: tuple[bool, ...] = ()
    """Whether each of a label's own tokens was the most likely one; empty unless asked for."""


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
    """Return the most tokens that a model reads; None if its configuration names no limit."""
    return getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)


class PromptScorer:
    """Scores prompts. `engine` is trie, cache, plain, or auto: the first of these that the model computes rightly.

    What an engine computes is compared with `plain` once, before it is used: on small made prompts, on the longest
    prompt, and on the widest row of several examples. `engine` then names the one that is used, and `refused` says why
    others are not. Raises ModelError where a named engine is wrong for the model, and for prompts longer than its
    context.

    The token `unscored` is neither scored nor counted, wherever it stands. With `labels_only`, the head reads only what
    predicts the labels' own tokens; with `greedy`, it also says whether they were the most likely ones. `section` is
    the part of the settings that errors name.
    """

    def __init__(
        self,
        model: Any,
        engine: str = "auto",
        *,
        unscored: int | None = None,
        labels_only: bool = False,
        greedy: bool = False,
        token_budget: int | None = None,
        section: str = "icl",
    ) -> None:
        self.model = model
        self.engine = engine
        self.refused: dict[str, str] = {}
        self.counts = TokenCounts()
        self._wanted = engine
        self._unscored = unscored
        self._labels_only = labels_only
        self._greedy = greedy
        self._section = section
        self._probed = Extent(0, 0, 0)
        self._others: dict[Extent, str] = {}
        """Engines for prompts beyond those that were probed."""
        self._budget = token_budget
        self.reads_trunks = True
        self.joins_examples = True
        self._joined = Extent(0, 0, 0)
        """Of the rows of several examples that were compared with `plain`."""
        self._planned: dict[str, tuple[int, int]] = {}
        """The tokens of an example's trunk, and its row."""
        self._kept: tuple[KeptTrunk, np.ndarray] | None = None
        """The trunk of the last batch, and the losses and misses of its tokens, (2, C)."""
        # All rows of the head, those that stand for no token among them: as OpenICL and lm-eval.
        self._head = probe_head(model)

    def batches(self, prompts: Sequence[LabelPrompts]) -> list[list[int]]:
        """Return the places of prompts that are scored together, batch by batch. The engine is chosen here."""
        if not prompts:
            return []
        extent = Extent.of(prompts)
        if not extent.is_within(self._probed) or not self._probed.longest:
            self.engine, self.reads_trunks = self._choose(prompts)
            self._probed = extent.joined(self._probed)
        budget = self._budget or TOKEN_BUDGET.get(next(self.model.parameters()).device.type, TOKEN_BUDGET["cuda"])
        if self.engine != "trie":
            return like_lengths([ENGINES[self.engine].slots(prompt) for prompt in prompts], budget)
        plan = self._plan(prompts, budget)
        if self.reads_trunks and not self._reads_longest_trunk(plan):
            self.reads_trunks = False
            plan = self._plan(prompts, budget)
        if self.joins_examples and not self._joins_rightly(prompts, plan):
            self.joins_examples = False
            plan = self._plan(prompts, budget)
        batches: list[list[int]] = []
        for tokens, rows in plan.items():
            copied = len(tokens) // TRUNK_SHARE
            for batch in like_lengths([slots + copied for slots, _ in rows], budget):
                examples = [rows[r][1] for r in batch]
                batches.append(list(itertools.chain.from_iterable(examples)))
        return batches

    def _reads_longest_trunk(self, plan: Plan) -> bool:
        """Say whether the model keeps all keys and values of the longest trunk. It is kept for the first batch."""
        trunk = max(plan, key=len)
        if not trunk:
            return True
        try:
            with reading(self.model) as device:
                self._trunk(trunk, device)
        except ModelError:
            return False
        return True

    def _joins_rightly(self, prompts: Sequence[LabelPrompts], plan: Plan) -> bool:
        """Say whether rows of several examples give what `plain` gives: the widest one, and that of the longest prompt.

        Such a row gives all rows of its batch a mask, so the longest prompt of all is compared as well, in a row with
        another one. Rows within the extent of those that were compared before are not compared again.
        """
        joined, reach = [], []
        for trunk, planned in plan.items():
            for slots, row in planned:
                if len(row) > 1:
                    joined.append((len(trunk), row, len(trunk) + slots))
                    reach.append(max(length(prompts[i]) for i in row))
        if not joined:
            return True
        last = max(range(len(prompts)), key=lambda i: length(prompts[i]))
        rows = [max(joined, key=lambda one: one[2]), joined[reach.index(max(reach))]]
        if length(prompts[last]) > max(reach):
            rows.append((0, [joined[0][1][0], last], 0))
        for trunk, row, width in rows:
            members = [prompts[i] for i in row]
            longest = max(map(length, members))
            extent = Extent(longest, width, longest)
            if not extent.is_within(self._joined):
                self._joined = extent.joined(self._joined)
                with reading(self.model) as device:
                    if joined_refusal(self.model, members, trunk, device) is not None:
                        return False
        return True

    def _plan(self, prompts: Sequence[LabelPrompts], budget: int) -> Plan:
        plan: Plan = {}
        number = 0
        least = TRUNK if self.reads_trunks else NEVER
        groups = trunks(prompts, least, budget // 2)
        for trunk in sorted(groups, key=lambda one: -one.tokens):
            rows: list[tuple[int, list[int]]] = []
            for i in trunk.examples:
                slots = read_count(make_row(prompts, [i], trunk.tokens))
                last = rows[-1][1] if rows and self.joins_examples else []
                if last and 2 * (shared_tokens(prompts[last[-1]], prompts[i]) - trunk.tokens) >= slots:
                    joined = [*last, i]  # half of it or more is in the row
                    together = read_count(make_row(prompts, joined, trunk.tokens))
                    if together <= ROW:
                        rows[-1] = (together, joined)
                        continue
                rows.append((slots, [i]))
            for _, examples in rows:
                self._planned |= {prompts[i].id: (trunk.tokens, number) for i in examples}
                number += 1
            tokens = prompts[trunk.examples[0]].tokens[0][: trunk.tokens]
            plan.setdefault(tokens, []).extend(rows)
        return plan

    def losses(self, prompts: Sequence[LabelPrompts]) -> list[Losses]:
        """Return the losses of each prompt's labels; log-probabilities are float32, whatever the model's precision."""
        engine = self._engine_of(prompts)
        trunk, groups = 0, [[b] for b in range(len(prompts))]
        if engine == "trie":
            trunk, groups = self._rows(prompts)
        with reading(self.model) as device:
            kept, read_2C = self._trunk(prompts[0].tokens[0][:trunk], device) if trunk else (None, np.zeros((2, 0)))
            rows = [make_row(prompts, group, trunk) for group in groups]
            chosen = [self._scored(prompts, row) for row in rows]
            scored = scored_tokens(rows, chosen)
            done = ENGINES[engine].run(self.model, Batch(prompts, rows, kept), scored, device)
            read_2N = self._read(done.hidden_ND, scored.target_N)
        self.counts.tokens += done.tokens
        self.counts.slots += done.slots
        return self._sums(prompts, rows, chosen, read_2N, read_2C)

    def _engine_of(self, prompts: Sequence[LabelPrompts]) -> str:
        # Prompts longer than those probed do not change the others' engine: an interrupted run gives the same numbers.
        extent = Extent.of(prompts)
        if extent.is_within(self._probed):
            return self.engine
        if extent not in self._others:
            self._others[extent], _ = self._choose(prompts)
        return self._others[extent]

    def _rows(self, prompts: Sequence[LabelPrompts]) -> tuple[int, list[list[int]]]:
        """Return the tokens of the trunk of a batch, and which of its examples are in a row together."""
        planned = [self._planned.get(prompt.id, (0, -1 - b)) for b, prompt in enumerate(prompts)]
        trunk = min(tokens for tokens, _ in planned)
        start = prompts[0].tokens[0][:trunk]
        if any(prompt.shared < trunk or prompt.tokens[0][:trunk] != start for prompt in prompts):
            trunk = 0  # prompts with other inputs than those that were planned
        if self._labels_only and any(min(prompt.label_starts or (0,)) < trunk for prompt in prompts):
            trunk = 0  # its tokens are not scored
        rows: dict[int, list[int]] = {}
        for b, (_, row) in enumerate(planned):
            rows.setdefault(row, []).append(b)
        return trunk, list(rows.values())

    def _trunk(self, tokens: tuple[int, ...], device: torch.device) -> tuple[KeptTrunk, np.ndarray]:
        """Return a trunk and what its tokens cost, (2, C); they are read where the last batch had another one."""
        if self._kept is None or self._kept[0].tokens != tokens:
            self._kept = None  # one at a time
            kept = KeptTrunk.read(self.model, tokens, device)
            self.counts.tokens += len(tokens)
            self.counts.slots += len(tokens)
            read_2C = np.zeros((2, len(tokens)))
            if len(tokens) > 1 and not self._labels_only:
                read_2C[:, 1:] = self._read(kept.hidden_CD[:-1], np.asarray(tokens[1:]))
                read_2C[:, np.asarray(tokens) == self._unscored] = 0
            self._kept = kept, read_2C
        return self._kept

    def _scored(self, prompts: Sequence[LabelPrompts], row: TrieRow) -> np.ndarray:
        """Return which nodes of a row are scored, (K,): no prompt's first token."""
        wanted_K = row.place_K > 0
        if self._unscored is not None:
            wanted_K &= row.token_K != self._unscored
        if self._labels_only:
            own_K = np.zeros_like(wanted_K)
            for (b, label), path_K in row.paths.items():
                starts = prompts[b].label_starts
                own_K[path_K[row.place_K[path_K] >= (starts[label] if starts else 0)]] = True
            wanted_K &= own_K
        return wanted_K

    def _read(self, hidden_ND: Any, target_N: np.ndarray) -> np.ndarray:
        targets_N = torch.from_numpy(target_N).to(hidden_ND.device)
        needs = {"log_prob", GREEDY} if self._greedy else {"log_prob"}
        statistics = token_statistics(hidden_ND, self._head, targets_N, frozenset(needs))
        missed_N = 1 - statistics[GREEDY] if self._greedy else torch.zeros_like(statistics.log_prob)
        return torch.stack([-statistics.log_prob, missed_N]).double().cpu().numpy()

    def _sums(
        self,
        prompts: Sequence[LabelPrompts],
        rows: Sequence[TrieRow],
        chosen: Sequence[np.ndarray],
        read_2N: np.ndarray,
        read_2C: np.ndarray,
    ) -> list[Losses]:
        """Add up each prompt's losses, in float64; a label's own may begin in the trunk."""
        read_of: dict[tuple[int, int], np.ndarray] = {}
        first = 0
        for row, chosen_K in zip(rows, chosen, strict=True):
            read_2K = np.zeros((2, len(chosen_K)))
            stop = first + int(chosen_K.sum())
            read_2K[:, chosen_K], first = read_2N[:, first:stop], stop
            read_of |= {owner: np.hstack([read_2C, read_2K[:, path_K]]) for owner, path_K in row.paths.items()}
        losses = []
        for b, prompt in enumerate(prompts):
            losses.append(self._losses_of(prompt, [read_of[b, i] for i in range(len(prompt.tokens))]))
        return losses

    def _losses_of(self, prompt: LabelPrompts, read: Sequence[np.ndarray]) -> Losses:
        prompt_nats: list[float] = []
        if not self._labels_only:
            prompt_nats = [float(nats_T.sum()) for nats_T, _ in read]
        prompt_tokens = [self._counted(ids) for ids in prompt.tokens]
        label_nats, label_tokens, greedy = [], [], []
        if prompt.label_starts is not None:
            for ids, start, (nats_T, missed_T) in zip(prompt.tokens, prompt.label_starts, read, strict=True):
                label_nats.append(float(nats_T[start:].sum()))
                label_tokens.append(self._counted(ids[start:]))
                if self._greedy:
                    greedy.append(not missed_T[start:].any())
        nats, tokens = tuple(label_nats), tuple(label_tokens)
        return Losses(tuple(prompt_nats), tuple(prompt_tokens), nats, tokens, tuple(greedy))

    def _counted(self, ids: Sequence[int]) -> int:
        return sum(token != self._unscored for token in ids)

    def _choose(self, prompts: Sequence[LabelPrompts]) -> tuple[str, bool]:
        """Return the engine for prompts, and whether it may read trunks; note why others are not used.

        Raises ModelError for prompts that do not fit.
        """
        longest = max(prompts, key=length)
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
                    if name != "trie":
                        return name, False
                    return name, not any(refusal(engine, self.model, trial, device, trunk=True) for trial in trials)
            self.refused[name] = reason
        raise ModelError(
            f"{self._section}.engine={self._wanted} does not give what {type(self.model).__name__} computes from each "
            f"prompt by itself: {self.refused[self._wanted]}. Use --set {self._section}.engine=auto."
        )


@dataclass(frozen=True)
class Extent:
    """Tokens of the longest prompt, of the widest row, and of the longest prompt that is read with a mask."""

    longest: int
    widest: int
    masked: int

    @classmethod
    def of(cls, prompts: Sequence[LabelPrompts]) -> Extent:
        """Return the extent of rows of one example each; one that branches gives all rows of its batch a mask."""
        longest = max(map(length, prompts), default=0)
        masked = longest if any(map(branches, prompts)) else 0
        return cls(longest, max(map(row_width, prompts), default=0), masked)

    def is_within(self, other: Extent) -> bool:
        return self.longest <= other.longest and self.widest <= other.widest and self.masked <= other.masked

    def joined(self, other: Extent) -> Extent:
        return Extent(max(self.longest, other.longest), max(self.widest, other.widest), max(self.masked, other.masked))


Plan = dict[tuple[int, ...], list[tuple[int, list[int]]]]
"""The rows of each trunk, the longest trunk first: the slots of a row, and its examples' places."""


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


def _check_context(model: Any, longest: LabelPrompts) -> None:
    """Raise ModelError for a prompt that the model cannot read: on a GPU its own error says nothing."""
    context = context_of(model)
    if context is not None and length(longest) - 1 > context:
        raise ModelError(
            f"The prompt of example {longest.id} has {length(longest)} tokens, but {type(model).__name__} reads at "
            f"most {context}, and the last one is not read; use --set icl.max_length={context}, or fewer shots."
        )
