"""A data set of the hub by its id and columns, from a cache as a download leaves it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import ClassLabel, Dataset, Features, Value

from emobench.core.errors import ConfigError, DataError, Missing, UnknownNameError, UserError
from emobench.data.hub_corpus import hub_corpus, hub_labelled
from emobench.data.texts import load_texts

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ORIGIN = f"hub: some/toy@{COMMIT}"
Publish = Callable[..., Path]


def read(name: str, split: str = "train") -> tuple[list[str], str]:
    texts = load_texts(name, split, data_dirs=[], offline=True)
    return list(texts.texts), texts.origin


def texts(prefix: str, count: int) -> list[str]:
    return [f"{prefix} {i}" for i in range(count)]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("stanfordnlp/imdb:text", ("stanfordnlp/imdb", None, "main", "text")),
        ("Salesforce/wikitext/wikitext-2-raw-v1:text", ("Salesforce/wikitext", "wikitext-2-raw-v1", "main", "text")),
        ("a/b@refs/convert/parquet:x y", ("a/b", None, "refs/convert/parquet", "x y")),
        *[(name, None) for name in ("wikitext2", "a/b", "a:b", "./a/b:text")],
    ],
)
def test_names(name: str, parts: Any) -> None:
    corpus = hub_corpus(name)
    assert (corpus and (corpus.repo, corpus.config, corpus.revision, corpus.column)) == parts


def test_splits_are_named_by_their_files(publish: Publish) -> None:
    publish("some/toy", {
        "data/train-00001-of-00002.parquet": texts("late", 2),
        "data/train-00000-of-00002.parquet": texts("early", 3),
        "data/dev-00000-of-00001.parquet": texts("dev", 2),
        "data/test-00000-of-00001.parquet": texts("test", 4),
        "README.md": "train test",
    })  # fmt: skip
    assert read("some/toy:text") == (texts("early", 3) + texts("late", 2), ORIGIN)
    assert read("some/toy:text", "validation") == (texts("dev", 2), ORIGIN)
    assert read("some/toy:text", "test") == (texts("test", 4), ORIGIN)


def test_the_last_rows_are_the_validation_split_where_there_is_none(publish: Publish) -> None:
    publish("some/toy", {"train.jsonl": texts("row", 40)})
    assert read("some/toy:text") == (texts("row", 40)[:38], f"{ORIGIN}, documents 1 to 38 of 40")
    last = texts("row", 40)[38:]
    assert read("some/toy:text", "validation") == (last, f"{ORIGIN}, documents 39 to 40 of 40")
    with pytest.raises(Missing) as missing:  # other files may not have been downloaded
        read("some/toy:text", "test")
    assert missing.value.item == "corpus some/toy:text (test)"


def test_a_single_file_is_the_training_split(publish: Publish) -> None:
    publish("some/toy", {"stories.parquet": texts("row", 20)})
    assert len(read("some/toy:text")[0]) == 19


def test_of_several_configurations_one_is_named(publish: Publish) -> None:
    publish("some/toy", {"small-test/train-0.parquet": texts("small", 2), "large/train-0.parquet": texts("large", 3),
                         "small-test/validation-0.parquet": ["v"], "large/validation-0.parquet": ["v"]})  # fmt: skip
    assert read("some/toy/small-test:text")[0] == texts("small", 2)
    for name, folders in (("some/toy:text", "large"), ("some/toy/tiny:text", "large, small-test")):
        with pytest.raises(ConfigError, match=f"some/toy has .* its folders are {folders}"):
            read(name)


def test_the_hub_s_own_conversion_is_read_where_the_data_set_has_no_such_file(publish: Publish) -> None:
    publish("some/toy", {"toy.py": "a script", "dataset_infos.json": "{}"})
    converted = {f"plain/{split}/0000.parquet": texts(split, 2) for split in ("train", "validation", "test")}
    publish("some/toy", converted, "refs/convert/parquet", "f" * 40)
    assert read("some/toy:text") == (texts("train", 2), f"hub: some/toy@{'f' * 40}")
    assert read("some/toy:text", "test")[0] == texts("test", 2)
    with pytest.raises(DataError, match=rf"some/toy@{COMMIT} .*dataset_infos\.json, toy\.py"):
        read("some/toy@" + COMMIT + ":text")
    publish("some/toy", {"large/partial-train/0000.parquet": texts("large", 2)}, "refs/convert/parquet", "f" * 40)
    with pytest.raises(ConfigError, match="its folders are large, plain"):
        read("some/toy:text")
    assert read("some/toy/plain:text")[0] == texts("train", 2)


def test_json_is_a_list_or_lines_and_files_about_others_are_no_data(publish: Publish) -> None:
    listed = json.dumps([{"text": "b"}], indent=1)
    publish("some/toy", {"train.json": ["a"], "valid.json": listed, "dataset_infos.json": "{}"})
    assert read("some/toy:text")[0] == ["a"]
    assert read("some/toy:text", "validation")[0] == ["b"]


@pytest.mark.parametrize(
    ("name", "split", "place"),
    [
        ("some/toy:body", "train", r"train\.jsonl:1"),
        ("some/toy:text", "train", r"train\.jsonl:2"),
        ("some/toy:body", "validation", r"validation\.parquet:1"),
        ("some/toy:label", "validation", r"validation\.parquet:1"),
    ],
)
def test_a_row_without_a_text_is_named(name: str, split: str, place: str, publish: Publish) -> None:
    publish("some/toy", {"train.jsonl": [{"text": "a"}, {"text": None}], "validation.parquet": ["v"]})
    with pytest.raises(DataError, match=place):
        read(name, split)


def test_a_missing_data_set_is_named(publish: Publish) -> None:
    publish("some/toy", {})
    with pytest.raises(Missing, match="Run `hf download some/other") as missing:
        read("some/other:text")
    assert (missing.value.item, missing.value.source) == ("corpus some/other:text (train)", "some/other")
    with pytest.raises(UnknownNameError, match="OWNER/NAME:COLUMN"):
        read("toy")


ROWS = [{"text": f"film {i}", "label": i % 2} for i in range(12)]


def test_classes_are_those_that_the_parquet_files_name(publish: Publish) -> None:
    folder = publish("org/Films", {})
    (folder / "plain").mkdir(parents=True)
    features = Features({"text": Value("string"), "label": ClassLabel(names=["neg", "pos"])})
    files = {f"train-0000{i}-of-00002": ROWS[6 * i : 6 * i + 6] for i in (0, 1)}
    for name, rows in {**files, "test-00000-of-00001": ROWS[:4]}.items():
        Dataset.from_list(rows, features=features).to_parquet(folder / "plain" / f"{name}.parquet")
    assert hub_labelled("org/Films:text:label", offline=True) == {
        "name": "films",
        "classes": ["neg", "pos"],
        "fields": ["text"],
        "label": "label",
        "repo": "org/Films",
        "revision": COMMIT,
        "names": {"0": "neg", "1": "pos"},
        "pool": {"split": "train", "files": "plain/train-0000*.parquet", "rows": 12},
        "test": {"split": "test", "files": "plain/test-00000-of-00001.parquet", "rows": 4},
    }


def test_a_test_split_without_labels_is_not_answered(publish: Publish) -> None:
    hidden = [{**row, "label": -1} for row in ROWS]
    named = [{**row, "label_text": ("bad", "good")[int(row["label"])]} for row in ROWS]
    publish("org/sst", {"train.jsonl": named, "validation.jsonl": named[:6], "test.jsonl": hidden})
    dataset = hub_labelled("org/sst:text:label", offline=True)
    assert dataset["test"] == {"split": "validation", "files": "validation.jsonl", "rows": 6}
    assert dataset["names"] == {"0": "bad", "1": "good"}


def test_numbers_without_names_are_classes(publish: Publish) -> None:
    publish("org/sst", {"train.jsonl": ROWS, "test.jsonl": ROWS})
    dataset = hub_labelled("org/sst:text:label", offline=True)
    assert (dataset["classes"], dataset["names"]) == (["0", "1"], {"0": "0", "1": "1"})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("org/sst", "OWNER/NAME:TEXT:LABEL"),
        ("org/sst:text:labels", 'no column "labels"'),
        ("org/one:text:label", "'label' has 1 different values"),
        ("org/train:text:label", "no labelled test or validation split"),
    ],
)
def test_other_data_sets_have_no_labels(name: str, message: str, publish: Publish) -> None:
    one, two = [{"text": "a", "label": "x"}], [{"text": "a", "label": label} for label in "xy"]
    publish("org/sst", {"train.jsonl": ROWS, "test.jsonl": ROWS})
    publish("org/one", {"train.jsonl": one, "test.jsonl": one})
    publish("org/train", {"train.jsonl": two})
    with pytest.raises(UserError, match=message):
        hub_labelled(name, offline=True)


def test_a_new_task_is_answered(
    publish: Publish, command: Callable[..., Any], byte_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the id of a data set to scores, offline, with two commands."""
    rows = [{"review": f"film {i}", "mood": ("very_bad", "good")[i % 2]} for i in range(12)]
    publish("org/trec", {"train.jsonl": rows, "test.jsonl": rows[:6]})
    file = tmp_path / "moods.yaml"
    said = command("tasks", "new", "org/trec:review:mood", "--out", file, "--offline").ok().out
    assert "2 classes, 12 examples for shots, 6 to answer" in said
    monkeypatch.chdir(tmp_path)
    assert "Wrote org-trec.yaml" in command("tasks", "new", "org/trec:review:mood", "--offline").ok().out, "not trec"
    command("tasks", "new", "org/trec:review:mood", "--out", file, "--offline").refused("exists")
    places = "--leaderboard", tmp_path / "board", "--runs", tmp_path / "runs"
    done = command(
        *("evaluate", "--suite", file, "--model", byte_model, *places, "--offline", "--quiet", "--json"),
        *("--set", "icl.shots=2"),
    ).ok()
    (entry,) = done.json["entries"]
    assert entry["metrics"]["moods/accuracy"]["n"] == 6
    assert COMMIT in json.dumps(entry["provenance"]["data"])
