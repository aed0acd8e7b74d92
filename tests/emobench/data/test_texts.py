"""Texts come from the data folder that has them, or from the source; what cannot be read is named to the line."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from emobench.core.errors import ConfigError, DataError, Missing, UnknownNameError
from emobench.data.instruction_sets import load_conversations
from emobench.data.rows import digest, file_rows
from emobench.data.texts import load_texts


def write(folder: Path, name: str, *lines: str | bytes) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines))
    return file


def rows(*texts: str) -> list[str]:
    return [json.dumps({"text": text}) for text in texts]


def test_a_local_file_is_read_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "a", "other.train.jsonl", *rows("x"))
    write(
        tmp_path / "b", "mine.train.jsonl", *rows(" = Title = \n", "", "naïve\u2028café"), "", '{"text": "é", "id": 3}'
    )
    texts = load_texts("mine", "train", data_dirs=[tmp_path / "a", tmp_path / "b", tmp_path / "b"], offline=True)
    assert texts.texts == [" = Title = \n", "", "naïve\u2028café", "é"]
    assert (texts.corpus, texts.split, texts.origin) == ("mine", "train", "local: mine.train.jsonl")
    framed = b"".join(struct.pack("<Q", len(t.encode())) + t.encode() for t in texts.texts)
    assert texts.fingerprint == "sha256:" + hashlib.sha256(framed).hexdigest()


def test_two_folders_with_one_corpus_are_refused(tmp_path: Path) -> None:
    """Neither is meant: with the first of each split, a model could be trained on one and tested on the other."""
    for folder in ("a", "b"):
        write(tmp_path / folder, "ag_news.train.jsonl", *rows(folder))
    write(tmp_path / "b", "ag_news.test.jsonl", *rows("b"))
    folders = [tmp_path / "a", tmp_path / "b"]
    with pytest.raises(ConfigError, match=r"a/ag_news\.train\.jsonl and .*b/ag_news\.train\.jsonl"):
        load_texts("ag_news", "train", data_dirs=folders, offline=True)
    with pytest.raises(ConfigError, match=r"ag_news\.train\.jsonl"):
        load_conversations("ag_news", "train", data_dirs=folders, offline=True)
    assert load_texts("ag_news", "test", data_dirs=folders, offline=True).texts == ["b"]


def test_a_file_in_another_format_is_not_passed_by(tmp_path: Path) -> None:
    write(tmp_path, "wikitext2.train.txt", "a text")
    with pytest.raises(ConfigError, match=r"wikitext2\.train\.txt .*; expected wikitext2\.train\.jsonl"):
        load_texts("wikitext2", "train", data_dirs=[tmp_path], offline=True)
    with pytest.raises(Missing) as missing:
        load_texts("wikitext2", "test", data_dirs=[tmp_path], offline=True)
    found = missing.value
    assert (found.item, found.source, found.size) == ("corpus wikitext2 (test)", "Salesforce/wikitext", 730_000)


def test_the_fingerprint_sees_where_texts_end() -> None:
    assert digest(["ab", "c"]) != digest(["a", "bc"])
    assert digest(["a", ""]) != digest(["a"])


@pytest.mark.parametrize(
    "line",
    [
        "hello",
        '{"text": "a"',
        '["a"]',
        '{"body": "a", "id": 1}',
        '{"text": 3}',
        '{"text": null}',
        b'{"text": "caf\xe9"}',
        '{"text": "\\ud800"}',
        '{"text": "a", "document": 1}',
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str | bytes) -> None:
    file = write(tmp_path, "m.train.jsonl", *rows("fine"), "", line)
    with pytest.raises(DataError, match=f"^{file}:[13]: "):
        load_texts("m", "train", data_dirs=[tmp_path], offline=True)


@pytest.mark.parametrize("lines", [[], rows("", " \n")])
def test_an_empty_corpus_is_refused(tmp_path: Path, lines: list[str]) -> None:
    write(tmp_path, "m.train.jsonl", *lines)
    with pytest.raises(DataError, match="has no text"):
        load_texts("m", "train", data_dirs=[tmp_path], offline=True)


def test_an_unknown_corpus_names_the_nearest_and_the_file_that_would_be_it(tmp_path: Path) -> None:
    write(tmp_path, "mine.train.jsonl", *rows("x"))
    with pytest.raises(UnknownNameError, match=r"'wikitxt2'; did you mean 'wikitext2'\?.*DIR/wikitxt2\.train\.jsonl"):
        load_texts("wikitxt2", "train", data_dirs=[], offline=True)
    with pytest.raises(UnknownNameError, match="did you mean 'mine'"):
        load_texts("mime", "train", data_dirs=[tmp_path], offline=True)
    with pytest.raises(DataError, match=r"'mine' has no validation split .* DIR/mine\.validation\.jsonl"):
        load_texts("mine", "validation", data_dirs=[tmp_path], offline=True)
    with pytest.raises(ConfigError, match=r"no file or folder \.\./mine"):
        load_texts("../mine", "train", data_dirs=[tmp_path], offline=True)


def test_bad_options_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"--data-dir {tmp_path / 'no'}: there is no such folder"):
        load_texts("wikitext2", "train", data_dirs=[tmp_path / "no"], offline=True)
    with pytest.raises(UnknownNameError, match="no split 'dev'"):
        load_texts("wikitext2", "dev", data_dirs=[], offline=True)


# Rows of files: nothing is lost without a word, and an error names the line.

ROWS = [
    {"text": "plain", "label": "0"},
    {"text": 'with "quotes", a comma\nand a line\r\nand another', "label": "1"},
    {"text": "", "label": ""},
    {"text": "NA", "label": " é 🙂 "},
    {"text": "b" * 200_000, "label": "2"},
]


def written(rows: list[dict[str, str]], **dialect: Any) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), **dialect)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def read(folder: Path, content: str | bytes) -> list[tuple[str, dict[str, Any]]]:
    file = folder / "a.csv"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(file_rows(file, "a.csv"))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_what_csv_writes_comes_back(end: str, quoting: int, tmp_path: Path) -> None:
    text = written(ROWS, lineterminator=end, quoting=quoting)
    assert [row for _, row in read(tmp_path, text)] == ROWS
    assert [row for _, row in read(tmp_path, "\ufeff" + text)] == ROWS


def test_a_place_is_the_line_where_a_row_begins(tmp_path: Path) -> None:
    found = read(tmp_path, 'text,label\n"a\nb",1\n\nc,2\n')
    assert [place for place, _ in found] == ["a.csv:2", "a.csv:5"]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ('text,label\na,0\n"b,1\nc,0\nd,1\n', "a.csv:3"),  # an unclosed quote
        ('text,label\na,0\nb,"1', "a.csv:3"),
        ('text,label\na,0\n"b,1\nc,"0"\nd,1\n', "a.csv:3"),  # which the next quote closes
        ('text,label\na,0\n"b" c,1\n', "a.csv:3"),
        ("text,label\na,0\nb,1,2\n", "a.csv:3"),  # too many fields
        ("text,label\na,0\nb\n", "a.csv:3"),  # too few
        ('text,label\n"a\nb",0\nb\n', "a.csv:4"),
        ("text,label\na,0,\n", "a.csv:2"),
        ("text,label\na,0\n\0,1\n", "a.csv:3"),
        ("text,text\na,b\n", "a.csv:1"),
        ("text,,label\na,b,c\n", "a.csv:1"),
        (",,\na,b,c\n", "a.csv:1"),
        ("text,label,text\na,b,c\n", "a.csv:1"),
        ("text;label,x\na;b\n", "a.csv:2"),
        ("text,label\na,0\nb,\x80\n".encode("latin-1"), "a.csv"),
        ("text,label\na,0\n".encode("utf-16"), "a.csv"),
    ],
)
def test_a_file_that_lost_its_form_is_refused(content: str | bytes, place: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"^{place}[: ]"):
        read(tmp_path, content)


def test_a_column_of_pandas_index_and_blank_lines_lose_nothing(tmp_path: Path) -> None:
    assert [row for _, row in read(tmp_path, "\n,text\n0,a\n\n1,b\n")] == [
        {"": "0", "text": "a"},
        {"": "1", "text": "b"},
    ]
    assert read(tmp_path, "") == []
    assert read(tmp_path, "text,label\n") == []


@pytest.mark.parametrize("row", ['{"text": "a", "text": "b"}', '{"text": "a", "inner": [{"x": 1, "y": 2, "x": 1}]}'])
def test_a_field_that_stands_twice_is_refused(row: str, tmp_path: Path) -> None:
    lines, rows = tmp_path / "a.jsonl", tmp_path / "a.json"
    lines.write_text('{"text": "a"}\n' + row)
    rows.write_text(f"[{row}]")
    for file, place in ((lines, "a.jsonl:2"), (rows, "a.json")):
        with pytest.raises(DataError, match=rf"{place}: .*'(text|x)' stands there more than once"):
            list(file_rows(file))


def test_a_parquet_file_with_more_rows_than_bytes_is_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "x.train.parquet"
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(5_000_000, dtype=np.int32)), ["one text"])
    pq.write_table(pa.table({"text": column.cast(pa.string())}), file, compression="zstd")
    assert file.stat().st_size < 100_000
    began = time.monotonic()
    with pytest.raises(DataError, match="5,000,000 rows"):
        next(file_rows(file))
    assert time.monotonic() - began < 2


def test_a_parquet_file_that_holds_far_more_than_its_size_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.train.parquet"
    texts = ["x" * 10**6] * 100
    pq.write_table(pa.table({"text": texts}), file, compression="zstd")
    with pytest.raises(DataError, match="its own size"):
        for _ in file_rows(file):
            pass


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 1000])
def test_rows_of_batches_are_those_of_the_table(count: int, tmp_path: Path) -> None:
    file = tmp_path / "x.train.parquet"
    table = pa.table({"text": [f"text {i}" for i in range(count)], "label": list(range(count))})
    pq.write_table(table, file, row_group_size=100)
    assert [row for _, row in file_rows(file)] == table.to_pylist()
    assert [row for _, row in file_rows(file, columns=("text",))] == table.select(["text"]).to_pylist()
    assert [row for _, row in file_rows(file, columns=("absent",))] == table.to_pylist()
    assert [where.rpartition(":")[2] for where, _ in file_rows(file)] == [str(i) for i in range(1, count + 1)]
