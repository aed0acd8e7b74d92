"""What is exported is read by the tools that it is for, with the entry's numbers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.leaderboard.exchange.lm_eval_entry import Subject
from emobench.leaderboard.exchange.lm_eval_export import lm_eval_file_name, lm_eval_name, lm_eval_results, to_json
from emobench.leaderboard.exchange.lm_eval_import import import_results
from emobench.leaderboard.exchange.model_card import model_card
from emobench.leaderboard.exchange.rows import to_csv, to_json_lines
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.store.board import Leaderboard
from emobench.leaderboard.store.published import published_root

MakeEntry = Callable[..., Entry]

HOSTILE = "=cmd|' /C calc'!A0 \x1b[31m<b>|`x`\n---\nname: y"


def summary(mean: float, **changes: Any) -> dict[str, Any]:
    given = {"mean": mean, "std": None, "values": [mean], "n": 100, "ci95": None, "ci95_of": None}
    return {**given, "higher_is_better": True, "unit": "fraction", "flags": [], **changes}


@pytest.fixture
def entry(entry_of: MakeEntry) -> MakeEntry:
    """Return a function that makes an entry of which every field says something."""
    values = [0.90, 0.92, 0.94]
    metrics = {
        "sst2/accuracy": summary(0.92, std=0.02, values=values, n=1821, ci95=[0.88, 0.96], ci95_of="seeds and items"),
        "lm/ppl_test": summary(30.5, std=0.5, values=[30.0, 30.5, 31.0], unit="perplexity", higher_is_better=False),
    }
    given = {
        "protocols": {"sst2": "paper@3fa9c1", "lm": "paper@77aa00", "mmlu": "paper@aa0000"},
        "model": {"name": "gpt2", "source": "openai-community/gpt2", "revision": "607a30d", "parameters": 124439808},
        "objective": {"name": "tailr", "version": "1", "params": {"gamma": 0.2}, "source_sha256": "0" * 64},
        "recipe": {"name": "lora", "dtype": "float32"},
        "metrics": metrics,
        "missing": {"mmlu/accuracy": "hendrycks_test is not at hand"},
        "runs": [{"seed": seed, "key": f"k{seed}"} for seed in (0, 1, 2)],
        "cost": {"evaluate_seconds": 2.5},
        "source": {"command": "emobench run", "cite": None},
        "provenance": {
            "commit": "c0ffee",
            "packages": {"torch": "2.13.0", "transformers": "5.23.0"},
            "hardware": "2 cores",
            "data": {"sst2.test": "sha256:aa (local)"},
            "created": "2026-01-31T12:00:00+02:00",
        },
    }
    return lambda **changes: entry_of(**{**given, **changes})


@pytest.fixture
def hostile(entry: MakeEntry) -> Entry:
    return entry(
        model={"name": HOSTILE, "source": HOSTILE},
        metrics={"sst2/=1|2<i>": summary(0.5)},
        missing={"mmlu/accuracy": HOSTILE},
        runs=[],
    )


def test_lm_eval_results_have_the_shape_of_lm_eval(entry: MakeEntry) -> None:
    made = json.loads(to_json(entry()))
    assert made["results"] == {
        "sst2": {
            "name": "sst2",
            "alias": "sst2",
            "sample_len": 1821,
            "accuracy,none": 0.92,
            "accuracy_stderr,none": pytest.approx(0.08 / 2 / 1.959964, abs=1e-7),
        },
        "lm": {"name": "lm", "alias": "lm", "sample_len": 100, "ppl_test,none": 30.5, "ppl_test_stderr,none": "N/A"},
    }
    assert made["versions"] == {"sst2": "paper@3fa9c1", "lm": "paper@77aa00"}
    assert made["higher_is_better"] == {"sst2": {"accuracy": True}, "lm": {"ppl_test": False}}
    assert made["n-samples"]["sst2"] == {"original": 1821, "effective": 1821}
    assert (made["git_hash"], made["model_name"]) == ("c0ffee", "gpt2-tailr(gamma=0.2)")
    assert made["config"]["model_args"] == "pretrained=openai-community/gpt2,revision=607a30d"
    assert made["emobench"]["missing"] == {"mmlu/accuracy": "hendrycks_test is not at hand"}
    assert lm_eval_file_name(entry()) == "results_2026-01-31T10-00-00.json"


def test_a_standard_error_holds_the_interval_that_was_cut_at_one(entry: MakeEntry) -> None:
    metrics = {"sst2/accuracy": summary(0.95, ci95=[0.89, 1.0], ci95_of="items")}
    cut = entry(metrics=metrics, runs=[])
    assert lm_eval_results(cut)["results"]["sst2"]["accuracy_stderr,none"] == pytest.approx(0.06 / 1.959964, abs=1e-7)


def test_lm_eval_prints_its_table_of_an_export(entry: MakeEntry, hostile: Entry) -> None:
    from lm_eval.utils import get_file_datetime, get_results_filenames, make_table, sanitize_model_name

    table = make_table(json.loads(to_json(entry())))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    # Task, version, filter, n-shot, metric, which way is better, value, +-, stderr.
    assert rows == [
        ["lm", "paper@77aa00", "none", "", "ppl_test", "↓", "30.50", "±", "N/A"],
        ["sst2", "paper@3fa9c1", "none", "", "accuracy", "↑", "0.92", "±", "0.0204"],
    ]
    path = f"{lm_eval_name(entry())}/{lm_eval_file_name(entry())}"
    assert get_results_filenames([path]) == [path]
    assert get_file_datetime(path) == "2026-01-31T10-00-00.json"
    for made in (entry(), hostile):
        assert sanitize_model_name(lm_eval_name(made)) == lm_eval_name(made)
        assert "/" not in lm_eval_name(made)
        assert make_table(lm_eval_results(made))


def test_datasets_reads_an_export_as_the_hub_does(
    entry: MakeEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datasets import load_dataset

    path = tmp_path / lm_eval_file_name(entry())
    path.write_text(to_json(entry()))
    read = load_dataset("json", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))
    assert read["results"][0]["sst2"]["accuracy,none"] == 0.92  # pyright: ignore


@pytest.mark.slow
def test_an_import_survives_its_export(results_files: list[Path], tmp_path: Path) -> None:
    first = import_results([results_files[1]], Leaderboard(tmp_path / "a"), tmp_path / "runs", Subject()).entry
    path = tmp_path / lm_eval_file_name(first)
    content = lm_eval_results(first)
    del content["emobench"]  # with it, an export is refused
    path.write_text(json.dumps(content))
    again = import_results([path], Leaderboard(tmp_path / "b"), tmp_path / "runs", Subject()).entry
    assert again.metrics.keys() == first.metrics.keys()
    for name, metric in first.metrics.items():
        other = again.metrics[name]
        assert (other.mean, other.n, other.unit) == (metric.mean, metric.n, metric.unit)
        assert other.higher_is_better == metric.higher_is_better
        assert other.ci95 == (metric.ci95 and pytest.approx(metric.ci95, abs=1e-12))
    assert lm_eval_results(first)["groups"].keys() == {"tiny_group"}
    assert first.provenance.data == again.provenance.data


def test_a_model_card_is_read_back_by_huggingface_hub(entry: MakeEntry) -> None:
    from huggingface_hub import ModelCard

    card = ModelCard(model_card(entry()))
    assert card.data.model_name == "gpt2-tailr(gamma=0.2)"  # pyright: ignore
    results = {result.metric_name: result for result in card.data.eval_results}  # pyright: ignore
    assert results.keys() == {"sst2/accuracy", "lm/ppl_test"}
    found = results["sst2/accuracy"]
    assert (found.metric_value, found.metric_type, found.dataset_type) == (0.92, "accuracy", "sst2")
    assert found.metric_args["ci95"] == [0.88, 0.96]
    assert found.metric_args["seeds"] == 3
    assert "| sst2/accuracy | 0.92 ± 0.02 | 0.88 to 0.96 | paper@3fa9c1 |" in card.text
    assert "missing: hendrycks\\_test is not at hand" in card.text


def test_a_hostile_name_stays_inside_its_field(hostile: Entry) -> None:
    from huggingface_hub import ModelCard

    card = ModelCard(model_card(hostile))
    assert card.data.to_dict().keys() == {"tags", "model-index"}
    assert card.data.model_name.startswith("=cmd|' /C calc'!A0")  # pyright: ignore
    assert "\x1b" not in card.content
    assert "<b>" not in card.text
    assert card.text.count("\n| ") == 3  # the header, the metric, what is missing


def test_every_published_entry_makes_a_card() -> None:
    from huggingface_hub import ModelCard

    for made in Leaderboard(published_root()).entries():
        card = ModelCard(model_card(made))
        values = {result.metric_name: result.metric_value for result in card.data.eval_results}  # pyright: ignore
        assert values == {name: metric.mean for name, metric in made.metrics.items()}
        assert "seed" not in card.text.partition("|")[0]


def test_tables_have_a_line_for_each_entry_and_metric(entry: MakeEntry, hostile: Entry) -> None:
    lines = [json.loads(line) for line in to_json_lines([entry(), hostile]).splitlines()]
    assert [(line["task"], line["metric"], line["mean"]) for line in lines] == [
        ("sst2", "accuracy", 0.92),
        ("lm", "ppl_test", 30.5),
        ("mmlu", "accuracy", None),
        ("sst2", "=1|2<i>", 0.5),
        ("mmlu", "accuracy", None),
    ]
    assert lines[0]["values"] == [0.90, 0.92, 0.94]
    assert lines[2]["missing"] == "hendrycks_test is not at hand"
    assert lines[3]["model"] == HOSTILE
    rows = list(csv.DictReader(io.StringIO(to_csv([entry(), hostile]))))
    assert list(rows[0]) == list(lines[0])
    assert [row["mean"] for row in rows] == ["0.92", "30.5", "", "0.5", ""]
    assert (rows[0]["ci95_low"], rows[0]["ci95_high"], rows[0]["seeds"]) == ("0.88", "0.96", "0 1 2")
    assert rows[0]["objective"] == "tailr(gamma=0.2)"
    # A spreadsheet takes it as text, and a terminal shows it as it is.
    assert rows[3]["model"].startswith("'=cmd")
    assert rows[3]["metric"].startswith("'=1")
    assert "\x1b" not in to_csv([hostile])


def test_an_interval_beyond_the_range_of_floats_has_no_stderr(entry: MakeEntry) -> None:
    wide = summary(1.7e308, unit="perplexity", ci95=[-1.7e308, 1.7e308], ci95_of="items", higher_is_better=False)
    metrics = {"lm/ppl": {**wide, "values": [1.7e308] * 3, "std": 0.0}}
    found = json.loads(to_json(entry(metrics=metrics)))
    assert found["results"]["lm"]["ppl_stderr,none"] == "N/A"
