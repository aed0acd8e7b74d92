"""Read a training's `log.jsonl` as curves: each logged number by optimizer step.

The training may still run or be interrupted. Logs of older versions contain fewer numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from emobench.core.errors import DataError
from emobench.core.reading import number_of, parse_json

LOG = "log.jsonl"
_VALIDATION = {"eval_mle": "validation mle", "eval_objective": "validation objective"}
_CLOCK = {"step", "steps", "epoch", "tokens", "seconds", "tokens_per_second"}
_LAST = ("grad_norm", "learning_rate")
MOST_STEPS = 10**12
"""Steps of a log; more is no training."""

Curve = Mapping[int, float]
"""Optimizer step, from 1 -> value. Values may be NaN or infinite."""


@dataclass(frozen=True)
class TrainingCurves:
    """The log of one training."""

    curves: Mapping[str, Curve]
    """Part of the loss, or "validation mle" -> its curve, in the order of display."""
    done: int
    """The last logged step."""
    steps: int
    """Number of steps of the whole training."""


def read_curves(folder: Path) -> TrainingCurves:
    """Read the log in a training's folder. Raises DataError if it is missing or empty."""
    path = folder / LOG
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); expected the log of a training.") from None
    curves: dict[str, dict[int, float]] = {}
    steps = 0
    for number, line in enumerate(lines, 1):
        numbers = _numbers(line)
        if numbers is None:
            if number == len(lines):  # incomplete: it is being written, or the process was killed
                break
            raise DataError(f"{path}:{number}: expected a line of JSON with `step`; the log was altered.")
        steps = max(steps, int(numbers.get("steps", 0)))
        for name, value in numbers.items():
            shown = _VALIDATION.get(name)
            if "loss" in numbers and name not in _CLOCK:
                shown = name
            if shown is not None:
                curves.setdefault(shown, {})[int(numbers["step"])] = value
    if not curves:
        raise DataError(f"{path}: no step is logged yet.")
    if curves.get("validation objective") == curves.get("validation mle"):
        # Equal to MLE unless the recipe selects by the objective.
        curves.pop("validation objective", None)
    curves = {name: dict(sorted(curves[name].items())) for name in sorted(curves, key=_sort_key)}
    done = max(max(curve) for curve in curves.values())
    return TrainingCurves(curves, done, max(steps, done))


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """Return the mean of several seeds' curves at the steps that they share."""
    means: dict[int, float] = {}
    for step in curves[0]:
        values = [curve[step] for curve in curves if step in curve]
        if len(values) == len(curves):
            means[step] = sum(values) / len(values)
    return means


def averaged(curve: Curve, most: int) -> Curve:
    """Return a curve in at most `most` blocks of steps: last step -> mean of the finite values, NaN without one."""
    blocks: dict[int, float] = {}
    for part in np.array_split(list(curve), min(most, len(curve)) or 1):
        if not len(part):
            continue
        finite = [curve[step] for step in part if math.isfinite(curve[step])]
        blocks[int(part[-1])] = sum(finite) / len(finite) if finite else math.nan
    return blocks


def _numbers(line: str) -> dict[str, float] | None:
    """Return the numbers of a line by name; None if it is not a line of the log."""
    numbers: dict[str, float] = {}
    try:
        values = parse_json(line)
        for name, value in values.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                numbers[name] = number_of(value)
        if 0 <= numbers["step"] <= MOST_STEPS and 0 <= numbers.setdefault("steps", 0) <= MOST_STEPS:
            return numbers
    except (ValueError, AttributeError, KeyError):
        pass
    return None


def _sort_key(name: str) -> tuple[int, int]:
    """Sort the loss and its parts first, in the order of the log, then validation, then gradient norm and rate."""
    if name in _LAST:
        return 2, _LAST.index(name)
    return int(name in _VALIDATION.values()), 0
