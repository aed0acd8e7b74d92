"""Results of lm-evaluation-harness as an Evaluation: a results file, and the samples files beside it.

The shape of a results file is `lm_eval/result_schema.py` of 0.4.13; files of 0.3 (metrics without a filter) are read,
too. Samples are those of 0.4.0 and later:

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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emobench.core.errors import DataError
from emobench.core.settings import file_sha256
from emobench.data.sampling_units import joined_units
from emobench.exchange.evaluation import (
    EXPECTED,
    Evaluation,
    Measured,
    Window,
    by_content,
    digest_of,
    json_rows,
    known_direction,
    listed,
    mapping,
    named_model,
    normal_interval,
    renamed,
    tasks_below,
    text_of,
)
from emobench.exchange.lm_eval_model import (
    changed_weights,
    deciding_arguments,
    loading,
    model_name,
    precision,
    variant,
    window,
)
from emobench.leaderboard.private_paths import without_paths
from emobench.leaderboard.run_files import Recorded
from emobench.tasks.lm_eval_numbers import (
    NUMBERED,
    LmEvalNumber,
    clip,
    example_id,
    example_values,
    gives,
    named_units,
    number,
    numbers_of,
    sample_contents,
    task_name,
)

FORMAT = "lm-eval"
NO_ERROR = "lm-eval gives no standard error"
ROLLING = "loglikelihood_rolling"
"""The output type of tasks whose documents are read window by window."""
LIGHTEVAL = "config_general"
"""A field that results of LightEval have, and those of lm-evaluation-harness have not."""
_PLACES = ("data_files", "data_dir")
_SEEDS = {"random_seed": "random", "numpy_seed": "numpy", "torch_seed": "torch", "fewshot_seed": "few-shot"}
_SHOWN = {"shots": "n-shot", "chat": "chat template", "system": "system instruction"}
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Of a function that older files name by its place in memory."""
_TIME = re.compile(r"_\d{4}-\d\d-\d\dT[\d.:-]+$")
"""The time in the name of a samples file."""


def lm_eval_evaluation(path: Path, data: Mapping[str, Any], *, lenient: bool = False) -> Evaluation:
    """Return the evaluation in a results file with this content and in the samples next to it.

    Raises DataError for any other file, and for a line that is no sample; a `lenient` reader does without such samples.
    """
    file = ResultsFile(path, data)
    notes: tuple[str, ...] = ()
    try:
        samples = read_samples(file)
    except DataError as error:
        if not lenient:
            raise
        samples, notes = Samples(), (f"without per-example results: {error}",)
    names = {task: by_content(contents) for task, contents in samples.contents.items()}
    examples: dict[str, Recorded] = {}
    for metric, recorded in samples.examples.items():
        examples[metric] = renamed(recorded, names[metric.partition("/")[0]])
    examples |= _examples_of_groups(file, samples, names)
    numbers: dict[str, Measured] = {}
    absent, without = {}, {}
    why = "it is no mean of its examples" if samples.contents else "evaluate with --log_samples"
    for name, one in file.numbers.items():
        if one.value is None:
            absent[name] = one.absent
            continue
        numbers[name] = file.measured(one)
        if name not in examples:
            without[name] = why
    file.require_numbers()
    of_tasks: dict[str, Any] = {name: {} for name in ("windows", "rules", "members", "protocols", "data")}
    for given in file.results:
        task, task_hash = task_name(given), file.text("task_hashes", given)
        of_tasks["windows"][task] = file.window(given)
        of_tasks["rules"][task] = file.rules(given)
        of_tasks["members"][task] = tuple(map(task_name, file.members(given)))
        of_tasks["protocols"][task] = file.protocol(given)
        if task_hash:
            of_tasks["data"][task] = f"sha256:{task_hash} (lm-eval's task_hash)"
    version, date, chat = file.text("lm_eval_version"), number(data.get("date")), data.get("chat_template_sha")
    packages = {"lm-eval": version, "transformers": file.text("transformers_version")}
    return Evaluation(
        path=path,
        format=FORMAT,
        harness=FORMAT,
        version=version,
        model=model_name(data),
        variant=variant(data),
        numbers=numbers,
        examples=examples,
        recorded=samples.examples,
        without=without,
        absent=absent,
        notes=notes,
        prompts=_renamed_digests(samples.prompts, names),
        targets=_renamed_digests(samples.targets, names),
        template=str(chat) if chat else None,
        precision=precision(data),
        row=_entry_model(file),
        recipe=_recipe(file),
        tool=f"lm-evaluation-harness {version or 'of an unnamed version'}",
        cite=_cite(file),
        interval_source="ci95: 1.96 of lm-eval's standard errors to either side",
        created=None if date is None else str(date),
        provenance={
            "commit": file.text("git_hash"),
            "packages": {name: installed for name, installed in packages.items() if installed},
            "hardware": file.text("config", "device"),
        },
        **of_tasks,
    )


