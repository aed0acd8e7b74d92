"""A record of *Every Eval Ever*, schema 0.3, with its instances, as an Evaluation.

A record has one model's numbers in a JSON file; its instances (examples) are a JSON Lines file next to it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from emobench.core.errors import DataError
from emobench.data.sampling_units import content_digest, joined_units
from emobench.exchange.evaluation import UNNAMED, Evaluation, Measured, by_content, renamed
from emobench.exchange.every_eval_ever_instances import UNIT
from emobench.exchange.json_files import json_lines, listed, mapping
from emobench.exchange.lm_eval_model import DEFAULT_REVISIONS
from emobench.leaderboard.run_files import Recorded
from emobench.tasks.lm_eval_numbers import clip, number, task_name
from emobench.tasks.scores import RANGES

FORMAT = "every-eval-ever"
SUPPORTED = "0.3."
SCALE = ("metric_unit", "min_score", "max_score")
"""What a metric's values mean: a share, a percentage, points of a range."""
COVERED = ("seeds", "items", "seeds and items")
"""What an interval of an entry is of."""


def is_record(data: Mapping[str, Any]) -> bool:
    return "schema_version" in data and "evaluation_results" in data


def record_evaluation(path: Path, data: Mapping[str, Any]) -> Evaluation:
    """Return what a record and the instances next to it say. Raises DataError for what is no record of schema 0.3."""
    version = str(data["schema_version"])
    if not version.startswith(SUPPORTED):
        raise DataError(f"{path}: is of schema {clip(version, 20)}; expected {SUPPORTED}x of Every Eval Ever.")
    results = {_name(result): result for result in listed(data["evaluation_results"])}
    if len(results) < len(listed(data["evaluation_results"])):
        raise DataError(f"{path}: two results have one evaluation and metric; keep one.")
    numbers = {name: one for name, result in results.items() if (one := _measured(result)) is not None}
    if not numbers:
        raise DataError(f"{path}: has no number under `evaluation_results`; expected a record of Every Eval Ever.")
    examples: dict[str, Recorded] = {}
    prompts: dict[str, dict[str, str]] = {}
    instances, units = _instances(path, data, results)
    for name, found in instances.items():
        contents = by_content({instance: content for instance, (content, _, _) in found.items()})
        values = Recorded({i: (score, 1.0) for i, (_, _, score) in found.items()}, units.get(name, {}))
        task = name.partition("/")[0]
        prompts.setdefault(task, {}).update({contents[i]: prompt for i, (_, prompt, _) in found.items()})
        mean = math.fsum(score for _, _, score in found.values()) / len(found)
        if name in numbers and math.isclose(mean, numbers[name].value, rel_tol=1e-6, abs_tol=1e-9):
            examples[name] = renamed(values, contents)
    library, model = mapping(data.get("eval_library")), mapping(data.get("model_info"))
    said = mapping(model.get("additional_details"))
    base = _base(model, said)
    return Evaluation(
        path=path,
        format=FORMAT,
        harness=clip(str(library.get("name") or "every-eval-ever"), 40),
        version=clip(str(library.get("version"))),
        model=clip(str(model.get("id") or UNNAMED)),
        variant="" if base else _variant(said),
        base=base,
        objective=_text(said.get("objective")),
        created=_text(data.get("evaluation_timestamp")) or _text(data.get("retrieved_timestamp")),
        numbers=numbers,
        examples=examples,
        prompts=prompts,
        rules=_rules_of_tasks(results),
    )


def _name(result: Mapping[str, Any]) -> str:
    config = mapping(result.get("metric_config"))
    metric = config.get("metric_name") or config.get("metric_id") or "score"
    return f"{task_name(str(result.get('evaluation_name')))}/{task_name(str(metric))}"


def _measured(result: Mapping[str, Any]) -> Measured | None:
    details, config = mapping(result.get("score_details")), mapping(result.get("metric_config"))
    value, lower = number(details.get("score")), config.get("lower_is_better")
    if value is None:
        return None
    uncertainty = mapping(details.get("uncertainty"))
    interval = mapping(uncertainty.get("confidence_interval"))
    low, high = (number(interval.get(bound)) for bound in ("lower", "upper"))
    known = low is not None and high is not None and interval.get("confidence_level") == 0.95
    n = number(uncertainty.get("num_samples"))
    unit = "fraction" if config.get("metric_unit") == "proportion" else str(config.get("metric_unit"))
    least, most = RANGES.get(unit, (math.inf, -math.inf))
    covers = mapping(details.get("details")).get("interval covers")
    return Measured(
        value=value,
        unit=unit if least <= value <= most else "score",
        higher_is_better=not lower if isinstance(lower, bool) else None,
        n=None if n is None else int(n),
        interval=(low, high) if known and low is not None and high is not None else None,
        covers=covers if covers in COVERED else "items",
        scale=" ".join(f"{key} {_scale(config[key])}" for key in SCALE if config.get(key) is not None),
    )


