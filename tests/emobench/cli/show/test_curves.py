"""`emobench curves` on real trainings: found by folder, key and entry; means over seeds; cut, old and missing logs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.cli.show.curves import sparkline
from emobench.core.seals import write_seal
from emobench.core.settings import canonical_json
from emobench.leaderboard.entry import read_entry
from emobench.leaderboard.pack import pack
from emobench.leaderboard.store import Leaderboard
from emobench.report.numbers import alike
from emobench.runs.planning.ingredients import base_model
from emobench.runs.planning.request import Request

EVALUATED = (
    *("--suite", "lm-quick", "--limit", "8", "--offline", "--quiet", "--json", "--set", "generation.max_length=32"),
    *("--set", "generation.prefix=4", "--set", "generation.continuation=8", "--set", "mauve.seeds=[0]"),
)
SMALL = (
    *(*EVALUATED, "--seed", "0", "--seed", "1", "--set", "recipe.max_length=32", "--set", "recipe.batch=16"),
    *("--set", "recipe.epochs=3", "--set", "recipe.learning_rate=1e-2"),
)


class Trained:
    """Two settings of one objective and one other, of two seeds each, with the command and its folders."""

    def __init__(self, command: Callable[..., Any], folder: Path, data: Path, model: Path) -> None:
        self.command, self.folder, self.runs = command, folder, folder / "runs"
        self.places = ("--runs", self.runs, "--leaderboard", folder / "board")
        objectives = [word for text in ("tailr", "tailr(gamma=0.3)", "emo") for word in ("--objective", text)]
        done = command("run", *SMALL, *objectives, "--model", model, "--data-dir", data, *self.places).ok()
        self.entries = done.json["entries"]
        self.labels = [read_entry(entry, "json").objective.label for entry in self.entries]
        self.model_and_data = ("--model", model, "--data-dir", data)

    def curves(self, *arguments: object) -> Any:
        return self.command("curves", *arguments, *self.places)

    def training(self, name: str, seed: int, **params: Any) -> Path:
        """Return the folder of a training, by what determined it."""
        for path in sorted(self.runs.glob("train/*/stage.json")):
            facts = json.loads(path.read_text())
            same = params.items() <= facts["objective"]["params"].items()
            if (facts["objective"]["name"], facts["seed"]) == (name, seed) and same:
                return path.parent
        raise AssertionError(name)

    def logged(self, folder: Path, part: str) -> dict[int, float]:
        """Return what the log says, read without the reader."""
        lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        return {line["step"]: line[part] for line in lines if part in line}


@pytest.fixture(scope="module")
def trained(
    command: Callable[..., Any], small_data: Path, small_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Trained:
    return Trained(command, tmp_path_factory.mktemp("curves"), small_data, small_model)


def points(curve: dict[str, list[Any]]) -> dict[int, float]:
    return dict(zip(curve["steps"], curve["values"], strict=True))


def test_an_entry_gives_the_mean_over_its_seeds(trained: Trained) -> None:
    entry = next(e for e in trained.entries if e["objective"]["name"] == "emo")
    (group,) = trained.curves(entry["id"], "--json").json["curves"]
    assert group["label"] == group["objective"] == "emo(cost=pretrained)"
    assert [(t["seed"], t["finished"], t["steps"]) for t in group["trainings"]] == [(0, True, 15), (1, True, 15)]
    logs = [trained.training("emo", seed) for seed in (0, 1)]
    for shown, part in (("loss", "loss"), ("weight", "weight"), ("demd", "demd"), ("validation mle", "eval_mle")):
        one, two = (trained.logged(folder, part) for folder in logs)
        assert one != two
        assert points(group["mean"][shown]) == pytest.approx({step: (one[step] + two[step]) / 2 for step in one})
        assert [points(t["curves"][shown]) for t in group["trainings"]] == [one, two]
    assert group["mean"]["loss"]["steps"] == list(range(1, 16))
    assert group["mean"]["validation mle"]["steps"] == [5, 10, 15]
    assert not {"step", "steps", "epoch", "seconds", "eval_runtime", "train_loss"} & group["mean"].keys()


def test_a_packed_board_gives_the_curves_of_its_runs(trained: Trained, tmp_path: Path) -> None:
    shutil.copytree(trained.folder / "board", tmp_path / "board")
    pack(Leaderboard(tmp_path / "board"), trained.runs)
    nowhere = ("--leaderboard", tmp_path / "board", "--runs", tmp_path / "nowhere", "--json")
    ids = [entry["id"] for entry in trained.entries]
    for given in (ids[:1], ids, ["tailr(gamma=0.3)"], ["emo", ids[0]]):
        here = trained.curves(*given, "--json").json["curves"]
        assert trained.command("curves", *given, *nowhere).json["curves"] == here


def test_the_table_has_first_middle_and_last_values(trained: Trained) -> None:
    entry = next(e for e in trained.entries if e["objective"]["name"] == "emo")
    shown = trained.curves(entry["id"][:8]).ok()
    lines = shown.out.splitlines()
    assert lines[0] == "emo(cost=pretrained) · mean of seeds 0, 1 · 15 steps"
    rows = {line[:19].strip(): line.split() for line in lines[1:] if line.strip()}
    one, two = (trained.logged(trained.training("emo", seed), "demd") for seed in (0, 1))
    expected = alike([(one[step] + two[step]) / 2 for step in (1, 8, 15)])
    assert rows["demd"][-3:] == expected
    assert len(rows["demd"][1]) == 15  # one bar for each step
    assert rows["loss"][1][0] == "█"  # this training lowers its loss,
    assert rows["loss"][1][-1] in "▁▂"  # to the end
    assert set(rows["zero_weight_count"][1]) == {"▄"}  # flat
    assert len(next(line for line in lines if line.startswith("validation mle")).split()[2]) == 3


def test_a_training_is_found_by_what_is_at_hand(trained: Trained) -> None:
    folder = trained.training("tailr", 1, gamma=0.3)
    for given in (folder, folder / "model", folder.name):
        (group,) = trained.curves(given, "--json").json["curves"]
        assert [t["key"] for t in group["trainings"]] == [folder.name]
        assert points(group["mean"]["mle"]) == trained.logged(folder, "mle")


def test_trainings_are_found_by_their_objectives_and_each_is_shown_once(trained: Trained) -> None:
    def labels(*given: object) -> list[tuple[str, list[int]]]:
        groups = trained.curves(*given, "--json").json["curves"]
        return sorted((group["label"], [t["seed"] for t in group["trainings"]]) for group in groups)

    low, high, emo = ((label, [0, 1]) for label in trained.labels)
    assert labels("tailr") == [low, high]
    assert labels("tailr(gamma=0.3)") == [high]
    assert labels("emo", "tailr") == labels() == labels(trained.runs) == [emo, low, high]
    ids = [entry["id"] for entry in trained.entries]
    assert labels(*ids, trained.training("tailr", 0, gamma=0.1)) == [emo, low, high]
    trained.curves("tailr(gamma=0.7)").refused("tailr(gamma=0.7)")


def test_pre_training_is_called_so_and_is_no_training_of_the_objective(trained: Trained, tmp_path: Path) -> None:
    name = "tiny-oracle(seed=1)"
    stage = base_model(name, Request(suite="oracle-language", offline=True)).made_by.stage
    folder = tmp_path / "train" / stage.key
    shutil.copytree(trained.training("emo", 0), folder)  # a log of something; the facts are those of the tiny model
    (folder / "stage.json").write_text(canonical_json(stage.facts))
    write_seal(folder)
    shown = trained.command("curves", "--runs", tmp_path)
    assert shown.out.startswith(f"pre-train {name} · seed {stage.facts['seed']} · 15 steps")
    assert trained.command("curves", "mle", "--runs", tmp_path, "--leaderboard", tmp_path / "none").code == 2


@pytest.mark.parametrize("cut", [True, False])
def test_an_interrupted_training_is_shown_as_far_as_it_came(trained: Trained, tmp_path: Path, cut: bool) -> None:
    """A kill leaves no facts, and a log that ends early, if `cut` in the middle of a line."""
    source = trained.training("emo", 0)
    folder = tmp_path / "train" / f"{source.name}.part"
    folder.mkdir(parents=True)
    lines = (source / "log.jsonl").read_text().splitlines(keepends=True)
    (folder / "log.jsonl").write_text("".join(lines[:7]) + (lines[7][:25] if cut else ""))
    done = trained.command("curves", source.name, "--runs", tmp_path).ok()
    # Five steps, their validation, and one step more.
    assert done.out.splitlines()[0] == f"training {source.name} · 6 of 15 steps · not finished"
    (group,) = trained.command("curves", folder, "--json").json["curves"]
    assert group["objective"] is None
    full = trained.logged(source, "loss")
    assert points(group["mean"]["loss"]) == {step: full[step] for step in range(1, 7)}


def test_seeds_of_different_length_are_averaged_where_both_are(trained: Trained, tmp_path: Path) -> None:
    shutil.copytree(trained.runs / "train", tmp_path / "train")
    entry_folders = [tmp_path / "train" / trained.training("emo", seed).name for seed in (0, 1)]
    log = entry_folders[1] / "log.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:4]))
    write_seal(log.parent)
    (group,) = trained.curves(*entry_folders, "--json").json["curves"]
    one, two = (trained.logged(folder, "mle") for folder in entry_folders)
    assert points(group["mean"]["mle"]) == pytest.approx({step: (one[step] + two[step]) / 2 for step in range(1, 5)})
    assert len(group["trainings"][0]["curves"]["mle"]["steps"]) == 15
    assert trained.curves(*entry_folders).out.startswith("emo(cost=pretrained) · mean of seeds 0, 1 · 4 of 15 steps")


def test_a_log_of_an_older_version_and_numbers_that_are_not_finite(trained: Trained, tmp_path: Path) -> None:
    old = [
        {"loss": 4.0, "grad_norm": float("nan"), "mle": 4.0, "epoch": 0.5, "step": 1, "steps": 2},
        {"loss": 3.0, "grad_norm": 1.0, "mle": 3.0, "epoch": 1.0, "step": 2, "steps": 2},
        {"eval_loss": 3.5, "eval_mle": 3.5, "eval_objective": 3.25, "epoch": 1.0, "step": 2, "steps": 2},
        {"train_loss": 3.5, "train_runtime": 1.0, "epoch": 1.0, "step": 2, "steps": 2},
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in old))
    (group,) = trained.curves(tmp_path, "--json").json["curves"]
    assert {name: points(curve) for name, curve in group["mean"].items()} == {
        "loss": {1: 4.0, 2: 3.0},
        "mle": {1: 4.0, 2: 3.0},
        "validation mle": {2: 3.5},
        "validation objective": {2: 3.25},
        "grad_norm": {1: None, 2: 1.0},
    }
    shown = trained.curves(tmp_path).ok()
    assert "nan" in next(line for line in shown.out.splitlines() if line.startswith("grad_norm"))


def test_what_has_no_curves_is_refused_with_a_sentence(trained: Trained, tmp_path: Path) -> None:
    logs = {"begun": '{"loss": 4.1', "altered": 'garbage\n{"loss": 4.1, "step": 1, "steps": 2}\n'}
    for name, text in logs.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.jsonl").write_text(text)
    (tmp_path / "empty").mkdir()
    scored = trained.command("evaluate", *EVALUATED, *trained.model_and_data, *trained.places).json["entries"][0]
    for given, said in (
        (tmp_path / "empty", f"{tmp_path / 'empty'} has no log.jsonl"),
        (tmp_path / "begun", "no step is logged yet"),
        (tmp_path / "altered", f"{tmp_path / 'altered/log.jsonl'}:1: expected a line of JSON"),
        ("../runs-of-nobody", "../runs-of-nobody"),
        (scored["id"], "no training by emobench"),
    ):
        trained.curves(given).refused(said)
    trained.command("curves", "--runs", tmp_path / "none").refused(f"There is no training in {tmp_path / 'none'}")
    board = ("--leaderboard", trained.folder / "board")
    trained.command("curves", trained.entries[0]["id"], "--runs", tmp_path, *board).refused("--runs DIR")
    beside = trained.curves(tmp_path / "begun", trained.training("emo", 0)).ok()
    assert "skipped: " in beside.err
    assert beside.out.startswith("emo(cost=pretrained) · seed 0 · 15 steps")


def test_a_sparkline_runs_from_the_lowest_to_the_highest() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([7, 0, 3.5], width=3) == "█▁▅"
    assert sparkline([1.0, 1.0]) == "▄▄"
    assert sparkline([0.0]) == "▄"
    assert sparkline([1, float("nan"), 2, float("inf")]) == "▁ █ "
    assert sparkline([float("nan")]) == " "
    assert sparkline([0, 2, 6, 8, 100, 0], width=3) == sparkline([1, 7, 50])  # means of two
    assert len(sparkline(list(range(1001)))) == 30
