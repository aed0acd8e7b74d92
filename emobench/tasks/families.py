"""Tests of a suite that belong together: its primary endpoint and the families of its metrics.

A comparison of two entries makes many tests. Each stands in one of these, and is adjusted within it alone (Holm), so
that at most 5 % of comparisons of equal entries find a difference in it:

- the **primary endpoint**: the metric that a suite declares, over the tasks that the command asked for. It is one test,
  tested first and not adjusted;
- a **family** for each metric that several tasks have: its tasks, and their mean where that is not the primary one;
- **other metrics**: those that one task alone has. Each would else be a family of its own, and nothing be adjusted;
- **secondary metrics**, all together.

A metric without a better direction is in none, and neither is one that says again what another one says: it describes,
and gets no verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from emobench.tasks.scores import SECONDARY

PRIMARY = "primary endpoint"
OTHERS = "other metrics"
SECONDARIES = "secondary metrics"
"""Names of families, which no metric can have: a metric's name has no space."""

DUPLICATES = {
    # Of a fixed distribution of the data: the cross-entropy less its entropy, which is the same for every model. (The
    # reverse KL is the reverse cross-entropy less the entropy of the model, and so another measure.)
    "forward_kl": "forward_cross_entropy",
    # The same divergence by a smoothed estimate: it would be a second chance for one claim.
    "mauve_star": "mauve",
}
"""Metric -> the one that it repeats, where a task has both."""
MEAN = "mean"


def families(metrics: Mapping[str, Mapping[str, Any]], missing: Iterable[str] = ()) -> dict[str, str]:
    """Return the family of each metric that is in one; `metrics` are plain summaries by "<task>/<metric>".

    A `missing` metric counts: that a score could not be computed puts no other one into another family.
    """
    known = {*metrics, *missing}
    tasks = Counter(metric.partition("/")[2] for metric in known)
    family_of = {}
    for metric, summary in metrics.items():
        task, _, name = metric.partition("/")
        if summary["higher_is_better"] is None or f"{task}/{DUPLICATES.get(name)}" in known:
            continue
        if SECONDARY in summary.get("flags", ()):
            family_of[metric] = SECONDARIES
        elif tasks[name] > 1:
            family_of[metric] = name
        else:
            family_of[metric] = OTHERS
    return family_of


def endpoint(metric: str | None, known: Iterable[str]) -> str | None:
    """Return the primary endpoint of a run, whose suite declares `metric`; None if no task of the run has it.

    `known` are the "<task>/<metric>" of the run's tasks, measured or missing, so that no result decides what the
    endpoint is. Of several tasks it is their mean, of one task that task's own.
    """
    own = {name for name in known if name.partition("/")[2] == metric}
    if len(own) > 1:
        return f"{MEAN}/{metric}"
    return own.pop() if own else None
