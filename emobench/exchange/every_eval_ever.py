"""Entries as records of *Every Eval Ever*, schema 0.3, in the layout of its datastore, with an instance per example.

A record has one model's numbers in a JSON file; its instances are a JSON Lines file next to it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from emobench.exchange.every_eval_ever_instances import Instances, Shown, instances
from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.run_files import Recorded
from emobench.tasks.scores import RANGES

SCHEMA = "0.3.0"
UNKNOWN = "unknown"
"""Stands where the schema needs a word, and an entry has none."""
LONGEST_PART = 100
"""Characters of a folder's name."""
DEVELOPER = "emobench"
"""Of a model whose id names no owner; a folder of the datastore."""


def files(
    entry: Entry, examples: Sequence[Mapping[str, Recorded]] = (), texts: Mapping[tuple[str, str], Shown] | None = None
) -> dict[str, str]:
    """Return an entry's record by its path in the datastore, and its instances, if there are per-example results.

    `examples` has those of each run, and `texts` what is known of the examples' texts, by task and example.
    """
    model = _identity(entry)
    owner, _, name = model.rpartition("/")
    parts = entry.suite.name, owner.split("/")[0] or DEVELOPER, "_".join([*owner.split("/")[1:], name])
    # A version 4 UUID, which the datastore wants, that is the same for each export of one entry.
    unique = uuid.UUID(bytes=hashlib.sha256(f"emobench {entry.id}".encode()).digest()[:16], version=4)
    folders = [re.sub(r'[<>:"\\|?*\s\x00-\x1f]', "_", part)[:LONGEST_PART] for part in parts]
    place = "/".join(["data", *folders, str(unique)])
    made = instances(entry, examples, texts or {}, _evaluation(entry), model, SCHEMA)
    found = {f"{place}.json": _json(record(entry, made, f"{place}_samples.jsonl"))}
    return found | ({f"{place}_samples.jsonl": made.text} if made.rows else {})


def _identity(entry: Entry) -> str:
    """Return the id of a model: its source, or the model and what it was trained with."""
    return entry.model.source if entry.untrained else f"{entry.model.name}-{entry.objective.label}"


def _when(entry: Entry) -> datetime:
    """Return when an entry was made; a date without a zone is one of UTC, on every machine."""
    found = datetime.fromisoformat(entry.provenance.created)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _evaluation(entry: Entry) -> str:
    return f"{entry.suite.name}/{_identity(entry)}/{int(_when(entry).timestamp())}"


def record(entry: Entry, made: Instances | None = None, path: str = "") -> dict[str, Any]:
    """Return an entry as an aggregate record, which names its instances at `path`, if there are some.

    A metric without a better direction, which a record needs, is missing.
    """
    when, identity, evaluation = _when(entry), _identity(entry), _evaluation(entry)
    detailed = (
        {
            "format": "jsonl",
            "file_path": path,
            "hash_algorithm": "sha256",
            "checksum": hashlib.sha256(made.text.encode()).hexdigest(),
            "total_rows": len(made.rows),
            "additional_details": {f"without {name}": why for name, why in made.missing.items()},
        }
        if made and made.rows
        else None
    )
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
        **({"detailed_evaluation_results": detailed} if detailed else {}),
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
    developer = {} if "/" in identity else {"developer": DEVELOPER}
    return {"name": entry.model.name, "id": identity, **developer, "additional_details": given}


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


def _json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
