"""Entries become records of Every Eval Ever that its schemas accept; such records are compared and imported."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from scipy import stats

from emobench.core.errors import ConfigError, DataError
from emobench.exchange.every_eval_ever import files, record
from emobench.exchange.result_files import ImportedModel, compare_files, import_results, read_evaluation
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.query.rows import select
from emobench.leaderboard.run_files import Recorded
from emobench.leaderboard.store import Leaderboard

Change = Callable[[dict[str, Any]], None]
ROWS = "published:emo-table3/llama-7b/emo", "published:emo-table1"
STUDIES = Path(__file__).parents[3] / "leaderboards" / "studies" / "smollm2"
SCHEMAS = Path(__file__).parent / "every_eval_ever_schemas"
"""Those of the package every-eval-ever 0.3.0 (MIT), which needs Python 3.12."""


def schema(name: str) -> dict[str, Any]:
    return json.loads((SCHEMAS / f"{name}.schema.json").read_text())


@pytest.mark.parametrize("name", ["eval", "instance_level_eval"])
def test_the_schemas_are_those_of_the_package(name: str) -> None:
    found = importlib.util.find_spec("every_eval_ever")
    if found is None or found.origin is None:
        pytest.skip("the package every-eval-ever (Python 3.12) is not installed")
    assert json.loads((Path(found.origin).parent / "schemas" / f"{name}.schema.json").read_text()) == schema(name)


@pytest.mark.parametrize("rows", ROWS)
def test_the_schema_accepts_entries(rows: str, tmp_path: Path) -> None:
    accepted = schema("eval")
    for entry in select(rows, tmp_path):
        jsonschema.validate(record(entry), accepted)


@pytest.fixture(scope="module")
def exported(command: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two entries of the board that ships, of three seeds each."""
    folder = tmp_path_factory.mktemp("exported")
    command(
        *("leaderboard", "export", "8055b2f60fd9", "1d1287c865af", "--leaderboard", STUDIES),
        *("--runs", folder / "none", "--to", "every-eval-ever", "--out", folder),
    ).ok()
    return folder


def records(folder: Path) -> list[Path]:
    return sorted(folder.glob("data/*/*/*/*.json"))


def test_a_packed_board_has_instances_without_texts(exported: Path) -> None:
    checked = jsonschema.Draft7Validator(schema("instance_level_eval"))
    for path in records(exported):
        jsonschema.validate(found := json.loads(path.read_text()), schema("eval"))
        detailed = found["detailed_evaluation_results"]
        samples = exported / detailed["file_path"]
        assert samples == path.with_name(f"{path.stem}_samples.jsonl")
        assert detailed["checksum"] == hashlib.sha256(samples.read_bytes()).hexdigest()
        assert detailed["additional_details"]["without wikitext2/mauve"] == "it is no mean of its examples"
        rows = [json.loads(line) for line in samples.read_text().splitlines()]
        assert len(rows) == detailed["total_rows"] == 3000
        for row in rows[::50]:
            checked.validate(row)
        assert {(row["input"]["raw"], *row["output"]["raw"]) for row in rows} == {("",)}
        assert len({row["sample_hash"] for row in rows}) == 1000
        for result in found["evaluation_results"]:
            scores = [
                r["evaluation"]["score"] for r in rows if r["evaluation_result_id"] == result["evaluation_result_id"]
            ]
            if scores:
                assert np.mean(scores) == pytest.approx(result["score_details"]["score"], rel=1e-9)


def test_exported_entries_compare_as_on_the_board(command: Callable[..., Any], exported: Path, tmp_path: Path) -> None:
    """Their instances are means over the seeds, so that the differences are those of the entries."""
    named = {
        json.loads(path.read_text())["model_info"]["additional_details"]["objective"]: path
        for path in records(exported)
    }
    emo, mle = named["emo(cost=pretrained)"], named["mle"]
    found = {c.metric: c for c in compare_files([str(emo), str(mle)]).contrasts}
    (own,) = command(
        *("compare", "8055b2f60fd9", "1d1287c865af", "--leaderboard", STUDIES, "--runs", tmp_path, "--json")
    ).json["comparisons"]
    for contrast in own["contrasts"]:
        if contrast["metric"].rpartition("/")[2] in ("rouge1", "rouge2", "rougeL"):
            ours = found[contrast["metric"]]
            assert (ours.effect, ours.items) == (pytest.approx(contrast["effect"]), contrast["items"])
            assert ours.p is not None


