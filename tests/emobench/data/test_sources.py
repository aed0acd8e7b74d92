"""Sources read what a hub cache holds, at the commit it holds, and check its sizes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import config as datasets_config
from datasets.utils.file_utils import hash_url_to_filename
from huggingface_hub import constants

from emobench.core.errors import DataError, Missing
from emobench.data.sources import CORPORA, SPLITS
from emobench.data.texts import load_texts
from emobench.models.hub import COMMIT as COMMIT_OF

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(datasets_config, "DOWNLOADED_DATASETS_PATH", str(tmp_path / "urls"))
    (tmp_path / "urls").mkdir()
    return tmp_path


PINNED = {corpus.repo: corpus.revision for corpus in CORPORA.values() if corpus.kind == "hub"}


def downloaded(cache: Path, repo: str, files: dict[str, pa.Table]) -> None:
    """Lay out files as a download from the hub leaves them: of a commit, or of a branch that was one."""
    folder, revision = cache / f"datasets--{repo.replace('/', '--')}", PINNED[repo]
    if COMMIT_OF.fullmatch(revision) is None:
        (folder / "refs" / revision).parent.mkdir(parents=True)
        (folder / "refs" / revision).write_text(COMMIT)
        revision = COMMIT
    for name, table in files.items():
        path = folder / "snapshots" / revision / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)


def test_every_hub_corpus_of_the_catalog_has_three_splits_and_none_is_claimed_as_tried() -> None:
    assert set(CORPORA) == {
        "wikitext2", "wikitext103", "webtext", "ptb", "writingprompts", "ag_news", "gpt2-oracle",
        "oracle-source", "oracle-target", "oracle-episodes",
    }  # fmt: skip
    for corpus in CORPORA.values():
        if corpus.kind != "generated":
            assert tuple(corpus.splits) == SPLITS
            assert not corpus.tried


@pytest.mark.parametrize("name", [name for name, corpus in CORPORA.items() if corpus.kind != "generated"])
def test_a_missing_source_offline_names_the_file_and_the_source(cache: Path, name: str) -> None:
    with pytest.raises(Missing) as missing:
        load_texts(name, "validation", data_dirs=[], offline=True)
    assert (missing.value.item, missing.value.source) == (f"corpus {name} (validation)", CORPORA[name].repo)
    assert missing.value.size == CORPORA[name].splits["validation"].download_bytes
    assert f"DIR/{name}.validation.jsonl" in missing.value.how
    assert "without --offline" in missing.value.how


def test_wikitext_rows_are_kept_as_they_are_across_files(cache: Path) -> None:
    lines = ["", " = Title = \n", "words \n", *map(str, range(3_757))]
    half = {
        f"wikitext-2-raw-v1/validation-0000{i}-of-00002.parquet": part for i, part in enumerate((lines[:9], lines[9:]))
    }
    downloaded(cache, "Salesforce/wikitext", {k: pa.table({"text": v}) for k, v in half.items()})
    texts = load_texts("wikitext2", "validation", data_dirs=[], offline=True)
    assert texts.texts == lines
    assert texts.origin == f"hub: Salesforce/wikitext@{PINNED['Salesforce/wikitext']}"
    assert load_texts("wikitext2", "validation", data_dirs=[], offline=True, limit=5).texts == lines[:5]
    with pytest.raises(Missing, match=r"corpus wikitext2 \(train\)"):
        load_texts("wikitext2", "train", data_dirs=[], offline=True)


def test_a_source_of_another_size_is_refused(cache: Path) -> None:
    table = pa.table({"text": ["a", "b"]})
    downloaded(cache, "Salesforce/wikitext", {"wikitext-2-raw-v1/test-0.parquet": table})
    with pytest.raises(DataError, match=r"gave 2 rows for wikitext2 \(test\), expected 4,358"):
        load_texts("wikitext2", "test", data_dirs=[], offline=True)


def test_ag_news_validation_is_carved_out_of_train(cache: Path) -> None:
    table = pa.table({"text": [str(i) for i in range(120_000)], "label": [0] * 120_000})
    downloaded(cache, "fancyzhx/ag_news", {"data/train-00000-of-00001.parquet": table})
    train = load_texts("ag_news", "train", data_dirs=[], offline=True).texts
    validation = load_texts("ag_news", "validation", data_dirs=[], offline=True).texts
    assert (train[0], train[-1], validation[0], validation[-1]) == ("0", "111999", "112000", "117999")


def test_the_revisions_are_commits_but_for_the_converted_branch() -> None:
    """Of that branch no public code names a commit; its text files are pinned by commit and digest."""
    symbolic = {repo for repo, revision in PINNED.items() if COMMIT_OF.fullmatch(revision) is None}
    assert symbolic == {"ptb-text-only/ptb_text_only"}
    for part in CORPORA["ptb"].splits.values():
        assert "/76870253cfca069477f06b7056af87f98490b6eb/" in part.mirrors[0]
        assert len(part.sha256) == 64
    assert [part.size for part in CORPORA["webtext"].splits.values()] == [679_129_270, 13_622_302, 13_478_245]


def test_ptb_falls_back_to_the_files_that_its_converted_branch_is_made_of(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = CORPORA["ptb"].splits["test"]
    lines = [f" s {i} <unk> N " for i in range(3_761)]
    data = "\n".join([*lines, ""]).encode()
    file = cache / "urls" / hash_url_to_filename(part.mirrors[0])
    file.write_bytes(data)
    # A file that is not the known one is refused, and fetched anew by the next call.
    with pytest.raises(Missing, match=r"hf download.*ptb\.test\.txt has the sha256 .* was removed"):
        load_texts("ptb", "test", data_dirs=[], offline=True)
    assert not file.exists()
    file.write_bytes(data)
    known = replace(part, sha256=hashlib.sha256(data).hexdigest())
    ptb = replace(CORPORA["ptb"], splits=MappingProxyType({**CORPORA["ptb"].splits, "test": known}))
    monkeypatch.setitem(CORPORA, "ptb", ptb)
    found = load_texts("ptb", "test", data_dirs=[], offline=True)
    assert found.texts[7] == "s 7 <unk> N"
    assert found.origin == f"url: {part.mirrors[0]}"
    # They are the rows of the converted branch, and have its fingerprint.
    table = pa.table({"sentence": [line.strip() for line in lines]})
    downloaded(cache, "ptb-text-only/ptb_text_only", {"penn_treebank/test/0000.parquet": table})
    converted = load_texts("ptb", "test", data_dirs=[], offline=True)
    assert converted.origin.startswith("hub: ")
    assert converted.fingerprint == found.fingerprint


def test_a_file_of_another_size_is_refused_and_removed(cache: Path) -> None:
    part = CORPORA["webtext"].splits["test"]
    file = cache / "urls" / hash_url_to_filename(part.files)
    file.write_text('{"text": "a"}\n')
    with pytest.raises(Missing, match=r"webtext\.test\.jsonl has 14 bytes, expected 13,478,245: the download"):
        load_texts("webtext", "test", data_dirs=[], offline=True)
    assert not file.exists()


def words(name: str, count: int) -> str:
    return " ".join([name, *["word"] * (count - 1)])


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """WebText's files may have any size."""
    splits = {split: replace(part, size=None) for split, part in CORPORA["webtext"].splits.items()}
    monkeypatch.setitem(CORPORA, "webtext", replace(CORPORA["webtext"], splits=MappingProxyType(splits)))


