"""Numbers as a board shows them: fractions as percent, a spread that never rounds to zero, differences with a sign."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from emobench.leaderboard.entry import MetricSummary
from emobench.leaderboard.labels import clean

if TYPE_CHECKING:
    from emobench.leaderboard.contrasts import Contrast

_UNITS = {"fraction": "%", "nats": "nats", "perplexity": "", "tokens": "tokens"}


def scale(unit: str) -> int:
    return 100 if unit == "fraction" else 1


def unit_label(summaries: Sequence[MetricSummary]) -> str:
    """Return the unit of a metric with the arrow that points to its better side, such as "(%) ↑"."""
    if not summaries:
        return ""
    unit = _UNITS.get(summaries[0].unit, clean(summaries[0].unit))
    arrow = {True: "↑", False: "↓", None: ""}[summaries[0].higher_is_better]
    return " ".join(filter(None, [f"({unit})" if unit else "", arrow]))


def decimals(summaries: Sequence[MetricSummary]) -> int:
    """Return 1 decimal (3 for nats), and up to 3 where the smallest spread would otherwise show as zero."""
    unit = summaries[0].unit if summaries else ""
    return _enough([m.std * scale(unit) for m in summaries if m.std], 3 if unit == "nats" else 1)


def relative_decimals(summaries: Sequence[MetricSummary]) -> int:
    """Return the decimals of differences in percent of perplexities, by the same rule."""
    return _enough([100 * m.std / m.mean for m in summaries if m.std and m.mean > 0], 1)


def number(summary: MetricSummary, places: int, *, interval: bool = False) -> str:
    """Return "95.3 ± 0.2", or with its interval "95.3 [95.0, 95.6]"; the mean alone where there is neither."""
    times = scale(summary.unit)
    shown = f"{summary.mean * times:.{places}f}"
    if interval:
        return shown + (_interval([bound * times for bound in summary.ci95], places) if summary.ci95 else "")
    return shown + ("" if summary.std is None else f" ± {summary.std * times:.{places}f}")


def effect(contrast: Contrast, value: float) -> float:
    """Return an effect of a contrast as it is shown: in points of fractions, percent of a ratio, else in the unit."""
    return 100 * math.expm1(min(value, 700.0)) if contrast.log_scale else value * scale(contrast.unit)


def difference(contrast: Contrast, places: int, *, interval: bool = False) -> str:
    """Return a difference in points, percent (on the log scale) or the unit, with its sign."""
    ends = [effect(contrast, bound) for bound in contrast.ci95 or ()]
    bounds = _interval(ends, places, "+") if interval and ends else ""
    return f"{_signed(effect(contrast, contrast.effect), places)}{bounds}{' %' if contrast.log_scale else ''}"


def _signed(value: float, places: int) -> str:
    """Return a number with its sign, and zero without one."""
    text = f"{value:+.{places}f}"
    return text[1:] if float(text) == 0 else text


def _interval(bounds: Sequence[float], places: int, sign: str = "") -> str:
    return f" [{', '.join(f'{bound:{sign}.{places}f}' for bound in bounds)}]"


def _enough(spreads: Sequence[float], base: int) -> int:
    needed = math.ceil(-math.log10(min(spreads))) if spreads else base
    return min(max(base, needed), 3)
