"""Conversations are read from every form and format; what has no response is refused by its line."""

from __future__ import annotations

import json
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
    (folder / "own.train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_conversations("own", split, data_dirs=[folder], offline=True, weights="weight")


def test_weights_are_part_of_the_data(tmp_path: Path) -> None:
    one, other = weighed(tmp_path, [1, 2.5, 3]), weighed(tmp_path, [1, 2.5, 4])
    assert len(one) == 2
    assert {1.0, 2.5, 3.0} > set(one.weights)
    assert [one.conversation(i).weight for i in range(len(one))] == one.weights
    assert len({one.fingerprint, other.fingerprint, load(tmp_path).fingerprint}) == 3
    assert load(tmp_path).weights is None
    assert weighed(tmp_path, [1, 2, 3], "validation").weights is None


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ("2", r'jsonl:2: the weight "weight" is "2"; expected a number from 0 to 1,000,000'),
        (-1, r'jsonl:2: the weight "weight" is -1; expected'),
        (True, r'jsonl:2: the weight "weight" is true; expected'),
        (None, r'jsonl:2: the weight "weight" is nothing; expected'),
        (float("nan"), r'jsonl:2: the weight "weight" is NaN; expected'),
    ],
)
def test_a_weight_is_a_number_of_at_least_zero(tmp_path: Path, weight: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        weighed(tmp_path, [1, weight, 1])


def test_weights_that_are_all_zero_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match='every "weight" is 0, so that nothing would be trained'):
        weighed(tmp_path, [0, 0, 0])


@pytest.mark.parametrize(
    ("name", "file", "branch"),
    [
        ("org/set", "data/train-00000-of-00001.parquet", "main"),
        ("org/set/easy@v1", "easy/train.jsonl", "v1"),
        ("org/set:turns", "train.jsonl", "main"),
        ("org/set", "train.csv", "main"),
        ("org/set", "default/train/0000.parquet", "refs/convert/parquet"),
    ],
)
def test_a_data_set_of_the_hub_by_its_id(
    name: str, file: str, branch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a cache as a download leaves it: its own files, or those that the hub converted."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    folder, commit = tmp_path / "datasets--org--set", "0123456789abcdef0123456789abcdef01234567"
    (folder / "refs" / branch).parent.mkdir(parents=True)
    (folder / "refs" / branch).write_text(commit)
    path = folder / "snapshots" / commit / file
    path.parent.mkdir(parents=True)
    rows: list[dict[str, Any]] = [{"instruction": f"Say {i}.", "output": str(i)} for i in range(4)]
    if ":turns" in name:
        rows = [
            {"turns": [{"role": "user", "content": f"Say {i}."}, {"role": "assistant", "content": f"{i}"}]}
            for i in range(4)
        ]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        path.write_text("instruction,output\n" + "".join(f"Say {i}.,{i}\n" for i in range(4)))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = load_conversations(name, "train", data_dirs=[], offline=True)
    held_out = load_conversations(name, "validation", data_dirs=[], offline=True)
    assert found.origin.startswith(f"hub: org/set@{commit}, without")
    said = sorted(one.conversation(i).turns[-1].text for one in (found, held_out) for i in range(len(one)))
    assert said == ["0", "1", "2", "3"]


def test_a_validation_file_of_the_hub_is_the_validation_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    folder, commit = tmp_path / "datasets--org--set", "0123456789abcdef0123456789abcdef01234567"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    (folder / "snapshots" / commit).mkdir(parents=True)
    for split, rows in (("train", ROWS[:6]), ("dev", ROWS[6:8])):
        (folder / "snapshots" / commit / f"{split}.json").write_text(json.dumps(rows))
    train, validation = (
        load_conversations("org/set", split, data_dirs=[], offline=True) for split in ("train", "validation")
    )
    assert (len(train), len(validation)) == (6, 2)
    assert train.origin == validation.origin == f"hub: org/set@{commit}"
    assert validation.where[0] == f"hub: org/set@{commit}, dev.json, row 1"
