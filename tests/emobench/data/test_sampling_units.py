"""Which examples are one sampling unit, against a plain search for connected components."""

from __future__ import annotations

import json
import random
from itertools import combinations
from pathlib import Path

import pytest

from emobench.core.errors import ConfigError, DataError
from emobench.data.packing import pack_blocks
from emobench.data.sampling_units import RUNS, content_digest, joined_units, text_digest, units_of_rows
from emobench.data.texts import load_texts


def components(contents: dict[str, list[str]], named: dict[str, str]) -> set[frozenset[str]]:
    """Return the sets of two or more examples that a chain of common contents or names connects."""
    found = [{example} for example in {*contents, *named}]

    def touch(left: set[str], right: set[str]) -> bool:
        for a in left:
            for b in right:
                same_name = a in named and named[a] == named.get(b)
                if same_name or set(contents.get(a, ())) & set(contents.get(b, ())):
                    return True
        return False

    while pair := next(((a, b) for a, b in combinations(found, 2) if touch(a, b)), None):
        found = [one for one in found if one not in pair] + [pair[0] | pair[1]]
    return {frozenset(one) for one in found if len(one) > 1}


def grouped(units: dict[str, str]) -> set[frozenset[str]]:
    return {frozenset(e for e, unit in units.items() if unit == name) for name in units.values()}


def test_units_are_the_connected_components_of_contents_and_names() -> None:
    draw = random.Random(0)
    for _ in range(200):
        examples = [str(i) for i in range(draw.randint(0, 12))]
        contents = {e: draw.sample("abcdefgh", draw.randint(0, 2)) for e in examples}
        named = {e: draw.choice("ABCDEFGH") for e in examples if draw.random() < 0.5}
        units = joined_units(contents, named)
        assert grouped(units) == components(contents, named)


def test_a_unit_has_the_first_of_its_names_whatever_the_order_of_the_examples() -> None:
    contents = {"1": ["x"], "2": ["x"], "3": ["y"], "4": ["z"], "5": ["y"]}
    named = {"2": "passage b", "4": "passage b", "1": "passage a"}
    want = {"1": "passage a", "2": "passage a", "4": "passage a", "3": "text y", "5": "text y"}
    assert joined_units(contents, named) == want
    backwards = dict(reversed(contents.items())), dict(reversed(named.items()))
    assert joined_units(*backwards) == want


def test_a_content_that_is_called_as_a_name_or_an_example_is_not_taken_for_it() -> None:
    assert joined_units({"a": ["b"], "b": ["c"]}, {"c": "d"}) == {}


def test_texts_differ_by_their_words_and_by_where_fields_end() -> None:
    texts = [("a", "b"), ("ab",), ("a b",), ("a", "b", ""), ("\ud800",)]
    assert len({text_digest(*one) for one in texts}) == len(texts)


def test_case_and_white_space_make_no_other_content() -> None:
    copies = ["One film.", " one  film.\n", "ONE\tFILM.", "One\u00a0film."]
    assert len({text_digest(copy) for copy in copies}) == 1
    assert len({content_digest([{"role": "user", "content": [copy, 1]}]) for copy in copies}) == 1
    assert content_digest(["a", 1]) != content_digest(["a", "1"])


def write(folder: Path, name: str, *rows: dict[str, object]) -> None:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_headings_of_wikitext_begin_articles() -> None:
    texts = ["", " = Robert <unk> = \n", " text \n", "", " = = Career = = \n", " more \n", "= Du Fu =", "a = b"]
    want = ["row 0", *["row 1"] * 5, "row 6", "row 6"]
    assert units_of_rows(texts, "headings") == want


def test_rows_that_begin_alike_are_of_one_unit_and_blank_ones_of_the_last() -> None:
    prompt = "You wake up and everyone that you know calls you by another name. "
    texts = ["a", "", f"{prompt}First story.", "b", f"{prompt}Second story.", f" {prompt}Third"]
    assert units_of_rows(texts, "beginnings") == ["row 0", "row 0", "row 2", "row 3", "row 2", "row 2"]
    for alike, units in ((63, ["row 0", "row 1"]), (64, ["row 0", "row 0"])):
        assert units_of_rows([f"{prompt[:alike]}a", f"{prompt[:alike]}b"], "beginnings") == units


def test_each_row_is_a_document_and_equal_rows_are_one() -> None:
    prompt = "You wake up and everyone that you know calls you by another name. "
    texts = ["", "a", " ", f"{prompt}First.", f"{prompt}Second.", " a\n", "A", "\t"]
    units = units_of_rows(texts, "rows")
    assert [units.index(unit) for unit in units] == [0, 1, 1, 3, 4, 1, 1, 1]
    assert units_of_rows(["b", "a"], "rows") == [units_of_rows(["b"], "rows")[0], units[1]]  # the text alone names it


