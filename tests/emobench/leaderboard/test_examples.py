"""Per-example results survive the disk, and a file that is not the recorded one is refused."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from emobench.core.errors import DataError, StorageError
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.run_files import Recorded, digest, entry_examples, read_examples, write_examples
from emobench.tasks.scores import Score

PPL = {"0": (3.21, 57.0), "ü\n": (1 / 3, 12.0)}


def scores() -> dict[str, Score]:
    return {
        "wikitext2/ppl_test": Score(
            value=14.8, n=2, higher_is_better=False, unit="perplexity", examples=PPL, aggregate="exp_mean"
        ),
        "wikitext2/mauve": Score(value=0.9, n=2, higher_is_better=True, unit="fraction", aggregate="corpus"),
        "wikitext2/rouge1": Score(value=0.5, n=1, higher_is_better=True, unit="fraction", examples={"0": (0.5, 1)}),
    }


def test_examples_are_read_as_written(tmp_path: Path) -> None:
    path = tmp_path / "run" / "examples.jsonl"
    told = write_examples(path, scores())
    assert told == digest(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert read_examples(path) == {"wikitext2/ppl_test": Recorded(PPL), "wikitext2/rouge1": Recorded({"0": (0.5, 1.0)})}
    first = json.loads(path.read_text().splitlines()[0])
    assert first == {"metric": "wikitext2/ppl_test", "example": "0", "value": 3.21, "weight": 57.0}


def test_examples_of_one_unit_are_read_as_what_was_sampled(tmp_path: Path, entry_of: Callable[..., Entry]) -> None:
    examples = {"0": (1.0, 1.0), "1": (0.0, 3.0), "2": (0.5, 2.0)}
    units = {"0": "passage a", "1": "passage a"}
    given = Score(value=1 / 3, n=3, higher_is_better=True, unit="fraction", examples=examples, units=units)
    sha256 = write_examples(tmp_path / "x.jsonl", {"t/accuracy": given})
    assert [json.loads(line).get("unit") for line in (tmp_path / "x.jsonl").read_text().splitlines()] == [
        *("passage a", "passage a", None)
    ]
    assert read_examples(tmp_path / "x.jsonl") == {"t/accuracy": Recorded(examples, units)}
    run = {"seed": 0, "key": "k0", "examples": {"path": "x.jsonl", "sha256": sha256}}
    want = {"t/accuracy": {"passage a": (0.25, 4.0), "2": (0.5, 2.0)}}
    assert entry_examples(entry_of(runs=[run]), tmp_path) == [want]


def test_a_value_that_is_not_finite_is_not_written(tmp_path: Path) -> None:
    bad = Score(value=1.0, n=1, higher_is_better=None, unit="nats", examples={"7": (math.nan, 1.0)})
    with pytest.raises(DataError, match="t/m, example '7': value nan"):
        write_examples(tmp_path / "x.jsonl", {"t/m": bad})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"metric": "t/m", "example": "1", "value": 1.0', ":2: expected JSON with metric"),
        ('{"metric": "t/m", "example": "1", "value": 1.0}', ":2: expected JSON with metric"),
        ("[1]", ":2: expected JSON with metric"),
        ('{"metric": "t/m", "example": "1", "value": NaN, "weight": 1}', ":2: value nan"),
        ('{"metric": "t/m", "example": "1", "value": 1, "weight": -1}', ":2: value 1.0 with weight -1.0"),
        ('{"metric": "t/m", "example": "0", "value": 1, "weight": 1}', ":2: the example '0' of t/m appears twice"),
        ("\udcff", "is not UTF-8"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "x.jsonl"
    text = '{"metric": "t/m", "example": "0", "value": 1, "weight": 1}\n' + line + "\n"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DataError, match=told):
        read_examples(path)


def test_absent_files_and_unwritable_folders_get_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_examples(tmp_path / "none")
    with pytest.raises(DataError, match="cannot be read"):
        digest(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="The per-example results could not be written"):
        write_examples(tmp_path / "file" / "x.jsonl", scores())


def test_an_entry_finds_its_examples_and_refuses_altered_ones(tmp_path: Path, entry_of: Callable[..., Entry]) -> None:
    sha256 = write_examples(tmp_path / "k0" / "examples.jsonl", scores())
    run = {"seed": 0, "key": "k0"}
    recorded = entry_of(runs=[{**run, "examples": {"path": "k0/examples.jsonl", "sha256": sha256}}])
    assert entry_examples(recorded, tmp_path)[0]["wikitext2/ppl_test"] == PPL
    with pytest.raises(DataError, match=r"k0 of entry .* recorded no per-example results"):
        entry_examples(entry_of(runs=[run]), tmp_path)
    with (tmp_path / "k0" / "examples.jsonl").open("a") as file:
        file.write("\n")
    with pytest.raises(DataError, match="altered since entry"):
        entry_examples(recorded, tmp_path)
