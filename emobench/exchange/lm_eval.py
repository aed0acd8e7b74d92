"""Results of lm-evaluation-harness as an Evaluation: a results file, and the samples files beside it.

The shape of a results file is `lm_eval/result_schema.py` of 0.4.13; samples are those of 0.4.7 and later. Arguments are
those of lm-eval's model classes (`lm_eval/models/`): `--model_args`, as text or a mapping.
"""

from __future__ import annotations

import glob
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

from emobench.core.errors import DataError
from emobench.core.reading import parse_json
from emobench.core.settings import file_sha256
from emobench.data.sampling_units import joined_units
from emobench.exchange.evaluation import (
    EXPECTED,
    TEMPLATE_ARGUMENTS,
    UNNAMED,
    Evaluation,
    Fields,
    Json,
    Measured,
    Samples,
    TaskFacts,
    Window,
    at,
    count_of,
    digest_of,
    json_lines,
    known_direction,
    listed,
    mapping,
    named_model,
    normal_interval,
    tasks_below,
    text_of,
)
from emobench.leaderboard.private_paths import distinct_name, without_paths
from emobench.leaderboard.run_files import Recorded
from emobench.tasks.lm_eval_numbers import (
    LONGEST,
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
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Of a function that older files name by its place in memory."""
_TIME = re.compile(r"_\d{4}-\d\d-\d\dT[\d.:-]+$")
"""The time in the name of a samples file."""


def lm_eval_evaluation(path: Path, data: Json, *, lenient: bool = False) -> Evaluation:
    """Return the evaluation in a results file with this content and in the samples next to it.

    Raises DataError for any other file, and for a line that is no sample; a `lenient` reader does without such samples.
    """
    file = ResultsFile(path, data)
    model, version, date = file.model, text_of(data, "lm_eval_version"), number(data.get("date"))
    sha = text_of(model.config, "model_sha")
    count = count_of(model.config.get("model_num_parameters"))
    row: Fields = {**named_model(path, model.name, model.variant), "revision": None, "parameters": None}
    if sha is not None:
        row["revision"] = sha + model.changed_weights
    if count is not None and count > 0:
        row["parameters"] = count
    versions = {"lm-eval": version, "transformers": text_of(data, "transformers_version")}
    provenance: Fields = {
        "commit": text_of(data, "git_hash"),
        "packages": dict(filter(itemgetter(1), versions.items())),
        "hardware": text_of(model.config, "device"),
    }
    read = Evaluation(
        path=path,
        format=FORMAT,
        harness=FORMAT,
        version=version,
        model=model.name,
        variant=model.variant,
        row=row,
        cite=f"lm-evaluation-harness {version or 'of an unnamed version'}; {_cite(path, model.config)}",
        provenance=provenance,
    )
    if date is not None:
        read.created = str(date)
    read.recipe, read.precision = model.loading, model.precision
    dtype = text_of(model.config, "model_dtype")
    if dtype is not None:
        read.recipe = {"dtype": dtype.removeprefix("torch."), **read.recipe}
    if data.get("chat_template_sha"):
        read.template = str(data["chat_template_sha"])
    samples = {}
    try:
        samples = read_samples(path)
    except DataError as error:
        if not lenient:
            raise
        read.notes.append(f"without per-example results: {error}")
    for of_task in samples.values():
        for name, values in of_task.values.items():
            if name not in file.numbers:
                continue
            kept = example_values(file.numbers[name], values)
            if kept:
                read.examples[name] = of_task.recorded(kept)
    read.examples |= _examples_of_groups(file, samples, read.examples)
    for name, one in file.numbers.items():
        if one.value is None:
            read.absent[name] = one.absent
            continue
        read.numbers[name] = file.measured(one, one.value)
        if name not in read.examples:
            read.without[name] = "it is no mean of its examples" if samples else "evaluate with --log_samples"
    if not read.numbers:
        why = next(iter(read.absent.values()), "")
        raise DataError(f"{path}: has no number under `results` ({why}).")
    for task in file.results:
        read.tasks[task_name(task)] = file.task(task, samples.get(task_name(task), Samples()))
    return read


class ResultsFile:
    """A results file with its content; raises DataError for any other file. `numbers` are by their names."""

    def __init__(self, path: Path, data: Json) -> None:
        self.path, self.data, self.model = path, data, ModelArguments(data)
        self._protocols: dict[str, str] = {}
        self.results = mapping(data, "results")
        self.numbers: dict[str, LmEvalNumber] = {}
        is_lm_eval = False
        are_mappings = True
        for task, values in self.results.items():
            are_mappings &= isinstance(values, Mapping)
            for one in numbers_of(task, mapping(values)):
                if one.name in self.numbers:
                    raise DataError(f"{path}: two numbers are called {one.name!r}; rename one task.")
                self.numbers[one.name] = one
                is_lm_eval |= one.key in values or f"{one.metric}_stderr" in values
        if not is_lm_eval or LIGHTEVAL in data or not are_mappings:
            raise DataError(f"{path}: has no `results` with numbers such as acc,none; expected {EXPECTED}.")

    def config(self, task: str) -> Json:
        return mapping(self.data, "configs", task)

    def measured(self, of: LmEvalNumber, value: float) -> Measured:
        """Return a number with this value, with an interval if it has a standard error."""
        interval = normal_interval(value, of.stderr, fraction=of.unit == "fraction")
        without = NO_ERROR if of.stderr is None else "lm-eval's standard error is 0"
        members = len(self.members(of.task))
        flags = ()
        if members:
            flags = (f"group_of_{members}_tasks",)
        return Measured(
            value=value,
            unit=of.unit,
            higher_is_better=self.higher_is_better(of),
            n=self.examples(of),
            interval=interval,
            without_interval=without,
            flags=flags,
        )

    def examples(self, of: LmEvalNumber) -> int | None:
        """Return how many examples a number is over."""
        values = self.results[of.task]
        given = [at(values, "sample_count", of.key), at(self.data, "n-samples", of.task, "effective")]
        for value in (*given, values.get("sample_len")):
            count = count_of(value)
            if count is not None:
                return count
        return None

    def higher_is_better(self, of: LmEvalNumber) -> bool | None:
        """Return a metric's direction: the file's, or that of its task's configuration, or of its name.

        None also where the file says that the tasks of a group disagree.
        """
        directions = mapping(self.data, "higher_is_better", of.task)
        given = [directions.get(of.metric)]
        for metric in listed(self.config(of.task), "metric_list"):
            if metric.get("metric") == of.metric:
                given.append(metric.get("higher_is_better"))
        for direction in given:
            if isinstance(direction, bool):
                return direction
        if of.metric in directions:
            return None
        return known_direction(of.metric)

    def members(self, task: str) -> list[str]:
        """Return the tasks that a group is an aggregate of; none for a task."""
        members = at(self.data, "group_subtasks", task)
        if not isinstance(members, list):
            return []
        return list(map(clip, map(str, members)))

    def window(self, task: str) -> Window:
        window = self.model.window
        return Window(window.tokens, window.decides or self.config(task).get("output_type") == ROLLING)

    def task(self, task: str, samples: Samples) -> TaskFacts:
        """Return the facts of a task of `results`, and the digests of its examples by their content."""
        data = text_of(self.data, "task_hashes", task)
        if data is not None:
            data = f"sha256:{data} (lm-eval's task_hash)"
        prompts = samples.renamed(samples.prompts)
        targets = samples.renamed(samples.targets)
        members = list(map(task_name, self.members(task)))
        return TaskFacts(
            rules=self.rules(task),
            protocol=self.protocol(task),
            data=data,
            prompts=prompts,
            targets=targets,
            members=members,
            window=self.window(task),
        )

    def protocol(self, task: str) -> str:
        """Return a task's protocol: version, shots, and a digest of its configuration and of what changes prompts.

        Where the task's data lie, and whom it was run on, are no part of it. A group's has those of its members.
        """
        if task not in self._protocols:
            self._protocols[task] = "its own group"  # for a group that holds itself
            try:
                members = [self.protocol(name) for name in self.members(task) if name in self.results]
            except RecursionError:
                raise DataError(f"{self.path}: groups hold one another too deeply.") from None
            facts = [self.rules(task), self.data.get("chat_template_sha"), members]
            if self.window(task).decides:
                facts.append(self.window(task).tokens)
            words, version, shots = ["lm-eval"], at(self.data, "versions", task), at(self.data, "n-shot", task)
            if version is not None:
                words.append(f"v{clip(str(version), 20)}")
            if number(shots) is not None:
                words.append(f"{shots}-shot")
            self._protocols[task] = f"{'-'.join(words)}@{digest_of(facts)[:6]}"
        return self._protocols[task]

    def rules(self, task: str) -> Fields:
        """Return the facts that decide a task's numbers beside the model and the data, under names for people.

        Of a chat template it is whether there is one, and how it shows the examples. Members of a group and windows are
        compared one by one.
        """
        config = dict(self.config(task))
        command = self.model.config
        config.pop("metadata", None)
        of_dataset = dict(mapping(config, "dataset_kwargs"))
        for name in _PLACES:
            of_dataset.pop(name, None)
        config["dataset_kwargs"] = of_dataset
        if str(config.get("dataset_path")).startswith(("/", ".")):
            del config["dataset_path"]
        shots = at(self.data, "n-shot", task)
        chat = None
        if shots and not self.members(task):
            shots = [shots, command.get("fewshot_seed")]
        if self.data.get("chat_template_sha"):
            chat = f"applied, examples as turns: {self.data.get('fewshot_as_multiturn')}"
        rules = {
            "version": at(self.data, "versions", task),
            "n-shot": shots,
            "chat template": chat,
            "system instruction": self.data.get("system_instruction_sha"),
            "limit": command.get("limit"),
            "gen_kwargs": command.get("gen_kwargs"),
        }
        for key, value in config.items():
            if value is not None:
                rules[f"its {key}"] = _ADDRESS.sub("", value) if isinstance(value, str) else value
        for key, value in self.model.deciding.items():
            rules[f"model argument {key}"] = value
        return rules


def _cite(path: Path, config: Json) -> str:
    seeds = []
    for key, shown in _SEEDS.items():
        if isinstance(config.get(key), int):
            seeds.append(f"{shown} {config[key]}")
    arguments = clip(without_paths(str(config.get("model_args"))), 200)
    digest = file_sha256(path)[:12]
    model = text_of(config, "model") or "unnamed"
    revision = text_of(config, "model_revision") or "unnamed"
    return (
        f"{clip(path.name, 100)} (sha256 {digest}); model {model}: {arguments}; revision {revision}; "
        f"seeds: {', '.join(seeds) or 'unnamed'}"
    )


def read_samples(results: Path) -> dict[str, Samples]:
    """Return the samples in the files next to the results, by task. Raises DataError for a line that is no sample."""
    samples = {}
    documents: dict[str, Fields] = {}
    for path, task in samples_files(results):
        name = task_name(task)
        of_task = samples.setdefault(name, Samples())
        of_documents = documents.setdefault(name, {})
        for where, row in json_lines(path):
            doc, prompt, target = text_of(row, "doc_hash"), text_of(row, "prompt_hash"), text_of(row, "target_hash")
            metrics = row.get("metrics")
            chosen = str(row.get("filter") or "none")
            if row.get("doc_id") is None or not (doc and prompt and target) or not isinstance(metrics, list):
                raise DataError(f"{where}: expected a sample of lm_eval 0.4.7 or later, with doc_id, hashes, metrics.")
            example = example_id(row)
            for metric in map(str, metrics):
                if metric not in row:
                    continue
                of_metric = of_task.values.setdefault(LmEvalNumber(task, metric, chosen).name, {})
                if example in of_metric:
                    raise DataError(f"{where}: the example {example!r} of {metric} appears twice; keep one.")
                of_metric[example] = row[metric]
            of_documents[example] = row.get("doc")
            of_task.inputs[example] = sample_contents(row)
            of_task.contents[example] = doc
            of_task.prompts[example] = digest_of([prompt, target])
            of_task.targets[example] = target
    for name, of_documents in documents.items():
        samples[name].named = named_units(of_documents)
    return samples


def samples_files(path: Path) -> list[tuple[Path, str]]:
    """Return the samples files of a results file and the task of each: of its time, or of any if its name has none."""
    _, separator, stamp = path.stem.rpartition("_")
    ending = f"_{stamp}" if separator else ""
    files = []
    for file in sorted(path.parent.glob(f"samples_*{glob.escape(ending)}.jsonl")):
        task = file.name.removeprefix("samples_").removesuffix(".jsonl")
        files.append((file, task.removesuffix(ending) if ending else _TIME.sub("", task)))
    return files


def _examples_of_groups(
    file: ResultsFile, samples: Mapping[str, Samples], of_tasks: Mapping[str, Recorded]
) -> Iterator[tuple[str, Recorded]]:
    """Yield the examples of all tasks of a group, for each of its numbers that is their mean.

    Tasks may ask about the same documents, each in a prompt of its own: these are one unit. A passage that has only a
    number for a name is one of its task.
    """
    members = {name: file.members(name) for name in mapping(file.data, "group_subtasks")}
    for name, one in file.numbers.items():
        tasks = [task_name(task) for task in tasks_below(members, one.task) if not members.get(task)]
        if any(f"{task}/{one.shown}" not in of_tasks for task in tasks):
            continue
        values: dict[str, tuple[float, float]] = {}
        inputs: dict[str, list[str]] = {}
        units = {}
        for task in tasks:
            of_task = samples[task]
            examples = of_tasks[f"{task}/{one.shown}"].examples
            for example, own in of_task.names.items():
                pooled = f"{task}:{own}"
                if own in examples:
                    values[pooled] = examples[own]
                inputs[pooled] = of_task.inputs[example]
                unit = of_task.named.get(example)
                if unit is not None:
                    units[pooled] = unit
                    if unit.startswith(NUMBERED):
                        units[pooled] = f"{task}:{unit}"
        if gives(one, values):
            yield name, Recorded(values, joined_units(inputs, units))


# The model: its name, what distinguishes its weights, and its arguments

NAMES = ("pretrained", "model", "path", "engine", "load")
REVISION = "revision"
DEFAULT_REVISIONS = ("main", "master")
ADAPTERS = ("peft", "delta")
"""Weights that change those of the model; lm-eval calls such a model by their name alone."""
FILES = ("subfolder", "model_path", *ADAPTERS, "lora_local_path", "steer_path", "gguf_file", "filename", "ckpt_step")
LOADED = (
    "load_in_8bit", "load_in_4bit", "bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "llm_int8_threshold",
    "quantization", "quantization_config", "autogptq", "gptqmodel", "gptq", "awq",
)  # fmt: skip
"""How the weights are quantised."""
TOKENIZER = (
    "tokenizer", "tokenizer_path", "tokenizer_revision", "tokenizer_mode", "tokenizer_type", "tokenizer_model",
    "tokenizer_backend", "use_fast_tokenizer", "vocab_file", "merge_file",
)  # fmt: skip
"""A model has a tokenizer, and models with other tokenizers are compared; a difference is reported, too."""
IDENTITY = (*FILES, *LOADED, *TOKENIZER)
"""Arguments that distinguish models beside name and revision; they are part of a row's name."""
WINDOWS = ("max_length", "max_model_len", "context_length")
"""The window in tokens, as the classes call it."""
PRECISION = (
    "dtype", "softmax_dtype", "mixed_precision_dtype", "bnb_4bit_compute_dtype", "kv_cache_dtype",
    "attn_implementation", "attn_backend", "precision", "seed",
)  # fmt: skip
"""Arguments that change numbers by rounding or by other random draws. A difference is reported, and no reason to
refuse."""
RUN = ("model", "model_dtype", "random_seed", "numpy_seed", "torch_seed")
"""Fields of `config` that are reported in the same way."""
WITHOUT_EFFECT = {
    "batch_size", "max_batch_size", "device", "device_map", "device_map_option", "parallelize", "tp_plan",
    "max_memory_per_gpu", "max_cpu_memory", "offload_folder", "low_cpu_mem_usage", "trust_remote_code", "token",
    "cache_dir", "download_dir", "local_files_only", "logits_cache", "use_cache", "load_format",
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "tp_size", "dp_size",
    "distributed_executor_backend", "gpu_memory_utilization", "mem_fraction_static", "swap_space",
    "cpu_offload_gb", "enforce_eager", "enable_prefix_caching", "max_num_seqs", "max_num_batched_tokens",
    "disable_log_stats", "base_url", "num_concurrent", "max_retries", "timeout", "verify_certificate",
    "ca_cert_path", "auth_token", "header", "max_lora_rank", "enable_expert_parallel", "block_size",
    "disable_custom_all_reduce", "enable_chunked_prefill",
}  # fmt: skip
"""Arguments that change no number. All others are taken to decide the numbers."""
DEFAULTS = {
    **dict.fromkeys(LOADED, ("False",)),
    **dict.fromkeys((REVISION, "tokenizer_revision"), DEFAULT_REVISIONS),
    "truncation": ("False",),
    "backend": ("default",),
    "use_fast_tokenizer": ("True",),
    "tokenizer_mode": ("auto",),
    "tokenizer_backend": ("huggingface",),
}
_PARTS = re.compile(r"(?:\{[^{}]*\}|\[[^\[\]]*\]|\"[^\"]*\"|'[^']*'|[^,])+")
"""The parts "key=value" of a text, separated by commas outside of brackets and quotes."""


class ModelArguments:
    """The arguments of the model of a results file, as text, without those that are None or have their default."""

    def __init__(self, data: Json) -> None:
        self.data, self.config = data, mapping(data, "config")
        arguments = self.config.get("model_args")
        if isinstance(arguments, str):
            parts = _PARTS.findall(arguments)
            arguments = {}
            for part in parts:
                key, _, value = part.partition("=")
                arguments[key] = value
        given = {}
        for key, value in mapping(arguments).items():
            given[clip(str(key).strip(), 60)] = _plain(value)
        models = {distinct_name(given[key]) for key in (*NAMES, *ADAPTERS) if key in given}
        self.given: dict[str, str] = {}
        for key, value in given.items():
            is_default = value == "None" or value in DEFAULTS.get(key, ())
            if key in ("tokenizer", "tokenizer_path") and distinct_name(value) in models:
                is_default = True  # the model's own tokenizer
            if key and not is_default:
                self.given[key] = value

    def some(self, *names: str) -> dict[str, str]:
        return {key: self.given[key] for key in names if key in self.given}

    @property
    def name(self) -> str:
        """The model by the file's name; of one with an adapter, the model that this was made for."""
        named = next(iter(self.some(*NAMES).values()), None)
        own = text_of(self.data, "model_name")
        if named and own in self.some(*ADAPTERS).values():
            return named
        return own or named or UNNAMED

    @property
    def variant(self) -> str:
        """The difference from other models of its name, such as "@step1000 (load_in_4bit=True)"."""
        revision = self.given.get(REVISION) or _plain(self.config.get("model_revision"))
        if revision in ("None", *DEFAULT_REVISIONS):
            return self.changed_weights
        return f"@{revision}{self.changed_weights}"

    @property
    def changed_weights(self) -> str:
        """The difference from other models of its revision; of an adapter with its commit on the hub."""
        parts = []
        for key, value in self.some(*IDENTITY).items():
            commit = text_of(self.config, f"{key}_sha")
            part = f"{key}={distinct_name(value)}"
            if commit is not None:
                part += f"@{commit[:12]}"
            parts.append(part)
        return f" ({', '.join(parts)})" if parts else ""

    @property
    def loading(self) -> dict[str, str]:
        """How the weights were quantised and which tokenizer was given."""
        return {key: distinct_name(value) for key, value in self.some(*LOADED, *TOKENIZER).items()}

    @property
    def deciding(self) -> dict[str, str]:
        """The arguments that decide the numbers beside the weights and the window."""
        others = {*NAMES, REVISION, *IDENTITY, *WINDOWS, *PRECISION, *WITHOUT_EFFECT}
        return {key: value for key, value in self.given.items() if key not in others}

    @property
    def window(self) -> Window:
        """The window in tokens, if it is known; it decides the numbers of all tasks if an argument sets it."""
        chosen = next(iter(self.some(*WINDOWS).values()), None)
        used = self.data.get("max_length")
        tokens = str(used) if isinstance(used, int) and used is not True else chosen
        return Window(tokens, chosen is not None)

    @property
    def precision(self) -> dict[str, str]:
        """How the model was run, as far as it changes numbers by rounding or by random draws."""
        facts = self.some(*TOKENIZER, *PRECISION, *TEMPLATE_ARGUMENTS)
        for key in RUN:
            if self.config.get(key) is not None:
                facts[key] = _plain(self.config[key])
        return facts


def _plain(value: Any) -> str:
    if isinstance(value, str) and value.strip()[:1] in ("{", "["):
        try:
            value = parse_json(value)
        except ValueError:
            return _bounded(value)
    if isinstance(value, (Mapping, list)):
        return _bounded(json.dumps(value, sort_keys=True))
    text = _bounded(str(value)).strip().strip("\"'")
    words = {"true": "True", "false": "False", "none": "None", "": "None"}
    return words.get(text.lower(), text)


def _bounded(text: str) -> str:
    """Return a text; of a long one the beginning and a digest, so that two texts that differ stay different."""
    if len(text) <= LONGEST:
        return clip(text)
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    return f"{clip(text, LONGEST - 20)}#{digest[:8]}"
