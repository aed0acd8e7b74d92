"""Is one entry better than another, by how much, and are we sure?

Every candidate is compared with one baseline, metric by metric, and on the mean over tasks of a metric that several
tasks share. A `Contrast` has the difference, its noise as far as it is known, and a verdict or a reason why there is
none. Verdicts on objectives rest on seeds (`difference.compare_rows`); where that is undetermined, the tests within
each common seed can compare the trained models (`difference.within_seed`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Literal, TypeAlias

from emobench.core.errors import ConfigError
from emobench.leaderboard.comparable import changed_rules, differences
from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.labels import MEAN
from emobench.leaderboard.run_files import ExamplesOf, RunExamples
from emobench.leaderboard.stats.classical import ALPHA, SMALL_N_FLAG, holm
from emobench.leaderboard.stats.difference import EQUAL, WithinSeed, compare_rows, within_seed
from emobench.leaderboard.stats.series import Series, centre_of, mean
from emobench.tasks.families import DUPLICATES, PRIMARY

Verdict: TypeAlias = Literal["better", "worse", "tied", "undetermined"]

SeriesOf: TypeAlias = Callable[[Entry, str], Series | None]
"""An entry and a metric -> its Series, or None without one."""

SMALL_N = "small n: too few examples for a verdict"

NO_VERDICT = "descriptive"
"""Stands for the verdict of a metric that gives none."""

HELD = 64
"""Entries whose per-example results a `SeriesReader` holds at once."""


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """A candidate minus the baseline on one metric; `metric` is "<task>/<metric>", or "mean/<metric>" over `tasks`.

    `effect`, `ci95` and `detectable` are in the metric's unit, or log(candidate / baseline) where `log_scale`
    (perplexities, by their geometric means). `p_holm` is p adjusted for the `tests` of the contrast's `family`
    (`tasks.families`), of which the primary endpoint is one of its own. It gives the verdict: better or worse, at 5 %;
    else tied, which does not prove equality: `ci95` holds the possible effects. `detectable` estimates the true effect
    that this many seeds and items detect with 80 % power in a single test (`Uncertainty.detectable`).
    Where a run lacks an example, effect, interval and p are over the `common_examples` of `all_examples`; the means are
    those of what each run scored.
    Equal values are tied without a test. An undetermined contrast says `why`; entries that are not comparable have no
    verdict at all. Neither has a metric without a family: it describes, with an interval and without a p.

    A metric of `small_n` examples decides nothing, and costs its family nothing. It is tested, as both sides have the
    same texts and so about the same bias, and stays undetermined, as it is not known how much of the bias is left; its
    own p is adjusted for its whole family. `secondary` metrics are shown where they are asked for.
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
    detectable_ci95: tuple[float, float] | None = None
    seeds: int | None = None
    items: int | None = None
    common_examples: int | None = None
    all_examples: int | None = None
    within: tuple[WithinSeed, ...] = ()
    family: str | None = None
    tests: int = 0
    secondary: bool = False
    small_n: bool = False

    @property
    def beyond_noise(self) -> bool:
        return self.verdict in ("better", "worse")

    @property
    def notes(self) -> list[str]:
        """Sentences: why there is no verdict, which examples were compared, and that the interval is not adjusted."""
        sentences = [f"{self.why}."] if self.why else []
        if self.common_examples is not None:
            examples = f"{self.common_examples:,} of {self.all_examples:,} examples"
            sentences.append(f"The difference is over the {examples} that all compared runs have.")
        if self.ci95 and not self.ci95[0] <= 0 <= self.ci95[1] and (self.p_holm or 0) > ALPHA:
            sentences.append("p is adjusted for the tests of its family; the interval, which excludes 0, is not.")
        return sentences

    @property
    def word(self) -> str | None:
        """The verdict in a word, NO_VERDICT where the metric gives none; None for entries that are not comparable."""
        return self.verdict or (NO_VERDICT if self.why else None)