def test_records_become_entries(command: Callable[..., Any], exported: Path, tmp_path: Path) -> None:
    places = "--leaderboard", tmp_path / "board", "--runs", tmp_path / "runs"
    told = command("leaderboard", "import", exported, *places, "--json").ok().json
    assert told["added"] == 2
    for entry in told["entries"]:
        (was,) = select({"emo": "8055b2f60fd9", "mle": "1d1287c865af"}[entry["objective"]["name"]], STUDIES)
        assert (entry["kind"], entry["suite"]) == ("imported", {"name": "every-eval-ever", "version": 1})
        assert entry["model"]["name"] == was.model.name
        assert entry["objective"]["params"] == dict(was.objective.params)
        assert entry["provenance"]["created"][:19] == was.provenance.created[:19]
        for name, metric in entry["metrics"].items():
            old = was.metrics[name]
            assert (metric["mean"], metric["unit"], metric["n"]) == (old.mean, old.unit, old.n), name
            assert metric["ci95"] == (list(old.ci95) if old.ci95 else None)
        assert was.metrics.keys() - entry["metrics"].keys() == {"wikitext2/entropy"}, "no better direction"
    assert command("leaderboard", "import", exported, *places, "--json").ok().json["added"] == 0
    assert "problems: 0." in command("leaderboard", "verify", *places).ok().out
    compared = command("compare", "emo", "mle", *places).ok().out
    assert "wikitext2/rouge2, no seed: -0.29" in compared


def test_a_published_row_has_a_place_in_the_datastore(tmp_path: Path) -> None:
    for entry in select("published:emo-table1", tmp_path):
        ((place, text),) = files(entry).items()
        assert re.fullmatch(
            r"data/[^/]+/[^/]+/[^/]+/[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f-]{16}.json", place
        )
        assert files(entry) == {place: text}


def metric(mean: float, values: Sequence[float], n: int = 1, **changes: Any) -> dict[str, Any]:
    std = None if len(values) == 1 else 0.0
    summary = {"mean": mean, "std": std, "values": list(values), "n": n, "ci95": None, "ci95_of": None, "flags": []}
    return {**summary, "higher_is_better": True, "unit": "fraction", **changes}


def instances(exported: Mapping[str, str]) -> list[dict[str, Any]]:
    return [json.loads(line) for name, text in exported.items() if "samples" in name for line in text.splitlines()]


def test_instances_have_scores_and_digests_alone(entry_of: Callable[..., Any]) -> None:
    entry = entry_of(metrics={"arc/acc": metric(0.5, [0.5], 2), "arc/ppl": metric(0.25, [0.25], 2)}, seeds=[0])
    values = Recorded({"a": (1.0, 1.0), "b": (0.0, 1.0)}, {"b": "unit of b"})
    found = files(entry, [{"arc/acc": values, "arc/ppl": values}])
    (record_text,) = (text for name, text in found.items() if "samples" not in name)
    detailed = json.loads(record_text)["detailed_evaluation_results"]
    assert detailed["additional_details"] == {"without arc/ppl": "it is no mean of its examples"}
    shown, hidden = instances(found)
    assert shown["metadata"].keys() == {"texts"}
    assert (hidden["input"], hidden["output"]) == ({"raw": "", "reference": []}, {"raw": []})
    assert hidden["sample_hash"] == hashlib.sha256(b"b").hexdigest()
    assert hidden["metadata"].keys() == {"sampling_unit", "texts"}
    assert hidden["metadata"]["sampling_unit"] == "unit of b"
    correct = {"score": 1.0, "is_correct": True}, {"score": 0.0, "is_correct": False}
    assert (shown["evaluation"], hidden["evaluation"]) == correct


