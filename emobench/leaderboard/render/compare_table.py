"""A comparison for a terminal (rich), as Markdown, LaTeX, CSV and JSON, from the same lines."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from emobench.config import to_plain
from emobench.leaderboard.render.compare_lines import Sheet, sheets
from emobench.leaderboard.render.compare_noise import HEADER, NoiseTable, noise_tables, plain_components
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.schema.labels import csv_cell, markdown_text
from emobench.leaderboard.stats.compare import Comparison, title

_STYLES = {"better": "bold green", "worse": "bold red", "tied": "", "undetermined": "dim", "describes": "dim"}

_CSV = (
    *("baseline", "baseline_objective", "candidate", "candidate_objective", "model", "suite"),
    *("metric", "unit", "baseline_mean", "candidate_mean", "effect", "log_scale", "ci95_low", "ci95_high"),
    *("p", "p_holm", "family", "tests", "test", "detectable", "seeds", "items", "verdict", "why"),
)


@dataclass(frozen=True)
class ComparisonView:
    """Draws comparisons with rich at whatever width it is given."""

    comparisons: Sequence[Comparison]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        found, legend = sheets(self.comparisons)
        for sheet in found:
            yield from (Text(sheet.heading, style="bold"), Text(), _fitting(sheet, console, options), Text())
            yield from (Text(line, style="dim") for line in sheet.within)
            yield from [Text()] * bool(sheet.within)
        for table in noise_tables(self.comparisons):
            yield from (Text(table.heading, style="bold"), Text(), _noise(table), Text())
        yield from (Text(line, style="dim") for line in legend)


def markdown(comparisons: Sequence[Comparison]) -> str:
    """Return Markdown tables, with what is beyond noise in bold."""
    found, legend = sheets(comparisons)
    lines: list[str] = []
    for sheet in found:
        header, rows = sheet.grid()
        lines += [f"**{markdown_text(sheet.heading)}**", ""]
        lines += [f"| {' | '.join(map(markdown_text, header))} |", "|---|" + "---:|" * (len(header) - 2) + "---|"]
        for contrast, row in zip(sheet.contrasts, rows, strict=True):
            cells = [markdown_text(cell) for cell in row]
            if contrast.beyond_noise:
                cells[3], cells[-1] = f"**{cells[3]}**", f"**{cells[-1]}**"
            lines.append(f"| {' | '.join(cells)} |")
        lines += ["", *(f"- {markdown_text(line)}" for line in sheet.within), ""]
    for table in noise_tables(comparisons):
        lines += [f"**{markdown_text(table.heading)}**", "", f"| {' | '.join(HEADER)} |"]
        lines += ["|---|" + "---:|" * (len(HEADER) - 1)]
        lines += [*(f"| {' | '.join(map(markdown_text, row))} |" for row in table.rows), ""]
    return "\n".join([*lines, *(f"{markdown_text(line)}  " for line in legend)])


def latex(comparisons: Sequence[Comparison]) -> str:
    """Return tabulars for booktabs, with what is beyond noise in bold."""
    found, legend = sheets(comparisons)
    lines = ["% \\usepackage{booktabs}"]
    for sheet in found:
        header, rows = sheet.grid()
        lines += [f"% {_one_line(sheet.heading)}", f"\\begin{{tabular}}{{l{'r' * (len(header) - 2)}l}}", "\\toprule"]
        lines += [" & ".join(map(latex_text, header)) + " \\\\", "\\midrule"]
        for contrast, row in zip(sheet.contrasts, rows, strict=True):
            cells = [latex_text(cell) for cell in row]
            if contrast.beyond_noise:
                cells[3], cells[-1] = f"\\textbf{{{cells[3]}}}", f"\\textbf{{{cells[-1]}}}"
            lines.append(" & ".join(cells) + " \\\\")
        lines += ["\\bottomrule", "\\end{tabular}", *(f"% {_one_line(line)}" for line in sheet.within), ""]
    return "\n".join([*lines, *(f"% {_one_line(line)}" for line in legend)])


def to_csv(comparisons: Sequence[Comparison]) -> str:
    """Return one line for each contrast, numbers as stored: fractions, and logarithms of ratios where `log_scale`."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _CSV, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for comparison in comparisons:
        entries = {entry.id: entry for entry in comparison.candidates}
        for contrast in comparison.contrasts:
            low, high = contrast.ci95 or (None, None)
            row = {**vars(contrast), "ci95_low": low, "ci95_high": high, "baseline": comparison.baseline.id}
            candidate = entries[contrast.candidate]
            row |= {"baseline_objective": comparison.baseline.objective.label, "model": candidate.model.name}
            row |= {"candidate_objective": candidate.objective.label, "suite": str(candidate.suite)}
            writer.writerow({key: csv_cell(value) for key, value in row.items()})
    return out.getvalue()


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Return {"replicates", "baseline", "candidates", "contrasts", "apart", "missing", "components"}.

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
        "components": plain_components(comparison),
    }


def _noise(found: NoiseTable) -> Table:
    table = _plain_table()
    for place, head in enumerate(HEADER):
        table.add_column(Text(head), justify="right" if place else "left", overflow="fold", vertical="top")
    for row in found.rows:
        table.add_row(*map(Text, row))
    return table


def _plain_table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)


def _fitting(sheet: Sheet, console: Console, options: ConsoleOptions) -> Table:
    """Return the widest table that fits, else the narrowest."""
    header, rows = sheet.grid()
    wide = [header, *rows]
    paired = _paired(wide)
    for grid in (wide, paired):
        table = _table(sheet, grid)
        if console.measure(table, options=options.update(width=10_000)).maximum <= options.max_width:
            return table
    return _table(sheet, [[_broken(row[0]), *row[1:]] for row in paired])


def _table(sheet: Sheet, grid: list[list[str]]) -> Table:
    header, *rows = grid
    table = _plain_table()
    for place, head in enumerate(header):
        outer = place in (0, len(header) - 1)
        table.add_column(Text(head), justify="left" if outer else "right", overflow="fold", vertical="top")
    for contrast, row in zip(sheet.contrasts, rows, strict=True):
        cells = [Text(cell) for cell in row]
        cells[-1].stylize(_STYLES.get(contrast.word or "", ""))
        if contrast.beyond_noise:
            cells[3].stylize("bold")
        table.add_row(*cells)
    return table


def _paired(rows: list[list[str]]) -> list[list[str]]:
    """Return header and rows with the interval below the difference and what is detectable below p, if all stand."""
    if len(rows[0]) < 8:
        return rows
    return [
        [a, b, c, f"{effect}\n{interval}", f"{p}\n{least}", last] for a, b, c, effect, interval, p, least, last in rows
    ]


def _broken(metric: str) -> str:
    """Return a metric on two lines: below its task if it has one, else broken at one of its last underscores."""
    if task := re.match(r".*(/|, )", metric):
        return f"{task[0].rstrip()}\n{metric[task.end() :]}"
    return metric.replace("_", "_\n", metric.count("_") - 1 or 1) if len(metric) > 20 else metric


_LATEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "↑": "$\\uparrow$",
    "↓": "$\\downarrow$",
    "–": "--",
    "-": "$-$",
    "[": "{[}",
    "·": "$\\cdot$",
}


def latex_text(text: str) -> str:
    """Return text as LaTeX sets it."""
    return "".join(_LATEX.get(c, c) for c in text)


def _one_line(text: str) -> str:
    return " ".join(text.split())
