"""Is one entry better than another, by how much, and are we sure?

Every candidate is compared with one baseline, metric by metric, and on the mean over tasks of a metric that several
tasks share. A `Contrast` has the difference, its noise as far as it is known, and a verdict or a reason why there is
none. Verdicts on objectives rest on seeds (`difference.compare_rows`); where that is undetermined, the tests within
each common seed can compare the trained models (`difference.paired_test`).

Two evaluations of single models are paired example by example (`compare_models`). What follows holds for these two
models: nothing is known of another seed of the same training, so that it is no verdict on an objective.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from emobench.core.errors import ConfigError
from emobench.core.settings import to_plain
from emobench.leaderboard.comparable import changed_rules, differences
from emobench.leaderboard.entry import Entries, Entry
from emobench.leaderboard.labels import MEAN
from emobench.leaderboard.run_files import ExamplesOf
from emobench.leaderboard.stats.best_of import choice_noise
from emobench.leaderboard.stats.classical import ALPHA, SMALL_N_FLAG, holm
from emobench.leaderboard.stats.difference import Difference, compare_rows, paired_test, with_fixed_noise
from emobench.leaderboard.stats.series import Seed, Series, centre_of, mean
from emobench.tasks.families import DUPLICATES, PRIMARY, families
from emobench.tasks.scores import SECONDARY

Verdict: TypeAlias = Literal["better", "worse", "tied", "undetermined"]

SeriesOf: TypeAlias = Callable[[Entry, str], Series | None]
"""An entry and a metric -> its Series, or None without one."""

Test: TypeAlias = Callable[[Sequence[Series], Sequence[Series]], Difference | str]
"""Compares two rows, each given as its Series of the same tasks, or says why it cannot."""

SMALL_N = "small n: too few examples for a verdict"

MOST_REASONS = 6
"""Differences between two entries that an error names."""

NO_VERDICT = "descriptive"
"""Stands for the verdict of a metric that gives none."""


@dataclass(frozen=True, kw_only=True)
class Contrast(Difference):
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
    baseline: str
    metric: str
    tasks: tuple[str, ...]
    unit: str
    higher_is_better: bool | None
    baseline_mean: float
    candidate_mean: float
    verdict: Verdict | None
    why: str | None = None
    p_holm: float | None = None
    within: tuple[tuple[Seed, Difference], ...] = ()
    """Seed -> the test of its two models."""
    family: str | None = None
    tests: int = 0
    level: float = ALPHA
    """The p, before its adjustment, that decides the contrast while the rest of its family stays as it is."""
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


def series_reader(examples_of: ExamplesOf | None) -> SeriesOf:
    """Return a function that makes the Series of entries, and reads each entry's per-example results once."""
    runs, made = {}, {}

    def series(entry: Entry, metric: str) -> Series | None:
        if examples_of and entry.id not in runs:
            runs[entry.id] = examples_of(entry)
        key = entry.id, metric
        if key not in made:
            made[key] = Series.of_entry(entry, metric, runs.get(entry.id))
        return made[key]

    return series


def contrasts(
    candidate: Entry,
    baseline: Entry,
    rows: Mapping[str, Sequence[str]],
    series: SeriesOf,
    test: Test | None = compare_rows,
    *,
    untested: Mapping[str, str] | None = None,
    within: bool = False,
) -> list[Contrast]:
    """Return a contrast for each of `rows`: its name -> the metrics (of both entries) that it is of, or the mean over.

    Without a test they have no verdict; nor have those that are `untested`, for a reason. `within` adds the tests
    within each seed where there is none over them, or where it is undetermined.
    """
    made = []
    for name, columns in rows.items():
        contrast = plain_contrast(candidate, baseline, name, columns)
        ours = list(filter(None, [series(candidate, metric) for metric in columns]))
        theirs = list(filter(None, [series(baseline, metric) for metric in columns]))
        known = len(ours) == len(theirs) == len(columns)
        if untested and name in untested:
            contrast = replace(contrast, why=untested[name])
        elif test is not None:
            tested = test(ours, theirs) if known else "the values of single seeds are missing"
            if isinstance(tested, Difference):
                tested = _with_choice(tested, (candidate, baseline), columns)
            contrast = _settled(contrast, tested)
        undecided = contrast.family is not None and contrast.p is None and contrast.verdict != "tied"
        if within and undecided and known and len(columns) == 1:
            contrast = replace(contrast, within=_within(ours[0], theirs[0]))
        made.append(contrast)
    return _adjusted(made)