def test_each_field_of_a_record(entry_of: Callable[..., Any]) -> None:
    metrics = {
        "arc/acc": metric(0.75, [0.5, 1.0], n=40, std=0.25, ci95=[0.5, 0.875], ci95_of="items"),
        "lm/ppl": metric(9.0, [9.0, 9.0], unit="perplexity", higher_is_better=False),
        "lm/entropy": metric(3.0, [3.0, 3.0], unit="nats", higher_is_better=None),
        "lm/bleu": metric(3.0, [3.0, 3.0], unit="score"),
    }
    made = {"created": "2026-01-31T12:00:00", "packages": {"emobench": "1.2"}}  # without a zone: one of UTC
    entry = entry_of(
        "mle",
        created=made["created"],
        metrics=metrics,
        missing={"arc/f1": "not at hand"},
        model={"name": "gpt2", "source": "org/gpt2", "revision": "607a", "parameters": 5},
        provenance={"commit": None, "hardware": None, "data": {}, **made},
    )
    found = record(entry)
    found["source_metadata"]["additional_details"].pop("entry")
    assert found == json.loads((SCHEMAS.parent / "every_eval_ever_record.json").read_text())
    untrained = record(entry_of("pretrained", model={"name": "gpt2", "source": "org/gpt2"}))
    assert untrained["model_info"]["id"] == "org/gpt2"
    assert "developer" not in untrained["model_info"]
    assert untrained["eval_library"]["version"] == "unknown"
    assert not {"base_model", "revision", "seeds"} & untrained["model_info"]["additional_details"].keys()


def test_instances_are_means_over_runs_with_the_same_examples(entry_of: Callable[..., Any]) -> None:
    """An instance is correct if it is in all runs."""
    runs = [{"seed": i, "key": f"k{i}"} for i in range(2)]
    entry = entry_of(metrics={"arc/acc": metric(0.5, [0.5, 0.5], 3)}, seeds=[0, 1], runs=runs)
    scores = [{"a": 1.0, "b": 0.0, "c": 0.5}, {"a": 1.0, "b": 0.5, "c": 0.0}]
    of_runs = [{"arc/acc": Recorded({name: (score, 1.0) for name, score in one.items()})} for one in scores]
    rows = instances(files(entry, of_runs))
    assert [row["metadata"]["scores by seed"] for row in rows] == ["1.0 1.0", "0.0 0.5", "0.5 0.0"]
    assert [row["evaluation"]["is_correct"] for row in rows] == [True, False, False]
    other = Recorded({"a": (1.0, 1.0), "b": (0.0, 1.0), "d": (0.5, 1.0)})
    assert instances(files(entry, [of_runs[0], {"arc/acc": other}])) == []


# Records that others wrote

INTERVAL = {"lower": 0.25, "upper": 0.75, "confidence_level": 0.95}
HALF = [0, 1] * 10


