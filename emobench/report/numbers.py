"""How numbers are written: fractions in percent, a spread that never rounds to zero, signed differences, p values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from emobench.leaderboard.entry import ROUNDING, MetricSummary, Tuning
from emobench.leaderboard.labels import clean
from emobench.leaderboard.stats.compare import Contrast

ABSENT = "–"
MOST = 6
"""Decimals at most."""
LOSS_PLACES = 5
"""Decimals of the loss of one text, whose differences decide an answer."""
NOTHING = 1e-12
"""A sum that is not above this, in any unit, is 0 but for rounding."""
_UNITS = {"fraction": "%", "perplexity": ""}
_ARROWS = {True: "↑", False: "↓", None: ""}
_MEAN_PLACES = {"fraction": 1, "nats": 3}


def scale(unit: str) -> int:
    return 100 if unit == "fraction" else 1


def unit_label(summaries: Sequence[MetricSummary | Contrast | Tuning]) -> str:
    """Return the unit of a metric with the arrow that points to its better side, such as "(%) ↑"."""
    if not summaries:
        return ""
    unit, arrow = summaries[0].unit, _ARROWS[summaries[0].higher_is_better]
    shown = _UNITS.get(unit, clean(unit))
    return f"({shown}) {arrow}".strip() if shown else arrow


def decimals(summaries: Sequence[MetricSummary]) -> int:
    """Return 1 decimal (3 for nats), and up to 3 if the smallest spread would otherwise show as zero.

    Units other than fractions get up to MOST, so that the smallest mean has 3 significant digits.
    """
    if not summaries:
        return 1
    unit = summaries[0].unit
    spreads = [_std(summary) * scale(unit) for summary in summaries]
    enough = _enough(spreads, _MEAN_PLACES.get(unit, 1))
    if unit == "fraction":
        return enough
    digits = 0
    for summary in summaries:
        if summary.mean:
            digits = max(digits, 2 - math.floor(math.log10(abs(summary.mean))))
    return max(enough, min(MOST, digits))


def relative_decimals(summaries: Sequence[MetricSummary]) -> int:
    """Return the decimals of differences in percent of perplexities, by the same rule."""
    spreads = []
    for summary in summaries:
        if summary.mean > 0:
            spreads.append(100 * _std(summary) / summary.mean)
    return _enough(spreads, 1)


def _enough(spreads: Sequence[float], base: int) -> int:
    smallest = min(filter(None, spreads), default=1.0)
    return min(max(base, math.ceil(-math.log10(smallest))), 3)


def _std(summary: MetricSummary) -> float:
    """Return the spread of a metric's seeds; 0 if it is float rounding."""
    std = summary.std or 0.0
    return std if std > ROUNDING * abs(summary.mean) else 0.0


def number(summary: MetricSummary, places: int, *, interval: bool = False) -> str:
    """Return "95.3 ± 0.2", or with its interval "95.3 [95.0, 95.6]"; the mean alone if there is neither."""
    if interval and summary.ci95:
        shown = interval_of(summary, places)
        return f"{plain(summary.mean, summary.unit, _interval_places(summary, places))} {shown}"
    mean = plain(summary.mean, summary.unit, places)
    if interval or summary.std is None:
        return mean
    value = _std(summary) * scale(summary.unit)
    spread = f"{value:.{places}f}"
    if value and not float(spread):  # the mean's decimals would hide it
        spread = f"<{10**-places:.{places}f}"
    return f"{mean} ± {spread}"


def plain(value: float, unit: str, places: int) -> str:
    """Return a value of a unit, fractions in percent."""
    return f"{value * scale(unit):z.{places}f}"  # z: what rounds to zero has no sign


def percent(share: float | None) -> str:
    """Return a fraction as "95.3 %"; a dash for none."""
    return ABSENT if share is None else f"{plain(share, 'fraction', 1)} %"


def alike(values: Sequence[float], digits: int = 4) -> list[str]:
    """Return values with so many significant digits; 0 for one that is rounding noise beside the largest."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    texts = []
    for value in values:
        noise = abs(value) <= max(NOTHING, 10**-MOST * largest)
        texts.append("0" if noise else f"{value:.{digits}g}")
    return texts


def interval_of(summary: MetricSummary, places: int) -> str:
    """Return the 95 % interval of a mean, "[95.0, 95.6]", with the decimals that its width needs; a dash for none."""
    if summary.ci95 is None:
        return ABSENT
    places = _interval_places(summary, places)
    low, high = summary.ci95
    return f"[{plain(low, summary.unit, places)}, {plain(high, summary.unit, places)}]"


def _interval_places(summary: MetricSummary, places: int) -> int:
    low, high = summary.ci95 or (0.0, 0.0)
    return _apart(low * scale(summary.unit), high * scale(summary.unit), places)


def _apart(low: float, high: float, places: int) -> int:
    """Return the decimals that show half the distance of two bounds, at least `places` and at most MOST."""
    half = (high - low) / 2
    return max(places, min(MOST, math.ceil(-math.log10(half)))) if half > 0 else places


def effect(contrast: Contrast, value: float) -> float:
    """Return an effect of a contrast as it is shown: in points of fractions, percent of a ratio, else in the unit.

    An effect within float rounding of the two means is 0.
    """
    size = 1.0 if contrast.log_scale else max(abs(contrast.baseline_mean), abs(contrast.candidate_mean))
    if abs(value) <= ROUNDING * size:
        return 0.0
    return 100 * math.expm1(min(value, 700.0)) if contrast.log_scale else value * scale(contrast.unit)


def difference(contrast: Contrast, places: int, *, interval: bool = False) -> str:
    """Return a difference with its sign and a column's decimals, or more if these would hide its interval."""
    value, bounds = effect(contrast, contrast.effect), ""
    if interval and contrast.ci95:
        low, high = effect(contrast, contrast.ci95[0]), effect(contrast, contrast.ci95[1])
        places = _apart(low, high, places)
        bounds = f" [{low:+.{places}f}, {high:+.{places}f}]"
    elif contrast.beyond_noise:  # is not zero, and does not show as zero
        places = _apart(0.0, 2 * abs(value), places)
    text = f"{value:+.{places}f}"
    if not float(text):
        text = text[1:]
    return f"{text}{bounds}{_percent(contrast)}"


