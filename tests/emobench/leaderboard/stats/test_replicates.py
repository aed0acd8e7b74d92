"""Runs with the weights of their base, or of another seed, are no replicates: no verdict rests on them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from emobench.leaderboard.entry import Entry
from emobench.leaderboard.stats.compare import compare

MakeEntry = Callable[..., Entry]
MLE, BETTER = [0.50, 0.51, 0.52], [0.80, 0.82, 0.81]


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def runs(name: str, trained: Sequence[str], tasks: Sequence[str] = ("a",)) -> list[dict[str, Any]]:
    """Return runs with these weights for the tasks, and others of their own for the task b."""
    found = []
    for seed, weights in enumerate(trained):
        of_tasks = {"tasks": list(tasks), "base": sha("base"), "trained": sha(weights)}
        of_b = {"tasks": ["b"], "base": sha("base"), "trained": sha(f"b{seed}")}
        found.append({"seed": seed, "key": f"{name}{seed}", "weights": [of_tasks, of_b]})
    return found


def verdicts(entry: Entry, baseline: Entry) -> dict[str, tuple[str | None, str | None]]:
    return {c.metric: (c.verdict, c.why) for c in compare(baseline, [entry]).contrasts}


@pytest.mark.parametrize(
    ("trained", "why"),
    [
        (["base", "x", "y"], "the training of seed 0 changed no weight"),
        (["x", "y", "base"], "the training of seed 2 changed no weight"),
        (["base", "base", "base"], "the training of seed 0 changed no weight"),
        (["x", "y", "x"], "seeds 0 and 2 have the same weights"),
        (["x", "x", "x"], "seeds 0 and 1 have the same weights"),
    ],
)
def test_equal_weights_are_no_replicates(make_row: MakeEntry, trained: list[str], why: str) -> None:
    scores = {"a/kl": BETTER, "b/kl": BETTER}
    moved = make_row("mle", {"a/kl": MLE, "b/kl": MLE}, runs=runs("m", "xyz"))
    unmoved = make_row("emo", scores, runs=runs("e", trained))
    assert verdicts(make_row("emo", scores, runs=runs("e", "uvw")), moved)["a/kl"][0] == "worse"
    for entry, baseline in ((unmoved, moved), (moved, unmoved)):
        found = verdicts(entry, baseline)
        assert found["a/kl"] == ("undetermined", why)
        assert found["mean/kl"] == ("undetermined", why)
        assert found["b/kl"][0] in ("better", "worse")


def test_equal_values_of_weights_that_did_not_move_are_not_tied(make_row: MakeEntry) -> None:
    rows = [make_row(name, {"a/kl": MLE}, runs=runs(name, ["base"] * 3)) for name in ("emo", "mle")]
    assert verdicts(*rows)["a/kl"] == ("undetermined", "the training of seed 0 changed no weight")


def test_objectives_that_train_the_same_weights_are_tied(make_row: MakeEntry) -> None:
    rows = [make_row(name, {"a/kl": MLE}, runs=runs(name, "xyz")) for name in ("emo", "mle")]
    assert verdicts(*rows)["a/kl"][0] == "tied"
