"""Texts come from the data folder that has them, or from the source; what cannot be read is named to the line."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import pytest

from emobench.core.errors import ConfigError, DataError, Missing, UnknownNameError
from emobench.data.instruction_sets import load_conversations
from emobench.data.rows import digest
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
    with pytest.raises(DataError, match="holds no text"):
        load_texts("m", "train", data_dirs=[tmp_path], offline=True)


def test_an_unknown_corpus_names_the_nearest_and_the_file_that_would_be_it(tmp_path: Path) -> None:
    write(tmp_path, "mine.train.jsonl", *rows("x"))
    with pytest.raises(UnknownNameError, match=r"'wikitxt2'; did you mean 'wikitext2'\?.*DIR/wikitxt2\.train\.jsonl"):
        load_texts("wikitxt2", "train", data_dirs=[], offline=True)
    with pytest.raises(UnknownNameError, match="did you mean 'mine'"):
        load_texts("mime", "train", data_dirs=[tmp_path], offline=True)
    with pytest.raises(DataError, match=r"'mine' has no validation split .* DIR/mine\.validation\.jsonl"):
        load_texts("mine", "validation", data_dirs=[tmp_path], offline=True)
    with pytest.raises(UnknownNameError, match=r"no corpus '\.\./mine'"):
        load_texts("../mine", "train", data_dirs=[tmp_path], offline=True)


def test_bad_options_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"--data-dir {tmp_path / 'no'}: there is no such folder"):
        load_texts("wikitext2", "train", data_dirs=[tmp_path / "no"], offline=True)
    with pytest.raises(UnknownNameError, match="no split 'dev'"):
        load_texts("wikitext2", "dev", data_dirs=[], offline=True)
