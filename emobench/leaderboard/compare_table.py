"""A comparison as text: for a terminal (rich), Markdown, LaTeX and CSV, from the same cells."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from emobench.leaderboard import figures
from emobench.leaderboard.compare import Comparison, title
from emobench.leaderboard.contrasts import MEAN, Contrast
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.labels import clean, labels, markdown_text
from emobench.leaderboard.uncertainty import ALPHA
from emobench.leaderboard.within import WithinSeed

ABSENT = "–"
SMALLEST_SHOWN_P = 0.001
_STYLES = {"better": "bold green", "worse": "bold red", "differs": "bold", "tied": "", "undetermined": "dim"}
_CSV = (
    *(
        "baseline",
        "baseline_objective",
        "candidate",
        "candidate_objective",
        "model",
        "suite",
        "metric",
        "unit",
        "baseline_mean",
        "candidate_mean",
        "effect",
        "log_scale",
    ),
    *("ci95_low", "ci95_high", "p", "p_holm", "test", "detectable", "seeds", "items", "verdict", "why"),
)


@dataclass(frozen=True)
class Line:
    """One contrast as text."""

    metric: str
    baseline: str
    candidate: str
    difference: str
    interval: str
    p: str
    detectable: str
    verdict: str

    def cells(self) -> list[str]:
        return list(asdict(self).values())


@dataclass(frozen=True)
class Sheet:
    """One candidate beside the baseline. `within` has the tests within a seed, where seeds are too few."""

    heading: str
    header: tuple[str, ...]
    lines: tuple[Line, ...]
    contrasts: tuple[Contrast, ...]
    within: tuple[str, ...]

    def grid(self) -> tuple[list[str], list[list[str]]]:
        """Return header and rows, without the columns that have nothing to say."""
        rows = [line.cells() for line in self.lines]
        kept = [i for i in range(len(self.header)) if not rows or any(row[i] != ABSENT for row in rows)]
        return [self.header[i] for i in kept], [[row[i] for i in kept] for row in rows]


def sheets(comparisons: Sequence[Comparison]) -> tuple[list[Sheet], list[str]]:
    """Return a sheet for each candidate, and the legend of all of them, whose first lines explain the marks [1], ..."""
    notes = _Notes()
    found = [_sheet(comparison, candidate, notes) for comparison in comparisons for candidate in comparison.candidates]
    legend = [text for comparison in comparisons for c in comparison.candidates for text in _legend(comparison, c)]
    return found, [clean(text) for text in dict.fromkeys([*notes.texts(), *legend])]


@dataclass(frozen=True)
class ComparisonView:
    """Draws comparisons with rich at whatever width it is given."""

    comparisons: Sequence[Comparison]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        found, legend = sheets(self.comparisons)
        for sheet in found:
            wide = _table(sheet, narrow=False)
            fits = console.measure(wide, options=options.update(width=10_000)).maximum <= options.max_width
            yield from (Text(sheet.heading, style="bold"), Text(), wide if fits else _table(sheet, narrow=True), Text())
            yield from (Text(line, style="dim") for line in sheet.within)
            yield from [Text()] * bool(sheet.within)
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
    return "\n".join([*lines, *(f"{markdown_text(line)}  " for line in legend)])


def latex(comparisons: Sequence[Comparison]) -> str:
    """Return tabulars for booktabs, with what is beyond noise in bold."""
    found, legend = sheets(comparisons)
    lines = ["% \\usepackage{booktabs}"]
    for sheet in found:
        header, rows = sheet.grid()
        lines += [f"% {_one_line(sheet.heading)}", f"\\begin{{tabular}}{{l{'r' * (len(header) - 2)}l}}", "\\toprule"]
        lines += [" & ".join(map(_latex_text, header)) + " \\\\", "\\midrule"]
        for contrast, row in zip(sheet.contrasts, rows, strict=True):
            cells = [_latex_text(cell) for cell in row]
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
            writer.writerow({key: _csv_text(value) if isinstance(value, str) else value for key, value in row.items()})
    return out.getvalue()


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Return {"baseline", "candidates", "contrasts", "apart", "missing"}; entries by their id, title and kind."""
    from emobench.config import to_plain

    def named(entry: Entry) -> dict[str, str]:
        return {"id": entry.id, "title": title(entry), "kind": entry.kind}

    return {
        "baseline": named(comparison.baseline),
        "candidates": [named(candidate) for candidate in comparison.candidates],
        "contrasts": to_plain(comparison.contrasts),
        "apart": to_plain(comparison.apart),
        "missing": to_plain(comparison.missing),
    }


