"""From names to entries, and from entries to texts: which entry a name means, and what a run of the oracle wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import DataError
from emobench.core.seals import write_seal
from emobench.core.settings import file_sha256, to_plain
from emobench.data.oracle.language import oracle_tokenizer
from emobench.data.texts import Texts, load_texts
from emobench.leaderboard.entry import Entry, new_entry
from emobench.leaderboard.pack import pack
from emobench.leaderboard.store import Leaderboard
from emobench.registry import find_task
from emobench.runs.inspect.figures import can_draw
from emobench.runs.inspect.recorded_runs import newest_of, texts_of
from emobench.runs.inspect.samples import has_texts
from emobench.runs.stages.stage import FACTS

MakeEntry = Callable[..., Entry]
RULES = {"prefix": 4, "continuation": 6}
ORACLE = "oracle-language"


@pytest.fixture
def entries(entry_of: MakeEntry, tmp_path: Path) -> list[Entry]:
    """Three entries of one objective, oldest first: one with its files, one whose files are gone, one without any."""
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "samples.jsonl").write_text("")
    given = []
    for day, name in enumerate(("there", "gone", ""), start=1):
        files = {"samples": [{"path": f"{name}/samples.jsonl", "sha256": "0" * 64}]} if name else {}
        runs = [{"seed": seed, "key": f"{day}-{seed}", **files} for seed in (0, 1)]
        created = f"2026-01-0{day}T12:00:00"
        given.append(entry_of("emo", created=created, seeds=[0, 1], runs=runs, protocols={"lm": "paper@1"}))
    return given


def test_the_newest_entry_with_the_texts_is_meant(entries: list[Entry], tmp_path: Path) -> None:
    first, second, third = entries
    assert [has_texts(entry, tmp_path, (), None) for entry in entries] == [True, False, False]
    assert not has_texts(first, tmp_path, ["other"], None)
    assert not has_texts(first, tmp_path, (), 7)
    board = Leaderboard(tmp_path / "board")
    for entry in entries:
        board.append(entry)
    assert newest_of(["emo"], board.root, lambda entry: can_draw(entry, tmp_path)) == ([first], [])
    for wanted in (lambda entry: True, lambda entry: False):
        (found,), (note,) = newest_of(["emo"], board.root, wanted)
        assert found == third
        assert first.id[:6] in note
        assert second.id[:6] in note


def test_the_newest_that_is_comparable_with_the_first_is_meant(entry_of: MakeEntry, tmp_path: Path) -> None:
    board, given = Leaderboard(tmp_path / "board"), []
    for day, (name, tokens) in enumerate((("emo", 10), ("mle", 10), ("mle", 20)), start=1):
        given.append(entry_of(name, created=f"2026-01-0{day}T12:00:00", recipe={"max_tokens": tokens}))
        board.append(given[-1])
    emo, mle, other = given
    found, (note,) = newest_of(["emo", "mle"], board.root)
    assert found == [emo, mle]
    assert other.id[:6] in note
    assert newest_of(["emo", other.id], board.root) == ([emo, other], [])
    found, (note,) = newest_of([], board.root)
    assert found == [other]
    assert "1 older group" in note


@pytest.fixture(scope="module")
def texts() -> Texts:
    return load_texts("oracle-target", "test", data_dirs=(), offline=True)


@pytest.fixture
def recorded(tmp_path: Path, entry_of: MakeEntry, texts: Texts) -> Callable[..., Entry]:
    """Write a generation as the task leaves it; returns its entry."""

    def write(data: Any) -> Entry:
        folder = tmp_path / "generate" / "0123456789abcdef"
        folder.mkdir(parents=True)
        words = [[[1, 2], [3, 4], [7, 8, 9, 10, 11, index]] for index in range(3)]
        (folder / "samples.json").write_text(json.dumps({"texts": [[[1, 2], True]], "continued": words}))
        task = {"name": ORACLE, "version": 1, "kind": "oracle"}
        (folder / FACTS).write_text(json.dumps({"task": task, "texts": texts.fingerprint, "rules": RULES}))
        write_seal(folder)
        file = {"path": f"generate/{folder.name}/samples.json", "sha256": file_sha256(folder / "samples.json")}
        provenance = {"commit": None, "packages": {}, "hardware": None, "created": "2026-01-31T12:00:00", "data": data}
        return entry_of(runs=[{"seed": 0, "key": "0" * 16, "samples": [file]}], provenance=provenance)

    return write


def test_prefix_and_continuation_of_the_language_stand_beside_the_models(
    recorded: Callable[..., Entry], tmp_path: Path, texts: Texts
) -> None:
    entry = recorded(texts.provenance)
    written = texts_of(entry, entry.runs[0], tmp_path)[ORACLE]
    assert [one.generated for one in written] == [oracle_tokenizer().decode([7, 8, 9, 10, 11, i]) for i in range(3)]
    decode = oracle_tokenizer().decode
    assert {(one.prefix, one.human) for one in written} == {(decode([1, 2]), decode([3, 4]))}


def test_a_packed_board_tells_the_rules_by_the_entry(
    recorded: Callable[..., Entry], tmp_path: Path, texts: Texts
) -> None:
    protocol = find_task(ORACLE, overrides=RULES).protocol_id
    entry = replace(recorded(texts.provenance), protocols={ORACLE: protocol}, changes={ORACLE: RULES})
    board, nowhere = Leaderboard(tmp_path / "board"), tmp_path / "nowhere"
    board.append(new_entry({key: value for key, value in to_plain(entry).items() if key not in ("id", "schema")}))
    pack(board, tmp_path)
    assert texts_of(entry, entry.runs[0], nowhere, [board.root]) == texts_of(entry, entry.runs[0], tmp_path)
    with pytest.raises(DataError):
        texts_of(entry, entry.runs[0], nowhere)
    # Without these rules here, the ids of a file stand for nothing.
    with pytest.raises(DataError):
        texts_of(replace(entry, protocols={ORACLE: "paper@000000"}), entry.runs[0], nowhere, [board.root])