def test_documents_with_equal_text_are_one_unit() -> None:
    article, other = [" = A = \n", "", " text \n"], [" = A = ", " other "]
    assert units_of_rows([*article, *other, *article, ""], "headings") == [
        *["row 0"] * 3,
        *["row 3"] * 2,
        *["row 0"] * 4,
    ]
    texts = ["x", "y", "x", "y", "x"]
    assert units_of_rows(texts, "rows", ["b", "b", "a", "a", "c"]) == ["b", "b", "b", "b", "c"]
    assert units_of_rows(["x", "y", "xy"], "rows", ["a", "a", "b"]) == ["a", "a", "b"]


def test_text_without_borders_is_cut_into_runs_of_equal_length() -> None:
    texts = [f"{i:04}" + "x" * 996 for i in range(1000)]
    units = units_of_rows(texts, "stream")
    sizes = [units.count(unit) for unit in dict.fromkeys(units)]
    assert sizes == [100] * RUNS
    assert units == sorted(units, key=lambda unit: int(unit.split()[1]))  # no run is in two pieces
    assert units_of_rows(texts, "headings") == units
    assert set(units_of_rows(texts[:199], "stream")) == {"row 0"}  # too short for two that are independent
    assert len(set(units_of_rows(texts[:200], "stream"))) == 2
    assert len(set(units_of_rows(texts[:450], "stream"))) == 4
    assert len(set(units_of_rows(texts[:450], "sentences"))) == RUNS
    assert len(set(units_of_rows(texts[:399], "sentences"))) == RUNS - 1
    assert len(set(units_of_rows(texts[:80], "sentences"))) == 2
    assert len(set(units_of_rows(["x" * 79_999], "sentences"))) == 1
    for lengths, run in (((79_999, 40_000, 80_001), "row 0"), ((80_000, 40_000, 80_000), "row 1")):
        rows = [letter * length for letter, length in zip("xyz", lengths, strict=True)]
        assert units_of_rows(rows, "stream")[1] == run  # the middle of a row decides
    assert units_of_rows(["x" * 60_000, "y" * 100_000, "z" * 40_000], "stream") == ["row 0", "row 1", "row 1"]


@pytest.mark.parametrize(
    ("corpus", "units"),
    [("ag_news", 3), ("wikitext103", 1), ("mine", 3), ("ptb", 1), ("my-wikitext", 3), ("some.rows", 3)],
)
def test_a_local_file_has_the_documents_of_its_corpus(tmp_path: Path, corpus: str, units: int) -> None:
    write(tmp_path, f"{corpus}.test.jsonl", *({"text": f"text {i}"} for i in range(3)))
    found = load_texts(corpus, "test", data_dirs=[tmp_path], offline=True)
    assert len(set(found.units)) == units


def test_rows_of_a_file_are_a_stream_where_the_user_says_so(tmp_path: Path) -> None:
    rows = [f"{i} " + "x" * 4_000 for i in range(70)]
    write(tmp_path, "mine.test.jsonl", *({"text": row} for row in rows))
    found = load_texts("mine", "test", data_dirs=[tmp_path], offline=True)
    assert len(set(found.units)) == 70
    assert len(set(found.as_stream().units)) == 2
    write(tmp_path, "named.test.jsonl", *({"text": row, "document": 1} for row in rows))
    with pytest.raises(ConfigError, match="documents"):
        load_texts("named", "test", data_dirs=[tmp_path], offline=True).as_stream()


def test_a_local_copy_of_wikitext_has_articles_under_any_name(tmp_path: Path) -> None:
    rows = [" = One = ", "text", " = Two = ", "more", " = = Part = = ", "end"]
    for corpus, units in (("mine.WikiText", 2), ("other", 6)):
        write(tmp_path, f"{corpus}.test.jsonl", *({"text": row} for row in rows))
        assert len(set(load_texts(corpus, "test", data_dirs=[tmp_path], offline=True).units)) == units


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


def test_blocks_know_the_text_of_each_token(monkeypatch: pytest.MonkeyPatch) -> None:
    class Letters:
        def __call__(self, texts: list[str], **_: object) -> dict[str, list[list[int]]]:
            return {"input_ids": [[ord(letter) for letter in text] for text in texts]}

    texts = ["abc", "", "defgh", "ij", "k", "lmnopq"]
    monkeypatch.setattr("emobench.data.packing.GROUP", 3)
    packed = pack_blocks(texts, Letters(), length=4, with_sources=True)
    assert packed.sources is not None
    assert "".join(map(chr, packed.tokens)) == "abcdefghijklmnop"[:8] + "ijklmnop"
    assert packed.sources.tolist() == [0, 0, 0, 2, 2, 2, 2, 2, 3, 3, 4, 5, 5, 5, 5, 5]
    first = packed.first(8)
    assert first.sources is not None
    assert first.sources.tolist() == packed.sources.tolist()[:8]
    assert pack_blocks(texts, Letters(), length=4).sources is None
