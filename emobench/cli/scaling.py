"""How a figure of scaling is shown: its numbers as tables, its lines in words, and the files that it is drawn into."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from emobench.cli.terminal.console import print_json, print_out, print_table
from emobench.cli.terminal.streams import remark
from emobench.leaderboard.stats.log_line import LogLine
from emobench.report.charts.paper_chart import scaling_picture
from emobench.report.charts.vega_lite import write_pictures
from emobench.report.numbers import large
from emobench.reproduce.scaling import DATA, MODEL, Point, Scaling

AXES = {MODEL: "parameters of the model", DATA: "training tokens"}
HEADER = ("over", "objective", "model", "size", "mean accuracy (%)", "seeds", "gain per tenfold (points)")


def show_scaling(found: Scaling, plot: Path | None, *, json: bool) -> None:
    """Print a figure's numbers, and with `plot` draw it: FILE.png and FILE.svg."""
    lines = found.lines()
    if json:
        fitted = [
            {"panel": panel, "row": row, "slope": line.slope, "slope_ci95": line.slope_ci95, "sizes": line.sizes}
            for (panel, row), line in lines.items()
        ]
        print_json({"tasks": found.tasks, "points": found.points, "lines": fitted, "remarks": found.remarks})
    else:
        print_table(found.title, HEADER, list(_table(found, lines)))
        print_out("", f"Means over {', '.join(found.tasks)}.", *found.remarks)
    if plot is not None:
        panels = {
            axis: (
                [_drawn(point, value) for point in found.points if point.panel == panel for value in point.values],
                {row: line for (of, row), line in lines.items() if of == panel},
            )
            for panel, axis in AXES.items()
        }
        written = write_pictures(scaling_picture(found.title, found.metric, panels), plot.parent, plot.stem)
        remark(f"drawn into {', '.join(map(str, written))}")


def _drawn(point: Point, value: float) -> dict[str, object]:
    return {"series": point.row, "size": point.size, "value": value}


def _table(found: Scaling, lines: dict[tuple[str, str], LogLine]) -> Iterator[tuple[str, ...]]:
    for panel, axis in AXES.items():
        for point in sorted((p for p in found.points if p.panel == panel), key=lambda p: (p.row, p.size)):
            line = lines.get((panel, point.row))
            mean = f"{100 * fmean(point.values):.1f}"
            yield axis, point.objective, point.model, large(point.size), mean, str(len(point.values)), _gain(line)


def _gain(line: LogLine | None) -> str:
    """Return a slope in words: points for ten times the size, with the 95 % interval where there are three sizes."""
    if line is None:
        return "–"
    interval = ""
    if line.slope_ci95 is not None:
        low, high = (100 * end for end in line.slope_ci95)
        interval = f" [{low:+.1f}, {high:+.1f}]"
    return f"{100 * line.slope:+.1f}{interval}"
