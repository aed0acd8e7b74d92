"""`emobench reproduce`: a dry run needs nothing, and what was made is printed beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

SMALL = (
    *("--set", "tasks=sst2", "--set", "icl.retriever=bm25", "--set", "icl.shots=2", "--set", "icl.held_out=8"),
    *("--set", "corpus=wikitext2", "--set", "recipe.max_length=48", "--set", "recipe.max_tokens=96"),
    *("--set", "recipe.lora=false", "--set", "recipe.warmup=0", "--limit", 10, "--offline", "--quiet"),
)
ROWS = ["pretrained", "mle", "tailr", "mixce", "emo"]


def test_a_dry_run_shows_downloads_hours_and_memory(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("COLUMNS", "120")
    done = command("reproduce", "table-8", "--seed", 0, "--dry-run", "--runs", tmp_path / "runs").ok()
    assert "model opt-2.7b from facebook/opt-2.7b" in done.out
    assert "opt-2.7b, to choose:" in done.out
    assert "mixce(gamma=0.9)" in done.out
    shown, _, notes = done.out.partition("\n\n")
    assert max(map(len, shown.splitlines())) <= 120
    assert notes.startswith("Not started")
    assert "To do, in all: " in done.out
    assert list(tmp_path.iterdir()) == []
    document = command("reproduce", "table-8", "--dry-run", "--json", "--seed", 0, "--seed", 1).json
    assert len([line for line in document["plan"] if line["stage"] == "train"]) == 2 * (1 + 3 + 3 + 1)
    assert document["totals"]["download_bytes"] > 2 * 2_651_596_800
    assert document["totals"]["seconds"]["train"] > 0


def test_an_unknown_table_is_named(command: Callable[..., Any]) -> None:
    command("reproduce", "table-33", "--dry-run").refused(
        "There is no table 'table-33'; did you mean 'table-3'? Known: figure-1, figure-2, figure-3,"
    )


@pytest.mark.slow
def test_a_table_is_made_with_another_model_and_printed(
    command: Callable[..., Any], byte_model: Path, labelled: Path, small_data: Path, tmp_path: Path
) -> None:
    given = ("reproduce", "table-8", "--model", byte_model, "--data-dir", labelled, "--data-dir", small_data, *SMALL)
    places = ("--runs", tmp_path / "runs", "--leaderboard", tmp_path / "board")
    done = command(*given, *places, "--json").ok()
    (result,) = done.json["results"]
    assert (result["model"], result["published_model"]) == (str(byte_model), "opt-2.7b")
    assert list(result["entries"]) == ROWS
    assert [cell["row"] for cell in result["cells"]] == ROWS
    assert all(cell["metric"] == "sst2/accuracy" and cell["n"] == 10 for cell in result["cells"])
    chosen = {choice["row"]: choice for choice in result["chosen"]}
    assert set(chosen["mixce"]["scores"]) == {f"mixce(gamma={gamma})" for gamma in (0.9, 0.8, 0.1)}
    stages = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("stage.json")}
    printed = command(*given, *places, "--format", "latex").ok().out
    assert "\\toprule" in printed
    assert all(f"{row} · paper" in printed.replace("$\\cdot$", "·") for row in ROWS)
    assert "chosen by the mean accuracy" in " ".join(printed.replace("\\", "").split())
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("stage.json")} == stages
    assert len(list((tmp_path / "board").rglob("*.json"))) == 5  # candidates are on no board


GENERATION = (
    *("--set", "generation.prefix=4", "--set", "generation.continuation=8", "--set", "generation.max_length=32"),
    *("--set", "generation.test_blocks=2", "--set", "mauve.seeds=[0]", "--set", "mauve.max_length=32"),
    *("--set", "recipe.max_length=32", "--set", "recipe.max_tokens=256", "--seed", 0, "--limit", 20),
    *("--scale", "small", "--offline", "--quiet"),
)


@pytest.mark.slow
def test_the_oracle_of_a_small_scale_is_taught_sampled_and_read_and_a_table_is_drawn(
    command: Callable[..., Any], byte_model: Path, small_data: Path, tmp_path: Path
) -> None:
    places = ("--runs", tmp_path / "runs", "--leaderboard", tmp_path / "board", "--plot", tmp_path / "t.svg")
    given = ("reproduce", "table-2", "--model", byte_model, "--data-dir", small_data, *GENERATION, *places)
    (result,) = command(*given, "--json").ok().json["results"]
    columns = ["ppl_test", "ppl_oracle", "mauve", "rouge1", "rougeL"]
    assert [cell["metric"] for cell in result["cells"][:5]] == [f"gpt2-oracle/{name}" for name in columns]
    assert result["cells"][1]["published"] == 114.46  # MLE's, of the paper's task gpt2-large-oracle
    assert result["cells"][1]["measured"] > 1
    for choice in result["chosen"]:
        swept = choice["row"] in ("tailr", "mixce")
        assert len(choice["scores"]) == (3 if swept else 0)
        if swept:
            assert choice["scores"][choice["objective"]] == max(choice["scores"].values())
    assert any("chosen by the mean mauve (%) over" in remark for remark in result["remarks"])
    (texts,) = (tmp_path / "runs" / "texts").iterdir()
    assert len((texts / "gpt2-oracle.train.jsonl").read_text().splitlines()) == 400
    # The oracle's own training, and one of each candidate: what is chosen is not trained again.
    assert len(list((tmp_path / "runs" / "train").iterdir())) == 1 + 8
    assert (tmp_path / "t.svg").read_text().startswith("<svg")


def test_what_cannot_be_drawn_or_scaled_is_refused_before_any_run(command: Callable[..., Any], tmp_path: Path) -> None:
    done = command("reproduce", "table-1", "--plot", "table.doc", "--dry-run")
    assert (done.code, "table.doc" in done.err) == (2, True)
    done = command("reproduce", "table-1", "--scale", "small", "--offline", "--runs", tmp_path)
    assert (done.code, "add --data-dir DIR, a folder with webtext.train.jsonl" in done.err) == (2, True)
    assert list(tmp_path.iterdir()) == []
