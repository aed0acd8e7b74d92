"""Conversations are read from every form and format; what has no response is refused by its line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from emobench.core.errors import DataError, UnknownNameError
from emobench.data.instruction_sets import load_conversations, source_of

USER, ANSWER = {"role": "user", "content": "Say hi."}, {"role": "assistant", "content": "Hi."}
ROWS: list[dict[str, Any]] = [{"instruction": f"Say {i}.", "input": "", "output": f"It is {i}."} for i in range(120)]


def load(folder: Path, split: str = "train") -> Any:
    return load_conversations("own", split, data_dirs=[folder], offline=True)


@pytest.mark.parametrize("end", ["jsonl", "json", "parquet"])
def test_json_lines_json_and_parquet_are_the_same_data(end: str, tmp_path: Path) -> None:
    file = tmp_path / f"own.train.{end}"
    if end == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), file)
    else:
        file.write_text(json.dumps(ROWS) if end == "json" else "\n".join(map(json.dumps, ROWS)))
    found = load(tmp_path)
    held = load(tmp_path, "validation")
    assert sorted(found.texts) + sorted(held.texts) != sorted(found.texts)
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "own.train.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    assert found.fingerprint == load(tmp_path / "lines").fingerprint


def test_messages_of_parquet_are_read(tmp_path: Path) -> None:
    rows = [{"messages": [{**USER, "content": f"Say {i}."}, ANSWER]} for i in range(60)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "own.train.parquet")
    found = load(tmp_path)
    assert found.conversation(0).turns[-1].text == "Hi."
    assert len(found) == 58


def test_the_responses_to_one_prompt_of_fifty_are_held_out(tmp_path: Path) -> None:
    """All responses to a prompt are on one side; the two parts are disjoint, and all of the data."""
    rows = [{**row, "output": f"{row['output']} {k}"} for row in ROWS for k in range(3)]
    (tmp_path / "own.train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    train, validation = load(tmp_path), load(tmp_path, "validation")
    assert (len(train), len(validation)) == (351, 9)
    prompts = [{data.conversation(i).turns[0].text for i in range(len(data))} for data in (train, validation)]
    assert prompts[0].isdisjoint(prompts[1])
    (tmp_path / "own.validation.jsonl").write_text(json.dumps(ROWS[0]))
    assert (len(load(tmp_path)), len(load(tmp_path, "validation"))) == (360, 1)


def test_blank_responses_are_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "own.train.jsonl").write_text("\n".join(map(json.dumps, [*ROWS, {**ROWS[0], "output": " \n"}])))
    train, validation = load(tmp_path), load(tmp_path, "validation")
    assert train.blank + validation.blank == 1
    assert len(train) + len(validation) == len(ROWS)


def test_one_prompt_alone_cannot_be_held_out(tmp_path: Path) -> None:
    (tmp_path / "own.train.jsonl").write_text(json.dumps(ROWS[0]))
    with pytest.raises(DataError, match="has 1 prompt; expected two at least"):
        load(tmp_path)


def test_sources() -> None:
    assert source_of("alpaca-gpt4").repo == "vicgalle/alpaca-gpt4"  # type: ignore[union-attr]
    assert source_of("owner/name:turns").repo == "owner/name"  # type: ignore[union-attr]
    assert source_of("responses") is None
    with pytest.raises(UnknownNameError, match="alpaca-gpt4"):
        load_conversations("alpaca-gpt5", "train", data_dirs=[], offline=True)


def weighed(folder: Path, weights: list[object], split: str = "train") -> Any:
    rows = [{"instruction": f"Say {i}.", "output": f"{i}", "weight": weight} for i, weight in enumerate(weights)]
    (folder / "own.train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return load_conversations("own", split, data_dirs=[folder], offline=True, weights="weight")


def test_weights_are_part_of_the_data(tmp_path: Path) -> None:
    one, other = weighed(tmp_path, [1, 2.5, 3]), weighed(tmp_path, [1, 2.5, 4])
    assert len(one) == 2
    assert {1.0, 2.5, 3.0} > set(one.weights)
    assert [one.conversation(i).weight for i in range(len(one))] == one.weights
    assert len({one.fingerprint, other.fingerprint, load(tmp_path).fingerprint}) == 3
    assert load(tmp_path).weights is None
    assert weighed(tmp_path, [1, 2, 3], "validation").weights is None
    with pytest.raises(DataError, match='every "weight" is 0'):
        weighed(tmp_path, [0, 0, 0])


@pytest.mark.parametrize("weight", ["2", -1, True, None, float("nan")])
def test_a_weight_is_a_number_of_at_least_zero(tmp_path: Path, weight: object) -> None:
    with pytest.raises(DataError, match='jsonl:2: the weight "weight"'):
        weighed(tmp_path, [1, weight, 1])


ASKED = [{"instruction": f"Say {i}.", "output": str(i)} for i in range(4)]
TURNS = [{"turns": [{**USER, "content": f"Say {i}."}, {**ANSWER, "content": f"{i}"}]} for i in range(4)]


@pytest.mark.parametrize(
    ("name", "file", "branch", "rows"),
    [
        ("org/set", "data/train-00000-of-00001.parquet", "main", ASKED),
        ("org/set/easy@v1", "easy/train.jsonl", "v1", ASKED),
        ("org/set:turns", "train.jsonl", "main", TURNS),
        ("org/set", "train.csv", "main", ASKED),
        ("org/set", "default/train/0000.parquet", "refs/convert/parquet", ASKED),
    ],
)
def test_a_data_set_of_the_hub_by_its_id(
    name: str, file: str, branch: str, rows: list[Any], publish: Callable[..., Path]
) -> None:
    """From a cache as a download leaves it: its own files, or those that the hub converted."""
    folder = publish("org/set", {file: rows}, branch)
    train, held_out = (load_conversations(name, split, data_dirs=[], offline=True) for split in ("train", "validation"))
    assert train.origin.startswith(f"hub: org/set@{folder.name}, without")
    said = [data.conversation(i).turns[-1].text for data in (train, held_out) for i in range(len(data))]
    assert sorted(said) == ["0", "1", "2", "3"]


def test_a_validation_file_of_the_hub_is_the_validation_split(publish: Callable[..., Path]) -> None:
    folder = publish("org/set", {"train.json": json.dumps(ROWS[:6]), "dev.json": json.dumps(ROWS[6:8])})
    train, validation = (
        load_conversations("org/set", split, data_dirs=[], offline=True) for split in ("train", "validation")
    )
    assert (len(train), len(validation)) == (6, 2)
    assert train.origin == validation.origin == f"hub: org/set@{folder.name}"
    assert validation.where[0] == f"hub: org/set@{folder.name}, dev.json, row 1"
