"""The contrasts of a comparable group's rows, pair by pair: what `compare` says, made once and where it is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TypeAlias

from emobench.leaderboard.schema.comparable import differences
from emobench.leaderboard.schema.entry import Entry, MetricSummary
from emobench.leaderboard.stats.compare import rows_of
from emobench.leaderboard.stats.contrasts import Contrast, contrasts, family_of
from emobench.leaderboard.stats.series import Series, mean

SeriesByMetric: TypeAlias = Mapping[str, Mapping[str, Series]]
"""Metric -> id of an entry -> its Series; without the entries that lack the metric."""


class PairContrasts:
    """Makes the contrasts of pairs, a family of tests at a time."""

    def __init__(self, series: SeriesByMetric) -> None:
        self._series = series
        self._rows: dict[tuple[str, str], dict[str, tuple[str | None, list[str]]]] = {}
        self._judged: dict[tuple[str, str], bool] = {}
        self._made: dict[tuple[str, str, str], Contrast] = {}

    @property
    def made(self) -> list[Contrast]:
        """All contrasts that were asked for, with the rest of their families."""
        return list(self._made.values())

    def __call__(self, candidate: Entry, baseline: Entry, name: str) -> Contrast | None:
        """Return the contrast of a metric, or of "mean/<metric>"; None where one of the two lacks it."""
        pair = candidate.id, baseline.id
        if pair not in self._rows:
            rows = rows_of(candidate, baseline)
            # A `pretrained` row may join a group of which it is comparable with the first row alone.
            self._judged[pair] = not differences(candidate, baseline)
            self._rows[pair] = {n: (family_of(candidate, baseline, n, of), of) for n, of in rows.items()}
        if (*pair, name) not in self._made and name in self._rows[pair]:
            family, columns = self._rows[pair][name]
            together = {n: of for n, (other, of) in self._rows[pair].items() if other == family}
            rows = {name: columns} if family is None else together
            found = contrasts(candidate, baseline, rows, self._of, judged=self._judged[pair])
            self._made |= {(*pair, contrast.metric): contrast for contrast in found}
        return self._made.get((*pair, name))

    def _of(self, entry: Entry, metric: str) -> Series | None:
        return self._series.get(metric, {}).get(entry.id)

    def best(self, rows: Sequence[Entry], name: str) -> tuple[str | None, str | None]:
        """Return the row that is better than every other one, or None and why they cannot be told apart, if so.

        It is better than each in a comparison of the two, at 5 % within the family of the metric. That needs no
        further adjustment: to be wrong it has to beat the truly best row, too (an intersection-union test; Berger,
        *Technometrics* 24(4), 1982).
        """
        columns = rows_of(rows[0], rows[1]).get(name) if len(rows) > 1 else None
        if columns is None or any(column not in entry.metrics for column in columns for entry in rows):
            return None, None  # a row that lacks the metric cannot be beaten on it
        top = max(rows, key=lambda entry: fmean(_goodness(entry.metrics[column]) for column in columns))
        found = [self(top, rival, name) for rival in rows if rival is not top]
        if all(contrast is not None and contrast.verdict == "better" for contrast in found):
            return top.id, None
        undetermined = (c.why for c in found if c is not None and c.verdict == "undetermined")
        return None, next(undetermined, None)


def _goodness(summary: MetricSummary) -> float:
    """Return what a contrast is of: the mean over seeds, of perplexities the logarithm of their geometric mean."""
    log = summary.unit == "perplexity"
    centre = mean(summary.values or (summary.mean,), log=log)
    scaled = math.log(centre) if log else centre
    return scaled if summary.higher_is_better else -scaled
