"""What stands above and below tables of results: the conditions that rows share, and what their marks and p mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, starmap
from typing import TYPE_CHECKING

from emobench.core.settings import content_hash
from emobench.leaderboard.comparable import changed_rules, differences, digests
from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.labels import MEAN, clean, labels, listed, parameters
from emobench.leaderboard.query.standings import Standings
from emobench.leaderboard.stats.classical import ALPHA, MIN_SEEDS, POWER
from emobench.leaderboard.stats.compare import Comparison, Contrast, rows_of
from emobench.leaderboard.stats.power import Count, what_decides
from emobench.report.numbers import contrast_effect, contrast_interval, effect_decimals, p_value
from emobench.report.tuning import in_words
from emobench.tasks.families import OTHERS, PRIMARY, SECONDARIES
from emobench.tasks.scores import SECONDARY

if TYPE_CHECKING:
    from emobench.report.paper_table import PaperComparison

SAMPLES = {
    "seeds": "seeds and examples of one pre-trained model",
    "bases": "pre-trained models, each the mean of its seeds, in pairs",
    "items": "examples",
}
NOISE = f"two-sided {100 * ALPHA:.0f} %, over {SAMPLES['seeds']}"
TESTED = f"* beyond noise ({NOISE})."
UNITS = "% in points, perplexities in percent"
ONE_PAIR = "This compares two models, not objectives: other training seeds may decide otherwise."
EXPLAIN = "--explain: definitions, tests and sources of noise."
NOISE_EXPLAINED = (
    "Sources: sd of a value if only that source varied. averaged over: seeds x sampling runs x k-means seeds. left: "
    "standard error of a mean, for these texts."
)
SKEWED = (
    "Intervals longer on one side, as a few examples differ far more than the others (skewness, for which p is "
    "corrected, too; detectable is not)"
)
VISIBLE = 1.3
"""The sides of an interval that differ by this factor are noticed."""
DUELS = (
    "win: preferred in both orders; tie: the orders disagree. win rate: mean of both orders. 95 %: over instructions.",
)
DECLARED = "Objective, recipe and seed are declared by the user: another program trained these models."
SEEDS_NEEDED = "p compares two models of one seed (McNemar's mid-p for right or wrong answers), not their objectives."
FEW, MANY = 3, 6
"""Metrics that are named one by one, in a sentence and in the line of verdicts."""
VERDICTS = ("better", "worse", "tied", "undetermined")


def task_of(metric: str) -> str:
    return metric.split("/", 1)[0]


def representative(rows: Sequence[Entry]) -> Entry:
    """Return the row that names the conditions of a group: a trained one, if there is one."""
    for entry in rows:
        if not entry.untrained:
            return entry
    return rows[0]


def conditions(rows: Sequence[Entry], tasks: Sequence[str], above: Sequence[Entry]) -> list[str]:
    """Return the conditions that the rows of a group share, and the differences from the first table above.

    `above` holds a row of each table of the same suite and model that stands above.
    """
    first = representative(rows)
    parts = [f"protocol {_protocols(first, tasks)}"]
    if own := changed_rules(first, tasks):
        parts[0] += f" with {own}"
    if recipe := first.recipe.get("name"):
        corpus = first.recipe.get("corpus")
        parts.append(f"recipe {recipe} on {corpus}" if corpus else f"recipe {recipe}")
        if first.declared:
            parts[-1] += " (declared)"
    if data := first.provenance.data.values():
        local = " (local)" if "(local" in "\n".join(data) else ""
        parts.append(f"data {content_hash(digests(first))[:6]}{local}")
    lines = [" · ".join(parts), parameters(rows)]
    for entry in rows:
        if entry.tuning is not None:
            lines.append(f"{entry.objective.name}: {in_words(entry.tuning)}.")
    if first.declared:
        lines.append(DECLARED)
    if above:
        # What a person chose says more than the hashes that follow from it.
        unlike = sorted(differences(above[0], first), key=lambda text: text.startswith("data of "))
        lines.append(f"Unlike the first table of {first.suite} · {first.model.name}: {listed(unlike, 3, '; ')}.")
    return list(map(clean, filter(None, lines)))


def _protocols(entry: Entry, tasks: Sequence[str]) -> str:
    by_id: dict[str, list[str]] = {}
    tasks = tasks or list(entry.protocols)
    for task in tasks:
        by_id.setdefault(entry.protocols.get(task, "none"), []).append(task)
    # The columns have the names of several tasks, and one that is called as its suite needs none.
    if len(by_id) == 1 and (len(tasks) > 1 or tasks == [entry.suite.name]):
        return next(iter(by_id))
    parts = []
    for protocol, own in by_id.items():
        parts.append(f"{protocol} ({', '.join(own)})")
    return "; ".join(parts)


def legend(shown: Standings, labels: Mapping[str, str], *, intervals: bool) -> list[str]:
    """Return what the table's numbers and marks mean, and why a mark is missing."""
    current = [entry for entry in shown.rows if entry.id not in shown.older]
    trained = [entry.seeds for entry in current if not entry.untrained]
    counts = sorted(set(map(len, trained)))  # an entry may name no seed
    few = counts and counts[0] < MIN_SEEDS
    against = shown.baseline if isinstance(shown.baseline, Entry) else None
    contrasts = list(chain.from_iterable(row.values() for row in shown.differences.values()))
    lines = []
    if counts and counts[-1] > 1:
        spread = "[95 % interval]" if intervals else "± sd"
        lines.append(f"Mean {spread} over {_range(counts)} seeds.")
    elif counts == [1]:
        lines.append("One seed.")
    if few and len(current) > 1:
        lines.append(f"Differences are not tested: a test needs {MIN_SEEDS} seeds.")
    elif shown.baseline is None and shown.tested:
        lines.append(f"* better than all others ({NOISE}).")
    lines = [" ".join(lines)]
    if (places := shown.ranking) and len(current) > 1:
        tasks = len(places.columns)
        over = f"{MEAN} {places.name}" if tasks > 1 else places.name.rpartition("/")[2]
        if places.places:
            lines.append(f"rank: 1 + rows that are better by {over} (Holm over pairs).")
        elif counts and counts[-1] >= MIN_SEEDS:
            lines.append(f"No ranks by {over}: {places.remark}.")
    if against:
        lines.append(f"Differences from {labels[against.id]}: {UNITS}. {TESTED}")
    elif shown.baseline:
        lines.append(f"No differences: {shown.baseline}.")
    lines += adjustment(shown.tested if shown.baseline is None else contrasts)
    ties = {}
    for tie in shown.ties:
        ties[f"{labels[tie.candidate]} against {labels[tie.baseline]}, {tie.metric}"] = tie
    lines += deciding_lines(ties, shown.rows[0])
    if not intervals and not against:
        hiding = set()
        for entry in current:
            for metric, summary in entry.metrics.items():
                if _hides(summary):
                    hiding.add(metric)
        if hidden := list(filter(hiding.__contains__, shown.metrics)):
            lines.append(f"± of {listed(hidden, FEW)} omits noise (`emobench compare --explain`).")
    untested: dict[str, str | None] = {}
    if against and counts and counts[-1] >= MIN_SEEDS:
        for contrast in contrasts:
            if contrast.verdict == "undetermined":
                untested[contrast.metric] = contrast.why
    elif counts and not few:
        untested |= shown.untested
    lines += _by_reason("No verdict", untested) + _by_reason("Not computed", shown.absent)
    if older := [labels[entry.id] for entry in shown.rows if entry.id in shown.older]:
        lines.append(f"{', '.join(older)}: other code; neither marked nor ranked.")
    return list(map(clean, filter(None, lines)))


