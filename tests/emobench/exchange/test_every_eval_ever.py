"""Entries become records of Every Eval Ever that its schemas accept; records with instances are compared."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from scipy import stats

from emobench.core.errors import ConfigError, DataError
from emobench.exchange.every_eval_ever import Shown, files, record
from emobench.exchange.result_files import compare_files, read_evaluation
from emobench.leaderboard.query.rows import select
from emobench.leaderboard.run_files import Recorded

ROWS = "published:emo-table3/llama-7b/emo", "published:emo-table1"


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


def test_every_number_is_there(tmp_path: Path) -> None:
    (entry,) = select(ROWS[0], tmp_path)
    found = record(entry)
    scores = {
        f"{r['evaluation_name']}/{r['metric_config']['metric_id']}": r["score_details"]["score"]
        for r in found["evaluation_results"]
    }
    assert scores == {name: metric.mean for name, metric in entry.metrics.items()}
    assert {r["metric_config"]["lower_is_better"] for r in found["evaluation_results"]} == {False}
    assert found["model_info"]["additional_details"]["objective"] == "emo"


def written(folder: Path, model: str, scores: list[int], **changes: Any) -> str:
    """Write a record and its instances, in another order for each model."""
    distinct = changes.get("distinct", len(scores))
    result = {
        "evaluation_result_id": "arc#accuracy",
        "evaluation_name": "arc",
        "source_data": {"dataset_name": "arc", "source_type": "other"},
        "metric_config": {"metric_name": "accuracy", "metric_unit": "proportion", "lower_is_better": False}
        | {"score_type": "continuous", "min_score": 0, "max_score": 1},
        "score_details": {"score": float(np.mean(scores)), "uncertainty": {"num_samples": len(scores)}},
    }
    content = {
        "schema_version": changes.get("version", "0.3.0"),
        "evaluation_id": f"arc/{model}/0",
        "retrieved_timestamp": "1800000000",
        "source_metadata": {"source_type": "evaluation_run", "source_organization_name": "x"}
        | {"evaluator_relationship": "other"},
        "model_info": {"name": model, "id": f"org/{model}"}
        | {"additional_details": {"deployment_type": "unknown", "model_availability": "unknown"}},
        "eval_library": {"name": "lm_eval", "version": "0.4.13"},
        "evaluation_results": [result],
    }
    rows = [
        {
            "schema_version": "0.3.0",
            "evaluation_id": f"arc/{model}/0",
            "model_id": f"org/{model}",
            "evaluation_name": "arc",
            "evaluation_result_id": "arc#accuracy",
            "sample_id": str(i),
            "interaction_type": "single_turn",
            "input": {"raw": f"question {i % distinct}", "reference": [changes.get("reference", "x")]},
            "output": {"raw": ["x"]},
            "answer_attribution": [],
            "evaluation": {"score": score, "is_correct": bool(score)},
        }
        for i, score in enumerate(scores)
    ]
    random.Random(model).shuffle(rows)
    folder.mkdir(exist_ok=True)
    path = folder / f"{model}.json"
    path.write_text(json.dumps(content))
    (folder / f"{model}_samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


SCORES = [1] * 14 + [0] * 6, [1] * 4 + [0] * 16


def test_records_are_compared_example_by_example(tmp_path: Path) -> None:
    files = [written(tmp_path, name, scores) for name, scores in zip("xy", SCORES, strict=True)]
    (contrast,) = compare_files(files)[0].contrasts
    assert (contrast.metric, contrast.items, contrast.unit) == ("arc/accuracy", 20, "fraction")
    assert contrast.p == pytest.approx(stats.binomtest(10, 10).pvalue)
    assert contrast.verdict == "better"


def rewritten(path: str, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(Path(path).read_text())
    change(content)
    Path(path).write_text(json.dumps(content))


@pytest.mark.parametrize("scale", [{"metric_unit": "percent"}, {"max_score": 100}, {"min_score": -1}])
def test_numbers_on_other_scales_are_not_compared(scale: dict[str, Any], tmp_path: Path) -> None:
    """Of percent and a share, the difference is no difference of models."""
    files = [written(tmp_path, name, scores) for name, scores in zip("xy", SCORES, strict=True)]

    def change(content: dict[str, Any]) -> None:
        content["evaluation_results"][0]["metric_config"].update(scale)

    rewritten(files[0], change)
    with pytest.raises(ConfigError, match=str(next(iter(scale.values())))):
        compare_files(files)
    assert [one.verdict for one in compare_files(files, anyway=True)[0].contrasts] == [None]


@pytest.mark.parametrize("place", [0, 1])
def test_the_rules_of_each_metric_of_a_task_count(place: int, tmp_path: Path) -> None:
    files = [written(tmp_path, name, scores) for name, scores in zip("xy", SCORES, strict=True)]
    for temperature, path in enumerate(files):
        content = json.loads(Path(path).read_text())
        first = content["evaluation_results"][0]
        second = {**first, "evaluation_result_id": "arc#f1"}
        second["metric_config"] = {**first["metric_config"], "metric_name": "f1"}
        second["generation_config"] = {"generation_args": {"temperature": temperature}}
        content["evaluation_results"].insert(place, second)
        Path(path).write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="temperature"):
        compare_files(files)


def test_instances_with_one_input_are_one_unit(tmp_path: Path) -> None:
    draw = random.Random(0)
    scores = [[draw.randint(0, 1) for _ in range(60)] for _ in "xy"]
    files = [written(tmp_path, name, of, distinct=15) for name, of in zip("xy", scores, strict=True)]
    (contrast,) = compare_files(files)[0].contrasts
    means = [np.array(of).reshape(4, 15).mean(axis=0) for of in scores]
    assert (contrast.items, contrast.p) == (15, pytest.approx(stats.ttest_rel(*means).pvalue))


def test_the_schemas_accept_what_is_compared_here(tmp_path: Path) -> None:
    path = Path(written(tmp_path, "x", SCORES[0]))
    jsonschema.validate(json.loads(path.read_text()), schema("eval"))
    for line in (tmp_path / "x_samples.jsonl").read_text().splitlines():
        jsonschema.validate(json.loads(line), schema("instance_level_eval"))


@pytest.mark.parametrize(
    ("changes", "text"), [({"reference": "y"}, "for the same examples"), ({"version": "0.9.1"}, "is of schema 0.9.1")]
)
def test_other_examples_and_other_schemas_are_refused(changes: dict[str, str], text: str, tmp_path: Path) -> None:
    files = [written(tmp_path, "x", SCORES[0]), written(tmp_path, "y", SCORES[1], **changes)]
    with pytest.raises((ConfigError, DataError), match=text):
        compare_files(files)


def test_the_command_writes_a_file_for_each_entry(command: Callable[..., Any], tmp_path: Path) -> None:
    command("leaderboard", "export", *ROWS, "--to", "every-eval-ever", "--out", tmp_path / "out").ok()
    found = records(tmp_path / "out")
    assert len(found) > 1
    assert {json.loads(path.read_text())["schema_version"] for path in found} == {"0.3.0"}


STUDIES = Path(__file__).parents[3] / "leaderboards" / "studies"


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
    found = {c.metric: c for c in compare_files([str(emo), str(mle)])[0].contrasts}
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


def test_seeds_and_objectives_are_the_users_to_say(command: Callable[..., Any], tmp_path: Path) -> None:
    places = "--leaderboard", tmp_path / "board", "--runs", tmp_path / "runs"
    paths = [written(tmp_path / "in", f"seed{i}", scores) for i, scores in enumerate((SCORES[0], SCORES[1], SCORES[0]))]
    given = "--model", "org/base", "--objective", "emo", *(part for i in range(3) for part in ("--seed", i))
    (entry,) = command("leaderboard", "import", *paths, *given, *places, "--json").ok().json["entries"]
    assert (entry["seeds"], entry["model"]["name"], entry["objective"]["name"]) == ([0, 1, 2], "org/base", "emo")
    metric = entry["metrics"]["arc/accuracy"]
    assert metric["values"] == [0.7, 0.2, 0.7]
    assert (metric["ci95_of"], metric["n"]) == ("seeds and items", 20)
    mixed = written(tmp_path / "other", "seed3", SCORES[0], reference="z")
    command(
        *("leaderboard", "import", paths[0], mixed, "--model", "b", "--objective", "mle", "--seed", 0, "--seed", 1),
        *places,
    ).refused("its data differs from that of")


def test_a_published_row_has_a_place_in_the_datastore(tmp_path: Path) -> None:
    for entry in select("published:emo-table1", tmp_path):
        ((place, text),) = files(entry).items()
        assert re.fullmatch(
            r"data/[^/]+/[^/]+/[^/]+/[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f-]{16}.json", place
        )
        assert files(entry) == {place: text}


@pytest.mark.parametrize(
    ("unit", "scores", "expected"),
    [
        ("fraction", [1.0, 1.0, 1.0], True),
        ("fraction", [1.0, 1.0, 0.0], False),
        ("fraction", [0.5, 0.5, 0.5], False),
        ("fraction", [0.999, 1.0, 1.0], False),
        ("fraction", [0.0, 0.0, 0.0], False),
        ("score", [1.0, 1.0, 1.0], False),
        ("score", [2.0, 2.0, 2.0], False),
    ],
)
def test_an_instance_is_correct_where_all_seeds_are(
    unit: str, scores: list[float], expected: bool, entry_of: Callable[..., Any]
) -> None:
    value = sum(scores) / 3
    summary = {"mean": value, "std": 0.0, "values": scores, "n": 1, "ci95": None, "ci95_of": None}
    metric = {**summary, "higher_is_better": True, "unit": unit, "flags": []}
    entry = entry_of(metrics={"arc/acc": metric}, seeds=[0, 1, 2], runs=[{"seed": i, "key": f"k{i}"} for i in range(3)])
    recorded = [{"arc/acc": Recorded({"example": (score, 1.0)})} for score in scores]
    (row,) = [
        json.loads(line)
        for name, text in files(entry, recorded).items()
        if "samples" in name
        for line in text.splitlines()
    ]
    assert row["evaluation"] == {"score": pytest.approx(value), "is_correct": expected}


def test_an_instance_with_texts_and_one_without(entry_of: Callable[..., Any]) -> None:
    summary = {"mean": 0.5, "std": None, "values": [0.5], "n": 2, "ci95": None, "ci95_of": None}
    metric = {**summary, "higher_is_better": True, "unit": "fraction", "flags": []}
    entry = entry_of(metrics={"arc/acc": metric, "arc/ppl": {**metric, "mean": 0.25, "values": [0.25]}}, seeds=[0])
    values = Recorded({"a": (1.0, 1.0), "b": (0.0, 1.0)}, {"b": "unit of b"})
    texts = {
        ("arc", "a"): Shown(input="Q", reference="R", outputs=("O", "P")),
        ("other", "b"): Shown(input="", reference=None, outputs=()),
    }
    found = files(entry, [{"arc/acc": values, "arc/ppl": values}], texts)
    (record_text,) = (text for name, text in found.items() if "samples" not in name)
    detailed = json.loads(record_text)["detailed_evaluation_results"]
    assert detailed["additional_details"] == {"without arc/ppl": "it is no mean of its examples"}
    (lines,) = (text.splitlines() for name, text in found.items() if "samples" in name)
    shown, hidden = map(json.loads, lines)
    assert (shown["input"], shown["output"]) == ({"raw": "Q", "reference": ["R"]}, {"raw": ["O", "P"]})
    assert shown["sample_hash"] == hashlib.sha256(b'{"raw": "Q", "reference": ["R"]}').hexdigest()
    assert shown["metadata"] == {}
    assert (hidden["input"], hidden["output"]) == ({"raw": "", "reference": []}, {"raw": []})
    assert hidden["sample_hash"] == hashlib.sha256(b"b").hexdigest()
    assert hidden["metadata"].keys() == {"sampling_unit", "texts"}
    assert hidden["metadata"]["sampling_unit"] == "unit of b"
    assert [row["evaluation"]["score"] for row in (shown, hidden)] == [1.0, 0.0]


def test_each_field_of_a_record(entry_of: Callable[..., Any]) -> None:
    flat = {"ci95": None, "ci95_of": None, "flags": []}
    metrics = {
        "arc/acc": {"mean": 0.75, "std": 0.25, "values": [0.5, 1.0], "n": 40, "higher_is_better": True}
        | {"unit": "fraction", **flat, "ci95": [0.5, 0.875], "ci95_of": "items"},
        "lm/ppl": {"mean": 9.0, "std": 0.0, "values": [9.0, 9.0], "n": 1, "higher_is_better": False}
        | {"unit": "perplexity", **flat},
        "lm/entropy": {"mean": 3.0, "std": 0.0, "values": [3.0, 3.0], "n": 1, "higher_is_better": None}
        | {"unit": "nats", **flat},
        "lm/bleu": {"mean": 3.0, "std": 0.0, "values": [3.0, 3.0], "n": 1, "higher_is_better": True}
        | {"unit": "score", **flat},
    }
    entry = entry_of(
        "mle",
        created="2026-01-31T12:00:00",  # without a zone: one of UTC
        metrics=metrics,
        missing={"arc/f1": "not at hand"},
        model={"name": "gpt2", "source": "org/gpt2", "revision": "607a", "parameters": 5},
        provenance={"commit": None, "packages": {"emobench": "1.2"}, "hardware": None, "data": {}}
        | {"created": "2026-01-31T12:00:00"},
    )
    found = record(entry)
    assert found["evaluation_id"] == "nlu/gpt2-mle/1769860800"
    assert found["evaluation_timestamp"] == "2026-01-31T12:00:00+00:00"
    assert found["retrieved_timestamp"] == "1769860800"
    assert found["eval_library"] == {
        "name": "emobench",
        "version": "1.2",
        "additional_details": {
            "suite": "nlu v1",
            "missing arc/f1": "not at hand",
            "missing lm/entropy": "no better direction",
        },
    }
    details = found["model_info"].pop("additional_details")
    assert found["model_info"] == {"name": "gpt2", "id": "gpt2-mle", "developer": "emobench"}
    assert {name: details[name] for name in ("base_model", "revision", "objective", "seeds", "parameters")} == {
        "base_model": "org/gpt2",
        "revision": "607a",
        "objective": "mle",
        "seeds": "0 1",
        "parameters": "5",
    }
    assert found["source_metadata"]["source_type"] == "evaluation_run"
    assert "detailed_evaluation_results" not in found
    results = {result["evaluation_result_id"].partition("#")[2]: result for result in found["evaluation_results"]}
    assert results.keys() == {"arc/acc", "lm/ppl", "lm/bleu"}
    bounds = {
        name: [result["metric_config"][key] for key in ("metric_unit", "lower_is_better", "min_score", "max_score")]
        for name, result in results.items()
    }
    assert bounds == {
        "arc/acc": ["fraction", False, 0.0, 1.0],
        "lm/ppl": ["perplexity", True, 1.0, "Infinity"],
        "lm/bleu": ["score", False, "-Infinity", "Infinity"],
    }
    assert results["arc/acc"]["score_details"] == {
        "score": 0.75,
        "details": {
            "protocol": "paper@1",
            "values by seed": "0.5 1.0",
            "standard deviation over seeds": "0.25",
            "interval covers": "items",
        },
        "uncertainty": {
            "num_samples": 40,
            "confidence_interval": {"lower": 0.5, "upper": 0.875, "confidence_level": 0.95},
        },
    }
    assert results["lm/ppl"]["score_details"]["uncertainty"] == {"num_samples": 1}
    assert "interval covers" not in results["lm/ppl"]["score_details"]["details"]
    untrained = record(entry_of("pretrained", model={"name": "gpt2", "source": "org/gpt2"}))
    assert untrained["model_info"]["id"] == "org/gpt2"
    assert "developer" not in untrained["model_info"]
    assert untrained["eval_library"]["version"] == "unknown"
    assert not {"base_model", "revision", "seeds"} & untrained["model_info"]["additional_details"].keys()


def test_runs_with_other_examples_have_no_instances(entry_of: Callable[..., Any]) -> None:
    summary = {"mean": 0.5, "std": 0.0, "values": [0.5, 0.5], "n": 2, "ci95": None, "ci95_of": None}
    metric = {**summary, "higher_is_better": True, "unit": "fraction", "flags": []}
    entry = entry_of(metrics={"arc/acc": metric}, seeds=[0, 1], runs=[{"seed": i, "key": f"k{i}"} for i in range(2)])
    runs = [{"arc/acc": Recorded({"a": (1.0, 1.0), name: (0.0, 1.0)})} for name in "bc"]
    assert not any("samples" in name for name in files(entry, runs))
    same = [{"arc/acc": Recorded({"a": (1.0, 1.0), "b": (value, 1.0)})} for value in (0.0, 0.0)]
    (lines,) = (text.splitlines() for name, text in files(entry, same).items() if "samples" in name)
    assert [json.loads(line)["metadata"]["scores by seed"] for line in lines] == ["1.0 1.0", "0.0 0.0"]


def test_an_instance_without_a_results_id_is_of_the_only_result_of_its_evaluation(tmp_path: Path) -> None:
    path = Path(written(tmp_path, "x", SCORES[0]))
    samples = path.with_name("x_samples.jsonl")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    for row in rows:
        del row["evaluation_result_id"]
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len(read_evaluation(str(path)).examples["arc/accuracy"].examples) == 20
    content = json.loads(path.read_text())
    (result,) = content["evaluation_results"]
    other = {**result, "evaluation_result_id": "arc#f1", "metric_config": {"metric_name": "f1"}}
    path.write_text(json.dumps({**content, "evaluation_results": [result, other]}))
    with pytest.raises(DataError, match="known result"):
        read_evaluation(str(path))


@pytest.mark.parametrize("field", ["revision", "model_revision"])
def test_revisions_of_one_model_are_different_models(field: str, command: Callable[..., Any], tmp_path: Path) -> None:
    paths = []
    for i, revision in enumerate(("step1", "step2", "main", None)):
        path = Path(written(tmp_path / str(i), "m", SCORES[i % 2]))
        content = json.loads(path.read_text())
        content["model_info"]["additional_details"][field] = revision
        path.write_text(json.dumps(content))
        paths.append(path)
    assert [read_evaluation(str(path)).variant for path in paths] == ["@step1", "@step2", "", ""]
    places = "--leaderboard", tmp_path / "board", "--runs", tmp_path / "runs"
    found = command("leaderboard", "import", *paths[:2], *places, "--json").ok().json["entries"]
    assert [entry["model"]["name"] for entry in found] == ["m@step1", "m@step2"]
    assert [entry["model"]["source"] for entry in found] == ["org/m@step1", "org/m@step2"]


def test_two_seeds_are_one_entry(command: Callable[..., Any], tmp_path: Path) -> None:
    paths = [written(tmp_path / "in", f"seed{i}", scores) for i, scores in enumerate(SCORES)]
    given = "--model", "org/base", "--objective", "emo", "--seed", 0, "--seed", 1
    places = "--leaderboard", tmp_path / "board", "--runs", tmp_path / "runs"
    (entry,) = command("leaderboard", "import", *paths, *given, *places, "--json").ok().json["entries"]
    assert entry["metrics"]["arc/accuracy"]["values"] == [0.7, 0.2]
