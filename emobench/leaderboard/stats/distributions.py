"""Student's t, beta and chi-square distributions in numpy, so that a comparison needs no scipy (110 MB).

They agree with scipy.special to ten digits, also in the tails. `x_N` is a number or an array of shape (N,).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np

HALF_LOG_2_PI = math.log(2 * math.pi) / 2
MOST_STEPS = 60
"""Newton's method stops after so many steps at the latest."""
NORMAL = NormalDist()
FAR = 20
"""From this t / sqrt(df) on, the normal numerator's own spread is negligible: Student's t is a multiple of 1 / chi."""


def t_below(df: float, t: float) -> float:
    """Return the probability that Student's t is at most `t`."""
    return _t_tail(df, -t)[0] if t < 0 else 1 - _t_tail(df, t)[0]


@lru_cache(maxsize=10_000)
def t_quantile(df: float, probability: float) -> float:
    """Return the Student t below which a share `probability` lies."""
    if probability > 0.5:
        return -t_quantile(df, 1 - probability)
    if probability == 0.5:
        return 0.0

    # The logarithm of the tail is concave in log t: Newton's method converges from the normal quantile.
    def step(log_t: float) -> float:
        tail, density = _t_tail(df, math.exp(log_t))
        return math.log(probability / tail) * tail / density

    return -math.exp(_zero(step, math.log(-NORMAL.inv_cdf(probability)), 1e-14))


def _zero(step: Callable[[float], float], start: float, close: float) -> float:
    """Return the zero of a function by Newton's method; `step` is the function divided by its derivative."""
    number = start
    for _ in range(MOST_STEPS):
        change = step(number)
        number -= change
        if abs(change) < close:
            break
    return number


@lru_cache(maxsize=10_000)
def noncentrality(df: float, t: float, probability: float) -> float:
    """Return the noncentrality with which Student's t is at most `t` with a probability, to 1e-6."""
    if t > FAR * math.sqrt(df):
        return t * math.sqrt(chi2_quantile(df, 1 - probability) / df)

    def step(shift: float) -> float:
        below, slope, _ = _noncentral_t(df, t, shift)
        return (probability - below) / slope

    return _zero(step, t - NORMAL.inv_cdf(probability), 1e-8)


@lru_cache(maxsize=10_000)
def noncentral_t_quantile(df: float, shift: float, probability: float) -> float:
    """Return the quantile of Student's t with a noncentrality, to 1e-6."""
    if shift > FAR * math.sqrt(df):
        return shift / math.sqrt(chi2_quantile(df, 1 - probability) / df)

    def step(t: float) -> float:
        below, _, slope = _noncentral_t(df, t, shift)
        return (below - probability) / slope

    return _zero(step, shift + NORMAL.inv_cdf(probability), 1e-8)


def _noncentral_t(df: float, t: float, shift: float) -> tuple[float, float, float]:
    """Return the probability of at most `t`, and its derivatives by the noncentrality (negated) and by `t`."""
    weights_P, spreads_P = _spreads(df)
    z_P = spreads_P * t - shift
    densities_P = weights_P * np.exp(-z_P * z_P / 2) / math.sqrt(2 * math.pi)
    below = float(weights_P @ np.interp(z_P, *_normal_table()))
    return below, float(densities_P.sum()), float(densities_P @ spreads_P)


@lru_cache(maxsize=1_000)
def _spreads(df: float) -> tuple[Any, Any]:
    """Return weights of ratios of a standard deviation to the true one: points of an integral over the logarithm."""
    points = 60 + int(600 / df)
    log_P = np.linspace(-30 / df - 8 / math.sqrt(df), min(3.0, 8 / math.sqrt(df)), points)
    density_P = np.exp(df * (log_P - np.expm1(2 * log_P) / 2))
    return density_P / density_P.sum(), np.exp(log_P)


@cache
def _normal_table() -> tuple[Any, Any]:
    """Return numbers and the normal probabilities of at most these; between them a line is wrong by 3e-8."""
    numbers = np.linspace(-9, 9, 20_001)
    return numbers, np.array(list(map(NORMAL.cdf, numbers.tolist())))


@lru_cache(maxsize=10_000)
def chi2_quantile(df: float, probability: float) -> float:
    """Return the chi-square below which a share `probability` lies."""
    a = df / 2
    terms_K = a + np.arange(1, 100 + int(20 * math.sqrt(a)))

    def step(log_x: float) -> float:
        x = math.exp(log_x)
        # The incomplete gamma function: x^a e^-x / Gamma(a + 1), times a series. Its logarithm is concave in log x.
        front = math.exp(-_stirling(a) - _deviance(a, x)) / math.sqrt(2 * math.pi * a)
        series = 1 + float(np.cumprod(x / terms_K).sum())
        return math.log(front * series / probability) * series / a

    return 2 * math.exp(_zero(step, math.log(a), 1e-14))


