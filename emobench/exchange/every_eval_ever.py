"""*Every Eval Ever*, schema 0.3, in and out: a record in the layout of its datastore, with an instance per example.

A record has one model's numbers in a JSON file; its instances are a JSON Lines file next to it.

The schema wants the texts of input, reference and output. A data set's licence may forbid passing them on, so exported
instances have empty texts, and as `sample_hash` the sha256 of the example's id, which is a digest of its content: the
same in every entry that was evaluated on it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

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
    json_lines,
    listed,
    mapping,
    named_model,
    text_of,
)
from emobench.exchange.lm_eval import DEFAULT_REVISIONS
from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.query.rows import created_at
from emobench.leaderboard.run_files import Recorded
from emobench.tasks.lm_eval_numbers import clip, number, task_name
from emobench.tasks.scores import RANGES

FORMAT, SCHEMA, SUPPORTED = "every-eval-ever", "0.3.0", "0.3."
UNKNOWN = "unknown"
"""Stands where the schema needs a word, and an entry has none."""
LONGEST_PART = 100
"""Characters of a folder's name."""
DEVELOPER = "emobench"
"""Of a model whose id names no owner; a folder of the datastore."""
NO_TEXTS = "not in this export; sample_hash is the sha256 of the example's id, a digest of its content"
UNIT = "sampling_unit"
"""The key of an instance's metadata with the examples that it was sampled with."""
SCALE = ("metric_unit", "min_score", "max_score")
"""What a metric's values mean: a share, a percentage, points of a range."""
COVERED = ("seeds", "items", "seeds and items")
"""What an interval of an entry is of."""


def files(entry: Entry, examples: Sequence[Mapping[str, Recorded]] = ()) -> dict[str, str]:
    """Return an entry's record by its path in the datastore, and its instances, if there are per-example results.

    `examples` has the results of each run.
    """
    owner, _, name = _identity(entry).rpartition("/")
    developer, *rest = owner.split("/")
    place = "data/"
    for part in (entry.suite.name, developer or DEVELOPER, "_".join([*rest, name])):
        folder = re.sub(r'[<>:"\\|?*\s\x00-\x1f]', "_", part)
        place += f"{folder[:LONGEST_PART]}/"
    # A version 4 UUID, which the datastore wants, that is the same for each export of one entry.
    digest = hashlib.sha256(f"emobench {entry.id}".encode()).digest()
    place += str(uuid.UUID(bytes=digest[:16], version=4))
    rows, without = _instances(entry, examples)
    exported = record(entry)
    if not rows:
        return {f"{place}.json": _json(exported)}
    text = "".join(rows)
    details = {f"without {name}": why for name, why in without.items()}
    exported["detailed_evaluation_results"] = {
        "format": "jsonl",
        "file_path": f"{place}_samples.jsonl",
        "hash_algorithm": "sha256",
        "checksum": hashlib.sha256(text.encode()).hexdigest(),
        "total_rows": len(rows),
        "additional_details": details,
    }
    return {f"{place}.json": _json(exported), f"{place}_samples.jsonl": text}


def _json(data: Json) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _identity(entry: Entry) -> str:
    """Return the id of a model: its source, or the model and what it was trained with."""
    if entry.untrained:
        return entry.model.source
    return f"{entry.model.name}-{entry.objective.label}"


def _evaluation_id(entry: Entry) -> str:
    return f"{entry.suite.name}/{_identity(entry)}/{int(created_at(entry.provenance).timestamp())}"


def _texts_of(values: Json) -> dict[str, str]:
    """Return those of some values that are not None, as texts: the schema allows no others for details."""
    return {key: str(value) for key, value in values.items() if value is not None}


