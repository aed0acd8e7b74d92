"""An entry as a results file of lm-evaluation-harness, in the shape of `lm_eval/result_schema.py` (0.4.13)."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from typing import Any

from emobench.leaderboard.schema.entry import Entry, MetricSummary
from emobench.leaderboard.schema.labels import clean
from emobench.leaderboard.schema.private_paths import published
from emobench.leaderboard.stats.distributions import NORMAL

STDERR = "the longer side of ci95 / 1.96: value +- 1.96 stderr holds all of ci95"
_SHOTS = re.compile(r"\b(\d+)-shot\b")
_TASK_HASH = re.compile(r"sha256:([0-9a-f]{64}) \(lm-eval's task_hash\)")


def lm_eval_name(entry: Entry) -> str:
    """Return the folder that lm_eval would keep this model's results in; entries have folders of their own."""
    shown = re.sub(r"[^\w.,=()+-]+", "__", _model_name(entry))
    return f"{shown[:100]}__{entry.id[:6]}"


def lm_eval_file_name(entry: Entry) -> str:
    created = datetime.fromisoformat(entry.provenance.created).astimezone(UTC).replace(tzinfo=None)
    return f"results_{created.isoformat().replace(':', '-')}.json"


def to_json(entry: Entry) -> str:
    """Return the text of the results file."""
    return json.dumps(lm_eval_results(entry), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def lm_eval_results(entry: Entry) -> dict[str, Any]:
    """Return the results file. What has no place in lm-eval's shape is under `emobench`, missing metrics with why."""
    tasks = list(dict.fromkeys(name.split("/", 1)[0] for name in entry.metrics))
    results = {task: _task(entry, task) for task in tasks}
    groups = {task: results[task] for task in tasks if any(metric.of_tasks for metric in _of(entry, task).values())}
    return {
        "results": results,
        **({"groups": groups} if groups else {}),
        "group_subtasks": {task: [] for task in tasks},
        "configs": {task: _config(entry, task) for task in tasks},
        "versions": {task: entry.protocols.get(task, str(entry.suite)) for task in tasks},
        "n-shot": {task: n for task in tasks if (n := _shots(entry, task)) is not None},
        "higher_is_better": {
            task: {key.partition(",")[0]: metric.higher_is_better for key, metric in _of(entry, task).items()}
            for task in tasks
        },
        "n-samples": {task: {"original": n, "effective": n} for task in tasks if (n := _examples(entry, task))},
        "config": _run_config(entry),
        "git_hash": entry.provenance.commit,
        "date": datetime.fromisoformat(entry.provenance.created).timestamp(),
        "transformers_version": entry.provenance.packages.get("transformers"),
        "task_hashes": {
            task: found[1] for task, text in entry.provenance.data.items() if (found := _TASK_HASH.fullmatch(text))
        },
        "model_source": "emobench",
        "model_name": _model_name(entry),
        "model_name_sanitized": lm_eval_name(entry),
        "total_evaluation_time_seconds": str(entry.cost.evaluate_seconds or ""),
        "emobench": _more(entry),
    }


def _of(entry: Entry, task: str) -> dict[str, MetricSummary]:
    """Return a task's metrics under lm-eval's keys, "<metric>,<filter>"."""
    found = {}
    for name, metric in entry.metrics.items():
        owner, _, key = name.partition("/")
        if owner == task:
            found[key if "," in key else f"{key},none"] = metric
    return found


def _task(entry: Entry, task: str) -> dict[str, Any]:
    numbers: dict[str, Any] = {"name": task, "alias": clean(task)}
    count = _examples(entry, task)
    if count is not None:
        numbers["sample_len"] = count
    for key, metric in _of(entry, task).items():
        name, _, chosen = key.partition(",")
        numbers[key] = metric.mean
        longer = max((abs(end - metric.mean) for end in metric.ci95 or ()), default=math.inf)
        numbers[f"{name}_stderr,{chosen}"] = longer / NORMAL if math.isfinite(longer) else "N/A"
    return numbers


def _config(entry: Entry, task: str) -> dict[str, Any]:
    metrics = {key.partition(",")[0]: metric.higher_is_better for key, metric in _of(entry, task).items()}
    return {
        "task": task,
        "num_fewshot": _shots(entry, task),
        "metric_list": [{"metric": name, "higher_is_better": better} for name, better in metrics.items()],
        "metadata": {"version": entry.protocols.get(task, str(entry.suite))},
    }


def _run_config(entry: Entry) -> dict[str, Any]:
    revision = entry.model.revision
    return {
        "model": "emobench",
        "model_args": f"pretrained={entry.model.source}" + (f",revision={revision}" if revision else ""),
        "model_num_parameters": entry.model.parameters,
        "model_dtype": entry.recipe.get("dtype"),
        "model_revision": revision,
        "model_sha": revision or "",
        "device": entry.provenance.hardware,
        "limit": None,
        "bootstrap_iters": 0,
    }


def _more(entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "kind": entry.kind,
        "suite": str(entry.suite),
        "model": entry.model.name,
        "objective": entry.objective.label,
        "seeds": list(entry.seeds),
        "source": published({"command": entry.source.command, "cite": entry.source.cite}),
        "stderr": STDERR,
        "missing": dict(entry.missing),
    }


def _examples(entry: Entry, task: str) -> int | None:
    return max((metric.n for metric in _of(entry, task).values() if metric.n), default=None)


def _shots(entry: Entry, task: str) -> int | None:
    found = _SHOTS.search(entry.protocols.get(task, ""))
    return int(found[1]) if found else None


def _model_name(entry: Entry) -> str:
    return clean(entry.model.name if entry.untrained else f"{entry.model.name}-{entry.objective.label}")
