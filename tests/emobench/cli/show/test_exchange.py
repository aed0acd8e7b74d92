"""`emobench leaderboard export` and `import` through the command line."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder as lm_eval writes it: two models, one results file each."""
    for name, value in (("gpt2", 0.5), ("opt", 0.25)):
        folder = tmp_path / "out" / name
        folder.mkdir(parents=True)
        content = {
            "results": {"t": {"alias": "t", "acc,none": value, "acc_stderr,none": 0.1}},
            "model_name": f"org/{name}",
            "lm_eval_version": "0.4.13",
        }
        (folder / "results_2026-01-01T00-00-00.json").write_text(json.dumps(content))
    return tmp_path / "out"


@pytest.fixture
def at(command: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    def start(verb: str, *given: object) -> Any:
        places = ["--leaderboard", tmp_path / "board", *(["--runs", tmp_path / "runs"] if verb == "import" else [])]
        return command("leaderboard", verb, *places, *given)

    return start


def test_a_folder_is_imported_once(at: Callable[..., Any], results: Path, tmp_path: Path) -> None:
    first = at("import", results)
    assert (first.code, first.err) == (0, "")
    assert first.out.count("imported as") == 2
    shutil.copytree(results, tmp_path / "copy")
    for path in (tmp_path / "copy").rglob("*.json"):
        os.utime(path, (10**9, 10**9))  # these files carry no date but their own
    again = at("import", tmp_path / "copy")
    assert again.out.count("on the board already as") == 2
    told = at("import", results, "--json").json
    assert told["added"] == 0
    assert [entry["model"]["source"] for entry in told["entries"]] == ["org/gpt2", "org/opt"]
    assert len(list((tmp_path / "board" / "lm-eval-v1").iterdir())) == 2


def test_one_broken_file_keeps_no_other_out(at: Callable[..., Any], results: Path, tmp_path: Path) -> None:
    broken = results / "gpt2" / "results_broken.json"
    broken.write_text('{"results": {"t": {"acc,no')
    done = at("import", tmp_path / "none", results)
    assert done.code == 2
    assert done.out.count("imported as") == 2
    assert f"{broken}: not valid JSON" in done.err
    assert f"{tmp_path / 'none'} does not exist" in done.err
    assert "Traceback" not in done.err


def test_a_board_leaves_as_a_table(at: Callable[..., Any], results: Path, tmp_path: Path) -> None:
    at("import", results)
    table = at("export", "--out", tmp_path / "board.csv")
    assert (table.code, table.out) == (0, "")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "board.csv").read_text())))
    assert {(row["model"], row["mean"]) for row in rows} == {("gpt2", "0.5"), ("opt", "0.25")}
    assert at("export").out.splitlines() == (tmp_path / "board.csv").read_text().splitlines()


def test_one_file_under_a_second_name_takes_no_place(at: Callable[..., Any], results: Path, tmp_path: Path) -> None:
    (path,) = (results / "gpt2").iterdir()
    (old,) = at("import", path, "--json").json["entries"]
    copied = tmp_path / "results_2.json"
    copied.write_bytes(path.read_bytes())
    for again in (path, copied):
        for words in (("--model", "opt"), ("--objective", "emo", "--seed", 0)):
            at("import", again, *words).refused(
                f"{again}: these results are on the board as pretrained of gpt2 [{old['id'][:6]}], and",
                "add --renamed",
            )
    assert at("import", copied, "--json").json == {"entries": [old], "added": 0}
    (board,) = (tmp_path / "board").glob("lm-eval-v1")
    assert [entry.stem for entry in board.iterdir()] == [old["id"]]


def test_one_file_is_not_two_seeds_of_two_objectives(at: Callable[..., Any], tmp_path: Path) -> None:
    """The entry of the one file would be hidden behind that of several."""
    paths = [tmp_path / f"results_{seed}.json" for seed in range(2)]
    for path in paths:
        path.write_text(json.dumps({"results": {"t": {"acc,none": 0.5}}, "name": path.name}))
    assert at("import", paths[0], "--objective", "mle", "--model", "base", "--seed", 0).code == 0
    at("import", *paths, "--objective", "emo", "--model", "base", "--seed", 0, "--seed", 1, "--renamed").refused(
        "on the board as mle of base, seed 0", "emo of base, seed 0, 1"
    )
    assert at("import", *paths, "--objective", "mle", "--model", "base", "--seed", 0, "--seed", 1).code == 0


