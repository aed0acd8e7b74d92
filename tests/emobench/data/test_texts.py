"""Texts come from the data folder that has them, or from the source; what cannot be read is named to the line."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import pytest

from emobench.core.errors import ConfigError, DataError, Missing, UnknownNameError
from emobench.data.instruction_sets import local_conversations
from emobench.data.texts import fingerprint, load_texts


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
        local_conversations("ag_news", "train", folders)
    assert load_texts("ag_news", "test", data_dirs=folders, offline=True).texts == ["b"]


def test_a_file_in_another_format_is_not_passed_by(tmp_path: Path) -> None:
    write(tmp_path, "wikitext2.train.txt", "a text")
    with pytest.raises(
        ConfigError, match=r"has wikitext2\.train\.txt; expected wikitext2\.train\.jsonl, with one JSON"
    ):
        load_texts("wikitext2", "train", data_dirs=[tmp_path], offline=True)
    with pytest.raises(Missing) as missing:
        load_texts("wikitext2", "test", data_dirs=[tmp_path], offline=True)
    found = missing.value
    assert (found.item, found.source, found.size) == ("corpus wikitext2 (test)", "Salesforce/wikitext", 730_000)


def test_the_fingerprint_sees_where_texts_end() -> None:
    assert fingerprint(["ab", "c"]) != fingerprint(["a", "bc"])
    assert fingerprint(["a", ""]) != fingerprint(["a"])


def test_limit_takes_the_first_rows_and_reads_no_further(tmp_path: Path) -> None:
    write(tmp_path, "m.test.jsonl", *rows("a", "", "b"), "not JSON")
    texts = load_texts("m", "test", data_dirs=[tmp_path], offline=True, limit=3)
    assert texts.texts == ["a", "", "b"]
    assert texts.fingerprint == fingerprint(["a", "", "b"])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("hello", "expected one JSON object a line, .* got `hello`"),
        ('{"text": "a"', "expected one JSON object a line"),
        ('["a"]', 'expected a JSON object with a "text", got `\\["a"\\]`'),
        ('{"body": "a", "id": 1}', "expected a field \"text\"; the fields are: 'body', 'id'"),
        ('{"text": 3}', '"text" must be a string, got `3`'),
        ('{"text": null}', '"text" must be a string, got `null`'),
        (b'{"text": "caf\xe9"}', "byte 14 of the line is not UTF-8"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str | bytes, words: str) -> None:
    file = write(tmp_path, "m.train.jsonl", *rows("fine"), "", line)
    with pytest.raises(DataError, match=f"^{file}:3: .*{words}"):
        load_texts("m", "train", data_dirs=[tmp_path], offline=True)


def test_half_a_surrogate_pair_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "m.train.jsonl", *rows("fine"), '{"text": "\\ud800"}')
    with pytest.raises(DataError, match="row 2: half of a surrogate pair"):
        load_texts("m", "train", data_dirs=[tmp_path], offline=True)


@pytest.mark.parametrize("lines", [[], rows("", " \n")])
def test_an_empty_corpus_is_refused(tmp_path: Path, lines: list[str]) -> None:
    file = write(tmp_path, "m.train.jsonl", *lines)
    with pytest.raises(DataError, match=f"{file} holds no text"):
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
    for limit in (0, -1):
        with pytest.raises(DataError, match=f"limit of texts is {limit}"):
            load_texts("wikitext2", "train", data_dirs=[], offline=True, limit=limit)