def _scale(value: Any) -> Any:
    """Return a bound as a float: 1 and 1.0 are the same."""
    return float(value) if isinstance(value, int) else value


def _instances(
    path: Path, data: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, dict[str, tuple[str, str, float]]], dict[str, dict[str, str]]]:
    """Return metric -> sample -> the digests of its content and of its prompt, and its score; and its sampling unit."""
    named = str(mapping(data.get("detailed_evaluation_results")).get("file_path") or f"{path.stem}_samples.jsonl")
    file = path.parent / named.rpartition("/")[2]
    by_id = {str(r["evaluation_result_id"]): name for name, r in results.items() if r.get("evaluation_result_id")}
    found: dict[str, dict[str, tuple[str, str, float]]] = {}
    named_units: dict[str, dict[str, str]] = {}
    inputs: dict[str, dict[str, list[str]]] = {}
    for where, row in json_lines(file) if file.is_file() else ():
        name = by_id.get(str(row.get("evaluation_result_id"))) or _only(str(row.get("evaluation_name")), results)
        score, sample = number(mapping(row.get("evaluation")).get("score")), str(row.get("sample_id"))
        if name is None or score is None or row.get("sample_id") is None:
            raise DataError(f"{where}: expected an instance with `sample_id`, `evaluation.score` and a known result.")
        if sample in found.setdefault(name, {}):
            raise DataError(f"{where}: the sample {clip(sample, 60)!r} is there twice; keep one.")
        content, prompt = _digests(row)
        found[name][sample] = (content, prompt, score)
        if unit := _text(mapping(row.get("metadata")).get(UNIT)):
            named_units.setdefault(name, {})[sample] = unit
        inputs.setdefault(name, {})[sample] = [_input_digest(row)]
    return found, {name: joined_units(of, named_units.get(name, {})) for name, of in inputs.items()}


def _only(evaluation: str, results: Mapping[str, Any]) -> str | None:
    """Return the result of an instance that names only its evaluation, if that has one result."""
    names = [name for name in results if name.partition("/")[0] == task_name(evaluation)]
    return names[0] if len(names) == 1 else None


def _base(model: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a model was trained from: the model by whose name it goes, if the record has its source."""
    name, source = _text(model.get("name")), _text(said.get("base_model"))
    return (
        None
        if name is None or source is None
        else {"name": name, "source": source, "revision": _text(said.get("revision"))}
    )


def _variant(said: Mapping[str, Any]) -> str:
    """Return "@" and the revision of a model that is not the default one."""
    revision = _text(said.get("revision")) or _text(said.get("model_revision")) or DEFAULT_REVISIONS[0]
    return "" if revision in DEFAULT_REVISIONS else f"@{clip(revision, 60)}"


def _text(value: Any) -> str | None:
    return clip(value) if isinstance(value, str) and value.strip() else None


def _digests(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the digests of an instance's content and of its prompt; without its texts, of the hash that it has."""
    shown = mapping(row.get("input"))
    if not shown.get("raw") and not shown.get("reference"):
        yield from [_digest(_named(row))] * 2
        return
    for value in ([shown.get("raw"), shown.get("reference")], [shown.get("formatted"), shown.get("reference")]):
        yield _digest(value)


def _input_digest(row: Mapping[str, Any]) -> str:
    """Return the digest of an instance's input; without a text, of the hash that it has."""
    return content_digest(mapping(row.get("input")).get("raw") or _named(row))


def _named(row: Mapping[str, Any]) -> str:
    return str(row.get("sample_hash") or row.get("sample_id"))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode(errors="replace")).hexdigest()


def _rules_of_tasks(results: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the rules of each task: where those of its metrics differ, all of them."""
    found: dict[str, dict[str, list[str]]] = {}
    for name, result in results.items():
        of_task = found.setdefault(name.partition("/")[0], {})
        for rule, value in _rules(result).items():
            values = of_task.setdefault(rule, [])
            if value is not None and value not in values:
                values.append(value)
    return {
        task: {rule: "; ".join(sorted(values)) or None for rule, values in rules.items()}
        for task, rules in found.items()
    }


def _rules(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a record says of how the model was evaluated."""
    generation = mapping(result.get("generation_config"))
    arguments = dict(mapping(generation.get("generation_args")))
    arguments.pop("execution_command", None)  # which names the model
    facts = {"data": result.get("source_data"), "generation": arguments}
    protocol = mapping(mapping(result.get("score_details")).get("details")).get("protocol")
    found = {name: json.dumps(fact, sort_keys=True) for name, fact in facts.items()}
    return {**found, "protocol": None if protocol is None else str(protocol)}