def write_urls(cache: Path, **splits: list[str]) -> None:
    for split, texts in splits.items():
        file = CORPORA["webtext"].splits[split].files  # type: ignore[index]
        lines = (json.dumps({"id": i, "text": text, "ended": True}) for i, text in enumerate(texts))
        (cache / "urls" / hash_url_to_filename(file)).write_text("\n".join(lines))


def test_writingprompts_is_prepared_as_by_zhang_et_al(cache: Path) -> None:
    """Prompt and story in one line, detokenized, over 50 and under 1,000 words; Table 4's number of them."""
    stories: list[str | None] = [words(f"`` story {i} , '' he said . <newline> <newline> It", 60) for i in range(1_100)]
    stories[1] = "too short ."
    prompts = [f"[ WP ] A prompt {i} . " for i in range(1_100)]
    table = pa.table({"story": stories, "prompt": prompts})
    downloaded(cache, "euclaise/writingprompts", {"data/test-0.parquet": table})
    texts = load_texts("writingprompts", "test", data_dirs=[], offline=True)
    assert len(texts) == 1_047
    assert texts.texts[0].startswith('[WP] A prompt 0. "story 0," he said. It word word')
    assert texts.texts[1].startswith("[WP] A prompt 2.")
    assert (
        texts.origin
        == f"hub: euclaise/writingprompts@{PINNED['euclaise/writingprompts']}, prepared as by Zhang et al. (2023)"
    )
    stories[3] = None
    snapshot = cache / "datasets--euclaise--writingprompts" / "snapshots" / PINNED["euclaise/writingprompts"]
    pq.write_table(pa.table({"story": stories, "prompt": prompts}), snapshot / "data" / "test-0.parquet")
    with pytest.raises(DataError, match="has no text in every row's prompt, story"):
        load_texts("writingprompts", "test", data_dirs=[], offline=True)
    pq.write_table(pa.table({"story": ["a"]}), snapshot / "data" / "test-0.parquet")
    with pytest.raises(DataError, match="has no text in every row's prompt, story"):
        load_texts("writingprompts", "test", data_dirs=[], offline=True)


@pytest.mark.usefixtures("any_size")
def test_webtext_is_prepared_as_by_zhang_et_al_and_its_splits_share_no_text(cache: Path) -> None:
    """Test and validation are filled up to 5,000 from the beginning of train, whose next 20,000 are Table 4's."""
    train = [words(f"train-{i}", 51) for i in range(25_010)]
    test = [words(f"test-{i}", 60 if i >= 4 else 50) for i in range(5_000)]
    validation = [words(f"valid-{i}", 999 if i >= 3 else 1000) for i in range(5_000)]
    test[10] = "first\nline " + words("test-10", 50)
    write_urls(cache, train=train, test=test, validation=validation)
    found = {split: load_texts("webtext", split, data_dirs=[], offline=True) for split in SPLITS}
    first = {split: [text.split()[0] for text in texts.texts] for split, texts in found.items()}
    assert [len(first[split]) for split in SPLITS] == [20_000, 5_000, 5_000]
    assert (first["test"][0], first["test"][-4:]) == ("test-4", [f"train-{i}" for i in range(4)])
    assert (first["validation"][0], first["validation"][-3:]) == ("valid-3", ["train-4", "train-5", "train-6"])
    assert (first["train"][0], first["train"][-1]) == ("train-7", "train-20006")
    assert found["test"].texts[6].startswith("first line test-10")
    assert found["test"].origin == f"url: {CORPORA['webtext'].splits['test'].files}, prepared as by Zhang et al. (2023)"


@pytest.mark.usefixtures("any_size")
def test_a_text_that_is_filled_up_needs_the_training_file(cache: Path) -> None:
    write_urls(cache, test=[words("test", 60)])
    with pytest.raises(Missing, match=r"downloads .*webtext\.train\.jsonl"):
        load_texts("webtext", "test", data_dirs=[], offline=True)
