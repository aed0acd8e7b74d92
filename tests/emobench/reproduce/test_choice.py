"""A candidate is chosen by the scores of every task and seed, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from emobench.core.errors import MetricError
from emobench.leaderboard.run_files import write_examples
from emobench.reproduce.run import choose
from emobench.runs.stages.evaluate import EXAMPLES, SCORES, Evaluation
from emobench.tasks.scores import Score
from emobench.tasks.table import CandidateSelection

SELECT = CandidateSelection(metric="mauve", tasks=("easy", "hard"), judged_on="the validation split", settings={})
WHY = "Too few texts."


@pytest.fixture
def evaluation(tmp_path: Path) -> Callable[..., Evaluation]:
    def make(task: str, value: float | None, more: bool = True) -> Evaluation:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        score = None if value is None else Score(value=value, n=4, higher_is_better=more, unit="fraction")
        scores = {} if score is None else {f"{task}/mauve": score, f"{task}/other": score}
        write_examples(folder / EXAMPLES, scores)
        plain = {name: {k: v for k, v in asdict(one).items() if k != "examples"} for name, one in scores.items()}
        missing = {f"{task}/mauve": WHY} if score is None else {}
        (folder / SCORES).write_text(json.dumps({"scores": plain, "missing": missing, "seconds": 0.0}))
        return Evaluation(folder, "key")

    return make


def test_a_candidate_without_the_score_of_a_hard_task_does_not_win(evaluation: Callable[..., Evaluation]) -> None:
    measured = {
        "a": [[evaluation("easy", 0.9), evaluation("hard", 0.5)], [evaluation("easy", 0.9), evaluation("hard", None)]],
        "b": [[evaluation("easy", 0.8), evaluation("hard", 0.3)], [evaluation("easy", 0.8), evaluation("hard", 0.3)]],
        "c": [[evaluation("easy", 0.7), evaluation("hard", 0.1)], [evaluation("easy", 0.7), evaluation("hard", 0.1)]],
    }
    choice = choose("tailr", ("a", "b", "c"), SELECT, measured)
    assert choice.objective == "b"
    assert choice.scores == {"b": pytest.approx(0.55), "c": pytest.approx(0.4)}
    chosen, left_out = choice.remarks("mauve", "easy, hard")
    assert chosen == "tailr is b, chosen by the mean mauve (%) over easy, hard: b 55.0, c 40.0."
    assert left_out == f"a could not be chosen for tailr, without a mauve of every task and seed: hard/mauve: {WHY}"


def test_the_first_of_equal_candidates_is_chosen_and_less_may_be_better(evaluation: Callable[..., Evaluation]) -> None:
    measured = {text: [[evaluation("easy", value, False)]] for text, value in {"a": 0.5, "b": 0.25, "c": 0.25}.items()}
    choice = choose("tailr", ("a", "b", "c"), SELECT, measured)
    assert choice.objective == "b"


def test_no_candidate_that_is_left_is_an_error(evaluation: Callable[..., Evaluation]) -> None:
    measured = {text: [[evaluation("easy", 0.5), evaluation("hard", None)]] for text in ("a", "b")}
    with pytest.raises(MetricError, match=f"for any candidate of tailr, .* by it: hard/mauve: {WHY}"):
        choose("tailr", ("a", "b"), SELECT, measured)


def test_a_row_of_one_candidate_needs_no_scores() -> None:
    choice = choose("mle", ("mle",), SELECT, {})
    assert (choice.objective, list(choice.remarks("mauve", "easy"))) == ("mle", [])
