"""A log of inspect_ai in JSON as an Evaluation. Its shape is that of `inspect_ai/log/_log.py`, version 2 (0.3.285).

inspect itself is not needed. A log in its own `.eval` format becomes JSON by `inspect log convert --to json`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from emobench.core.errors import DataError
from emobench.data.sampling_units import content_digest, joined_units
from emobench.exchange.directions import known_direction
from emobench.exchange.evaluation import UNNAMED, Evaluation, Measured, by_content
from emobench.exchange.inspect_scores import LETTERS, epoch_values, recorded_reductions, reducer_of
from emobench.exchange.json_files import listed, mapping
from emobench.exchange.lm_eval_model import deciding_arguments, precision, variant
from emobench.leaderboard.run_files import Recorded
from emobench.leaderboard.stats.classical import NORMAL
from emobench.tasks.lm_eval_numbers import clip, number, task_name

MEANS = ("accuracy", "mean")
"""Metrics that are the mean of the samples' scores."""
NO_SAMPLES = "the log has no samples with scores"
LIMITS = (
    *("limit", "sample_id", "epochs", "message_limit", "token_limit", "token_limit_type", "turn_limit"),
    *("time_limit", "working_limit", "cost_limit"),
)
"""Settings of an evaluation that decide its numbers. The reducers of epochs are part of the metrics' names."""
GRADED, GRADER = "model_graded", "grader"
"""The beginning of the names of inspect's scorers that ask a model, and the role of that model."""
WITHOUT_EFFECT = {
    *("max_connections", "adaptive_connections", "max_retries", "timeout", "attempt_timeout", "batch"),
    *("cache", "cache_prompt", "logprobs", "top_logprobs", "extra_headers"),
}
"""Settings of a generation that change no answer. All others are taken to decide the numbers."""


def is_inspect_log(data: Mapping[str, Any]) -> bool:
    return isinstance(data.get("eval"), Mapping) and "status" in data and "task" in data["eval"]


def inspect_evaluation(path: Path, data: Mapping[str, Any]) -> Evaluation:
    """Return what a log says. Raises DataError for one that did not finish, or without scores."""
    if data["status"] != "success" or data.get("invalidated"):
        status = "invalidated" if data["status"] == "success" else clip(str(data["status"]), 20)
        raise DataError(f"{path}: its status is {status!r}; expected a log whose evaluation is a success.")
    spec, task = mapping(data["eval"]), task_name(str(data["eval"]["task"]))
    samples = _samples(path, data)
    contents = {str(sample["id"]): _content(sample) for sample in samples}
    units = by_content(contents)
    sampled = joined_units({units[str(sample["id"])]: [content_digest(_input(sample))] for sample in samples})
    numbers: dict[str, Measured] = {}
    examples: dict[str, Recorded] = {}
    without: dict[str, str] = {}
    notes: dict[str, None] = {}
    shared = _shared_names(data)
    for score, metric, value in _metrics(data):
        name = f"{task}/{_shown(score, metric, shared)}"
        if name in numbers:
            raise DataError(f"{path}: two numbers are called {name!r}; keep one.")
        of_epochs = epoch_values(samples, score)
        found = _values(data, score, metric, value, of_epochs)
        scored = number(score.get("scored_samples")) if isinstance(found, str) else len(found)
        numbers[name] = _measured(score, metric, value, of_epochs, len(of_epochs) if scored is None else scored)
        if isinstance(found, str):
            without[name] = found
        else:
            examples[name] = Recorded({units[sample]: pair for sample, pair in found.items()}, sampled)
        if len(of_epochs) < len(units):
            notes[f"{clip(str(score.get('name')), 60)}: {_unscored(samples, of_epochs)}"] = None
    if not numbers:
        raise DataError(f"{path}: has no number under `results`; expected a log with scores.")
    model = {"config": {"model_args": spec.get("model_args")}}
    version, created = mapping(spec.get("packages")).get("inspect_ai"), spec.get("created")
    return Evaluation(
        path=path,
        format="inspect",
        harness="inspect",
        version=clip(version) if isinstance(version, str) else None,
        model=clip(str(spec.get("model") or UNNAMED)),
        variant=variant(model),
        precision=precision(model) | deciding_arguments(model) | _own_grader(data, spec),
        numbers=numbers,
        examples=examples,
        without=without,
        notes=tuple(notes),
        prompts={task: {units[sample]: content for sample, content in contents.items()}},
        rules={task: _rules(data, spec)},
        created=created if isinstance(created, str) else None,
    )


