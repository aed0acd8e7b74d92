"""Instruction sets: conversations to train on, from local files or a hub data set, with a fingerprint.

Rows have the forms that `emobench.data.conversations` reads. A corpus is a file `DIR/<corpus>.<split>.jsonl` (or .json,
.parquet) in a data folder, local files by their path ("./chats.jsonl"), a name of `CONVERSATIONS`, or a data set of the
hub: "owner/name[/CONFIG][@REVISION]". Both may have ":column" after them where the messages are in a column of another
name. No script of a repository is run.

Few of them have a validation split. Without one, the responses to one of 50 prompts are held out, at most 500 prompts:
those whose text has the smallest sha256, so that each run and each objective holds out the same.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.core.errors import DataError, UnknownNameError
from emobench.data.conversations import Conversation, Turn, conversation_of
from emobench.data.hub_corpus import find_files, hub_corpus
from emobench.data.local_files import data_name, local_data
from emobench.data.packing import WEIGHTS, RowNumbers
from emobench.data.rows import (
    Rows,
    digest,
    file_rows,
    local_file,
    naming,
    require_columns,
    require_count,
)
from emobench.data.sources import CorpusSource, Split, SplitSource
from emobench.data.texts import Texts
from emobench.models.hub import CONVERTED

HELD_OUT, MOST_HELD_OUT = 50, 500


def _source(name: str, repo: str, **sizes: Any) -> CorpusSource:
    splits = {"train": SplitSource(files="", **sizes)}
    return CorpusSource(name=name, kind="hub", repo=repo, revision=CONVERTED, splits=splits)


# Rows and downloads are those of the data cards. The text bytes are rough. The cards of the recycled data state none:
# its bytes are those of the original Evol-Instruct data.
_ALL = (
    _source("alpaca-gpt4", "vicgalle/alpaca-gpt4", rows=52_002, text_bytes=41_000_000, download_bytes=48_393_562),
    _source("evol-instruct-70k", "umd-zhou-lab/recycled_wiz70_v1", text_bytes=130_000_000, download_bytes=70_000_000),
    _source(
        "open-platypus", "garage-bAInd/Open-Platypus", rows=24_926, text_bytes=30_000_000, download_bytes=16_000_000
    ),
    _source(
        "tulu-3-sft",
        "allenai/tulu-3-sft-mixture",
        rows=939_343,
        text_bytes=2_914_250_826,
        download_bytes=1_412_954_868,
    ),
)
CONVERSATIONS: dict[str, CorpusSource] = {source.name: source for source in _ALL}
"""The data sets of the instruction-tuning recipes. The EMO repository names the first two."""


@dataclass(frozen=True)
class Conversations(Texts):
    """The conversations of one split. `texts[i]` is the JSON of conversation i, without the numbers of its tokens."""

    where: Sequence[str] = ()
    """The file and line, or row, of each conversation."""
    blank: int = 0
    """Rows that were left out because their response is blank. A row without any is an error."""

    def conversation(self, index: int) -> Conversation:
        """Return a conversation."""
        content = json.loads(self.texts[index])
        turns = tuple(Turn(*turn) for turn in content["turns"])
        numbers: RowNumbers = self.numbers[index] if self.numbers else {}
        return Conversation(turns, content["input"], self.where[index], numbers)


def load_conversations(
    corpus: str, split: str, *, data_dirs: Sequence[Path], offline: bool, fields: Mapping[str, str] | None = None
) -> Conversations:
    """Return the train or validation split of a corpus of conversations.

    `fields` are those with numbers for tokens (`conversation_of`); they are part of the fingerprint.

    Raises UnknownNameError for an unknown corpus, DataError for a row without a response or of another form; offline,
    raises Missing for a data set that was not downloaded before.
    """
    data = local_data(corpus)
    column = corpus.partition(":")[2]
    if data is not None:
        column = ":".join(data.columns)
    validation = _rows(corpus, "validation", data_dirs, offline)
    rows = validation
    if split == "train" or validation is None:
        rows = _rows(corpus, "train", data_dirs, offline)
    assert rows is not None
    origin, conversations, count = rows[1], [], 0
    for where, row in rows[0]:
        count += 1
        if column:
            require_columns(row, [column], where)
            others = {field: row[field] for field in (fields or {}).values() if field in row}
            row = {"messages": row[column], **others}
        conversation = conversation_of(row, where, fields=fields)
        if conversation.turns[-1].text.strip():
            conversations.append(conversation)
    blank = count - len(conversations)
    if not conversations:
        raise DataError(f"{corpus} ({split}, {origin}) has {count:,} rows, none of them with a response.")
    if corpus in CONVERSATIONS and origin.startswith("hub:"):
        require_count(origin, count, CONVERSATIONS[corpus].splits["train"].rows)
    note = ""
    if validation is None:
        held_out = split == "validation"
        conversations = _part(conversations, origin, held_out=held_out)
        note = f"{'the' if held_out else 'without the'} responses to one of {HELD_OUT} prompts"
        origin += f", {note}"
        if held_out:
            blank = 0
    # Numbers are fingerprinted with the texts: other numbers are other data.
    texts, places, numbers, columns = [], [], [], []
    for conversation in conversations:
        content: dict[str, Any] = {"turns": conversation.turns, "input": conversation.input}
        values = {name: column.value for name, column in conversation.numbers.items()}
        if isinstance(values.get(WEIGHTS), float):
            content["weight"] = values.pop(WEIGHTS)
        if values:
            columns.append(json.dumps(values))
        if fields:
            numbers.append(conversation.numbers)
        texts.append(json.dumps(content, ensure_ascii=False))
        places.append(conversation.where)
    return Conversations(
        data_name(corpus),
        split,
        texts,
        digest([*texts, *columns]),
        origin,
        note=note,
        numbers=numbers,
        where=places,
        blank=blank,
    )


def documented_rows(corpus: str) -> int | None:
    """Return how many conversations of a set are trained on by its data card, if no prompt is there twice."""
    source = CONVERSATIONS.get(corpus)
    rows = source and source.splits["train"].rows
    return rows and rows - _held_out(rows)


def source_of(corpus: str) -> CorpusSource | None:
    """Return the source on the hub of a corpus of conversations: a known name, or "owner/name" with its parts."""
    if corpus in CONVERSATIONS:
        return CONVERSATIONS[corpus]
    named = hub_corpus(corpus if ":" in corpus else f"{corpus}:messages")
    return named and _source(corpus, named.repo)


def _rows(corpus: str, split: Split, data_dirs: Sequence[Path], offline: bool) -> tuple[Rows, str] | None:
    """Return the rows of a split and their origin; None if there is no validation split."""
    file = local_file(corpus, split, data_dirs)
    data = local_data(corpus)
    if file is not None:
        return file_rows(file), f"local: {file.name}"
    if data is not None:
        if not data.splits[split] and split == "validation":
            return None
        return data.rows(split), f"local: {data.path.name}"
    if split == "validation" and local_file(corpus, "train", data_dirs) is not None:
        return None
    source = source_of(corpus)
    if source is None:
        hint = (
            f"A file is ./FILE, or DIR/{corpus}.train.jsonl with --data-dir DIR; a data set of the hub is OWNER/NAME."
        )
        raise UnknownNameError("corpus of conversations", corpus, CONVERSATIONS, hint=hint)
    # Both splits are one download.
    size = source.splits["train"].download_bytes
    name = corpus.partition(":")[0]
    if corpus in CONVERSATIONS:
        name = f"{source.repo}/default@{source.revision}"
    named = hub_corpus(f"{name}:messages")
    assert named is not None
    with naming(f"conversations {corpus}", source.repo, f"{corpus}.train.jsonl", size=size):
        files = find_files(named, offline=offline)
        if split == "validation" and not files.of(split):
            return None
        return files.rows(split), files.origin


def _part(conversations: list[Conversation], origin: str, *, held_out: bool) -> list[Conversation]:
    """Return the conversations whose prompt is held out, or the others. A prompt is all before the last response."""
    keys = []
    for conversation in conversations:
        prompt = json.dumps([*conversation.asked.turns, conversation.input])
        keys.append(hashlib.sha256(prompt.encode()).hexdigest())
    prompts = sorted(set(keys))
    if len(prompts) < 2:
        raise DataError(
            f"{origin} has {len(prompts)} prompt; expected two at least, of which one is held out for validation, or a "
            "file of the validation split."
        )
    held = set(prompts[: _held_out(len(prompts))])
    part = []
    for conversation, key in zip(conversations, keys, strict=True):
        if (key in held) == held_out:
            part.append(conversation)
    return part


def _held_out(prompts: int) -> int:
    """Return how many prompts are held out of a set without a validation split."""
    return min(MOST_HELD_OUT, math.ceil(prompts / HELD_OUT))
