"""Answers, what is said of them, and their table; corpus metrics against scikit-learn and by hand."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from sklearn.metrics import confusion_matrix as their_matrix
from sklearn.metrics import f1_score, precision_recall_fscore_support

from emobench.core.errors import MetricError
from emobench.kinds.icl.answers import (
    METRICS,
    TABLE,
    Answer,
    ExampleLosses,
    answers,
    answers_table,
    calibration_error,
    icl_scores,
    label_scores,
    macro_f1,
)
from emobench.kinds.icl.rules import IclProtocol
from emobench.tasks.scores import SECONDARY, Score

RULES = IclProtocol(template="{text} is {label}.", labels={"no": "bad", "yes": "good"}, ties=("yes", "no"))
CLASSES = ("a", "b", "c")


def sample(name: str = "1", **changes: Any) -> ExampleLosses:
    """One whose labels are "yes", "no": each rule divides these sums by something else."""
    fields: dict[str, Any] = {
        "label": "yes",
        "shots": ("s1", "s2"),
        "dropped": 0,
        "prompt_nats": (21.0, 20.0),
        "prompt_tokens": (7, 5),
        "label_nats": (3.0, 2.0),
        "label_tokens": (3, 1),
        "label_bytes": (4, 3),
        "content_free_nats": (2.5, 1.0),
    }
    return ExampleLosses(id=name, **{**fields, **changes})


@pytest.mark.parametrize(
    ("scorer", "losses", "answer", "unit"),
    [
        ("prompt", [3.0, 4.0], "yes", "nats/token"),
        ("label", [3.0, 2.0], "no", "nats"),
        ("label_token", [1.0, 2.0], "yes", "nats/token"),
        ("label_byte", [0.75, 2 / 3], "no", "nats/byte"),
        ("calibrated", [0.5, 1.0], "yes", "nats"),
    ],
)
def test_each_rule_has_its_own_losses_and_answer(scorer: Any, losses: list[float], answer: str, unit: str) -> None:
    rules = replace(RULES, scorer=scorer)
    assert label_scores(rules, sample())[0] == pytest.approx(losses)
    (found,) = answers(rules, [sample()], {})
    assert (found.answer, found.right) == (answer, "yes")
    assert found.margin == pytest.approx(abs(losses[0] - losses[1]))
    assert icl_scores(rules, [sample()], {}).scores["margin"].unit == unit


def test_confidence_is_the_posterior_of_the_summed_losses() -> None:
    odds = math.exp(-1)  # the sums differ by one nat in favour of "no", for prompts and labels alike
    for scorer in ("prompt", "label", "label_token", "label_byte"):
        rules = replace(RULES, scorer=scorer)
        assert label_scores(rules, sample())[1][0] == pytest.approx(odds / (1 + odds))
        assert label_scores(rules, sample())[1][1] == pytest.approx(1 / (1 + odds))
    calibrated = replace(RULES, scorer="calibrated")
    assert label_scores(calibrated, sample())[1][0] == pytest.approx(1 / (1 + math.exp(-0.5)))
    far = sample(label_nats=(2000.0, 3000.0))  # no overflow, and no 0 / 0
    assert label_scores(replace(RULES, scorer="label"), far)[1][0] == 1.0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_makes_every_metric_missing_and_names_the_example(bad: float) -> None:
    broken = sample("9f86d081884c-17", prompt_nats=(20.0, bad))
    with pytest.raises(MetricError, match=rf"example 9f86d081884c-17 with the label 'no' is {bad}; .*--dtype float32"):
        answers(RULES, [sample(), broken], {})
    found = icl_scores(RULES, [sample(), broken], {})
    assert not found.scores
    assert not found.files
    assert set(found.missing) == set(METRICS)
    assert "9f86d081884c-17" in found.missing["accuracy"]


def test_a_tie_is_answered_by_the_first_label_and_counted() -> None:
    tied = [sample("1", prompt_nats=(14.0, 10.0)), sample("2", prompt_nats=(14.0, 10.0), label="no"), sample("3")]
    assert [a.answer for a in answers(RULES, tied, {})] == ["yes", "yes", "yes"]
    found = icl_scores(RULES, tied, {})
    assert found.scores["accuracy"].value == pytest.approx(2 / 3)
    assert found.scores["accuracy"].flags == ("2 of 3 answers are ties, decided by the order of the labels",)
    assert json.loads(found.files[TABLE])["tied"] == 2


def test_prompts_that_lost_shots_or_their_end_are_counted_and_named() -> None:
    found = icl_scores(RULES, [sample("1", dropped=2), sample("2", cut=2), sample("3", dropped=1)], {})
    for score in found.scores.values():
        assert "3 shots left out of 2 of 3 prompts, to make them fit" in score.flags
        assert "1 of 3 prompts cut at their end, to make them fit" in score.flags
    table = json.loads(found.files[TABLE])
    assert (table["shortened"], table["dropped_shots"], table["cut"]) == (2, 3, 1)
    assert (table["classes"], [row["name"] for row in table["per_class"]]) == (["yes", "no"], ["yes", "no"])
    assert [row["cut"] for row in table["examples"]] == [0, 2, 0]
    assert {row["id"]: row["dropped"] for row in table["examples"]} == {"1": 2, "2": 0, "3": 1}


def test_accuracy_alone_decides_and_each_metric_says_what_it_is() -> None:
    wrong = sample("2", label="no")
    found = icl_scores(RULES, [sample(), wrong], {}).scores
    assert tuple(found) == METRICS
    assert found["accuracy"].examples == {"1": (1.0, 1.0), "2": (0.0, 1.0)}
    assert found["accuracy"].flags == ()
    assert found["margin"].examples == {"1": (1.0, 1.0), "2": (1.0, 1.0)}
    kinds = {name: (score.unit, score.higher_is_better, score.aggregate) for name, score in found.items()}
    assert kinds == {
        "accuracy": ("fraction", True, "mean"),
        "macro_f1": ("fraction", True, "jackknife"),
        "margin": ("nats/token", None, "mean"),
        "ece": ("fraction", False, "jackknife"),
    }
    assert all(found[name].flags == (SECONDARY,) for name in METRICS[1:])
    assert {score.n for score in found.values()} == {2}


def drawn(count: int = 200) -> tuple[list[str], list[str]]:
    generator = random.Random(0)
    right = generator.choices(CLASSES, (5, 3, 1), k=count)
    return right, [r if generator.random() < 0.6 else generator.choice(CLASSES) for r in right]


def table(right: list[str], given: list[str]) -> dict[str, Any]:
    rows = []
    for i, (one, answer) in enumerate(zip(right, given, strict=True)):
        rows.append(Answer(id=str(i), right=one, answer=answer, margin=1.0, confidence=1.0, dropped=0))
    return answers_table(CLASSES, "nats", rows)


def f1(right: Sequence[str], given: Sequence[str], classes: Sequence[str] = CLASSES) -> Score:
    return macro_f1(list(zip(right, given, strict=True)), classes, [str(i) for i in range(len(right))])


def test_macro_f1_and_the_table_are_those_of_scikit_learn() -> None:
    right, given = drawn()
    assert f1(right, given).value == pytest.approx(f1_score(right, given, average="macro"))
    rows = table(right, given)
    assert rows["confusion"] == their_matrix(right, given, labels=CLASSES).tolist()
    expected = precision_recall_fscore_support(right, given, labels=CLASSES)
    for name, theirs in zip(("precision", "recall", "f1", "support"), expected, strict=True):
        assert [row[name] for row in rows["per_class"]] == pytest.approx(list(theirs))


def test_a_share_of_nothing_is_absent_and_an_absent_class_costs_nothing() -> None:
    rows = [list(row.values())[1:] for row in table(["a", "b"], ["a", "a"])["per_class"]]
    assert rows == [[0.5, 1.0, pytest.approx(2 / 3), 1], [None, 0.0, 0.0, 1], [None, None, None, 0]]
    assert f1(["a", "b"], ["a", "a"]).value == pytest.approx(f1_score(["a", "b"], ["a", "a"], average="macro"))


def test_calibration_error_by_hand() -> None:
    def ece(confidences: list[float], hits: list[bool]) -> float:
        return calibration_error(confidences, hits, [str(i) for i in range(len(hits))]).value

    # Bins of 1/15: (0.41, wrong), (0.45, right) and (0.95, right), (1.0, wrong): 2/4 |0.43 - 0.5| + 2/4 |0.975 - 0.5|,
    # and not by each example.
    assert ece([0.41, 0.45, 0.95, 1.0], [False, True, True, False]) == pytest.approx(0.2725)
    assert ece([0.0, 1.0], [False, True]) == 0.0
    assert ece([0.0, 1.0], [True, False]) == 1.0


def test_groups_count_alike_whatever_their_size() -> None:
    """As OpenCompass averages MMLU's subjects: (1/3 + 1) / 2, where all examples alike give 2/4."""
    samples = [sample("1"), sample("2", label="no"), sample("3", label="no"), sample("4")]
    groups = {"1": "algebra", "2": "algebra", "3": "algebra", "4": "law"}
    found = icl_scores(RULES, samples, groups)
    score = found.scores["group_accuracy"]
    assert tuple(found.scores) == (*METRICS, "group_accuracy")
    assert (found.scores["accuracy"].value, score.value) == (0.5, pytest.approx(2 / 3))
    assert (score.n, score.flags, score.aggregate) == (4, (SECONDARY,), "mean")
    # The mean of the examples by their weights is the value: intervals and tests are of the mean over groups.
    values = list((score.examples or {}).values())
    assert sum(v * w for v, w in values) / sum(w for _, w in values) == pytest.approx(score.value)
    assert json.loads(found.files[TABLE])["per_group"] == [
        {"name": "algebra", "n": 3, "accuracy": pytest.approx(1 / 3)},
        {"name": "law", "n": 1, "accuracy": 1.0},
    ]
    assert json.loads(icl_scores(RULES, samples, {}).files[TABLE])["per_group"] == []
    broken = icl_scores(RULES, [sample("1", prompt_nats=(20.0, math.nan))], groups)
    assert "group_accuracy" in broken.missing