def record(entry: Entry) -> Fields:
    """Return an entry as an aggregate record. A metric without a better direction, which a record needs, is missing."""
    created = created_at(entry.provenance)
    evaluation = _evaluation_id(entry)
    details = {"suite": str(entry.suite)}
    for name, why in entry.missing.items():
        details[f"missing {name}"] = why
    results = []
    for name, metric in entry.metrics.items():
        if metric.higher_is_better is None:
            details[f"missing {name}"] = "no better direction"
        else:
            results.append(_result(entry, name, metric, f"{evaluation}#{name}"))
    libraries = {"measured": "emobench", "imported": entry.suite.name}
    source = {
        "source_name": entry.source.cite or "emobench",
        "source_type": "documentation" if entry.kind == "published" else "evaluation_run",
        "source_organization_name": UNKNOWN,
        "evaluator_relationship": "other",
        "additional_details": {"entry": entry.id, "kind": entry.kind},
    }
    library = {
        "name": libraries.get(entry.kind, UNKNOWN),
        "version": entry.provenance.packages.get("emobench", UNKNOWN),
        "additional_details": details,
    }
    return {
        "schema_version": SCHEMA,
        "evaluation_id": evaluation,
        "evaluation_timestamp": created.isoformat(),
        "retrieved_timestamp": str(int(created.timestamp())),
        "source_metadata": source,
        "eval_library": library,
        "model_info": _model_info(entry),
        "evaluation_results": results,
    }


def _model_info(entry: Entry) -> Fields:
    deployment = "self_deployed" if entry.kind == "measured" else UNKNOWN
    details: Fields = {
        "deployment_type": deployment,
        "model_availability": UNKNOWN,
        "base_model": None if entry.untrained else entry.model.source,
        "revision": entry.model.revision,
        "objective": entry.objective.label,
    }
    details |= {"seeds": " ".join(map(str, entry.seeds)) or None, "parameters": entry.model.parameters}
    if entry.declared:
        details["declared_recipe"] = entry.recipe["name"]
    info: Fields = {"name": entry.model.name, "id": _identity(entry)}
    if "/" not in info["id"]:
        info["developer"] = DEVELOPER
    return {**info, "additional_details": _texts_of(details)}


def _result(entry: Entry, name: str, metric: MetricSummary, identity: str) -> Fields:
    task, kind = name.split("/", 1)
    low, high = RANGES.get(metric.unit, (-math.inf, math.inf))
    details = {
        "protocol": entry.protocols.get(task),
        "values by seed": " ".join(map(str, metric.values)) or None,
        "standard deviation over seeds": metric.std,
        "interval covers": metric.ci95_of,
    }
    uncertainty: Fields = {}
    if metric.n is not None:
        uncertainty["num_samples"] = metric.n
    if metric.ci95:
        lower, upper = metric.ci95
        uncertainty["confidence_interval"] = {"lower": lower, "upper": upper, "confidence_level": 0.95}
    score: Fields = {"score": metric.mean, "details": _texts_of(details)}
    if uncertainty:
        score["uncertainty"] = uncertainty
    config = {
        "metric_id": kind,
        "metric_name": kind,
        "metric_unit": metric.unit,
        "lower_is_better": not metric.higher_is_better,
        "score_type": "continuous",
        "min_score": round(low, 3) if math.isfinite(low) else "-Infinity",
        "max_score": round(high, 3) if math.isfinite(high) else "Infinity",
    }
    return {
        "evaluation_result_id": identity,
        "evaluation_name": task,
        "source_data": {"dataset_name": task, "source_type": "other"},
        "metric_config": config,
        "score_details": score,
    }