def _samples(path: Path, data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the samples of a log. Raises DataError for samples that cannot be told apart."""
    samples = listed(data.get("samples"))
    seen = set()
    for sample in samples:
        if "id" not in sample or "input" not in sample:
            raise DataError(f"{path}: a sample has no `id` or no `input`; expected a log of inspect_ai.")
        epoch = sample.get("epoch", 1)
        if not isinstance(epoch, int):
            raise DataError(f"{path}: a sample's `epoch` is {clip(repr(epoch), 40)}; expected a whole number.")
        if (str(sample["id"]), epoch) in seen:
            raise DataError(f"{path}: a sample is there twice in one epoch; keep one.")
        seen.add((str(sample["id"]), epoch))
    return samples


def _metrics(data: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str, float]]:
    """Yield the score, name and value of each metric but standard errors."""
    for score in listed(mapping(data.get("results")).get("scores")):
        for metric, found in mapping(score.get("metrics")).items():
            value = number(mapping(found).get("value"))
            if value is not None and not metric.endswith(("stderr", "std", "var")):
                yield score, metric, value


def _shared_names(data: Mapping[str, Any]) -> set[str]:
    """Return the names of scores that several scorers have, such as a key of their values."""
    scorers: dict[str, set[str]] = {}
    for score in listed(mapping(data.get("results")).get("scores")):
        scorers.setdefault(str(score.get("name")), set()).add(str(score.get("scorer")))
    return {name for name, found in scorers.items() if len(found) > 1}


def _shown(score: Mapping[str, Any], metric: str, shared: Collection[str]) -> str:
    """Return the name of a metric: the score, the metric, and the reducer of its epochs if the log names one.

    A score whose name is `shared` by several scorers has its scorer's name in front.
    """
    name, reducer = str(score.get("name")), score.get("reducer")
    if name in shared:
        name = f"{score.get('scorer')}.{name}"
    parts = [name, metric, *([] if reducer is None else [str(reducer)])]
    return ",".join(map(task_name, parts))


def _measured(
    score: Mapping[str, Any],
    metric: str,
    value: float,
    of_epochs: Mapping[str, Sequence[Any]],
    scored: float | None,
) -> Measured:
    error = number(mapping(mapping(score.get("metrics")).get("stderr")).get("value")) if metric in MEANS else None
    share = metric == "accuracy" and 0 <= value <= 1
    interval = (value - NORMAL * error, value + NORMAL * error) if error else None
    if interval is not None and share:
        interval = max(interval[0], 0.0), min(interval[1], 1.0)
    return Measured(
        value=value,
        unit="fraction" if share else "score",
        higher_is_better=_direction(score, metric, of_epochs),
        n=int(scored) if scored else None,
        interval=interval,
    )


def _direction(score: Mapping[str, Any], metric: str, of_epochs: Mapping[str, Sequence[Any]]) -> bool | None:
    """Return whether a higher value is better: by the metric's name, or of a mean by the scorer's name and values."""
    known = known_direction(metric)
    if known is not None or metric not in MEANS or reducer_of(score.get("reducer")) is None:
        return known
    graded = {value for values in of_epochs.values() for value in values}
    if graded and all(isinstance(value, str) and value in LETTERS for value in graded):
        return True
    named = [known_direction(str(score.get(key))) for key in ("name", "scorer")]
    return next((direction for direction in named if direction is not None), None)


def _values(
    data: Mapping[str, Any],
    score: Mapping[str, Any],
    metric: str,
    value: float,
    of_epochs: Mapping[str, Sequence[Any]],
) -> dict[str, tuple[float, float]] | str:
    """Return sample -> (value over its epochs, weight) where their mean is the metric, or else why there are none.

    Each sample counts once, or once for each of its epochs where inspect did not reduce them.
    """
    reducer = reducer_of(score.get("reducer"))
    if reducer is None:
        return f"the reducer of epochs {clip(str(score.get('reducer')), 40)!r} is not known"
    if mapping(mapping(score.get("metrics")).get(metric)).get("group") is not None:
        return "it is one of several values of a metric"
    if metric not in MEANS:
        return "it is no mean of its samples"
    if not of_epochs:
        return NO_SAMPLES
    calculated = {sample: found for sample, values in of_epochs.items() if (found := reducer(values)) is not None}
    recorded = recorded_reductions(data, score)
    for reduced in (recorded, calculated):
        pairs = {sample: (one, 1.0) for sample, one in reduced.items() if sample in of_epochs}
        if _is_mean(pairs, value):
            return pairs
    if score.get("reducer") is None:
        pairs = {sample: (one, float(len(of_epochs[sample]))) for sample, one in calculated.items()}
        if _is_mean(pairs, value):
            return pairs
    return "it is no mean of its samples"


def _is_mean(pairs: Mapping[str, tuple[float, float]], value: float) -> bool:
    total = math.fsum(weight for _, weight in pairs.values())
    mean = math.fsum(one * weight for one, weight in pairs.values()) / total if total else math.nan
    return math.isclose(mean, value, rel_tol=1e-6, abs_tol=1e-9)


def _unscored(samples: Sequence[Mapping[str, Any]], of_epochs: Mapping[str, Any]) -> str:
    """Return how many samples have no score, and why."""
    ids = {str(sample["id"]) for sample in samples}
    errors = {
        str(sample["id"]): str(mapping(sample["error"]).get("message"))
        for sample in samples
        if sample.get("error") and str(sample["id"]) not in of_epochs
    }
    told = f"{len(ids) - len(of_epochs)} of {len(ids)} samples have no score"
    if not errors:
        return told
    return f"{told}; {len(errors)} stopped with an error: {clip(next(iter(errors.values())), 60)}"


def _content(sample: Mapping[str, Any]) -> str:
    """Return a digest of a sample's input and target."""
    return _digest([*_input(sample), sample.get("target")])


def _input(sample: Mapping[str, Any]) -> list[Any]:
    """Return what a sample asks: its input, without the ids that inspect draws for messages, choices and sandbox."""
    shown = sample["input"]
    if isinstance(shown, list):
        shown = [[mapping(message).get("role"), mapping(message).get("content")] for message in shown]
    return [shown, *(sample.get(name) for name in ("choices", "files", "setup", "sandbox"))]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode(errors="replace")).hexdigest()


