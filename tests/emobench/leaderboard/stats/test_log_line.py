"""A line over the logarithm of a size, against numpy and the textbook's interval."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from emobench.leaderboard.stats.log_line import fit_log_line

SCORES = {1e6: [0.40, 0.42], 1e7: [0.47], 1e8: [0.51, 0.49, 0.50], 1e9: [0.56]}


def test_it_is_least_squares_over_the_means() -> None:
    line = fit_log_line(SCORES)
    x = np.log10(list(SCORES))
    y = [np.mean(values) for values in SCORES.values()]
    expected = stats.linregress(x, y)
    assert (line.slope, line.intercept) == pytest.approx((expected.slope, expected.intercept))
    half = stats.t.ppf(0.975, 2) * expected.stderr
    assert line.slope_ci95 == pytest.approx((expected.slope - half, expected.slope + half))
    rest = math.sqrt(sum((np.array(y) - line.intercept - line.slope * x) ** 2) / 2)
    at = 5e7
    half = stats.t.ppf(0.975, 2) * rest * math.sqrt(1 / 4 + (math.log10(at) - x.mean()) ** 2 / sum((x - x.mean()) ** 2))
    assert line.band(at) == pytest.approx((line.at(at) - half, line.at(at) + half))


def test_few_sizes_have_no_band_or_no_line() -> None:
    two = fit_log_line({10.0: [0.1], 1000.0: [0.3]})
    assert (two.slope, two.slope_ci95, two.band(100.0), two.at(100.0)) == (
        pytest.approx(0.1),
        None,
        None,
        pytest.approx(0.2),
    )
    assert fit_log_line({10.0: [0.1], 100.0: [], 1000.0: [0.3]}) == two
    assert fit_log_line({10.0: [0.1, 0.2]}) is None
    assert fit_log_line({10.0: [0.1, 0.2], 100.0: []}) is None