class ResultsFile:
    """A results file with its content; raises DataError for any other file. `numbers` are by their names."""

    def __init__(self, path: Path, data: Mapping[str, Any]) -> None:
        self.path, self.data = path, data
        self._protocols: dict[str, str] = {}
        self.results = self.mapping("results")
        if LIGHTEVAL in data:
            raise DataError(f"{path}: results of LightEval, which are not read; expected {EXPECTED}.")
        if not self.results or not all(isinstance(values, Mapping) for values in self.results.values()):
            raise DataError(
                f"{path}: has no `results` with numbers of tasks; expected a results_*.json as lm_eval --output_path "
                "writes it."
            )
        self.numbers: dict[str, LmEvalNumber] = {}
        for task, values in self.results.items():
            for one in numbers_of(task, values):
                if one.name in self.numbers:
                    raise DataError(f"{path}: two numbers are called {one.name!r}; rename one task.")
                self.numbers[one.name] = one
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

    def mapping(self, key: str) -> Mapping[str, Any]:
        return mapping(self.data.get(key))

    def text(self, *keys: str) -> str | None:
        """Return the text under nested keys, if any."""
        value: Any = self.data
        for key in keys:
            value = mapping(value).get(key)
        return text_of(value)

    def config(self, task: str) -> Mapping[str, Any]:
        return mapping(self.mapping("configs").get(task))

    def require_numbers(self) -> None:
        """Raise DataError for a file without any number."""
        numbers = self.numbers.values()
        if any(one.value is not None for one in numbers):
            return
        why = " It was made with --predict_only, which scores nothing." if any(one.is_bypass for one in numbers) else ""
        raise DataError(f"{self.path}: has no number under `results`.{why}")

    def measured(self, of: LmEvalNumber) -> Measured:
        """Return a number that is there, with an interval if it has a standard error."""
        value, members = of.value or 0.0, len(self.members(of.task))
        return Measured(
            value=value,
            unit=of.unit,
            higher_is_better=self.higher_is_better(of),
            n=self.examples(of),
            interval=normal_interval(value, of.stderr, fraction=of.unit == "fraction"),
            without_interval=NO_ERROR if of.stderr is None else "lm-eval's standard error is 0",
            flags=(f"group_of_{members}_tasks",) if members else (),
        )

    def examples(self, of: LmEvalNumber) -> int | None:
        """Return how many examples a number is over."""
        values = self.results[of.task]
        counts = (
            mapping(values.get("sample_count")).get(of.key),
            mapping(self.mapping("n-samples").get(of.task)).get("effective"),
            values.get("sample_len"),
        )
        for count in map(number, counts):
            if count is not None:
                return int(count)
        return None

    def higher_is_better(self, of: LmEvalNumber) -> bool | None:
        """Return a metric's direction: the file's, or that of its task's configuration, or of its name.

        None also where the file says that the tasks of a group disagree.
        """
        directions = mapping(self.mapping("higher_is_better").get(of.task))
        given = [directions.get(of.metric)]
        for metric in listed(self.config(of.task).get("metric_list")):
            if metric.get("metric") == of.metric:
                given.append(metric.get("higher_is_better"))
        for direction in given:
            if isinstance(direction, bool):
                return direction
        return None if of.metric in directions else known_direction(of.metric)

    def members(self, task: str) -> list[str]:
        """Return the tasks that a group is an aggregate of; none for a task."""
        members = self.mapping("group_subtasks").get(task)
        return [clip(str(name)) for name in members] if isinstance(members, list) else []

    def window(self, task: str) -> Window:
        tokens, chosen = window(self.data)
        return Window(tokens, chosen or self.config(task).get("output_type") == ROLLING)

    def protocol(self, task: str) -> str:
        """Return a task's protocol: version, shots, and a digest of its configuration and of what changes prompts.

        Where the task's data lie, and whom it was run on, are no part of it. A group's has those of its members.
        """
        if task not in self._protocols:
            self._protocols[task] = "its own group"  # for a group that holds itself
            try:
                facts = self.facts(task)
            except RecursionError:
                raise DataError(f"{self.path}: groups hold one another too deeply.") from None
            words, shots = ["lm-eval"], self.mapping("n-shot").get(task)
            if facts["version"] is not None:
                words.append(f"v{clip(str(facts['version']), 20)}")
            if number(shots) is not None:
                words.append(f"{shots}-shot")
            self._protocols[task] = f"{'-'.join(words)}@{digest_of(facts)[:6]}"
        return self._protocols[task]

    def facts(self, task: str) -> dict[str, Any]:
        """Return the facts that decide a task's numbers beside the model and the data."""
        config, command = dict(self.config(task)), self.mapping("config")
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
            "shots": [shots, command.get("fewshot_seed")] if shots and not members else shots,
            "chat": [chat, self.data.get("fewshot_as_multiturn")] if chat else None,
            "system": self.data.get("system_instruction_sha"),
            "limit": command.get("limit"),
            "gen_kwargs": command.get("gen_kwargs"),
        }
        arguments, read = deciding_arguments(self.data), self.window(task)
        if arguments:
            facts["arguments"] = arguments
        if read.tokens is not None and read.decides:
            facts["window"] = read.tokens
        return facts

    def rules(self, task: str) -> dict[str, Any]:
        """Return the facts that decide a task's numbers, flat and under names for people.

        Of a chat template it is whether there is one, and how it shows the examples. Members of a group and windows are
        compared one by one.
        """
        facts = self.facts(task)
        config, arguments = facts.pop("config"), facts.pop("arguments", {})
        for name in ("members", "window"):
            facts.pop(name, None)
        if facts["chat"]:
            facts["chat"] = f"applied, examples as turns: {facts['chat'][1]}"
        rules = {_SHOWN.get(name, name): value for name, value in facts.items()}
        rules |= {f"its {key}": value for key, value in config.items() if value is not None}
        for name, value in rules.items():
            if isinstance(value, str):
                rules[name] = _ADDRESS.sub("", value)
        return rules | {f"model argument {key}": value for key, value in arguments.items()}


