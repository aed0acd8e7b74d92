"""*Every Eval Ever*, schema 0.3, in and out: a record in the layout of its datastore, with an instance per example.

A record has one model's numbers in a JSON file; its instances are a JSON Lines file next to it.

The schema wants the texts of input, reference and output. A board that was packed to be published has no texts of data
sets, and a data set's licence may forbid to pass them on. An instance then has empty texts, and as its `sample_hash`
the sha256 of the example's id, which is a digest of its content: the same in every entry that was evaluated on it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
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
    json_lines,
    listed,
    mapping,
    named_model,
    renamed,
    text_of,
)
from emobench.exchange.lm_eval_model import DEFAULT_REVISIONS
from emobench.leaderboard.entry import Entry, MetricSummary
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


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a model read, what a person wrote instead, and what the model wrote: of each seed and sample, in order."""

    input: str
    reference: str | None
    outputs: tuple[str, ...]


def files(
    entry: Entry, examples: Sequence[Mapping[str, Recorded]] = (), texts: Mapping[tuple[str, str], Shown] | None = None
) -> dict[str, str]:
    """Return an entry's record by its path in the datastore, and its instances, if there are per-example results.

    `examples` has those of each run, and `texts` the examples' texts as far as they are known, by task and example.
    """
    owner, _, name = _identity(entry).rpartition("/")
    developer, *rest = owner.split("/")
    parts = (entry.suite.name, developer or DEVELOPER, "_".join([*rest, name]))
    folders = [re.sub(r'[<>:"\\|?*\s\x00-\x1f]', "_", part)[:LONGEST_PART] for part in parts]
    # A version 4 UUID, which the datastore wants, that is the same for each export of one entry.
    unique = uuid.UUID(bytes=hashlib.sha256(f"emobench {entry.id}".encode()).digest()[:16], version=4)
    place = "/".join(["data", *folders, str(unique)])
    rows, without = _instances(entry, examples, texts or {})
    exported = record(entry)
    if not rows:
        return {f"{place}.json": _json(exported)}
    text = "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
    exported["detailed_evaluation_results"] = {
        "format": "jsonl",
        "file_path": f"{place}_samples.jsonl",
        "hash_algorithm": "sha256",
        "checksum": hashlib.sha256(text.encode()).hexdigest(),
        "total_rows": len(rows),
        "additional_details": {f"without {name}": why for name, why in without.items()},
    }
    return {f"{place}.json": _json(exported), f"{place}_samples.jsonl": text}


def _json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _identity(entry: Entry) -> str:
    """Return the id of a model: its source, or the model and what it was trained with."""
    return entry.model.source if entry.untrained else f"{entry.model.name}-{entry.objective.label}"


def _created(entry: Entry) -> datetime:
    """Return when an entry was made; a date without a zone is one of UTC, on every machine."""
    created = datetime.fromisoformat(entry.provenance.created)
    return created if created.tzinfo else created.replace(tzinfo=UTC)


def _evaluation_id(entry: Entry) -> str:
    return f"{entry.suite.name}/{_identity(entry)}/{int(_created(entry).timestamp())}"