def _range(numbers: Iterable[int]) -> str:
    """Return "3", or "2 to 5" for several numbers."""
    given = sorted(numbers)
    low, high = f"{given[0]:,}", f"{given[-1]:,}"
    return low if low == high else f"{low} to {high}"


def _by_reason(what: str, reasons: Mapping[str, str | None]) -> list[str]:
    """Return a sentence for each reason, on the metrics that it holds for."""
    by_reason: dict[str, list[str]] = {}
    for metric, why in reasons.items():
        by_reason.setdefault((why or "").rstrip("."), []).append(metric)
    sentences = []
    for why, metrics in by_reason.items():
        sentences.append(f"{what}: {listed(metrics, FEW)} ({why}).")
    return sentences


def _hides(summary: MetricSummary) -> bool:
    """Return whether more noise is left in a mean, averaged over its draws, than ± shows."""
    times = summary.mean if summary.unit == "perplexity" else 1.0  # whose parts are of logarithms
    return summary.std is not None and summary.left * times > summary.std


def flag_texts(summary: MetricSummary) -> list[str]:
    """Return the flags of a metric as footnotes."""
    texts = {"small_n": f"small n ({summary.n}): shown, not ranked", "fewer_prompts": f"only {summary.n} prompts"}
    shown = []
    for flag in summary.flags:
        if flag != SECONDARY:
            shown.append(texts.get(flag, flag.replace("_", " ")))
    return shown


