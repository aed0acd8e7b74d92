"""What a corpus's rows are of: its own documents where it says them, runs of text where it does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emobench.data.documents import RUNS, units_of_rows
from emobench.data.packing import pack_blocks
from emobench.data.texts import load_texts
from emobench.errors import DataError


def write(folder: Path, name: str, *rows: dict[str, object]) -> None:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_headings_of_wikitext_begin_articles() -> None:
    texts = ["", " = Robert <unk> = \n", " text \n", "", " = = Career = = \n", " more \n", "= Du Fu =", "a = b"]
    want = ["row 0", *["row 1"] * 5, "row 6", "row 6"]
    assert units_of_rows(texts, "headings") == want


def test_rows_that_begin_alike_are_of_one_unit_and_blank_ones_of_the_last() -> None:
    prompt = "You wake up and everyone that you know calls you by another name. "
    texts = ["a", "", f"{prompt}First story.", "b", f"{prompt}Second story."]
    assert units_of_rows(texts, "rows") == ["row 0", "row 0", "row 2", "row 3", "row 2"]


def test_text_without_borders_is_cut_into_runs_of_equal_length() -> None:
    texts = ["x" * 1000] * 1000
    units = units_of_rows(texts, "unknown")
    sizes = [units.count(unit) for unit in dict.fromkeys(units)]
    assert sizes == [100] * RUNS
    assert units == sorted(units, key=lambda unit: int(unit.split()[1]))  # no run is in two pieces
    assert set(units_of_rows(["x" * 1000] * 199, "unknown")) == {"row 0"}  # too short for two that are independent
    assert len(set(units_of_rows(["x" * 1000] * 450, "unknown"))) == 4
    assert len(set(units_of_rows(["x" * 1000] * 450, "sentences"))) == RUNS


@pytest.mark.parametrize(("corpus", "units"), [("ag_news", 3), ("wikitext103", 1), ("mine", 1), ("ptb", 1)])
def test_a_local_file_has_the_documents_of_its_corpus(tmp_path: Path, corpus: str, units: int) -> None:
    write(tmp_path, f"{corpus}.test.jsonl", *({"text": f"text {i}"} for i in range(3)))
    found = load_texts(corpus, "test", data_dirs=[tmp_path], offline=True)
    assert len(set(found.units)) == units


def test_rows_may_name_their_document(tmp_path: Path) -> None:
    rows = [{"text": "a", "document": 7}, {"text": "b", "document": 7}, {"text": "c", "document": "x"}]
    write(tmp_path, "mine.test.jsonl", *rows)
    found = load_texts("mine", "test", data_dirs=[tmp_path], offline=True)
    assert list(found.units) == ["document 7", "document 7", "document x"]
    write(tmp_path, "other.test.jsonl", *({"text": row["text"]} for row in rows))
    assert load_texts("other", "test", data_dirs=[tmp_path], offline=True).fingerprint != found.fingerprint


@pytest.mark.parametrize("document", [None, "", 1.5, ["a"]])
def test_a_document_without_a_name_is_refused(tmp_path: Path, document: object) -> None:
    write(tmp_path, "mine.test.jsonl", {"text": "a", "document": 1}, {"text": "b", "document": document})
    with pytest.raises(DataError, match=r'mine.test.jsonl:2: "document" must be a name or a number, and in all rows'):
        load_texts("mine", "test", data_dirs=[tmp_path], offline=True)


def test_blocks_know_the_text_of_each_token() -> None:
    class Letters:
        def __call__(self, texts: list[str], **_: object) -> dict[str, list[list[int]]]:
            return {"input_ids": [[ord(letter) for letter in text] for text in texts]}

    texts = ["abc", "", "defgh", "ij", "k", "lmnopq"]
    packed = pack_blocks(texts, Letters(), length=4, group=3, with_sources=True)
    assert packed.sources is not None
    assert "".join(map(chr, packed.tokens)) == "abcdefghijklmnop"[:8] + "ijklmnop"
    assert packed.sources.tolist() == [0, 0, 0, 2, 2, 2, 2, 2, 3, 3, 4, 5, 5, 5, 5, 5]
    first = packed.first(8)
    assert first.sources is not None
    assert first.sources.tolist() == packed.sources.tolist()[:8]
    assert pack_blocks(texts, Letters(), length=4).sources is None
