"""A comparison as tables, one for each candidate and one for the sources of noise, and as CSV and JSON.

CSV and JSON have numbers as stored: fractions, and logarithms of ratios where `log_scale`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.labels import MEAN, clean
from emobench.leaderboard.stats.compare import Comparison, Contrast, place, title
from emobench.leaderboard.stats.summary import SOURCES
from emobench.report import notes as captions
from emobench.report import numbers as figures
from emobench.report.numbers import ABSENT
from emobench.report.palette import TERMINAL
from emobench.report.tables import Cell, Notes, Report, Table, csv_text
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
    tables = [table for table, _ in pair_tables(comparisons, footnotes)]
    remarks: list[str] = []
    meanings: list[str] = []
    for comparison in comparisons:
        for candidate in comparison.candidates:
            remarks += captions.compare_remarks(comparison, candidate)
            meanings += captions.compare_legend(comparison, candidate)
    if not explain:
        return Report(tuple(tables), _lines(footnotes, remarks, [captions.EXPLAIN] if meanings else []))
    noise = noise_tables(comparisons)
    if noise:
        meanings.append(captions.NOISE_EXPLAINED)
    return Report((*tables, *noise), _lines(footnotes, remarks, meanings))


def _lines(footnotes: Notes, *texts: Sequence[str]) -> tuple[str, ...]:
    lines = [clean(text) for group in texts for text in group]
    return (*footnotes.lines(), *dict.fromkeys(lines))


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
    baseline = comparison.baseline
    # One task that is called as its suite is named in the heading.
    tasks = {metric.split("/", 1)[0] for metric in (*baseline.metrics, *candidate.metrics)}
    one_task = tasks == {baseline.suite.name}
    names = captions.names(comparison, candidate)
    columns = ("metric", *names, "difference", "95 % interval", "p", "detectable", "verdict")
    table = Table(
        title=clean(_heading(comparison, candidate, contrasts)),
        columns=columns,
        rows=tuple((Cell(_label(contrast, one_task)), *_cells(contrast, footnotes)) for contrast in contrasts),
        above=tuple(map(clean, captions.verdict_line(contrasts, one_task))),
        below=tuple(map(clean, captions.within_lines(contrasts, one_task))),
        left=("verdict",),
    )
    kept = [i for i in range(len(columns)) if any(row[i].text != ABSENT for row in table.rows)]
    return table.part(kept)


def _cells(contrast: Contrast, footnotes: Notes) -> list[Cell]:
    places = figures.effect_decimals(contrast)
    bold = "bold " if contrast.beyond_noise else ""
    word = contrast.word or ABSENT
    return [
        Cell(figures.contrast_mean(contrast, contrast.baseline_mean)),
        Cell(figures.contrast_mean(contrast, contrast.candidate_mean)),
        Cell(figures.contrast_effect(contrast, contrast.effect, places), bold),
        Cell(figures.contrast_interval(contrast, contrast.ci95, places)),
        Cell(figures.p_value(contrast.p_holm)),
        Cell(figures.contrast_effect(contrast, contrast.detectable, places, "")),
        Cell(word + footnotes.marks(contrast.notes), bold + TERMINAL.get(word, "")),
    ]


def _label(contrast: Contrast, one_task: bool) -> str:
    task, name = contrast.metric.split("/", 1)
    shown = contrast.metric
    if one_task:
        shown = name
    elif task == MEAN and len(contrast.tasks) > 1:
        shown = f"mean of {len(contrast.tasks)} tasks, {name}"
    primary = ", primary" if contrast.family == PRIMARY else ""
    return clean(f"{shown} {figures.unit_label([contrast])}".strip()) + primary


def _heading(comparison: Comparison, candidate: Entry, contrasts: Sequence[Contrast]) -> str:
    baseline = comparison.baseline
    if comparison.replicates == "items":
        pair = f"{candidate.model.name} against {baseline.model.name}"
        return " · ".join(filter(None, [pair, candidate.suite.name, captions.example_counts(contrasts)]))
    ours, theirs = (f"{entry.objective.label} [{entry.id[:6]}]" for entry in (candidate, baseline))
    places = [place(entry) for entry in (candidate, baseline)]
    if places[0] == places[1]:
        return f"{ours} against {theirs} · {places[0]}"
    return f"{ours} · {places[0]} against {theirs} · {places[1]}"


def noise_tables(comparisons: Sequence[Comparison]) -> list[Table]:
    """Return where the noise comes from, for each comparison: a row for each metric whose samples were repeated."""
    columns = ("metric", "training", *SOURCES[1:], "averaged over", "left")
    tables = []
    for comparison in comparisons:
        rows = []
        for metric, summaries in _repeated(comparison).items():
            of_rows = list(summaries.values())
            unit = {"fraction": "points", "perplexity": "%"}.get(of_rows[0].unit, of_rows[0].unit)
            rows.append(tuple(map(Cell, [clean(f"{metric} ({unit})"), *noise_row(of_rows)])))
        if rows:
            heading = clean(f"Where the noise comes from · {place(comparison.baseline)}")
            tables.append(Table(title=heading, columns=columns, rows=tuple(rows)))
    return tables


def noise_row(summaries: Sequence[MetricSummary]) -> list[str]:
    """Return the deviation by each of `SOURCES`, the draws that are averaged over, and the standard error left.

    Of several rows' summaries a deviation is the root of the mean square.
    """
    deviations, draws = [], []
    for name in SOURCES:
        parts = [summary.components[name] for summary in summaries if name in summary.components]
        deviations.append(_pooled([part.sd for part in parts], summaries))
        counts = [part.draws for part in parts]
        if counts and name in SOURCES[:3]:
            draws.append("-".join(map(str, sorted({min(counts), max(counts)}))))
    return [*deviations, " x ".join(draws), _pooled([summary.left for summary in summaries], summaries)]


def _repeated(comparison: Comparison) -> dict[str, Mapping[str, MetricSummary]]:
    """Return metric -> id -> summary, of the metrics shown and the entries whose samples were repeated."""
    repeated: dict[str, dict[str, MetricSummary]] = {}
    for metric in dict.fromkeys(contrast.metric for contrast in comparison.contrasts):
        for entry in (comparison.baseline, *comparison.candidates):
            if metric in entry.metrics and entry.metrics[metric].components:
                repeated.setdefault(metric, {})[entry.id] = entry.metrics[metric]
    return dict(repeated)


def _pooled(deviations: Sequence[float], summaries: Sequence[MetricSummary]) -> str:
    if not deviations:
        return ABSENT
    pooled = math.sqrt(fmean(one**2 for one in deviations))
    return figures.deviation(pooled, summaries[0].unit, max(abs(summary.mean) for summary in summaries))


def to_csv(comparisons: Sequence[Comparison]) -> str:
    """Return one line for each contrast, numbers as stored: fractions, and logarithms of ratios where `log_scale`."""
    return csv_text(_CSV, (row for comparison in comparisons for row in plain_rows(comparison)))


def plain_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Return a mapping for each contrast, with the columns of the CSV and numbers as stored."""
    rows = [_csv_row(comparison, contrast) for contrast in comparison.contrasts]
    return [{name: row[name] for name in _CSV} for row in rows]