def adjustment(contrasts: Iterable[Contrast]) -> list[str]:
    """Return what the p of some contrasts are adjusted for: each family with its tests, and the primary endpoint."""
    primary: list[str] = []
    sizes: dict[str, set[int]] = {}
    for contrast in contrasts:
        if contrast.p is None:
            continue
        if contrast.family == PRIMARY:
            primary = [f"Primary, p not adjusted: {_row_name(contrast)}."]
        elif contrast.family:
            sizes.setdefault(contrast.family, set()).add(contrast.tests)
    # A metric of too few examples is adjusted for its whole family, whose other tests do not count it.
    ordered = sorted(sizes.items(), key=lambda item: item[0] in (OTHERS, SECONDARIES))
    families = [f"{family} ({_range(of)})" for family, of in ordered]
    if families:
        primary.append(f"p: Holm-adjusted over these tests: {listed(families)}.")
    return primary


def _row_name(contrast: Contrast) -> str:
    task, _, name = contrast.metric.partition("/")
    return f"mean {name} over {len(contrast.tasks)} tasks" if task == MEAN else contrast.metric


def names(comparison: Comparison, candidate: Entry) -> list[str]:
    """Return the names of the baseline and a candidate: by objective, or by model if models are compared.

    Models have their objective if they were trained, and their id if the names are equal.
    """
    entries = comparison.baseline, candidate
    if comparison.replicates != "items":
        return labels(entries, older=())
    shown = []
    for entry in entries:
        name = entry.model.name
        shown.append(name if entry.untrained else f"{entry.objective.label} of {name}")
    if len(set(shown)) < len(shown):
        return [f"{name} [{entry.id[:6]}]" for name, entry in zip(shown, entries, strict=True)]
    return shown


def example_counts(contrasts: Sequence[Contrast]) -> str:
    """Return the numbers of examples of some tests, "120 examples" or a range; empty if there is no test."""
    counts = [contrast.items for contrast in contrasts if contrast.items]
    return f"{_range(counts)} examples" if counts else ""


def verdict_line(contrasts: Sequence[Contrast], one_task: bool) -> Iterator[str]:
    """Yield the metrics of each verdict, in one line; nothing without a verdict."""
    by_word: dict[str, list[str]] = {}
    for contrast in contrasts:
        name = contrast.metric.split("/", 1)[1] if one_task else _row_name(contrast)
        if contrast.family == PRIMARY:
            name += " (primary)"
        by_word.setdefault(str(contrast.verdict), []).append(name)
    parts = []
    for word in VERDICTS:
        if word in by_word:
            parts.append(f"{word}: {listed(by_word[word], MANY)}")
    if parts:
        yield " · ".join(parts)


DECIDING = (
    f"To decide a tie (a true difference as large as the observed one, {100 * POWER:.0f} % power; [95 % interval]):"
)


