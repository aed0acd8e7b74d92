"""A log of inspect_ai in JSON as an Evaluation. Its shape is that of `inspect_ai/log/_log.py`, version 2 (0.3.285).

inspect itself is not needed. A log in its own `.eval` format becomes JSON by `inspect log convert --to json`.

The value of each sample is reduced over its epochs as inspect's own reducers do it: `inspect_ai/scorer/_metric.py`
(`value_to_float`) and `_reducer/reducer.py` of 0.3.285.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from emobench.core.errors import DataError
from emobench.data.sampling_units import content_digest, joined_units
from emobench.exchange.evaluation import (
    UNNAMED,
    Evaluation,
    Measured,
    by_content,
    digest_of,
    entry_facts,
    known_direction,
    listed,
    mapping,
    named_model,
    normal_interval,
)
from emobench.exchange.lm_eval_model import deciding_arguments, precision, variant
from emobench.leaderboard.run_files import Recorded
from emobench.tasks.lm_eval_numbers import clip, number, task_name

FORMAT = "inspect"
MEANS = ("accuracy", "mean")
"""Metrics that are the mean of the samples' scores."""
NO_MEAN = "it is no mean of its samples"
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
LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""What scorers write for correct, partial, incorrect and no answer."""
WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
"""Words for right and wrong, in upper or lower case."""
RIGHT = 1.0
"""The value from which on reducers with a number count an epoch as right."""

Values = Mapping[str, Sequence[Any]]
"""Sample -> its values in its epochs, as in the log."""
Reducer = Callable[[Sequence[Any]], float | None]
"""The values of a sample in its epochs, as in the log -> one value, or None if it is not defined."""


def is_inspect_log(data: Mapping[str, Any]) -> bool:
    return isinstance(data.get("eval"), Mapping) and "status" in data and "task" in data["eval"]


def inspect_evaluation(path: Path, data: Mapping[str, Any]) -> Evaluation:
    """Return the evaluation of a log. Raises DataError for one that did not finish, or without scores."""
    if data["status"] != "success" or data.get("invalidated"):
        status = "invalidated" if data["status"] == "success" else clip(str(data["status"]), 20)
        raise DataError(f"{path}: its status is {status!r}; expected a log whose evaluation is a success.")
    spec, task = mapping(data["eval"]), task_name(str(data["eval"]["task"]))
    samples = _samples(path, data)
    contents = {str(sample["id"]): digest_of([*_input(sample), sample.get("target")]) for sample in samples}
    names = by_content(contents)
    inputs = {names[str(sample["id"])]: [content_digest(_input(sample))] for sample in samples}
    units = joined_units(inputs)
    numbers: dict[str, Measured] = {}
    examples: dict[str, Recorded] = {}
    without: dict[str, str] = {}
    notes: dict[str, None] = {}
    shared = _shared_names(data)
    for score, metric, value in _metrics(data):
        name = f"{task}/{_metric_name(score, metric, shared)}"
        if name in numbers:
            raise DataError(f"{path}: two numbers are called {name!r}; keep one.")
        of_epochs = epoch_values(samples, score)
        values = _values(data, score, metric, value, of_epochs)
        if isinstance(values, str):
            without[name] = values
            scored = number(score.get("scored_samples"))
            count = len(of_epochs) if scored is None else int(scored)
        else:
            examples[name] = Recorded({names[sample]: pair for sample, pair in values.items()}, units)
            count = len(values)
        numbers[name] = _measured(score, metric, value, of_epochs, count or None)
        if len(of_epochs) < len(names):
            notes[f"{clip(str(score.get('name')), 60)}: {_unscored(samples, of_epochs)}"] = None
    if not numbers:
        raise DataError(f"{path}: has no number under `results`; expected a log with scores.")
    arguments = {"config": {"model_args": spec.get("model_args")}}
    model, own_variant = clip(str(spec.get("model") or UNNAMED)), variant(arguments)
    version, created = mapping(spec.get("packages")).get("inspect_ai"), spec.get("created")
    version = clip(version) if isinstance(version, str) else None
    rules = {task: _rules(data, spec)}
    prompts = {task: {names[sample]: content for sample, content in contents.items()}}
    return Evaluation(
        path=path,
        format=FORMAT,
        harness=FORMAT,
        version=version,
        model=model,
        variant=own_variant,
        row=named_model(path, model, own_variant, slashes=2),  # the name begins with the provider
        precision=precision(arguments) | deciding_arguments(arguments) | _own_grader(data, spec),
        numbers=numbers,
        examples=examples,
        recorded=examples,
        without=without,
        notes=tuple(notes),
        prompts=prompts,
        rules=rules,
        created=created if isinstance(created, str) else None,
        **entry_facts(path, "log of inspect", FORMAT, version, rules, prompts),
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


def _input(sample: Mapping[str, Any]) -> list[Any]:
    """Return what a sample asks: its input, without the ids that inspect draws for messages, choices and sandbox."""
    shown = sample["input"]
    if isinstance(shown, list):
        shown = [[mapping(message).get("role"), mapping(message).get("content")] for message in shown]
    return [shown, *(sample.get(name) for name in ("choices", "files", "setup", "sandbox"))]


def _scores(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return listed(mapping(data.get("results")).get("scores"))


def _metrics(data: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str, float]]:
    """Yield the score, name and value of each metric but standard errors."""
    for score in _scores(data):
        for metric, entry in mapping(score.get("metrics")).items():
            value = number(mapping(entry).get("value"))
            if value is not None and not metric.endswith(("stderr", "std", "var")):
                yield score, metric, value


def _shared_names(data: Mapping[str, Any]) -> set[str]:
    """Return the names of scores that several scorers have, such as a key of their values."""
    pairs = {(str(score.get("name")), str(score.get("scorer"))) for score in _scores(data)}
    counts = Counter(name for name, _ in pairs)
    return {name for name, count in counts.items() if count > 1}


def _metric_name(score: Mapping[str, Any], metric: str, shared: Collection[str]) -> str:
    """Return the name of a metric: the score, the metric, and the reducer of its epochs if the log names one.

    A score whose name is `shared` by several scorers has its scorer's name in front.
    """
    name = str(score.get("name"))
    if name in shared:
        name = f"{score.get('scorer')}.{name}"
    parts = [name, metric]
    if score.get("reducer") is not None:
        parts.append(str(score["reducer"]))
    return ",".join(map(task_name, parts))


def _measured(score: Mapping[str, Any], metric: str, value: float, of_epochs: Values, count: int | None) -> Measured:
    share = metric == "accuracy" and 0 <= value <= 1
    error = number(mapping(mapping(score.get("metrics")).get("stderr")).get("value"))
    return Measured(
        value=value,
        unit="fraction" if share else "score",
        higher_is_better=_direction(score, metric, of_epochs),
        n=count,
        interval=normal_interval(value, error, fraction=share) if metric in MEANS else None,
    )


def _direction(score: Mapping[str, Any], metric: str, of_epochs: Values) -> bool | None:
    """Return whether a higher value is better: by the metric's name, or of a mean by the scorer's name and values."""
    direction = known_direction(metric)
    if direction is not None or metric not in MEANS or reducer_of(score.get("reducer")) is None:
        return direction
    graded = [value for values in of_epochs.values() for value in values]
    if graded and all(isinstance(value, str) and value in LETTERS for value in graded):
        return True
    named = known_direction(str(score.get("name")))
    return known_direction(str(score.get("scorer"))) if named is None else named


def _values(
    data: Mapping[str, Any], score: Mapping[str, Any], metric: str, value: float, of_epochs: Values
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
        return NO_MEAN
    if not of_epochs:
        return "the log has no samples with scores"
    recorded: dict[str, tuple[float, float]] = {}
    for sample, one in recorded_reductions(data, score).items():
        if sample in of_epochs:
            recorded[sample] = one, 1.0
    calculated: dict[str, tuple[float, float]] = {}
    by_epochs: dict[str, tuple[float, float]] = {}
    for sample, values in of_epochs.items():
        one = reducer(values)
        if one is not None:
            calculated[sample] = one, 1.0
            by_epochs[sample] = one, float(len(values))
    for pairs in (recorded, calculated, by_epochs if score.get("reducer") is None else {}):
        if _is_mean(pairs, value):
            return pairs
    return NO_MEAN


def _is_mean(pairs: Mapping[str, tuple[float, float]], value: float) -> bool:
    total = math.fsum(weight for _, weight in pairs.values())
    if not total:
        return False
    mean = math.fsum(one * weight for one, weight in pairs.values()) / total
    return math.isclose(mean, value, rel_tol=1e-6, abs_tol=1e-9)


def _unscored(samples: Sequence[Mapping[str, Any]], of_epochs: Values) -> str:
    """Return how many samples have no score, and why."""
    ids = {str(sample["id"]) for sample in samples}
    errors: dict[str, str] = {}
    for sample in samples:
        if sample.get("error") and str(sample["id"]) not in of_epochs:
            errors[str(sample["id"])] = str(mapping(sample["error"]).get("message"))
    text = f"{len(ids) - len(of_epochs)} of {len(ids)} samples have no score"
    if not errors:
        return text
    return f"{text}; {len(errors)} stopped with an error: {clip(next(iter(errors.values())), 60)}"


def _rules(data: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that decide numbers beside model and samples: the task's version, arguments, solvers, limits."""
    plan, config = mapping(data.get("plan")), mapping(spec.get("config"))
    steps = [[step.get("solver"), step.get("params")] for step in listed(plan.get("steps"))]
    # The settings of the model, and before them those of the task.
    generation = {**mapping(spec.get("model_generate_config")), **mapping(plan.get("config"))}
    generation = {name: value for name, value in generation.items() if name not in WITHOUT_EFFECT}
    rules: dict[str, Any] = {"version": spec.get("task_version")}
    parts = {
        "arguments": spec.get("task_args") or {},
        "solvers": steps,
        "generation": generation,
        "model roles": _roles(spec),
    }
    for score in _scores(data):
        if score.get("params"):
            parts[f"scorer {clip(str(score.get('scorer')), 60)}"] = score["params"]
    for name, part in parts.items():
        rules[name] = json.dumps(part, sort_keys=True)
    for name in LIMITS:
        if config.get(name) is not None:
            rules[name] = str(config[name])
    return rules


