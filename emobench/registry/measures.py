"""Names of metrics in entries to their measures, as the installed kinds of task declare them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from emobench.registry.families import usable_kinds
from emobench.tasks.scores import Measure

VERSUS = "_vs_"
"""Stands between a metric and the rival that it is against: "autoj_win_rate_vs_llama2-7b-chat"."""


@cache
def known_measures() -> Mapping[str, Measure]:
    """Return the measures of all installed kinds, by the metric's name in an entry."""
    measures: dict[str, Measure] = {}
    for kind in usable_kinds():
        for name, measure in kind.measures.items():
            measures.setdefault(name, measure)
    return measures


def describe(name: str) -> Measure:
    """Return the measure of a metric; for an unknown one only a title, its name with spaces for underscores."""
    base, _, rival = name.partition(VERSUS)
    known = known_measures().get(base)
    if known is None:
        return Measure(None, "", title=name.replace("_", " ").strip() or name)
    return replace(known, title=f"{known.title} vs {rival}") if rival else known


def definitions(name: str = "") -> dict[str, dict[str, Any]]:
    """Return the definitions of the metrics of entries by name, or of one metric if it has a definition."""
    facts = {}
    for metric, measure in ({name: describe(name)} if name else known_measures()).items():
        if measure.definition:
            better = {True: "higher", False: "lower", None: "neither"}[measure.higher_is_better]
            facts[metric] = {"name": metric, **asdict(measure), "better": better, "range": measure.range}
    return facts