def deciding_lines(named: Mapping[str, Contrast], entry: Entry, sample: str = "seeds") -> list[str]:
    """Return what would decide each tie among contrasts with names, `MANY` at most."""
    lines = []
    for name, contrast in named.items():
        if text := deciding_text(contrast, entry, sample):
            lines.append(f"  {name}, {text}")
    if len(lines) > MANY:
        lines[MANY:] = [f"  and {len(lines) - MANY} more ties (--json)"]
    return [DECIDING, *lines] if lines else []


def deciding_text(contrast: Contrast, entry: Entry, sample: str = "seeds") -> str:
    """Return what would decide a tie: "+3.4: 9 seeds [4, 60], or 90 more documents [20, 400]"; empty for others.

    What cannot decide it alone is named: "+3.4: 9 seeds [4, 60]; more documents alone will not decide it". A difference
    of about 0 that nothing alone decides is left out.

    `entry` is either side, and `sample` what each has several of: seeds, or pre-trained models.
    """
    decision = what_decides(contrast)
    if decision is None:
        return ""
    counted = entry.metrics[f"{contrast.tasks[0]}/{contrast.metric.partition('/')[2]}"]
    units = "examples" if counted.units in (None, counted.n) else "documents"
    counts = []
    if decision.seeds:
        counts.append((decision.seeds, sample, 0))
    if decision.items:
        counts.append((decision.items, f"more {units}", contrast.items or 0))
    counts.sort(key=lambda counted: counted[0].count is None)
    if counts[0][0].count is None and contrast.noise and abs(contrast.effect) < contrast.noise.standard_error:
        return ""
    separator = "; " if counts[-1][0].count is None else ", or "
    effect = contrast_effect(contrast, contrast.effect, effect_decimals(contrast))
    return f"{effect}: {separator.join(starmap(count_text, counts))}"


def count_text(count: Count, what: str, now: int = 0) -> str:
    """Return "9 seeds [4, 60]", less the number that there is `now`; from 100 on, two digits, rounded up.

    If no number suffices: "more seeds alone will not decide it".
    """
    if count.count is None:
        return f"more {what.removeprefix('more ')} alone will not decide it"
    numbers = []
    for number in (count.count, *count.ci95):
        text = "∞"
        if number is not None:
            step = 10 ** max(len(str(number - now)) - 2, 0)
            text = f"{-(-(number - now) // step) * step:,}"
        numbers.append(text)
    return f"{numbers[0]} {what} [{numbers[1]}, {numbers[2]}]"


def compare_remarks(comparison: Comparison, candidate: Entry) -> Iterator[str]:
    """Yield the reservations about the comparison with one candidate."""
    baseline, contrasts = comparison.baseline, comparison.of(candidate)
    unlike = comparison.apart.get(candidate.id)
    name = names(comparison, candidate)[1]
    if unlike:
        yield f"{name} is not comparable, without a verdict: {listed(unlike, separator='; ')}."
    if not contrasts:
        yield f"{name} and the baseline have no metric in common."
    yield from comparison.remarks
    for entry in (baseline, candidate):
        if entry.tuning is not None:
            yield f"{entry.objective.name}: {in_words(entry.tuning)}."
    if baseline.tuning is not None and candidate.tuning is not None and not unlike:
        yield (
            f"The interval and p of {baseline.tuning.metric}, which decided, include the noise of the choice of "
            "settings. Other metrics compare the chosen settings."
        )
    if candidate.declared or baseline.declared:
        yield DECLARED
    if "published" in (baseline.kind, candidate.kind):
        yield "Published rows have no values by seed or example: their noise is unknown."
    if comparison.replicates == "items" and _tested(contrasts):
        yield ONE_PAIR
    endpoints = list(dict.fromkeys(filter(None, [candidate.primary, baseline.primary])))
    if not unlike and len(endpoints) > 1:
        yield f"The primary endpoint is not tested: the entries have different ones, {' and '.join(endpoints)}."
    elif not unlike and endpoints and endpoints[0] not in rows_of(candidate, baseline):
        yield f"The primary endpoint, {endpoints[0]}, is not tested: the score of a task is missing."
    if missing := comparison.missing.get(candidate.id):
        yield f"{name} or the baseline lacks {listed(missing)}."
    if comparison.left_out:
        left = []
        for entry in comparison.left_out:
            left.append(f"{entry.objective.label} of {entry.model.name} [{entry.id[:6]}]")
        yield f"Left out, not comparable with a given baseline: {listed(left)}."