def beta_below(a: float, b: float, x_N: Any) -> Any:
    """Return the probability that a beta variable is at most x. If a = 0 it is always 0, if b = 0 always 1."""
    x_N = np.asarray(x_N, dtype=float)
    if a == 0 or b == 0:
        return (x_N >= (b == 0)) * 1.0
    below_N = np.array(x_N >= 1, dtype=float)
    inside_N = (x_N > 0) & (x_N < 1)
    low_N = inside_N & (x_N <= _switch(a, b))
    high_N = inside_N & ~low_N
    below_N[low_N] = _beta_tail(a, b, x_N[low_N], 1 - x_N[low_N])
    below_N[high_N] = 1 - _beta_tail(b, a, 1 - x_N[high_N], x_N[high_N])
    return below_N


def beta_quantiles(a: float, b: float, probability_N: Any) -> Any:
    """Return the quantiles of a beta distribution. If a = 0 all are 0, if b = 0 all are 1."""
    low_N, high_N = np.zeros_like(probability_N), np.ones_like(probability_N)
    if a == 0 or b == 0:
        return low_N + (b == 0)
    x_N = low_N + a / (a + b)
    for _ in range(MOST_STEPS):
        beyond_N = beta_below(a, b, x_N) - probability_N
        low_N, high_N = np.where(beyond_N < 0, x_N, low_N), np.where(beyond_N < 0, high_N, x_N)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton_N = x_N - beyond_N * x_N * (1 - x_N) / _beta_front(a, b, x_N, 1 - x_N)
        kept_N = (newton_N >= low_N) & (newton_N <= high_N)
        step_N = np.where(kept_N, newton_N, (low_N + high_N) / 2) - x_N
        x_N = x_N + step_N
        if np.max(np.abs(step_N)) < 1e-13:
            break
    return x_N


def coin_at_most(heads: int, flips: int) -> float:
    """Return the probability of at most so many heads of a fair coin, from exact counts."""
    ways, total = 1, int(heads >= 0)
    for head in range(heads):
        ways = ways * (flips - head) // (head + 1)
        total += ways
    return total / 2**flips


def _t_tail(df: float, t: float) -> tuple[float, float]:
    """Return the probability beyond `t`, which is positive, and `t` times the density at `t`."""
    x = 1 / (1 + t * t / df)
    y = 1 / (1 + df / (t * t)) if t else 0.0
    if y == 0:
        return 0.5, 0.0
    density = float(_beta_front(df / 2, 0.5, x, y))
    if x <= _switch(df / 2, 0.5):
        return float(_beta_tail(df / 2, 0.5, x, y)) / 2, density
    return 0.5 - float(_beta_tail(0.5, df / 2, y, x)) / 2, density


def _switch(a: float, b: float) -> float:
    """Return the number above which the other tail is computed."""
    return (a + 1) / (a + b + 2)


def _beta_front(a: float, b: float, x_N: Any, y_N: Any) -> Any:
    """Return x^a y^b / B(a, b), with y = 1 - x, without the cancellation of the gamma functions (Loader, 2000)."""
    n = a + b
    corrections = _stirling(n) - _stirling(a) - _stirling(b)
    deviance_N = _deviance(a, n * x_N) + _deviance(b, n * y_N)
    return np.exp(corrections - deviance_N) * math.sqrt(a * b / (2 * math.pi * n))


def _beta_tail(a: float, b: float, x_N: Any, y_N: Any) -> Any:
    """Return the incomplete beta function up to `_switch`, by the continued fraction of Didonato & Morris (1992)."""
    least = min(a, b)
    fraction_N: Any = 0.0
    for m in range(14 + int(2.5 * math.sqrt(least) + 14 / least), 0, -1):
        odd = a + 2 * m - 1
        part_N = m * (b - m) * x_N / odd
        whole_N = m + part_N + (a + m) * (a * y_N - b * x_N + 1 + m * (1 + y_N)) / (odd + 2)
        ahead = (a + m - 1) * (a + b + m - 1) / odd
        fraction_N = ahead * part_N * x_N / (whole_N + fraction_N)
    fraction_N += a * (a * y_N - b * x_N + 1) / (a + 1)
    return _beta_front(a, b, x_N, y_N) / fraction_N


def _stirling(z: float) -> float:
    """Return the logarithm of Gamma(z + 1), without that of Stirling's formula."""
    if z < 20:
        return math.lgamma(z + 1) - (z + 0.5) * math.log(z) + z - HALF_LOG_2_PI
    square = z * z
    return (1 / 12 - (1 / 360 - (1 / 1260 - 1 / 1680 / square) / square) / square) / z


def _deviance(value: float, mean_N: Any) -> Any:
    """Return value * log(value / mean) + mean - value, exact also where value and mean are close."""
    excess_N = (mean_N - value) / value
    close_N = np.log1p(np.maximum(excess_N, -0.5))
    return value * (excess_N - np.where(excess_N < -0.5, np.log(mean_N / value), close_N))
