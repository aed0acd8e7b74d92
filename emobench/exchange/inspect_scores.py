"""The value of each sample of an inspect log, reduced over its epochs as inspect's own reducers do it.

Source: `inspect_ai/scorer/_metric.py` (`value_to_float`) and `_reducer/reducer.py` of 0.3.285.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from emobench.exchange.json_files import listed, mapping
from emobench.tasks.lm_eval_numbers import number

LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""What scorers write for correct, partial, incorrect and no answer."""
WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
"""Words for right and wrong, in upper or lower case."""
RIGHT = 1.0
"""The value from which on reducers with a number count an epoch as right."""

Reducer = Callable[[Sequence[Any]], float | None]
"""The values of a sample in its epochs, as in the log -> one value, or None if it is not defined."""


def to_float(value: Any) -> float | None:
    """Return a scorer's value as a number; None for a list, a mapping, NaN (not scored) and any other text."""
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        return number(value)
    found = LETTERS.get(value, WORDS.get(value.lower()))
    if found is not None:
        return found
    try:
        return number(float(value))
    except ValueError:
        return None


def reducer_of(name: Any) -> Reducer | None:
    """Return the reducer that a log names, which is the mean if it names none; None for one that is not known."""
    if name is None:
        return _mean
    if not isinstance(name, str):
        return None
    simple = {"mean": _mean, "median": _median, "mode": _mode, "max": _max}.get(name)
    parts = re.fullmatch(r"(at_least|pass_at|pass_k)_([1-9]\d{0,8})", name)
    if simple is not None or parts is None:
        return simple
    counted, k = _COUNTED[parts[1]], int(parts[2])

    def reduce(values: Sequence[Any]) -> float | None:
        floats = _floats(values)
        return counted(len(floats), sum(value >= RIGHT for value in floats), k)

    return reduce


def epoch_values(samples: Sequence[Mapping[str, Any]], score: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the values of each sample that was scored, in the order of its epochs, by the sample's id."""
    found: dict[str, list[Any]] = {}
    for sample in sorted(samples, key=lambda sample: sample.get("epoch", 1)):
        scores = mapping(sample.get("scores"))
        of_scorer = scores.get(str(score.get("scorer"))) or scores.get(str(score.get("name")))
        value = _part(mapping(of_scorer).get("value"), score)
        if to_float(value) is not None:
            found.setdefault(str(sample["id"]), []).append(value)
    return found


def recorded_reductions(data: Mapping[str, Any], score: Mapping[str, Any]) -> dict[str, float]:
    """Return the reduced values that a log itself holds for a score, by the sample's id."""
    found = {}
    for reduction in listed(data.get("reductions")):
        if (reduction.get("scorer"), reduction.get("reducer")) != (score.get("scorer"), score.get("reducer")):
            continue
        for sample in listed(reduction.get("samples")):
            value = to_float(_part(sample.get("value"), score))
            if value is not None:
                found[str(sample.get("sample_id"))] = value
    return found


def _part(value: Any, score: Mapping[str, Any]) -> Any:
    """Return a scorer's value, or the part with the score's name if it has several."""
    return value.get(str(score.get("name"))) if isinstance(value, Mapping) else value


def _floats(values: Sequence[Any]) -> list[float]:
    return [found for value in values if (found := to_float(value)) is not None]


def _mean(values: Sequence[Any]) -> float | None:
    found = _floats(values)
    return math.fsum(found) / len(found) if found else None


def _median(values: Sequence[Any]) -> float | None:
    found = _floats(values)
    return statistics.median(found) if found else None


def _max(values: Sequence[Any]) -> float | None:
    return max(_floats(values), default=None)


def _mode(values: Sequence[Any]) -> float | None:
    """Return the most frequent value; of equally frequent ones the first, as inspect does."""
    return to_float(Counter(values).most_common(1)[0][0]) if values else None


def _at_least(total: int, right: int, k: int) -> float | None:
    return float(right >= k) if total else None


def _pass_at(total: int, right: int, k: int) -> float | None:
    """Return the probability that at least one of k epochs, drawn without replacement, is right (Chen et al., 2021)."""
    return None if total < k else 1 - math.comb(total - right, k) / math.comb(total, k)


def _pass_k(total: int, right: int, k: int) -> float | None:
    """Return the probability that all of k epochs, drawn without replacement, are right (Yao et al., 2024)."""
    return None if total < k else math.comb(right, k) / math.comb(total, k)


_COUNTED = {"at_least": _at_least, "pass_at": _pass_at, "pass_k": _pass_k}
