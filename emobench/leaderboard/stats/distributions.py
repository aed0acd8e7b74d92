"""Quantiles and tails of distributions; scipy.special is imported at the first call, as it takes 0.15 s."""

from __future__ import annotations

from functools import cache
from typing import Any

NORMAL = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""


def t_quantile(df: float, probability: float) -> float:
    """Return the Student t below which a share `probability` lies."""
    return float(_special().stdtrit(df, probability))


def t_below(df: float, t: float) -> float:
    """Return the probability of a Student t below `t`."""
    return float(_special().stdtr(df, t))


def t_noncentrality(df: float, power: float, critical: float) -> float:
    """Return the noncentrality at which a t is beyond `critical` with this power."""
    return float(_special().nctdtrinc(df, 1 - power, critical))


def chi_square_quantile(df: float, above: float) -> float:
    """Return the chi-square above which a share `above` lies."""
    return float(_special().chdtri(df, above))


def beta_below(a: float, b: float, value: Any) -> Any:
    """Return the probability of a beta distribution to be at most a number or an array; of a = 0 all is at 0."""
    if a == 0 or b == 0:
        return (value >= (b == 0)) * 1.0
    return _special().betainc(a, b, value)


def beta_quantiles(a: float, b: float, probability: Any) -> Any:
    """Return the quantiles of a beta distribution; of a = 0 all are 0, of b = 0 all are 1."""
    if a == 0 or b == 0:
        return probability * 0.0 + (b == 0)
    return _special().betaincinv(a, b, probability)


def f_quantile(df: float, residual_df: float, probability: float) -> float:
    """Return the F below which a share `probability` lies."""
    return float(_special().fdtri(df, residual_df, probability))


def coin_at_most(heads: int, flips: int) -> float:
    """Return the probability of at most so many heads of a fair coin."""
    return float(_special().bdtr(heads, flips, 0.5)) if heads >= 0 else 0.0


@cache
def _special() -> Any:
    from scipy import special

    return special
