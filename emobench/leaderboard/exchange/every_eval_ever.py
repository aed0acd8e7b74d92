"""Records of *Every Eval Ever*, schema 0.3: entries as records, and records with their instances as an Evaluation.

A record has one model's numbers in a JSON file; its instances (examples) are a JSON Lines file next to it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from emobench.errors import DataError
from emobench.leaderboard.exchange.evaluation import Evaluation, Measured, by_content, renamed
from emobench.leaderboard.exchange.lm_eval_results import json_lines, listed, mapping
from emobench.leaderboard.schema.entry import Entry, MetricSummary
from emobench.leaderboard.schema.examples import Recorded
from emobench.tasks.lm_eval_numbers import clip, number, task_name
from emobench.tasks.scores import RANGES

SCHEMA = "0.3.0"
SUPPORTED = "0.3."
UNKNOWN = "unknown"
"""Stands where the schema needs a word, and an entry has none."""


def record_name(entry: Entry) -> str:
    return f"{entry.id}.json"


def record(entry: Entry) -> dict[str, Any]:
    """Return an entry as an aggregate record. A metric without a better direction, which a record needs, is missing."""
    when = datetime.fromisoformat(entry.provenance.created)
    identity = entry.model.source if entry.untrained else f"{entry.model.name}-{entry.objective.label}"
    evaluation = f"{entry.suite.name}/{identity}/{int(when.timestamp())}"
    undirected = {name: "no better direction" for name, m in entry.metrics.items() if m.higher_is_better is None}
    return {
        "schema_version": SCHEMA,
        "evaluation_id": evaluation,
        "evaluation_timestamp": when.isoformat(),
        "retrieved_timestamp": str(int(when.timestamp())),
        "source_metadata": {
            "source_name": entry.source.cite or "emobench",
            "source_type": "documentation" if entry.kind == "published" else "evaluation_run",
            "source_organization_name": UNKNOWN,
            "evaluator_relationship": "other",
            "additional_details": {"entry": entry.id, "kind": entry.kind},
        },
        "eval_library": {
            "name": {"measured": "emobench", "imported": entry.suite.name}.get(entry.kind, UNKNOWN),
            "version": entry.provenance.packages.get("emobench", UNKNOWN),
            "additional_details": {
                "suite": str(entry.suite),
                **{f"missing {name}": why for name, why in {**entry.missing, **undirected}.items()},
            },
        },
        "model_info": _model_info(entry, identity),
        "evaluation_results": [
            _result(entry, name, metric, f"{evaluation}#{name}")
            for name, metric in entry.metrics.items()
            if metric.higher_is_better is not None
        ],
    }


def _model_info(entry: Entry, identity: str) -> dict[str, Any]:
    details = {
        "deployment_type": "self_deployed" if entry.kind == "measured" else UNKNOWN,
        "model_availability": UNKNOWN,
        "base_model": None if entry.untrained else entry.model.source,
        "revision": entry.model.revision,
        "objective": entry.objective.label,
        "seeds": " ".join(map(str, entry.seeds)) or None,
        "parameters": entry.model.parameters,
    }
    given = {key: str(value) for key, value in details.items() if value is not None}
    return {"name": entry.model.name, "id": identity, "additional_details": given}


def _result(entry: Entry, name: str, metric: MetricSummary, identity: str) -> dict[str, Any]:
    task, kind = name.split("/", 1)
    low, high = RANGES.get(metric.unit, (-math.inf, math.inf))
    details = {
        "protocol": entry.protocols.get(task),
        "values by seed": " ".join(map(str, metric.values)) or None,
        "standard deviation over seeds": metric.std,
        "interval covers": metric.ci95_of,
    }
    uncertainty: dict[str, Any] = {}
    if metric.n is not None:
        uncertainty["num_samples"] = metric.n
    if metric.ci95:
        uncertainty["confidence_interval"] = {
            "lower": metric.ci95[0],
            "upper": metric.ci95[1],
            "confidence_level": 0.95,
        }
    return {
        "evaluation_result_id": identity,
        "evaluation_name": task,
        "source_data": {"dataset_name": task, "source_type": "other"},
        "metric_config": {
            "metric_id": kind,
            "metric_name": kind,
            "metric_unit": metric.unit,
            "lower_is_better": not metric.higher_is_better,
            "score_type": "continuous",
            "min_score": _bound(low),
            "max_score": _bound(high),
        },
        "score_details": {
            "score": metric.mean,
            "details": {key: str(value) for key, value in details.items() if value is not None},
            **({"uncertainty": uncertainty} if uncertainty else {}),
        },
    }


def _bound(value: float) -> float | str:
    return round(value, 3) if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def to_json(entry: Entry) -> str:
    return json.dumps(record(entry), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


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
    for name, found in _instances(path, data, results).items():
        contents = by_content({instance: content for instance, (content, _, _) in found.items()})
        values = Recorded({instance: (score, 1.0) for instance, (_, _, score) in found.items()})
        task = name.partition("/")[0]
        prompts.setdefault(task, {}).update({contents[i]: prompt for i, (_, prompt, _) in found.items()})
        mean = math.fsum(score for _, _, score in found.values()) / len(found)
        if name in numbers and math.isclose(mean, numbers[name].value, rel_tol=1e-6, abs_tol=1e-9):
            examples[name] = renamed(values, contents)
    library = mapping(data.get("eval_library"))
    return Evaluation(
        path=path,
        harness=clip(str(library.get("name") or "every-eval-ever"), 40),
        version=clip(str(library.get("version"))),
        model=clip(str(mapping(data.get("model_info")).get("id") or "unnamed")),
        numbers=numbers,
        examples=examples,
        prompts=prompts,
        rules={name.partition("/")[0]: _rules(result) for name, result in results.items()},
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
    share = config.get("metric_unit") in ("fraction", "proportion") and 0 <= value <= 1
    return Measured(
        value=value,
        unit="fraction" if share else "score",
        higher_is_better=not lower if isinstance(lower, bool) else None,
        n=None if n is None else int(n),
        interval=(low, high) if known and low is not None and high is not None else None,
    )


def _instances(
    path: Path, data: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, tuple[str, str, float]]]:
    """Return metric -> sample -> the digests of its content and of its prompt, and its score."""
    named = str(mapping(data.get("detailed_evaluation_results")).get("file_path") or f"{path.stem}_samples.jsonl")
    file = path.parent / named.rpartition("/")[2]
    by_id = {str(r["evaluation_result_id"]): name for name, r in results.items() if r.get("evaluation_result_id")}
    found: dict[str, dict[str, tuple[str, str, float]]] = {}
    for where, row in json_lines(file) if file.is_file() else ():
        name = by_id.get(str(row.get("evaluation_result_id"))) or _only(str(row.get("evaluation_name")), results)
        score, sample = number(mapping(row.get("evaluation")).get("score")), str(row.get("sample_id"))
        if name is None or score is None or row.get("sample_id") is None:
            raise DataError(f"{where}: expected an instance with `sample_id`, `evaluation.score` and a known result.")
        if sample in found.setdefault(name, {}):
            raise DataError(f"{where}: the sample {clip(sample, 60)!r} is there twice; keep one.")
        content, prompt = _digests(row)
        found[name][sample] = (content, prompt, score)
    return found


def _only(evaluation: str, results: Mapping[str, Any]) -> str | None:
    """Return the result of an instance that names only its evaluation, if that has one result."""
    names = [name for name in results if name.partition("/")[0] == task_name(evaluation)]
    return names[0] if len(names) == 1 else None


def _digests(row: Mapping[str, Any]) -> Iterator[str]:
    shown = mapping(row.get("input"))
    for value in ([shown.get("raw"), shown.get("reference")], [shown.get("formatted"), shown.get("reference")]):
        yield hashlib.sha256(json.dumps(value, sort_keys=True).encode(errors="replace")).hexdigest()


def _rules(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a record says of how the model was evaluated."""
    generation = mapping(result.get("generation_config"))
    arguments = dict(mapping(generation.get("generation_args")))
    arguments.pop("execution_command", None)  # which names the model
    facts = {"data": result.get("source_data"), "generation": arguments}
    protocol = mapping(mapping(result.get("score_details")).get("details")).get("protocol")
    return {**{name: json.dumps(fact, sort_keys=True) for name, fact in facts.items()}, "protocol": protocol}