def written(
    path: Path, of_result: Change | None = None, of_row: Change | None = None, scores: list[int] = HALF, **changes: Any
) -> str:
    """Write a record, and an instance for each score."""
    uncertainty = {"num_samples": len(scores), "confidence_interval": dict(INTERVAL)}
    result: dict[str, Any] = {
        "evaluation_result_id": "arc#accuracy",
        "evaluation_name": "arc",
        "source_data": {"dataset_name": "arc"},
        "metric_config": {"metric_name": "accuracy", "metric_unit": "proportion", "lower_is_better": False},
        "score_details": {"score": float(np.mean(scores)), "uncertainty": uncertainty},
    }
    rows = []
    for i, score in enumerate(scores):
        row: dict[str, Any] = {"evaluation_name": "arc", "evaluation_result_id": "arc#accuracy", "sample_id": str(i)}
        row["input"] = {"raw": f"question {i}", "formatted": f"Q: {i}", "reference": ["x"]}
        row["evaluation"] = {"score": score}
        if of_row:
            of_row(row)
        rows.append(row)
    if of_result:
        of_result(result)
    content = {"schema_version": "0.3.0", "model_info": {"id": f"org/{path.stem}"}, "evaluation_results": [result]}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**content, **changes}))
    path.with_name(f"{path.stem}_samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def updated(**changes: Any) -> Change:
    """Return a change that sets values, of nested mappings by "outer__inner"."""

    def change(given: dict[str, Any]) -> None:
        for name, value in changes.items():
            *groups, last = name.split("__")
            place = given
            for group in groups:
                place = place[group]
            place[last] = value

    return change


def imported(root: Path, *paths: str, given: ImportedModel | None = None) -> Entry:
    files = [Path(path) for path in paths]
    return import_results(files, Leaderboard(root / "board"), root / "runs", given or ImportedModel()).entry


def rows_of(path: str) -> list[dict[str, Any]]:
    return list(map(json.loads, Path(path).with_name(f"{Path(path).stem}_samples.jsonl").read_text().splitlines()))


def test_records_are_compared_example_by_example(tmp_path: Path) -> None:
    scores = [1] * 14 + [0] * 6, [1] * 4 + [0] * 16
    files = [written(tmp_path / f"{name}.json", scores=of) for name, of in zip("xy", scores, strict=True)]
    (contrast,) = compare_files(files).contrasts
    assert (contrast.metric, contrast.items, contrast.unit) == ("arc/accuracy", 20, "fraction")
    assert (contrast.p, contrast.verdict) == (pytest.approx(stats.binomtest(10, 10).pvalue), "better")


CONFIG, SCORE = "metric_config__", "score_details__"
BOUNDS = f"{SCORE}uncertainty__confidence_interval__"
NUMBERS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"value": 0.5, "unit": "fraction", "interval": (0.25, 0.75), "covers": "items", "n": 20}),
    ({f"{SCORE}score": 50.0}, {"unit": "score"}),
    ({f"{SCORE}score": -0.5}, {"unit": "score"}),
    ({f"{CONFIG}metric_unit": "perplexity", f"{SCORE}score": 9.0}, {"unit": "perplexity"}),
    ({f"{CONFIG}metric_unit": "perplexity"}, {"unit": "score"}),
    ({f"{CONFIG}metric_unit": "percent"}, {"unit": "score"}),
    ({f"{CONFIG}metric_unit": None}, {"unit": "score"}),
    *(({f"{CONFIG}lower_is_better": lower}, {"higher_is_better": not lower}) for lower in (True, False)),
    *(({f"{CONFIG}lower_is_better": lower}, {"higher_is_better": None}) for lower in (None, "no", 0)),
    *(({f"{BOUNDS}confidence_level": level}, {"interval": None}) for level in (0.9, None)),
    ({f"{BOUNDS}lower": None}, {"interval": None}),
    ({f"{BOUNDS}upper": "high"}, {"interval": None}),
    *(({f"{SCORE}uncertainty__num_samples": n}, {"n": n}) for n in (1, 0, None)),
    ({f"{SCORE}uncertainty__num_samples": "20"}, {"n": None}),
    *(({f"{SCORE}details": {"interval covers": told}}, {"covers": told}) for told in ("seeds", "seeds and items")),
    *(({f"{SCORE}details": {"interval covers": told}}, {"covers": "items"}) for told in ("all", None)),
]


@pytest.mark.parametrize(("changes", "expected"), NUMBERS)
def test_a_number_is_what_its_record_says(changes: dict[str, Any], expected: dict[str, Any], tmp_path: Path) -> None:
    (number,) = read_evaluation(written(tmp_path / "x.json", updated(**changes))).numbers.values()
    assert {name: getattr(number, name) for name in expected} == expected


def test_scores_whose_mean_is_another_number_are_no_examples(tmp_path: Path) -> None:
    read = read_evaluation(written(tmp_path / "x.json", updated(score_details__score=0.51)))
    assert (read.examples, [one.value for one in read.numbers.values()]) == ({}, [0.51])
    same = read_evaluation(written(tmp_path / "x.json"))
    assert sorted(same.examples["arc/accuracy"].examples.values()) == [(0.0, 1.0)] * 10 + [(1.0, 1.0)] * 10


