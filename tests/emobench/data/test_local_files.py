"""Data of the user by a path: formats, splits, and what is wrong with them, each in one sentence."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from emobench.core.errors import ConfigError, DataError, UserError
from emobench.core.settings import build
from emobench.data import local_files
from emobench.data.instruction_sets import load_conversations
from emobench.data.labelled import LabelledSource, load_labelled, local_labelled
from emobench.data.local_files import data_name, local_data, placed_data
from emobench.data.texts import Texts, load_texts
from emobench.registry import find_suite, find_task

TEXTS = [f"review {i}, of a film" for i in range(40)]
Put = Callable[[Mapping[str, Any]], Path]


def written(texts: list[str], suffix: str, column: str = "text") -> bytes:
    rows = [{"id": i, column: text} for i, text in enumerate(texts)]
    if suffix == ".parquet":
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(rows), sink)
        return sink.getvalue().to_pybytes()
    lines = {
        ".csv": [f"id,{column}", *(f'{i},"{text}"' for i, text in enumerate(texts))],
        ".jsonl": list(map(json.dumps, rows)),
        ".json": [json.dumps(rows)],
        ".txt": texts,
    }
    return "\n".join([*lines[suffix.removesuffix(".gz")], ""]).encode()


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Write files into a folder, which becomes the working folder; return it."""
    monkeypatch.chdir(tmp_path)

    def write(files: Mapping[str, Any]) -> Path:
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, list):
                content = written(content, "." + name.partition(".")[2])
            if name.endswith(".gz"):
                content = gzip.compress(content)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return tmp_path

    return write


def read(name: str, split: str = "train") -> Texts:
    return load_texts(name, split, data_dirs=[], offline=True)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".json", ".parquet", ".txt", ".csv.gz", ".jsonl.gz", ".txt.gz"])
def test_rows_of_each_format_are_documents_whose_content_is_their_identity(suffix: str, put: Put) -> None:
    folder = put({f"a{suffix}": TEXTS, "b.csv": TEXTS})
    train, validation, test = (read(f"./a{suffix}", split) for split in ("train", "validation", "test"))
    assert (train.texts, test.texts, validation.texts) == (TEXTS[:34], TEXTS[34:38], TEXTS[38:])
    assert len(set(train.units)) == 34
    assert train.fingerprint == read(f"{folder}/b.csv:text").fingerprint
    assert list(test.provenance) == [f"./a{suffix}.test"]
    assert str(folder) not in str(test.provenance)
    for split in (train, validation, test):
        assert split.note
        assert split.origin == f"local: a{suffix}, {split.note}"


def test_a_file_of_a_folder_belongs_to_the_split_in_its_name(put: Put) -> None:
    put({"d/train/part-1.jsonl": TEXTS[:2], "d/train/part-2.jsonl": TEXTS[2:5], "d/test.jsonl": TEXTS[5:9]})
    put({"d/dev-0.jsonl": TEXTS[9:], "e/a.csv": TEXTS[:30], "e/a_test.csv": TEXTS[30:], "e/.hidden/train.csv": "?"})
    assert read("./d").texts == TEXTS[:5]
    assert (read("./d", "test").texts, read("./d", "validation").texts) == (TEXTS[5:9], TEXTS[9:])
    assert not read("./d").note
    assert (len(read("./e")), len(read("./e", "validation")), len(read("./e", "test"))) == (28, 2, 10)