def _texts_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Return those of some values that are not None, as texts: the schema allows no others for details."""
    return {key: str(value) for key, value in values.items() if value is not None}


def record(entry: Entry) -> dict[str, Any]:
    """Return an entry as an aggregate record. A metric without a better direction, which a record needs, is missing."""
    created, evaluation = _created(entry), _evaluation_id(entry)
    details = {"suite": str(entry.suite)} | {f"missing {name}": why for name, why in entry.missing.items()}
    results = []
    for name, metric in entry.metrics.items():
        if metric.higher_is_better is None:
            details[f"missing {name}"] = "no better direction"
        else:
            results.append(_result(entry, name, metric, f"{evaluation}#{name}"))
    library = {"measured": "emobench", "imported": entry.suite.name}
    source_type = "documentation" if entry.kind == "published" else "evaluation_run"
    return {
        "schema_version": SCHEMA,
        "evaluation_id": evaluation,
        "evaluation_timestamp": created.isoformat(),
        "retrieved_timestamp": str(int(created.timestamp())),
        "source_metadata": {
            "source_name": entry.source.cite or "emobench",
            "source_type": source_type,
            "source_organization_name": UNKNOWN,
            "evaluator_relationship": "other",
            "additional_details": {"entry": entry.id, "kind": entry.kind},
        },
        "eval_library": {
            "name": library.get(entry.kind, UNKNOWN),
            "version": entry.provenance.packages.get("emobench", UNKNOWN),
            "additional_details": details,
        },
        "model_info": _model_info(entry),
        "evaluation_results": results,
    }


def _model_info(entry: Entry) -> dict[str, Any]:
    details = {
        "deployment_type": "self_deployed" if entry.kind == "measured" else UNKNOWN,
        "model_availability": UNKNOWN,
        "base_model": None if entry.untrained else entry.model.source,
        "revision": entry.model.revision,
        "objective": entry.objective.label,
        "seeds": " ".join(map(str, entry.seeds)) or None,
        "parameters": entry.model.parameters,
    }
    info: dict[str, Any] = {"name": entry.model.name, "id": _identity(entry)}
    if "/" not in info["id"]:
        info["developer"] = DEVELOPER
    return {**info, "additional_details": _texts_of(details)}


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
        lower, upper = metric.ci95
        uncertainty["confidence_interval"] = {"lower": lower, "upper": upper, "confidence_level": 0.95}
    score: dict[str, Any] = {"score": metric.mean, "details": _texts_of(details)}
    if uncertainty:
        score["uncertainty"] = uncertainty
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
            "min_score": round(low, 3) if math.isfinite(low) else "-Infinity",
            "max_score": round(high, 3) if math.isfinite(high) else "Infinity",
        },
        "score_details": score,
    }


def _instances(
    entry: Entry, examples: Sequence[Mapping[str, Recorded]], texts: Mapping[tuple[str, str], Shown]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the instances of an entry's metrics, from the per-example results of each run, and why others have none.

    An instance's score is the mean over the runs. A metric that is no mean of its examples (MAUVE, a perplexity) has no
    instances.
    """
    rows: list[dict[str, Any]] = []
    without: dict[str, str] = {}
    evaluation = _evaluation_id(entry)
    common = {"schema_version": SCHEMA, "evaluation_id": evaluation, "model_id": _identity(entry)}
    for name, metric in entry.metrics.items():
        of_runs = [run[name] for run in examples if name in run]
        if metric.higher_is_better is None or not of_runs:
            continue
        first = of_runs[0]
        if len(of_runs) < len(examples) or any(one.examples.keys() != first.examples.keys() for one in of_runs):
            without[name] = "its runs have other examples"
            continue
        scores = {example: [one.examples[example][0] for one in of_runs] for example in first.examples}
        means = {example: math.fsum(values) / len(values) for example, values in scores.items()}
        if not math.isclose(math.fsum(means.values()) / len(means), metric.mean, rel_tol=1e-6, abs_tol=1e-9):
            without[name] = "it is no mean of its examples"
            continue
        task = name.partition("/")[0]
        for example, mean in means.items():
            shown = texts.get((task, example))
            metadata = {}
            if example in first.units:
                metadata[UNIT] = first.units[example]
            if len(of_runs) > 1:
                metadata["scores by seed"] = " ".join(map(str, scores[example]))
            if shown is None:
                metadata["texts"] = NO_TEXTS
            row = {
                **common,
                "evaluation_name": task,
                "evaluation_result_id": f"{evaluation}#{name}",
                "sample_id": example,
                **_shown_texts(example, shown),
                "interaction_type": "single_turn",
                "answer_attribution": [],
                "evaluation": {"score": mean, "is_correct": metric.unit == "fraction" and mean == 1.0},
                "metadata": metadata,
            }
            rows.append(row)
    return rows, without


def _shown_texts(example: str, shown: Shown | None) -> dict[str, Any]:
    if shown is None:
        digest = hashlib.sha256(example.encode()).hexdigest()
        return {"sample_hash": digest, "input": {"raw": "", "reference": []}, "output": {"raw": []}}
    given = {"raw": shown.input, "reference": [] if shown.reference is None else [shown.reference]}
    return {"sample_hash": digest_of(given), "input": given, "output": {"raw": list(shown.outputs)}}


