"""A log of inspect_ai in JSON as an Evaluation. Its shape is that of `inspect_ai/log/_log.py`, version 2 (0.3.285).

inspect itself is not needed. A log in its own `.eval` format becomes JSON by `inspect log convert --to json`.

The value of a sample is the one among the log's `reductions`, or else the mean over its epochs; values count as in
`value_to_float` of `inspect_ai/scorer/_metric.py`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from emobench.core.errors import DataError
from emobench.data.sampling_units import content_digest
from emobench.exchange.evaluation import (
    UNNAMED,
    Evaluation,
    Fields,
    Json,
    Measured,
    Samples,
    at,
    count_of,
    digest_of,
    entry_facts,
    is_mean,
    known_direction,
    listed,
    mapping,
    named_model,
    normal_interval,
    text_of,
)
from emobench.exchange.lm_eval import ModelArguments
from emobench.tasks.lm_eval_numbers import Values, clip, number, task_name

FORMAT = "inspect"
MEANS = ("accuracy", "mean")
"""Metrics that are the mean of the samples' scores."""
NO_MEAN = "it is no mean of its samples"
REDUCERS = re.compile(r"mean|median|mode|max|(at_least|pass_at|pass_k)_[1-9]\d*")
"""inspect's own reducers of epochs: if a higher value is better, so is a higher reduced one."""
LIMITS = (
    "limit", "sample_id", "epochs", "message_limit", "token_limit", "token_limit_type", "turn_limit",
    "time_limit", "working_limit", "cost_limit",
)  # fmt: skip
"""Settings of an evaluation that decide its numbers. The reducers of epochs are part of the metrics' names."""
GRADED, GRADER = "model_graded", "grader"
"""The beginning of the names of inspect's scorers that ask a model, and the role of that model."""
WITHOUT_EFFECT = {
    "max_connections", "adaptive_connections", "max_retries", "timeout", "attempt_timeout", "batch",
    "cache", "cache_prompt", "logprobs", "top_logprobs", "extra_headers",
}  # fmt: skip
"""Settings of a generation that change no answer. All others are taken to decide the numbers."""
LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""What scorers write for correct, partial, incorrect and no answer."""
WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
"""Words for right and wrong, in upper or lower case."""

Epochs = Mapping[str, Sequence[Any]]
"""Sample -> its values in its epochs, as in the log."""


def is_inspect_log(data: Json) -> bool:
    return "status" in data and "task" in mapping(data, "eval")


def inspect_evaluation(path: Path, data: Json) -> Evaluation:
    """Return the evaluation of a log. Raises DataError for one that did not finish, or without scores."""
    status = clip(str(data["status"]), 20)
    if status == "success" and data.get("invalidated"):
        status = "invalidated"
    if status != "success":
        raise DataError(f"{path}: its status is {status!r}; expected a log whose evaluation is a success.")
    spec = mapping(data, "eval")
    task = task_name(str(data["eval"]["task"]))
    rows = _samples(path, data)
    samples = Samples()
    for row in rows:
        sample = str(row["id"])
        shown = _input(row)
        samples.contents[sample] = samples.prompts[sample] = digest_of([*shown, row.get("target")])
        samples.inputs[sample] = [content_digest(shown)]
    scores = listed(data, "results", "scores")
    arguments = ModelArguments({"config": {"model_args": spec.get("model_args")}})
    model, version = clip(str(spec.get("model") or UNNAMED)), text_of(spec, "packages", "inspect_ai")
    prompts, rules = {task: samples.renamed(samples.prompts)}, {task: _rules(data, spec, scores)}
    facts = entry_facts(path, "log of inspect", FORMAT, version, rules, prompts)
    row = named_model(path, model, arguments.variant, slashes=2)  # the name begins with the provider
    read = Evaluation(
        path=path,
        format=FORMAT,
        model=model,
        variant=arguments.variant,
        row=row,
        created=text_of(spec, "created"),
        **facts,
    )
    read.precision = arguments.precision | arguments.deciding | _own_grader(spec, scores)
    for score in scores:
        of_epochs = epoch_values(rows, score)
        for metric in mapping(score, "metrics"):
            value = number(at(score, "metrics", metric, "value"))
            if value is None or metric.endswith(("stderr", "std", "var")):
                continue
            name = f"{task}/{_metric_name(score, metric, scores)}"
            if name in read.numbers:
                raise DataError(f"{path}: two numbers are called {name!r}; keep one.")
            values = _values(data, score, metric, value, of_epochs)
            count = count_of(score.get("scored_samples"))
            if isinstance(values, str):
                read.without[name] = values
                if count is None:
                    count = len(of_epochs)
            else:
                read.examples[name] = samples.recorded(values)
                count = len(values)
            share = metric == "accuracy" and 0 <= value <= 1
            interval = None
            if metric in MEANS:
                error = number(at(score, "metrics", "stderr", "value"))
                interval = normal_interval(value, error, fraction=share)
            read.numbers[name] = Measured(
                value=value,
                unit="fraction" if share else "score",
                higher_is_better=_direction(score, metric, of_epochs),
                n=count or None,
                interval=interval,
            )
            unscored = len(samples.names) - len(of_epochs)
            note = f"{clip(str(score.get('name')), 60)}: {unscored} of {len(samples.names)} samples have no score"
            if unscored and note not in read.notes:
                read.notes.append(note)
    if not read.numbers:
        raise DataError(f"{path}: has no number under `results`; expected a log with scores.")
    return read


def _samples(path: Path, data: Json) -> list[Json]:
    """Return the samples of a log. Raises DataError for samples without an id of their own."""
    samples = listed(data, "samples")
    seen = set()
    for sample in samples:
        epoch = sample.get("epoch", 1)
        if "id" not in sample or "input" not in sample or not isinstance(epoch, int):
            raise DataError(f"{path}: a sample has no `id`, `input` or whole `epoch`; expected a log of inspect_ai.")
        if (str(sample["id"]), epoch) in seen:
            raise DataError(f"{path}: a sample appears twice in one epoch; keep one.")
        seen.add((str(sample["id"]), epoch))
    return samples


def _input(sample: Json) -> list[Any]:
    """Return what a sample asks: its input, without the ids that inspect draws for messages, choices and sandbox."""
    shown = sample["input"]
    if isinstance(shown, list):
        shown = [[at(message, "role"), at(message, "content")] for message in shown]
    return [shown, *map(sample.get, ("choices", "files", "setup", "sandbox"))]


def _metric_name(score: Json, metric: str, scores: Sequence[Json]) -> str:
    """Return the name of a metric: the score, the metric, and the reducer of its epochs if the log names one.

    A score whose name several scorers have, such as a key of their values, has its scorer's name in front.
    """
    name = str(score.get("name"))
    scorers = set()
    for one in scores:
        if str(one.get("name")) == name:
            scorers.add(str(one.get("scorer")))
    if len(scorers) > 1:
        name = f"{score.get('scorer')}.{name}"
    parts = [name, metric]
    if score.get("reducer") is not None:
        parts.append(str(score["reducer"]))
    return ",".join(map(task_name, parts))


def _direction(score: Json, metric: str, of_epochs: Epochs) -> bool | None:
    """Return whether a higher value is better: by the metric's name, or of a mean by the scorer's name and values."""
    direction = known_direction(metric)
    if direction is not None or metric not in MEANS or not REDUCERS.fullmatch(str(score.get("reducer") or "mean")):
        return direction
    graded: list[Any] = []
    for values in of_epochs.values():
        graded += values
    if graded and all(isinstance(value, str) and value in LETTERS for value in graded):
        return True
    named = known_direction(str(score.get("name")))
    if named is None:
        return known_direction(str(score.get("scorer")))
    return named


def _values(data: Json, score: Json, metric: str, value: float, of_epochs: Epochs) -> Values | str:
    """Return sample -> (value over its epochs, weight) where their mean is the metric, or else why there are none.

    Each sample counts once, or once for each of its epochs where inspect did not reduce them.
    """
    if at(score, "metrics", metric, "group") is not None:
        return "it is one of several values of a metric"
    if metric not in MEANS:
        return NO_MEAN
    if not of_epochs:
        return "the log has no samples with scores; evaluate without --no-log-samples"
    reducer = score.get("reducer")
    means = {}
    by_epochs = {}
    for sample, values in of_epochs.items():
        floats = [one for one in map(to_float, values) if one is not None]
        mean = math.fsum(floats) / len(floats)
        means[sample], by_epochs[sample] = (mean, 1.0), (mean, float(len(floats)))
    candidates = [_reductions(data, score, of_epochs)]
    if reducer in (None, "mean"):
        candidates.append(means)
    if reducer is None:
        candidates.append(by_epochs)
    for pairs in candidates:
        if is_mean(pairs, value):
            return pairs
    return NO_MEAN if len(candidates) > 1 else f"the log has no such `reductions` by {clip(str(reducer), 40)}"


def _rules(data: Json, spec: Json, scores: Sequence[Json]) -> Fields:
    """Return the facts that decide numbers beside model and samples: the task's version, arguments, solvers, limits."""
    steps = [[step.get("solver"), step.get("params")] for step in listed(data, "plan", "steps")]
    # The settings of the model, and before them those of the task.
    generation = {**mapping(spec, "model_generate_config"), **mapping(data, "plan", "config")}
    for name in WITHOUT_EFFECT:
        generation.pop(name, None)
    roles = {name: at(role, "model") or role for name, role in mapping(spec, "model_roles").items()}
    rules: Fields = {"version": spec.get("task_version")}
    parts = {
        "arguments": spec.get("task_args") or {},
        "solvers": steps,
        "generation": generation,
        "model roles": roles,
    }
    for score in scores:
        if score.get("params"):
            parts[f"scorer {clip(str(score.get('scorer')), 60)}"] = score["params"]
    for name, part in parts.items():
        rules[name] = json.dumps(part, sort_keys=True)
    for name in LIMITS:
        if at(spec, "config", name) is not None:
            rules[name] = str(spec["config"][name])
    return rules


