"""Reading results of lm-evaluation-harness: names, numbers and protocols. The files may be a stranger's.

Its shape is `lm_eval/result_schema.py` of 0.4.13; files of 0.3 (metrics without a filter) are read, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emobench.core.errors import DataError
from emobench.exchange.directions import known_direction
from emobench.exchange.evaluation import EXPECTED
from emobench.exchange.json_files import listed, mapping, read_json
from emobench.exchange.lm_eval_model import deciding_arguments, window
from emobench.tasks.lm_eval_numbers import LmEvalNumber, clip, number, numbers_of

_PLACES = ("data_files", "data_dir")
ROLLING = "loglikelihood_rolling"
"""The output type of tasks whose documents are read window by window."""
LIGHTEVAL = "config_general"
"""A field that results of LightEval have, and those of lm-evaluation-harness have not."""


class ResultsFile:
    """A results file; raises DataError for any other file."""

    def __init__(self, path: Path, content: bytes | None = None) -> None:
        self.path = path
        content, self.data = read_json(path, content)
        self._protocols: dict[str, str] = {}
        self.sha256 = hashlib.sha256(content).hexdigest()
        self.results = self.mapping("results")
        if LIGHTEVAL in self.data:
            raise DataError(f"{path}: results of LightEval, which are not read; expected {EXPECTED}.")
        if not self.results or not all(isinstance(values, Mapping) for values in self.results.values()):
            raise DataError(
                f"{path}: has no `results` with numbers of tasks; expected a results_*.json as lm_eval --output_path "
                "writes it."
            )
        self._numbers = self._read_numbers()
        if not self._is_of_lm_eval():
            raise DataError(
                f"{path}: its `results` are not those of lm-evaluation-harness, whose numbers have names such as "
                f'"acc,none" (metric and filter), or "acc" and "acc_stderr"; expected {EXPECTED}.'
            )

    def _is_of_lm_eval(self) -> bool:
        """Return whether numbers are named as lm-eval 0.4 does, or stand beside what 0.3 writes."""
        for values in self.results.values():
            if any("," in key or f"{key}_stderr" in values for key in values):
                return True
        return "model" in self.mapping("config") and self.results.keys() <= self.mapping("versions").keys()

    def numbers(self) -> Mapping[str, LmEvalNumber]:
        """Return every number of every task and group by its name."""
        return self._numbers

    def _read_numbers(self) -> dict[str, LmEvalNumber]:
        """Return every number by its name. Raises DataError if two have one name."""
        found: dict[str, LmEvalNumber] = {}
        for one in (one for task, values in self.results.items() for one in numbers_of(task, values)):
            if one.name in found:
                raise DataError(f"{self.path}: two numbers are called {one.name!r}; rename one task.")
            found[one.name] = one
        return found

    def require_numbers(self) -> None:
        """Raise DataError for a file without any number."""
        numbers = self.numbers().values()
        if any(one.value is not None for one in numbers):
            return
        why = " It was made with --predict_only, which scores nothing." if any(one.is_bypass for one in numbers) else ""
        raise DataError(f"{self.path}: has no number under `results`.{why}")

    def examples(self, of: LmEvalNumber) -> int | None:
        """Return how many examples a number is over."""
        values = self.results[of.task]
        counts = (
            mapping(values.get("sample_count")).get(of.key),
            mapping(self.mapping("n-samples").get(of.task)).get("effective"),
            values.get("sample_len"),
        )
        return next((int(n) for n in map(number, counts) if n is not None), None)

    def higher_is_better(self, of: LmEvalNumber) -> bool | None:
        """Return a metric's direction: the file's, or that of its task's configuration, or of its name.

        None also where the file says that the tasks of a group disagree.
        """
        told = mapping(self.mapping("higher_is_better").get(of.task))
        config = mapping(self.mapping("configs").get(of.task))
        configured = [one for one in listed(config.get("metric_list")) if one.get("metric") == of.metric]
        for found in (told, *({of.metric: one.get("higher_is_better")} for one in configured)):
            if isinstance(found.get(of.metric), bool):
                return bool(found[of.metric])
        return None if of.metric in told else known_direction(of.metric)

    def members(self, task: str) -> list[str]:
        """Return the tasks that a group is an aggregate of; none for a task."""
        found = self.mapping("group_subtasks").get(task)
        return [clip(str(name)) for name in found] if isinstance(found, list) else []

    def protocol(self, task: str) -> str:
        """Return a task's protocol: version, shots, and a digest of its configuration and of what changes prompts.

        Where the task's data lie, and whom it was run on, are no part of it. A group's has those of its members.
        """
        if task not in self._protocols:
            self._protocols[task] = "its own group"  # for a group that holds itself
            try:
                self._protocols[task] = self._protocol(task)
            except RecursionError:
                raise DataError(f"{self.path}: groups hold one another too deeply.") from None
        return self._protocols[task]

    def _protocol(self, task: str) -> str:
        facts = self.facts(task)
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:6]
        version, shots = facts["version"], self.mapping("n-shot").get(task)
        words = [
            f"v{clip(str(version), 20)}" if version is not None else "",
            f"{shots}-shot" if number(shots) is not None else "",
        ]
        return "-".join(["lm-eval", *filter(None, words)]) + f"@{digest}"

    def facts(self, task: str) -> dict[str, Any]:
        """Return what decides a task's numbers beside the model and the data."""
        config, whole = dict(mapping(self.mapping("configs").get(task))), self.mapping("config")
        config.pop("metadata", None)
        config["dataset_kwargs"] = {k: v for k, v in mapping(config.get("dataset_kwargs")).items() if k not in _PLACES}
        if str(config.get("dataset_path")).startswith(("/", ".")):
            del config["dataset_path"]
        shots = self.mapping("n-shot").get(task)
        members, chat = self.members(task), self.data.get("chat_template_sha")
        facts = {
            "config": config,
            "members": [self.protocol(name) for name in members if name in self.results],
            "version": self.mapping("versions").get(task),
            "shots": [shots, whole.get("fewshot_seed")] if shots and not members else shots,
            "chat": [chat, self.data.get("fewshot_as_multiturn")] if chat else None,
            "system": self.data.get("system_instruction_sha"),
            "limit": whole.get("limit"),
            "gen_kwargs": whole.get("gen_kwargs"),
        }
        if arguments := deciding_arguments(self.data):
            facts["arguments"] = arguments
        tokens, chosen = window(self.data)
        if tokens is not None and (chosen or config.get("output_type") == ROLLING):
            facts["window"] = tokens
        return facts

    def mapping(self, key: str) -> Mapping[str, Any]:
        return mapping(self.data.get(key))

    def text(self, *keys: str) -> str | None:
        """Return the text under nested keys, if any."""
        found: Any = self.data
        for key in keys:
            found = mapping(found).get(key)
        return clip(found) if isinstance(found, str) and found.strip() else None