def is_record(data: Mapping[str, Any]) -> bool:
    return "schema_version" in data and "evaluation_results" in data


def record_evaluation(path: Path, data: Mapping[str, Any]) -> Evaluation:
    """Return the evaluation in a record and in the instances next to it. Raises DataError for another schema."""
    schema = str(data["schema_version"])
    if not schema.startswith(SUPPORTED):
        raise DataError(f"{path}: is of schema {clip(schema, 20)}; expected {SUPPORTED}x of Every Eval Ever.")
    results: dict[str, Mapping[str, Any]] = {}
    numbers: dict[str, Measured] = {}
    for result in listed(data["evaluation_results"]):
        name = _result_name(result)
        if name in results:
            raise DataError(f"{path}: two results have one evaluation and metric; keep one.")
        results[name] = result
        value = number(mapping(result.get("score_details")).get("score"))
        if value is not None:
            numbers[name] = _measured(result, value)
    if not numbers:
        raise DataError(f"{path}: has no number under `evaluation_results`; expected a record of Every Eval Ever.")
    examples: dict[str, Recorded] = {}
    prompts: dict[str, dict[str, str]] = {}
    for name, read in _read_instances(path, data, results).items():
        names = by_content(read.contents)
        of_task = prompts.setdefault(name.partition("/")[0], {})
        for sample, prompt in read.prompts.items():
            of_task[names[sample]] = prompt
        mean = math.fsum(read.scores.values()) / len(read.scores)
        if name in numbers and math.isclose(mean, numbers[name].value, rel_tol=1e-6, abs_tol=1e-9):
            values = {sample: (score, 1.0) for sample, score in read.scores.items()}
            examples[name] = renamed(Recorded(values, joined_units(read.inputs, read.units)), names)
    library, model = mapping(data.get("eval_library")), mapping(data.get("model_info"))
    details = mapping(model.get("additional_details"))
    identity, variant = clip(str(model.get("id") or UNNAMED)), _variant(details)
    base = {"name": text_of(model.get("name")), "source": text_of(details.get("base_model"))}
    if None in base.values():
        row: dict[str, Any] = named_model(path, identity, variant, slashes=2)
    else:  # what it was trained from, by whose name it goes
        row, variant = {**base, "revision": text_of(details.get("revision"))}, ""
    harness, version = clip(str(library.get("name") or FORMAT), 40), clip(str(library.get("version")))
    rules = _rules_of_tasks(results)
    return Evaluation(
        path=path,
        format=FORMAT,
        harness=harness,
        version=version,
        model=identity,
        variant=variant,
        row=row,
        objective=text_of(details.get("objective")),
        created=text_of(data.get("evaluation_timestamp")) or text_of(data.get("retrieved_timestamp")),
        numbers=numbers,
        examples=examples,
        recorded=examples,
        prompts=prompts,
        rules=rules,
        **entry_facts(path, "record of Every Eval Ever", harness, version, rules, prompts),
    )


def _result_name(result: Mapping[str, Any]) -> str:
    config = mapping(result.get("metric_config"))
    metric = config.get("metric_name") or config.get("metric_id") or "score"
    return f"{task_name(str(result.get('evaluation_name')))}/{task_name(str(metric))}"


def _measured(result: Mapping[str, Any], value: float) -> Measured:
    details, config = mapping(result.get("score_details")), mapping(result.get("metric_config"))
    uncertainty, lower = mapping(details.get("uncertainty")), config.get("lower_is_better")
    given = mapping(uncertainty.get("confidence_interval"))
    low, high, interval = number(given.get("lower")), number(given.get("upper")), None
    if low is not None and high is not None and given.get("confidence_level") == 0.95:
        interval = low, high
    n = number(uncertainty.get("num_samples"))
    unit = "fraction" if config.get("metric_unit") == "proportion" else str(config.get("metric_unit"))
    least, most = RANGES.get(unit, (math.inf, -math.inf))
    covers = mapping(details.get("details")).get("interval covers")
    scale = []
    for key in SCALE:
        bound = config.get(key)
        if bound is not None:  # 1 and 1.0 are the same
            scale.append(f"{key} {float(bound) if isinstance(bound, int) else bound}")
    return Measured(
        value=value,
        unit=unit if least <= value <= most else "score",
        higher_is_better=not lower if isinstance(lower, bool) else None,
        n=None if n is None else int(n),
        interval=interval,
        covers=covers if covers in COVERED else "items",
        scale=" ".join(scale),
    )


