"""What stands above and below tables of results: the conditions that rows share, and what their marks and p mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from emobench.core.settings import content_hash
from emobench.leaderboard.comparable import changed_rules, differences, digests
from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.labels import MEAN, clean, labels, parameters
from emobench.leaderboard.query.standings import Standings
from emobench.leaderboard.stats.classical import ALPHA, MIN_SEEDS, POWER
from emobench.leaderboard.stats.compare import Comparison, Contrast, rows_of
from emobench.report.numbers import contrast_effect, contrast_interval, effect_decimals, listed, p_value
from emobench.tasks.families import OTHERS, PRIMARY, SECONDARIES

if TYPE_CHECKING:
    from emobench.report.paper_table import PaperComparison

UNCOVERED = "; other test texts and sampling runs are not covered"
"""Of a test over seeds alone: entries share the test texts, and the random numbers that texts are sampled with."""
BASES = "Sampled: pre-trained models. A value is the mean over one model's seeds, paired with its rival's."
BASE = "All rows share one pre-trained model; variation between pre-trained models is not included."
ONE_BASE = "One pre-trained model: variation between pre-trained models is not included (see --across-bases)."
ONE_PAIR = (
    "p, interval and verdict are about these two models on examples like these, not about their objectives or recipes; "
    "other training seeds may give another verdict."
)
NOISE = "the noise of seeds and test examples"
EXPLAIN = "--explain: definitions, tests and sources of noise."
NOISE_EXPLAINED = (
    "Sources of noise: the standard deviation of one value if only that source varied. averaged over: training seeds x "
    "sampling runs x k-means seeds. left: the standard error of a row's mean, for these texts; a difference has less. "
    "Few seeds and runs give rough estimates."
)
DUELS = (
    "A win is preferred in both orders; orders that disagree are a tie.",
    "win rate: the mean preference of both orders (a tie is half a win). 95 %: over instructions.",
)
SEEDS_NEEDED = (
    "p compares two models of one seed, on these examples (McNemar's mid-p for right or wrong answers); objectives "
    "need 3 seeds or more."
)
TESTED = "* beyond noise: two-sided 5 %, over seeds and test examples."
FEW, MANY = 3, 6
"""Metrics that are named one by one, in a sentence and in the line of verdicts."""
VERDICTS = ("better", "worse", "tied", "undetermined")


def representative(rows: Sequence[Entry]) -> Entry:
    """Return the row that tells what a group shares: a trained one, if there is one."""
    return next((entry for entry in rows if not entry.untrained), rows[0])


def conditions(rows: Sequence[Entry], tasks: Sequence[str], above: Sequence[Entry]) -> list[str]:
    """Return what the rows of a group share, and what keeps them from being ranked with the first table above.

    `above` holds a row of each table of the same suite and model that stands above.
    """
    first = representative(rows)
    recipe = str(first.recipe.get("name", ""))
    if first.recipe.get("corpus"):
        recipe += f" on {first.recipe['corpus']}"
    own = changed_rules(first, tasks)
    protocol = f"protocol {_protocols(first, tasks)}" + (f" with {own}" if own else "")
    lines = [" · ".join(filter(None, [protocol, f"recipe {recipe}" if recipe else "", _data(first)])), parameters(rows)]
    if above:
        # What a person chose says more than the hashes that follow from it.
        apart = sorted(differences(above[0], first), key=lambda text: text.startswith("data of "))
        which = "the table above" if len(above) == 1 else f"the first table of {first.suite} · {first.model.name}"
        lines.append(f"Not ranked with {which}: {listed(apart, 3, '; ')}.")
    return [clean(line) for line in lines if line]


def _protocols(entry: Entry, tasks: Sequence[str]) -> str:
    ids = {task: entry.protocols.get(task, "none") for task in tasks or entry.protocols}
    # Of several tasks the columns have the names, and one that is called as its suite needs none.
    if len(set(ids.values())) == 1 and (len(ids) > 1 or list(ids) == [entry.suite.name]):
        return next(iter(ids.values()))
    alike: dict[str, dict[str, list[str]]] = {}
    for task, protocol in ids.items():
        name, _, digest = protocol.partition("@")
        alike.setdefault(name, {}).setdefault(digest, []).append(task)
    return "; ".join(
        f"{name} ({', '.join(' '.join(filter(None, [', '.join(of), digest])) for digest, of in found.items())})"
        for name, found in alike.items()
    )


def _data(entry: Entry) -> str:
    if not entry.provenance.data:
        return ""
    local = any("(local" in digest for digest in entry.provenance.data.values())
    return f"data {content_hash(digests(entry))[:6]}" + (" (local)" if local else "")


def legend(shown: Standings, labels: dict[str, str], *, intervals: bool, own: bool) -> list[str]:
    """Return what the table's numbers and marks mean, and why a mark is not there."""
    current = [entry for entry in shown.rows if entry.id not in shown.older]
    lines = [f"{_values(current, intervals)} {_stars(shown, current)}".strip(), _ranks(shown)]
    if isinstance(shown.baseline, Entry):
        lines.append(
            f"Differences from {labels[shown.baseline.id]}: in points where the unit is %, in percent for "
            f"perplexities, else in the unit. * beyond {NOISE} (two-sided 5 %)."
        )
    elif shown.baseline is not None:
        lines.append(f"No differences: {shown.baseline}.")
    lines += adjustment(shown.tested if shown.baseline is None else _differences(shown).values())
    if shown.tested:
        lines.append(BASE)
    if not intervals and not isinstance(shown.baseline, Entry):
        hidden = [m for m in shown.metrics if any(_hides(e.metrics[m]) for e in current if m in e.metrics)]
        if hidden:
            lines.append(f"± of {listed(hidden, FEW)} does not include all noise; see `emobench compare --explain`.")
    lines += _by_reason("No verdict", _undetermined(shown, current)) + _by_reason("Not computed", shown.absent)
    if own:
        lines.append("› objectives of this run.")
    older = ", ".join(labels[entry.id] for entry in shown.rows if entry.id in shown.older)
    if older:
        lines.append(f"{older}: same name and parameters, other code; neither marked nor ranked.")
    return [clean(line) for line in lines if line]


