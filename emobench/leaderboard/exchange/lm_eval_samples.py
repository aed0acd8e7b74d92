"""Per-example results from the samples_*.jsonl that lm-evaluation-harness writes beside its results (--log_samples)."""

from __future__ import annotations

import glob
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from emobench.errors import DataError
from emobench.leaderboard.exchange.lm_eval_file import ResultsFile, mapping
from emobench.leaderboard.schema.examples import Recorded
from emobench.reading import open_file, parse_json
from emobench.tasks.lm_eval_numbers import Measured, clip, example_id, example_values, sampling_units, task_name

LONGEST_LINE = 64 * 2**20


def read_samples(results: ResultsFile) -> dict[str, Recorded]:
    """Return metric name -> its examples and their sampling units, of the metrics whose mean the file's number is.

    A corpus score (F1, BLEU) is no mean of examples, and has none. An example is known by its number and the hash of
    its document, so that other documents are never taken for its twin. Raises DataError with the line that is none.
    """
    stamp = results.path.stem.rpartition("_")[2]
    raw: dict[str, dict[str, Any]] = {}
    documents: dict[str, dict[str, Any]] = {}
    for path in sorted(results.path.parent.glob(f"samples_*_{glob.escape(stamp)}.jsonl")):
        task = path.name.removeprefix("samples_").removesuffix(f"_{stamp}.jsonl")
        for where, row in _rows(path):
            _collect(raw, task, row, where)
            documents.setdefault(task_name(task), {})[example_id(row)] = row.get("doc")
    units = {task: sampling_units(of) for task, of in documents.items()}
    measured = {m.name: m for m in results.measured() if m.value is not None}
    found = {name: example_values(measured[name], rows) for name, rows in raw.items() if name in measured}
    return {name: Recorded(values, units[name.partition("/")[0]]) for name, values in found.items() if values}


def _collect(raw: dict[str, dict[str, Any]], task: str, row: Mapping[str, Any], where: str) -> None:
    names = row.get("metrics")
    example = example_id(row)
    if row.get("doc_id") is None or not isinstance(names, list):
        raise DataError(f"{where}: expected a sample of lm_eval with `doc_id` and `metrics`.")
    for metric in names:
        name = Measured(task, str(metric), str(row.get("filter", "none")), None, "", None).name
        rows = raw.setdefault(name, {})
        if example in rows:
            raise DataError(f"{where}: the example {example!r} of {metric} stands there twice; keep one.")
        rows[example] = row.get(str(metric))


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    count = 0
    try:
        with io.TextIOWrapper(open_file(path), encoding="utf-8") as file:
            while line := file.readline(LONGEST_LINE):
                count += 1
                row = mapping(parse_json(line))
                yield f"{path}:{count}", row
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise DataError(f"{path}:{count}: no JSON of a sample ({clip(str(error), 80)}); it may be truncated.") from None
