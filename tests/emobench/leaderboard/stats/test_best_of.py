"""The expected best of n trials against the best of every subset."""

from __future__ import annotations

import itertools
import statistics

import pytest

from emobench.leaderboard.stats.best_of import expected_best

VALUES = [0.31, 0.12, 0.55, 0.55, -2.0, 0.4]


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_it_is_the_mean_over_all_subsets(higher_is_better: bool) -> None:
    best_of = max if higher_is_better else min
    curve = expected_best(VALUES, higher_is_better=higher_is_better)
    assert len(curve) == len(VALUES)
    for trials, mean in enumerate(curve, 1):
        best = [best_of(subset) for subset in itertools.combinations(VALUES, trials)]
        assert mean == pytest.approx(statistics.fmean(best), abs=1e-12)


def test_its_ends_are_the_mean_and_the_best() -> None:
    curve = expected_best(VALUES, higher_is_better=True)
    assert curve[0] == pytest.approx(statistics.fmean(VALUES))
    assert curve[-1] == pytest.approx(0.55)
    assert expected_best([7.0], higher_is_better=False) == [7.0]
