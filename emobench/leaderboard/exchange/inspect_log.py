"""A log of inspect_ai in JSON as an Evaluation. Its shape is that of `inspect_ai/log/_log.py`, version 2 (0.3.285).

inspect itself is not needed. A log in its own `.eval` format becomes JSON by `inspect log convert --to json`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from emobench.data.sampling_units import joined_units
from emobench.errors import DataError
from emobench.leaderboard.exchange.evaluation import Evaluation, Measured, by_content
from emobench.leaderboard.exchange.json_files import listed, mapping
from emobench.leaderboard.schema.examples import Recorded
from emobench.leaderboard.stats.distributions import NORMAL
from emobench.tasks.lm_eval_numbers import clip, number, task_name

LETTERS = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
"""What scorers of inspect write in place of a number: correct, partial, incorrect, no answer (`value_to_float`)."""
MEANS = ("accuracy", "mean")
"""Metrics that are the mean of the samples' scores."""
LIMITS = (
    "limit",
    "sample_id",
    "epochs",
    "epochs_reducer",
    "message_limit",
    "token_limit",
    "time_limit",
    "working_limit",
)
"""Settings of an evaluation that decide its numbers."""


def is_inspect_log(data: Mapping[str, Any]) -> bool:
    return isinstance(data.get("eval"), Mapping) and "status" in data and "task" in data["eval"]


def inspect_evaluation(path: Path, data: Mapping[str, Any]) -> Evaluation:
    """Return what a log says. Raises DataError for one that did not finish, or without scores."""
    if data["status"] != "success" or data.get("invalidated"):
        status = "invalidated" if data["status"] == "success" else clip(str(data["status"]), 20)
        raise DataError(f"{path}: its status is {status!r}; expected a log whose evaluation is a success.")
    spec, task = mapping(data["eval"]), task_name(str(data["eval"]["task"]))
    samples = listed(data.get("samples"))
    if any("id" not in sample or "input" not in sample for sample in samples):
        raise DataError(f"{path}: a sample has no `id` or no `input`; expected a log of inspect_ai.")
    if len({(str(sample["id"]), sample.get("epoch", 1)) for sample in samples}) < len(samples):
        raise DataError(f"{path}: a sample is there twice in one epoch; keep one.")
    units = by_content({str(sample["id"]): _content(sample) for sample in samples})
    of_epoch = {f"{units[str(s['id'])]} epoch {s.get('epoch', 1)}": s for s in samples}
    inputs = {example: [_digest(_input(s))] for example, s in of_epoch.items()}
    sampled = joined_units(inputs, {example: units[str(s["id"])] for example, s in of_epoch.items()})
    numbers, examples = {}, {}
    for score, metric, value in _metrics(data):
        name = f"{task}/{task_name(str(score.get('name')))},{task_name(metric)}"
        found = {example: _value(s, score) for example, s in of_epoch.items()}
        values = {example: (one, 1.0) for example, one in found.items() if one is not None}
        numbers[name] = _measured(score, metric, value, len(units) or None)
        if metric in MEANS and len(values) == len(found) > 0 and _is_mean(values, value):
            examples[name] = Recorded(values, sampled)
    if not numbers:
        raise DataError(f"{path}: has no number under `results`; expected a log with scores.")
    return Evaluation(
        path=path,
        format="inspect",
        harness="inspect",
        version=mapping(spec.get("packages")).get("inspect_ai"),
        model=clip(str(spec.get("model") or "unnamed")),
        numbers=numbers,
        examples=examples,
        prompts={task: {units[str(sample["id"])]: _content(sample) for sample in samples}},
        rules={task: _rules(data, spec)},
        created=created if isinstance(created := spec.get("created"), str) else None,
    )


def _metrics(data: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str, float]]:
    """Yield the score, name and value of each metric but standard errors."""
    for score in listed(mapping(data.get("results")).get("scores")):
        for metric, found in mapping(score.get("metrics")).items():
            value = number(mapping(found).get("value"))
            if value is not None and not metric.endswith(("stderr", "std", "var")):
                yield score, metric, value


def _measured(score: Mapping[str, Any], metric: str, value: float, n: int | None) -> Measured:
    error = number(mapping(mapping(score.get("metrics")).get("stderr")).get("value")) if metric in MEANS else None
    share = metric == "accuracy"
    low, high = (value - NORMAL * error, value + NORMAL * error) if error else (0.0, 0.0)
    return Measured(
        value=value,
        unit="fraction" if share and 0 <= value <= 1 else "score",
        higher_is_better=True if share else None,
        n=n,
        interval=((max(low, 0.0), min(high, 1.0)) if share else (low, high)) if error else None,
    )


def _value(sample: Mapping[str, Any], score: Mapping[str, Any]) -> float | None:
    """Return the value of a sample by a scorer, or of the part of a scorer's values that has this name."""
    scores = mapping(sample.get("scores"))
    value = mapping(scores.get(str(score.get("scorer"))) or scores.get(str(score.get("name")))).get("value")
    if isinstance(value, Mapping):
        value = value.get(score.get("name"))
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        return LETTERS.get(value.lower())
    return number(value)


def _is_mean(values: Mapping[str, tuple[float, float]], value: float) -> bool:
    return math.isclose(math.fsum(v for v, _ in values.values()) / len(values), value, rel_tol=1e-6, abs_tol=1e-9)


def _content(sample: Mapping[str, Any]) -> str:
    """Return a digest of a sample's input and target."""
    return _digest([*_input(sample), sample.get("target")])


def _input(sample: Mapping[str, Any]) -> list[Any]:
    """Return a sample's input, without the ids that inspect draws for messages, and its choices."""
    shown = sample["input"]
    if isinstance(shown, list):
        shown = [[mapping(message).get("role"), mapping(message).get("content")] for message in shown]
    return [shown, sample.get("choices")]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode(errors="replace")).hexdigest()


def _rules(data: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides the numbers beside model and samples: the task's version, arguments, solvers and limits."""
    config = mapping(spec.get("config"))
    steps = [[step.get("solver"), step.get("params")] for step in listed(mapping(data.get("plan")).get("steps"))]
    return {
        "version": spec.get("task_version"),
        "arguments": json.dumps(spec.get("task_args") or {}, sort_keys=True),
        "solvers": json.dumps(steps, sort_keys=True),
        "generation": json.dumps(mapping(data.get("plan")).get("config") or {}, sort_keys=True),
        **{name: str(config[name]) for name in LIMITS if config.get(name) is not None},
    }
