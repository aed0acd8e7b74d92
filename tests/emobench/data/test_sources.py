"""Sources read what a hub cache holds, at the commit it holds, and check its sizes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from datasets import config as datasets_config
from datasets.utils.file_utils import hash_url_to_filename

from emobench.core.errors import DataError, Missing
from emobench.data import texts as preparation
from emobench.data.sources import CORPORA, SPLITS, Split
from emobench.data.texts import Fields, Texts, detokenized, load_texts, webtext, writingprompts
from emobench.models.hub import COMMIT

PINNED = {name: corpus.revision for name, corpus in CORPORA.items() if corpus.kind == "hub"}
Publish = Callable[[str, dict[str, Any]], Path]


@pytest.fixture(autouse=True)
def urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of downloaded URLs."""
    monkeypatch.setattr(datasets_config, "DOWNLOADED_DATASETS_PATH", str(tmp_path / "urls"))
    (tmp_path / "urls").mkdir()
    return tmp_path / "urls"


@pytest.fixture(autouse=True)
def download(publish: Callable[..., Path]) -> Publish:
    """Lay out the files of a corpus as a download from the hub leaves them."""
    return lambda name, files: publish(CORPORA[name].repo, files, commit=PINNED[name])


def load(corpus: str, split: str) -> Texts:
    return load_texts(corpus, split, data_dirs=[], offline=True)


def test_every_hub_corpus_of_the_catalog_has_three_splits() -> None:
    hub = {"wikitext2", "wikitext103", "webtext", "ptb", "writingprompts", "ag_news", "gpt2-oracle"}
    assert {name for name, corpus in CORPORA.items() if corpus.kind != "generated"} == hub
    assert {tuple(CORPORA[name].splits) for name in hub} == {SPLITS}
    assert all(COMMIT.fullmatch(revision) for revision in PINNED.values())
    for part in CORPORA["ptb"].splits.values():
        assert "/76870253cfca069477f06b7056af87f98490b6eb/" in part.files
        assert len(part.sha256) == 64
    assert [part.size for part in CORPORA["webtext"].splits.values()] == [679_129_270, 13_622_302, 13_478_245]


@pytest.mark.parametrize("name", [name for name, corpus in CORPORA.items() if corpus.kind != "generated"])
def test_a_missing_source_offline_names_the_file_and_the_source(name: str) -> None:
    with pytest.raises(Missing) as missing:
        load(name, "validation")
    assert (missing.value.item, missing.value.source) == (f"corpus {name} (validation)", CORPORA[name].repo)
    assert missing.value.size == CORPORA[name].splits["validation"].download_bytes
    for words in (f"DIR/{name}.validation.jsonl", "without --offline"):
        assert words in missing.value.how


def test_wikitext_rows_are_kept_as_they_are_across_files(download: Publish) -> None:
    lines = ["", " = Title = \n", "words \n", *map(str, range(3_757))]
    name = "wikitext-2-raw-v1/validation-0000{}-of-00002.parquet"
    download("wikitext2", {name.format(0): lines[:9], name.format(1): lines[9:]})
    texts = load("wikitext2", "validation")
    assert texts.texts == lines
    assert texts.origin == f"hub: Salesforce/wikitext@{PINNED['wikitext2']}"
    with pytest.raises(Missing, match=r"corpus wikitext2 \(train\)"):
        load("wikitext2", "train")
    download("wikitext2", {"wikitext-2-raw-v1/test-0.parquet": ["a", "b"]})
    with pytest.raises(DataError, match="gave 2 rows, expected 4,358"):
        load("wikitext2", "test")


def test_ag_news_validation_is_carved_out_of_train(download: Publish) -> None:
    table = pa.table({"text": [str(i) for i in range(120_000)], "label": [0] * 120_000})
    download("ag_news", {"data/train-00000-of-00001.parquet": table})
    ends = [
        texts.texts[place] for texts in (load("ag_news", "train"), load("ag_news", "validation")) for place in (0, -1)
    ]
    assert ends == ["0", "111999", "112000", "117999"]


