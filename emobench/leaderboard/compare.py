"""Is one entry better than another, by how much, and are we sure?

Every candidate is compared with one baseline, metric by metric, and on the mean over tasks of a metric that several
tasks share. What is said of objectives rests on seeds (`statistics.difference`); below three it is undetermined, and
the tests within each common seed say what they can of the trained models (`within.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from emobench.errors import ConfigError
from emobench.leaderboard.comparison import differences
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.statistics import (
    EQUAL,
    UNRANKED_FLAG,
    Examples,
    Series,
    difference_of_means,
    holm,
    undetermined,
)
from emobench.leaderboard.uncertainty import ALPHA
from emobench.leaderboard.within import WithinSeed, within_seed

Verdict: TypeAlias = Literal["better", "worse", "differs", "tied", "undetermined"]

ExamplesOf: TypeAlias = Callable[[Entry], Sequence[Mapping[str, Examples]] | None]
"""An entry -> the per-example results of its runs, by metric, or None where they are not at hand."""

MEAN = "mean"
"""Stands for the task where a row is the mean over tasks."""


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """A candidate minus the baseline on one metric; `metric` is "<task>/<metric>", or "mean/<metric>" over `tasks`.

    `effect`, `ci95` and `detectable` are in the metric's unit, or log(candidate / baseline) where `log_scale`
    (perplexities). `p_holm` is adjusted for the contrasts of the same candidate, and decides the verdict: better,
    worse, or "differs" where the metric has no direction, at 5 %; else tied, which is no proof of equality: `ci95`
    holds what is possible. `detectable` estimates, from the noise seen, the smallest true effect that this many seeds
    and items would show 4 times in 5 in a single test. Equal values are tied without a test. An undetermined contrast
    says `why`; entries that are not comparable have no verdict at all.
    """

    candidate: str
    metric: str
    tasks: tuple[str, ...]
    unit: str
    higher_is_better: bool | None
    baseline_mean: float
    candidate_mean: float
    effect: float
    log_scale: bool
    verdict: Verdict | None
    why: str | None = None
    ci95: tuple[float, float] | None = None
    p: float | None = None
    p_holm: float | None = None
    test: str | None = None
    detectable: float | None = None
    seeds: int | None = None
    items: int | None = None
    within: tuple[WithinSeed, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """`contrasts` are in the order of the candidates; `apart` says of an id why it is not comparable to the baseline.

    `missing` holds, for an id, the metrics that only one side has, and `left_out` entries that were chosen by a query
    and are comparable with no baseline.
    """

    baseline: Entry
    candidates: tuple[Entry, ...]
    contrasts: tuple[Contrast, ...]
    apart: Mapping[str, tuple[str, ...]]
    missing: Mapping[str, tuple[str, ...]]
    left_out: tuple[Entry, ...] = ()

    def of(self, candidate: Entry) -> list[Contrast]:
        return [contrast for contrast in self.contrasts if contrast.candidate == candidate.id]


def compare(
    baseline: Entry,
    candidates: Sequence[Entry],
    examples_of: ExamplesOf | None = None,
    *,
    metrics: Sequence[str] | None = None,
    anyway: bool = False,
) -> Comparison:
    """Compare candidates with a baseline, on the metrics that both have (or on those named).

    Raises ConfigError where one is not comparable and `anyway` is not set; with it such a one gets no verdict, but
    where only the model or the recipe differs, two trained models can still be tested on the items that both saw.
    """
    apart = {c.id: tuple(found) for c in candidates if (found := differences(c, baseline))}
    if apart and not anyway:
        raise ConfigError(_refusal(baseline, [c for c in candidates if c.id in apart], apart))
    runs = {e.id: examples_of(e) if examples_of else None for e in (baseline, *candidates)}
    contrasts: list[Contrast] = []
    missing = {}
    for candidate in candidates:
        shared = [m for m in baseline.metrics if m in candidate.metrics and (metrics is None or m in metrics)]
        one_sided = [
            m
            for m in (*baseline.metrics, *candidate.metrics)
            if m not in baseline.metrics or m not in candidate.metrics
        ]
        missing[candidate.id] = tuple(m for m in dict.fromkeys(one_sided) if metrics is None or m in metrics)
        rows = [(m, [m]) for m in shared] + list(_means(shared, missing[candidate.id], baseline, candidate))
        pair = _Pair(baseline, candidate, runs, apart.get(candidate.id, ()))
        contrasts += _adjusted([pair.contrast(name, columns) for name, columns in rows])
    return Comparison(
        baseline=baseline,
        candidates=tuple(candidates),
        contrasts=tuple(contrasts),
        apart=apart,
        missing={key: names for key, names in missing.items() if names},
    )


def comparisons(
    chosen: Sequence[Sequence[Entry]],
    baseline: Sequence[Entry] | None,
    examples_of: ExamplesOf | None = None,
    *,
    metrics: Sequence[str] | None = None,
    anyway: bool = False,
) -> list[Comparison]:
    """Compare what a reader chose, each choice one entry or several, with the last choice or with `baseline`.

    With one baseline and choices of one entry each, all of them are compared, or ConfigError says what differs. Where
    there are several (a query over models, say), each baseline is compared with those chosen that are comparable with
    it; of the others, a single entry that was chosen by itself is refused, and the rest of a query are left out.
    """
    bases = {entry.id: entry for entry in (chosen[-1] if baseline is None else baseline)}
    candidates = {entry.id: entry for entries in chosen for entry in entries if entry.id not in bases}
    if not candidates:
        raise ConfigError(
            f"There is only {' and '.join(title(entry) for entry in bases.values())}, and nothing to compare with it. "
            "Name two or more, such as `emobench compare emo mle`; the last is the baseline, or --baseline names it."
        )
    named = {entries[0].id for entries in chosen if len(entries) == 1}
    found = []
    for base in bases.values():
        same = [c for c in candidates.values() if anyway or not differences(c, base)]
        if same:
            found.append(compare(base, same, examples_of, metrics=metrics, anyway=anyway))
    lonely = [c for c in candidates.values() if not any(c in comparison.candidates for comparison in found)]
    if lonely and (not found or any(c.id in named for c in lonely)):
        return [compare(next(iter(bases.values())), lonely, examples_of, metrics=metrics)]  # raises what differs
    return [replace(found[0], left_out=tuple(lonely)), *found[1:]]


@dataclass(frozen=True)
class _Pair:
    baseline: Entry
    candidate: Entry
    runs: Mapping[str, Sequence[Mapping[str, Examples]] | None]
    apart: Sequence[str]

    def contrast(self, name: str, columns: Sequence[str]) -> Contrast:
        """Return the contrast of one metric, or of the mean over several; its p is not yet adjusted."""
        first = self.candidate.metrics[columns[0]]
        log = all(e.metrics[m].unit == "perplexity" for e in (self.baseline, self.candidate) for m in columns)
        means = [_mean([e.metrics[m].mean for m in columns], log) for e in (self.baseline, self.candidate)]
        plain = Contrast(
            candidate=self.candidate.id,
            metric=name,
            tasks=tuple(m.split("/", 1)[0] for m in columns),
            unit=first.unit,
            higher_is_better=first.higher_is_better,
            baseline_mean=means[0],
            candidate_mean=means[1],
            effect=math.log(means[1] / means[0]) if log else means[1] - means[0],
            log_scale=log,
            verdict=None,
        )
        ours, theirs = self._series(self.candidate, columns), self._series(self.baseline, columns)
        if self.apart:
            same_items = all(text.startswith(("model", "recipe.")) for text in self.apart)
            return replace(plain, within=_within(ours, theirs)) if same_items else plain
        return _judged(plain, ours, theirs)

    def _series(self, entry: Entry, columns: Sequence[str]) -> list[Series]:
        found = [Series.of_entry(entry, metric, self.runs[entry.id]) for metric in columns]
        return [row for row in found if row is not None]


def _judged(plain: Contrast, ours: Sequence[Series], theirs: Sequence[Series]) -> Contrast:
    """Return a contrast with its test; `ours` and `theirs` are the candidate's and the baseline's, for each task."""
    if not len(ours) == len(theirs) == len(plain.tasks):
        return replace(plain, verdict="undetermined", why="a mean without its seeds' values")
    if any(UNRANKED_FLAG in row.flags for row in (*ours, *theirs)):
        return replace(plain, verdict="undetermined", why="small n: shown, not judged")
    found = difference_of_means(ours, theirs)
    if found is None:
        why = undetermined(ours, theirs)
        return replace(plain, verdict="undetermined", why=why, within=_within(ours, theirs))
    if found.test == EQUAL:
        return replace(plain, verdict="tied", why="all values are equal", seeds=found.seeds, items=found.items)
    return replace(
        plain,
        effect=found.effect,
        log_scale=found.log_scale,
        ci95=found.ci95,
        p=found.p,
        test=found.test,
        detectable=found.detectable,
        seeds=found.seeds,
        items=found.items,
    )


def _means(
    shared: Sequence[str], one_sided: Sequence[str], baseline: Entry, candidate: Entry
) -> Iterator[tuple[str, list[str]]]:
    """Yield ("mean/<metric>", its columns) for each metric of several tasks that no task of either side lacks."""
    absent = {m.split("/", 1)[1] for m in (*one_sided, *baseline.missing, *candidate.missing)}
    by_name: dict[str, list[str]] = {}
    for metric in shared:
        if not baseline.metrics[metric].of_tasks:
            by_name.setdefault(metric.split("/", 1)[1], []).append(metric)
    for name, columns in by_name.items():
        kinds = {(e.metrics[m].unit, e.metrics[m].higher_is_better) for e in (baseline, candidate) for m in columns}
        if len(columns) > 1 and name not in absent and len(kinds) == 1:
            yield f"{MEAN}/{name}", columns


def _within(ours: Sequence[Series], theirs: Sequence[Series]) -> tuple[WithinSeed, ...]:
    """Return the tests within each common seed, of one task; a row without seeds stands beside each of its rival's."""
    if not len(ours) == len(theirs) == 1:
        return ()
    (left,), (right,) = ours, theirs
    seeds = (
        right.values if None in left.values else [s for s in left.values if s in right.values or None in right.values]
    )
    found = [within_seed(left, right, seed) for seed in seeds]
    return tuple(test for test in found if test is not None)


