"""From texts to training rows: blocks of equal length from concatenated texts, or one text per row.

All tokens are in one int32 array (4 bytes per token: 100M tokens are 400 MB). A row is a slice of it. In a file, it is
mapped into memory when it is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emobench.core.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

IGNORE = -100  # label of tokens that are not targets
WEIGHTS = "example_weights"
"""The batch column with the weight of each token in the loss, (B, T), where tokens differ in it."""
GROUP = 1000
"""Texts that are tokenized together, and concatenated."""
Progress = Callable[[int, int], None]


class Numbers(NamedTuple):
    """What a column of the data has for the tokens of a row."""

    what: str
    """The row and the column, for errors."""
    value: Any
    """One number, or a list with an item for each response: a number, or a list with one for each of its tokens."""

    def of_tokens(self, responses_T: Sequence[int]) -> NDArray[np.float32]:
        """Return a number for each token, (T,). `responses_T` is the response of each token, from 1; 0 is none.

        Raises DataError if a list has another length than its response.
        """
        if not isinstance(self.value, list):
            return np.full(len(responses_T), self.value, dtype=np.float32)
        numbers_T = np.zeros(len(responses_T), dtype=np.float32)
        for response, own in enumerate(self.value, 1):
            places = np.flatnonzero(np.equal(responses_T, response))
            if not len(places):
                continue  # it has no loss
            if isinstance(own, list) and len(own) != len(places):
                whose = f" of response {response}" if len(self.value) > 1 else ""
                raise DataError(
                    f"{self.what} has {len(own)} numbers for {len(places)} tokens{whose}; expected one for each token, "
                    "with the one that ends it."
                )
            numbers_T[places] = own
        return numbers_T


RowNumbers = Mapping[str, Numbers]
"""The numbers of a row of the data, by the names of their columns in a batch."""


def token_records(numbers: RowNumbers, responses_T: Sequence[int]) -> NDArray[np.void]:
    """Return a record for each token, (T,), with a float32 field for each column."""
    records_T = np.zeros(len(responses_T), dtype=[(name, np.float32) for name in numbers])
    for name, column in numbers.items():
        records_T[name] = column.of_tokens(responses_T)
    return records_T


@dataclass
class Counts:
    """Conversations by their lengths, whose tokens may be more than a row has."""

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

    def __str__(self) -> str:
        return (
            f"{self.shortened:,} conversations were cut at the end, {self.dropped:,} left out because no response "
            f"remained; {self.lost:,} responses were cut off whole, and {self.blank:,} rows had a blank one; "
            f"{self.ended:,} with the token that ends responses were left out"
        )


@dataclass(frozen=True, eq=False)
class Packed:
    """Rows for a trainer: `rows[i]` is {"input_ids": int32 (T_i,), "labels": int32 (T_i,), "row": i}.

    Labels are not shifted. `sources` is the index of the text of each token, or None.

    With `starts`, the first token of each conversation in `tokens`, a row also has "position_ids", which begin at 0
    with each conversation. With `columns`, a record for each token, it has each of their fields.
    """

    tokens: NDArray[np.int32]  # all rows, end to end
    labels: NDArray[np.int32]
    offsets: NDArray[np.int64]  # row i is offsets[i]:offsets[i + 1]
    sources: NDArray[np.int32] | None = None
    starts: NDArray[np.int64] | None = None
    columns: NDArray[np.void] | None = None
    counts: Counts | None = None
    """Of conversations."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> dict[str, Any]:
        place = range(len(self))[index]
        begin, end = map(int, self.offsets[place : place + 2])
        row = {"input_ids": self.tokens[begin:end], "labels": self.labels[begin:end], "row": place}
        if self.columns is not None:
            for name in self.column_names:
                row[name] = self.columns[name][begin:end]
        if self.starts is not None:
            first, last = np.searchsorted(self.starts, (begin, end))
            own = self.starts[first:last]
            row["position_ids"] = np.arange(begin, end) - np.repeat(own, np.diff(own, append=end))
        return row

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(self.__getitem__, range(len(self)))

    @property
    def column_names(self) -> tuple[str, ...]:
        return () if self.columns is None else self.columns.dtype.names or ()

    @property
    def target_count(self) -> int:
        """The number of targets: labels that are not ignored, except the first of each row, which is not predicted."""
        return int((self.labels != IGNORE).sum() - (self.labels[self.offsets[:-1]] != IGNORE).sum())

    def first(self, tokens: int) -> Packed:
        """Return the first rows, with at most `tokens` tokens in total, but at least one row."""
        rows = max(1, int(np.searchsorted(self.offsets, tokens, side="right")) - 1)
        end = self.offsets[rows]
        cut: dict[str, Any] = {"offsets": self.offsets[: rows + 1]}
        for name in ("tokens", "labels", "sources", "columns"):
            if getattr(self, name) is not None:
                cut[name] = getattr(self, name)[:end]
        if self.starts is not None:
            cut["starts"] = self.starts[self.starts < end]
        return replace(self, **cut)

    def save(self, folder: Path) -> None:
        """Write the rows into a folder, without `sources`; without labels.npy, the labels are the tokens."""
        arrays = {"tokens": self.tokens, "offsets": self.offsets, "starts": self.starts, "columns": self.columns}
        if self.labels is not self.tokens:
            arrays["labels"] = self.labels
        for name, array in arrays.items():
            if array is not None:
                np.save(folder / f"{name}.npy", array)
        if self.counts is not None:
            (folder / "responses.json").write_text(json.dumps(vars(self.counts)) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Packed:
        """Return rows that were saved; tokens and labels cannot be written, and are read from the disk as needed."""
        parts: dict[str, Any] = {}
        for file in folder.glob("*.npy"):
            mode: Any = None
            if file.stem in ("tokens", "labels"):
                mode = "r"
            # A plain view: slices of a memmap object cost several times as much.
            parts[file.stem] = np.asarray(np.load(file, mmap_mode=mode))
        parts.setdefault("labels", parts["tokens"])
        return cls(**parts)


def pack_blocks(
    texts: Sequence[str],
    tokenizer: Any,
    *,
    length: int,
    eos_between: bool = False,
    with_sources: bool = False,
    progress: Progress | None = None,
) -> Packed:
    """Return blocks of `length` tokens. Each `GROUP` texts are concatenated and cut, and the remainder is dropped.

    This equals transformers' run_clm.py (`tokenizer(texts)`, then `group_texts` in batches of 1,000), which the
    official code uses. Between texts there are only the tokens that the tokenizer adds to a text: none for GPT-2, a
    leading BOS for OPT and LLaMA (also for empty lines). `eos_between` adds EOS after each text with tokens.
    `with_sources` stores the text of each token. Raises DataError if there is no full block.
    """
    eos = [_special_id(tokenizer, "eos")] if eos_between else []
    blocks, sources = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
    number = total = 0
    for batch in _batches(texts, progress):
        tokens: list[int] = []
        owners: list[int] = []
        for row in _tokenize(tokenizer, batch, add_special_tokens=True):
            if row:
                tokens += row + eos
            if with_sources:
                owners += [number] * (len(tokens) - len(owners))
            number += 1
        kept = len(tokens) // length * length
        blocks.append(np.array(tokens[:kept], dtype=np.int32))
        sources.append(np.array(owners[:kept], dtype=np.int32))
        total += len(tokens)
    packed = np.concatenate(blocks)
    if not len(packed):
        raise DataError(
            f"No block of {length} tokens fits: each group of {GROUP:,} texts is cut by itself, and the {len(texts):,} "
            f"texts have {total:,} tokens in all. Give more text or a shorter length."
        )
    offsets = np.arange(0, len(packed) + 1, length, dtype=np.int64)
    return Packed(packed, packed, offsets, sources=np.concatenate(sources) if with_sources else None)


def pack_rows(
    texts: Sequence[str],
    tokenizer: Any,
    *,
    length: int,
    ends: bool = False,
    mask_until: str = "",
    numbers: Sequence[RowNumbers] = (),
    progress: Progress | None = None,
) -> Packed:
    """Return one row per text, cut to `length`: its tokens, with `ends` between BOS and EOS.

    `numbers` are those of each text's tokens and, with `ends`, of its EOS, if the data have columns.

    With `mask_until`, the tokens up to the end of the marker's first occurrence (a prompt) are not targets. A text
    without the marker, or cut before the end of the marker, is skipped. This needs a fast tokenizer, which knows the
    positions of tokens.

    A text that is cut has no EOS. Blank texts and rows with fewer than two tokens are skipped. Raises
    DataError if no row is left.
    """
    first, last = [], []
    if ends:
        first, last = [_special_id(tokenizer, "bos")], [_special_id(tokenizer, "eos")]
    kept: list[NDArray[np.int32]] = []
    labels: list[NDArray[np.int32]] = []
    columns: list[NDArray[np.void]] = []
    begin = 0
    for batch in _batches(texts, progress):
        places = [place for place, text in enumerate(batch) if text.strip() and mask_until in text]
        usable = [batch[place] for place in places]
        prompts = _tokens_until(tokenizer, usable, mask_until)
        rows = _tokenize(tokenizer, usable, add_special_tokens=False)
        for place, row, prompt in zip(places, rows, prompts, strict=True):
            whole = [*first, *row, *last]
            # The first token is not predicted. A row needs a target after it and after its prompt.
            hidden = len(first) + prompt if mask_until else 0
            if min(len(whole), length) < max(2, hidden + 1):
                continue
            kept.append(np.array(whole[:length], dtype=np.int32))
            labels.append(kept[-1].copy())
            labels[-1][:hidden] = IGNORE
            if numbers:
                responses_T = [0] * len(first) + [1] * len(row + last)
                columns.append(token_records(numbers[begin + place], responses_T)[:length])
        begin += len(batch)
    if not kept:
        raise DataError(
            f"No target token is left in {len(texts):,} texts: a row needs two tokens, one to predict the other. "
            "Give texts that are not blank."
        )
    offsets = np.cumsum([0, *map(len, kept)], dtype=np.int64)
    records = np.concatenate(columns) if columns else None
    return Packed(np.concatenate(kept), np.concatenate(labels), offsets, columns=records)


@dataclass(frozen=True)
class RowCollator:
    """Builds a batch from rows. Pads on the right to the longest row, with `pad_id`, attention 0 and label -100.

    Packed rows have position ids in the place of an attention mask. Without a mask, transformers derives one from
    position ids that begin again: a token sees its own conversation alone (`require_separate_conversations` checks
    that a model does so). Padding is then a conversation without a target.
    """

    pad_id: int

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Return int64 tensors (B, T): input_ids, attention_mask or position_ids, and labels.

        Labels are not shifted, as transformers expects. If the rows have indices, `row`, (B,), contains them. Further
        columns of the rows are (B, T), float32, and 0 at padding.
        """
        import torch

        longest = max(len(row["input_ids"]) for row in rows)
        shown = "position_ids" if "position_ids" in rows[0] else "attention_mask"
        fills = {"input_ids": self.pad_id, shown: 0, "labels": IGNORE}
        columns = [name for name in rows[0] if name not in (*fills, "row")]
        batch = {}
        for name in (*fills, *columns):
            array = np.full((len(rows), longest), fills.get(name, 0), np.float32 if name in columns else np.int64)
            for padded, row in zip(array, rows, strict=True):
                size = len(row["input_ids"])
                padded[:size] = row.get(name, 1)
                if name == "position_ids":
                    padded[size:] = np.arange(longest - size)
            batch[name] = torch.from_numpy(array)
        if "row" in rows[0]:
            batch["row"] = torch.tensor([row["row"] for row in rows])
        return batch


def _batches(texts: Sequence[str], progress: Progress | None) -> Iterator[list[str]]:
    for start in range(0, len(texts), GROUP):
        yield list(texts[start : start + GROUP])
        if progress is not None:
            progress(min(start + GROUP, len(texts)), len(texts))


def _tokens_until(tokenizer: Any, batch: list[str], marker: str) -> list[int]:
    """Return for each text the number of tokens that begin before the end of the marker's first occurrence."""
    if not marker or not batch:
        return [0] * len(batch)
    if not getattr(tokenizer, "is_fast", False):
        raise DataError("mask_until needs a fast tokenizer (tokenizer.json); convert this one, or drop mask_until.")
    offsets = tokenizer(batch, add_special_tokens=False, return_offsets_mapping=True, verbose=False)["offset_mapping"]
    counts = []
    for text, row in zip(batch, offsets, strict=True):
        end = text.index(marker) + len(marker)
        counts.append(sum(begin < end for begin, _ in row))
    return counts


def _tokenize(tokenizer: Any, batch: list[str], *, add_special_tokens: bool) -> list[list[int]]:
    if not batch:
        return []
    # Not verbose: texts longer than the model's context are cut later, so no warning is needed.
    try:
        return tokenizer(
            batch, add_special_tokens=add_special_tokens, return_attention_mask=False, truncation=False, verbose=False
        )["input_ids"]
    except Exception as error:  # `tokenizers` raises bare Exceptions, such as for a word it has no token for
        raise DataError(
            f"The model's tokenizer cannot read these texts ({error}). Give texts of its language, or a suite and a "
            "model for these texts, such as --suite lm-quick --model gpt2."
        ) from None


def _special_id(tokenizer: Any, kind: str) -> int:
    token_id = getattr(tokenizer, f"{kind}_token_id")
    if token_id is None:
        raise DataError(f"The tokenizer has no {kind.upper()} token: turn `{kind}` off, or set one in the tokenizer.")
    return token_id