def _instances(entry: Entry, examples: Sequence[Mapping[str, Recorded]]) -> tuple[list[str], dict[str, str]]:
    """Return the instances of an entry's metrics, a line for each example of all runs, and why others have none.

    An instance's score is the mean over the runs. A metric that is no mean of its examples (MAUVE, a perplexity) has no
    instances.
    """
    rows = []
    without = {}
    evaluation = _evaluation_id(entry)
    identity = _identity(entry)
    for name, metric in entry.metrics.items():
        of_runs = [run[name] for run in examples if name in run]
        if metric.higher_is_better is None or not of_runs:
            continue
        first = of_runs[0]
        if len(of_runs) < len(examples) or any(one.examples.keys() != first.examples.keys() for one in of_runs):
            without[name] = "its runs have other examples"
            continue
        means = {}
        instances = []
        task = name.partition("/")[0]
        for example in first.examples:
            scores = [one.examples[example][0] for one in of_runs]
            mean = math.fsum(scores) / len(scores)
            means[example] = mean, 1.0
            metadata = {"texts": NO_TEXTS}
            if example in first.units:
                metadata[UNIT] = first.units[example]
            if len(scores) > 1:
                metadata["scores by seed"] = " ".join(map(str, scores))
            row = {
                "schema_version": SCHEMA,
                "evaluation_id": evaluation,
                "model_id": identity,
                "evaluation_name": task,
                "evaluation_result_id": f"{evaluation}#{name}",
                "sample_id": example,
                "sample_hash": hashlib.sha256(example.encode()).hexdigest(),
                "input": {"raw": "", "reference": []},
                "output": {"raw": []},
                "interaction_type": "single_turn",
                "answer_attribution": [],
                "evaluation": {"score": mean, "is_correct": metric.unit == "fraction" and mean == 1.0},
                "metadata": metadata,
            }
            instances.append(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
        if is_mean(means, metric.mean):
            rows += instances
        else:
            without[name] = "it is no mean of its examples"
    return rows, without


def is_record(data: Json) -> bool:
    return "schema_version" in data and "evaluation_results" in data


def record_evaluation(path: Path, data: Json) -> Evaluation:
    """Return the evaluation in a record and in the instances next to it. Raises DataError for another schema."""
    schema = str(data["schema_version"])
    if not schema.startswith(SUPPORTED):
        raise DataError(f"{path}: is of schema {clip(schema, 20)}; expected {SUPPORTED}x of Every Eval Ever.")
    results = {}
    numbers = {}
    for result in listed(data, "evaluation_results"):
        metric = at(result, "metric_config", "metric_name") or at(result, "metric_config", "metric_id") or "score"
        name = f"{task_name(str(result.get('evaluation_name')))}/{task_name(str(metric))}"
        if name in results:
            raise DataError(f"{path}: two results have one evaluation and metric; keep one.")
        results[name] = result
        value = number(at(result, "score_details", "score"))
        if value is not None:
            numbers[name] = _measured(result, value)
    if not numbers:
        raise DataError(f"{path}: has no number under `evaluation_results`; expected a record of Every Eval Ever.")
    examples = {}
    without = dict.fromkeys(numbers, "put its instances, a file of JSON Lines, next to it")
    prompts: dict[str, dict[str, str]] = {}
    for name, samples in _read_instances(path, data, results).items():
        prompts.setdefault(name.partition("/")[0], {}).update(samples.renamed(samples.prompts))
        if name in numbers and is_mean(samples.values, numbers[name].value):
            examples[name] = samples.recorded(samples.values)
        else:
            without[name] = "it is no mean of its instances"
    details = mapping(data, "model_info", "additional_details")
    identity = clip(str(at(data, "model_info", "id") or UNNAMED))
    variant = ""
    revision = text_of(details, "revision") or text_of(details, "model_revision")
    if revision and revision not in DEFAULT_REVISIONS:
        variant = f"@{clip(revision, 60)}"
    row: Fields = {"name": text_of(data, "model_info", "name"), "source": text_of(details, "base_model")}
    if None in row.values():
        row = named_model(path, identity, variant, slashes=2)
    else:  # the model that it was trained from, whose name and revision it has
        row["revision"], variant = text_of(details, "revision"), ""
    library = clip(text_of(data, "eval_library", "name") or FORMAT, 40)
    version = text_of(data, "eval_library", "version")
    facts = entry_facts(path, "record of Every Eval Ever", library, version, _rules_of_tasks(results), prompts)
    read = Evaluation(
        path=path,
        format=FORMAT,
        model=identity,
        variant=variant,
        row=row,
        created=text_of(data, "evaluation_timestamp") or text_of(data, "retrieved_timestamp"),
        **facts,
    )
    read.objective = text_of(details, "objective")
    read.numbers, read.examples, read.without = numbers, examples, without
    return read


def _measured(result: Json, value: float) -> Measured:
    config = mapping(result, "metric_config")
    uncertainty = mapping(result, "score_details", "uncertainty")
    given = mapping(uncertainty, "confidence_interval")
    low, high, interval = number(given.get("lower")), number(given.get("upper")), None
    if low is not None and high is not None and given.get("confidence_level") == 0.95:
        interval = low, high
    unit = str(config.get("metric_unit"))
    if unit == "proportion":
        unit = "fraction"
    least, most = RANGES.get(unit, (math.inf, -math.inf))
    covers = at(result, "score_details", "details", "interval covers")
    if covers not in COVERED:
        covers = "items"
    lower = config.get("lower_is_better")
    scale = []
    for key in SCALE:
        bound = config.get(key)
        if number(bound) is not None:  # 1 and 1.0 are the same
            bound = number(bound)
        if bound is not None:
            scale.append(f"{key} {bound}")
    if not least <= value <= most:
        unit = "score"
    return Measured(
        value=value,
        unit=unit,
        higher_is_better=not lower if isinstance(lower, bool) else None,
        n=count_of(uncertainty.get("num_samples")),
        interval=interval,
        covers=covers,
        scale=" ".join(scale),
    )


def _read_instances(path: Path, data: Json, results: Mapping[str, Json]) -> dict[str, Samples]:
    """Return the instances of each metric in the file that a record names.

    An instance that names only its evaluation is one of its result, if it has one.
    """
    named = str(at(data, "detailed_evaluation_results", "file_path") or f"{path.stem}_samples.jsonl")
    file = path.parent / named.rpartition("/")[2]
    by_id = {}
    by_task: dict[str, list[str]] = {}
    for name, result in results.items():
        by_task.setdefault(name.partition("/")[0], []).append(name)
        if result.get("evaluation_result_id"):
            by_id[str(result["evaluation_result_id"])] = name
    read = {}
    for where, row in json_lines(file) if file.is_file() else ():
        name = by_id.get(str(row.get("evaluation_result_id")))
        of_task = by_task.get(task_name(str(row.get("evaluation_name"))), [])
        if name is None and len(of_task) == 1:
            name = of_task[0]
        score = number(at(row, "evaluation", "score"))
        sample = str(row.get("sample_id"))
        if name is None or score is None or row.get("sample_id") is None:
            raise DataError(f"{where}: expected an instance with `sample_id`, `evaluation.score` and a known result.")
        of_metric = read.setdefault(name, Samples())
        if sample in of_metric.values:
            raise DataError(f"{where}: the sample {clip(sample, 60)!r} appears twice; keep one.")
        of_metric.values[sample] = score, 1.0
        hashed = str(row.get("sample_hash") or sample)
        shown = mapping(row, "input")
        raw = shown.get("raw")
        reference = shown.get("reference")
        if raw or reference:
            of_metric.contents[sample] = digest_of([raw, reference])
            of_metric.prompts[sample] = digest_of([shown.get("formatted"), reference])
        else:  # without texts, the hash stands for both
            of_metric.contents[sample] = of_metric.prompts[sample] = digest_of(hashed)
        of_metric.inputs[sample] = [content_digest(raw or hashed)]
        unit = text_of(row, "metadata", UNIT)
        if unit is not None:
            of_metric.named[sample] = unit
    return read


def _rules_of_tasks(results: Mapping[str, Json]) -> dict[str, Fields]:
    """Return the rules of each task: where those of its metrics differ, all of them."""
    values: dict[str, dict[str, set[str]]] = {}
    for name, result in results.items():
        arguments = dict(mapping(result, "generation_config", "generation_args"))
        arguments.pop("execution_command", None)  # which names the model
        of_task = values.setdefault(name.partition("/")[0], {"data": set(), "generation": set(), "protocol": set()})
        of_task["data"].add(json.dumps(result.get("source_data"), sort_keys=True))
        of_task["generation"].add(json.dumps(arguments, sort_keys=True))
        protocol = at(result, "score_details", "details", "protocol")
        if protocol is not None:
            of_task["protocol"].add(str(protocol))
    rules = {}
    for task, of_task in values.items():
        rules[task] = {}
        for rule, several in of_task.items():
            rules[task][rule] = "; ".join(sorted(several)) or None
    return rules
