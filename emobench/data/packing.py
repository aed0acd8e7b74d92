"""From texts to training rows: blocks of equal length from concatenated texts, or one text per row.

All tokens are in one int32 array (4 bytes per token: 100M tokens are 400 MB). A row is a slice of it. In a file, it is
mapped into memory when it is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emobench.core.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

IGNORE = -100  # label of tokens that are not targets
WEIGHTS = "example_weights"
"""The batch column with the weight of each token's example in the loss, (B, T), where examples differ in it."""
Progress = Callable[[int, int], None]
TOKENS, LABELS, OFFSETS, COUNTS = "tokens.npy", "labels.npy", "offsets.npy", "counts.json"
"""The files of packed rows; without labels, these are the tokens."""


@dataclass(frozen=True, eq=False)
class Packed:
    """Rows for a trainer: `rows[i]` is {"input_ids": int32 (T_i,), "labels": int32 (T_i,), "row": i}.

    Labels are not shifted. `dropped` is the number of tokens that were cut off. `skipped` is the number of texts
    without a row (blank, or without a target). `sources` is the index of the text of each token, or None.
    """

    tokens: NDArray[np.int32]  # all rows, end to end
    labels: NDArray[np.int32]
    offsets: NDArray[np.int64]  # row i is offsets[i]:offsets[i + 1]
    dropped: int = 0
    skipped: int = 0
    sources: NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        row = slice(self.offsets[index % len(self)], self.offsets[index % len(self) + 1])
        return {"input_ids": self.tokens[row], "labels": self.labels[row], "row": index % len(self)}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[index] for index in range(len(self)))

    @property
    def token_count(self) -> int:
        """The number of tokens in all rows."""
        return len(self.tokens)

    def first(self, tokens: int) -> Packed:
        """Return the first rows, with at most `tokens` tokens in total, but at least one row."""
        rows = max(1, int(np.searchsorted(self.offsets, tokens, side="right")) - 1)
        end, sources = self.offsets[rows], self.sources
        return replace(
            self,
            tokens=self.tokens[:end],
            labels=self.labels[:end],
            offsets=self.offsets[: rows + 1],
            sources=None if sources is None else sources[:end],
        )

    def save(self, folder: Path) -> None:
        """Write the rows into a folder, without `sources`."""
        np.save(folder / TOKENS, self.tokens)
        if self.labels is not self.tokens:
            np.save(folder / LABELS, self.labels)
        np.save(folder / OFFSETS, self.offsets)
        (folder / COUNTS).write_text(json.dumps({"dropped": self.dropped, "skipped": self.skipped}) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Packed:
        """Return rows that were saved; tokens and labels cannot be written, and are read from the disk as needed."""
        # A plain view: slices of a memmap object cost several times as much.
        tokens = np.asarray(np.load(folder / TOKENS, mmap_mode="r"))
        has_labels = (folder / LABELS).exists()
        labels = np.asarray(np.load(folder / LABELS, mmap_mode="r")) if has_labels else tokens
        return cls(tokens, labels, np.load(folder / OFFSETS), **json.loads((folder / COUNTS).read_text()))

    @property
    def target_count(self) -> int:
        """The number of targets: labels that are not ignored, except the first of each row, which is not predicted."""
        return int((self.labels != IGNORE).sum() - (self.labels[self.offsets[:-1]] != IGNORE).sum())


def pack_blocks(
    texts: Sequence[str],
    tokenizer: Any,
    *,
    length: int,
    group: int = 1000,
    eos_between: bool = False,
    add_special_tokens: bool = True,
    context: int | None = None,
    with_sources: bool = False,
    progress: Progress | None = None,
) -> Packed:
    """Return blocks of `length` tokens. Each `group` texts are concatenated and cut, and the remainder is dropped.

    This equals transformers' run_clm.py (`tokenizer(texts)`, then `group_texts` in batches of 1,000), which the
    official code uses. Between texts there are only the tokens that the tokenizer adds to a text: none for GPT-2, a
    leading BOS for OPT and LLaMA (also for empty lines). `add_special_tokens=False` omits them. `eos_between` adds
    EOS after each text with tokens. `with_sources` stores the text of each token. Raises DataError if there is no full
    block, or the length is larger than the model's context.
    """
    _check_length(length, context)
    eos = [_special_id(tokenizer, "eos")] if eos_between else []
    blocks: list[NDArray[np.int32]] = []
    sources: list[NDArray[np.int32]] = []
    dropped = 0
    for start in range(0, len(texts), group):
        batch = list(texts[start : start + group])
        rows = _tokenize(tokenizer, batch, add_special_tokens)
        tokens = np.fromiter((t for row in rows if row for t in (*row, *eos)), dtype=np.int32)
        kept = len(tokens) // length * length
        blocks.append(tokens[:kept])
        if with_sources:
            sizes = [len(row) + len(eos) if row else 0 for row in rows]
            sources.append(np.repeat(np.arange(start, start + len(rows), dtype=np.int32), sizes)[:kept])
        dropped += len(tokens) - kept
        if progress is not None:
            progress(min(start + group, len(texts)), len(texts))
    tokens = np.concatenate(blocks) if blocks else np.empty(0, np.int32)
    if not len(tokens):
        raise DataError(
            f"No block of {length} tokens fits: each group of {group:,} texts is cut by itself, and the {len(texts):,} "
            f"texts have {dropped:,} tokens in all. Give more text or a shorter length."
        )
    offsets = np.arange(0, len(tokens) + 1, length, dtype=np.int64)
    return Packed(tokens, tokens, offsets, dropped, sources=np.concatenate(sources) if with_sources else None)


def pack_rows(
    texts: Sequence[str],
    tokenizer: Any,
    *,
    length: int,
    bos: bool = False,
    eos: bool = False,
    mask_until: str | None = None,
    context: int | None = None,
    progress: Progress | None = None,
) -> Packed:
    """Return one row per text: [BOS] tokens [EOS], cut to `length`. BOS and EOS are added only with `bos` and `eos`.

    With `mask_until`, the tokens up to the end of the marker's first occurrence (a prompt) are not targets. A text
    without the marker, or cut before the end of the marker, is skipped. This needs a fast tokenizer, which knows the
    positions of tokens.

    A text that is cut has no EOS. Blank texts and rows with fewer than two tokens are skipped and counted. Raises
    DataError if no row is left, or the length is larger than the model's context.
    """
    _check_length(length, context)
    first = [_special_id(tokenizer, "bos")] if bos else []
    last = [_special_id(tokenizer, "eos")] if eos else []
    kept: list[NDArray[np.int32]] = []
    labels: list[NDArray[np.int32]] = []
    dropped = skipped = 0
    for start in range(0, len(texts), 1000):
        batch = [text for text in texts[start : start + 1000] if text.strip() and (mask_until or "") in text]
        skipped += len(texts[start : start + 1000]) - len(batch)
        rows = _tokenize(tokenizer, batch, add_special_tokens=False)
        masked = _tokens_until(tokenizer, batch, mask_until) if mask_until else [0] * len(rows)
        for row, prompt in zip(rows, masked, strict=True):
            whole = [*first, *row, *last]
            # The first token is not predicted. A row needs a target after it and after its prompt.
            hidden = len(first) + prompt if mask_until else 0
            if min(len(whole), length) < max(2, hidden + 1):
                skipped += 1
                continue
            kept.append(np.array(whole[:length], dtype=np.int32))
            labels.append(kept[-1].copy())
            labels[-1][:hidden] = IGNORE
            dropped += len(whole) - len(kept[-1])
        if progress is not None:
            progress(min(start + 1000, len(texts)), len(texts))
    if not kept:
        raise DataError(
            f"No target token is left in {len(texts):,} texts: a row needs two tokens, one to predict the other. "
            "Give texts that are not blank."
        )
    tokens = np.concatenate(kept)
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in kept])]).astype(np.int64)
    return Packed(tokens, np.concatenate(labels), offsets, dropped, skipped)


