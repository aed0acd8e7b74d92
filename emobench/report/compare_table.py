"""A comparison as tables, one for each candidate and one for the sources of noise, and as CSV and JSON.

CSV and JSON have numbers as stored: fractions, and logarithms of ratios where `log_scale`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from statistics import fmean
from typing import Any

from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.labels import MEAN, clean
from emobench.leaderboard.stats.compare import Comparison, Contrast, place, title
from emobench.leaderboard.stats.power import what_decides
from emobench.leaderboard.stats.summary import SOURCES
from emobench.report import notes as captions
from emobench.report.numbers import ABSENT, contrast_mean, contrast_texts, deviation, unit_label
from emobench.report.palette import TERMINAL
from emobench.report.tables import Cell, Notes, Report, Table, csv_text
from emobench.report.tuning import tuning_tables
from emobench.tasks.families import PRIMARY

_CSV = (
    *("baseline", "baseline_objective", "candidate", "candidate_objective", "model", "suite"),
    *("metric", "unit", "baseline_mean", "candidate_mean", "effect", "log_scale", "ci95_low", "ci95_high"),
    *("p", "p_holm", "family", "tests", "test", "detectable", "detectable_low", "detectable_high", "seeds", "items"),
    *("verdict", "why", "baseline_model", "common_examples", "all_examples"),
)


def report(comparisons: Sequence[Comparison], *, explain: bool = True) -> Report:
    """Return the tables of each candidate, with the footnotes and remarks as notes.

    With `explain` come the tables of the noise, and the sentences on what the numbers mean.
    """
    footnotes = Notes()
    tables = []
    for table, _ in pair_tables(comparisons, footnotes):
        tables.append(table)
    remarks: list[str] = []
    meanings: list[str] = []
    for comparison in comparisons:
        for candidate in comparison.candidates:
            remarks += captions.compare_remarks(comparison, candidate)
            meanings += captions.compare_legend(comparison, candidate)
    if explain:
        for comparison in comparisons:
            tables += tuning_tables((comparison.baseline, *comparison.candidates))
        noise = noise_tables(comparisons)
        tables += noise
        if noise:
            meanings.append(captions.NOISE_EXPLAINED)
    elif meanings:
        meanings = [captions.EXPLAIN]
    lines = dict.fromkeys(map(clean, remarks + meanings))
    return Report(tuple(tables), (*footnotes.lines(), *lines))


def pair_tables(
    comparisons: Sequence[Comparison], footnotes: Notes | None = None
) -> list[tuple[Table, list[Contrast]]]:
    """Return a table for each candidate that has a metric in common with its baseline: a row for each contrast."""
    footnotes = footnotes or Notes()
    tables = []
    for comparison in comparisons:
        for candidate in comparison.candidates:
            if contrasts := comparison.of(candidate):
                tables.append((_pair_table(comparison, candidate, contrasts, footnotes), contrasts))
    return tables


def _pair_table(comparison: Comparison, candidate: Entry, contrasts: Sequence[Contrast], footnotes: Notes) -> Table:
    baseline, pair = comparison.baseline, captions.names(comparison, candidate)
    if comparison.replicates == "items":
        parts = [f"{pair[1]} against {pair[0]}", candidate.suite.name, captions.example_counts(contrasts)]
    else:
        ours = f"{candidate.objective.label} [{candidate.id[:6]}]"
        theirs = f"{baseline.objective.label} [{baseline.id[:6]}]"
        parts = [f"{ours} against {theirs}", place(candidate)]
        if place(candidate) != place(baseline):
            parts = [ours, f"{place(candidate)} against {theirs}", place(baseline)]
    # One task that is called as its suite is named in the heading.
    tasks = set(map(captions.task_of, [*baseline.metrics, *candidate.metrics]))
    one_task = tasks == {baseline.suite.name}
    columns = ("metric", *pair, "difference", "95 % interval", "p", "detectable", "verdict")
    rows = tuple(_row(contrast, one_task, footnotes) for contrast in contrasts)
    above = tuple(map(clean, captions.verdict_line(contrasts, one_task)))
    named = {contrast.metric: contrast for contrast in contrasts}
    deciding = captions.deciding_lines(named, baseline, comparison.replicates)
    below = tuple(map(clean, [*captions.within_lines(contrasts, one_task), *deciding]))
    title = clean(" · ".join(filter(None, parts)))
    table = Table(title=title, columns=columns, rows=rows, above=above, below=below, left=("verdict",))
    shown = []
    for number in range(len(columns)):
        if any(row[number].text != ABSENT for row in rows):
            shown.append(number)
    return table.part(shown)


def _row(contrast: Contrast, one_task: bool, footnotes: Notes) -> tuple[Cell, ...]:
    task, name = contrast.metric.split("/", 1)
    metric = contrast.metric
    if one_task:
        metric = name
    elif task == MEAN and len(contrast.tasks) > 1:
        metric = f"mean of {len(contrast.tasks)} tasks, {name}"
    label = clean(f"{metric} {unit_label([contrast])}".strip())
    if contrast.family == PRIMARY:
        label += ", primary"
    means = contrast_mean(contrast, contrast.baseline_mean), contrast_mean(contrast, contrast.candidate_mean)
    word = contrast.word or ABSENT
    bold = "bold " if contrast.beyond_noise else ""
    cells = [*map(Cell, [label, *means, *contrast_texts(contrast).values()])]
    cells[3] = Cell(cells[3].text, bold)
    return (*cells, Cell(word + footnotes.marks(contrast.notes), bold + TERMINAL.get(word, "")))


def noise_tables(comparisons: Sequence[Comparison]) -> list[Table]:
    """Return the sources of noise of each comparison: a row for each metric whose samples were repeated."""
    tables = []
    for comparison in comparisons:
        rows = []
        for metric, by_entry in _repeated(comparison).items():
            summaries = list(by_entry.values())
            unit = {"fraction": "points", "perplexity": "%"}.get(summaries[0].unit, summaries[0].unit)
            rows.append(tuple(map(Cell, [clean(f"{metric} ({unit})"), *noise_row(summaries)])))
        if rows:
            heading = clean(f"Where the noise comes from · {place(comparison.baseline)}")
            columns = ("metric", "training", *SOURCES[1:], "averaged over", "left")
            tables.append(Table(title=heading, columns=columns, rows=tuple(rows)))
    return tables


def noise_row(summaries: Sequence[MetricSummary]) -> list[str]:
    """Return the deviation by each of `SOURCES`, the draws that are averaged over, and the standard error left.

    Of several rows' summaries a deviation is the root of the mean square.
    """
    unit, largest = summaries[0].unit, max(abs(summary.mean) for summary in summaries)

    def pooled(squares: Sequence[float]) -> str:
        if not squares:
            return ABSENT
        return deviation(math.sqrt(fmean(squares)), unit, largest)

    cells, draws = [], []
    for name in SOURCES:
        squares, counts = [], set()
        for summary in summaries:
            if part := summary.components.get(name):
                squares.append(part.sd**2)
                counts.add(part.draws)
        cells.append(pooled(squares))
        if counts and name in SOURCES[:3]:
            draws.append("-".join(map(str, sorted({min(counts), max(counts)}))))
    return [*cells, " x ".join(draws), pooled([summary.left**2 for summary in summaries])]


def _repeated(comparison: Comparison) -> dict[str, Mapping[str, MetricSummary]]:
    """Return metric -> id -> summary, of the metrics shown and the entries whose samples were repeated."""
    repeated: dict[str, Mapping[str, MetricSummary]] = {}
    for contrast in comparison.contrasts:
        metric, by_entry = contrast.metric, {}
        for entry in (comparison.baseline, *comparison.candidates):
            if metric in entry.metrics and entry.metrics[metric].components:
                by_entry[entry.id] = entry.metrics[metric]
        if by_entry:
            repeated[metric] = by_entry
    return repeated


def to_csv(comparisons: Sequence[Comparison]) -> str:
    """Return one line for each contrast, numbers as stored: fractions, and logarithms of ratios where `log_scale`."""
    return csv_text(_CSV, chain.from_iterable(map(plain_rows, comparisons)))


def plain_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Return a mapping for each contrast, with the columns of the CSV and numbers as stored."""
    baseline = comparison.baseline
    candidates = {entry.id: entry for entry in comparison.candidates}
    rows = []
    for contrast in comparison.contrasts:
        candidate = candidates[contrast.candidate]
        row = {**vars(contrast), "baseline": baseline.id, "baseline_objective": baseline.objective.label}
        row["ci95_low"], row["ci95_high"] = contrast.ci95 or (None, None)
        row["detectable_low"], row["detectable_high"] = contrast.detectable_ci95 or (None, None)
        row |= {"candidate_objective": candidate.objective.label, "suite": str(candidate.suite)}
        row |= {"model": candidate.model.name, "baseline_model": baseline.model.name}
        rows.append({name: row[name] for name in _CSV})
    return rows


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Return {"replicates", "baseline", "candidates", "contrasts", "apart", "missing", "remarks", "components"}.

    Entries have their id, title and kind, and the ids of their `bases` if they are rows of several. Components are
    those of the metrics shown, by metric and entry.
    """
    named = []
    for entry in (comparison.baseline, *comparison.candidates):
        facts: dict[str, Any] = {"id": entry.id, "title": title(entry), "kind": entry.kind}
        if bases := comparison.members.get(entry.id):
            facts["bases"] = [member.id for member in bases]
        named.append(facts)
    components: dict[str, dict[str, Any]] = {}
    for metric, by_entry in _repeated(comparison).items():
        components[metric] = {}
        for identity, summary in by_entry.items():
            components[metric][identity] = to_plain(summary.components)
    contrasts = []
    for contrast in comparison.contrasts:
        contrasts.append({**to_plain(contrast), "decided_by": to_plain(what_decides(contrast))})
    return {
        "replicates": comparison.replicates,
        "baseline": named[0],
        "candidates": named[1:],
        "contrasts": contrasts,
        "apart": to_plain(comparison.apart),
        "missing": to_plain(comparison.missing),
        "remarks": list(comparison.remarks),
        "components": components,
    }