def compare_models(
    baseline: Entry,
    candidates: Entries,
    examples_of: ExamplesOf,
    unpaired: Mapping[str, Mapping[str, str]],
) -> Comparison:
    """Compare models, each an entry of one evaluation, with a baseline on the metrics that both have.

    Entries of several seeds are compared over these, as trainings are.
    `unpaired` says of a candidate's id and a metric why its examples are not the baseline's: it gets no verdict. p is
    adjusted within each family of tests (Holm).
    """

    def on_items(ours: Sequence[Series], theirs: Sequence[Series]) -> Difference | str:
        return paired_test(ours[0], theirs[0], exact=True)

    over_seeds = max(len(entry.seeds) for entry in (baseline, *candidates)) > 1
    test = compare_rows if over_seeds else on_items
    series = series_reader(examples_of)
    compared = []
    for candidate in candidates:
        rows = {metric: [metric] for metric in baseline.metrics if metric in candidate.metrics}
        sides = []
        for entry in (candidate, baseline):
            # The other file may have other tasks, which would change the families.
            metrics = {metric: to_plain(entry.metrics[metric]) for metric in rows}
            sides.append(replace(entry, families=families(metrics)))
        compared += contrasts(sides[0], sides[1], rows, series, test, untested=unpaired.get(candidate.id))
    return Comparison(
        baseline=baseline,
        candidates=tuple(candidates),
        contrasts=tuple(compared),
        apart={},
        missing=_missing(candidates, baseline),
        replicates="seeds" if over_seeds else "items",
    )


def are_other_models(candidate: Entry, baseline: Entry) -> bool:
    """Return whether two entries are one model each, from different bases, and were evaluated alike."""
    if any(entry.kind == "published" or len(entry.runs) != 1 for entry in (candidate, baseline)):
        return False
    unlike = differences(candidate, baseline)
    of_training = all(text.startswith(("model: ", "recipe.")) for text in unlike)
    return of_training and any(text.startswith("model: ") for text in unlike)


def _shown(contrasts: Sequence[Contrast], metrics: Sequence[str] | None) -> tuple[Contrast, ...]:
    """Return the contrasts of some metrics (by default, of all but the secondary ones)."""
    shown = []
    for contrast in contrasts:
        keep = not contrast.secondary
        if metrics is not None:
            name = contrast.metric.partition("/")[2]
            keep = {f"{task}/{name}" for task in contrast.tasks} <= set(metrics)
        if keep:
            shown.append(contrast)
    return tuple(shown)


def primary_of(candidate: Entry, baseline: Entry) -> str | None:
    """Return the primary endpoint of two entries; None if they have different ones, or none.

    An imported entry without one has that of the other, as the suite declares it.
    """
    endpoints = {candidate.primary, baseline.primary} - {None}
    return endpoints.pop() if len(endpoints) == 1 else None


def family_of(candidate: Entry, baseline: Entry, name: str, columns: Sequence[str]) -> str | None:
    """Return the family of a row, its name -> its metrics.

    None if it is in none, or not in one on both sides, or where these disagree on which direction is better.
    """
    directions, names = set(), set()
    for entry in (candidate, baseline):
        for metric in columns:
            directions.add(entry.metrics[metric].higher_is_better)
            names.add(entry.families.get(metric))
    if len(directions) == 1 and name == primary_of(candidate, baseline):
        return PRIMARY
    return names.pop() if len(directions) == len(names) == 1 else None


def plain_contrast(candidate: Entry, baseline: Entry, name: str, columns: Sequence[str]) -> Contrast:
    """Return a contrast without a test or a verdict."""
    directions, units, flags, tasks = set(), set(), set(), []
    for metric in columns:
        tasks.append(metric.split("/", 1)[0])
        for entry in (candidate, baseline):
            summary = entry.metrics[metric]
            directions.add(summary.higher_is_better)
            units.add(summary.unit)
            flags.update(summary.flags)
    log = units == {"perplexity"}
    candidate_mean, left = _means(candidate, columns, log)
    baseline_mean, right = _means(baseline, columns, log)
    effect = math.log(left / right) if log else left - right
    return Contrast(
        candidate=candidate.id,
        baseline=baseline.id,
        metric=name,
        tasks=tuple(tasks),
        unit=units.pop() if len(units) == 1 else "score",
        higher_is_better=directions.pop() if len(directions) == 1 else None,
        baseline_mean=baseline_mean,
        candidate_mean=candidate_mean,
        effect=effect,
        log_scale=log,
        verdict=None,
        family=family_of(candidate, baseline, name, columns),
        secondary=SECONDARY in flags,
        small_n=SMALL_N_FLAG in flags,
    )