def _entry_model(file: ResultsFile) -> dict[str, Any]:
    commit = file.text("config", "model_sha")
    count = number(file.mapping("config").get("model_num_parameters"))
    return {
        **named_model(file.path, model_name(file.data), variant(file.data)),
        "revision": commit and commit + changed_weights(file.data),
        "parameters": int(count) if count and count > 0 else None,
    }


def _recipe(file: ResultsFile) -> dict[str, Any]:
    """Return the precision of the weights, and the tokenizer if one was given."""
    dtype = file.text("config", "model_dtype")
    recipe = {"dtype": dtype.removeprefix("torch.")} if dtype else {}
    return recipe | loading(file.data)


def _cite(file: ResultsFile) -> str:
    config = file.mapping("config")
    seeds = [f"{shown} {config[key]}" for key, shown in _SEEDS.items() if isinstance(config.get(key), int)]
    arguments = clip(without_paths(str(config.get("model_args"))), 200)
    parts = (
        f"{clip(file.path.name, 100)} (sha256 {file_sha256(file.path)[:12]})",
        f"model {file.text('config', 'model') or 'unnamed'}: {arguments}",
        f"revision {file.text('config', 'model_revision') or 'unnamed'}",
        f"seeds: {', '.join(seeds) or 'unnamed'}",
    )
    return "; ".join(parts)


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
    """Return the samples in the files next to the results.

    An example is identified by its number and the hash of its document. Raises DataError for a line that is not a
    sample.
    """
    values: dict[str, dict[str, Any]] = {}
    documents: dict[str, dict[str, Any]] = {}
    samples = Samples()
    for path, task in samples_files(results.path, results):
        name = task_name(task)
        metrics = _metrics_by_filter(results, task)
        filters = list(metrics)
        seen: Counter[str] = Counter()
        for where, row in json_rows(path):
            if row.get("doc_id") is None:
                raise DataError(f"{where}: expected a sample of lm_eval with `doc_id`.")
            hashes = _hashes(row)
            example = example_id({**row, **hashes})
            chosen = row.get("filter")
            if not isinstance(chosen, str):  # by its place; the last one of a document that repeats
                chosen = filters[min(seen[example], len(filters) - 1)]
            seen[example] += 1
            scored = row.get("metrics")
            for metric in map(str, scored if isinstance(scored, list) else metrics.get(chosen, ())):
                if metric not in row:
                    continue
                of_metric = values.setdefault(LmEvalNumber(task, metric, chosen).name, {})
                if example in of_metric:
                    raise DataError(f"{where}: the example {example!r} of {metric} is there twice; keep one.")
                of_metric[example] = row[metric]
            documents.setdefault(name, {})[example] = row.get("doc")
            samples.inputs.setdefault(name, {})[example] = sample_contents(row)
            samples.contents.setdefault(name, {})[example] = hashes["doc_hash"]
            samples.prompts.setdefault(name, {})[example] = digest_of([hashes["prompt_hash"], hashes["target_hash"]])
            samples.targets.setdefault(name, {})[example] = hashes["target_hash"]
    units = {}
    for task, of_task in documents.items():
        samples.named[task] = named_units(of_task)
        units[task] = joined_units(samples.inputs[task], samples.named[task])
    for name, of_metric in values.items():
        kept = example_values(results.numbers[name], of_metric) if name in results.numbers else None
        if kept:
            samples.examples[name] = Recorded(kept, units[name.partition("/")[0]])
    return samples