OTHER_RESULTS = {
    "percent": {f"{CONFIG}metric_unit": "percent"},
    "max_score": {f"{CONFIG}max_score": 10**400},
    "min_score": {f"{CONFIG}min_score": -1},
    "data": {"source_data": {"dataset_name": "arc", "hf_split": "train"}},
    "generation": {"generation_config": {"generation_args": {"temperature": 1}}},
    "protocol": {f"{SCORE}details": {"protocol": "arc@1"}},
}
OTHER_ROWS: list[Change] = [
    updated(input__formatted="Question"),
    updated(input__reference=["y"]),
    updated(input__raw="another"),
    lambda row: row.update(input={}, sample_hash="another " + row["sample_id"]),
]


@pytest.mark.parametrize("told", OTHER_RESULTS)
def test_another_evaluation_or_scale_is_refused(told: str, tmp_path: Path) -> None:
    files = [written(tmp_path / "x.json"), written(tmp_path / "y.json", updated(**OTHER_RESULTS[told]))]
    with pytest.raises(ConfigError, match=told):
        compare_files(files)
    assert [one.verdict for one in compare_files(files, anyway=True).contrasts] == [None]


@pytest.mark.parametrize("change", OTHER_ROWS)
def test_instances_of_other_content_are_refused(change: Change, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        compare_files([written(tmp_path / "x.json"), written(tmp_path / "y.json", of_row=change)])


@pytest.mark.parametrize("place", [0, 1])
def test_the_rules_of_each_metric_of_a_task_count(place: int, tmp_path: Path) -> None:
    files = [written(tmp_path / f"{name}.json") for name in "xy"]
    for temperature, path in enumerate(files):
        content = json.loads(Path(path).read_text())
        second = json.loads(json.dumps(content["evaluation_results"][0]))
        arguments = {"generation_args": {"temperature": temperature}}
        updated(evaluation_result_id="f1", metric_config__metric_name="f1", generation_config=arguments)(second)
        content["evaluation_results"].insert(place, second)
        Path(path).write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="temperature"):
        compare_files(files)


def test_the_command_and_the_order_of_keys_make_no_difference(tmp_path: Path) -> None:
    files = []
    for name, keys in (("x", ["a", "b"]), ("y", ["b", "a"])):
        arguments = {**dict.fromkeys(keys, 1), "execution_command": f"evaluate {name}"}
        change = updated(generation_config={"generation_args": arguments}, source_data=dict.fromkeys(keys, 1))
        turned: Change = lambda row, keys=keys: row["input"].update(raw=[dict.fromkeys(keys, row["sample_id"])])  # noqa: E731
        files.append(written(tmp_path / f"{name}.json", change, turned))
    (contrast,) = compare_files(files).contrasts
    assert (contrast.items, contrast.effect) == (20, 0.0)


def test_instances_without_texts_are_alike_if_their_hashes_or_ids_are(tmp_path: Path) -> None:
    def hashed(row: dict[str, Any]) -> None:
        row.update(input={"raw": "", "reference": []}, sample_hash=f"hash {int(row['sample_id']) // 2}")

    def turned(row: dict[str, Any]) -> None:
        hashed(row)
        row["sample_id"] = f"another {row['sample_id']}"

    for changes, units in (((hashed, turned), 10), ((updated(input=None),) * 2, 0)):
        files = [written(tmp_path / f"{i}.json", of_row=change) for i, change in enumerate(changes)]
        left, right = (read_evaluation(file) for file in files)
        assert (left.tasks, len(left.tasks["arc"].prompts)) == (right.tasks, 20)
        (examples,) = left.examples.values()
        assert len(set(examples.units.values())) == units, "equal hashes are one unit"


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row.pop("sample_id"),
        updated(evaluation__score="right"),
        updated(evaluation_result_id="other", evaluation_name="other"),
        updated(sample_id="1"),
    ],
    ids=["no id", "no score", "no result", "twice"],
)
def test_an_instance_that_cannot_be_used_is_refused(change: Change, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"_samples\.jsonl:"):
        read_evaluation(written(tmp_path / "x.json", of_row=change))