def _means(entry: Entry, columns: Sequence[str], log: bool) -> tuple[float, float]:
    """Return the mean over metrics of their means, and of their centres (`centre_of`)."""
    means, centres = [], []
    for metric in columns:
        means.append(entry.metrics[metric].mean)
        centres.append(centre_of(entry.metrics[metric], log=log))
    return mean(means, log=log), mean(centres, log=log)


def _settled(plain: Contrast, tested: Difference | str) -> Contrast:
    """Return a contrast with its test, or why there is none; one without a family keeps the interval alone."""
    if isinstance(tested, str):
        contrast = replace(plain, verdict="undetermined", why=tested)
    elif tested.ci95 is None:
        untested = {**vars(tested), "p": None, "test": None}
        contrast = replace(plain, **untested, verdict="tied", why="all values are equal")
    else:
        contrast = replace(plain, **vars(tested), why=SMALL_N if plain.small_n else None)
    if plain.family is not None:
        return contrast
    why = "the entries have no common family of tests for it"
    repeated = DUPLICATES.get(plain.metric.rpartition("/")[2])
    if plain.higher_is_better is None:
        why = "it has no known better direction"
    elif repeated:
        why = f"it repeats {repeated}"
    why = f"{NO_VERDICT}, without a verdict: {why}"
    return replace(contrast, verdict=None, p=None, detectable=None, detectable_ci95=None, why=why)


def _with_choice(tested: Difference, sides: Sequence[Entry], columns: Sequence[str]) -> Difference:
    """Return a difference with the noise of the choice, if both sides were tuned by these metrics."""
    searches, variances = [], []
    for entry in sides:
        if entry.tuning is None or set(columns) != entry.tuning.metrics:
            return tested
        searches.append(entry.tuning)
        values_MS = np.array([entry.metrics[metric].values for metric in columns])
        if tested.log_scale:
            values_MS = np.log(values_MS)
        variances.append(float(values_MS.mean(axis=0).var(ddof=1)))
    part = choice_noise(searches, mean(variances, log=False), log=tested.log_scale)
    return with_fixed_noise(tested, part) if part[0] > 0 else tested


def _within(ours: Series, theirs: Series) -> tuple[tuple[Seed, Difference], ...]:
    """Return the tests within each common seed; a row without seeds is paired with each of its rival's."""
    tests = []
    for seed in theirs.values if None in ours.values else ours.values:
        if theirs.values.keys() & {seed, None}:
            tested = paired_test(ours.of_seeds([seed]), theirs.of_seeds([seed]), exact=False)
            if isinstance(tested, Difference):
                tests.append((seed, tested))
    return tuple(tests)


