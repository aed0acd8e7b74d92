"""How settings were tuned: trials and choices in words, as tables, and as pictures.

The expected best of n trials (Dodge et al., EMNLP 2019) is the mean over all subsets of n trials (`best_of.py`). It
says which objective is ahead with a smaller budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from emobench.leaderboard.comparable import comparison_key
from emobench.leaderboard.entry import Entry, Tuning
from emobench.leaderboard.labels import clean, labels
from emobench.leaderboard.stats.best_of import expected_best
from emobench.report.charts.vega_lite import axis, known, panel
from emobench.report.numbers import ABSENT, plain, scale, unit_label
from emobench.report.tables import Cell, Table

AVERAGED = (
    "Expected best: the mean of the best validation result over all subsets of so many of the trials. A trial without "
    "a result is worse than any other; no value where all trials of a subset may be without one."
)


def tuned_rows(entries: Sequence[Entry]) -> dict[str, Tuning]:
    """Return the searches of tuned entries, by the labels that tables and the page give them."""
    tuned = {}
    for label, entry in zip(labels(entries, ()), entries, strict=True):
        if entry.tuning is not None:
            tuned[label] = entry.tuning
    return tuned


def comparable(entries: Sequence[Entry]) -> bool:
    """Return whether the searches of all tuned entries have one condition."""
    return len({comparison_key(entry) for entry in entries if entry.tuning is not None}) == 1


def in_words(tuning: Tuning) -> str:
    """Return the choice of a search: its settings, its result on validation data, and whether it is at an edge."""
    choice = tuning.choice
    settings = ", ".join(f"{name}={value}" for name, value in choice.settings.items())
    trials = f"the best of {len(tuning.trials)} trials ({tuning.sampler})"
    percent = " %" if tuning.unit == "fraction" else ""
    words = f"{settings}: {tuning.metric} {_result(tuning, choice.value)}{percent} on validation data, {trials}"
    failed = sum(trial.value is None for trial in tuning.trials)
    if failed:
        words += f", {failed} of them without a result"
    if tuning.edge:
        words += f". {', '.join(tuning.edge)} is at the edge of the values tried: a better one may lie outside"
    return words


def curve(tuning: Tuning) -> list[float | None]:
    """Return the expected best of 1, 2, ... trials; see `expected_best`."""
    return expected_best([trial.value for trial in tuning.trials], higher_is_better=tuning.higher_is_better)


def _ahead(curves: Mapping[str, Sequence[float | None]], higher_is_better: bool) -> str:
    """Return who has the best expected result at which number of trials: "mle from 1, emo from 3"."""
    best = max if higher_is_better else min
    first = [("", 0)]
    for trials, results in enumerate(zip(*curves.values(), strict=True), 1):
        highest = best([result for result in results if result is not None], default=None)
        ahead = [label for label, result in zip(curves, results, strict=True) if result == highest]
        label = " and ".join(ahead)
        if highest is not None and first[-1][0] != label:
            first.append((label, trials))
    parts = ", ".join(f"{label} from {trials}" for label, trials in first[1:])
    return f"Best expected result by the number of trials: {parts}."


def tuning_tables(entries: Sequence[Entry]) -> list[Table]:
    """Return a table of the trials of each tuned entry, and one of their expected best results, if they compare."""
    tuned = tuned_rows(entries)
    shown = []
    for label, tuning in tuned.items():
        shown.append(_trials_table(label, tuning))
    if len(tuned) > 1 and comparable(entries):
        shown.append(_best_table(tuned))
    return shown


def _trials_table(label: str, tuning: Tuning) -> Table:
    names = list(tuning.space)
    columns = (*names, _heading(tuning), "95 % interval, ±", "")
    rows = []
    trials = enumerate(tuning.trials)
    for place, trial in sorted(trials, key=lambda numbered: list(map(_order, numbered[1].settings.values()))):
        mark = "chosen" if place == tuning.chosen else ""
        if trial.missing is not None:
            mark = "no result"
        settings = [str(trial.settings[name]) for name in names]
        results = _result(tuning, trial.value), _result(tuning, trial.half_width)
        rows.append(tuple(map(Cell, [*settings, *results, mark])))
    title = f"{label}, {len(rows)} trials ({tuning.sampler})"
    return Table(title=clean(title), columns=columns, rows=tuple(rows), left=("",))


def _best_table(tuned: Mapping[str, Tuning]) -> Table:
    curves = {label: curve(tuning) for label, tuning in tuned.items()}
    rows = []
    first = next(iter(tuned.values()))
    for trials, bests in enumerate(zip(*curves.values(), strict=True), 1):
        results = [_result(first, best) for best in bests]
        rows.append(tuple(map(Cell, [str(trials), *results])))
    title = f"Expected best by the number of trials: {_heading(first)}"
    columns = ("trials", *map(clean, tuned))
    return Table(
        title=title, columns=columns, rows=tuple(rows), below=(clean(_ahead(curves, first.higher_is_better)), AVERAGED)
    )


def _heading(tuning: Tuning) -> str:
    return clean(f"{tuning.metric} {unit_label([tuning])}, validation data")


def _result(tuning: Tuning, value: float | None) -> str:
    return ABSENT if value is None else plain(value, tuning.unit, 2)


def _order(value: Any) -> tuple[int, Any]:
    """Return a key that sorts numbers before text."""
    if isinstance(value, (int, float)):
        return (0, value)
    return (1, str(value))


def tuning_panels(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return a panel for each tuned setting, with the result of each trial, and one for the expected best."""
    tuned = tuned_rows(entries)
    series = list(tuned)
    heading = _heading(next(iter(tuned.values())))
    names: dict[str, None] = {}
    best = []
    for label, tuning in tuned.items():
        names.update(dict.fromkeys(tuning.space))
        for trials, mean in enumerate(curve(tuning), 1):
            if mean is not None:
                best.append({"series": label, "trials": trials, "value": mean * scale(tuning.unit)})
    panels = []
    for name in names:
        points = _points(tuned, name)
        panels.append(panel(name, points, _setting_layers(points, name, heading), series))
    encoding = {"x": axis("trials", "trials"), "y": axis("value", heading)}
    layers = [{"mark": {"type": "line", "point": True}, "encoding": encoding}]
    return [*panels, panel("Expected best of n trials", best, layers, series)]