def _metrics_by_filter(results: ResultsFile, task: str) -> dict[str, list[str]]:
    """Return filter -> the metrics of a task with it. Filters are in the order of the task's configuration."""
    metrics: dict[str, list[str]] = {
        str(one.get("name")): [] for one in listed(results.config(task).get("filter_list"))
    }
    for one in results.numbers.values():
        if one.task == task:
            metrics.setdefault(one.filter, []).append(one.metric)
    return metrics or {"none": []}


def samples_files(path: Path, results: ResultsFile | None = None) -> list[tuple[Path, str]]:
    """Return the samples files of a results file and the task of each: of its time, or of any if its name has none.

    With the `results` that the file holds, also the files that lm-eval before 0.4.3 names by the model's arguments.
    """
    _, separator, stamp = path.stem.rpartition("_")
    ending = f"_{stamp}" if separator else ""
    files = []
    for file in sorted(path.parent.glob(f"samples_*{glob.escape(ending)}.jsonl")):
        task = file.name.removeprefix("samples_").removesuffix(".jsonl")
        files.append((file, task.removesuffix(ending) if ending else _TIME.sub("", task)))
    if files or results is None:
        return files
    arguments = re.sub("/|=", "__", results.text("config", "model_args") or "")
    available = {file.name: file for file in path.parent.glob("*.jsonl")}
    older = [(f"{arguments}_{task}.jsonl", task) for task in results.results]
    return [(available[name], task) for name, task in older if name in available]


def require_no_samples(path: Path) -> None:
    """Raise DataError for a samples file in the place of its results file, which it names if it is there."""
    if not (path.name.startswith("samples_") and path.suffix == ".jsonl"):
        return
    expected = "its results_*.json, which lm-evaluation-harness writes"
    for results in sorted(path.parent.glob("results*.json")):
        if path in dict(samples_files(results)):
            expected = f"its results file {results}"
            break
    raise DataError(f"{path} holds the samples of one task; expected {expected}, or the folder that holds both.")


def _hashes(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the hashes of a sample's document, prompt and target, made as lm-eval makes them if they are missing."""
    texts = {
        "doc_hash": json.dumps(row.get("doc", row["doc_id"]), indent=2, ensure_ascii=False),
        "prompt_hash": _prompt(row.get("arguments")),
        "target_hash": str(row.get("target")),
    }
    hashes = {}
    for key, text in texts.items():
        own = row.get(key)
        hashes[key] = (
            own if isinstance(own, str) and own else hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        )
    return hashes


def _prompt(arguments: Any) -> str:
    """Return the first argument of a sample's first request, or all of them if they have another shape."""
    first = mapping(mapping(arguments).get("gen_args_0")).get("arg_0")
    if isinstance(arguments, list) and arguments and isinstance(arguments[0], list) and arguments[0]:
        first = arguments[0][0]
    return first if isinstance(first, str) else json.dumps(arguments, sort_keys=True)


def _renamed_digests(
    digests: Mapping[str, Mapping[str, str]], names: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    by_content: dict[str, dict[str, str]] = {}
    for task, of_task in digests.items():
        by_content[task] = {names[task][example]: digest for example, digest in of_task.items()}
    return by_content


def _examples_of_groups(
    file: ResultsFile, samples: Samples, names: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, Recorded]]:
    """Yield the examples of all tasks of a group, for each of its numbers that is their mean.

    Tasks may ask about the same documents, each in a prompt of its own: these are one unit. A passage that has only a
    number for a name is one of its task.
    """
    members = {name: file.members(name) for name in file.mapping("group_subtasks")}
    for name, one in file.numbers.items():
        tasks = [task_name(task) for task in tasks_below(members, one.task) if not members.get(task)]
        values: dict[str, tuple[float, float]] = {}
        inputs: dict[str, list[str]] = {}
        units: dict[str, str] = {}
        complete = True
        for task in tasks:
            recorded = samples.examples.get(f"{task}/{one.shown}")
            if recorded is None:
                complete = False
                break
            for example, own in names[task].items():
                pooled = f"{task}:{own}"
                if example in recorded.examples:
                    values[pooled] = recorded.examples[example]
                inputs[pooled] = samples.inputs[task][example]
                unit = samples.named[task].get(example)
                if unit is not None:
                    units[pooled] = f"{task}:{unit}" if unit.startswith(NUMBERED) else unit
        if complete and gives(one, values):
            yield name, Recorded(values, joined_units(inputs, units))