def _adjusted(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """Return one candidate's contrasts with their p adjusted within each family, and the verdicts that follow."""
    settled = {contrast.metric: contrast for contrast in contrasts}
    for family in {contrast.family for contrast in contrasts}:
        tested = [contrast for contrast in contrasts if contrast.family == family and contrast.p is not None]
        deciding = [contrast for contrast in tested if not contrast.small_n]
        for among in (tested, deciding):  # metrics that decide something pay for none that do not
            adjusted = holm([contrast.p or 0.0 for contrast in among])
            level = ALPHA / max(sum(p_holm > ALPHA for p_holm in adjusted), 1)
            for contrast, p_holm in zip(among, adjusted, strict=True):
                verdict = "better" if (contrast.effect > 0) == contrast.higher_is_better else "worse"
                if contrast.small_n:
                    verdict = "undetermined"
                elif p_holm > ALPHA:
                    verdict = "tied"
                changed = replace(contrast, p_holm=p_holm, tests=len(among), level=level, verdict=verdict)
                settled[contrast.metric] = changed
    return list(settled.values())


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """`contrasts` are in the order of the candidates; `apart` says of an id why it is not comparable to the baseline.

    `missing` holds, for an id, the metrics that only one side has, and `left_out` entries that were chosen by a query
    and are comparable with no baseline. `replicates` names the sample beside the items; where that is bases, the
    entries are rows of several, and `members` holds, for an id, the entry of each base (`across_bases.py`). Where only
    the items are sampled, each entry is one model (`compare_models`). `remarks` are sentences about the compared files.
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
    candidates: Entries,
    examples_of: ExamplesOf | None = None,
    *,
    metrics: Sequence[str] | None = None,
    anyway: bool = False,
    series: SeriesOf | None = None,
) -> Comparison:
    """Compare candidates with a baseline on the metrics that both have.

    `metrics` are those to show (by default all but the secondary ones): p values are adjusted for a whole family, so
    that no choice of metrics changes a verdict. The primary endpoint comes first.
    Raises ConfigError if one is not comparable and `anyway` is not set; with it such a one gets no verdict, but
    where only the model or the recipe differs, two trained models can still be tested on the items that both saw.
    `series` takes the place of `examples_of` for who compares many times: a `series_reader` reads each entry once.
    """
    apart = {}
    for candidate in candidates:
        unlike = differences(candidate, baseline)
        if unlike:
            apart[candidate.id] = tuple(unlike)
    if apart and not anyway:
        lines = [f"Not comparable with {title(baseline)}:"]
        for candidate in candidates:
            if reasons := apart.get(candidate.id):
                more = f"; and {len(reasons) - MOST_REASONS} more" if len(reasons) > MOST_REASONS else ""
                lines.append(f"  {title(candidate)} differs in {'; '.join(reasons[:MOST_REASONS])}{more}.")
        raise ConfigError("\n".join([*lines, "Add --anyway to see them side by side, without a verdict."]))
    series = series or series_reader(examples_of)
    compared = []
    for candidate in candidates:
        rows = rows_of(candidate, baseline)
        why = apart.get(candidate.id, ())
        # A difference in the training alone leaves two models that saw the same items.
        within = all(text.startswith(("model", "recipe.")) for text in why)
        compared += contrasts(candidate, baseline, rows, series, None if why else compare_rows, within=within)
    shown, missing = _shown(compared, metrics), _missing(candidates, baseline)
    return Comparison(baseline=baseline, candidates=tuple(candidates), contrasts=shown, apart=apart, missing=missing)


def rows_of(candidate: Entry, baseline: Entry) -> dict[str, list[str]]:
    """Return what two entries are compared on: a metric of both, or "mean/<metric>" -> its columns.

    A metric that several tasks share has a mean if no task of either side lacks it. The primary endpoint comes first.
    """
    rows, of_tasks = {}, {}
    for metric, summary in baseline.metrics.items():
        if metric in candidate.metrics:
            rows[metric] = [metric]
            if not summary.of_tasks:
                of_tasks.setdefault(metric.split("/", 1)[1], []).append(metric)
    absent = set()
    for metric in (*_one_sided(candidate, baseline), *baseline.missing, *candidate.missing):
        absent.add(metric.split("/", 1)[1])
    for name, columns in of_tasks.items():
        if len(columns) > 1 and name not in absent and len(kinds_of((baseline, candidate), columns)) == 1:
            rows[f"{MEAN}/{name}"] = columns
    primary = primary_of(candidate, baseline)
    if primary in rows:
        rows = {primary: rows[primary], **rows}
    return rows


def kinds_of(entries: Entries, columns: Sequence[str]) -> set[tuple[str, bool | None]]:
    """Return the units and better directions of some metrics."""
    kinds = set()
    for entry in entries:
        for metric in entry.metrics.keys() & set(columns):
            kinds.add((entry.metrics[metric].unit, entry.metrics[metric].higher_is_better))
    return kinds


def _missing(candidates: Entries, baseline: Entry) -> dict[str, tuple[str, ...]]:
    """Return candidate's id -> the metrics that it or the baseline has alone."""
    missing = {}
    for candidate in candidates:
        if one_sided := _one_sided(candidate, baseline):
            missing[candidate.id] = tuple(one_sided)
    return missing


def _one_sided(candidate: Entry, baseline: Entry) -> list[str]:
    """Return the metrics that one of two entries has alone."""
    one_sided = baseline.metrics.keys() ^ candidate.metrics.keys()
    return [metric for metric in (*baseline.metrics, *candidate.metrics) if metric in one_sided]


def comparisons(
    chosen: Sequence[Entries],
    baseline: Entries | None,
    examples_of: ExamplesOf | None = None,
    *,
    metrics: Sequence[str] | None = None,
    anyway: bool = False,
) -> list[Comparison]:
    """Compare what a reader chose, each choice one entry or several, with the last choice or with `baseline`.

    With one baseline and choices of one entry each, all of them are compared, or ConfigError says what differs. Where
    there are several (a query over models, say), each baseline is compared with those chosen that are comparable with
    it; of the others, a single entry that was chosen by itself is refused, and the rest of a query are left out.
    Single models of different bases are compared example by example; ConfigError if none of their examples pair.
    """
    bases = {entry.id: entry for entry in baseline or chosen[-1]}
    candidates, named = {}, set()
    for entries in chosen:
        for entry in entries:
            if entry.id not in bases:
                candidates[entry.id] = entry
        if len(entries) == 1:
            named.add(entries[0].id)
    if not candidates:
        raise ConfigError(
            f"There is only {' and '.join(map(title, bases.values()))}, and nothing to compare with it. "
            "Name two or more, such as `emobench compare emo mle`; the last is the baseline, or --baseline names it."
        )
    first = next(iter(bases.values()))
    as_models = len(bases) == 1 and not anyway
    if as_models and examples_of is not None and all(are_other_models(other, first) for other in candidates.values()):
        comparison = compare_models(first, list(candidates.values()), examples_of, {})
        for candidate in comparison.candidates:
            of_pair = comparison.of(candidate)
            if of_pair and not any(contrast.p is not None or contrast.verdict == "tied" for contrast in of_pair):
                reasons = {contrast.why or "" for contrast in of_pair}
                raise ConfigError(
                    f"{title(candidate)} and {title(first)} cannot be compared example by example: "
                    f"{'; '.join(sorted(reasons))}. Add --anyway to see them side by side, without a verdict."
                )
        return [replace(comparison, contrasts=_shown(comparison.contrasts, metrics))]
    series = series_reader(examples_of)
    made, lonely = [], dict(candidates)
    for base in bases.values():
        same = [entry for entry in candidates.values() if anyway or not differences(entry, base)]
        if same:
            made.append(compare(base, same, metrics=metrics, anyway=anyway, series=series))
        for entry in same:
            lonely.pop(entry.id, None)
    if lonely and (not made or lonely.keys() & named):
        return [compare(first, list(lonely.values()), metrics=metrics)]  # raises what differs
    return [replace(made[0], left_out=tuple(lonely.values())), *made[1:]]


def title(entry: Entry) -> str:
    """Return the name of an entry among others: its objective, model, suite and id."""
    return f"{entry.objective.label} · {entry.model.name} · {entry.suite} [{entry.id[:6]}]"


def place(entry: Entry) -> str:
    """Return an entry's model and suite, with the rules that differ from the protocols of that name."""
    return " · ".join(filter(None, [entry.model.name, str(entry.suite), changed_rules(entry)]))


class PairContrasts:
    """Makes the contrasts of pairs, a family of tests at a time; `made` are all of them, by both ids and metric."""

    def __init__(self, series: SeriesOf) -> None:
        self.series = series
        self.made: dict[tuple[str, str, str], Contrast] = {}

    def __call__(self, candidate: Entry, baseline: Entry, name: str) -> Contrast | None:
        """Return the contrast of a metric, or of "mean/<metric>"; None if one of the two lacks it."""
        pair = candidate.id, baseline.id
        if (*pair, name) not in self.made:
            rows = rows_of(candidate, baseline)
            if name not in rows:
                return None
            family = family_of(candidate, baseline, name, rows[name])
            if family is None:
                rows = {name: rows[name]}
            together = {}
            for row, columns in rows.items():
                if family_of(candidate, baseline, row, columns) == family:
                    together[row] = columns
            # A `pretrained` row may join a group of which it is comparable with the first row alone.
            test = None if differences(candidate, baseline) else compare_rows
            for contrast in contrasts(candidate, baseline, together, self.series, test):
                self.made[*pair, contrast.metric] = contrast
        return self.made[*pair, name]

    def best(self, rows: Entries, name: str) -> tuple[str | None, str | None]:
        """Return the row that is better than every other one, or None and why they cannot be distinguished, if so.

        It is better than each in a comparison of the two, at 5 % within the family of the metric. That needs no
        further adjustment: to be wrong it has to beat the truly best row, too (an intersection-union test; Berger,
        *Technometrics* 24(4), 1982).
        """
        if len(rows) < 2:
            return None, None
        columns = rows_of(rows[0], rows[1]).get(name, [])
        if not columns or not all(entry.metrics.keys() >= set(columns) for entry in rows):
            return None, None  # a row that lacks the metric cannot be beaten on it
        first = rows[0].metrics[columns[0]]
        sign = 1 if first.higher_is_better else -1
        top = max(rows, key=lambda entry: sign * _means(entry, columns, first.unit == "perplexity")[1])
        verdicts, why = set(), None
        for rival in rows:
            if rival is not top:
                contrast = self(top, rival, name)
                verdicts.add(contrast and contrast.verdict)
                if contrast and contrast.verdict == "undetermined":
                    why = why or contrast.why
        return (top.id, None) if verdicts == {"better"} else (None, why)
