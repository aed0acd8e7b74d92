"""Sources read what a hub cache holds, at the commit it holds, and check its sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import config as datasets_config
from datasets.utils.file_utils import hash_url_to_filename
from huggingface_hub import constants

from emobench.data.sources import CORPORA, SPLITS
from emobench.data.texts import load_texts
from emobench.errors import DataError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(datasets_config, "DOWNLOADED_DATASETS_PATH", str(tmp_path / "urls"))
    (tmp_path / "urls").mkdir()
    return tmp_path


def downloaded(cache: Path, repo: str, ref: str, files: dict[str, pa.Table]) -> None:
    """Lay out files as a download from the hub leaves them."""
    folder = cache / f"datasets--{repo.replace('/', '--')}"
    (folder / "refs" / ref).parent.mkdir(parents=True)
    (folder / "refs" / ref).write_text(COMMIT)
    for name, table in files.items():
        path = folder / "snapshots" / COMMIT / name
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
    with pytest.raises(DataError) as error:
        load_texts(name, "validation", data_dirs=[], offline=True)
    assert f"DIR/{name}.validation.jsonl" in str(error.value)
    assert CORPORA[name].repo in str(error.value)
    assert "without --offline" in str(error.value)


def test_wikitext_rows_are_kept_as_they_are_across_files(cache: Path) -> None:
    lines = ["", " = Title = \n", "words \n", *map(str, range(3_757))]
    half = {
        f"wikitext-2-raw-v1/validation-0000{i}-of-00002.parquet": part for i, part in enumerate((lines[:9], lines[9:]))
    }
    downloaded(cache, "Salesforce/wikitext", "main", {k: pa.table({"text": v}) for k, v in half.items()})
    texts = load_texts("wikitext2", "validation", data_dirs=[], offline=True)
    assert texts.texts == lines
    assert texts.origin == f"hub: Salesforce/wikitext@{COMMIT}"
    assert load_texts("wikitext2", "validation", data_dirs=[], offline=True, limit=5).texts == lines[:5]
    with pytest.raises(DataError, match=r"no file wikitext-2-raw-v1/train-\*\.parquet is here"):
        load_texts("wikitext2", "train", data_dirs=[], offline=True)


def test_a_source_of_another_size_is_refused(cache: Path) -> None:
    table = pa.table({"text": ["a", "b"]})
    downloaded(cache, "Salesforce/wikitext", "main", {"wikitext-2-raw-v1/test-0.parquet": table})
    with pytest.raises(DataError, match=r"gave 2 rows for 'wikitext2' \(test\), expected 4,358"):
        load_texts("wikitext2", "test", data_dirs=[], offline=True)


def test_ptb_is_read_from_the_converted_branch(cache: Path) -> None:
    table = pa.table({"sentence": [f"s {i}" for i in range(3_761)]})
    downloaded(cache, "ptb-text-only/ptb_text_only", "refs/convert/parquet", {"penn_treebank/test/0000.parquet": table})
    assert load_texts("ptb", "test", data_dirs=[], offline=True).texts[7] == "s 7"


def test_ag_news_validation_is_carved_out_of_train(cache: Path) -> None:
    table = pa.table({"text": [str(i) for i in range(120_000)], "label": [0] * 120_000})
    downloaded(cache, "fancyzhx/ag_news", "main", {"data/train-00000-of-00001.parquet": table})
    train = load_texts("ag_news", "train", data_dirs=[], offline=True).texts
    validation = load_texts("ag_news", "validation", data_dirs=[], offline=True).texts
    assert (train[0], train[-1], validation[0], validation[-1]) == ("0", "111999", "112000", "117999")


def test_writingprompts_joins_its_fields_and_refuses_a_null(cache: Path) -> None:
    stories: list[str | None] = [f"story {i}" for i in range(1_100)]
    table = pa.table({"story": stories, "prompt": [f"prompt {i}" for i in range(1_100)]})
    downloaded(cache, "euclaise/writingprompts", "main", {"data/test-0.parquet": table})
    texts = load_texts("writingprompts", "test", data_dirs=[], offline=True).texts
    assert texts[-1] == "prompt 1046 story 1046"
    stories[3] = None
    snapshot = cache / "datasets--euclaise--writingprompts" / "snapshots" / COMMIT
    pq.write_table(pa.table({"story": stories, "prompt": table["prompt"]}), snapshot / "data" / "test-0.parquet")
    with pytest.raises(DataError, match="has no text in every row's prompt, story"):
        load_texts("writingprompts", "test", data_dirs=[], offline=True)
    pq.write_table(pa.table({"story": ["a"]}), snapshot / "data" / "test-0.parquet")
    with pytest.raises(DataError, match="has no text in every row's prompt, story"):
        load_texts("writingprompts", "test", data_dirs=[], offline=True)


def test_webtext_is_read_from_a_file_that_was_downloaded_before(cache: Path) -> None:
    part = CORPORA["webtext"].splits["test"]
    lines = (json.dumps({"id": i, "text": f"t {i}", "ended": True}) for i in range(5_000))
    (cache / "urls" / hash_url_to_filename(part.files)).write_text("\n".join(lines))
    texts = load_texts("webtext", "test", data_dirs=[], offline=True)
    assert texts.texts[-1] == "t 4999"
    assert texts.origin == f"url: {part.files}"


@pytest.mark.parametrize("domain", ["source", "target"])
def test_generated_corpora_come_from_the_oracle_language(domain: str) -> None:
    oracle = pytest.importorskip("emobench.data.oracle")
    texts = load_texts(f"oracle-{domain}", "test", data_dirs=[], offline=True, limit=20)
    assert texts.texts == oracle.oracle_texts(domain, "test")[:20]
    assert texts.origin.startswith("generated: ")
