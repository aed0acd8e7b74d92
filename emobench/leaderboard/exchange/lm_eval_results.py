"""Reading results of lm-evaluation-harness: names, numbers, protocols and samples. The files may be a stranger's.

Its shape is `lm_eval/result_schema.py` of 0.4.13; files of 0.3 (metrics without a filter) are read, too.
"""

from __future__ import annotations

import glob
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.errors import DataError
from emobench.leaderboard.exchange.evaluation import EXPECTED
from emobench.leaderboard.schema.examples import Recorded
from emobench.reading import parse_json, read_bytes
from emobench.tasks.lm_eval_numbers import (
    LmEvalNumber,
    clip,
    example_id,
    example_values,
    number,
    numbers_of,
    sample_contents,
    sampling_units,
    task_name,
)

_PLACES = ("data_files", "data_dir")
_TIME = re.compile(r"_\d{4}-\d\d-\d\dT[\d.:-]+$")
"""The time in the name of a samples file."""


class ResultsFile:
    """A results file; raises DataError for any other file."""

    def __init__(self, path: Path, content: bytes | None = None) -> None:
        self.path = path
        content, self.data = read_json(path, content)
        self._protocols: dict[str, str] = {}
        self.sha256 = hashlib.sha256(content).hexdigest()
        self.results = self.mapping("results")
        if not self.results or not all(isinstance(values, Mapping) for values in self.results.values()):
            raise DataError(
                f"{path}: has no `results` with numbers of tasks; expected a results_*.json as lm_eval --output_path "
                "writes it."
            )

    def numbers(self) -> dict[str, LmEvalNumber]:
        """Return every number of every task and group by its name. DataError where two have one name."""
        found: dict[str, LmEvalNumber] = {}
        for one in (one for task, values in self.results.items() for one in numbers_of(task, values)):
            if one.name in found:
                raise DataError(f"{self.path}: two numbers are called {one.name!r}; rename one task.")
            found[one.name] = one
        return found

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
        found = mapping(self.mapping("higher_is_better").get(of.task)).get(of.metric)
        return found if isinstance(found, bool) else None

    def members(self, task: str) -> list[str]:
        """Return the tasks that a group is an aggregate of; none for a task."""
        listed = self.mapping("group_subtasks").get(task)
        return [clip(str(name)) for name in listed] if isinstance(listed, list) else []

    def protocol(self, task: str) -> str:
        """Return a task's protocol: version, shots, and a digest of its configuration and of what changes prompts.

        Where the task's data lie, and whom it was run on, are no part of it. A group's has those of its members.
        """
        if task not in self._protocols:
            self._protocols[task] = "its own group"  # for a group that holds itself
            self._protocols[task] = self._protocol(task)
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
        return {
            "config": config,
            "members": [self.protocol(name) for name in members if name in self.results],
            "version": self.mapping("versions").get(task),
            "shots": [shots, whole.get("fewshot_seed")] if shots and not members else shots,
            "chat": [chat, self.data.get("fewshot_as_multiturn")] if chat else None,
            "system": self.data.get("system_instruction_sha"),
            "limit": whole.get("limit"),
            "gen_kwargs": whole.get("gen_kwargs"),
        }

    def mapping(self, key: str) -> Mapping[str, Any]:
        return mapping(self.data.get(key))

    def text(self, *keys: str) -> str | None:
        """Return the text under nested keys, if any."""
        found: Any = self.data
        for key in keys:
            found = mapping(found).get(key)
        return clip(found) if isinstance(found, str) and found.strip() else None


def listed(value: Any) -> list[Mapping[str, Any]]:
    return [mapping(one) for one in value] if isinstance(value, list) else []


def read_json(path: Path, content: bytes | None = None) -> tuple[bytes, Mapping[str, Any]]:
    """Return a file's bytes, or those that were read before, and the mapping in them. Raises DataError."""
    try:
        content = read_bytes(path) if content is None else content
        return content, mapping(parse_json(content.decode("utf-8")))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    except ValueError as error:
        cut = path.suffix == ".json"
        mend = "it may be truncated. Copy it again." if cut else f"expected {EXPECTED}, or their folder."
        raise DataError(f"{path}: no JSON that can be read ({clip(str(error), 100)}); {mend}") from None


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