def test_of_several_text_files_each_is_a_document(put: Put) -> None:
    put({f"books/{i:02}.txt": [f"line {line} of {i}" for line in range(5)] for i in range(10)})
    splits = {split: read("./books", split) for split in ("train", "validation", "test")}
    assert {split: len(set(texts.units)) for split, texts in splits.items()} == {
        "train": 8,
        "validation": 1,
        "test": 1,
    }
    assert sum(map(len, splits.values())) == 50


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_rows_that_name_their_document_are_held_out_together(name: str, put: Put) -> None:
    rows = [{"body": f"part {i}", "document": f"d{i % 5}"} for i in range(20)]
    folder = put({"a.jsonl": "\n".join(map(json.dumps, rows))})
    pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet")
    assert read(f"./{name}:body", "validation").texts == ["part 4", "part 9", "part 14", "part 19"]
    assert set(read(f"./{name}:body").named or ()) == {"document d0", "document d1", "document d2"}


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("./a.csv:text", "./a.csv:text"),
        ("/somewhere/a.csv.gz:text", "./a.csv.gz:text"),
        ("a.parquet", "./a.parquet"),
        ("~/data/reviews:body", "./reviews:body"),
        ("here/folder:body", "./folder:body"),
        *[(name, name) for name in ("wikitext2", "stanfordnlp/imdb:text", "some/toy@abc:text", "no/folder:body")],
    ],
)
def test_a_path_is_known_by_its_last_part(name: str, short: str, put: Put) -> None:
    folder = put({"here/folder/a.csv": TEXTS})
    assert data_name(name) == short
    assert (local_data(name) is None) == (name == short != "./a.csv:text")
    if not name.startswith(("/", "~")) and name != short:
        assert data_name(placed_data(name, folder)) == short


@pytest.mark.parametrize(
    ("files", "name", "words"),
    [
        ({"a.csv": 'text\na\n"b\nc\n'}, "./a.csv", ["a.csv:3"]),
        ({"a.csv": "text,label\na,1\nb\n"}, "./a.csv", ["a.csv:3", "2 fields"]),
        ({"a.csv": "text\na\n".encode("utf-16")}, "./a.csv", ["a.csv", "UTF-8"]),
        ({"a.txt": b"fine\ncaf\xe9\n"}, "./a.txt", ["a.txt:2", "UTF-8"]),
        ({"a.csv": "review,label\na,1\n"}, "./a.csv", ["a.csv:2", '"text"', "review, label"]),
        ({"a.txt": "a\n"}, "./a.txt:text2", ["a.txt", "text2"]),
        ({"a.csv": ""}, "./a.csv", ["a.csv", "0 documents"]),
        ({"a.csv": "text\n"}, "./a.csv", ["a.csv"]),
        ({"a.csv": "text\na\nb\n"}, "./a.csv", ["a.csv", "2 documents"]),
        ({"a.csv.gz": TEXTS}, "./a.csv.gz:no", ["a.csv.gz:2", '"no"', "id, text"]),
        ({"a.parquet": "no"}, "./a.parquet", ["a.parquet"]),
        ({"d/1.csv": "text\na\n", "d/2.csv": "body\nb\n"}, "./d", ["2.csv:2", '"text"', "body"]),
        ({"d/1.csv": TEXTS, "d/2.jsonl": TEXTS}, "./d", [".csv and .jsonl"]),
        ({"d/train_test.csv": TEXTS}, "./d", ["train_test.csv", "train and test"]),
        ({"d/train.csv": TEXTS, "d/more.csv": TEXTS}, "./d", ["more.csv", "train.csv"]),
        ({"d/a.docx": "no"}, "./d", [".parquet", ".txt"]),
        ({}, "./nothing.csv:text", ["nothing.csv"]),
        ({"a.csv": TEXTS}, "./a.csv:text:label", ["one column"]),
        ({"a.csv": TEXTS}, "./a.csv:", ["COLUMN"]),
    ],
)
def test_bad_data_are_named_in_one_sentence(files: dict[str, Any], name: str, words: list[str], put: Put) -> None:
    put(files)
    with pytest.raises(UserError) as refused:
        read(name)
    message = str(refused.value)
    assert all(word in message for word in words), message


def test_a_gzip_file_that_is_cut_off_is_refused(put: Put) -> None:
    folder = put({"a.jsonl.gz": [f"{i} {os.urandom(50).hex()}" for i in range(2000)]})
    file = folder / "a.jsonl.gz"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"a\.jsonl\.gz"):
        read("./a.jsonl.gz")


