"""Tables of scores from any evaluation, with a row for each example: a file, or a data frame of pandas.

The columns `example` (its name: examples of one name in two tables are compared) and `score` (a finite number, true or
false) are required. A table may also have `task` and `metric`; `seed`, that of the training; and `unit`, what was
sampled, such as the document of a question. Other columns are not read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emobench.core.errors import ConfigError, DataError
from emobench.data.rows import Row, Rows, require_columns, shown
from emobench.exchange.evaluation import HIGHER, Evaluation, Measured, TaskFacts, known_direction
from emobench.leaderboard.run_files import Recorded
from emobench.tasks.lm_eval_numbers import clip, task_name

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "table"
SUFFIXES = (".csv", ".jsonl", ".parquet")
REQUIRED = ("example", "score")
TASK, METRIC = "examples", "score"
"""The task and the metric of a table that names none."""
WORDS: dict[str, Any] = {"true": 1.0, "false": 0.0}
MOST_ROWS = 5_000_000


@dataclass
class Scores:
    """The scores of one seed: by task, metric and example, and the units by task and example."""

    values: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    units: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, row: Row, where: str) -> None:
        """Add a row. Raises DataError for one without an example or a finite score, and for one that is there."""
        require_columns(row, REQUIRED, where)
        task = task_name(_text(row, "task") or TASK)
        metric = task_name(_text(row, "metric") or METRIC)
        example = _text(row, "example")
        if not example:
            raise DataError(f'{where}: "example" is blank; expected a name or a number.')
        scores = self.values.setdefault((task, metric), {})
        if example in scores:
            raise DataError(
                f"{where}: the example {clip(example, 60)!r} has a second {metric} of {task}; expected one for each "
                "seed, in the column `seed`."
            )
        scores[example] = _score(row["score"], where)
        units = self.units.setdefault(task, {})
        unit = _text(row, "unit")
        if unit and units.setdefault(example, unit) != unit:
            raise DataError(f"{where}: the example {clip(example, 60)!r} has two units; expected one.")


def is_table(text: str) -> bool:
    """Return whether the name of a result file is that of a table, and not of lm_eval's samples."""
    path = Path(text)
    return path.suffix in SUFFIXES and not path.name.startswith("samples_")


def frame_evaluation(name: str, frame: pd.DataFrame) -> Evaluation:
    """Return the scores of a data frame, which is called `name`, as an evaluation. Raises ConfigError or DataError."""
    if not hasattr(frame, "to_dict"):
        raise ConfigError(f"{name} is of type {type(frame).__name__}; expected a name, a file or a pandas data frame.")
    rows: Sequence[Mapping[Any, Any]] = frame.to_dict("records")
    placed = ((f"{name}, row {number}", {**row}) for number, row in enumerate(rows))
    return table_evaluation(Path(name), placed)


def table_evaluation(path: Path, rows: Rows) -> Evaluation:
    """Return the scores in rows as an evaluation, which has one for each seed if rows name seeds. Raises DataError."""
    by_seed: dict[int | None, Scores] = {}
    for count, (where, row) in enumerate(rows):
        if count == MOST_ROWS:
            raise DataError(f"{path} has more than {MOST_ROWS:,} rows.")
        by_seed.setdefault(_seed(row, where), Scores()).add(row, where)
    if not by_seed:
        raise DataError(f"{path} has no rows; expected the columns {' and '.join(REQUIRED)}.")
    if None in by_seed and len(by_seed) > 1:
        raise DataError(f"{path}: some rows have a seed and others have none; give each row one.")
    evaluations = {seed: _evaluation(path, scores) for seed, scores in by_seed.items()}
    read = next(iter(evaluations.values()))
    read.seeds = {seed: evaluation for seed, evaluation in sorted(evaluations.items(), key=str) if seed is not None}
    return read


def _evaluation(path: Path, scores: Scores) -> Evaluation:
    """Return the scores of one model as an evaluation."""
    row = {"name": path.stem, "source": path.name}
    read = Evaluation(path=path, format=FORMAT, harness=FORMAT, model=path.stem, row=row, cite=f"table {path.name}")
    for (task, metric), values in scores.values.items():
        recorded = {}
        for example, value in values.items():
            recorded[example] = value, 1.0
        read.examples[f"{task}/{metric}"] = Recorded(recorded, scores.units[task])
        read.numbers[f"{task}/{metric}"] = _measured(metric, list(values.values()))
        read.tasks[task] = TaskFacts()
    return read


def _measured(metric: str, values: Sequence[float]) -> Measured:
    """Return the mean of scores: a fraction of right or wrong answers, and of a metric that has this unit."""
    direction = known_direction(metric)
    if metric == METRIC:
        direction = True
    fraction = metric.lower() in HIGHER and 0 <= min(values) <= max(values) <= 1
    unit = "score"
    if fraction or set(values) <= {0.0, 1.0}:
        unit = "fraction"
    mean = math.fsum(values) / len(values)
    return Measured(value=mean, unit=unit, higher_is_better=direction, n=len(values))


def _text(row: Row, column: str) -> str:
    """Return a name or a number as text; empty for a column that is absent or blank."""
    value = row.get(column)
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        if value.is_integer():
            value = int(value)
    return "" if value is None else str(value).strip()


def _seed(row: Row, where: str) -> int | None:
    if "seed" not in row:
        return None
    text = _text(row, "seed")
    if not text.isdecimal() or int(text) >= 2**32:
        raise DataError(f'{where}: "seed" must be a number from 0 to 2**32 - 1, got {shown(row["seed"])}.')
    return int(text)


def _score(value: Any, where: str) -> float:
    """Return a score as a number. Raises DataError for a text, NaN and infinity."""
    try:
        score = float(WORDS.get(str(value).lower(), value))
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        raise DataError(
            f'{where}: "score" must be a finite number, got {shown(value)}. Leave rows without a score out.'
        )
    return score