def _own_grader(spec: Json, scores: Sequence[Json]) -> dict[str, str]:
    """Return the evaluated model as the grader, which it is if a scorer of that kind names no other."""
    for score in scores:
        graded = str(score.get("scorer")).rpartition("/")[2].startswith(GRADED)
        if graded and not at(score, "params", "model") and GRADER not in mapping(spec, "model_roles"):
            return {"grader": clip(str(spec.get("model")))}
    return {}


def epoch_values(samples: Sequence[Json], score: Json) -> dict[str, list[Any]]:
    """Return the values of each sample that was scored, in the order of its epochs, by the sample's id."""
    of_epochs = {}
    for sample in sorted(samples, key=lambda sample: sample.get("epoch", 1)):
        scores = mapping(sample, "scores")
        of_scorer = scores.get(str(score.get("scorer"))) or scores.get(str(score.get("name")))
        value = _part(at(of_scorer, "value"), score)
        if to_float(value) is not None:
            of_epochs.setdefault(str(sample["id"]), []).append(value)
    return of_epochs


def _reductions(data: Json, score: Json, of_epochs: Epochs) -> Values:
    """Return the reduced values that a log itself holds for a score, of the samples that it holds."""
    reduced = {}
    for reduction in listed(data, "reductions"):
        if (reduction.get("scorer"), reduction.get("reducer")) != (score.get("scorer"), score.get("reducer")):
            continue
        for sample in listed(reduction, "samples"):
            value = to_float(_part(sample.get("value"), score))
            name = str(sample.get("sample_id"))
            if value is not None and name in of_epochs:
                reduced[name] = value, 1.0
    return reduced


def _part(value: Any, score: Json) -> Any:
    """Return a scorer's value, or the part with the score's name if it has several."""
    return value.get(str(score.get("name"))) if isinstance(value, Mapping) else value


def to_float(value: Any) -> float | None:
    """Return a scorer's value as a number; None for a list, a mapping, NaN (not scored) and any other text."""
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        return number(value)
    graded = LETTERS.get(value, WORDS.get(value.lower()))
    if graded is not None:
        return graded
    try:
        return number(float(value))
    except ValueError:
        return None
