"""A classification task from a data set of the hub, named by its id and two columns, from a cache of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, Features, Value

from emobench.core.errors import ConfigError, DataError
from emobench.data.hub_corpus import hub_labelled

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ROWS = [{"text": f"film {i}", "label": i % 2} for i in range(12)]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write a data set into the cache, as a download leaves it; with names of classes as `datasets` writes them."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    def write(repo: str, files: dict[str, list[dict[str, Any]]], classes: list[str] | None = None) -> None:
        folder = tmp_path / f"datasets--{repo.replace('/', '--')}"
        (folder / "refs").mkdir(parents=True)
        (folder / "refs" / "main").write_text(COMMIT)
        for name, rows in files.items():
            path = folder / "snapshots" / COMMIT / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name.endswith(".jsonl"):
                path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            elif classes:
                features = Features({"text": Value("string"), "label": ClassLabel(names=classes)})
                Dataset.from_list(rows, features=features).to_parquet(path)
            else:
                pq.write_table(pa.Table.from_pylist(rows), path)

    return write


def test_classes_are_those_that_the_parquet_files_name(write: Callable[..., None]) -> None:
    files = {f"plain/train-0000{i}-of-00002.parquet": ROWS[6 * i : 6 * i + 6] for i in (0, 1)}
    write("org/Films", {**files, "plain/test-00000-of-00001.parquet": ROWS[:4]}, classes=["neg", "pos"])
    assert hub_labelled("org/Films:text:label", offline=True) == {
        "name": "films",
        "classes": ["neg", "pos"],
        "repo": "org/Films",
        "revision": COMMIT,
        "names": {"0": "neg", "1": "pos"},
        "pool": {"split": "train", "files": "plain/train-0000*.parquet", "rows": 12},
        "test": {"split": "test", "files": "plain/test-00000-of-00001.parquet", "rows": 4},
    }


def test_a_test_split_without_labels_is_not_answered(write: Callable[..., None]) -> None:
    hidden = [{**row, "label": -1} for row in ROWS]
    named = [{**row, "label_text": ("bad", "good")[row["label"]]} for row in ROWS]
    write("org/sst", {"train.jsonl": named, "validation.jsonl": named[:6], "test.jsonl": hidden})
    found = hub_labelled("org/sst:text:label", offline=True)
    assert (found["test"], found["names"]) == (
        {"split": "validation", "files": "validation.jsonl", "rows": 6},
        {"0": "bad", "1": "good"},
    )


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("org/sst", ConfigError, "expected OWNER/NAME:TEXT:LABEL, such as stanfordnlp/imdb:text:label"),
        ("org/sst:text:label", ConfigError, "numbers whose meaning the data do not say; name a column with texts"),
        ("org/sst:text:labels", ConfigError, "has no column 'labels'; its columns are text, label"),
        ("org/one:text:label", ConfigError, "'label' has 1 different values; expected the classes of a task, 2 to 100"),
        ("org/train:text:label", DataError, "has no labelled test or validation split in .parquet or .jsonl"),
    ],
)
def test_what_is_no_labelled_data_set_is_refused(
    write: Callable[..., None], name: str, error: type[Exception], message: str
) -> None:
    write("org/sst", {"train.jsonl": ROWS, "test.jsonl": ROWS})
    one = [{"text": "a", "label": "x"}]
    write("org/one", {"train.jsonl": one, "test.jsonl": one})
    write("org/train", {"train.jsonl": [{"text": "a", "label": "x"}]})
    with pytest.raises(error, match=message):
        hub_labelled(name, offline=True)


def test_a_new_task_is_answered(
    write: Callable[..., None],
    command: Callable[..., Any],
    byte_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the id of a data set to scores, offline, with two commands."""
    rows = [{"review": f"film {i}", "mood": ("very_bad", "good")[i % 2]} for i in range(12)]
    write("org/trec", {"train.jsonl": rows, "test.jsonl": rows[:6]})
    file = tmp_path / "moods.yaml"
    told = command("tasks", "new", "org/trec:review:mood", "--out", file, "--offline").ok().out
    assert "2 classes, 12 examples for shots, 6 to answer" in told
    monkeypatch.chdir(tmp_path)
    assert "Wrote org-trec.yaml" in command("tasks", "new", "org/trec:review:mood", "--offline").ok().out, "not trec"
    command("tasks", "new", "org/trec:review:mood", "--out", file, "--offline").refused("exists; give another place")
    places = "--leaderboard", tmp_path / "board", "--runs", tmp_path / "runs"
    done = command(
        *("evaluate", "--suite", file, "--model", byte_model, *places, "--offline", "--quiet", "--json"),
        *("--set", "icl.retriever=random", "--set", "icl.shots=2"),
    ).ok()
    (entry,) = done.json["entries"]
    assert entry["metrics"]["moods/accuracy"]["n"] == 6
    assert COMMIT in json.dumps(entry["provenance"]["data"])