def test_more_text_than_fits_is_refused(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_files, "LARGEST", sum(map(len, TEXTS)) - 1)
    put({"a.csv": TEXTS, "d/train.csv.gz": TEXTS, "d/test.csv": TEXTS[:5]})
    put({"e.train.jsonl": written(TEXTS, ".jsonl")})
    with pytest.raises(DataError, match=r"a\.csv: .*train.* bytes"):
        read("./a.csv")
    with pytest.raises(DataError, match=r"train\.csv\.gz:41: .* bytes"):
        read("./d")
    with pytest.raises(DataError, match=r"e\.train\.jsonl:40: .* bytes"):
        load_texts("e", "train", data_dirs=[Path()], offline=True)
    assert len(read("./d", "test")) == 5


def test_a_file_that_changed_is_read_again(put: Put) -> None:
    put({"a.csv": TEXTS})
    assert len(read("./a.csv")) == 34
    put({"a.csv": TEXTS[:20]})
    assert len(read("./a.csv")) == 17


def test_conversations_are_read_from_the_same_files(put: Put) -> None:
    rows = [{"prompt": f"ask {i}", "completion": f"answer {i}"} for i in range(60)]
    chats = [{"chat": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": str(i)}]} for i in range(3)]
    put({"a.csv": "prompt,completion\n" + "\n".join(",".join(row.values()) for row in rows)})
    put({"b/train.jsonl": "\n".join(map(json.dumps, chats)), "b/dev.jsonl": json.dumps(chats[0])})
    train, validation = (load_conversations("./a.csv", s, data_dirs=[], offline=True) for s in ("train", "validation"))
    assert (len(train), len(validation)) == (58, 2)
    assert train.note
    assert train.corpus == "./a.csv"
    chats_of = [load_conversations("./b:chat", s, data_dirs=[], offline=True) for s in ("train", "validation")]
    assert list(map(len, chats_of)) == [3, 1]
    with pytest.raises(DataError, match=r'"messages".*chat'):
        load_conversations("./b:messages", "train", data_dirs=[], offline=True)
    with pytest.raises(ConfigError, match=r"no\.jsonl"):
        load_conversations("./no.jsonl", "train", data_dirs=[], offline=True)


def test_a_path_in_a_file_is_relative_to_the_file(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    run = "{recipe: lm-finetune, settings: {corpus: a.csv}, tasks: [own.yaml]}"
    protocols = "protocols: {own: {prefix: 2, continuation: 2}}"
    folder = put({
        "s/a.csv": TEXTS,
        "s/own.yaml": f"{{name: own, kind: generation, version: 1, corpus: './a.csv:text', {protocols}}}",
        "s/all.yaml": f"{{name: all, version: 1, runs: [{run}]}}",
    })  # fmt: skip
    monkeypatch.chdir("/")
    task, suite = find_task(f"{folder}/s/own.yaml"), find_suite(f"{folder}/s/all.yaml")
    for corpus in (task.corpus, suite.runs[0].settings["corpus"]):
        assert read(corpus).texts == TEXTS[:34]


def rated(numbers: bool = False) -> bytes:
    rows = [f"review {i // 2 * 2},{i % 2 if numbers else ('bad', 'good')[i % 2]}" for i in range(100)]
    return "\n".join(["review,mood", *rows]).encode()


def test_half_of_the_labelled_rows_are_answered_and_more_rows_move_none(put: Put) -> None:
    put(
        {"a.csv": rated(), "b.csv": rated().rpartition(b"\nreview 90")[0], "d/train.csv": rated(), "d/dev.csv": rated()}
    )
    data = local_data("./a.csv:review:mood")
    assert data is not None
    facts = local_labelled(data)
    assert facts["classes"] == ["bad", "good"]
    source = build(LabelledSource, facts, "a.csv")
    full, less = (load_labelled(replace(source, path=file), data_dirs=[], offline=True) for file in ("a.csv", "b.csv"))
    assert {example.id for example in less.test} <= {example.id for example in full.test}
    assert 25 < len(full.test) < 75
    assert len(full.pool) + len(full.test) == 100
    assert {example.content for example in full.pool}.isdisjoint(example.content for example in full.test)
    assert full.note
    assert full.provenance["a.test"].partition("(")[2].startswith("local: a.csv, half")
    folder = local_data("./d:review:mood")
    assert folder is not None
    facts = local_labelled(folder)
    assert facts["test"] == {"split": "validation"}
    own = load_labelled(build(LabelledSource, facts, "d"), data_dirs=[], offline=True)
    assert (len(own.pool), own.note) == (100, "")


def test_numbers_are_classes_whose_names_the_author_writes(put: Put) -> None:
    rows = [{"t": f"film {i}", "y": i % 2} for i in range(20)]
    put({"a.jsonl": "\n".join(map(json.dumps, rows)), "a.csv": rated(numbers=True)})
    for name in ("./a.jsonl:t:y", "./a.csv:review:mood"):
        data = local_data(name)
        assert data is not None
        facts = local_labelled(data)
        assert facts["classes"] == ["0", "1"]
        read = load_labelled(build(LabelledSource, facts, name), data_dirs=[], offline=True)
        assert {example.label for example in read.test} == {"0", "1"}


@pytest.mark.parametrize(
    ("content", "columns", "words"),
    [
        ("text,label\na,x\nb,\n", "text:label", ["a.csv:3", "blank"]),
        ("text,label\na,x\n,y\n", "text:label", ["a.csv:3", "blank"]),
        ("text,label\na,x\nb,x\n", "text:label", ["'label'", "1 different"]),
        ("text,label\na,x\nb,y\n", "text:class", ["a.csv:2", '"class"', "text, label"]),
        ("text,label\na,x\nb,y\n", "text", ["a.csv", "TEXT:LABEL"]),
        ("text,label\na,x\nb\n", "text:label", ["a.csv:3", "2 fields"]),
        ("", "text:label", ["a.csv", "0 different"]),
    ],
)
def test_bad_labelled_data_are_named_in_one_sentence(
    content: str, columns: str, words: list[str], put: Put, command: Any
) -> None:
    folder = put({"a.csv": content})
    command("tasks", "new", f"./a.csv:{columns}").refused(*words)
    assert not (folder / "a.yaml").exists()


def test_larger_files_of_examples_are_refused(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_files, "LARGEST", 100)
    put({"a.csv": rated(), "b.jsonl": json.dumps({"prompt": "a" * 50, "completion": "b" * 50})})
    data = local_data("./a.csv:review:mood")
    assert data is not None
    with pytest.raises(DataError, match=r"a\.csv: .*100"):
        local_labelled(data)
    with pytest.raises(DataError, match=r"b\.jsonl: .*100"):
        load_conversations("./b.jsonl", "train", data_dirs=[], offline=True)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_columns_of_numbers_are_part_of_the_texts(form: str, tmp_path: Path) -> None:
    def load(values: list[Any], **given: Any) -> Any:
        rows = [{"text": f"w{i}", "b": value} for i, value in enumerate(values)]
        file = tmp_path / f"own.{form}"
        if form == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), file)
        else:
            file.write_text("\n".join(map(json.dumps, rows)))
        given = {"split": "train", "fields": {"b": "b"}} | given
        return load_texts(str(file), given.pop("split"), data_dirs=[], offline=True, **given)

    values = [[-float(i), -0.5] for i in range(40)]
    found, other = load(values), load([*values[:-12], [-0.25, -0.5], *values[-11:]])
    assert [row["b"].value for row in found.numbers] == [[value] for value in values[: len(found)]]
    assert len(found) < 40  # of the rows that are held out, none has numbers here
    assert len({found.fingerprint, other.fingerprint, load(values, fields={}).fingerprint}) == 3
    assert load(values, split="validation", fields={}).numbers == []
    wrong = [*values[:2], [-1.0, float("inf")], *values[3:]]
    with pytest.raises(DataError, match=rf'own\.{form}:3: "b" has Infinity; expected a number from -1,000,000'):
        load(wrong)
    with pytest.raises(ConfigError, match="wikitext2 is no local file"):
        load_texts("wikitext2", "train", data_dirs=[], offline=True, fields={"b": "b"})