def test_a_record_of_another_schema_or_without_a_number_is_refused(tmp_path: Path) -> None:
    for score in (None, "0.5", True, float("nan")):
        with pytest.raises(DataError, match="no number"):
            read_evaluation(written(tmp_path / "x.json", updated(score_details__score=score)))
    path = Path(written(tmp_path / "x.json"))
    content = json.loads(path.read_text())
    for changes, told in (
        ({"evaluation_results": content["evaluation_results"] * 2}, "keep one"),
        ({"schema_version": "0.9.1"}, "is of schema 0.9.1"),
    ):
        path.write_text(json.dumps({**content, **changes}))
        with pytest.raises(DataError, match=told):
            read_evaluation(str(path))
    path.write_text(json.dumps({"schema_version": "0.3.0"}))
    with pytest.raises(DataError, match="no `results`"):
        read_evaluation(str(path))


def test_instances_are_where_the_record_says_and_without_any_there_is_no_verdict(tmp_path: Path) -> None:
    place = {"file_path": "data/a/b/other.jsonl"}
    files = [written(tmp_path / "x.json", detailed_evaluation_results=place), written(tmp_path / "y.json")]
    comparison = compare_files(files)
    assert [(one.verdict, one.p) for one in comparison.contrasts] == [("undetermined", None)]
    assert "instances" in (comparison.contrasts[0].why or "")
    assert imported(tmp_path, files[0]).provenance.data == {}
    (tmp_path / "x_samples.jsonl").rename(tmp_path / "other.jsonl")
    assert len(read_evaluation(files[0]).examples["arc/accuracy"].examples) == 20


def test_an_instance_without_a_results_id_is_of_the_only_result_of_its_evaluation(tmp_path: Path) -> None:
    path = Path(written(tmp_path / "x.json", of_row=lambda row: row.pop("evaluation_result_id")))
    content = json.loads(path.read_text())
    (result,) = content["evaluation_results"]
    others = [{**result, "evaluation_name": name} for name in ("first", "last")]
    path.write_text(json.dumps({**content, "evaluation_results": [others[0], result, others[1]]}))
    assert read_evaluation(str(path)).examples.keys() == {"arc/accuracy"}
    other = {**result, "evaluation_result_id": "arc#f1", "metric_config": {"metric_name": "f1"}}
    path.write_text(json.dumps({**content, "evaluation_results": [result, other]}))
    with pytest.raises(DataError, match="known result"):
        read_evaluation(str(path))


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"evaluation_timestamp": "2026-01-31T12:00:00+02:00"}, "2026-01-31T12:00:00+02:00"),
        ({"evaluation_timestamp": "2026-01-31T12:00:00"}, "2026-01-31T12:00:00+00:00"),
        ({"evaluation_timestamp": "1700000000", "retrieved_timestamp": "1800000000"}, "2023-11-14T22:13:20+00:00"),
        ({"retrieved_timestamp": "1800000000.5"}, "2027-01-15T08:00:00+00:00"),
        ({}, "2001-09-09T01:46:40+00:00"),
        *(({"evaluation_timestamp": date}, "") for date in ("yesterday", "1e300", "2026-13-01")),
    ],
)
def test_the_date_of_an_entry(told: dict[str, Any], expected: str, tmp_path: Path) -> None:
    path = written(tmp_path / "x.json", **told)
    os.utime(path, (10**9, 10**9))
    if expected:
        assert imported(tmp_path, path).provenance.created == expected
    else:
        with pytest.raises(DataError, match="its date is"):
            imported(tmp_path, path)


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
    unnamed = imported(tmp_path / "unnamed", written(tmp_path / "z.json"))
    assert not unnamed.provenance.packages, "a record without a version names none"
    bare = updated(score_details={"score": 0.75, "details": {"protocol": "arc@1"}})
    other = imported(tmp_path / "other", written(tmp_path / "y.json", bare, eval_library=library))
    (metric,) = other.metrics.values()
    assert (metric.n, metric.ci95, metric.ci95_of) == (None, None, None)
    assert other.protocols != entry.protocols
    assert other.provenance.data == entry.provenance.data