def _sheet(comparison: Comparison, candidate: Entry, notes: _Notes) -> Sheet:
    baseline, contrasts = comparison.baseline, comparison.of(candidate)
    one_task = len({task for contrast in contrasts for task in contrast.tasks}) == 1
    theirs, ours = labels([baseline, candidate], older=())
    return Sheet(
        heading=clean(_heading(baseline, candidate)),
        header=("metric", theirs, ours, "difference", "95 % interval", "p", "detectable", "verdict"),
        lines=tuple(_line(contrast, one_task, notes) for contrast in contrasts),
        contrasts=tuple(contrasts),
        within=tuple(clean(line) for line in _within_lines(contrasts, one_task)),
    )


def _heading(baseline: Entry, candidate: Entry) -> str:
    ours, theirs = (f"{e.objective.label} [{e.id[:6]}]" for e in (candidate, baseline))
    places = [f"{e.model.name} · {e.suite}" for e in (candidate, baseline)]
    if places[0] == places[1]:
        return f"{ours} against {theirs} · {places[0]}"
    return f"{ours} · {places[0]} against {theirs} · {places[1]}"


class _Notes:
    def __init__(self) -> None:
        self._texts: list[str] = []

    def mark(self, text: str) -> str:
        if text not in self._texts:
            self._texts.append(text)
        return f" [{self._texts.index(text) + 1}]"

    def texts(self) -> list[str]:
        return [f"[{number}] {text}." for number, text in enumerate(self._texts, 1)]


def _line(contrast: Contrast, one_task: bool, notes: _Notes) -> Line:
    task, name = contrast.metric.split("/", 1)
    shown = (
        f"mean of {len(contrast.tasks)} tasks, {name}" if task == MEAN and len(contrast.tasks) > 1 else contrast.metric
    )
    arrow = {True: " ↑", False: " ↓", None: ""}[contrast.higher_is_better]
    unit = {"fraction": " (%)", "perplexity": ""}.get(contrast.unit, f" ({contrast.unit})")
    why = notes.mark(contrast.why) if contrast.why else ""
    decimals = _decimals(contrast)
    low_high = [_effect(contrast, end, decimals) for end in contrast.ci95 or ()]
    return Line(
        metric=clean(f"{name if one_task else shown}{unit}{arrow}"),
        baseline=_value(contrast, contrast.baseline_mean),
        candidate=_value(contrast, contrast.candidate_mean),
        difference=_effect(contrast, contrast.effect, decimals) + (" %" if contrast.log_scale else ""),
        interval=f"[{', '.join(low_high)}]" if low_high else ABSENT,
        p=_p(contrast.p_holm),
        detectable=_detectable(contrast, decimals),
        verdict=(contrast.verdict or ABSENT) + why,
    )


def _detectable(contrast: Contrast, decimals: int) -> str:
    if contrast.detectable is None:
        return ABSENT
    return _effect(contrast, contrast.detectable, decimals).lstrip("+") + (" %" if contrast.log_scale else "")


def _value(contrast: Contrast, value: float) -> str:
    scale, decimals = (100, 1) if contrast.unit == "fraction" else (1, 3 if contrast.unit == "nats" else 2)
    return _fixed(value * scale, decimals)


def _effect(contrast: Contrast, effect: float, decimals: int) -> str:
    return _fixed(figures.effect(contrast, effect), decimals, "+")


def _fixed(value: float, decimals: int, sign: str = "") -> str:
    """Return a number with fixed decimals, or with 3 digits where these would hide it or fill the line."""
    hidden = value and abs(value) < 0.5 * 10**-decimals
    return f"{value:{sign}.3g}" if hidden or abs(value) >= 1e6 else f"{value:{sign}.{decimals}f}"


def _decimals(contrast: Contrast) -> int:
    """Return as many decimals as show two digits of the interval's half width, 1 to 6."""
    if contrast.ci95 is None:
        return 1 if contrast.unit == "fraction" or contrast.log_scale else 3
    low, high = (figures.effect(contrast, end) for end in contrast.ci95)
    half = (high - low) / 2
    return min(6, max(1, 1 - math.floor(math.log10(half)))) if 0 < half < math.inf else 1


def _p(p: float | None) -> str:
    if p is None:
        return ABSENT
    return f"<{SMALLEST_SHOWN_P}".replace("0.", ".") if p < SMALLEST_SHOWN_P else f"{p:.3f}".lstrip("0")


