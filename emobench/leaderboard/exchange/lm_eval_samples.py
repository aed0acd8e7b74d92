"""Per-example results from the samples_*.jsonl that lm-evaluation-harness writes beside its results (--log_samples)."""

from __future__ import annotations

import glob
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from emobench.errors import DataError
from emobench.leaderboard.exchange.lm_eval_file import Measured, ResultsFile, clip, mapping, metric_name, number

LONGEST_LINE = 64 * 2**20
Values = dict[str, tuple[float, float]]
"""Example -> (value, weight)."""


def read_samples(results: ResultsFile) -> dict[str, Values]:
    """Return metric name -> example -> (value, weight), of the metrics whose mean the file's number is.

    A corpus score (F1, BLEU) is no mean of examples, and has none. An example is known by its number and the hash of
    its document, so that other documents are never taken for its twin. Raises DataError with the line that is none.
    """
    stamp = results.path.stem.rpartition("_")[2]
    raw: dict[str, dict[str, Any]] = {}
    for path in sorted(results.path.parent.glob(f"samples_*_{glob.escape(stamp)}.jsonl")):
        task = path.name.removeprefix("samples_").removesuffix(f"_{stamp}.jsonl")
        for where, row in _rows(path):
            _collect(raw, task, row, where)
    measured = {m.name: m for m in results.measured() if m.value is not None}
    found = {name: _examples(measured[name], rows) for name, rows in raw.items() if name in measured}
    return {name: values for name, values in found.items() if values}


def _collect(raw: dict[str, dict[str, Any]], task: str, row: Mapping[str, Any], where: str) -> None:
    names = row.get("metrics")
    example = "-".join(filter(None, [str(row.get("doc_id")), str(row.get("doc_hash") or "")[:12]]))
    if row.get("doc_id") is None or not isinstance(names, list):
        raise DataError(f"{where}: expected a sample of lm_eval with `doc_id` and `metrics`.")
    for metric in names:
        rows = raw.setdefault(metric_name(task, str(metric), str(row.get("filter", "none"))), {})
        if clip(example, 60) in rows:
            raise DataError(f"{where}: the example {clip(example, 60)!r} of {metric} stands there twice; keep one.")
        rows[clip(example, 60)] = row.get(str(metric))


def _examples(measured: Measured, rows: Mapping[str, Any]) -> Values | None:
    """Return a metric's examples on the scale on which their mean gives its value; None where it gives another."""
    perplexity, bits = measured.unit == "perplexity", measured.metric == "bits_per_byte"
    values: Values = {}
    for example, value in rows.items():
        pair = value if isinstance(value, list) and len(value) == 2 else [value, 1]
        amount, weight = (float(x) if isinstance(x, bool) else number(x) for x in pair)
        if amount is None or weight is None or weight <= 0 or (pair is value and not (perplexity or bits)):
            return None
        scale = -1 / (weight * (math.log(2) if bits else 1)) if perplexity or bits else 1.0
        values[example] = (amount * scale, weight)
    total = math.fsum(weight for _, weight in values.values())
    mean = math.fsum(value * weight for value, weight in values.values()) / total
    try:
        aggregate = math.exp(mean) if perplexity else mean
    except OverflowError:
        return None
    return values if math.isclose(aggregate, measured.value or 0.0, rel_tol=1e-6, abs_tol=1e-9) else None


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    count = 0
    try:
        with path.open(encoding="utf-8") as file:
            while line := file.readline(LONGEST_LINE):
                count += 1
                row = mapping(json.loads(line))
                yield f"{path}:{count}", row
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}:{count}: no JSON of a sample ({clip(str(error), 80)}); it may be truncated.") from None
