"""What a run wrote, for tasks of the oracle language, whose texts are ids."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import DataError
from emobench.core.seals import write_seal
from emobench.core.settings import to_plain
from emobench.data.oracle.language import oracle_tokenizer
from emobench.data.texts import Texts, load_texts
from emobench.leaderboard.entry import Entry, new_entry
from emobench.leaderboard.pack import pack
from emobench.leaderboard.store import Leaderboard
from emobench.registry import find_task
from emobench.runs.inspect.recorded_runs import texts_of
from emobench.runs.stages.stage import FACTS

PREFIX, CONTINUATION = 4, 6


@pytest.fixture(scope="module")
def texts() -> Texts:
    return load_texts("oracle-target", "test", data_dirs=(), offline=True)


def recorded(
    runs: Path, entry_of: Callable[..., Entry], texts: Texts, data: dict[str, str]
) -> tuple[Entry, list[list[int]]]:
    """Write a generation as the task leaves it, and return its entry with what was generated."""
    from emobench.core.settings import file_sha256

    folder = runs / "generate" / "0123456789abcdef"
    folder.mkdir(parents=True)
    words = [[7, 8, 9, 10, 11, index] for index in range(3)]
    (folder / "samples.json").write_text(json.dumps({"texts": [[[1, 2], True]], "continuations": words}))
    task = {"name": "oracle-language", "version": 1, "kind": "oracle"}
    rules = {"prefix": PREFIX, "continuation": CONTINUATION}
    (folder / FACTS).write_text(json.dumps({"task": task, "texts": texts.fingerprint, "rules": rules}))
    write_seal(folder)
    file = {
        "path": folder.relative_to(runs).as_posix() + "/samples.json",
        "sha256": file_sha256(folder / "samples.json"),
    }
    provenance = {"commit": None, "packages": {}, "hardware": None, "created": "2026-01-31T12:00:00", "data": data}
    return entry_of(runs=[{"seed": 0, "key": "0" * 16, "samples": [file]}], provenance=provenance), words


def test_prefix_and_continuation_of_the_language_stand_beside_the_models(
    tmp_path: Path, entry_of: Any, texts: Texts
) -> None:
    entry, words = recorded(tmp_path, entry_of, texts, texts.provenance)
    tokenizer = oracle_tokenizer()
    long_enough = [text.split() for text in texts.texts if len(text.split()) >= PREFIX + CONTINUATION]
    found = texts_of(entry, entry.runs[0], tmp_path)["oracle-language"]
    assert [one.generated for one in found] == [tokenizer.decode(ids) for ids in words]
    for one, text in zip(found, long_enough, strict=False):
        assert one.prefix == " ".join(text[:PREFIX])
        assert one.human == " ".join(text[PREFIX : PREFIX + CONTINUATION])


def test_texts_of_somebodys_own_are_not_at_hand(tmp_path: Path, entry_of: Any, texts: Texts) -> None:
    local = {"oracle-target.test": f"{texts.fingerprint} (local: oracle-target.test.jsonl)"}
    entry, words = recorded(tmp_path, entry_of, texts, local)
    found = texts_of(entry, entry.runs[0], tmp_path)["oracle-language"]
    assert [(one.prefix, one.human) for one in found] == [(None, None)] * len(words)


def test_a_packed_board_tells_the_rules_by_the_entry(tmp_path: Path, entry_of: Any, texts: Texts) -> None:
    entry, _ = recorded(tmp_path / "runs", entry_of, texts, texts.provenance)
    rules = {"prefix": PREFIX, "continuation": CONTINUATION}
    name = "oracle-language"
    protocol = find_task(name, overrides=rules).protocol_id
    entry = replace(entry, protocols={name: protocol}, changes={name: rules})
    board = Leaderboard(tmp_path / "board")
    board.append(new_entry({key: value for key, value in to_plain(entry).items() if key not in ("id", "schema")}))
    pack(board, tmp_path / "runs")
    there = texts_of(entry, entry.runs[0], tmp_path / "runs")
    assert texts_of(entry, entry.runs[0], tmp_path / "nowhere", [board.root]) == there
    with pytest.raises(DataError):
        texts_of(entry, entry.runs[0], tmp_path / "nowhere")
    # Without these rules here, the ids of a file stand for nothing.
    other = replace(entry, protocols={name: "paper@000000"})
    with pytest.raises(DataError):
        texts_of(other, entry.runs[0], tmp_path / "nowhere", [board.root])