class SeriesReader:
    """Makes the Series of entries, reading each entry's per-example results once while they are held."""

    def __init__(self, examples_of: ExamplesOf | None) -> None:
        self._examples_of = examples_of
        self._held: dict[str, tuple[Sequence[RunExamples] | None, dict[str, Series | None]]] = {}

    def __call__(self, entry: Entry, metric: str) -> Series | None:
        if entry.id not in self._held:
            while len(self._held) >= HELD:
                del self._held[next(iter(self._held))]
            self._held[entry.id] = (self._examples_of(entry) if self._examples_of else None), {}
        runs, made = self._held[entry.id]
        if metric not in made:
            made[metric] = Series.of_entry(entry, metric, runs)
        return made[metric]


def contrasts(
    candidate: Entry,
    baseline: Entry,
    rows: Mapping[str, Sequence[str]],
    series: SeriesOf,
    *,
    judged: bool = True,
    within: bool = False,
) -> list[Contrast]:
    """Return a contrast for each of `rows`: its name -> the metrics (of both entries) that it is of, or the mean over.

    Those that are not `judged` have no verdict; `within` adds the tests within each seed where there is none, or where
    it is undetermined.
    """
    made = []
    for name, columns in rows.items():
        contrast = plain_contrast(candidate, baseline, name, columns)
        ours = [row for metric in columns if (row := series(candidate, metric))]
        theirs = [row for metric in columns if (row := series(baseline, metric))]
        if judged:
            contrast = _judged(contrast, ours, theirs)
        if contrast.family is None:
            made.append(describing(contrast) if judged else contrast)
            continue
        if within and contrast.p is None and contrast.verdict != "tied":
            contrast = replace(contrast, within=_within(ours, theirs))
        made.append(contrast)
    return adjusted(made)


def primary_of(candidate: Entry, baseline: Entry) -> str | None:
    """Return the primary endpoint of two entries; None if they have different ones, or none.

    An entry without one (imported, or of a suite file before schema 5) has that of the other, as the suite declares it.
    """
    endpoints = {candidate.primary, baseline.primary} - {None}
    return endpoints.pop() if len(endpoints) == 1 else None


def family_of(candidate: Entry, baseline: Entry, name: str, columns: Sequence[str]) -> str | None:
    """Return the family of a row, its name -> its metrics.

    None where it is in none, or not in one on both sides, or where these disagree on which direction is better.
    """
    directions, families = set(), set()
    for entry in (candidate, baseline):
        for metric in columns:
            directions.add(entry.metrics[metric].higher_is_better)
            families.add(entry.families.get(metric))
    if len(directions) > 1:
        return None
    if name == primary_of(candidate, baseline):
        return PRIMARY
    return families.pop() if len(families) == 1 else None


def plain_contrast(candidate: Entry, baseline: Entry, name: str, columns: Sequence[str]) -> Contrast:
    """Return a contrast without a test or a verdict."""
    ours = [candidate.metrics[metric] for metric in columns]
    theirs = [baseline.metrics[metric] for metric in columns]
    directions, units = set(), set()
    secondary = small_n = False
    for summary in (*ours, *theirs):
        directions.add(summary.higher_is_better)
        units.add(summary.unit)
        secondary = secondary or summary.secondary
        small_n = small_n or SMALL_N_FLAG in summary.flags
    log = units == {"perplexity"}
    left = mean([centre_of(summary, log=log) for summary in ours], log=log)
    right = mean([centre_of(summary, log=log) for summary in theirs], log=log)
    return Contrast(
        candidate=candidate.id,
        metric=name,
        tasks=tuple(metric.split("/", 1)[0] for metric in columns),
        unit=units.pop() if len(units) == 1 else "score",
        higher_is_better=directions.pop() if len(directions) == 1 else None,
        baseline_mean=mean([summary.mean for summary in theirs], log=log),
        candidate_mean=mean([summary.mean for summary in ours], log=log),
        effect=math.log(left / right) if log else left - right,
        log_scale=log,
        verdict=None,
        family=family_of(candidate, baseline, name, columns),
        secondary=secondary,
        small_n=small_n,
    )


