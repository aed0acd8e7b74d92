"""AlpacaEval's annotations give its metrics: those that it publishes, and those of the package on the same file."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from emobench.kinds.instruct.judging.annotations import (
    PLACES,
    length_controlled,
    place_of,
    preference_of,
    rates,
)

pytest.importorskip("alpaca_eval", reason="needs the package alpaca-eval", exc_type=ImportError)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """805 annotations, in which the longer response is often preferred."""
    draw, rows = random.Random(0), []
    for number in range(805):
        one, two = draw.randrange(5, 400), draw.randrange(5, 400)
        preference = draw.choice([0, 1.5, 1, 2, 2 if two > one else 1, 2 if two > one else 1])
        texts = {"instruction": str(number), "output_1": "a" * one, "output_2": "b" * two, "dataset": "x"}
        names = {"generator_1": "text_davinci_003", "generator_2": "mine", "annotator": "a"}
        rows.append({**texts, **names, "preference": preference})
    return rows


@pytest.fixture(scope="module")
def gamed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of the form of df_gamed.csv: two baselines, each with 805 judgements."""
    draw, folder = random.Random(1), tmp_path_factory.mktemp("gamed")
    difficulty = [draw.gauss(0, 1) for _ in range(805)]
    lines = ["preference,index,std_delta_len,instruction_difficulty,not_gamed_baseline,model"]
    for model, sign in (("concise", -1), ("verbose", 1)):
        for number in range(805):
            longer = sign * abs(draw.gauss(1, 0.5))
            lines.append(f"{draw.random():.6f},{number},{longer:.6f},{difficulty[number]:.6f},False,{model}")
    (folder / "df_gamed.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def score(command: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Run `emobench judges score` on rows, or on lines of a file."""

    def run(given: list[Any], *more: object) -> Any:
        path = tmp_path / ("x.jsonl" if given and isinstance(given[0], str) else "x.json")
        path.write_text("\n".join(given) if path.suffix == ".jsonl" else json.dumps(given))
        return command("judges", "score", path, "--offline", *more)

    return run


@pytest.mark.filterwarnings("ignore")  # of the package's options for scikit-learn
def test_the_metrics_are_those_of_the_package_on_the_same_file(
    score: Any, rows: list[Any], gamed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from alpaca_eval.metrics import get_length_controlled_winrate, glm_winrate

    monkeypatch.setattr(glm_winrate, "hf_hub_download", lambda **asked: str(gamed / asked["filename"]))
    theirs = get_length_controlled_winrate(deepcopy(rows), save_weights_dir=None)
    (ours,) = score(rows, "--data-dir", gamed, "--json").ok().json
    assert ours["model"] == "mine"
    assert (ours["count"], ours["missing"]) == (805, "")
    assert 100 * ours["win_rate"] == pytest.approx(theirs["win_rate"], abs=1e-9)
    assert 100 * ours["standard_error"] == pytest.approx(theirs["standard_error"], abs=1e-9)
    assert 100 * ours["length_controlled"] == pytest.approx(theirs["length_controlled_winrate"], abs=1e-6)


@pytest.mark.parametrize("preference", [3, -1, 0.5, 2.5, None, float("nan"), float("inf"), 10**30])
def test_a_row_without_a_preference_is_dropped_as_in_the_package(preference: Any, score: Any, rows: list[Any]) -> None:
    from alpaca_eval.metrics import get_winrate

    given = [*rows[:59], {**rows[59], "preference": preference}]
    (ours,) = score(given, "--json").ok().json
    known = preference if preference in (3, -1, 0.5, 2.5) else float("nan")
    theirs = get_winrate([*({"preference": row["preference"]} for row in rows[:59]), {"preference": known}])
    assert ours["count"] == theirs["n_total"] == 59
    assert 100 * ours["win_rate"] == pytest.approx(theirs["win_rate"], abs=1e-9)
    assert 100 * ours["standard_error"] == pytest.approx(theirs["standard_error"], abs=1e-9)


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        ({"preference": "2"}, ["row 8", "`preference`", '"2"']),
        ({"preference": True}, ["row 8", "`preference`", "true"]),
        ({"preference": [2]}, ["row 8", "`preference`", "[2]"]),
        ({"output_2": None}, ["row 8", "`output_2`", "null"]),
        ({"output_1": 3}, ["row 8", "`output_1`", "3"]),
        ({"instruction": "4"}, ["row 8", "row 5"]),
        ({"generator_2": "other"}, ["`generator_2`", "mine", "other"]),
        ({"generator_1": "gpt4"}, ["`generator_1`", "gpt4", "text_davinci_003"]),
    ],
)
def test_rows_that_are_no_annotations_of_one_model_are_refused(
    change: dict[str, Any], texts: list[str], score: Any, rows: list[Any]
) -> None:
    score([*rows[:7], {**rows[7], **change}, *rows[8:60]]).refused(*texts)