def _csv_row(comparison: Comparison, contrast: Contrast) -> dict[str, Any]:
    low, high = contrast.ci95 or (None, None)
    detectable_low, detectable_high = contrast.detectable_ci95 or (None, None)
    candidate = next(entry for entry in comparison.candidates if entry.id == contrast.candidate)
    return {
        **vars(contrast),
        "ci95_low": low,
        "ci95_high": high,
        "detectable_low": detectable_low,
        "detectable_high": detectable_high,
        "baseline": comparison.baseline.id,
        "baseline_objective": comparison.baseline.objective.label,
        "candidate_objective": candidate.objective.label,
        "model": candidate.model.name,
        "baseline_model": comparison.baseline.model.name,
        "suite": str(candidate.suite),
    }


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Return {"replicates", "baseline", "candidates", "contrasts", "apart", "missing", "remarks", "components"}.

    Entries have their id, title and kind, and the ids of their `bases` where they are rows of several. Components are
    those of the metrics shown, by metric and entry.
    """

    def named(entry: Entry) -> dict[str, Any]:
        facts: dict[str, Any] = {"id": entry.id, "title": title(entry), "kind": entry.kind}
        if bases := [member.id for member in comparison.members.get(entry.id, ())]:
            facts["bases"] = bases
        return facts

    components = {}
    for metric, summaries in _repeated(comparison).items():
        components[metric] = {identity: to_plain(summary.components) for identity, summary in summaries.items()}
    return {
        "replicates": comparison.replicates,
        "baseline": named(comparison.baseline),
        "candidates": [named(candidate) for candidate in comparison.candidates],
        "contrasts": to_plain(comparison.contrasts),
        "apart": to_plain(comparison.apart),
        "missing": to_plain(comparison.missing),
        "remarks": list(comparison.remarks),
        "components": components,
    }