def compare_legend(comparison: Comparison, candidate: Entry) -> Iterator[str]:
    """Yield the sentences that explain the numbers of one candidate's table."""
    contrasts = comparison.of(candidate)
    of_items = comparison.replicates == "items"
    tested = _tested(contrasts)
    if tested:
        yield (
            f"Verdicts: two-sided {100 * ALPHA:.0f} %, over {SAMPLES[comparison.replicates]}. tied does not prove "
            "equality; intervals are not adjusted."
        )
        yield from adjustment(tested)
        yield f"detectable: by one such test with {100 * POWER:.0f} % power; its 95 % interval: --json."
    by_test: dict[str | None, list[Contrast]] = {}
    for contrast in tested:
        by_test.setdefault(contrast.test, []).append(contrast)
    for test, own in by_test.items():
        seeds, metrics = [], []
        for contrast in own:
            seeds.append(contrast.seeds or 0)
            metrics.append(contrast.metric.split("/", 1)[1])
        of_examples = example_counts(own)
        over = of_examples if of_items else f"{_range(seeds)} {comparison.replicates}"
        if not of_examples:
            over += ", for these texts"
        yield f"By {test} ({over}): {', '.join(dict.fromkeys(metrics))}."
    if skewed := [contrast.metric.split("/", 1)[1] for contrast in tested if _is_skewed(contrast)]:
        yield f"{SKEWED}: {', '.join(dict.fromkeys(skewed))}."
    if any(contrast.log_scale or contrast.unit == "fraction" for contrast in contrasts):
        yield f"Differences: {UNITS}."


def _is_skewed(contrast: Contrast) -> bool:
    """Return whether one side of the interval is visibly longer than the other."""
    if contrast.ci95 is None:
        return False
    low, high = contrast.ci95
    sides = sorted((contrast.effect - low, high - contrast.effect))
    return sides[1] > VISIBLE * sides[0]


def _tested(contrasts: Sequence[Contrast]) -> list[Contrast]:
    return [contrast for contrast in contrasts if contrast.p is not None]


def within_lines(contrasts: Sequence[Contrast], one_task: bool) -> list[str]:
    """Return the tests within each seed, and what they cover."""
    lines = []
    for contrast in contrasts:
        places = effect_decimals(contrast) + 1
        name = contrast.metric.split("/", 1)[1] if one_task else contrast.metric
        for one, test in contrast.within:
            seed = "no seed" if one is None else f"seed {one}"
            shown = f"{contrast_effect(contrast, test.effect, places)} {contrast_interval(contrast, test.ci95, places)}"
            lines.append(f"  {name}, {seed}: {shown}, p {p_value(test.p)} ({test.test}, {test.items} examples)")
    if lines:
        lines.insert(0, "Within one seed (models, not objectives; p not adjusted):")
    return lines


def paper_legend(table: PaperComparison, interval: str) -> list[str]:
    """Return what the numbers of a paper's table mean; `interval` is the label of the rows of intervals."""
    lines = ["± sd over seeds."]
    if table.published:
        lines[0] += " here - paper: not tested."
    covered = []
    for row in table.rows:
        for metric in table.columns:
            summary = table.ours(row, metric)
            if summary and summary.ci95_of:
                covered.append(summary.ci95_of)
    if covered:
        lines.append(f"{interval}: of the mean, over {' or '.join(dict.fromkeys(covered))}.")
    contrasts = [contrast for contrast in table.comparison.contrasts if contrast.metric in table.columns]
    if _tested(contrasts):
        lines += [TESTED, *adjustment(contrasts)]
    if any(contrast.p is None and len(contrast.within) == 1 for contrast in contrasts):
        lines.append(SEEDS_NEEDED)
    return [*lines, *table.remarks]
