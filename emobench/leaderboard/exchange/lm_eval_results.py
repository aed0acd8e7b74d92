"""Reading results of lm-evaluation-harness: names, numbers, protocols and samples. The files may be a stranger's.

Its shape is `lm_eval/result_schema.py` of 0.4.13; files of 0.3 (metrics without a filter) are read, too.
"""

from __future__ import annotations

import glob
import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from emobench.errors import DataError
from emobench.leaderboard.schema.examples import Recorded
from emobench.reading import open_file, parse_json, read_bytes
from emobench.tasks.lm_eval_numbers import (
    Measured,
    clip,
    example_id,
    example_values,
    measured,
    number,
    sampling_units,
    task_name,
)

LARGEST = LONGEST_LINE = 64 * 2**20
"""Bytes of a results file, and of a sample; the results of whole MMLU are below 1 MiB."""

_PLACES = ("data_files", "data_dir")


class ResultsFile:
    """A results file; raises DataError where it is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            content = _bytes(path)
            data = parse_json(content.decode("utf-8"))
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
        except ValueError as error:
            text = f"{path}: no JSON that can be read ({clip(str(error), 100)}); it may be truncated. Copy it again."
            raise DataError(text) from None
        self._protocols: dict[str, str] = {}
        self.sha256 = hashlib.sha256(content).hexdigest()
        self.data: Mapping[str, Any] = mapping(data)
        self.results: Mapping[str, Any] = mapping(self.data.get("results"))
        if not self.results:
            raise DataError(f"{path}: has no `results`; expected a results_*.json as lm_eval --output_path writes it.")
        for task, values in self.results.items():
            if not isinstance(values, Mapping):
                raise DataError(
                    f"{path}: `results` of {clip(task, 60)!r} is {clip(repr(values), 60)}; expected numbers."
                )

    def measured(self) -> Iterator[Measured]:
        """Return every number of every task and group, in the order of the file."""
        for task, values in self.results.items():
            yield from measured(task, values)

    def examples(self, task: str, key: str) -> int | None:
        """Return how many examples stand behind a number (`key` such as "acc,none"). DataError for fewer than one."""
        values = self.results[task]
        counts = (
            mapping(values.get("sample_count")).get(key),
            mapping(self.mapping("n-samples").get(task)).get("effective"),
            values.get("sample_len"),
        )
        given = next((n for n in map(number, counts) if n is not None), None)
        if given is not None and (given < 1 or given != int(given)):
            raise DataError(
                f"{self.path}: {clip(task, 60)}: {clip(key, 60)} is of {given:g} examples; expected 1 or more; nothing "
                "was imported."
            )
        return None if given is None else int(given)

    def members(self, task: str) -> list[str]:
        """Return the tasks that a group is an aggregate of; none for a task."""
        listed = self.mapping("group_subtasks").get(task)
        return [clip(str(name)) for name in listed] if isinstance(listed, list) else []

    def protocol(self, task: str) -> str:
        """Return a task's protocol: version, shots, and a digest of its configuration and of what changes prompts.

        Where the task's data lie, and whom it was run on, are no part of it. A group's has those of its members.
        """
        if task not in self._protocols:
            self._protocols[task] = "its own group"  # what a group that holds itself finds
            self._protocols[task] = self._protocol(task)
        return self._protocols[task]

    def _protocol(self, task: str) -> str:
        config, whole = dict(mapping(self.mapping("configs").get(task))), self.mapping("config")
        config.pop("metadata", None)
        config["dataset_kwargs"] = {k: v for k, v in mapping(config.get("dataset_kwargs")).items() if k not in _PLACES}
        if str(config.get("dataset_path")).startswith(("/", ".")):
            del config["dataset_path"]
        version, shots = self.mapping("versions").get(task), self.mapping("n-shot").get(task)
        members, chat = self.members(task), self.data.get("chat_template_sha")
        facts = {
            "config": config,
            "members": [self.protocol(name) for name in members if name in self.results],
            "version": version,
            "shots": [shots, whole.get("fewshot_seed")] if shots and not members else shots,
            "chat": [chat, self.data.get("fewshot_as_multiturn")] if chat else None,
            "system": self.data.get("system_instruction_sha"),
            "limit": whole.get("limit"),
            "gen_kwargs": whole.get("gen_kwargs"),
        }
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:6]
        words = [
            f"v{clip(str(version), 20)}" if version is not None else "",
            f"{shots}-shot" if number(shots) is not None else "",
        ]
        return "-".join(["lm-eval", *filter(None, words)]) + f"@{digest}"

    def mapping(self, key: str) -> Mapping[str, Any]:
        return mapping(self.data.get(key))

    def text(self, *keys: str) -> str | None:
        """Return the text under nested keys; None where there is none."""
        found: Any = self.data
        for key in keys:
            found = mapping(found).get(key)
        return clip(found) if isinstance(found, str) and found.strip() else None


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _bytes(path: Path) -> bytes:
    content = read_bytes(path, LARGEST + 1)
    if len(content) > LARGEST:
        raise DataError(
            f"{path}: larger than {LARGEST // 2**20} MiB; expected the results_*.json of lm_eval, and not its samples."
        )
    return content


def read_samples(results: ResultsFile) -> dict[str, Recorded]:
    """Return metric name -> its examples and their sampling units, from the samples_*.jsonl next to the results.

    Only metrics whose number is the mean of their examples have them; a corpus score (F1, BLEU) has none. An example is
    identified by its number and the hash of its document. Raises DataError for a line that is not a sample.
    """
    stamp = results.path.stem.rpartition("_")[2]
    raw: dict[str, dict[str, Any]] = {}
    documents: dict[str, dict[str, Any]] = {}
    for path in sorted(results.path.parent.glob(f"samples_*_{glob.escape(stamp)}.jsonl")):
        task = path.name.removeprefix("samples_").removesuffix(f"_{stamp}.jsonl")
        for where, row in _rows(path):
            _collect(raw, task, row, where)
            documents.setdefault(task_name(task), {})[example_id(row)] = row.get("doc")
    units = {task: sampling_units(of) for task, of in documents.items()}
    numbers = {m.name: m for m in results.measured() if m.value is not None}
    found = {name: example_values(numbers[name], rows) for name, rows in raw.items() if name in numbers}
    return {name: Recorded(values, units[name.partition("/")[0]]) for name, values in found.items() if values}


def _collect(raw: dict[str, dict[str, Any]], task: str, row: Mapping[str, Any], where: str) -> None:
    names = row.get("metrics")
    example = example_id(row)
    if row.get("doc_id") is None or not isinstance(names, list):
        raise DataError(f"{where}: expected a sample of lm_eval with `doc_id` and `metrics`.")
    for metric in names:
        name = Measured(task, str(metric), str(row.get("filter", "none")), None, "", None).name
        rows = raw.setdefault(name, {})
        if example in rows:
            raise DataError(f"{where}: the example {example!r} of {metric} stands there twice; keep one.")
        rows[example] = row.get(str(metric))


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    count = 0
    try:
        with io.TextIOWrapper(open_file(path), encoding="utf-8") as file:
            while line := file.readline(LONGEST_LINE):
                count += 1
                row = mapping(parse_json(line))
                yield f"{path}:{count}", row
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise DataError(f"{path}:{count}: no JSON of a sample ({clip(str(error), 80)}); it may be truncated.") from None