def test_seeds_are_counted_and_what_is_no_number_is_named(at: Callable[..., Any], tmp_path: Path) -> None:
    paths = [tmp_path / f"results_{seed}.json" for seed in range(3)]
    for path in paths:
        path.write_text(json.dumps({"results": {"t": {"acc,none": 0.5, "em,none": float("nan")}}, "name": path.name}))
    seeds = [word for seed in range(3) for word in ("--seed", seed)]
    done = at("import", *paths, "--objective", "emo", "--model", "base", *seeds)
    assert done.out.startswith("3 files, seeds 0, 1, 2: imported as ")
    assert done.err == "3 files, seeds 0, 1, 2: not taken: t/em (no number in results_0.json)\n"
    single = tmp_path / "results_alone.json"
    single.write_text(json.dumps({"results": {"t": {"acc,none": 0.5, "em,none": float("nan")}}}))
    alone = at("import", single)
    assert alone.err == f"{single}: not taken: t/em (lm-eval has NaN)\n"


def test_cards_of_several_entries_are_files_of_a_folder(at: Callable[..., Any], results: Path, tmp_path: Path) -> None:
    at("import", results)
    at("export", "--to", "model-card").refused("--out DIR")
    at("export", "--to", "model-card", "--out", tmp_path / "cards").ok()
    assert {path.name.partition("__")[0] for path in (tmp_path / "cards").iterdir()} == {"gpt2", "opt"}
    done = at("export", "published:emo-table3/llama-7b/emo", "--to", "model-card").ok()
    values = {r.metric_name: r.metric_value for r in ModelCard(done.out).data.eval_results}  # pyright: ignore
    assert values["tweet_emotion/accuracy"] == 0.656
    assert len(values) == 8


def test_a_group_is_not_counted_again_in_a_mean_over_tasks(
    at: Callable[..., Any], command: Callable[..., Any], tmp_path: Path
) -> None:
    for objective, gain in (("mle", 0.0), ("emo", 0.05)):
        path = tmp_path / f"results_{objective}.json"
        numbers = {task: {"acc,none": value + gain} for task, value in (("a", 0.2), ("b", 0.4), ("both", 0.9))}
        better = {task: {"acc": True} for task in numbers}
        held = {"both": ["a", "b"]}
        path.write_text(json.dumps({"results": numbers, "group_subtasks": held, "higher_is_better": better}))
        assert at("import", path, "--objective", objective, "--model", "base", "--seed", 0).code == 0
    shown = {line.split()[0]: line.split()[1:] for line in at("show").out.splitlines() if line.strip()}
    assert (shown["mle"][0], shown["emo"][0]) == ("30.0", "35.0")  # the mean, then a, b, and both
    compared = command("compare", "emo", "mle", "--leaderboard", tmp_path / "board", "--json")
    (comparison,) = compared.json["comparisons"]
    assert [c["tasks"] for c in comparison["contrasts"] if c["metric"] == "mean/acc"] == [["a", "b"]]


def test_an_empty_board_is_a_sentence(at: Callable[..., Any], tmp_path: Path) -> None:
    at("export").refused(f"There is no leaderboard {tmp_path / 'board'}")
    (tmp_path / "board").mkdir()
    at("export").refused("has no entry to export")
    assert at("export", "--to", "xml").code == 2


def test_an_instance_has_the_scores_of_each_seed(written: Any, tmp_path: Path) -> None:
    written("leaderboard", "export", written.mle["id"], "--to", "every-eval-ever", "--out", tmp_path).ok()
    (samples,) = tmp_path.glob("data/lm-quick/*/*/*_samples.jsonl")
    rows = list(map(json.loads, samples.read_text().splitlines()))
    assert len({row["sample_id"] for row in rows}) == 24
    for row in rows:
        assert len(row["metadata"]["scores by seed"].split()) == 2
        assert (row["input"]["raw"], row["output"]["raw"]) == ("", [])