@dataclass(frozen=True)
class Samples:
    """`examples` by metric. Of each task's examples, `contents` has a digest of the document, `prompts` of the prompt.

    Only metrics whose number is the mean of their examples have examples; a corpus score (F1, BLEU) has none.
    """

    examples: Mapping[str, Recorded]
    contents: Mapping[str, Mapping[str, str]]
    prompts: Mapping[str, Mapping[str, str]]


def read_samples(results: ResultsFile) -> Samples:
    """Return what the samples_*.jsonl next to the results hold.

    An example is identified by its number and the hash of its document. Raises DataError for a line that is not a
    sample.
    """
    values: dict[str, dict[str, Any]] = {}
    documents: dict[str, dict[str, Any]] = {}
    inputs: dict[str, dict[str, list[str]]] = {}
    contents: dict[str, dict[str, str]] = {}
    prompts: dict[str, dict[str, str]] = {}
    for path, task in samples_files(results.path):
        for where, row in json_lines(path):
            example, metrics = example_id(row), row.get("metrics")
            if row.get("doc_id") is None or not isinstance(metrics, list):
                raise DataError(f"{where}: expected a sample of lm_eval with `doc_id` and `metrics`.")
            for metric in map(str, metrics):
                of = values.setdefault(LmEvalNumber(task, metric, str(row.get("filter", "none"))).name, {})
                if example in of:
                    raise DataError(f"{where}: the example {example!r} of {metric} is there twice; keep one.")
                of[example] = row.get(metric)
            documents.setdefault(task_name(task), {})[example] = row.get("doc")
            inputs.setdefault(task_name(task), {})[example] = sample_contents(row)
            contents.setdefault(task_name(task), {})[example] = str(row.get("doc_hash") or _digest(row.get("doc")))
            prompts.setdefault(task_name(task), {})[example] = _prompt(row)
    units = {task: sampling_units(of, inputs[task]) for task, of in documents.items()}
    numbers = {name: one for name, one in results.numbers().items() if one.value is not None}
    found = {name: example_values(numbers[name], of) for name, of in values.items() if name in numbers}
    examples = {name: Recorded(of, units[name.partition("/")[0]]) for name, of in found.items() if of}
    return Samples(examples, contents, prompts)


def samples_files(path: Path) -> list[tuple[Path, str]]:
    """Return the samples files of a results file and the task of each: of its time, or of any if its name has none."""
    _, separator, stamp = path.stem.rpartition("_")
    stamp = stamp if separator else ""
    found = sorted(path.parent.glob(f"samples_*{'_' + glob.escape(stamp) if stamp else ''}.jsonl"))
    named = [(one, one.name.removeprefix("samples_").removesuffix(".jsonl")) for one in found]
    return [(one, name.removesuffix(f"_{stamp}") if stamp else _TIME.sub("", name)) for one, name in named]


def require_no_samples(path: Path) -> None:
    """Raise DataError for a samples file in the place of its results file, which it names if it is there."""
    if not (path.name.startswith("samples_") and path.suffix == ".jsonl"):
        return
    found = [one for one in sorted(path.parent.glob("results*.json")) if path in dict(samples_files(one))]
    expected = f"its results file {found[0]}" if found else "its results_*.json, which lm-evaluation-harness writes"
    raise DataError(f"{path} holds the samples of one task; expected {expected}, or the folder that holds both.")


def _prompt(row: Mapping[str, Any]) -> str:
    """Return a digest of the prompt and the target."""
    hashes = row.get("prompt_hash"), row.get("target_hash")
    return _digest(hashes if any(hashes) else (row.get("arguments"), row.get("target")))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode(errors="replace")).hexdigest()


def json_lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place and the content of each line. Raises DataError for a line that is no JSON."""
    count = 0
    try:
        with path.open(encoding="utf-8") as file:
            for count, line in enumerate(file, 1):
                yield f"{path}:{count}", mapping(parse_json(line))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise DataError(f"{path}:{count}: no JSON of a sample ({clip(str(error), 80)}); it may be truncated.") from None
