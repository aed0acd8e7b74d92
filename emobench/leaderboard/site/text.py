"""Numbers as a page shows them: a minus is a minus, not a hyphen, and what is absent is a dash."""

from __future__ import annotations

import math
from collections.abc import Sequence

from emobench.leaderboard.render import numbers as figures
from emobench.leaderboard.render.grid import ABSENT


def plain(value: float, places: int) -> str:
    return minus(f"{value:.{places}f}")


def signed(value: float, places: int) -> str:
    """Return a number with its sign, and zero without one."""
    text = f"{value:+.{places}f}"
    return minus(text if float(text) else text[1:])


def interval(ci95: Sequence[float] | None, unit: str, places: int) -> str:
    """Return "59.0 to 61.0" of an interval as it is stored."""
    return ABSENT if ci95 is None else " to ".join(plain(end * figures.scale(unit), places) for end in ci95)


def large(value: float) -> str:
    """Return "7B", "100M" of a count."""
    for size, sign in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{float(f'{value / size:.3g}'):g}{sign}"
    return f"{value:g}"


def minus(text: str) -> str:
    return text.replace("-", "−")


def rounded(value: float | None) -> float | None:
    """Return a number with more digits than are shown; JSON has no infinity, which a difference may be."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