def _seeds(rows: Sequence[Entry]) -> list[int]:
    """Return the numbers of seeds of the trained rows, ascending; of a row that names none, 0."""
    return sorted({len(entry.seeds) for entry in rows if not entry.untrained})


def _values(current: Sequence[Entry], intervals: bool) -> str:
    counts = _seeds(current)
    if not counts or counts[-1] < 2:
        return "Values of one seed." if counts == [1] else "Single values."
    many = " to ".join(map(str, sorted({counts[0], counts[-1]})))
    return f"Mean {'[95 % interval]' if intervals else '± standard deviation'} over {many} seeds."


def _stars(shown: Standings, current: Sequence[Entry]) -> str:
    """Say what * means, or why there is none; differences from a baseline have a * of their own."""
    counts = _seeds(current)
    if len(current) > 1 and counts and counts[0] < MIN_SEEDS:
        advice = " (--seed 0 --seed 1 --seed 2)" if counts[0] else ""
        return f"Nothing is marked as best: each objective needs {MIN_SEEDS} seeds{advice}."
    if shown.baseline is not None or not shown.tested:
        return ""
    tested = f"beyond {NOISE} (two-sided 5 %, paired by seed)"
    if any(shown.best.values()):
        return f"* better than every other objective {tested}."
    return f"No objective is better than every other {tested}."


def _ranks(shown: Standings) -> str:
    places = shown.ranking
    if places is None or len(shown.rows) - len(shown.older) < 2:
        return ""
    tasks = len(places.columns)
    over = f"mean {places.name} over {tasks} tasks" if tasks > 1 else places.name.rpartition("/")[2]
    if places.places:
        what = ", the primary endpoint" if places.family == PRIMARY else ""
        return f"Rank by {over}{what}: 1 + objectives better beyond noise (two-sided 5 %, Holm over all pairs)."
    # Without a row of enough seeds, `_stars` says so.
    return f"Not ranked by {over}: {places.remark}." if max(_seeds(shown.rows), default=0) >= MIN_SEEDS else ""


def _differences(shown: Standings) -> dict[tuple[str, str], Contrast]:
    return {(key, metric): contrast for key, row in shown.differences.items() for metric, contrast in row.items()}


def _undetermined(shown: Standings, current: Sequence[Entry]) -> dict[str, str]:
    """Return metrics without a verdict -> why: of differences from the baseline, or of rows none of which is best.

    Where rows have too few seeds, `_stars` says so.
    """
    counts = _seeds(current)
    if isinstance(shown.baseline, Entry) and counts and counts[-1] >= MIN_SEEDS:
        found = {metric: c for (_, metric), c in _differences(shown).items() if c.verdict == "undetermined"}
        return {metric: contrast.why or "" for metric, contrast in found.items()}
    return dict(shown.untested) if counts and counts[0] >= MIN_SEEDS else {}


def _by_reason(what: str, reasons: Mapping[str, str]) -> list[str]:
    """Return a sentence for each reason, on the metrics that it holds for."""
    by_reason: dict[str, list[str]] = {}
    for metric, why in reasons.items():
        by_reason.setdefault(why, []).append(metric)
    return [f"{what}: {listed(metrics, FEW)} ({why.rstrip('.')})." for why, metrics in by_reason.items()]