def test_seeds_of_one_entry_have_a_spread_and_the_latest_date(tmp_path: Path) -> None:
    times = ("1800000000", "1700000000")
    paths = [
        written(tmp_path / f"{i}.json", scores=scores, evaluation_timestamp=times[i])
        for i, scores in enumerate((HALF, [0, 1, 1, 1] * 5))
    ]
    entry = imported(tmp_path, *paths, given=ImportedModel("base", "emo", (0, 1)))
    metric = entry.metrics["arc/accuracy"]
    assert (metric.values, metric.mean, metric.n, metric.ci95_of) == ((0.5, 0.75), 0.625, 20, "seeds and items")
    assert metric.std == pytest.approx(0.25 / 2**0.5)
    assert entry.provenance.created == "2027-01-15T08:00:00+00:00"
    assert (entry.source.cite or "").count("record of Every Eval Ever") == 2
    other = written(tmp_path / "other.json", of_row=updated(input__reference=["z"]))
    with pytest.raises(DataError, match="data or precision differs"):
        imported(tmp_path, paths[0], other, given=ImportedModel("base", "mle", (0, 1)))


def test_instances_that_stand_twice_make_no_interval_narrower(tmp_path: Path) -> None:
    """The order of the instances makes no difference, either."""
    intervals = []
    for copies in (1, 2):
        root = tmp_path / str(copies)
        paths = [Path(written(root / f"{name}.json")) for name in "xy"]
        for i, path in enumerate(paths):
            rows = rows_of(str(path))[:: 1 - 2 * i]
            for row in rows:
                row["evaluation"]["score"] = float((int(row["sample_id"]) + i) % 2)
            again = [{**row, "sample_id": f"{row['sample_id']} {copy}"} for copy in range(copies) for row in rows]
            samples = path.with_name(f"{path.stem}_samples.jsonl")
            samples.write_text("".join(json.dumps(row) + "\n" for row in again))
        entry = imported(root, *map(str, paths), given=ImportedModel("base", "emo", (0, 1)))
        intervals.append(entry.metrics["arc/accuracy"].ci95)
    assert intervals[0] == pytest.approx(intervals[1])


MODELS: list[tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = [
    ({"id": "org/m"}, {"revision": "step1"}, {"name": "m@step1", "source": "org/m@step1"}),
    ({"id": "org/m"}, {"model_revision": "step1"}, {"name": "m@step1", "source": "org/m@step1"}),
    ({"id": "org/m"}, {"revision": "main"}, {"name": "m", "source": "org/m"}),
    (
        {"id": "base-emo", "name": "base"},
        {"base_model": "org/base", "revision": "607a"},
        {"name": "base", "source": "org/base", "revision": "607a"},
    ),
    ({"id": "org/m"}, {"objective": "emo"}, {"objective": "emo"}),
    *(
        ({"id": "org/m"}, {"objective": label}, {"objective": label})
        for label in ("demd + 0.5*mle(demd.cost=pretrained)", "emo(cost=./centred-base-en-7m)")
    ),
]


@pytest.mark.parametrize(("info", "details", "expected"), MODELS)
def test_the_model_of_an_entry(
    info: dict[str, Any], details: dict[str, Any], expected: dict[str, str], tmp_path: Path
) -> None:
    path = written(tmp_path / "x.json", model_info={**info, "additional_details": details})
    entry = imported(tmp_path, path)
    shown = {"name": entry.model.name, "source": entry.model.source, "revision": entry.model.revision}
    assert {**shown, "objective": entry.objective.label}.items() >= expected.items()
    mine = ImportedModel(objective="mle")
    assert imported(tmp_path / "mine", path, given=mine).objective.name == "mle"


def test_records_without_a_model_may_be_of_different_ones(tmp_path: Path) -> None:
    paths = [written(tmp_path / f"{i}.json", model_info={}, retrieved_timestamp=str(1.8e9 + i)) for i in range(2)]
    entries = [imported(tmp_path / str(i), path) for i, path in enumerate(paths)]
    assert [entry.model.name for entry in entries] == ["unnamed", "unnamed"]
    assert entries[0].model.source != entries[1].model.source