def _percent(contrast: Contrast) -> str:
    return " %" if contrast.log_scale else ""


def p_value(p: float | None) -> str:
    """Return a p with 3 decimals and no leading zero, such as ".042" and "<.001"; a dash for none."""
    if p is None:
        return ABSENT
    return "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def _fixed(value: float, places: int, sign: str = "") -> str:
    """Return a number with fixed decimals; with one digit if these would hide it, and 3 from a million on."""
    if abs(value) <= NOTHING:
        return f"{0:.{places}f}"
    if abs(value) >= 1e6:
        return f"{value:{sign}.3g}"
    if abs(value) < 0.5 * 10**-places:
        return f"{value:{sign}.1g}"
    return f"{value:{sign}.{places}f}"


def contrast_mean(contrast: Contrast, mean: float) -> str:
    """Return one side's mean, with 1 decimal for fractions (in percent), 3 for nats and else 2."""
    return _fixed(mean * scale(contrast.unit), _MEAN_PLACES.get(contrast.unit, 2))


def contrast_effect(contrast: Contrast, value: float | None, places: int, sign: str = "+") -> str:
    """Return an effect as `effect` gives it, with its sign and " %" if it is relative; a dash for none."""
    return ABSENT if value is None else _fixed(effect(contrast, value), places, sign) + _percent(contrast)


def contrast_interval(contrast: Contrast, ci95: Sequence[float] | None, places: int) -> str:
    """Return "[-0.1, +2.3]"; a dash for none."""
    if not ci95:
        return ABSENT
    low, high = ci95
    return f"[{_fixed(effect(contrast, low), places, '+')}, {_fixed(effect(contrast, high), places, '+')}]"


def effect_decimals(contrast: Contrast) -> int:
    """Return as many decimals as show two digits of the interval's half width, 1 to MOST."""
    if contrast.ci95 is None:
        return 1 if contrast.unit == "fraction" or contrast.log_scale else 3
    half = (effect(contrast, contrast.ci95[1]) - effect(contrast, contrast.ci95[0])) / 2
    return min(MOST, max(1, 1 - math.floor(math.log10(half)))) if 0 < half < math.inf else 1


def contrast_texts(contrast: Contrast) -> dict[str, str]:
    """Return the difference as "text", its "interval" and "p", and the "detectable" difference."""
    places = effect_decimals(contrast)
    return {
        "text": contrast_effect(contrast, contrast.effect, places),
        "interval": contrast_interval(contrast, contrast.ci95, places),
        "p": p_value(contrast.p_holm),
        "detectable": contrast_effect(contrast, contrast.detectable, places, ""),
    }


def contrast_ends(contrast: Contrast) -> dict[str, float | None]:
    """Return "effect", "low" and "high" for a chart; None for no interval, and for infinity, which JSON has not."""
    low, high = contrast.ci95 or (math.inf, math.inf)
    ends: dict[str, float | None] = {}
    for name, value in (("effect", contrast.effect), ("low", low), ("high", high)):
        shown = float(f"{effect(contrast, value):.6g}")
        ends[name] = shown if math.isfinite(value) and math.isfinite(shown) else None
    return ends


def deviation(value: float, unit: str, mean: float) -> str:
    """Return a standard deviation with 2 digits, in points of fractions or percent of perplexities.

    That of a perplexity is given of its logarithm. A deviation within float rounding of the mean is 0.
    """
    shown = value * scale(unit)
    if unit == "perplexity":
        mean, shown = 1.0, 100 * math.expm1(min(value, 50.0))
    if value <= ROUNDING * abs(mean):
        return "0"
    return f"{shown:.2g}" if shown < 100 else f"{shown:.0f}"


def large(value: float) -> str:
    """Return "7B", "100M" of a count."""
    rounded = float(f"{value:.3g}")  # first, so that 999,885,952 is 1B and not 1000M
    for size, sign in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if rounded >= size:
            return f"{rounded / size:g}{sign}"
    return f"{value:g}"
