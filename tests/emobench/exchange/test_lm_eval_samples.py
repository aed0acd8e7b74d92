"""Samples of lm-evaluation-harness: each filter's values, samples that cannot be used, directions, and predictions."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from emobench.core.errors import DataError, UserError
from emobench.exchange.result_files import ImportedModel, compare_files, import_results, read_evaluation, read_results
from emobench.leaderboard.store import Leaderboard

FILTERS: tuple[str, ...] = ("strict-match", "flexible-extract")
# Of 60 documents the first model alone has 8 right by the first filter, the second alone 18.
RIGHT = {"x": ([1] * 8 + [0] * 18 + [1] * 34, [1] * 40 + [0] * 20), "y": ([0] * 8 + [1] * 52, [0] * 5 + [1] * 55)}


def written(root: Path, name: str, values: Mapping[str, Sequence[int]], order: int = 0) -> Path:
    """Write a results file and its samples, of each filter; `order` shuffles the documents."""
    folder = root / name
    folder.mkdir(parents=True)
    documents = list(range(len(next(iter(values.values())))))
    if order:
        random.Random(order).shuffle(documents)
    rows = []
    for chosen, of in values.items():
        for i in documents:
            row = {"doc_id": i, "doc": {"question": f"{i} + 1 = ?"}, "doc_hash": f"{i:064}", "filter": chosen}
            row |= {"prompt_hash": f"p{i}", "target_hash": f"t{i}", "metrics": ["exact_match"]}
            rows.append({**row, "exact_match": float(of[i])})
    numbers = {f"exact_match,{chosen}": sum(of) / len(of) for chosen, of in values.items()}
    content = {
        "results": {"sums": {"alias": "sums", **numbers}},
        "higher_is_better": {"sums": {"exact_match": True}},
        "model_name": f"org/{name}",
    }
    (folder / "samples_sums_1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "results_1.json").write_text(json.dumps(content))
    return folder / "results_1.json"


def test_each_filter_is_compared_by_its_own_values(tmp_path: Path) -> None:
    files = [
        written(tmp_path, name, dict(zip(FILTERS, values, strict=True)), order)
        for order, (name, values) in enumerate(RIGHT.items())
    ]
    found = {one.metric: one for one in compare_files(list(map(str, files))).contrasts}
    assert found.keys() == {f"sums/exact_match,{chosen}" for chosen in FILTERS}
    for chosen, only in zip(FILTERS, ((8, 26), (5, 25)), strict=True):
        one = found[f"sums/exact_match,{chosen}"]
        assert one.p == pytest.approx(stats.binomtest(*only).pvalue)
        assert (one.items, one.higher_is_better) == (60, True)
    read = read_evaluation(str(files[0]))
    assert (len(read.tasks["sums"].prompts), read.model) == (60, "org/x")
    for chosen, of in zip(FILTERS, RIGHT["x"], strict=True):
        expected = {f"{i:064}": (float(right), 1.0) for i, right in enumerate(of)}
        assert dict(read.examples[f"sums/exact_match,{chosen}"].examples) == expected


@pytest.mark.parametrize("absent", ["", None, 5])
@pytest.mark.parametrize("name", ["doc_hash", "prompt_hash", "target_hash", "metrics", "doc_id"])
def test_a_sample_without_its_number_or_hashes_is_refused(name: str, absent: Any, tmp_path: Path) -> None:
    path = written(tmp_path, "x", {"none": RIGHT["x"][0]})
    (samples,) = path.parent.glob("*.jsonl")
    lines = samples.read_text().splitlines(keepends=True)
    if name == "doc_id":
        absent = None
    samples.write_text(lines[0] + json.dumps({**json.loads(lines[1]), name: absent}) + "\n")
    with pytest.raises(DataError, match=f"{samples.name}:2: "):
        read_evaluation(str(path))
    assert read_results(path, lenient=True).examples == {}


def test_a_document_that_comes_too_often_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "x", {"none": RIGHT["x"][0]})
    (samples,) = path.parent.glob("*.jsonl")
    lines = samples.read_text().splitlines(keepends=True)
    samples.write_text("".join([*lines, lines[0]]))
    with pytest.raises(DataError, match="twice"):
        read_evaluation(str(path))


@pytest.mark.parametrize("told", [True, False, None])
def test_what_the_file_or_its_configuration_says_counts_first(told: bool | None, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    results = {"results": {"t": {"acc,none": 1.0, "mine,none": 1.0}}}
    path.write_text(json.dumps({**results, "higher_is_better": {"t": {"acc": told, "mine": told}}}))
    assert {one.higher_is_better for one in read_evaluation(str(path)).numbers.values()} == {told}
    config = {"metric_list": [{"metric": "mine", "higher_is_better": told}, {"metric": "acc"}]}
    path.write_text(json.dumps({**results, "configs": {"t": config}}))
    found = read_evaluation(str(path)).numbers
    assert [found[f"t/{name}"].higher_is_better for name in ("acc", "mine")] == [True, told]


def test_predictions_that_nothing_scored_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "results_1.json"
    results = {"bypass,none": 999, "bypass_stderr,none": "N/A"}
    path.write_text(json.dumps({"results": {"t": {**results, "acc,none": 0.5}, "u": results}}))
    entry = import_results([path], Leaderboard(tmp_path / "board"), tmp_path / "runs", ImportedModel()).entry
    assert entry.metrics.keys() == {"t/acc"}
    assert entry.missing.keys() == {"t/bypass", "u/bypass"}
    assert all("not scored" in why for why in entry.missing.values())
    path.write_text(json.dumps({"results": {"t": results}}))
    for read in (
        lambda: read_evaluation(str(path)),
        lambda: import_results([path], Leaderboard(tmp_path / "board"), tmp_path / "runs", ImportedModel()),
    ):
        with pytest.raises(UserError, match="--predict_only"):
            read()