def test_ptb_is_lines_of_a_known_digest(urls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = CORPORA["ptb"].splits["test"]
    data = "".join(f" s {i} <unk> N \n" for i in range(3_761)).encode()
    file = urls / hash_url_to_filename(part.files)
    file.write_bytes(data)
    with pytest.raises(DataError, match="sha256"):  # it is downloaded by the next call
        load("ptb", "test")
    assert not file.exists()
    file.write_bytes(data)
    known = replace(part, sha256=hashlib.sha256(data).hexdigest())
    monkeypatch.setitem(CORPORA, "ptb", replace(CORPORA["ptb"], splits={"test": known}))
    texts = load("ptb", "test")
    assert (texts.texts[7], texts.origin) == ("s 7 <unk> N", f"url: {part.files}")


def words(name: str, count: int) -> str:
    return " ".join([name, *["word"] * (count - 1)])


def test_writingprompts_is_prepared_as_by_zhang_et_al(download: Publish) -> None:
    """Prompt and story in one line, detokenized, over 50 and under 1,000 words; Table 4's number of them."""
    stories: list[str | None] = [words(f"`` story {i} , '' he said . <newline> <newline> It", 60) for i in range(1_100)]
    stories[1] = "too short ."
    prompts = [f"[ WP ] A prompt {i} . " for i in range(1_100)]
    download("writingprompts", {"data/test-0.parquet": pa.table({"story": stories, "prompt": prompts})})
    texts = load("writingprompts", "test")
    assert len(texts) == 1_047
    assert texts.texts[0].startswith('[WP] A prompt 0. "story 0," he said. It word word')
    assert texts.texts[1].startswith("[WP] A prompt 2.")
    assert texts.origin.endswith(f"{PINNED['writingprompts']}, prepared as by Zhang et al. (2023)")
    stories[3] = None
    for table in ({"story": stories, "prompt": prompts}, {"story": ["a"]}):
        download("writingprompts", {"data/test-0.parquet": pa.table(table)})
        with pytest.raises(DataError, match=r"test-0\.parquet:\d+: .*\"(story|prompt)\""):
            load("writingprompts", "test")


@pytest.fixture
def write_urls(urls: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write WebText's files, which may have any size."""
    splits = {split: replace(part, size=None) for split, part in CORPORA["webtext"].splits.items()}
    monkeypatch.setitem(CORPORA, "webtext", replace(CORPORA["webtext"], splits=splits))

    def write(**given: list[str]) -> None:
        for split, texts in given.items():
            lines = (json.dumps({"id": i, "text": text, "ended": True}) for i, text in enumerate(texts))
            (urls / hash_url_to_filename(splits[split].files)).write_text("\n".join(lines))

    return write


def test_webtext_is_prepared_as_by_zhang_et_al_and_its_splits_share_no_text(write_urls: Callable[..., None]) -> None:
    """Test and validation are filled up to 5,000 from the beginning of train, whose next 20,000 are Table 4's."""
    train = [words(f"train-{i}", 51) for i in range(25_010)]
    test = [words(f"test-{i}", 60 if i >= 4 else 50) for i in range(5_000)]
    validation = [words(f"valid-{i}", 999 if i >= 3 else 1000) for i in range(5_000)]
    test[10] = "first\nline " + words("test-10", 50)
    write_urls(train=train, test=test, validation=validation)
    corpora = {split: load("webtext", split) for split in SPLITS}
    first = {split: [text.split()[0] for text in texts.texts] for split, texts in corpora.items()}
    assert [len(first[split]) for split in SPLITS] == [20_000, 5_000, 5_000]
    assert (first["test"][0], first["test"][-4:]) == ("test-4", [f"train-{i}" for i in range(4)])
    assert (first["validation"][0], first["validation"][-3:]) == ("valid-3", ["train-4", "train-5", "train-6"])
    assert (first["train"][0], first["train"][-1]) == ("train-7", "train-20006")
    assert corpora["test"].texts[6].startswith("first line test-10")
    assert corpora["test"].origin.endswith("webtext.test.jsonl, prepared as by Zhang et al. (2023)")


def test_a_text_that_is_filled_up_needs_the_training_file(write_urls: Callable[..., None]) -> None:
    write_urls(test=[words("test", 60)])
    with pytest.raises(Missing, match=r"downloads .*webtext\.train\.jsonl"):
        load("webtext", "test")


def test_a_file_of_another_size_is_refused_and_removed(urls: Path) -> None:
    file = urls / hash_url_to_filename(CORPORA["webtext"].splits["test"].files)
    file.write_text('{"text": "a"}\n')
    with pytest.raises(DataError, match=r"webtext\.test\.jsonl has 14 bytes"):
        load("webtext", "test")
    assert not file.exists()


def rows(**splits: list[Fields]) -> preparation.Rows:
    def of(split: Split) -> Iterable[Fields]:
        return splits[split]

    return of


def text(count: int, end: str = "") -> str:
    return " ".join(["w"] * count) + end


@pytest.mark.parametrize(("count", "kept"), [(50, False), (51, True), (999, True), (1000, False)])
def test_texts_of_over_50_and_under_1000_words_are_kept(count: int, kept: bool) -> None:
    some = rows(train=[(text(count),)], validation=[], test=[])
    assert list(webtext("test", some)) == ([text(count)] if kept else [])
    assert bool(list(writingprompts("train", rows(train=[("w", text(count - 1))])))) == kept


def test_a_text_is_one_line_and_a_carriage_return_ends_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """They write the texts to a file and read its lines, after the lengths were looked at."""
    monkeypatch.setattr(preparation, "HELD_OUT", 0)
    some = rows(train=[(f" {text(30)}\n{text(30)}\r\n short\n",)], validation=[], test=[])
    assert list(webtext("train", some)) == [f"{text(30)} {text(30)}", "short"]


def test_marks_of_a_story_are_written_out_and_those_of_a_prompt_stay() -> None:
    story = f"``Yes,''<newline><newline>she said .\n{text(60)}"
    (found,) = writingprompts("train", rows(train=[(" [ WP ] `` A b \n", story)]))
    assert found == f'[WP] ``A b "Yes," she said. {text(60)}'


@pytest.mark.parametrize(
    ("tokens", "joined"),
    [
        ('He did n\'t say : " No . "', 'He did n\'t say: "No."'),
        ("( It 's $ 5 , you know ! )", "(It's $5, you know!)"),
        ("<newline>", "<newline>"),
        ("", ""),
    ],
)
def test_words_are_joined_as_by_moses(tokens: str, joined: str) -> None:
    """Written down from Moses's own script (`detokenizer.perl -l en -q`)."""
    assert detokenized(tokens) == joined
