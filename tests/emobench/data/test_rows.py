"""Rows of files: nothing is lost without a word, and an error names the line."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from emobench.core.errors import DataError
from emobench.data.rows import file_rows

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
