"""Instruction sets: conversations to train on, from local files or a hub data set, with a fingerprint.

Rows have the forms that `emobench.data.conversations` reads. A corpus is a file `DIR/<corpus>.<split>.jsonl` (or .json,
.parquet) in a data folder, a name of `CONVERSATIONS`, or a data set of the hub: "owner/name[/CONFIG][@REVISION]", and
":column" after it where the messages are in a column of another name. No script of a repository is run.

Few of them have a validation split. Without one, the responses to one of 50 prompts are held out, at most 500 prompts:
those whose text has the smallest sha256, so that each run and each objective holds out the same.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from emobench.core.errors import DataError, Missing, UnknownNameError
from emobench.data.conversations import Conversation, Turn, conversation_of
from emobench.data.hub_corpus import hub_corpus, hub_split_files
from emobench.data.rows import Row, check_row_count, file_rows, hub_files, only_file
from emobench.data.sources import CorpusSource, Split, SplitSource
from emobench.data.texts import Texts, fingerprint
from emobench.models.hub import CONVERTED

HELD_OUT, MOST_HELD_OUT = 50, 500


def _source(name: str, repo: str, **sizes: Any) -> CorpusSource:
    splits = MappingProxyType({"train": SplitSource(files="default/train/*.parquet", **sizes)})
    return CorpusSource(name=name, kind="hub", repo=repo, revision=CONVERTED, splits=splits)


# Rows and downloads are those of the data cards. The text bytes are rough. The cards of the recycled data state none:
# its bytes are those of the original Evol-Instruct data.
CONVERSATIONS: dict[str, CorpusSource] = {
    source.name: source
    for source in (
        _source(
            "alpaca-gpt4",
            "vicgalle/alpaca-gpt4",
            rows=52_002,
            text_bytes=41_000_000,
            download_bytes=48_393_562,
        ),
        _source(
            "evol-instruct-70k",
            "umd-zhou-lab/recycled_wiz70_v1",
            text_bytes=130_000_000,
            download_bytes=70_000_000,
        ),
        _source(
            "open-platypus",
            "garage-bAInd/Open-Platypus",
            rows=24_926,
            text_bytes=30_000_000,
            download_bytes=16_000_000,
        ),
        _source(
            "tulu-3-sft",
            "allenai/tulu-3-sft-mixture",
            rows=939_343,
            text_bytes=2_914_250_826,
            download_bytes=1_412_954_868,
        ),
    )
}
"""The data sets of the instruction-tuning recipes. The first two are those that the EMO repository names."""


@dataclass(frozen=True)
class Conversations(Texts):
    """The conversations of one split. `texts[i]` is the JSON of conversation i."""

    where: Sequence[str] = ()
    """The file and line, or row, of each conversation."""
    blank: int = 0
    """Rows that were left out because their response is blank. A row without any is an error."""
    weights: Sequence[float] | None = None
    """The weight of each conversation in the loss; None: all weigh the same."""

    def conversation(self, index: int) -> Conversation:
        """Return a conversation."""
        found = json.loads(self.texts[index])
        turns = tuple(Turn(*turn) for turn in found["turns"])
        return Conversation(turns, found["input"], self.where[index], found.get("weight", 1.0))


def load_conversations(
    corpus: str, split: str, *, data_dirs: Sequence[Path], offline: bool, weights: str = ""
) -> Conversations:
    """Return the train or validation split of a corpus of conversations. `weights` is the field with their weights.

    Raises UnknownNameError for an unknown corpus, DataError for a row without a response or of another form; offline,
    raises Missing for a data set that was not downloaded before.
    """
    own = _rows(corpus, "validation", "", data_dirs, offline)
    held_out = own is None and split == "validation"
    if split == "validation" and own is not None:
        rows, origin = own
    else:
        trained = _rows(corpus, "train", weights, data_dirs, offline)
        assert trained is not None
        rows, origin = trained
    conversations = [conversation for conversation in rows if conversation is not None]
    if not conversations:
        raise DataError(f"{corpus} ({split}, {origin}) has {len(rows):,} rows, none of them with a response.")
    blank = 0 if held_out else len(rows) - len(conversations)
    if own is None:
        conversations = _part(conversations, origin, held_out=held_out)
        origin += f", {'the' if held_out else 'without the'} responses to one of {HELD_OUT} prompts"
    # The weights belong to the text that is fingerprinted: other weights are other data.
    weight_of = [one.weight for one in conversations] if weights and split == "train" else None
    texts = []
    for one in conversations:
        content: dict[str, Any] = {"turns": one.turns, "input": one.input}
        if weight_of is not None:
            content["weight"] = one.weight
        texts.append(json.dumps(content, ensure_ascii=False))
    read = fingerprint(texts, f"The corpus '{corpus}' ({split}, {origin})")
    if weight_of is not None and not any(weight_of):
        raise DataError(f'{corpus} ({split}, {origin}): every "{weights}" is 0, so that nothing would be trained.')
    where = [one.where for one in conversations]
    return Conversations(corpus, split, texts, read, origin, where=where, blank=blank, weights=weight_of)


def local_conversations(corpus: str, split: str, data_dirs: Sequence[Path]) -> Path | None:
    """Return the file of a split in the data folder that has it as .jsonl, .json or .parquet, or None."""
    if "/" in corpus or "\\" in corpus:
        return None
    files = (folder / f"{corpus}.{split}{end}" for folder in data_dirs for end in (".jsonl", ".json", ".parquet"))
    return only_file(files)


def documented_rows(corpus: str) -> int | None:
    """Return how many conversations of a set are trained on by its data card, if no prompt is there twice."""
    source = CONVERSATIONS.get(corpus)
    rows = None if source is None else source.splits["train"].rows
    return None if rows is None else rows - _held_out(rows)


def source_of(corpus: str) -> CorpusSource | None:
    """Return the source on the hub of a corpus of conversations: a known name, or "owner/name" with its parts."""
    if corpus in CONVERSATIONS:
        return CONVERSATIONS[corpus]
    named = hub_corpus(corpus if ":" in corpus else f"{corpus}:messages")
    return None if named is None else _source(corpus, named.repo)


def _conversation(row: Row, where: str, column: str, weights: str) -> Conversation | None:
    """Return the conversation of a row, None for one whose response is blank."""
    if column:
        if column not in row:
            raise DataError(f"{where}: expected a field {column!r}; the fields are {', '.join(row) or 'none'}.")
        row = {"messages": row[column], **({weights: row.get(weights)} if weights else {})}
    messages = row.get("messages") or row.get("completion")
    if isinstance(messages, list) and messages and isinstance(messages[-1], dict):
        response = messages[-1].get("content") if messages[-1].get("role") == "assistant" else None
    else:
        response = row.get("completion", row.get("output"))
    blank = isinstance(response, str) and not response.strip()
    return None if blank else conversation_of(row, where, weights=weights)


def _read(file: Path, *, column: str = "", weights: str = "", where: str = "") -> list[Conversation | None]:
    """Return the conversation of each row of a file, None for a blank response."""
    return [_conversation(row, at, column, weights) for at, row in file_rows(file, where)]


def _rows(
    corpus: str, split: Split, weights: str, data_dirs: Sequence[Path], offline: bool
) -> tuple[list[Conversation | None], str] | None:
    """Return the conversations of a split and their origin; None where there is no validation split."""
    file = local_conversations(corpus, split, data_dirs)
    if file is not None:
        return _read(file, weights=weights), f"local: {file.name}"
    if split == "validation" and local_conversations(corpus, "train", data_dirs) is not None:
        return None
    source, place = source_of(corpus), f"DIR/{corpus}.train.jsonl"
    if source is None:
        hint = f"A file {place} (or .json, .parquet), given by --data-dir DIR, or owner/name of the hub would be one."
        raise UnknownNameError("corpus of conversations", corpus, CONVERSATIONS, hint=hint)
    name, _, column = corpus.partition(":")
    advice = f"Or put them in {place} and give --data-dir DIR."
    try:
        if corpus in CONVERSATIONS:
            if split not in source.splits:
                return None
            files, origin = hub_files(source.repo, source.revision, source.splits[split].files, offline=offline)
        else:
            files, origin = hub_split_files(name, split, offline=offline)
            if not files:
                return None
        places = {file: f"{origin}, {file.name}" for file in files}
        found = [one for file in files for one in _read(file, column=column, weights=weights, where=places[file])]
    except Missing as missing:
        size = source.splits["train"].download_bytes  # one download for both splits
        raise missing.named(f"conversations {corpus}", source=source.repo, size=size, advice=advice) from None
    except DataError as error:
        raise DataError(
            f"The conversations of '{corpus}' could not be read from {source.repo}. {error} {advice}"
        ) from None
    if split in source.splits:
        check_row_count(corpus, split, origin, len(found), source.splits[split].rows)
    return found, origin


def _part(found: list[Conversation], origin: str, *, held_out: bool) -> list[Conversation]:
    """Return the conversations whose prompt is held out, or the others. A prompt is all before the last response."""
    keys = [hashlib.sha256(json.dumps([*one.asked.turns, one.input]).encode()).hexdigest() for one in found]
    prompts = sorted(set(keys))
    if len(prompts) < 2:
        raise DataError(
            f"{origin} has {len(prompts)} prompt; expected two at least, of which one is held out for validation, or a "
            "file of the validation split beside it."
        )
    held = set(prompts[: _held_out(len(prompts))])
    return [conversation for conversation, key in zip(found, keys, strict=True) if (key in held) == held_out]


def _held_out(prompts: int) -> int:
    """Return how many prompts are held out of a set without a validation split."""
    return min(MOST_HELD_OUT, math.ceil(prompts / HELD_OUT))
