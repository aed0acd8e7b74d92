"""Combinations through the command line: one row however they are spelled, and no odd name on disk."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CURRICULUM = "linear(1, 0)*mle + linear(0, 1)*emo"
SMALL = (
    *("--suite", "lm-quick", "--limit", "8", "--seed", "0", "--offline", "--quiet", "--set", "recipe.epochs=2"),
    *("--set", "recipe.max_length=32", "--set", "recipe.batch=16", "--set", "generation.max_length=32"),
    *("--set", "generation.prefix=4", "--set", "generation.continuation=8", "--set", "mauve.seeds=[0]"),
)


@pytest.fixture(scope="module")
def ran(
    command: Callable[..., Any], small_data: Path, small_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Callable[..., Any], Path, Any]:
    """Three objectives in one run: two combinations, and one that is none; and what runs the like again."""
    folder = tmp_path_factory.mktemp("combined")

    def run(*objectives: str, verb: str = "run", more: tuple[str, ...] = ()) -> Any:
        given = [word for text in objectives for word in ("--objective", text)]
        places = ("--model", small_model, "--data-dir", small_data, "--runs", folder / "runs")
        return command(verb, *SMALL, *given, *places, "--leaderboard", folder / "board", *more)

    return run, folder, run("0.5*emo+0.50 * tailr(gamma=0.2)", CURRICULUM, "mle", more=("--json",))


def test_each_combination_is_one_row_and_one_entry(ran: Any) -> None:
    _, _, done = ran
    assert done.code == 0, done.err
    entries = done.json["entries"]
    assert [entry["objective"]["name"] for entry in entries] == [
        "0.5*emo + 0.5*tailr(gamma=0.2)",
        "linear(0, 1)*emo + linear(1, 0)*mle",
        "mle",
    ]
    assert entries[0]["objective"]["params"] == {"emo.cost": "pretrained", "tailr.gamma": 0.2, "tailr.min_weight": 0.0}
    assert entries[0]["objective"]["version"] == "1+1"
    import jsonschema

    path = Path(__file__).parents[4] / "emobench" / "leaderboard" / "entry.schema.json"
    schema = json.loads(path.read_text())
    for entry in entries:
        jsonschema.validate(entry, schema)


def test_no_name_of_an_objective_is_a_name_on_disk(ran: Any) -> None:
    _, folder, _ = ran
    names = {path.name for path in folder.rglob("*")}
    assert names
    assert not [name for name in names if not re.fullmatch(r"[\w.-]+", name)]


def test_another_spelling_is_the_same_row_and_trains_nothing(ran: Any) -> None:
    run, folder, done = ran
    trained = sorted((folder / "runs/train").iterdir())
    again = run("1*mle", "linear(0,1) * emo + linear(1.0, 0.0)*mle", "mixce", more=("--json",)).ok()
    assert [e["id"] for e in again.json["entries"]][:2] == [e["id"] for e in done.json["entries"]][:0:-1]
    assert len(set((folder / "runs/train").iterdir()) - set(trained)) == 1  # mixce


def test_the_table_has_readable_rows(ran: Any, command: Callable[..., Any]) -> None:
    _, folder, _ = ran
    shown = command("leaderboard", "show", "--leaderboard", folder / "board", "--runs", folder / "runs").ok()
    assert "0.5*emo + 0.5*tailr(gamma=0.2)" in shown.out
    assert "linear(0, 1)*emo + linear(1, 0)*mle" in shown.out
    marked = command("leaderboard", "show", "--markdown", "--leaderboard", folder / "board", "--runs", folder / "runs")
    assert r"0.5\*emo + 0.5\*tailr(gamma=0.2)" in marked.out


def test_the_log_has_each_terms_weight_and_loss(ran: Any) -> None:
    _, folder, _ = ran
    logs = [path.read_text().splitlines() for path in folder.glob("runs/train/*/log.jsonl")]
    lines = [[json.loads(line) for line in log if '"loss"' in log[0] and '"loss"' in line] for log in logs]
    steps = next(log for log in lines if "mle.share" in log[0])
    count = len(steps)
    assert count > 4
    for place, share in ((0, 1.0), (count - 1, 0.0)):
        assert steps[place]["mle.share"] == pytest.approx(share, abs=1e-12)
        assert steps[place]["emo.share"] == pytest.approx(1 - share, abs=1e-12)
    assert all(line["tokens"] > 0 and line["emo.loss"] > 0 for line in steps)


@pytest.mark.parametrize(
    ("objectives", "settings", "said"),
    [
        (("0.5*emoo + mle",), (), "There is no objective 'emoo'; did you mean 'emo'?"),
        (("0.5*emo +",), (), "character 10: expected NAME or WEIGHT*NAME"),
        (("0.5*mle + 0.5*mle",), (), "mle is two terms of one combination"),
        (("0.5*mle + 0.5*emo", ".5*emo+.5*mle"), (), "--objective 0.5*emo + 0.5*mle is given twice"),
        (("0.5*tailr",), ("--set", "objective.gamma=0.2"), "'0.5*tailr' has weights or several terms; give parameters"),
        (("0.5*emo(cost=none) + mle",), (), "'none'"),
        ((CURRICULUM,), ("--set", "recipe.select=objective"), "changes over the training, so that its validation"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_sentence(
    ran: Any, objectives: tuple[str, ...], settings: tuple[str, ...], said: str
) -> None:
    ran[0](*objectives, more=(*settings, "--dry-run")).refused(said)