def _judged(plain: Contrast, ours: Sequence[Series], theirs: Sequence[Series]) -> Contrast:
    """Return a contrast with its test; `ours` and `theirs` are the candidate's and the baseline's, for each task."""
    if not len(ours) == len(theirs) == len(plain.tasks):
        return replace(plain, verdict="undetermined", why="the values of single seeds are not known")
    difference = compare_rows(ours, theirs)
    if isinstance(difference, str):
        return replace(plain, verdict="undetermined", why=difference)
    tested = replace(plain, **vars(difference))
    if difference.test == EQUAL:
        return replace(tested, p=None, test=None, verdict="tied", why="all values are equal")
    return replace(tested, why=SMALL_N) if plain.small_n else tested


def _within(ours: Sequence[Series], theirs: Sequence[Series]) -> tuple[WithinSeed, ...]:
    """Return the tests within each common seed, of one task; a row without seeds is paired with each of its rival's."""
    if not len(ours) == len(theirs) == 1:
        return ()
    (left,), (right,) = ours, theirs
    if None in left.values:
        seeds = list(right.values)
    else:
        seeds = [seed for seed in left.values if seed in right.values or None in right.values]
    tests = [within_seed(left, right, seed) for seed in seeds]
    return tuple(test for test in tests if test is not None)


def describing(contrast: Contrast) -> Contrast:
    """Return a contrast without what would tell it from noise."""
    repeated = DUPLICATES.get(contrast.metric.rpartition("/")[2])
    why = "the entries have no common family of tests for it"
    if contrast.higher_is_better is None:
        why = "it has no better direction"
    elif repeated:
        why = f"it repeats {repeated}"
    return replace(
        contrast,
        verdict=None,
        p=None,
        detectable=None,
        detectable_ci95=None,
        why=f"descriptive, without a verdict: {why}",
    )


