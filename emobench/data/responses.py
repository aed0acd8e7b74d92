"""From conversations to training rows whose loss is on responses alone: labels, truncation and packing."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from emobench.core.errors import DataError
from emobench.data.conversations import EndWithinError, Format, Responses, Tokens
from emobench.data.instruction_sets import Conversations
from emobench.data.packing import IGNORE, Counts, Packed, Progress, token_records

BATCH = 500
"""Conversations between two reports of progress."""


def response_rows(
    conversations: Conversations,
    layout: Format,
    *,
    responses: Responses,
    length: int,
    packed: bool = False,
    progress: Progress | None = None,
) -> Packed:
    """Return one row for each conversation, or with `packed` rows of several whole ones, of at most `length` tokens.

    Labels are IGNORE outside of responses. A conversation that is longer is cut at its end; `counts` has the
    losses. Packed rows are filled by best fit. Raises DataError for a conversation that the format refuses, and if no
    row is left.
    """
    tokens: list[NDArray[np.int32]] = []
    labels: list[NDArray[np.int32]] = []
    columns: list[NDArray[np.void]] = []
    counts, total = Counts(blank=conversations.blank), len(conversations)
    for index in range(total):
        conversation = conversations.conversation(index)
        try:
            example = layout.tokens(conversation, responses)
        except EndWithinError:
            counts.ended += 1
            continue
        ids_T, counts_T = shortened(example, length, counts)
        if ids_T:
            tokens.append(np.array(ids_T, dtype=np.int32))
            labels.append(np.where(counts_T, tokens[-1], IGNORE).astype(np.int32))
            labels[-1][0] = IGNORE  # it is not predicted; in a packed row, the end of another one is before it
            if conversation.numbers:
                columns.append(token_records(conversation.numbers, example.counts_T)[:length])
        if progress is not None and (index + 1) % BATCH == 0:
            progress(index + 1, total)
    if progress is not None:
        progress(total, total)
    if not tokens:
        raise DataError(
            f"No response fits: each of the {total:,} conversations of {conversations.corpus} has {length} tokens or "
            f"more before its response, or in it the token that ends responses ({counts}). Set a larger "
            "recipe.max_length."
        )
    sizes = np.array(list(map(len, tokens)))
    rows = [[index] for index in range(len(tokens))]
    if packed:
        rows = best_fit(sizes.tolist(), length)
    order = np.concatenate(rows)
    bounds = np.cumsum([0, *sizes[order]], dtype=np.int64)  # conversation i of this order is bounds[i]:bounds[i + 1]
    offsets = bounds[np.cumsum([0, *map(len, rows)])]
    starts = records = None
    if packed:
        starts = bounds[:-1]
    if columns:
        records = np.concatenate(list(map(columns.__getitem__, order)))
    return Packed(
        np.concatenate(list(map(tokens.__getitem__, order))),
        np.concatenate(list(map(labels.__getitem__, order))),
        offsets,
        starts=starts,
        columns=records,
        counts=counts,
    )


def shortened(example: Tokens, length: int, counts: Counts) -> Tokens:
    """Return the first `length` tokens of an example, or none if no response is in them; it is counted."""
    ids_T, counts_T = example
    for place in range(length, len(ids_T)):
        if counts_T[place] and not counts_T[place - 1]:
            counts.lost += 1
    if len(ids_T) <= length:
        counts.whole += 1
    elif any(counts_T[:length]):
        counts.shortened += 1
    else:
        counts.dropped += 1
        return Tokens([], [])
    return Tokens(ids_T[:length], counts_T[:length])


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