def test_pseudo_values_are_by_each_example_left_out() -> None:
    right, given = drawn(40)
    right, given = [*right, "once", "twice"], [*given, "once", right[0]]
    classes = [*CLASSES, "once", "twice"]
    generator = random.Random(3)
    confidences = [generator.choice([0.0, 1.0, generator.random()]) for _ in right]
    hits = [a == b for a, b in zip(right, given, strict=True)]
    ids = [f"q{i}" for i in range(len(right))]
    first, second = (
        macro_f1(list(zip(right, given, strict=True)), classes, ids),
        calibration_error(confidences, hits, ids),
    )
    for i, name in enumerate(ids):
        left, of_left, sure, hit, names = (
            [*values[:i], *values[i + 1 :]] for values in (right, given, confidences, hits, ids)
        )
        for score, without in (
            (first, macro_f1(list(zip(left, of_left, strict=True)), classes, names)),
            (second, calibration_error(sure, hit, names)),
        ):
            pseudo = len(ids) * score.value - (len(ids) - 1) * without.value
            assert (score.examples or {})[name] == (pytest.approx(pseudo, abs=1e-12), 1.0)
            assert score.aggregate == "jackknife"
    assert first.value == pytest.approx(f1_score(right, given, average="macro"))
    for alone in (f1(["a"], ["a"], ["a"]), calibration_error([0.5], [True], ["q"])):
        assert (alone.examples, alone.aggregate) == (None, "corpus")