def adjusted(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """Return one candidate's contrasts with their p adjusted within each family, and the verdicts that follow."""
    settled = {contrast.metric: contrast for contrast in contrasts}
    for family in dict.fromkeys(contrast.family for contrast in contrasts):
        tested = [contrast for contrast in contrasts if contrast.family == family and contrast.p is not None]
        deciding = [contrast for contrast in tested if not contrast.small_n]
        for among in (tested, deciding):  # metrics that decide something pay for none that do not
            for contrast, p_holm in zip(among, holm([contrast.p or 0.0 for contrast in among]), strict=True):
                verdict = _verdict(contrast, p_holm)
                settled[contrast.metric] = replace(contrast, p_holm=p_holm, tests=len(among), verdict=verdict)
    return list(settled.values())


def _verdict(contrast: Contrast, p_holm: float) -> Verdict:
    if contrast.small_n:
        return "undetermined"
    if p_holm > ALPHA:
        return "tied"
    return "better" if (contrast.effect > 0) == contrast.higher_is_better else "worse"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """`contrasts` are in the order of the candidates; `apart` says of an id why it is not comparable to the baseline.

    `missing` holds, for an id, the metrics that only one side has, and `left_out` entries that were chosen by a query
    and are comparable with no baseline. `replicates` names the sample beside the items; where that is bases, the
    entries are rows of several, and `members` holds, for an id, the entry of each base (`across_bases.py`). Where only
    the items are sampled, each entry is one model (`models.py`). `remarks` are sentences about the compared files.
    """

    baseline: Entry
    candidates: tuple[Entry, ...]
    contrasts: tuple[Contrast, ...]
    apart: Mapping[str, tuple[str, ...]]
    missing: Mapping[str, tuple[str, ...]]
    left_out: tuple[Entry, ...] = ()
    replicates: Literal["seeds", "bases", "items"] = "seeds"
    members: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def of(self, candidate: Entry) -> list[Contrast]:
        return [contrast for contrast in self.contrasts if contrast.candidate == candidate.id]


def compare(
    baseline: Entry,
    candidates: Sequence[Entry],
    examples_of: ExamplesOf | None = None,
    *,
    metrics: Sequence[str] | None = None,
    anyway: bool = False,
    series: SeriesOf | None = None,
) -> Comparison:
    """Compare candidates with a baseline on the metrics that both have.

    `metrics` are those to show (by default all but the secondary ones): p values are adjusted for a whole family, so
    that no choice of metrics changes a verdict. The primary endpoint comes first.
    Raises ConfigError where one is not comparable and `anyway` is not set; with it such a one gets no verdict, but
    where only the model or the recipe differs, two trained models can still be tested on the items that both saw.
    `series` takes the place of `examples_of` for who compares many times: a `SeriesReader` reads each entry once.
    """
    apart = {}
    for candidate in candidates:
        unlike = differences(candidate, baseline)
        if unlike:
            apart[candidate.id] = tuple(unlike)
    if apart and not anyway:
        raise ConfigError(_refusal(baseline, [c for c in candidates if c.id in apart], apart))
    series = series or SeriesReader(examples_of)
    compared: list[Contrast] = []
    missing = {}
    for candidate in candidates:
        rows = rows_of(candidate, baseline)
        one_sided = _one_sided(candidate, baseline)
        if one_sided:
            missing[candidate.id] = tuple(one_sided)
        why = apart.get(candidate.id, ())
        # A difference in the training alone leaves two models that saw the same items.
        within = all(text.startswith(("model", "recipe.")) for text in why)
        for contrast in contrasts(candidate, baseline, rows, series, judged=not why, within=within):
            if _is_shown(contrast, rows[contrast.metric], metrics):
                compared.append(contrast)
    return Comparison(
        baseline=baseline,
        candidates=tuple(candidates),
        contrasts=tuple(compared),
        apart=apart,
        missing=missing,
    )


def rows_of(candidate: Entry, baseline: Entry) -> dict[str, list[str]]:
    """Return what two entries are compared on: a metric of both, or a mean over tasks -> its columns."""
    shared = [metric for metric in baseline.metrics if metric in candidate.metrics]
    rows = {metric: [metric] for metric in shared}
    rows |= dict(_means(shared, _one_sided(candidate, baseline), baseline, candidate))
    primary = primary_of(candidate, baseline)
    return {name: rows[name] for name in sorted(rows, key=lambda name: name != primary)}


def _one_sided(candidate: Entry, baseline: Entry) -> list[str]:
    """Return the metrics that one of two entries has alone."""
    common = baseline.metrics.keys() & candidate.metrics.keys()
    return [metric for metric in dict.fromkeys([*baseline.metrics, *candidate.metrics]) if metric not in common]


def _is_shown(contrast: Contrast, columns: Sequence[str], metrics: Sequence[str] | None) -> bool:
    if metrics is None:
        return not contrast.secondary
    return all(column in metrics for column in columns)


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
    candidates: dict[str, Entry] = {}
    named = set()
    for entries in chosen:
        candidates |= {entry.id: entry for entry in entries if entry.id not in bases}
        if len(entries) == 1:
            named.add(entries[0].id)
    if not candidates:
        raise ConfigError(
            f"There is only {' and '.join(map(title, bases.values()))}, and nothing to compare with it. "
            "Name two or more, such as `emobench compare emo mle`; the last is the baseline, or --baseline names it."
        )
    series = SeriesReader(examples_of)
    made: list[Comparison] = []
    lonely = dict(candidates)
    for base in bases.values():
        same = [entry for entry in candidates.values() if anyway or not differences(entry, base)]
        if same:
            made.append(compare(base, same, metrics=metrics, anyway=anyway, series=series))
        for entry in same:
            lonely.pop(entry.id, None)
    if lonely and (not made or lonely.keys() & named):
        return [compare(next(iter(bases.values())), list(lonely.values()), metrics=metrics)]  # raises what differs
    return [replace(made[0], left_out=tuple(lonely.values())), *made[1:]]


def _means(
    shared: Sequence[str], one_sided: Sequence[str], baseline: Entry, candidate: Entry
) -> Iterator[tuple[str, list[str]]]:
    """Yield ("mean/<metric>", its columns) for each metric of several tasks that no task of either side lacks."""
    absent = {metric.split("/", 1)[1] for metric in (*one_sided, *baseline.missing, *candidate.missing)}
    columns: dict[str, list[str]] = {}
    kinds: dict[str, set[tuple[str, bool | None]]] = {}
    for metric in shared:
        theirs, ours = baseline.metrics[metric], candidate.metrics[metric]
        if not theirs.of_tasks:
            name = metric.split("/", 1)[1]
            columns.setdefault(name, []).append(metric)
            of_name = kinds.setdefault(name, set())
            of_name |= {(theirs.unit, theirs.higher_is_better), (ours.unit, ours.higher_is_better)}
    for name, of_tasks in columns.items():
        if len(of_tasks) > 1 and name not in absent and len(kinds[name]) == 1:
            yield f"{MEAN}/{name}", of_tasks


def _refusal(baseline: Entry, candidates: Sequence[Entry], apart: Mapping[str, Sequence[str]]) -> str:
    lines = [f"Not comparable with {title(baseline)}:"]
    for candidate in candidates:
        reasons = apart[candidate.id]
        shown = reasons[
            : 2 if candidate.suite != baseline.suite else 6
        ]  # another suite has other tasks and data anyway
        more = f"; and {len(reasons) - len(shown)} more" if len(reasons) > len(shown) else ""
        lines.append(f"  {title(candidate)} differs in {'; '.join(shown)}{more}.")
    return "\n".join([*lines, "Add --anyway to see them side by side, without a verdict."])


def title(entry: Entry) -> str:
    """Return what an entry is called beside others: its objective, model, suite and id."""
    return f"{entry.objective.label} · {entry.model.name} · {entry.suite} [{entry.id[:6]}]"


def place(entry: Entry) -> str:
    """Return an entry's model and suite, with the rules that differ from the protocols of that name."""
    return " · ".join(filter(None, [entry.model.name, str(entry.suite), changed_rules(entry)]))


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
            self._rows[pair] = {}
            for row, columns in rows.items():
                self._rows[pair][row] = family_of(candidate, baseline, row, columns), columns
        if (*pair, name) not in self._made and name in self._rows[pair]:
            family, columns = self._rows[pair][name]
            rows = {name: columns}
            if family is not None:
                rows = {row: of for row, (other, of) in self._rows[pair].items() if other == family}
            for contrast in contrasts(candidate, baseline, rows, self._of, judged=self._judged[pair]):
                self._made[*pair, contrast.metric] = contrast
        return self._made.get((*pair, name))

    def _of(self, entry: Entry, metric: str) -> Series | None:
        return self._series.get(metric, {}).get(entry.id)

    def best(self, rows: Sequence[Entry], name: str) -> tuple[str | None, str | None]:
        """Return the row that is better than every other one, or None and why they cannot be told apart, if so.

        It is better than each in a comparison of the two, at 5 % within the family of the metric. That needs no
        further adjustment: to be wrong it has to beat the truly best row, too (an intersection-union test; Berger,
        *Technometrics* 24(4), 1982).
        """
        if len(rows) < 2:
            return None, None
        columns = rows_of(rows[0], rows[1]).get(name)
        if columns is None or any(column not in entry.metrics for column in columns for entry in rows):
            return None, None  # a row that lacks the metric cannot be beaten on it
        top = max(rows, key=lambda entry: fmean(_goodness(entry.metrics[column]) for column in columns))
        beaten, why = True, None
        for rival in rows:
            contrast = None if rival is top else self(top, rival, name)
            beaten = beaten and (rival is top or (contrast is not None and contrast.verdict == "better"))
            if contrast is not None and contrast.verdict == "undetermined":
                why = why or contrast.why
        return (top.id, None) if beaten else (None, why)


def _goodness(summary: MetricSummary) -> float:
    """Return what a contrast is of: the mean over seeds, of perplexities the logarithm of their geometric mean."""
    log = summary.unit == "perplexity"
    centre = centre_of(summary, log=log)
    scaled = math.log(centre) if log else centre
    return scaled if summary.higher_is_better else -scaled