@dataclass(frozen=True)
class RowCollator:
    """Builds a batch from rows. Pads on the right to the longest row, with `pad_id`, attention 0 and label -100."""

    pad_id: int

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Return int64 tensors (B, T): input_ids, attention_mask, and labels (not shifted, as transformers expects).

        If the rows have indices, `row`, (B,), contains them; if they have weights, `WEIGHTS` does, float32.
        """
        import torch

        longest = max(len(row["input_ids"]) for row in rows)
        ids = np.full((len(rows), longest), self.pad_id, dtype=np.int64)
        labels = np.full((len(rows), longest), IGNORE, dtype=np.int64)
        mask = np.zeros((len(rows), longest), dtype=np.int64)
        for i, row in enumerate(rows):
            size = len(row["input_ids"])
            ids[i, :size], labels[i, :size], mask[i, :size] = row["input_ids"], row["labels"], 1
        arrays = {"input_ids": ids, "attention_mask": mask, "labels": labels, **weight_columns(rows, longest)}
        if all("row" in row for row in rows):
            arrays["row"] = np.array([row["row"] for row in rows])
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


def weight_columns(rows: Sequence[Mapping[str, Any]], longest: int) -> dict[str, NDArray[np.float32]]:
    """Return the column `WEIGHTS` of a batch whose longest row has `longest` tokens, or nothing if rows have none."""
    if not all(WEIGHTS in row for row in rows):
        return {}
    weights = np.zeros((len(rows), longest), dtype=np.float32)
    for weight_T, row in zip(weights, rows, strict=True):
        weight_T[: len(row[WEIGHTS])] = row[WEIGHTS]
    return {WEIGHTS: weights}


def _tokens_until(tokenizer: Any, batch: list[str], marker: str) -> list[int]:
    """Return for each text the number of tokens that begin before the end of the marker's first occurrence."""
    if not getattr(tokenizer, "is_fast", False):
        raise DataError("mask_until needs a fast tokenizer (tokenizer.json); convert this one, or drop mask_until.")
    if not batch:
        return []
    offsets = tokenizer(batch, add_special_tokens=False, return_offsets_mapping=True, verbose=False)["offset_mapping"]
    ends = [text.index(marker) + len(marker) for text in batch]
    return [sum(begin < end for begin, _ in row) for row, end in zip(offsets, ends, strict=True)]


def _tokenize(tokenizer: Any, batch: list[str], add_special_tokens: bool) -> list[list[int]]:
    if not batch:
        return []
    # Not verbose: texts longer than the model's context are cut later, so no warning is needed.
    try:
        return tokenizer(
            batch, add_special_tokens=add_special_tokens, return_attention_mask=False, truncation=False, verbose=False
        )["input_ids"]
    except Exception as error:  # `tokenizers` raises bare Exceptions, such as for a word it has no token for
        raise DataError(
            f"The model's tokenizer cannot read these texts ({error}); give texts of its language."
        ) from None


def _check_length(length: int, context: int | None) -> None:
    if length < 2:
        raise DataError(f"The row length is {length}; expected at least 2, one token to predict the other.")
    if context is not None and length > context:
        raise DataError(f"The row length is {length}, but the model's context is {context}: set at most {context}.")


def _special_id(tokenizer: Any, kind: str) -> int:
    token_id = getattr(tokenizer, f"{kind}_token_id")
    if token_id is None:
        raise DataError(f"The tokenizer has no {kind.upper()} token: turn `{kind}` off, or set one in the tokenizer.")
    return token_id