def _adjusted(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """Return one candidate's contrasts with their p adjusted, and the verdicts that follow."""
    tested = [contrast for contrast in contrasts if contrast.p is not None]
    adjusted = dict(zip((c.metric for c in tested), holm([c.p for c in tested if c.p is not None]), strict=True))
    return [
        replace(c, p_holm=adjusted[c.metric], verdict=_verdict(c, adjusted[c.metric])) if c.metric in adjusted else c
        for c in contrasts
    ]


def _verdict(contrast: Contrast, p_holm: float) -> Verdict:
    if p_holm > ALPHA:
        return "tied"
    if contrast.higher_is_better is None:
        return "differs"
    return "better" if (contrast.effect > 0) == contrast.higher_is_better else "worse"


def _mean(values: Sequence[float], log: bool) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if log else math.fsum(values) / len(values)


def _refusal(baseline: Entry, candidates: Sequence[Entry], apart: Mapping[str, Sequence[str]]) -> str:
    lines = [f"Not comparable with {title(baseline)}:"]
    for candidate in candidates:
        found = apart[candidate.id]
        shown = found[: 2 if candidate.suite != baseline.suite else 6]  # another suite has other tasks and data anyway
        more = f"; and {len(found) - len(shown)} more" if len(found) > len(shown) else ""
        lines.append(f"  {title(candidate)} differs in {'; '.join(shown)}{more}.")
    return "\n".join([*lines, "Add --anyway to see them side by side, without a verdict."])


def title(entry: Entry) -> str:
    """Return what an entry is called beside others: its objective, model, suite and id."""
    return f"{entry.objective.label} · {entry.model.name} · {entry.suite} [{entry.id[:6]}]"
