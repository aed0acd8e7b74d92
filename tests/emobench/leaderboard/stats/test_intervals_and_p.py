"""An interval and the p beside it are of one test: it excludes 0 exactly where p is at most 5 %."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from made_scores import within_seed
from scipy import stats

from emobench.leaderboard.entry import Entry
from emobench.leaderboard.stats.classical import mcnemar_exact, mcnemar_interval, mcnemar_mid_p
from emobench.leaderboard.stats.compare import compare
from emobench.leaderboard.stats.series import Series
from emobench.report import compare_table


def agree(p: float, interval: tuple[float, float]) -> bool:
    return (p <= 0.05) == (not interval[0] <= 0 <= interval[1])


@pytest.mark.parametrize("questions", [1, 2, 6, 9, 40])
def test_an_interval_of_accuracies_agrees_with_mcnemars_tests(questions: int) -> None:
    counts = [(a, b) for a in range(questions + 1) for b in range(questions + 1 - a)]
    for only_a, only_b in counts if questions < 10 else [*counts[:8], *counts[200:212], *counts[-8:]]:
        effect = (only_a - only_b) / questions
        exact = mcnemar_interval(only_a, only_b, questions)
        mid = mcnemar_interval(only_a, only_b, questions, mid_p=True)
        assert agree(mcnemar_exact(only_a, only_b), exact)
        assert agree(mcnemar_mid_p(only_a, only_b), mid)
        assert -1 <= exact[0] <= mid[0] + 1e-3 <= effect + 2e-3
        assert effect <= mid[1] + 1e-3 <= exact[1] + 2e-3 <= 1 + 3e-3
        turned = mcnemar_interval(only_b, only_a, questions)
        assert exact == pytest.approx((-turned[1], -turned[0]), abs=1e-6)


def below_of_beta(a: int, b: int, value_Q: np.ndarray) -> np.ndarray:
    """Return the probabilities of at most each value; of a = 0 all is at 0, and of b = 0 at 1."""
    return 1.0 * (value_Q >= (b == 0)) if a == 0 or b == 0 else stats.beta.cdf(value_Q, a, b)


COUNTS = [(12, 2, 60), (10, 3, 60), (9, 2, 200), (3, 11, 40), (12, 0, 30), (0, 6, 20), (7, 0, 7), (5, 2, 7)]


@pytest.mark.parametrize(("only_a", "only_b", "questions"), COUNTS)
@pytest.mark.parametrize("mid_p", [False, True])
def test_a_limit_is_where_a_melded_distribution_has_2_5_percent(
    only_a: int, only_b: int, questions: int, mid_p: bool
) -> None:
    """By numerical integration over the share of the questions that a alone answers rightly."""
    discordant = only_a + only_b
    level_Q = (np.arange(20_011) + 0.5) / 20_011

    def below(limit: float, side: int) -> float:
        a, b = only_a + side, only_b + 1 - side
        share_Q = np.full(20_011, float(b == 0)) if a == 0 or b == 0 else stats.beta.ppf(level_Q, a, b)
        near, far = ((discordant + more, questions - discordant + 1 - more) for more in (side, 1 - side))
        ratio_Q = limit / np.where(share_Q == 0.5, 1e-12, 2 * share_Q - 1)
        return float(np.where(share_Q > 0.5, below_of_beta(*near, ratio_Q), 1 - below_of_beta(*far, ratio_Q)).mean())

    sides = (0, 1) if mid_p else (0,)
    limit, _ = mcnemar_interval(only_a, only_b, questions, mid_p=mid_p)
    under, over = (sum(below(limit + step, side) for side in sides) / len(sides) for step in (-5e-4, 5e-4))
    assert under < 0.025 < over
    assert over - under < 0.05


def test_two_questions_are_no_evidence() -> None:
    """A t interval of two equal differences has no width: it excluded 0 beside p = .5."""
    a, b = (
        Series(values={0: value}, examples={0: dict.fromkeys("ab", (value, 1.0))}, log_scale=False)
        for value in (1.0, 0.0)
    )
    found = within_seed(a, b, 0)
    assert (found.effect, found.p) == (1.0, 0.25)
    assert found.ci95[0] < 0


def test_an_interval_beside_an_adjusted_p_says_that_it_is_not_adjusted(make_row: Callable[..., Entry]) -> None:
    base = np.array([0.500, 0.504, 0.498])
    mle = make_row("mle", {f"{task}/accuracy": list(base) for task in "abcd"})
    gain, noise = np.array([0.010, 0.014, 0.018]), np.array([0.004, -0.005, 0.003])
    emo = make_row("emo", {f"{task}/accuracy": list(base + (gain if task == "a" else noise)) for task in "abcd"})
    compared = compare(mle, [emo])
    contrasts = {contrast.metric: contrast for contrast in compared.contrasts}
    first = contrasts["a/accuracy"]
    assert first.p == pytest.approx(float(stats.ttest_1samp(gain, 0)[1]))
    assert (first.verdict, first.p < 0.05, first.ci95[0] > 0) == ("tied", True, True)
    told = [contrast.metric for contrast in contrasts.values() if any("is not" in note for note in contrast.notes)]
    assert told == ["a/accuracy"]
    (table,) = compare_table.report([compared]).tables
    assert [row[0].text for row in table.rows if "[" in row[-1].text] == ["a/accuracy (%) ↑"]
