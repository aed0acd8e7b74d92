"""What a contrast says where there is no test, and its words and notes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.run_files import ExamplesReader
from emobench.leaderboard.stats.compare import NO_VERDICT, compare, family_of, plain_contrast
from emobench.tasks.scores import SECONDARY

MakeEntry = Callable[..., Entry]


def test_a_metric_without_a_direction_describes(make_row: MakeEntry) -> None:
    rows = [make_row(name, {"t/entropy": [v, v + 0.1, v + 0.3]}) for name, v in (("mle", 3.0), ("emo", 5.0))]
    (found,) = compare(rows[0], rows[1:]).contrasts
    assert (found.verdict, found.p, found.detectable, found.word) == (None, None, None, NO_VERDICT)
    assert "no better direction" in (found.why or "")
    other = make_row("emo", {"t/entropy": [5.0, 5.1, 5.2]}, recipe={"name": "lm", "epochs": 7})
    (found,) = compare(rows[0], [other], anyway=True).contrasts
    assert (found.word, found.why, found.ci95) == (None, None, None)


def test_entries_that_disagree_on_the_better_direction_have_no_family(make_row: MakeEntry) -> None:
    mle, emo = (make_row(name, {"t/kl": [1.0, 2.0, 4.0]}, primary="t/kl") for name in ("mle", "emo"))
    assert family_of(emo, mle, "t/kl", ["t/kl"]) is not None
    for direction in (True, None):
        turned = replace(emo, metrics={"t/kl": replace(emo.metrics["t/kl"], higher_is_better=direction)})
        assert family_of(turned, mle, "t/kl", ["t/kl"]) is None
        assert family_of(mle, turned, "t/kl", ["t/kl"]) is None


def test_an_effect_without_a_test_is_of_geometric_means(make_row: MakeEntry) -> None:
    """Of two seeds, which are too few; and of a mean whose seeds are not known."""
    values = {"mle": {"a": [10.0, 90.0], "b": [4.0, 4.0]}, "emo": {"a": [50.0, 60.0], "b": [2.0, 8.0]}}
    rows = [make_row(n, {f"{task}/ppl": v for task, v in of.items()}) for n, of in values.items()]
    found = {c.metric: c for c in compare(rows[0], rows[1:]).contrasts}
    means = {n: {task: np.log(v).mean() for task, v in of.items()} for n, of in values.items()}
    differences = {task: means["emo"][task] - means["mle"][task] for task in "ab"}
    assert found["a/ppl"].effect == pytest.approx(differences["a"])
    assert found["mean/ppl"].effect == pytest.approx(sum(differences.values()) / 2)
    assert {c.verdict for c in found.values()} == {"undetermined"}
    # The means that are shown are those of the entries: of two perplexities the arithmetic one.
    assert (found["a/ppl"].baseline_mean, found["a/ppl"].candidate_mean) == pytest.approx((50.0, 55.0))
    assert found["mean/ppl"].baseline_mean == pytest.approx(math.sqrt(50 * 4))

    unknown = to_plain(rows[1].metrics["a/ppl"]) | {"values": [], "std": None, "mean": 40.0}
    taken = make_row("emo", {}, metrics={"a/ppl": unknown}, seeds=[], kind="imported", source={"cite": "a paper"},
                     protocols=rows[0].protocols)  # fmt: skip
    (contrast,) = compare(rows[0], [taken]).contrasts
    assert contrast.effect == pytest.approx(math.log(40) - means["mle"]["a"])


@pytest.mark.parametrize(
    ("ours", "theirs", "tested"),
    [((0, 1), (1, 2), [1]), ((5,), (5,), [5]), ((0, 1), (2, 3), []), ((), (3, 4), [3, 4]), ((3, 4), (), [3, 4])],
)
def test_the_tests_within_seeds_are_of_common_ones(
    make_entry: MakeEntry, runs: Path, ours: tuple[int, ...], theirs: tuple[int, ...], tested: list[int]
) -> None:
    """A model without seeds stands beside each of its rival's."""
    rng = np.random.default_rng(0)
    rows = []
    for name, seeds in (("emo", ours), ("mle", theirs)):
        answers_SI = (rng.random((max(len(seeds), 1), 60)) < 0.6).astype(float)
        rows.append(make_entry(name if seeds else "pretrained", {"t": answers_SI}, seeds=seeds))
    (found,) = compare(rows[1], rows[:1], ExamplesReader(runs)).contrasts
    assert found.verdict == "undetermined"
    assert [seed for seed, _ in found.within] == tested


def test_a_seed_that_cannot_be_tested_is_left_out(make_entry: MakeEntry, runs: Path) -> None:
    rng = np.random.default_rng(1)
    kept, rows = rng.random((2, 60)), []
    for name in ("emo", "mle"):
        rows.append(make_entry(name, {"t": kept + rng.normal(0, 0.1, (2, 60))}, seeds=(0, 1), unit="nats"))
    read = ExamplesReader(runs)

    def without_most(entry: Entry) -> Any:
        found = read(entry)
        if found is None or entry is rows[1]:
            return found
        examples = found[0]["t/accuracy"]
        return [{"t/accuracy": dict(list(examples.items())[:9])}, found[1]]

    (found,) = compare(rows[1], rows[:1], without_most).contrasts
    assert [seed for seed, _ in found.within] == [1]


def test_a_metric_that_repeats_another_says_which(make_row: MakeEntry) -> None:
    both = {"t/mauve": [0.1, 0.2, 0.4], "t/mauve_star": [0.2, 0.3, 0.5]}
    rows = [make_row(name, both) for name in ("mle", "emo")]
    found = {c.metric: c for c in compare(rows[0], rows[1:]).contrasts}
    assert (found["t/mauve_star"].verdict, found["t/mauve_star"].word) == (None, NO_VERDICT)
    assert "it repeats mauve" in (found["t/mauve_star"].why or "")
    assert found["t/mauve"].word != NO_VERDICT
    one = make_row("emo", both, families={"t/mauve": "another"})
    found = {c.metric: c for c in compare(rows[0], [one]).contrasts}
    assert "no common family" in (found["t/mauve"].why or "")


def test_a_metric_that_one_side_calls_secondary_or_small_is_so(make_row: MakeEntry) -> None:
    mle, emo = (make_row(name, {"t/kl": [1.0, 2.0, 4.0]}) for name in ("mle", "emo"))
    for flag in (SECONDARY, "small_n"):
        changed = replace(emo, metrics={"t/kl": replace(emo.metrics["t/kl"], flags=(flag,))})
        for sides in ((changed, mle), (mle, changed)):
            found = plain_contrast(*sides, "t/kl", ["t/kl"])
            assert (found.secondary, found.small_n) == (flag == SECONDARY, flag == "small_n")
