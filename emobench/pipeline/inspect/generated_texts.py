"""What the run of an entry wrote, from the samples that were recorded with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.errors import ConfigError, DataError
from emobench.leaderboard.schema.entry import Entry, Run
from emobench.leaderboard.schema.examples import recorded_file
from emobench.pipeline.inspect.recorded_runs import sample_files


@dataclass(frozen=True, kw_only=True)
class Written:
    """One continuation of one prompt."""

    prompt: str
    sample: int
    prefix: str | None
    human: str | None
    """None where they are not at hand."""
    generated: str
    ended: bool
    """By the model, before the full length."""


def writes_texts(entry: Entry) -> bool:
    """Return whether an entry has files of samples, which may be of texts."""
    return any(run.samples for run in entry.runs)


def texts_of(entry: Entry, run: Run, runs: Path) -> dict[str, list[Written]]:
    """Return what a run wrote, by task. Raises ConfigError where it wrote no text, DataError where files are gone."""
    found = {}
    for facts, file in sample_files(entry, run, runs):
        read = _READERS.get(facts["task"]["kind"])
        if read is not None:
            found[facts["task"]["name"]] = read(recorded_file(file, runs, entry), facts, entry)
    if not found:
        raise ConfigError(
            f"{entry.objective.label} [{entry.id[:6]}] of {entry.suite} recorded no generated texts; expected an entry "
            "with tasks of kind generation or oracle, see `emobench leaderboard show`."
        )
    return found


def _generation(path: Path, facts: Mapping[str, Any], entry: Entry) -> list[Written]:
    """Read the samples of a task of kind `generation`."""
    from emobench.kinds.generation.samples import read_samples

    return [
        Written(
            prompt=one.prompt_id,
            sample=one.sample,
            prefix=one.prefix_text,
            human=one.reference_text.removeprefix(one.prefix_text),
            generated=one.continuation_text,
            ended=one.ended,
        )
        for one in read_samples(path)
    ]


def _oracle(path: Path, facts: Mapping[str, Any], entry: Entry) -> list[Written]:
    """Read the continuations of a task of kind `oracle`; prefixes and what the language goes on with are its texts."""
    from emobench.data.oracle import oracle_tokenizer

    try:
        continued = json.loads(path.read_text(encoding="utf-8"))["continuations"]
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path}: expected JSON with `continuations`; run again to write it.") from None
    tokenizer, rules = oracle_tokenizer(), facts["rules"]
    texts = _language(facts, entry)
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
    end = rules["prefix"] + rules["continuation"]
    whole = [row for row in ids if len(row) >= end]

    def read(index: int) -> Written:
        known = whole[index] if index < len(whole) else None
        return Written(
            prompt=str(index),
            sample=0,
            prefix=None if known is None else str(tokenizer.decode(known[: rules["prefix"]])),
            human=None if known is None else str(tokenizer.decode(known[rules["prefix"] : end])),
            generated=str(tokenizer.decode(continued[index])),
            ended=False,
        )

    return [read(index) for index in range(len(continued))]


def _language(facts: Mapping[str, Any], entry: Entry) -> list[str]:
    """Return the texts of the oracle language that a generation read; none where they were somebody's own."""
    from emobench.data.texts import load_texts

    names = [name for name, text in entry.provenance.data.items() if text.startswith(facts["texts"])]
    for corpus, _, split in (name.rpartition(".") for name in names):
        if "(generated: " in entry.provenance.data[f"{corpus}.{split}"]:
            texts = load_texts(corpus, split, data_dirs=(), offline=True)
            if texts.fingerprint == facts["texts"]:
                return list(texts.texts)
    return []


_READERS: dict[str, Callable[[Path, Mapping[str, Any], Entry], list[Written]]] = {
    "generation": _generation,
    "oracle": _oracle,
}