def _legend(comparison: Comparison, candidate: Entry) -> Iterator[str]:
    """Yield the sentences of one sheet; those of several sheets are shown once."""
    contrasts, apart = comparison.of(candidate), comparison.apart.get(candidate.id)
    name = candidate.objective.label
    if apart:
        more = f"; and {len(apart) - 6} more" if len(apart) > 6 else ""
        yield f"{name} is not comparable, so that there is no verdict: {'; '.join(apart[:6])}{more}."
    if not contrasts:
        yield f"{name} and the baseline have no metric in common."
    if "published" in (comparison.baseline.kind, candidate.kind):
        yield "Published rows carry no per-example data and no seeds' values: no noise can be estimated from them."
    tested = [contrast for contrast in contrasts if contrast.p is not None]
    if tested:
        yield (
            "p: how often a difference as large would be seen if both were equal, adjusted for the metrics of its "
            f"table (Holm; --metric makes them fewer); verdicts are at {100 * ALPHA:.0f} %. Intervals are for each "
            "metric alone. tied: no difference was shown, and the interval holds what is possible."
        )
        yield (
            "detectable: the smallest true difference that this many seeds and examples would show 4 times in 5, in a "
            "single test, as estimated from the noise seen."
        )
    for test in dict.fromkeys(c.test for c in tested):
        seeds = sorted({c.seeds for c in tested if c.test == test and c.seeds})
        used = [c.metric.split("/", 1)[1] for c in tested if c.test == test]
        about = "" if any(c.items for c in tested if c.test == test) else "; other test texts are not covered"
        yield f"By {test} ({' and '.join(map(str, seeds))} seeds{about}): {', '.join(dict.fromkeys(used))}."
    if any(contrast.log_scale for contrast in contrasts):
        yield "Perplexities are compared by the ratio of geometric means: differences are in percent of the baseline."
    if any(contrast.unit == "fraction" for contrast in contrasts):
        yield "Differences of percentages are in percentage points."
    missing = comparison.missing.get(candidate.id)
    if missing:
        more = f" and {len(missing) - 6} more" if len(missing) > 6 else ""
        yield f"{name} or the baseline lacks {', '.join(missing[:6])}{more}."
    if comparison.left_out:
        left = ", ".join(f"{e.objective.label} of {e.model.name} [{e.id[:6]}]" for e in comparison.left_out[:6])
        more = f" and {len(comparison.left_out) - 6} more" if len(comparison.left_out) > 6 else ""
        yield f"Left out, comparable with no baseline that was named: {left}{more}."


def _within_lines(contrasts: Sequence[Contrast], one_task: bool) -> Iterator[str]:
    if any(contrast.within for contrast in contrasts):
        yield (
            "Within a seed the test examples alone are a sample: these tests compare two trained models, not two "
            "objectives. Their p are not adjusted."
        )
    for contrast in contrasts:
        for found in contrast.within:
            name = contrast.metric.split("/", 1)[1] if one_task else contrast.metric
            yield f"  {name}, {_within(contrast, found)}"


def _within(contrast: Contrast, found: WithinSeed) -> str:
    decimals = _decimals(contrast) + 1
    interval = ", ".join(_effect(contrast, end, decimals) for end in found.ci95 or ()) or ABSENT
    seed = "no seed" if found.seed is None else f"seed {found.seed}"
    said = f"{seed}: {_effect(contrast, found.effect, decimals)}{' %' if contrast.log_scale else ''}"
    return f"{said} [{interval}], p {_p(found.p)} ({found.test}, {found.items} examples)"


def _table(sheet: Sheet, *, narrow: bool) -> Table:
    """Return a table; a narrow one has the interval below the difference, and what is detectable below p."""
    header, rows = sheet.grid()
    if narrow:
        header, *rows = _narrow([header, *rows])
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
    for place, head in enumerate(header):
        outer = place in (0, len(header) - 1)
        table.add_column(Text(head), justify="left" if outer else "right", overflow="fold", vertical="top")
    for contrast, row in zip(sheet.contrasts, rows, strict=True):
        cells = [Text(cell) for cell in row]
        cells[-1].stylize(_STYLES.get(contrast.verdict or "", ""))
        if contrast.beyond_noise:
            cells[3].stylize("bold")
        table.add_row(*cells)
    return table


def _narrow(rows: list[list[str]]) -> list[list[str]]:
    """Return header and rows with long metrics broken at _, and pairs of columns as one where all of them are there."""
    broken = [
        [row[0].replace("_", "_\n", row[0].count("_") - 1 or 1) if len(row[0]) > 20 else row[0], *row[1:]]
        for row in rows
    ]
    if len(rows[0]) < 8:
        return broken
    return [
        [a, b, c, f"{effect}\n{interval}", f"{p}\n{least}", last]
        for a, b, c, effect, interval, p, least, last in broken
    ]


def _csv_text(text: str) -> str:
    """Return text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


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


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in text)


def _one_line(text: str) -> str:
    return " ".join(text.split())
