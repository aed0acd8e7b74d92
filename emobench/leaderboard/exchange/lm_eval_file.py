"""Reading a results file of lm-evaluation-harness: names, numbers and protocols. The file is a stranger's.

Its shape is `lm_eval/result_schema.py` of 0.4.13; files of 0.3 (metrics without a filter) are read, too.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.errors import DataError

LARGEST = 64 * 2**20
"""Bytes of a results file; those of whole MMLU are below 1 MiB."""

LONGEST = 500
"""Characters of a text that is taken over."""

_FACTS = ("name", "alias", "sample_len", "sample_count")
_FRACTIONS = {
    *("acc", "acc_norm", "acc_bytes", "acc_all", "acc_mutual_info", "exact_match", "em", "f1", "pass@1", "pass_at_1"),
    *("rouge1", "rouge2", "rougeL", "rougeLsum", "prompt_level_strict_acc", "prompt_level_loose_acc"),
    *("inst_level_strict_acc", "inst_level_loose_acc"),
}
"""Metrics that lm-eval gives from 0 to 1; a value beyond that is no fraction (some tasks give percent)."""
_PLACES = ("data_files", "data_dir")


@dataclass(frozen=True)
class Measured:
    """One number of a file: `value` is None where it is none, and `said` is then what stands there."""

    task: str
    metric: str
    filter: str
    value: float | None
    said: str
    stderr: float | None

    @property
    def name(self) -> str:
        return metric_name(self.task, self.metric, self.filter)

    @property
    def key(self) -> str:
        return f"{self.metric},{self.filter}"

    @property
    def unit(self) -> str:
        if self.metric.endswith("perplexity"):
            return "perplexity"
        if self.metric == "bits_per_byte":
            return "bits per byte"
        known = self.metric in _FRACTIONS and self.value is not None and 0 <= self.value <= 1
        return "fraction" if known else "score"


class ResultsFile:
    """A results file; raises DataError where it is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            content = _bytes(path)
            data = json.loads(content.decode("utf-8"))
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
        except (ValueError, RecursionError) as error:
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
            for key, value in values.items():
                metric, _, chosen = key.partition(",")
                if key in _FACTS or not metric.strip() or metric.endswith("_stderr"):
                    continue
                error = values.get(f"{metric}_stderr,{chosen}" if "," in key else f"{metric}_stderr")
                found = number(value)
                said = clip(json.dumps(value, ensure_ascii=False), 40)
                yield Measured(task, metric, chosen or "none", found, said, number(error))

    def examples(self, task: str, key: str) -> int | None:
        """Return how many examples stand behind a number (`key` such as "acc,none")."""
        values = self.results[task]
        counts = (
            mapping(values.get("sample_count")).get(key),
            mapping(self.mapping("n-samples").get(task)).get("effective"),
            values.get("sample_len"),
        )
        return next((n for n in counts if isinstance(n, int) and not isinstance(n, bool) and n >= 1), None)

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


def metric_name(task: str, metric: str, chosen: str) -> str:
    """Return "<task>/<metric>", with lm-eval's filter behind a comma unless it is "none"."""
    shown = metric if chosen == "none" else f"{metric},{chosen}"
    shown = re.sub(r"\s", "_", clip(shown))
    return f"{task_name(task)}/{shown}"


def task_name(task: str) -> str:
    return re.sub(r"[/\s]", "_", clip(task)) or "_"


def number(value: Any) -> float | None:
    """Return a finite number; None for anything else, such as NaN and lm-eval's "N/A"."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def clip(text: str, longest: int = LONGEST) -> str:
    """Return text that can be written as UTF-8, of a bounded length."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise DataError(
            f"{path}: larger than {LARGEST // 2**20} MiB; expected the results_*.json of lm_eval, and not its samples."
        )
    return content