@dataclass(frozen=True)
class _ReadInstances:
    """The instances of a metric by their samples: digests of content, prompt and inputs, the score, and the unit."""

    contents: dict[str, str] = field(default_factory=dict)
    prompts: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, list[str]] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)


def _read_instances(
    path: Path, data: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]]
) -> dict[str, _ReadInstances]:
    """Return the instances of each metric in the file that a record names."""
    named = str(mapping(data.get("detailed_evaluation_results")).get("file_path") or f"{path.stem}_samples.jsonl")
    file = path.parent / named.rpartition("/")[2]
    by_id: dict[str, str] = {}
    for name, result in results.items():
        if result.get("evaluation_result_id"):
            by_id[str(result["evaluation_result_id"])] = name
    read: dict[str, _ReadInstances] = {}
    for where, row in json_lines(file) if file.is_file() else ():
        name = by_id.get(str(row.get("evaluation_result_id"))) or _only(str(row.get("evaluation_name")), results)
        score, sample = number(mapping(row.get("evaluation")).get("score")), str(row.get("sample_id"))
        if name is None or score is None or row.get("sample_id") is None:
            raise DataError(f"{where}: expected an instance with `sample_id`, `evaluation.score` and a known result.")
        of_metric = read.setdefault(name, _ReadInstances())
        if sample in of_metric.scores:
            raise DataError(f"{where}: the sample {clip(sample, 60)!r} is there twice; keep one.")
        of_metric.scores[sample] = score
        shown, hashed = mapping(row.get("input")), str(row.get("sample_hash") or row.get("sample_id"))
        raw, reference = shown.get("raw"), shown.get("reference")
        if raw or reference:
            of_metric.contents[sample] = digest_of([raw, reference])
            of_metric.prompts[sample] = digest_of([shown.get("formatted"), reference])
        else:  # without texts, the hash stands for both
            of_metric.contents[sample] = of_metric.prompts[sample] = digest_of(hashed)
        of_metric.inputs[sample] = [content_digest(raw or hashed)]
        unit = text_of(mapping(row.get("metadata")).get(UNIT))
        if unit is not None:
            of_metric.units[sample] = unit
    return read


def _only(evaluation: str, results: Mapping[str, Any]) -> str | None:
    """Return the result of an instance that names only its evaluation, if that has one result."""
    names = [name for name in results if name.partition("/")[0] == task_name(evaluation)]
    return names[0] if len(names) == 1 else None


def _variant(details: Mapping[str, Any]) -> str:
    """Return "@" and the revision of a model that is not the default one."""
    revision = text_of(details.get("revision")) or text_of(details.get("model_revision")) or DEFAULT_REVISIONS[0]
    return "" if revision in DEFAULT_REVISIONS else f"@{clip(revision, 60)}"


def _rules_of_tasks(results: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the rules of each task: where those of its metrics differ, all of them."""
    values: dict[str, dict[str, set[str]]] = {}
    for name, result in results.items():
        arguments = dict(mapping(mapping(result.get("generation_config")).get("generation_args")))
        arguments.pop("execution_command", None)  # which names the model
        of_task = values.setdefault(name.partition("/")[0], {"data": set(), "generation": set(), "protocol": set()})
        of_task["data"].add(json.dumps(result.get("source_data"), sort_keys=True))
        of_task["generation"].add(json.dumps(arguments, sort_keys=True))
        protocol = mapping(mapping(result.get("score_details")).get("details")).get("protocol")
        if protocol is not None:
            of_task["protocol"].add(str(protocol))
    rules: dict[str, dict[str, Any]] = {}
    for task, of_task in values.items():
        rules[task] = {rule: "; ".join(sorted(several)) or None for rule, several in of_task.items()}
    return rules
