"""The losses of prompts: which engine computes them, in which batches.

Legend: N scored tokens of a batch, B its examples, D hidden width, K nodes of a row, C tokens of the trunk;
2: a token's loss in nats, and whether another token was more likely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from emobench.core.errors import ModelError
from emobench.inference.scoring.engines import (
    KeptTrunk,
    difference_from_plain,
    read_plain,
    read_trie,
    scored_tokens,
)
from emobench.inference.scoring.trie import LabelPrompts, Paths, TrieRow, alike, make_row, trunks
from emobench.metrics.batching import by_length, reading
from emobench.models.head import context_of, probe_head
from emobench.objectives import GREEDY, token_statistics

TOKEN_BUDGET = {"cpu": 2048, "cuda": 16384}
"""Slots of a batch. A CPU gains nothing from more, and loses its cache."""
PADDING = 0.05
"""Most padding of a batch, as a share."""
TRUNK, ROW = 32, 512
"""Least tokens of a trunk, and most slots of a row of several examples."""
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
    """Whether each of a label's own tokens was the most likely one; empty unless requested."""


@dataclass
class TokenCounts:
    """Tokens that went through the model so far."""

    tokens: int = 0
    slots: int = 0
    """Tokens and padding."""


@dataclass(frozen=True)
class PlannedRow:
    """A row of `trie` that is to be read: examples by their places, behind `trunk` tokens."""

    trunk: int
    examples: list[int]
    slots: int
    longest: int
    """Tokens of the longest prompt."""
    branches: bool

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes that decide whether a model reads the row rightly: a window counts tokens, or slots."""
        joined, branching = len(self.examples) > 1, self.branches
        return self.longest, self.trunk + self.slots, self.trunk, joined * self.longest, branching * self.longest


LAYOUTS = {"trie": ("joined", "alone"), "plain": ("plain",), "auto": ("joined", "alone", "plain")}
"""For each engine, the layouts to try, fastest first. joined: rows of several examples, behind trunks."""


class PromptScorer:
    """Scores prompts. `engine` is trie, plain, or auto: `trie` if the model computes it rightly.

    `trie` is compared with `plain` before it is used, on the rows of the plan that are extreme in one of their `sizes`.
    `layout` then names the layout that is used, and `refused` says why others are not. Raises ModelError if `trie` is
    requested and wrong for the model, and for prompts longer than its context.

    The token `unscored` is neither scored nor counted, wherever it stands. With `labels_only`, the head reads only
    hidden states that predict the labels' own tokens; with `greedy`, losses say whether these were the most likely
    ones. `section` is the part of the settings that errors name.
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
        self.layout = ""
        self.refused: dict[str, str] = {}
        self.counts = TokenCounts()
        self._wanted = engine
        self._unscored = unscored
        self._labels_only = labels_only
        self._greedy = greedy
        self._section = section
        device = next(model.parameters()).device.type
        self._budget = token_budget or TOKEN_BUDGET.get(device, TOKEN_BUDGET["cuda"])
        self._compared = [0] * 6
        """The largest sizes of the rows that were compared with `plain`, and the longest prompt with a mask."""
        self._planned: dict[tuple[tuple[int, ...], ...], tuple[int, int]] = {}
        """The tokens of an example -> those of its trunk, and its row."""
        self._kept: tuple[KeptTrunk, np.ndarray] | None = None
        """The trunk of the last batch, and the losses and misses of its tokens, (2, C)."""
        # All rows of the head, padding included, as in OpenICL and lm-eval.
        self._head = probe_head(model)

    @property
    def engine(self) -> str:
        """The engine that is used."""
        return "plain" if self.layout == "plain" else "trie"

    def batches(self, prompts: Sequence[LabelPrompts]) -> list[list[int]]:
        """Return the places of prompts that are scored together, batch by batch. The engine is chosen here."""
        if not prompts:
            return []
        longest, context = max(prompts, key=lambda prompt: prompt.longest), context_of(self.model)
        if context is not None and longest.longest - 1 > context:  # on a GPU the model's own error says nothing
            raise ModelError(
                f"The prompt of example {longest.id} has {longest.longest} tokens, but {type(self.model).__name__} "
                f"reads at most {context}, and the last one is not read; use --set "
                f"{self._section}.max_length={context}, or fewer shots."
            )
        for layout in LAYOUTS[self._wanted]:
            self.layout = layout
            if layout == "plain":
                break
            rows = self._plan(prompts)
            if self._refusal(prompts, rows) is None:
                return self._trie_batches(prompts, rows)
        if self.layout != "plain":
            raise ModelError(
                f"{self._section}.engine=trie does not give what {type(self.model).__name__} computes from each prompt "
                f"by itself: {self.refused[self.layout]}. Use --set {self._section}.engine=auto."
            )
        # The rows of `plain` are padded to the longest prompt of an example.
        slots = [len(prompt.tokens) * max(1, prompt.longest - 1) for prompt in prompts]
        return by_length(slots, self._budget, PADDING)

    def _plan(self, prompts: Sequence[LabelPrompts]) -> list[PlannedRow]:
        groups = [(0, (i,)) for i in range(len(prompts))]
        if self.layout == "joined":
            groups = trunks([self._start(prompt) for prompt in prompts], TRUNK, self._budget // 2)
        rows: list[PlannedRow] = []
        for trunk, examples in sorted(groups, key=lambda group: -group[0]):
            last: PlannedRow | None = None
            for i in examples:
                row = _planned(prompts, trunk, [i])
                if last is not None and self.layout == "joined":
                    common = alike(self._start(prompts[last.examples[-1]]), self._start(prompts[i])) - trunk
                    if 2 * common >= row.slots:  # half of it or more is in the row
                        joined = _planned(prompts, trunk, [*last.examples, i])
                        if joined.slots <= ROW:
                            row = joined
                            rows.pop()
                rows.append(row)
                last = row
        for number, row in enumerate(rows):
            for i in row.examples:
                self._planned[prompts[i].tokens] = row.trunk, number
        return rows

    def _start(self, prompt: LabelPrompts) -> tuple[int, ...]:
        """Return the tokens that may be read for several examples: shared by all labels, and of none if these alone
        are scored."""
        shared = prompt.shared
        if self._labels_only:
            shared = min(shared, *(prompt.label_starts or (0,)))
        return prompt.tokens[0][:shared]

    def _refusal(self, prompts: Sequence[LabelPrompts], rows: Sequence[PlannedRow]) -> str | None:
        """Return why the model does not read rows rightly, or None. Rows within those compared before are not tried."""
        masked = any(row.branches for row in rows)
        extreme, sizes = [], []
        for k in range(5):
            extreme.append(max(rows, key=lambda row: row.sizes[k]))
            sizes.append(extreme[k].sizes[k])
        sizes.append(masked * sizes[0])
        if all(size <= compared for size, compared in zip(sizes, self._compared, strict=True)):
            return None
        with reading(self.model) as device:
            for row in {id(row): row for row in extreme}.values():
                reason = difference_from_plain(self.model, prompts, row.examples, row.trunk, device, masked)
                if reason is not None:
                    self.refused[self.layout] = reason
                    return reason
        self._compared = list(map(max, sizes, self._compared))
        return None

    def _trie_batches(self, prompts: Sequence[LabelPrompts], rows: Sequence[PlannedRow]) -> list[list[int]]:
        by_trunk: dict[tuple[int, ...], list[PlannedRow]] = {}
        for row in rows:
            by_trunk.setdefault(prompts[row.examples[0]].tokens[0][: row.trunk], []).append(row)
        batches = []
        for tokens, behind in by_trunk.items():
            copied = len(tokens) // TRUNK_SHARE
            for places in by_length([row.slots + copied for row in behind], self._budget, PADDING):
                batch: list[int] = []
                for place in places:
                    batch += behind[place].examples
                batches.append(batch)
        return batches

    def losses(self, prompts: Sequence[LabelPrompts]) -> list[Losses]:
        """Return the losses of each prompt's labels; log-probabilities are float32, whatever the model's precision.

        Prompts that were not planned are compared by themselves, and change nothing for others: an interrupted run
        gives the same numbers.
        """
        trunk, groups, layout = 0, [[b] for b in range(len(prompts))], self.layout
        if layout != "plain":
            if all(prompt.tokens in self._planned for prompt in prompts):
                trunk, groups = self._rows(prompts)
            elif self._refusal(prompts, [_planned(prompts, 0, group) for group in groups]) is not None:
                layout = "plain"
        kept, trunk_2C = None, np.zeros((2, 0))
        with reading(self.model) as device:
            if trunk:
                kept, trunk_2C = self._trunk(prompts[0].tokens[0][:trunk], device)
            rows = [make_row(prompts, group, trunk) for group in groups]
            chosen = [self._scored(prompts, row) for row in rows]
            scored = scored_tokens(rows, chosen)
            if layout == "plain":
                done = read_plain(self.model, prompts, scored, device)
            else:
                done = read_trie(self.model, rows, kept, scored, device)
            read_2N = self._read(done.hidden_ND, scored.target_N)
        self.counts.tokens += done.tokens
        self.counts.slots += done.slots
        read_of: Paths = {}
        first = 0
        for row, chosen_K in zip(rows, chosen, strict=True):
            read_2K = np.zeros((2, len(chosen_K)))
            stop = first + int(chosen_K.sum())
            read_2K[:, chosen_K] = read_2N[:, first:stop]
            first = stop
            for owner, path_K in row.paths.items():
                read_of[owner] = np.hstack([trunk_2C, read_2K[:, path_K]])
        return [self._losses_of(b, prompt, read_of) for b, prompt in enumerate(prompts)]

    def _rows(self, prompts: Sequence[LabelPrompts]) -> tuple[int, list[list[int]]]:
        """Return the tokens of the trunk of a batch, and its examples row by row, as planned."""
        rows: dict[int, list[int]] = {}
        lengths = []
        for b, prompt in enumerate(prompts):
            length, row = self._planned[prompt.tokens]
            lengths.append(length)
            rows.setdefault(row, []).append(b)
        trunk = min(lengths)
        start = prompts[0].tokens[0][:trunk]
        if any(self._start(prompt)[:trunk] != start for prompt in prompts):
            trunk = 0  # a batch of the caller's own
        return trunk, list(rows.values())

    def _trunk(self, tokens: tuple[int, ...], device: torch.device) -> tuple[KeptTrunk, np.ndarray]:
        """Return a trunk and the losses of its tokens, (2, C); they are read if the last batch had another one."""
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
                if starts is not None:
                    path_K = path_K[row.place_K[path_K] >= starts[label]]
                own_K[path_K] = True
            wanted_K &= own_K
        return wanted_K

    def _read(self, hidden_ND: Any, target_N: np.ndarray) -> np.ndarray:
        """Return the loss of each token, and with `greedy` whether another one was more likely, (2, N)."""
        targets_N = torch.from_numpy(target_N).to(hidden_ND.device)
        needs = {"log_prob", GREEDY} if self._greedy else {"log_prob"}
        statistics = token_statistics(hidden_ND, self._head, targets_N, frozenset(needs))
        missed_N = 1 - statistics[GREEDY] if self._greedy else torch.zeros_like(statistics.log_prob)
        return torch.stack([-statistics.log_prob, missed_N]).double().cpu().numpy()

    def _losses_of(self, b: int, prompt: LabelPrompts, read_of: Paths) -> Losses:
        """Add up a prompt's losses, in float64; a label's own may begin in the trunk."""
        prompt_nats, prompt_tokens, label_nats, label_tokens, greedy = [], [], [], [], []
        for label, ids in enumerate(prompt.tokens):
            nats_T, missed_T = read_of[b, label]
            counted_T = np.asarray(ids) != self._unscored
            prompt_tokens.append(int(counted_T.sum()))
            if not self._labels_only:
                prompt_nats.append(float(nats_T.sum()))
            if prompt.label_starts is not None:
                start = prompt.label_starts[label]
                label_nats.append(float(nats_T[start:].sum()))
                label_tokens.append(int(counted_T[start:].sum()))
                if self._greedy:
                    greedy.append(not missed_T[start:].any())
        return Losses(*map(tuple, (prompt_nats, prompt_tokens, label_nats, label_tokens, greedy)))


def _planned(prompts: Sequence[LabelPrompts], trunk: int, examples: list[int]) -> PlannedRow:
    row = make_row(prompts, examples, trunk)
    longest = max(prompts[i].longest for i in examples)
    return PlannedRow(trunk, examples, row.slots, longest, row.branches)