def _rules(data: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides the numbers beside model and samples: the task's version, arguments, solvers and limits."""
    config = mapping(spec.get("config"))
    steps = [[step.get("solver"), step.get("params")] for step in listed(mapping(data.get("plan")).get("steps"))]
    scores = listed(mapping(data.get("results")).get("scores"))
    scorers = {
        f"scorer {clip(str(score.get('scorer')), 60)}": json.dumps(score["params"], sort_keys=True)
        for score in scores
        if score.get("params")
    }
    return {
        "version": spec.get("task_version"),
        "arguments": json.dumps(spec.get("task_args") or {}, sort_keys=True),
        "solvers": json.dumps(steps, sort_keys=True),
        "generation": json.dumps(_generation(data, spec), sort_keys=True),
        "model roles": json.dumps(_roles(spec), sort_keys=True),
        **scorers,
        **{name: str(config[name]) for name in LIMITS if config.get(name) is not None},
    }


def _generation(data: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return how answers were generated: the settings of the model, and before them those of the task."""
    found = {**mapping(spec.get("model_generate_config")), **mapping(mapping(data.get("plan")).get("config"))}
    return {name: value for name, value in found.items() if name not in WITHOUT_EFFECT}


def _roles(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model of each role, such as that of the grader."""
    roles = mapping(spec.get("model_roles"))
    return {name: mapping(role).get("model", role) for name, role in roles.items()}


def _own_grader(data: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the evaluated model as the grader, which it is if a scorer of that kind names no other."""
    scores = listed(mapping(data.get("results")).get("scores"))
    graded = [one for one in scores if str(one.get("scorer")).rpartition("/")[2].startswith(GRADED)]
    own = [one for one in graded if not mapping(one.get("params")).get("model")]
    return {"grader": clip(str(spec.get("model")))} if own and GRADER not in _roles(spec) else {}
