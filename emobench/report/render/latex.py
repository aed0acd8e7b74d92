"""Tables as LaTeX tabulars for booktabs, with marked cells in bold and all other text in comments."""

from __future__ import annotations

import re
from collections.abc import Iterable

from emobench.report.render.grid import Cell, TableReport
from emobench.report.render.layout import Sheet, fit

_ESCAPES = {
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
    parts = re.split(r"((?<=[^\W\d])-(?=\w))", text)  # a name's hyphen is not a minus
    return "".join(part if part == "-" else "".join(_ESCAPES.get(c, c) for c in part) for part in parts)


def latex(report: TableReport) -> str:
    """Return a report as LaTeX; tables are not divided."""
    blocks = []
    for grid in report.grids:
        tabulars = [line for sheet in fit(grid, None) for line in _tabular(sheet)]
        blocks.append([*_comments([grid.title, *grid.subtitle]), *tabulars, *_comments(grid.below)])
    blocks += [_comments(report.ending)] if report.ending else []
    return "% \\usepackage{booktabs}\n" + "\n\n".join("\n".join(lines) for lines in blocks) + "\n"


def _tabular(sheet: Sheet) -> list[str]:
    alignment = "".join("l" if left else "r" for left in sheet.left)
    lines = [f"\\begin{{tabular}}{{l{alignment}}}", "\\toprule"]
    heads = (sheet.corner, *(str(head).replace("\n", " ") for head in sheet.heads))
    lines += [_row(map(latex_text, heads)), "\\midrule"]
    for label, row in zip(sheet.labels, sheet.cells, strict=True):
        lines.append(_row([latex_text(str(label)), *map(_cell, row)]))
    return [*lines, "\\bottomrule", "\\end{tabular}"]


def _row(texts: Iterable[str]) -> str:
    return " & ".join(texts) + " \\\\"


def _cell(cell: Cell) -> str:
    return f"\\textbf{{{latex_text(str(cell))}}}" if cell.marked else latex_text(str(cell))


def _comments(lines: Iterable[str]) -> list[str]:
    return [f"% {' '.join(line.split())}" for line in lines]
