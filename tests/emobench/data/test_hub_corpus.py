"""A data set of the hub by id and column, from a cache as a download leaves it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from emobench.core.errors import ConfigError, DataError, Missing, UnknownNameError
from emobench.data.hub_corpus import hub_corpus
from emobench.data.texts import load_texts

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write the files of a data set into the cache: a list of texts, of rows, or a text as it is."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    def into_cache(repo: str, files: Mapping[str, Any], branch: str = "main", commit: str = COMMIT) -> None:
        folder = tmp_path / f"datasets--{repo.replace('/', '--')}"
        (folder / "refs" / branch).parent.mkdir(parents=True, exist_ok=True)
        (folder / "refs" / branch).write_text(commit)
        for name, content in files.items():
            path = folder / "snapshots" / commit / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name.endswith(".parquet"):
                pq.write_table(pa.table({"text": content, "label": list(range(len(content)))}), path)
            elif isinstance(content, str):
                path.write_text(content)
            else:
                path.write_text("".join(json.dumps(row) + "\n" for row in content))

    return into_cache


def read(name: str, split: str = "train", **more: Any) -> tuple[list[str], str]:
    found = load_texts(name, split, data_dirs=[], offline=True, **more)
    return list(found.texts), found.origin


def texts(prefix: str, count: int) -> list[str]:
    return [f"{prefix} {i}" for i in range(count)]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("stanfordnlp/imdb:text", ("stanfordnlp/imdb", None, "main", "text")),
        ("Salesforce/wikitext/wikitext-2-raw-v1:text", ("Salesforce/wikitext", "wikitext-2-raw-v1", "main", "text")),
        ("a/b@refs/convert/parquet:x y", ("a/b", None, "refs/convert/parquet", "x y")),
        ("wikitext2", None),
        ("a/b", None),
        ("a:b", None),
        ("./a/b:text", None),
    ],
)
def test_names(name: str, parts: Sequence[Any] | None) -> None:
    found = hub_corpus(name)
    assert (found and (found.repo, found.config, found.revision, found.column)) == parts


def test_splits_are_found_by_the_names_of_files(write: Write) -> None:
    write("some/toy", {
        "data/train-00001-of-00002.parquet": texts("late", 2),
        "data/train-00000-of-00002.parquet": texts("early", 3),
        "data/dev-00000-of-00001.parquet": texts("dev", 2),
        "data/test-00000-of-00001.parquet": texts("test", 4),
        "README.md": "train test",
    })  # fmt: skip
    origin = f"hub: some/toy@{COMMIT}"
    assert read("some/toy:text") == (texts("early", 3) + texts("late", 2), origin)
    assert read("some/toy:text", "validation") == (texts("dev", 2), origin)
    assert read("some/toy:text", "test", limit=2) == (texts("test", 2), origin)
    assert (
        load_texts("some/toy:text", "test", data_dirs=[], offline=True)
        .provenance["some/toy:text.test"]
        .endswith(f"({origin})")
    )


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_other_formats_are_read(write: Write, suffix: str) -> None:
    rows = [{"text": "a, b", "n": "1"}, {"text": 'says "c"\nd', "n": "2"}]
    content: Any = rows if suffix == "jsonl" else 'text,n\n"a, b",1\n"says ""c""\nd",2\n'
    write("some/toy", {f"training.{suffix}": content, f"test.{suffix}": content})
    assert read("some/toy:text", "test")[0] == ["a, b", 'says "c"\nd']


def test_without_a_validation_split_the_end_of_the_training_rows_is_one(write: Write) -> None:
    write("some/toy", {"train.jsonl": [{"text": text} for text in texts("row", 40)]})
    train, of_train = read("some/toy:text")
    validation, of_validation = read("some/toy:text", "validation")
    assert (train, validation) == (texts("row", 40)[:38], texts("row", 40)[38:])
    assert of_train == f"hub: some/toy@{COMMIT}, all but the last 5% of its training rows"
    assert of_validation == f"hub: some/toy@{COMMIT}, the last 5% of its training rows"
    with pytest.raises(Missing) as missing:  # other files may not have been downloaded
        read("some/toy:text", "test")
    assert missing.value.item == "corpus some/toy:text (test)"


def test_a_single_file_is_the_training_split(write: Write) -> None:
    write("some/toy", {"stories.parquet": texts("row", 20)})
    assert len(read("some/toy:text")[0]) == 19


def test_of_several_configurations_one_is_named(write: Write) -> None:
    write("some/toy", {"small-test/train-0.parquet": texts("small", 2), "large/train-0.parquet": texts("large", 3),
                       "small-test/validation-0.parquet": ["v"], "large/validation-0.parquet": ["v"]})  # fmt: skip
    assert read("some/toy/small-test:text")[0] == texts("small", 2)
    with pytest.raises(ConfigError, match=r"several configurations: .*large.*Name one: some/toy/CONFIGURATION:text"):
        read("some/toy:text")
    with pytest.raises(ConfigError, match=r"has no configuration 'tiny': its folders are large, small-test"):
        read("some/toy/tiny:text")


def test_the_hub_s_own_conversion_is_read_where_the_data_set_has_no_such_file(write: Write) -> None:
    write("some/toy", {"toy.py": "a script", "dataset_infos.json": "{}"})
    converted = {f"plain/{split}/0000.parquet": texts(split, 2) for split in ("train", "validation", "test")}
    write("some/toy", converted, "refs/convert/parquet", "f" * 40)
    assert read("some/toy:text") == (texts("train", 2), f"hub: some/toy@{'f' * 40}")
    assert read("some/toy:text", "test")[0] == texts("test", 2)
    with pytest.raises(
        DataError, match=rf"some/toy@{COMMIT} has no file in \.parquet, .*are dataset_infos.json, toy.py"
    ):
        read("some/toy@" + COMMIT + ":text")
    write("some/toy", {"large/partial-train/0000.parquet": texts("large", 2)}, "refs/convert/parquet", "f" * 40)
    with pytest.raises(ConfigError, match=r"several configurations: its folders are large, plain\. Name one"):
        read("some/toy:text")
    assert read("some/toy/plain:text")[0] == texts("train", 2)


def test_json_is_a_list_or_lines_and_files_about_others_are_no_data(write: Write) -> None:
    listed = json.dumps([{"text": "b"}], indent=1)
    write("some/toy", {"train.json": [{"text": "a"}], "valid.json": listed, "dataset_infos.json": "{}"})
    assert read("some/toy:text")[0] == ["a"]
    assert read("some/toy:text", "validation")[0] == ["b"]


def test_a_wrong_column_or_a_row_without_a_text_is_named(write: Write) -> None:
    write("some/toy", {"train.jsonl": [{"text": "a"}, {"text": None}], "validation.parquet": ["v"]})
    with pytest.raises(ConfigError, match=r"train\.jsonl:1 has no column 'body'; its columns are text"):
        read("some/toy:body")
    with pytest.raises(ConfigError, match=r"train\.jsonl:2: 'text' holds None; expected a column with a text in every"):
        read("some/toy:text")
    with pytest.raises(ConfigError, match=r"validation\.parquet:1 has no column 'body'; its columns are text, label"):
        read("some/toy:body", "validation")
    with pytest.raises(ConfigError, match=r"'label' holds 0; expected a column with a text"):
        read("some/toy:label", "validation")


def test_what_is_not_in_the_cache_says_how_to_get_it(write: Write) -> None:
    with pytest.raises(Missing, match="Run `hf download some/other") as missing:
        read("some/other:text")
    assert (missing.value.item, missing.value.source) == ("corpus some/other:text (train)", "some/other")
    with pytest.raises(UnknownNameError, match="a data set of the hub is OWNER/NAME:COLUMN"):
        read("toy")
