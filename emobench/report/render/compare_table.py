"""A comparison as tables, one for each candidate, or as CSV and JSON with numbers as stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.labels import MEAN, clean
from emobench.leaderboard.stats.compare import Comparison, Contrast, place, title
from emobench.report.render.captions import (
    compare_legend,
    compare_remarks,
    example_counts,
    names,
    verdict_line,
    within_lines,
)
from emobench.report.render.csv_text import csv_text
from emobench.report.render.grid import ABSENT, Cell, Column, Grid, Notes, TableReport, numbered
from emobench.report.render.noise_table import EXPLAINED, noise_tables, plain_components
from emobench.report.render.numbers import (
    contrast_effect,
    contrast_interval,
    contrast_mean,
    effect_decimals,
    p_value,
    unit_label,
)
from emobench.report.render.palette import TERMINAL
from emobench.tasks.families import PRIMARY

_CSV = (
    *("baseline", "baseline_objective", "candidate", "candidate_objective", "model", "suite"),
    *("metric", "unit", "baseline_mean", "candidate_mean", "effect", "log_scale", "ci95_low", "ci95_high"),
    *("p", "p_holm", "family", "tests", "test", "detectable", "detectable_low", "detectable_high", "seeds", "items"),
    *("verdict", "why", "baseline_model", "common_examples", "all_examples"),
)


EXPLAIN = "--explain: what p, detectable and the verdicts mean, which tests were made, and where the noise comes from."


def report(comparisons: Sequence[Comparison], *, explain: bool = True) -> TableReport:
    """Return the tables of each candidate, and below them the footnotes and remarks.

    With `explain` come the tables of the noise, and the sentences on what the numbers mean.
    """
    notes = Notes()
    pairs = pair_tables(comparisons, notes)
    each = [(of, candidate) for of in comparisons for candidate in of.candidates]
    lines = [text for of, candidate in each for text in compare_remarks(of, candidate)]
    meanings = [text for of, candidate in each for text in compare_legend(of, candidate)]
    noise = noise_tables(comparisons) if explain else []
    if explain:
        lines += [*meanings, *([EXPLAINED] if noise else [])]
    elif meanings:
        lines.append(EXPLAIN)
    grids = (*(grid for grid, _ in pairs), *noise)
    return TableReport(grids, (*numbered(notes.texts), *dict.fromkeys(map(clean, lines))))


def pair_tables(comparisons: Sequence[Comparison], notes: Notes | None = None) -> list[tuple[Grid, list[Contrast]]]:
    """Return a table for each candidate that has a metric in common with its baseline: a row for each contrast."""
    notes = notes or Notes()
    return [
        (_grid(comparison, candidate, contrasts, notes), contrasts)
        for comparison in comparisons
        for candidate in comparison.candidates
        if (contrasts := comparison.of(candidate))
    ]


def _grid(comparison: Comparison, candidate: Entry, contrasts: Sequence[Contrast], notes: Notes) -> Grid:
    baseline = comparison.baseline
    # One task that is called as its suite is named in the heading.
    one_task = {metric.split("/", 1)[0] for metric in (*baseline.metrics, *candidate.metrics)} == {baseline.suite.name}
    rows = [_cells(contrast, notes) for contrast in contrasts]
    columns = _columns(*names(comparison, candidate))
    kept = [i for i in range(len(columns)) if any(row[i].text != ABSENT for row in rows)]
    return Grid(
        title=clean(_heading(comparison, candidate, contrasts)),
        corner="metric",
        turned="",
        stars=False,
        rows=tuple(Cell(_label(contrast, one_task)) for contrast in contrasts),
        columns=tuple(columns[i] for i in kept),
        cells=tuple(tuple(row[i] for i in kept) for row in rows),
        subtitle=tuple(clean(line) for line in verdict_line(contrasts, one_task)),
        legend=tuple(clean(line) for line in within_lines(contrasts, one_task)),
    )


def _columns(baseline: str, candidate: str) -> list[Column]:
    return [
        *(Column("", name) for name in (baseline, candidate, "difference")),
        Column("", "95 % interval", below=True),
        Column("", "p"),
        Column("", "detectable", below=True),
        Column("", "verdict", left=True),
    ]


def _cells(contrast: Contrast, notes: Notes) -> list[Cell]:
    places = effect_decimals(contrast)
    why = notes.number(contrast.notes)
    word = contrast.word
    return [
        Cell(contrast_mean(contrast, contrast.baseline_mean)),
        Cell(contrast_mean(contrast, contrast.candidate_mean)),
        Cell(contrast_effect(contrast, contrast.effect, places), contrast.beyond_noise),
        Cell(contrast_interval(contrast, contrast.ci95, places)),
        Cell(p_value(contrast.p_holm)),
        Cell(contrast_effect(contrast, contrast.detectable, places, "")),
        Cell(word or ABSENT, contrast.beyond_noise, why, TERMINAL.get(word or "", "")),
    ]


def _label(contrast: Contrast, one_task: bool) -> str:
    task, name = contrast.metric.split("/", 1)
    several = task == MEAN and len(contrast.tasks) > 1
    shown = f"mean of {len(contrast.tasks)} tasks, {name}" if several else contrast.metric
    primary = ", primary" if contrast.family == PRIMARY else ""
    return clean(f"{name if one_task else shown} {unit_label([contrast])}".strip()) + primary


def _heading(comparison: Comparison, candidate: Entry, contrasts: Sequence[Contrast]) -> str:
    baseline = comparison.baseline
    if comparison.replicates == "items":
        pair = f"{candidate.model.name} against {baseline.model.name}"
        return " · ".join(filter(None, [pair, candidate.suite.name, example_counts(contrasts)]))
    ours, theirs = (f"{e.objective.label} [{e.id[:6]}]" for e in (candidate, baseline))
    places = [place(entry) for entry in (candidate, baseline)]
    if places[0] == places[1]:
        return f"{ours} against {theirs} · {places[0]}"
    return f"{ours} · {places[0]} against {theirs} · {places[1]}"


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
        of_bases = [member.id for member in comparison.members.get(entry.id, ())]
        return {"id": entry.id, "title": title(entry), "kind": entry.kind, **({"bases": of_bases} if of_bases else {})}

    return {
        "replicates": comparison.replicates,
        "baseline": named(comparison.baseline),
        "candidates": [named(candidate) for candidate in comparison.candidates],
        "contrasts": to_plain(comparison.contrasts),
        "apart": to_plain(comparison.apart),
        "missing": to_plain(comparison.missing),
        "remarks": list(comparison.remarks),
        "components": plain_components(comparison),
    }
