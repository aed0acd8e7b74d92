"""Which tests belong together."""

from __future__ import annotations

from typing import Any

import pytest

from emobench.tasks.families import OTHERS, SECONDARIES, endpoint, families


def metric(better: bool | None = True, *flags: str) -> dict[str, Any]:
    return {"higher_is_better": better, "flags": list(flags)}


def test_a_metric_of_several_tasks_is_a_family_and_those_of_one_task_are_one_together() -> None:
    given = {f"{task}/{name}": metric() for task in ("a", "b") for name in ("mauve", "rouge1")}
    found = families({**given, "a/ppl_test": metric(False), "b/coherence": metric()})
    assert found == {
        "a/mauve": "mauve",
        "b/mauve": "mauve",
        "a/rouge1": "rouge1",
        "b/rouge1": "rouge1",
        "a/ppl_test": OTHERS,
        "b/coherence": OTHERS,
    }


def test_a_score_that_is_missing_moves_no_other_one() -> None:
    assert families({"a/mauve": metric()}, ["b/mauve"]) == {"a/mauve": "mauve"}
    assert families({"a/mauve": metric()}) == {"a/mauve": OTHERS}


def test_secondary_metrics_are_one_family_whatever_their_tasks() -> None:
    given = {"a/f1": metric(True, "secondary"), "b/f1": metric(True, "secondary"), "a/ece": metric(False, "secondary")}
    assert families(given) == dict.fromkeys(given, SECONDARIES)


@pytest.mark.parametrize(("name", "of"), [("forward_kl", "forward_cross_entropy"), ("mauve_star", "mauve")])
def test_what_has_no_direction_or_repeats_another_metric_is_in_none(name: str, of: str) -> None:
    given = {f"a/{of}": metric(), f"a/{name}": metric(), "a/entropy": metric(None), "b/entropy": metric(None)}
    assert families(given) == {f"a/{of}": OTHERS}
    assert families({f"a/{name}": metric()}) == {f"a/{name}": OTHERS}
    secondary = metric(False, "secondary")
    assert families({f"a/{of}": metric(), f"a/{name}": secondary}) == {f"a/{of}": OTHERS}


def test_the_endpoint_is_a_mean_over_tasks_or_the_one_task_s() -> None:
    assert endpoint("mauve", ["a/mauve", "a/ppl", "b/mauve"]) == "mean/mauve"
    assert endpoint("mauve", ["a/mauve", "a/ppl"]) == "a/mauve"
    assert endpoint("mauve", ["a/ppl"]) is None
    assert endpoint(None, ["a/ppl"]) is None