def _points(tuned: Mapping[str, Tuning], name: str) -> list[dict[str, Any]]:
    points = []
    for label, tuning in tuned.items():
        factor = scale(tuning.unit)
        for place, trial in enumerate(tuning.trials):
            if trial.value is None or name not in trial.settings:
                continue
            point = {"series": label, "setting": trial.settings[name], "value": trial.value * factor}
            point["chosen"] = place == tuning.chosen
            if trial.half_width is not None:
                point["low"] = (trial.value - trial.half_width) * factor
                point["high"] = (trial.value + trial.half_width) * factor
            points.append(point)
    return points


def _setting_layers(points: Sequence[Mapping[str, Any]], name: str, heading: str) -> list[dict[str, Any]]:
    values = [point["setting"] for point in points]
    x: dict[str, Any] = {"field": "setting", "type": "nominal", "title": name}
    if all(isinstance(value, (int, float)) for value in values):
        x = axis("setting", name)
        if min(values) > 0 and max(values) >= 10 * min(values):
            x["scale"] = {"type": "log"}
    y = axis("value", heading)
    interval = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
    size = {"condition": {"test": "datum.chosen", "value": 110}, "value": 35}
    return [
        {"transform": known("low"), "mark": {"type": "rule", "opacity": 0.5}, "encoding": interval},
        {"mark": {"type": "point", "filled": True}, "encoding": {"x": x, "y": y, "size": size}},
    ]
