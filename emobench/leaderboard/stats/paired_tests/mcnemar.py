"""McNemar's test: the test for paired accuracies, of two models that answer the same questions."""

from __future__ import annotations

from emobench.leaderboard.stats.distributions import coin_at_most

NAME = "McNemar, mid-p"
EXACT = "McNemar's test, exact"


def mcnemar_mid_p(only_a: int, only_b: int) -> float:
    """Return the two-sided mid-p value, from the counts of questions that only one side answers rightly.

    Exact up to the choice of mid-p (Fagerland, Lydersen & Laake, BMC Medical Research Methodology 13:91, 2013); 1 where
    both counts are 0.
    """
    fewer, discordant = min(only_a, only_b), only_a + only_b
    # Twice the probability of fewer, and half of that of as many.
    return min(1.0, coin_at_most(fewer - 1, discordant) + coin_at_most(fewer, discordant))


def mcnemar_exact(only_a: int, only_b: int) -> float:
    """Return the two-sided exact p value: of as many or fewer on the smaller side, among fair coins (McNemar, 1947).

    More conservative than mid-p, and what statsmodels' `mcnemar(exact=True)` and scipy's `binomtest` give.
    """
    return min(1.0, 2 * coin_at_most(min(only_a, only_b), only_a + only_b))