def _hides(summary: MetricSummary) -> bool:
    """Return whether more noise is left in a mean, averaged over its draws, than ± shows."""
    times = summary.mean if summary.unit == "perplexity" else 1.0  # whose parts are of logarithms
    return summary.std is not None and summary.left * times > summary.std


def flag_text(flag: str, count: int | None) -> str:
    """Return a flag of a metric that is of `count` examples as a footnote."""
    if flag == "small_n":
        return f"small n ({count}): shown, not ranked"
    if flag == "fewer_prompts":
        return f"only {count} prompts: no more texts are long enough"
    return flag.replace("_", " ")


def adjustment(contrasts: Iterable[Contrast]) -> list[str]:
    """Return what the p of some contrasts are adjusted for: the primary endpoint, and each family with its tests."""
    tested = [contrast for contrast in contrasts if contrast.p is not None]
    lines = [
        f"Primary endpoint: {_row_name(contrast)}; its p is not adjusted."
        for contrast in tested
        if contrast.family == PRIMARY
    ][:1]
    sizes: dict[str, set[int]] = {}
    for contrast in tested:
        if contrast.family not in (None, PRIMARY):
            sizes.setdefault(str(contrast.family), set()).add(contrast.tests)
    # A metric of too few examples is adjusted for its whole family, whose other tests do not count it.
    ordered = sorted(sizes.items(), key=lambda item: item[0] in (OTHERS, SECONDARIES))
    named = []
    for family, of in ordered:
        many = " to ".join(map(str, sorted({min(of), max(of)})))
        named.append(f"{family} ({many} {'test' if many == '1' else 'tests'})")
    if named:
        which = "Any other p" if lines else "p"
        lines.append(f"{which} is adjusted within its family, shown or not (Holm): {listed(named)}.")
    return lines


def _row_name(contrast: Contrast) -> str:
    task, _, name = contrast.metric.partition("/")
    return f"mean {name} over {len(contrast.tasks)} tasks" if task == MEAN else contrast.metric


def names(comparison: Comparison, candidate: Entry) -> list[str]:
    """Return what the baseline and a candidate are called: by objective, or by model where models are compared."""
    pair = [comparison.baseline, candidate]
    return [e.model.name for e in pair] if comparison.replicates == "items" else labels(pair, older=())


def example_counts(contrasts: Sequence[Contrast]) -> str:
    """Return over how many examples some tests are, "120 examples" or a range; empty where there is no test."""
    counts = sorted(count for contrast in contrasts if (count := contrast.items))
    return f"{' to '.join(dict.fromkeys((f'{counts[0]:,}', f'{counts[-1]:,}')))} examples" if counts else ""


def _replicates(comparison: Comparison, contrasts: Sequence[Contrast]) -> str:
    """Return how many seeds, bases or examples some tests are over."""
    items = comparison.replicates == "items"
    counts = sorted({count for c in contrasts if (count := c.items if items else c.seeds)})
    return f"{' and '.join(map(str, counts))} {'examples' if items else comparison.replicates}"


def verdict_line(contrasts: Sequence[Contrast], one_task: bool) -> Iterator[str]:
    """Yield the metrics of each verdict, in one line; nothing without a verdict."""
    by_word: dict[str, list[str]] = {word: [] for word in VERDICTS}
    for contrast in contrasts:
        name = contrast.metric.split("/", 1)[1] if one_task else _row_name(contrast)
        by_word.get(str(contrast.verdict), []).append(f"{name} (primary)" if contrast.family == PRIMARY else name)
    parts = [f"{word}: {listed(names, MANY)}" for word, names in by_word.items() if names]
    if parts:
        yield " · ".join(parts)


def compare_remarks(comparison: Comparison, candidate: Entry) -> Iterator[str]:
    """Yield what is particular about the comparison with one candidate."""
    contrasts, apart = comparison.of(candidate), comparison.apart.get(candidate.id)
    name = names(comparison, candidate)[1]
    if apart:
        yield f"{name} is not comparable, without a verdict: {listed(apart, separator='; ')}."
    if not contrasts:
        yield f"{name} and the baseline have no metric in common."
    yield from comparison.remarks
    if "published" in (comparison.baseline.kind, candidate.kind):
        yield "Published rows have no values by seed or example: their noise cannot be estimated."
    if comparison.replicates == "items" and any(contrast.p is not None for contrast in contrasts):
        yield ONE_PAIR
    if not apart and (untested := _untested_endpoint(comparison.baseline, candidate)):
        yield untested
    if missing := comparison.missing.get(candidate.id):
        yield f"{name} or the baseline lacks {listed(missing)}."
    if comparison.left_out:
        left = [f"{e.objective.label} of {e.model.name} [{e.id[:6]}]" for e in comparison.left_out]
        yield f"Left out, not comparable with a given baseline: {listed(left)}."


