"""Per-example results of lm-evaluation-harness: the samples files beside a results file, of 0.4.0 and later.

    0.4.0 to 0.4.2     <model arguments>_<task>.jsonl, which holds one JSON list; no hashes
    0.4.3 to 0.4.6     samples_<task>_<time>.jsonl, one JSON object in a line; no `metrics`, no `filter`
    later              the same, with `metrics` and `filter`

Until 0.4.6, a task with several filters has each document once for each filter, in the order of its `filter_list`.
"""

from __future__ import annotations

import glob
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emobench.core.errors import DataError
from emobench.data.sampling_units import joined_units
from emobench.exchange.json_files import json_rows, listed, mapping
from emobench.exchange.lm_eval_results import ResultsFile
from emobench.leaderboard.run_files import Recorded
from emobench.tasks.lm_eval_numbers import (
    LmEvalNumber,
    example_id,
    example_values,
    named_units,
    sample_contents,
    task_name,
)

_TIME = re.compile(r"_\d{4}-\d\d-\d\dT[\d.:-]+$")
"""The time in the name of a samples file."""


@dataclass(frozen=True)
class Samples:
    """`examples` by metric. The digests of each task's examples: of the document, of prompt and target, of the target.

    Only metrics whose number is the mean of their examples have examples; a corpus score (F1, BLEU) has none.
    `inputs` are each task's `sample_contents`, and `named` its `named_units`.
    """

    examples: dict[str, Recorded] = field(default_factory=dict)
    contents: dict[str, dict[str, str]] = field(default_factory=dict)
    prompts: dict[str, dict[str, str]] = field(default_factory=dict)
    targets: dict[str, dict[str, str]] = field(default_factory=dict)
    inputs: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    named: dict[str, dict[str, str]] = field(default_factory=dict)


def read_samples(results: ResultsFile) -> Samples:
    """Return what the samples files next to the results hold.

    An example is identified by its number and the hash of its document. Raises DataError for a line that is not a
    sample.
    """
    values: dict[str, dict[str, Any]] = {}
    documents: dict[str, dict[str, Any]] = {}
    found = Samples()
    for path, task in samples_files(results.path, results):
        name = task_name(task)
        metrics = _metrics(results, task)
        seen: Counter[str] = Counter()
        for where, row in json_rows(path):
            if row.get("doc_id") is None:
                raise DataError(f"{where}: expected a sample of lm_eval with `doc_id`.")
            hashes = _hashes(row)
            example = example_id({**row, **hashes})
            chosen = row["filter"] if isinstance(row.get("filter"), str) else _nth(list(metrics), seen[example])
            seen[example] += 1
            listed_there = isinstance(row.get("metrics"), list)
            for metric in map(str, row["metrics"] if listed_there else metrics.get(chosen, ())):
                if metric not in row:
                    continue
                of = values.setdefault(LmEvalNumber(task, metric, chosen).name, {})
                if example in of:
                    raise DataError(f"{where}: the example {example!r} of {metric} is there twice; keep one.")
                of[example] = row.get(metric)
            documents.setdefault(name, {})[example] = row.get("doc")
            found.inputs.setdefault(name, {})[example] = sample_contents(row)
            found.contents.setdefault(name, {})[example] = hashes["doc_hash"]
            found.prompts.setdefault(name, {})[example] = _digest([hashes["prompt_hash"], hashes["target_hash"]])
            found.targets.setdefault(name, {})[example] = hashes["target_hash"]
    found.named.update({task: named_units(of) for task, of in documents.items()})
    units = {task: joined_units(found.inputs[task], named) for task, named in found.named.items()}
    numbers = results.numbers()
    for name, of in values.items():
        if name in numbers and (kept := example_values(numbers[name], of)):
            found.examples[name] = Recorded(kept, units[name.partition("/")[0]])
    return found


def _metrics(results: ResultsFile, task: str) -> dict[str, list[str]]:
    """Return filter -> the metrics of a task with it. Filters are in the order of the task's configuration."""
    config = mapping(results.mapping("configs").get(task))
    found: dict[str, list[str]] = {str(one.get("name")): [] for one in listed(config.get("filter_list"))}
    for one in results.numbers().values():
        if one.task == task:
            found.setdefault(one.filter, []).append(one.metric)
    return found or {"none": []}


def _nth(filters: list[str], place: int) -> str:
    """Return the filter of a document that comes for the `place`-th time; the last one of a document that repeats."""
    return filters[min(place, len(filters) - 1)]


def samples_files(path: Path, results: ResultsFile | None = None) -> list[tuple[Path, str]]:
    """Return the samples files of a results file and the task of each: of its time, or of any if its name has none.

    With the `results` that the file holds, also the files that lm-eval before 0.4.3 names by the model's arguments.
    """
    _, separator, stamp = path.stem.rpartition("_")
    stamp = stamp if separator else ""
    found = sorted(path.parent.glob(f"samples_*{'_' + glob.escape(stamp) if stamp else ''}.jsonl"))
    named = [(one, one.name.removeprefix("samples_").removesuffix(".jsonl")) for one in found]
    files = [(one, name.removesuffix(f"_{stamp}") if stamp else _TIME.sub("", name)) for one, name in named]
    return files or (_older_files(results) if results else [])


def _older_files(results: ResultsFile) -> list[tuple[Path, str]]:
    arguments = re.sub("/|=", "__", results.text("config", "model_args") or "")
    named = {task: f"{arguments}_{task}.jsonl" for task in results.results}
    there = {one.name: one for one in results.path.parent.glob("*.jsonl")}
    return [(there[name], task) for task, name in named.items() if name in there]


def require_no_samples(path: Path) -> None:
    """Raise DataError for a samples file in the place of its results file, which it names if it is there."""
    if not (path.name.startswith("samples_") and path.suffix == ".jsonl"):
        return
    found = [one for one in sorted(path.parent.glob("results*.json")) if path in dict(samples_files(one))]
    expected = f"its results file {found[0]}" if found else "its results_*.json, which lm-evaluation-harness writes"
    raise DataError(f"{path} holds the samples of one task; expected {expected}, or the folder that holds both.")


def _hashes(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the hashes of a sample's document, prompt and target, made as lm-eval makes them if they are missing."""
    document = json.dumps(row.get("doc", row["doc_id"]), indent=2, ensure_ascii=False)
    parts = {"doc_hash": document, "prompt_hash": _prompt(row.get("arguments")), "target_hash": str(row.get("target"))}
    return {key: own if isinstance(own := row.get(key), str) and own else _sha256(text) for key, text in parts.items()}


def _prompt(arguments: Any) -> str:
    """Return the first argument of a sample's first request, or all of them if they have another shape."""
    first = mapping(mapping(arguments).get("gen_args_0")).get("arg_0")
    if isinstance(arguments, list) and arguments and isinstance(arguments[0], list) and arguments[0]:
        first = arguments[0][0]
    return first if isinstance(first, str) else json.dumps(arguments, sort_keys=True)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _digest(value: Any) -> str:
    return _sha256(json.dumps(value, sort_keys=True))
