"""Results of older versions of lm-evaluation-harness are read as those of 0.4.13: the same values, the same p."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from emobench.core.errors import DataError, UserError
from emobench.exchange.result_files import ImportedModel, compare_files, import_results, read_evaluation, read_results
from emobench.leaderboard.stats.compare import Contrast
from emobench.leaderboard.store import Leaderboard

STAMP = "2024-03-01T00-00-00.000000"
VERSIONS = ("0.4.3", "0.4.6", "0.4.7", "0.4.13")
FILTERS: tuple[str, ...] = ("strict-match", "flexible-extract")
# Of 60 documents the first model alone has 8 right by the first filter, the second alone 18; binomtest(8, 26): .0755.
RIGHT = {"x": ([1] * 8 + [0] * 18 + [1] * 34, [1] * 40 + [0] * 20), "y": ([0] * 8 + [1] * 52, [0] * 5 + [1] * 55)}


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def sample(version: tuple[int, ...], doc_id: int, chosen: str, right: int) -> dict[str, Any]:
    """Return a sample with the fields that `evaluator.py` of a version writes."""
    doc, prompt = {"question": f"{doc_id} + 1 = ?", "name": "\N{SNOWMAN}"}, f"Q: {doc_id} + 1 = ?"
    row: dict[str, Any] = {"doc_id": doc_id, "doc": doc, "target": f"{doc_id + 1}"}
    arguments = [prompt, {"until": ["\n"]}]
    row["arguments"] = {"gen_args_0": {"arg_0": arguments[0], "arg_1": arguments[1]}}
    row |= {"resps": [["a"]], "filtered_resps": [str(right)]}
    if version >= (0, 4, 7):
        row |= {"filter": chosen, "metrics": ["exact_match"]}
    row["doc_hash"] = sha(json.dumps(doc, indent=2, ensure_ascii=False))
    row |= {"prompt_hash": sha(prompt), "target_hash": sha(row["target"])}
    return {**row, "exact_match": float(right)}


def written(root: Path, name: str, version: str, values: Mapping[str, Sequence[int]], order: int = 0) -> Path:
    """Write a results file and its samples as a version does; `order` shuffles the documents."""
    number = tuple(map(int, version.split(".")))
    folder = root / f"{name}-{version}"
    folder.mkdir(parents=True)
    documents = list(range(len(next(iter(values.values())))))
    if order:
        random.Random(order).shuffle(documents)
    rows = [sample(number, doc, chosen, of[doc]) for chosen, of in values.items() for doc in documents]
    arguments = f"pretrained=org/{name},dtype=float32"
    content: dict[str, Any] = {
        "results": {"sums": {"alias": "sums"}},
        "configs": {"sums": {"task": "sums", "filter_list": [{"name": f, "filter": []} for f in values]}},
        "versions": {"sums": 1.0},
        "n-shot": {"sums": 0},
        "config": {"model": "hf", "model_args": arguments},
    }
    for chosen, of in values.items():
        content["results"]["sums"] |= {f"exact_match,{chosen}": sum(of) / len(of), f"exact_match_stderr,{chosen}": 0.1}
    content |= {"higher_is_better": {"sums": {"exact_match": True}}, "model_name": f"org/{name}"}
    path = folder / f"results_{STAMP}.json"
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / f"samples_sums_{STAMP}.jsonl").write_text(lines)
    path.write_text(json.dumps(content))
    return path


def by_metric(files: Sequence[Path]) -> dict[str, Contrast]:
    return {one.metric: one for one in compare_files([str(path) for path in files])[0].contrasts}


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_is_read_alike(version: str, tmp_path: Path) -> None:
    files = [
        written(tmp_path, name, version, dict(zip(FILTERS, values, strict=True)), order)
        for order, (name, values) in enumerate(RIGHT.items())
    ]
    found = by_metric(files)
    assert found.keys() == {f"sums/exact_match,{chosen}" for chosen in FILTERS}
    first = found["sums/exact_match,strict-match"]
    assert (first.p, round(first.p or 0, 4)) == (pytest.approx(stats.binomtest(8, 26).pvalue), 0.0755)
    for place, chosen in enumerate(FILTERS):
        one = found[f"sums/exact_match,{chosen}"]
        assert one.p == pytest.approx(stats.binomtest([8, 5][place], [26, 25][place]).pvalue)
        assert (one.items, one.higher_is_better) == (60, True)
    read = read_evaluation(str(files[0]))
    assert len(read.tasks["sums"].prompts) == 60
    assert read.model == "org/x"


@pytest.mark.parametrize("version", VERSIONS)
def test_each_of_three_filters_has_its_own_values(version: str, tmp_path: Path) -> None:
    draw = random.Random(0)
    values = {name: [draw.randint(0, 1) for _ in range(30)] for name in ("a", "b", "c")}
    read = read_evaluation(str(written(tmp_path, "x", version, values, order=1)))
    documents = [sample((0, 4, 3), i, "a", 0)["doc_hash"] for i in range(30)]
    for name, of in values.items():
        expected = {document: (float(right), 1.0) for document, right in zip(documents, of, strict=True)}
        assert dict(read.examples[f"sums/exact_match,{name}"].examples) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_one_filter_without_a_list_is_none(version: str, tmp_path: Path) -> None:
    files = [written(tmp_path, name, version, {"none": of[0]}) for name, of in RIGHT.items()]
    for path in files:
        content = json.loads(path.read_text())
        del content["configs"]["sums"]["filter_list"]
        path.write_text(json.dumps(content))
    (one,) = by_metric(files).values()
    assert (one.metric, one.p) == ("sums/exact_match", pytest.approx(stats.binomtest(8, 26).pvalue))


@pytest.mark.parametrize("absent", ["", None, 5])
@pytest.mark.parametrize("name", ["doc_hash", "prompt_hash", "target_hash", "doc_id"])
def test_a_sample_without_its_number_or_hashes_is_refused(name: str, absent: Any, tmp_path: Path) -> None:
    path = written(tmp_path, "x", "0.4.13", {"none": RIGHT["x"][0]})
    (samples,) = path.parent.glob("*.jsonl")
    lines = samples.read_text().splitlines(keepends=True)
    if name == "doc_id":
        absent = None
    samples.write_text(lines[0] + json.dumps({**json.loads(lines[1]), name: absent}) + "\n")
    with pytest.raises(DataError, match=f"{samples.name}:2: "):
        read_evaluation(str(path))
    assert read_results(path, lenient=True).examples == {}


def test_a_document_that_comes_too_often_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "x", "0.4.6", dict(zip(FILTERS, RIGHT["x"], strict=True)))
    (samples,) = path.parent.glob("*.jsonl")
    lines = samples.read_text().splitlines(keepends=True)
    samples.write_text("".join([*lines, lines[0]]))
    with pytest.raises(DataError, match="twice"):
        read_evaluation(str(path))


def test_filters_in_another_order_give_no_examples(tmp_path: Path) -> None:
    """The mean of each filter's examples must be its number, so that no filter has another one's values."""
    path = written(tmp_path, "x", "0.4.6", dict(zip(FILTERS, RIGHT["x"], strict=True)))
    content = json.loads(path.read_text())
    content["configs"]["sums"]["filter_list"].reverse()
    path.write_text(json.dumps(content))
    read = read_evaluation(str(path))
    assert read.examples == {}
    assert set(read.without.values()) == {"it is no mean of its examples"}


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


@pytest.mark.parametrize("version", ["0.4.2", "0.4.13"])
def test_predictions_that_nothing_scored_are_missing(version: str, tmp_path: Path) -> None:
    path = tmp_path / "results_1.json"
    results = {"bypass,none": 999, "bypass_stderr,none": "N/A"}
    path.write_text(
        json.dumps({"results": {"t": {**results, "acc,none": 0.5}, "u": results}, "lm_eval_version": version})
    )
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