def _untested_endpoint(baseline: Entry, candidate: Entry) -> str:
    """Return that two comparable entries have no test of their primary endpoint, and why; empty if they have one."""
    declared = list(dict.fromkeys(entry.primary for entry in (candidate, baseline) if entry.primary))
    if len(declared) > 1:
        return f"The primary endpoint is not tested: the entries have different ones, {' and '.join(declared)}."
    if declared and declared[0] not in rows_of(candidate, baseline):
        return f"The primary endpoint, {declared[0]}, is not tested: the score of a task is missing."
    return ""


def compare_legend(comparison: Comparison, candidate: Entry) -> Iterator[str]:
    """Yield the sentences that explain the numbers of one candidate's table."""
    contrasts = comparison.of(candidate)
    tested = [contrast for contrast in contrasts if contrast.p is not None]
    if tested:
        yield (
            "p: the probability of a difference at least as large if both were equal; verdicts at "
            f"{100 * ALPHA:.0f} %. tied: no difference beyond noise; those in the interval remain possible. Intervals "
            "are not adjusted for several tests."
        )
        yield from adjustment(tested)
        yield from {"bases": [BASES], "seeds": [ONE_BASE], "items": []}[comparison.replicates]
        sampled = "examples" if comparison.replicates == "items" else f"{comparison.replicates} and examples"
        yield (
            f"detectable: the true difference that one test of this many {sampled} finds with {100 * POWER:.0f} % "
            f"power. Estimated, 95 % interval: {'; '.join(map(_detectable, tested))}."
        )
    for test in dict.fromkeys(c.test for c in tested):
        own = [c for c in tested if c.test == test]
        about = "" if any(c.items for c in own) else UNCOVERED
        metrics = ", ".join(dict.fromkeys(c.metric.split("/", 1)[1] for c in own))
        yield f"By {test} ({_replicates(comparison, own)}{about}): {metrics}."
    if any(contrast.log_scale for contrast in contrasts):
        yield "Perplexities: ratios of geometric means, as differences in percent of the baseline."
    if any(contrast.unit == "fraction" for contrast in contrasts):
        yield "Percentages: differences in points."


def _detectable(contrast: Contrast) -> str:
    """Return the interval of what is detectable, such as "1.2 to 8.4 (mauve)"."""
    places = effect_decimals(contrast)
    low, high = contrast.detectable_ci95 or (None, None)
    shown = " to ".join(contrast_effect(contrast, value, places, "") for value in (low, high))
    return f"{shown} ({contrast.metric})"


def within_lines(contrasts: Sequence[Contrast], one_task: bool) -> Iterator[str]:
    """Yield the tests within each seed, and what they cover."""
    if any(contrast.within for contrast in contrasts):
        yield ("Tests within a seed compare two trained models, not two objectives; their p are not adjusted.")
    for contrast in contrasts:
        places = effect_decimals(contrast) + 1
        for one, test in contrast.within:
            name = contrast.metric.split("/", 1)[1] if one_task else contrast.metric
            seed = "no seed" if one is None else f"seed {one}"
            shown = f"{contrast_effect(contrast, test.effect, places)} {contrast_interval(contrast, test.ci95, places)}"
            yield f"  {name}, {seed}: {shown}, p {p_value(test.p)} ({test.test}, {test.items} examples)"


def paper_legend(table: PaperComparison, interval: str) -> list[str]:
    """Return what the numbers of a paper's table mean; `interval` is the label of the rows of intervals."""
    contrasts = [contrast for contrast in table.comparison.contrasts if contrast.metric in table.columns]
    untested = " Differences from the paper are not tested." if table.published else ""
    lines = [f"Fractions in percent; ± standard deviation over seeds.{untested}"]
    ours = [table.ours(row, metric) for row in table.rows for metric in table.columns]
    covered = dict.fromkeys(summary.ci95_of for summary in ours if summary and summary.ci95_of)
    if covered:
        lines.append(f"{interval}: of the mean, over {' or '.join(covered)}.")
    if any(contrast.p is not None for contrast in contrasts):
        lines += [TESTED, *adjustment(contrasts), BASE]
    if any(contrast.p is None and len(contrast.within) == 1 for contrast in contrasts):
        lines.append(SEEDS_NEEDED)
    sizes = [f"{metric.split('/', 1)[0]} {points:.2g}" for metric, points in table.resolution().items()]
    if sizes:
        lines.append(f"One test example is, in points: {', '.join(sizes)}.")
    return [*lines, *table.remarks]