def test_the_places_of_alpaca_evals_instructions() -> None:
    first = "What are the names of some famous actors that started their careers on Broadway?"
    assert (place_of(first), place_of(f"{first} "), place_of("\ud800")) == (0, None, None)
    assert sorted(PLACES.values()) == list(range(805))


def annotations(preferences: list[Any], step: int = 2) -> list[dict[str, Any]]:
    """Return annotations whose responses differ in length by more and more, or (with step 1) all by one letter."""
    rows = []
    for i, preference in enumerate(preferences):
        texts = {"output_1": "a" * (step * i + 1), "output_2": "b" * i}
        rows.append({"instruction": str(i), **texts, "preference": preference})
    return rows


def test_two_annotations_with_a_preference_give_a_rate(score: Any) -> None:
    score(annotations([1])).refused("holds 1 annotations")
    score(annotations([1, None, 3])).refused("1 of 3 annotations have a preference")
    given = rates(annotations([1, None, 2, 0, 1.25]), offline=True)
    assert (given.count, given.win_rate) == (4, pytest.approx((0 + 1 + 0.5 + 0.25) / 4))
    assert given.standard_error == pytest.approx(statistics.stdev([0, 1, 0.5, 0.25]) / 2)
    assert rates(annotations([1, 2]), offline=True).count == 2
    assert length_controlled(annotations([1, 2] * 9, step=1), Path("none")) is None


def test_a_preference_is_of_the_second_response() -> None:
    given = {0: 0.5, 1: 0.0, 1.5: 0.5, 1.2: 0.2, 2: 1.0}
    for value, expected in given.items():
        assert preference_of({"preference": value}) == pytest.approx(expected)
    for value in (None, -1, 0.5, 0.999, 2.001, 3, float("nan"), float("inf")):
        assert preference_of({"preference": value}) is None


def test_annotations_are_aligned_by_instruction(score: Any, gamed: Path, real_files: Path) -> None:
    lines = (real_files / "data" / "judge" / "alpaca-7b.annotations.jsonl").read_text().splitlines()
    rates = set()
    for order in (lines, random.Random(0).sample(lines, len(lines)), lines[::-1]):
        rates.add(score(order, "--data-dir", gamed, "--json").ok().json[0]["length_controlled"])
    assert len(rates) == 1
    assert rates.pop() is not None
    other = json.dumps({**json.loads(lines[0]), "instruction": "another one"})
    for given, known in (([other, *lines[1:]], 804), (lines[1:], 804), ([*lines, other], 805)):
        ours = score(given, "--data-dir", gamed, "--json").ok().json[0]
        assert ours["length_controlled"] is None
        assert f"{len(given)} annotations, of {known} of these" in ours["missing"]


def test_what_is_missing_is_said_in_a_sentence(score: Any, rows: list[Any]) -> None:
    assert "Put it in DIR/df_gamed.csv and give --data-dir DIR." in " ".join(score(rows).ok().out.split())
    (ours,) = score([json.dumps(row) for row in rows[:40]], "--json").ok().json
    assert "of AlpacaEval's 805 instructions" in ours["missing"]
    assert ours["length_controlled"] is None
    score(['{"output_1": "a", "output_2": "b"}'] * 2).refused("x.jsonl:1: expected output_1, output_2, preference")
    score([]).refused("holds 0 annotations; expected two or more")


@pytest.mark.parametrize("model", ["alpaca-7b", "vicuna-13b", "llama-2-7b-chat-hf"])
def test_published_annotations_give_the_published_rates(
    model: str, command: Callable[..., Any], real_files: Path
) -> None:
    folder = real_files / "data" / "judge"
    lines = (folder / "alpaca_eval_gpt4_leaderboard.csv").read_text().splitlines()
    row = next(line for line in lines if line.startswith(f"{model},"))
    published = dict(zip(lines[0].split(","), row.split(","), strict=True))
    (ours,) = command("judges", "score", folder / f"{model}.annotations.jsonl", "--offline", "--json").ok().json
    assert 100 * ours["win_rate"] == pytest.approx(float(published["win_rate"]), abs=1e-6)
    assert 100 * ours["standard_error"] == pytest.approx(float(published["standard_error"]), abs=1e-6)
