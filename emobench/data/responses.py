"""From conversations to training rows whose loss is on responses alone: labels, truncation and packing."""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emobench.core.errors import DataError
from emobench.data.conversations import Conversation, EndWithinError, Format, Responses, Tokens
from emobench.data.instruction_sets import Conversations
from emobench.data.packing import IGNORE, WEIGHTS, Packed, Progress, weight_columns

if TYPE_CHECKING:
    from torch import Tensor

BATCH = 500
STARTS, COUNTED, WEIGHED = "starts.npy", "responses.json", "weights.npy"


@dataclass
class Counts:
    """What became of conversations whose tokens are more than a model is to read."""

    whole: int = 0
    shortened: int = 0
    """Responses that lost their end."""
    dropped: int = 0
    """Conversations of whose responses nothing was left."""
    lost: int = 0
    """Responses of which nothing was left."""
    blank: int = 0
    """Rows of the data that were left out because their response is blank."""
    ended: int = 0
    """Conversations that were left out because a response has the token that ends responses."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: value + vars(other)[name] for name, value in vars(self).items()})

    def __str__(self) -> str:
        ended = f"; {self.ended:,} with the token that ends responses were left out" if self.ended else ""
        return (
            f"{self.shortened:,} conversations were cut at the end, {self.dropped:,} left out because no response "
            f"remained; {self.lost:,} responses were cut off whole, and {self.blank:,} rows had a blank one{ended}"
        )


def shortened(examples: Sequence[Tokens | None], length: int) -> tuple[dict[int, Tokens], Counts]:
    """Return the first `length` tokens of each example by its index, without those in which nothing would count.

    None stands for an example with the token that ends responses.
    """
    counts, kept = Counts(), {}
    for index, example in enumerate(examples):
        if example is None:
            counts.ended += 1
            continue
        ids_T, counts_T = example
        counts.lost += sum(begins >= length for begins in _beginnings(counts_T))
        if len(ids_T) <= length:
            counts.whole += 1
        elif any(counts_T[:length]):
            counts.shortened += 1
        else:
            counts.dropped += 1
            continue
        kept[index] = Tokens(ids_T[:length], counts_T[:length])
    return kept, counts


def _beginnings(counts_T: Sequence[bool]) -> list[int]:
    """Return the places where responses begin."""
    return [place for place, counts in enumerate(counts_T) if counts and not (place and counts_T[place - 1])]


@dataclass(frozen=True, eq=False)
class ResponseRows(Packed):
    """Rows of one conversation, or of several, whose labels are IGNORE outside of responses.

    With `starts`, the first token of each conversation in `tokens`, a row also has "position_ids", which begin at 0
    with each conversation. With `weights`, one for each token, it has those of its tokens.
    """

    starts: NDArray[np.int64] | None = None
    weights: NDArray[np.float32] | None = None
    counts: Counts = field(default_factory=Counts)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = super().__getitem__(index)
        begin, end = (int(self.offsets[row["row"] + i]) for i in (0, 1))
        if self.weights is not None:
            row[WEIGHTS] = self.weights[begin:end]
        if self.starts is None:
            return row
        own = self.starts[bisect_left(self.starts, begin) : bisect_left(self.starts, end)]
        sizes = np.diff(np.append(own, end))
        return {**row, "position_ids": np.arange(begin, end) - np.repeat(own, sizes)}

    def first(self, tokens: int) -> ResponseRows:
        """Return the first rows, with at most `tokens` tokens in total, but at least one row."""
        found = super().first(tokens)
        assert isinstance(found, ResponseRows)
        end = found.offsets[-1]
        return replace(
            found,
            starts=None if self.starts is None else self.starts[self.starts < end],
            weights=None if self.weights is None else self.weights[:end],
        )

    def save(self, folder: Path) -> None:
        """Write the rows into a folder."""
        super().save(folder)
        for name, values in ((STARTS, self.starts), (WEIGHED, self.weights)):
            if values is not None:
                np.save(folder / name, values)
        (folder / COUNTED).write_text(json.dumps(vars(self.counts)) + "\n")

    @classmethod
    def load(cls, folder: Path) -> ResponseRows:
        """Return rows that were saved."""
        found = super().load(folder)
        assert isinstance(found, ResponseRows)
        starts, weights = (np.load(file) if (file := folder / name).exists() else None for name in (STARTS, WEIGHED))
        counts = Counts(**json.loads((folder / COUNTED).read_text()))
        return replace(found, starts=starts, weights=weights, counts=counts)


def response_rows(
    conversations: Conversations,
    layout: Format,
    *,
    responses: Responses,
    length: int,
    packed: bool = False,
    progress: Progress | None = None,
) -> ResponseRows:
    """Return one row for each conversation, or with `packed` rows of several whole ones, of at most `length` tokens.

    A conversation that is longer is cut at its end; `counts` says what was lost. Packed rows are filled by best fit.
    Raises DataError for a conversation that the format refuses, and if no row is left.
    """
    tokens: list[NDArray[np.int32]] = []
    labels: list[NDArray[np.int32]] = []
    weights: list[float] = []
    counts, dropped = Counts(blank=conversations.blank), 0
    for begin in range(0, len(conversations), BATCH):
        some = range(begin, min(begin + BATCH, len(conversations)))
        examples = [_tokens(layout, conversations.conversation(i), responses) for i in some]
        kept, found = shortened(examples, length)
        counts += found
        all_tokens = sum(len(example.ids_T) for example in examples if example)
        dropped += all_tokens - sum(len(ids_T) for ids_T, _ in kept.values())
        if conversations.weights is not None:
            weights += [conversations.weights[begin + index] for index in kept]
        for ids_T, counts_T in kept.values():
            tokens.append(np.array(ids_T, dtype=np.int32))
            labels.append(np.where(counts_T, tokens[-1], IGNORE).astype(np.int32))
            labels[-1][0] = IGNORE  # it is not predicted; in a packed row, the end of another one is before it
        if progress is not None:
            progress(some.stop, len(conversations))
    if not tokens:
        raise DataError(
            f"No response fits: each of the {len(conversations):,} conversations of {conversations.corpus} has "
            f"{length} tokens or more before its response, or in it the token that ends responses ({counts}). Set a "
            "larger recipe.max_length."
        )
    sizes = [len(row) for row in tokens]
    rows = best_fit(sizes, length) if packed else [[i] for i in range(len(sizes))]
    order = [i for row in rows for i in row]
    ends = np.cumsum([sizes[i] for i in order])
    return ResponseRows(
        np.concatenate([tokens[i] for i in order]),
        np.concatenate([labels[i] for i in order]),
        np.cumsum([0, *(sum(sizes[i] for i in row) for row in rows)]).astype(np.int64),
        dropped,
        counts.dropped,
        starts=np.concatenate([[0], ends[:-1]]).astype(np.int64) if packed else None,
        weights=np.repeat(np.array(weights, dtype=np.float32)[order], np.array(sizes)[order]) if weights else None,
        counts=counts,
    )


def _tokens(layout: Format, conversation: Conversation, responses: Responses) -> Tokens | None:
    try:
        return layout.tokens(conversation, responses)
    except EndWithinError:
        return None


def best_fit(sizes: Sequence[int], length: int) -> list[list[int]]:
    """Return the items of each row: the largest first, each in the fullest row that has room (best fit decreasing)."""
    rows: list[list[int]] = []
    room: list[tuple[int, int]] = []  # (free, row), sorted
    for item in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        place = bisect_left(room, (sizes[item], -1))
        if place == len(room):
            free, row = length, len(rows)
            rows.append([])
        else:
            free, row = room.pop(place)
        rows[row].append(item)
        insort(room, (free - sizes[item], row))
    return sorted(sorted(row) for row in rows)


@dataclass(frozen=True)
class PackedCollator:
    """Builds a batch from packed rows: position ids in the place of an attention mask.

    Without a mask, transformers derives one from position ids that begin again: a token sees its own conversation alone
    (`require_separate_conversations` checks that a model does so). Padding on the right is a conversation without a
    target.
    """

    pad_id: int

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Return int64 tensors (B, T): input_ids, position_ids and labels; and `row`, (B,).

        If the rows have weights, `WEIGHTS` contains them, (B, T), float32.
        """
        import torch

        longest = max(len(row["input_ids"]) for row in rows)
        padding = {"input_ids": self.pad_id, "labels": IGNORE, "position_ids": 0}
        arrays = {name: np.full((len(rows), longest), fill, dtype=np.int64) for name, fill in padding.items()}
        for i, row in enumerate(rows):
            size = len(row["input_ids"])
            for name, array in arrays.items():
                array[i, :size] = row[name]
            arrays["position_ids"][i, size:] = np.arange(longest - size)
        arrays["row"] = np.array([row["row"] for row in rows])
        columns = {**arrays, **weight_columns(rows, longest)}
        return {name: torch.from_numpy(array) for name, array in columns.items()}