def _roles(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model of each role, such as that of the grader."""
    roles = mapping(spec.get("model_roles"))
    return {name: mapping(role).get("model", role) for name, role in roles.items()}


def _own_grader(data: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the evaluated model as the grader, which it is if a scorer of that kind names no other."""
    for score in _scores(data):
        graded = str(score.get("scorer")).rpartition("/")[2].startswith(GRADED)
        if graded and not mapping(score.get("params")).get("model") and GRADER not in _roles(spec):
            return {"grader": clip(str(spec.get("model")))}
    return {}


# The values of samples over their epochs


def epoch_values(samples: Sequence[Mapping[str, Any]], score: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the values of each sample that was scored, in the order of its epochs, by the sample's id."""
    of_epochs: dict[str, list[Any]] = {}
    for sample in sorted(samples, key=lambda sample: sample.get("epoch", 1)):
        scores = mapping(sample.get("scores"))
        of_scorer = scores.get(str(score.get("scorer"))) or scores.get(str(score.get("name")))
        value = _part(mapping(of_scorer).get("value"), score)
        if to_float(value) is not None:
            of_epochs.setdefault(str(sample["id"]), []).append(value)
    return of_epochs


def recorded_reductions(data: Mapping[str, Any], score: Mapping[str, Any]) -> dict[str, float]:
    """Return the reduced values that a log itself holds for a score, by the sample's id."""
    reduced = {}
    for reduction in listed(data.get("reductions")):
        if (reduction.get("scorer"), reduction.get("reducer")) != (score.get("scorer"), score.get("reducer")):
            continue
        for sample in listed(reduction.get("samples")):
            value = to_float(_part(sample.get("value"), score))
            if value is not None:
                reduced[str(sample.get("sample_id"))] = value
    return reduced


def _part(value: Any, score: Mapping[str, Any]) -> Any:
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


def reducer_of(name: Any) -> Reducer | None:
    """Return the reducer that a log names, which is the mean if it names none; None for one that is not known."""
    if name is None:
        name = "mean"
    if not isinstance(name, str):
        return None
    if name == "mode":
        return _mode
    of_floats: Callable[[list[float]], float] | None = {
        "mean": lambda floats: math.fsum(floats) / len(floats),
        "median": statistics.median,
        "max": max,
    }.get(name)
    parts = re.fullmatch(r"(at_least|pass_at|pass_k)_([1-9]\d{0,8})", name)
    if of_floats is None and parts is None:
        return None

    def reduce(values: Sequence[Any]) -> float | None:
        floats = [value for value in map(to_float, values) if value is not None]
        if not floats:
            return None
        if parts is None:
            return of_floats(floats) if of_floats else None
        return _counted(parts[1], len(floats), sum(value >= RIGHT for value in floats), int(parts[2]))

    return reduce


def _mode(values: Sequence[Any]) -> float | None:
    """Return the most frequent value; of equally frequent ones the first, as inspect does."""
    return to_float(Counter(values).most_common(1)[0][0]) if values else None


def _counted(how: str, total: int, right: int, k: int) -> float | None:
    """Return whether k epochs are right or, of k epochs drawn without replacement, the probability that some are.

    That at least one is (pass_at; Chen et al., 2021), or that all are (pass_k; Yao et al., 2024).
    """
    if how == "at_least":
        return float(right >= k)
    if total < k:
        return None
    if how == "pass_at":
        return 1 - math.comb(total - right, k) / math.comb(total, k)
    return math.comb(right, k) / math.comb(total, k)
