"""What a record of Every Eval Ever says, by value: units, intervals, directions, and which instances are alike."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import ConfigError, DataError
from emobench.exchange.evaluation import Measured
from emobench.exchange.result_files import compare_files, read_evaluation
from emobench.exchange.results_import import ImportedModel, import_results
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.store import Leaderboard

Change = Callable[[dict[str, Any]], None]
INTERVAL = {"lower": 0.25, "upper": 0.75, "confidence_level": 0.95}


def written(path: Path, of_result: Change | None = None, of_row: Change | None = None, **changes: Any) -> str:
    """Write a record of 20 instances, half of them right."""
    result: dict[str, Any] = {
        "evaluation_result_id": "arc#accuracy",
        "evaluation_name": "arc",
        "source_data": {"dataset_name": "arc"},
        "metric_config": {"metric_name": "accuracy", "metric_unit": "proportion", "lower_is_better": False},
        "score_details": {"score": 0.5, "uncertainty": {"num_samples": 20, "confidence_interval": dict(INTERVAL)}},
    }
    rows = []
    for i in range(20):
        row: dict[str, Any] = {"evaluation_name": "arc", "evaluation_result_id": "arc#accuracy", "sample_id": str(i)}
        row["input"] = {"raw": f"question {i}", "formatted": f"Q: {i}", "reference": ["x"]}
        row["evaluation"] = {"score": i % 2}
        if of_row:
            of_row(row)
        rows.append(row)
    if of_result:
        of_result(result)
    content = {"schema_version": "0.3.0", "model_info": {"id": f"org/{path.stem}"}, "evaluation_results": [result]}
    path.write_text(json.dumps({**content, **changes}))
    path.with_name(f"{path.stem}_samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def measured(path: Path, change: Change) -> Measured:
    (found,) = read_evaluation(written(path, change)).numbers.values()
    return found


@pytest.mark.parametrize(
    ("unit", "score", "expected"),
    [
        ("proportion", 0.5, "fraction"),
        ("proportion", 0.0, "fraction"),
        ("proportion", 1.0, "fraction"),
        ("proportion", 50.0, "score"),
        ("proportion", -0.5, "score"),
        ("fraction", 0.5, "fraction"),
        ("perplexity", 9.0, "perplexity"),
        ("perplexity", 0.5, "score"),
        ("percent", 50.0, "score"),
        (None, 0.5, "score"),
    ],
)
def test_the_unit_of_a_number(unit: str | None, score: float, expected: str, tmp_path: Path) -> None:
    def change(result: dict[str, Any]) -> None:
        result["metric_config"]["metric_unit"] = unit
        result["score_details"]["score"] = score

    found = measured(tmp_path / "x.json", change)
    assert (found.value, found.unit) == (score, expected)


@pytest.mark.parametrize(("lower", "expected"), [(True, False), (False, True), (None, None), ("no", None), (0, None)])
def test_the_direction_of_a_number(lower: Any, expected: bool | None, tmp_path: Path) -> None:
    found = measured(tmp_path / "x.json", lambda result: result["metric_config"].update(lower_is_better=lower))
    assert found.higher_is_better is expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, (0.25, 0.75)),
        ({"confidence_level": 0.9}, None),
        ({"confidence_level": None}, None),
        ({"lower": None}, None),
        ({"upper": "high"}, None),
    ],
)
def test_an_interval_of_95_percent_is_taken(
    change: dict[str, Any], expected: tuple[float, float] | None, tmp_path: Path
) -> None:
    def of_result(result: dict[str, Any]) -> None:
        result["score_details"]["uncertainty"]["confidence_interval"] |= change

    assert measured(tmp_path / "x.json", of_result).interval == expected


@pytest.mark.parametrize(("n", "expected"), [(20, 20), (1, 1), (0, 0), (None, None), ("20", None)])
def test_n_is_the_number_of_samples(n: Any, expected: int | None, tmp_path: Path) -> None:
    found = measured(tmp_path / "x.json", lambda result: result["score_details"]["uncertainty"].update(num_samples=n))
    assert found.n == expected


@pytest.mark.parametrize(
    ("told", "covers"), [("seeds", "seeds"), ("seeds and items", "seeds and items"), ("all", "items"), (None, "items")]
)
def test_an_interval_covers_what_the_record_says(told: str | None, covers: str, tmp_path: Path) -> None:
    details = {"interval covers": told}
    assert (
        measured(tmp_path / "x.json", lambda result: result["score_details"].update(details=details)).covers == covers
    )


def test_scores_whose_mean_is_another_number_are_no_examples(tmp_path: Path) -> None:
    read = read_evaluation(written(tmp_path / "x.json", lambda result: result["score_details"].update(score=0.51)))
    assert (read.examples, [one.value for one in read.numbers.values()]) == ({}, [0.51])
    same = read_evaluation(written(tmp_path / "x.json"))
    assert sorted(same.examples["arc/accuracy"].examples.values()) == [(0.0, 1.0)] * 10 + [(1.0, 1.0)] * 10


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row["input"].update(formatted="Question"),
        lambda row: row["input"].update(reference=["y"]),
        lambda row: row["input"].update(raw="another"),
        lambda row: row.update(input={}, sample_hash="another " + row["sample_id"]),
    ],
    ids=["prompt", "reference", "input", "hash"],
)
def test_instances_of_other_content_are_refused(change: Change, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        compare_files([written(tmp_path / "x.json"), written(tmp_path / "y.json", of_row=change)])


def hashed(row: dict[str, Any]) -> None:
    row["input"] = {"raw": "", "reference": []}
    row["sample_hash"] = f"hash {int(row['sample_id']) // 2}"


def test_instances_without_texts_are_alike_if_their_hashes_are(tmp_path: Path) -> None:
    def turned(row: dict[str, Any]) -> None:
        hashed(row)
        row["sample_id"] = f"another {row['sample_id']}"

    files = [written(tmp_path / "x.json", of_row=hashed), written(tmp_path / "y.json", of_row=turned)]
    left, right = (read_evaluation(file) for file in files)
    assert left.prompts == right.prompts
    (found,) = left.examples.values()
    assert len(found.examples) == 20
    assert len(set(found.units.values())) == 10, "equal hashes are one unit"


def test_instances_without_texts_and_hashes_are_alike_if_their_ids_are(tmp_path: Path) -> None:
    bare: Change = lambda row: row.update(input=None)  # noqa: E731
    files = [written(tmp_path / f"{name}.json", of_row=bare) for name in "xy"]
    left, right = (read_evaluation(file) for file in files)
    assert (left.prompts, len(left.prompts["arc"])) == (right.prompts, 20)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"source_data": {"dataset_name": "arc", "hf_split": "train"}}, "data"),
        ({"generation_config": {"generation_args": {"temperature": 1}}}, "generation"),
        ({"score_details": {"score": 0.5, "details": {"protocol": "arc@1"}}}, "protocol"),
    ],
)
def test_another_evaluation_is_refused(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    files = [written(tmp_path / "x.json"), written(tmp_path / "y.json", lambda result: result.update(change))]
    with pytest.raises(ConfigError, match=f"arc: {told}: "):
        compare_files(files)


def test_the_command_and_the_order_of_keys_make_no_difference(tmp_path: Path) -> None:
    files = []
    for name, keys in (("x", ["a", "b"]), ("y", ["b", "a"])):
        arguments = {**dict.fromkeys(keys, 1), "execution_command": f"evaluate {name}"}
        change = {"generation_config": {"generation_args": arguments}, "source_data": dict.fromkeys(keys, 1)}
        files.append(written(tmp_path / f"{name}.json", lambda result, change=change: result.update(change)))
    (contrast,) = compare_files(files)[0].contrasts
    assert (contrast.items, contrast.effect) == (20, 0.0)


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row.pop("sample_id"),
        lambda row: row["evaluation"].update(score="right"),
        lambda row: row.update(evaluation_result_id="other", evaluation_name="other"),
        lambda row: row.update(sample_id="1"),
    ],
    ids=["no id", "no score", "no result", "twice"],
)
def test_an_instance_that_cannot_be_used_is_refused(change: Change, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"_samples\.jsonl:"):
        read_evaluation(written(tmp_path / "x.json", of_row=change))


@pytest.mark.parametrize("score", [None, "0.5", True, float("nan")])
def test_a_record_without_a_number_is_refused(score: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no number"):
        read_evaluation(written(tmp_path / "x.json", lambda result: result["score_details"].update(score=score)))


def test_records_without_instances_get_no_verdict(tmp_path: Path) -> None:
    files = [written(tmp_path / f"{name}.json") for name in "xy"]
    (tmp_path / "x_samples.jsonl").unlink()
    found, problems = compare_files(files)
    assert [(one.verdict, one.p) for one in found.contrasts] == [("undetermined", None)]
    assert [str(tmp_path / "x.json") in problem for problem in problems] == [True]


def test_two_results_of_one_name_are_refused(tmp_path: Path) -> None:
    path = Path(written(tmp_path / "x.json"))
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "evaluation_results": content["evaluation_results"] * 2}))
    with pytest.raises(DataError, match="keep one"):
        read_evaluation(str(path))


def test_instances_are_where_the_record_says(tmp_path: Path) -> None:
    path = Path(written(tmp_path / "x.json", detailed_evaluation_results={"file_path": "data/a/b/other.jsonl"}))
    assert read_evaluation(str(path)).examples == {}
    path.with_name("x_samples.jsonl").rename(tmp_path / "other.jsonl")
    assert len(read_evaluation(str(path)).examples["arc/accuracy"].examples) == 20


def imported(root: Path, *paths: str, given: ImportedModel | None = None) -> Entry:
    files = [Path(path) for path in paths]
    return import_results(files, Leaderboard(root / "board"), root / "runs", given or ImportedModel()).entry


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"evaluation_timestamp": "2026-01-31T12:00:00+02:00"}, "2026-01-31T12:00:00+02:00"),
        ({"evaluation_timestamp": "2026-01-31T12:00:00"}, "2026-01-31T12:00:00+00:00"),
        ({"evaluation_timestamp": "1800000000"}, "2027-01-15T08:00:00+00:00"),
        ({"retrieved_timestamp": "1800000000.5"}, "2027-01-15T08:00:00+00:00"),
        ({"evaluation_timestamp": "1700000000", "retrieved_timestamp": "1800000000"}, "2023-11-14T22:13:20+00:00"),
        ({}, "2001-09-09T01:46:40+00:00"),
    ],
)
def test_the_date_of_an_entry(told: dict[str, Any], expected: str, tmp_path: Path) -> None:
    path = written(tmp_path / "x.json", **told)
    os.utime(path, (10**9, 10**9))
    assert imported(tmp_path, path).provenance.created == expected


@pytest.mark.parametrize("date", ["yesterday", "1e300", "2026-13-01"])
def test_a_date_that_is_none_is_refused(date: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="its date is"):
        imported(tmp_path, written(tmp_path / "x.json", evaluation_timestamp=date))


def test_an_entry_has_the_numbers_and_the_rules_of_its_record(tmp_path: Path) -> None:
    library = {"name": "lm_eval", "version": "0.4.13"}
    entry = imported(tmp_path, written(tmp_path / "x.json", eval_library=library))
    metric = entry.metrics["arc/accuracy"]
    assert (metric.mean, metric.values, metric.n, metric.ci95) == (0.5, (0.5,), 20, (0.25, 0.75))
    assert (metric.ci95_of, metric.ci95_missing, metric.unit) == ("items", None, "fraction")
    assert dict(entry.provenance.packages) == {"lm_eval": "0.4.13"}
    assert entry.provenance.data["arc"].startswith("sha256:")
    assert entry.protocols["arc"].startswith("lm_eval@")
    assert (entry.model.name, entry.model.source) == ("x", "org/x")

    def bare(result: dict[str, Any]) -> None:
        result["score_details"] = {"score": 0.75, "details": {"protocol": "arc@1"}}

    other = imported(tmp_path / "other", written(tmp_path / "y.json", bare, eval_library=library))
    (metric,) = other.metrics.values()
    assert (metric.n, metric.ci95, metric.ci95_of) == (None, None, None)
    assert metric.ci95_missing == "the file gives no standard error"
    assert other.protocols != entry.protocols
    assert other.provenance.data == entry.provenance.data


def test_seeds_of_one_entry_have_a_spread_and_the_latest_date(tmp_path: Path) -> None:
    def more(row: dict[str, Any]) -> None:
        row["evaluation"]["score"] = float(int(row["sample_id"]) % 4 > 0)

    paths = [
        written(tmp_path / "x.json", evaluation_timestamp="1800000000"),
        written(
            tmp_path / "y.json",
            lambda result: result["score_details"].update(score=0.75),
            more,
            evaluation_timestamp="1700000000",
        ),
    ]
    entry = imported(tmp_path, *paths, given=ImportedModel("base", "emo", (0, 1)))
    metric = entry.metrics["arc/accuracy"]
    assert (metric.values, metric.mean, metric.n, metric.ci95_of) == ((0.5, 0.75), 0.625, 20, "seeds and items")
    assert metric.std == pytest.approx(0.25 / 2**0.5)
    assert entry.provenance.created == "2027-01-15T08:00:00+00:00"
    assert (entry.source.cite or "").count("record of Every Eval Ever") == 2


def test_instances_that_stand_twice_make_no_interval_narrower(tmp_path: Path) -> None:
    """The order of the instances makes no difference, either."""
    found = []
    for copies in (1, 2):
        root = tmp_path / str(copies)
        root.mkdir()
        paths = [Path(written(root / f"{name}.json")) for name in "xy"]
        for i, path in enumerate(paths):
            samples = path.with_name(f"{path.stem}_samples.jsonl")
            rows = [json.loads(line) for line in samples.read_text().splitlines()][:: 1 - 2 * i]
            for row in rows:
                row["evaluation"]["score"] = float((int(row["sample_id"]) + i) % 2)
            again = [{**row, "sample_id": f"{row['sample_id']} {copy}"} for copy in range(copies) for row in rows]
            samples.write_text("".join(json.dumps(row) + "\n" for row in again))
        entry = imported(root, *map(str, paths), given=ImportedModel("base", "emo", (0, 1)))
        found.append(entry.metrics["arc/accuracy"].ci95)
    assert found[0] == pytest.approx(found[1])


def test_a_record_without_instances_has_no_digest_of_its_data(tmp_path: Path) -> None:
    path = Path(written(tmp_path / "x.json"))
    path.with_name("x_samples.jsonl").unlink()
    assert imported(tmp_path, str(path)).provenance.data == {}


def test_a_number_that_one_seed_lacks_is_missing(tmp_path: Path) -> None:
    paths = [Path(written(tmp_path / f"{name}.json")) for name in "xy"]
    content = json.loads(paths[0].read_text())
    (result,) = content["evaluation_results"]
    other = {**result, "evaluation_result_id": "f1", "metric_config": {"metric_name": "f1"}}
    paths[0].write_text(json.dumps({**content, "evaluation_results": [result, other]}))
    entry = imported(tmp_path, *map(str, paths), given=ImportedModel("base", "emo", (0, 1)))
    assert (entry.metrics.keys(), dict(entry.missing)) == ({"arc/accuracy"}, {"arc/f1": "no number in y.json"})


def test_the_objective_of_a_record_is_its_entrys_unless_another_is_given(tmp_path: Path) -> None:
    info = {"id": "org/m", "name": "base", "additional_details": {"objective": "emo", "base_model": "org/base"}}
    path = written(tmp_path / "x.json", model_info=info)
    for i, (given, expected) in enumerate((("pretrained", "emo"), ("mle", "mle"))):
        entry = imported(tmp_path / str(i), path, given=ImportedModel(objective=given))
        assert (entry.objective.name, entry.model.name, entry.model.source) == (expected, "base", "org/base")


@pytest.mark.parametrize("label", ["demd + 0.5*mle(demd.cost=pretrained)", "emo(cost=./centred-base-en-7m)"])
def test_an_objective_that_is_no_call_keeps_its_label(label: str, tmp_path: Path) -> None:
    info = {"id": "org/m", "name": "base", "additional_details": {"objective": label, "base_model": "org/base"}}
    entry = imported(tmp_path, written(tmp_path / "x.json", model_info=info))
    assert (entry.objective.label, dict(entry.objective.params)) == (label, {})


def test_records_without_a_model_may_be_of_different_ones(tmp_path: Path) -> None:
    paths = [written(tmp_path / f"{i}.json", model_info={}, retrieved_timestamp=str(1.8e9 + i)) for i in range(2)]
    entries = [imported(tmp_path / str(i), path) for i, path in enumerate(paths)]
    assert [entry.model.name for entry in entries] == ["unnamed", "unnamed"]
    assert entries[0].model.source != entries[1].model.source


def test_instances_without_a_reference_differ_by_their_input(tmp_path: Path) -> None:
    def asks(text: str) -> Change:
        return lambda row: row["input"].update(raw=f"{text} {row['sample_id']}", reference=[])

    files = [
        written(tmp_path / f"{name}.json", of_row=asks(text)) for name, text in (("x", "a"), ("y", "a"), ("z", "b"))
    ]
    assert [one.items for one in compare_files(files[:2])[0].contrasts] == [20]
    with pytest.raises(ConfigError, match="the same examples"):
        compare_files(files[1:])


def test_messages_are_alike_whatever_the_order_of_their_keys(tmp_path: Path) -> None:
    found = []
    for name, keys in (("x", ("role", "content")), ("y", ("content", "role"))):
        change: Change = lambda row, keys=keys: row["input"].update(raw=[dict.fromkeys(keys, row["sample_id"])])  # noqa: E731
        found.append(read_evaluation(written(tmp_path / f"{name}.json", of_row=change)).prompts)
    assert found[0] == found[1]


def test_instances_without_ids_of_results_are_of_their_evaluation(tmp_path: Path) -> None:
    path = Path(written(tmp_path / "x.json", of_row=lambda row: row.pop("evaluation_result_id")))
    content = json.loads(path.read_text())
    (result,) = content["evaluation_results"]
    del result["evaluation_result_id"]
    others = [{**result, "evaluation_name": name} for name in ("first", "last")]
    path.write_text(json.dumps({**content, "evaluation_results": [others[0], result, others[1]]}))
    assert read_evaluation(str(path)).examples.keys() == {"arc/accuracy"}


def test_the_revision_of_a_base_is_that_of_its_entry(tmp_path: Path) -> None:
    details = {"base_model": "org/base", "revision": "607a"}
    info = {"id": "base-emo", "name": "base", "additional_details": details}
    path = written(tmp_path / "x.json", model_info=info)
    assert read_evaluation(path).variant == ""
    model = imported(tmp_path, path).model
    assert (model.name, model.source, model.revision) == ("base", "org/base", "607a")


def test_a_schema_without_results_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"schema_version": "0.3.0"}))
    with pytest.raises(DataError, match="no `results`"):
        read_evaluation(str(path))
