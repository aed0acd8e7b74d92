"""What a recorded entry says of the files of its runs, and that a row is recorded once, whatever its schema."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import emobench_tasks
from emobench.leaderboard.comparable import differences
from emobench.leaderboard.entry import new_entry, read_entry
from emobench.leaderboard.store import Leaderboard
from emobench.tasks.families import OTHERS

EVALUATED = (
    *("--suite", "lm-quick", "--limit", "20", "--offline", "--quiet", "--json"),
    *("--set", "generation.max_length=32", "--set", "generation.prefix=4", "--set", "generation.continuation=8"),
    *("--set", "mauve.seeds=[0]"),
)
TRAINED = (*EVALUATED, "--set", "recipe.max_length=32", "--objective", "mle", "--seed", 1, "--seed", 4)


@pytest.fixture(scope="module")
def job(
    command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Any]:
    """What does `emobench VERB ...` with its runs and board in a folder, and returns the one entry of its JSON."""
    made = tmp_path_factory.mktemp("job")

    def run(verb: str, *arguments: object, folder: Path = made) -> Any:
        places = ("--runs", folder / "runs", "--leaderboard", folder / "board")
        done = command(verb, "--model", small_model, "--data-dir", small_data, *places, *arguments)
        assert done.code == 0, done.err
        (entry,) = done.json["entries"]
        return folder, entry

    return run


def content(folder: Path, file: dict[str, str]) -> list[Any]:
    """Return the JSON Lines of a file of a run, whose bytes have the recorded digest."""
    given = (folder / "runs" / file["path"]).read_bytes()
    assert hashlib.sha256(given).hexdigest() == file["sha256"]
    return [json.loads(line) for line in given.decode().splitlines()]


def test_a_run_names_its_curves_and_its_samples(job: Callable[..., Any]) -> None:
    folder, entry = job("run", *TRAINED)
    assert entry["primary"] == "lm-quick/mauve"
    assert entry["families"]["lm-quick/ppl_test"] == OTHERS
    seen = set()
    for run in entry["runs"]:
        (curve,), (samples,) = run["curves"], run["samples"]
        stage = json.loads((folder / "runs" / curve["path"]).with_name("stage.json").read_text())
        assert stage["seed"] == run["seed"]
        steps = [line["step"] for line in content(folder, curve) if "loss" in line]
        assert steps == list(range(1, len(steps) + 1))
        assert len(content(folder, samples)) == 20
        assert all(sample["continuation_text"] for sample in content(folder, samples))
        generated = json.loads((folder / "runs" / samples["path"]).with_name("stage.json").read_text())
        assert generated["subject"]["training"] == Path(curve["path"]).parent.name
        seen |= {curve["path"], samples["path"]}
    assert len(seen) == 4


LM_QUICK = Path(emobench_tasks.__file__).parent / "tasks" / "lm-quick.yaml"
SUITE = """
name: two
version: 1
primary: mauve
runs:
  - recipe: lm-finetune
    tasks: [lm-quick, second.yaml]
"""


@pytest.mark.parametrize(("tasks", "primary"), [("second", "second/mauve"), ("second,lm-quick", "mean/mauve")])
def test_the_primary_endpoint_is_over_the_tasks_that_were_asked_for(
    job: Callable[..., Any], tmp_path: Path, tasks: str, primary: str
) -> None:
    (tmp_path / "two.yaml").write_text(SUITE)
    (tmp_path / "second.yaml").write_text(LM_QUICK.read_text().replace("name: lm-quick", "name: second"))
    asked = ("--set", f"tasks={tasks}")
    _, entry = job("evaluate", "--suite", tmp_path / "two.yaml", *EVALUATED[2:], *asked, folder=tmp_path)
    assert entry["primary"] == primary
    assert entry["schema"] == 5


def test_a_model_as_it_is_has_samples_and_no_curve(job: Callable[..., Any]) -> None:
    folder, entry = job("evaluate", *EVALUATED)
    (run,) = entry["runs"]
    assert run["curves"] == []
    assert [len(content(folder, file)) for file in run["samples"]] == [20]


def test_generations_that_were_removed_are_left_out(job: Callable[..., Any], tmp_path: Path) -> None:
    folder, entry = job("run", *TRAINED)
    shutil.copytree(folder / "runs", tmp_path / "runs")
    shutil.rmtree(tmp_path / "runs" / "generate")
    _, again = job("run", *TRAINED, folder=tmp_path)
    assert [run["samples"] for run in again["runs"]] == [[], []]
    assert all(len(run["curves"]) == 1 for run in again["runs"])
    assert "prompts of lm-quick" not in again["provenance"]["data"]
    assert differences(read_entry(entry, "one"), read_entry(again, "other")) == []


def test_an_entry_says_how_many_texts_gave_prompts(job: Callable[..., Any]) -> None:
    folder, entry = job("run", *TRAINED)
    (file,) = entry["runs"][0]["samples"]
    counts = json.loads((folder / "runs" / file["path"]).with_name("prompts.json").read_text())
    said = entry["provenance"]["data"]["prompts of lm-quick"]
    assert said.startswith(f"20 of {counts['texts']:,} texts; ")
    assert f"{counts['not_looked_at']:,} not looked at" in said


def test_a_command_that_is_no_unicode_text_is_recorded_all_the_same(job: Callable[..., Any], tmp_path: Path) -> None:
    odd = tmp_path / "data\udcff"  # a byte that is not UTF-8, as Python reads it from the command line
    odd.mkdir()
    _, entry = job("evaluate", *EVALUATED, "--data-dir", odd, folder=tmp_path)
    assert entry["source"]["command"].endswith(" --data-dir DIR")
    kept = (tmp_path / "runs" / entry["runs"][0]["examples"]["path"]).with_name("command.txt")
    assert kept.read_bytes().endswith(f" --data-dir '{tmp_path}/data".encode() + b"\xff'\n")


def test_an_entry_without_runs_is_never_superseded_by_a_run(job: Callable[..., Any], tmp_path: Path) -> None:
    folder, _ = job("run", *TRAINED)
    shutil.copytree(folder / "runs", tmp_path / "runs")
    (path,) = [p for p in (folder / "board").glob("*/*.json") if json.loads(p.read_text())["seeds"]]
    plain = json.loads(path.read_text())
    fields = {key: value for key, value in plain.items() if key not in ("schema", "id")}
    outside = {**fields, "kind": "imported", "runs": [], "source": {"cite": "results.json"}}
    board = Leaderboard(tmp_path / "board")
    board.append(new_entry(outside))
    _, again = job("run", *TRAINED, folder=tmp_path)
    assert again["supersedes"] is None
    assert len(board.entries()) == 2
