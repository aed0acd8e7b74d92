"""A trained model with its card and results, as the files of a model repository of the hub."""

from __future__ import annotations

import filecmp
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import yaml
from huggingface_hub import EvalResultEntry, ModelCard

from emobench.exchange.model_repo import send, write_repo
from emobench.leaderboard.entry import Entry

COMMIT = "a" * 40
GIVEN = (
    *("--suite", "lm-quick", "--limit", "12", "--json", "--set", "mauve.seeds=[0]", "--set", "recipe.max_length=32"),
    *("--set", "generation.max_length=32", "--set", "generation.prefix=4", "--set", "generation.continuation=8"),
)
Push = Callable[..., Any]


@pytest.fixture
def push(command: Push, small_model: Path, small_data: Path, tmp_path: Path) -> Push:
    places = ("--runs", tmp_path / "runs", "--leaderboard", tmp_path / "board", "--data-dir", small_data)
    return lambda *words: command("run", *GIVEN, *places, "--model", small_model, *words)


def test_a_run_writes_the_model_its_card_and_its_results(push: Push, tmp_path: Path) -> None:
    done = push("--objective", "mle", "--seed", 3, "--push", "me/small-mle", "--offline").ok()
    (entry,) = done.json["entries"]
    folder = tmp_path / "runs" / "pushed" / f"{entry['id']}-3"
    assert f"hf upload me/small-mle {folder}" in done.err
    (trained,) = (tmp_path / "runs" / "train").glob("*/model")
    names = [path.name for path in trained.iterdir()]
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(names)
    assert filecmp.cmpfiles(trained, folder, names, shallow=False)[0] == names
    card: Any = ModelCard.load(folder / "README.md")
    results = {result.metric_name: result.metric_value for result in card.data.eval_results}
    assert results == pytest.approx({name: metric["mean"] for name, metric in entry["metrics"].items()})
    (record,) = (folder / "every_eval_ever").rglob("*.json")
    assert json.loads(record.read_text())["source_metadata"]["additional_details"]["entry"] == entry["id"]
    assert not (folder / ".eval_results").exists()  # the texts are local


def test_results_on_data_of_the_hub_have_its_format(entry_of: Callable[..., Entry], tmp_path: Path) -> None:
    def metric(*values: float, up: bool | None = True) -> dict[str, Any]:
        numbers = {"mean": sum(values) / 2, "std": 0.1, "values": values, "n": 9, "unit": "fraction", "ci95": None}
        return {**numbers, "ci95_of": None, "ci95_missing": "few", "higher_is_better": up}

    metrics = {"sst2/margin": metric(0.1, 0.2, up=None), "sst2/accuracy": metric(0.5, 0.75), "cr/f1": metric(0.1, 0.2)}
    fields = entry_of("mle", metrics=metrics, seeds=[0, 7], runs=[]).provenance
    data = {"sst2.test": f"sha256:{'0' * 64} (hub: stanfordnlp/sst2@{COMMIT})", "cr.test": "sha256:00 (local: cr)"}
    entry = entry_of("mle", metrics=metrics, seeds=[0, 7], runs=[], provenance={**vars(fields), "data": data})
    write_repo(entry, 7, tmp_path, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out" / ".eval_results").iterdir()] == ["sst2.yaml"]
    plain = yaml.safe_load((tmp_path / "out" / ".eval_results" / "sst2.yaml").read_text())
    assert plain[0].keys() == {"dataset", "value", "date", "notes"}
    (result,) = huggingface_hub.parse_eval_result_entries(plain)
    notes = f"accuracy (fraction), protocol paper@1, emobench entry {entry.id}"
    date = entry.provenance.created
    assert result == EvalResultEntry("stanfordnlp/sst2", "sst2", 0.75, dataset_revision=COMMIT, date=date, notes=notes)


def test_the_upload_is_of_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[tuple[str, Any]] = []

    class Api:
        def create_repo(self, repo: str, *, exist_ok: bool) -> str:
            calls.append((repo, exist_ok))
            return f"https://hub/{repo}"

        def upload_folder(self, *, repo_id: str, folder_path: Path, commit_message: str) -> None:
            calls.append((repo_id, folder_path))

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    assert send(tmp_path, "me/small") == "https://hub/me/small"
    assert calls == [("me/small", True), ("me/small", tmp_path)]


def test_nothing_is_lost_without_a_network(push: Push, tmp_path: Path) -> None:
    done = push("--objective", "mle", "--seed", 0, "--push", "me/small")
    assert done.code == 2
    (folder,) = (tmp_path / "runs" / "pushed").iterdir()
    assert f"hf upload me/small {folder}" in done.err
    assert (folder / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--objective", "mle", "--seed", 0, "--seed", 1, "--push", "me/small"), "2"),
        (("--objective", "mle", "--seed", 0, "--push", "small"), "OWNER/NAME"),
    ],
)
def test_several_models_are_refused_first(words: tuple[Any, ...], named: str, push: Push, tmp_path: Path) -> None:
    push(*words, "--offline").refused("--push", named)
    assert not (tmp_path / "runs" / "train").exists()
