"""The model of a results file of lm-evaluation-harness: its name, what distinguishes its weights, and its arguments.

The arguments are those of lm-eval's model classes (`lm_eval/models/` of 0.4.13): `--model_args`, as text or a mapping.
`data` is the content of a results file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

from emobench.core.reading import parse_json
from emobench.exchange.evaluation import TEMPLATE_ARGUMENTS, UNNAMED, mapping
from emobench.leaderboard.private_paths import distinct_name
from emobench.tasks.lm_eval_numbers import LONGEST, clip

NAMES = ("pretrained", "model", "path", "engine", "load")
REVISION = "revision"
DEFAULT_REVISIONS = ("main", "master")
ADAPTERS = ("peft", "delta")
"""Weights that change those of the model; lm-eval calls such a model by their name alone."""
FILES = ("subfolder", "model_path", *ADAPTERS, "lora_local_path", "steer_path", "gguf_file", "filename", "ckpt_step")
LOADED = (
    *("load_in_8bit", "load_in_4bit", "bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "llm_int8_threshold"),
    *("quantization", "quantization_config", "autogptq", "gptqmodel", "gptq", "awq"),
)
"""How the weights are quantised."""
TOKENIZER = (
    *("tokenizer", "tokenizer_path", "tokenizer_revision", "tokenizer_mode", "tokenizer_type", "tokenizer_model"),
    *("tokenizer_backend", "use_fast_tokenizer", "vocab_file", "merge_file"),
)
"""A model has a tokenizer, and models with other tokenizers are compared; a difference is reported, too."""
IDENTITY = (*FILES, *LOADED, *TOKENIZER)
"""Arguments that distinguish models beside name and revision; they are part of a row's name."""
WINDOWS = ("max_length", "max_model_len", "context_length")
"""The window in tokens, as the classes call it."""
PRECISION = (
    *("dtype", "softmax_dtype", "mixed_precision_dtype", "bnb_4bit_compute_dtype", "kv_cache_dtype"),
    *("attn_implementation", "attn_backend", "precision", "seed"),
)
"""Arguments that change numbers by rounding or by other random draws. A difference is reported, and no reason to
refuse."""
RUN = ("model", "model_dtype", "random_seed", "numpy_seed", "torch_seed")
"""Fields of `config` that are reported in the same way."""
WITHOUT_EFFECT = {
    *("batch_size", "max_batch_size", "device", "device_map", "device_map_option", "parallelize", "tp_plan"),
    *("max_memory_per_gpu", "max_cpu_memory", "offload_folder", "low_cpu_mem_usage", "trust_remote_code", "token"),
    *("cache_dir", "download_dir", "local_files_only", "logits_cache", "use_cache", "load_format"),
    *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "tp_size", "dp_size"),
    *("distributed_executor_backend", "gpu_memory_utilization", "mem_fraction_static", "swap_space"),
    *("cpu_offload_gb", "enforce_eager", "enable_prefix_caching", "max_num_seqs", "max_num_batched_tokens"),
    *("disable_log_stats", "base_url", "num_concurrent", "max_retries", "timeout", "verify_certificate"),
    *("ca_cert_path", "auth_token", "header", "max_lora_rank", "enable_expert_parallel", "block_size"),
    *("disable_custom_all_reduce", "enable_chunked_prefill"),
}
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


def model_arguments(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments of the model as text, without those that are None or have their default value."""
    given = mapping(data.get("config")).get("model_args")
    pairs: Iterable[tuple[str, Any]] = ()
    if isinstance(given, Mapping):
        pairs = ((str(key), value) for key, value in given.items())
    elif isinstance(given, str):
        pairs = _pairs(given)
    arguments = {clip(key.strip(), 60): _plain(value) for key, value in pairs}
    names = {distinct_name(arguments[key]) for key in (*NAMES, *ADAPTERS) if key in arguments}
    return {key: value for key, value in arguments.items() if key and not _is_default(key, value, names)}


def _is_default(key: str, value: str, names: Set[str]) -> bool:
    own = key in ("tokenizer", "tokenizer_path") and distinct_name(value) in names
    return own or value == "None" or value in DEFAULTS.get(key, ())


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield the parts "key=value" of a text, separated by commas outside of brackets and quotes."""
    for part in re.findall(r"(?:\{[^{}]*\}|\[[^\[\]]*\]|\"[^\"]*\"|'[^']*'|[^,])+", text):
        key, _, value = part.partition("=")
        yield key, value


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


def model_name(data: Mapping[str, Any]) -> str:
    """Return what a file calls its model; of one with an adapter, the model that this was made for."""
    given = model_arguments(data)
    named = next((given[key] for key in NAMES if key in given), None)
    own = data.get("model_name")
    if named and own in [given.get(key) for key in ADAPTERS]:
        return named
    return clip(own) if isinstance(own, str) and own.strip() else named or UNNAMED


def variant(data: Mapping[str, Any]) -> str:
    """Return what distinguishes a model from others of its name, such as "@step1000 (load_in_4bit=True)"."""
    revision = model_arguments(data).get(REVISION) or _plain(mapping(data.get("config")).get("model_revision"))
    at = "" if revision in ("None", *DEFAULT_REVISIONS) else f"@{revision}"
    return at + changed_weights(data)


def changed_weights(data: Mapping[str, Any]) -> str:
    """Return what distinguishes a model from others of its revision, such as " (load_in_4bit=True)"."""
    given, config = model_arguments(data), mapping(data.get("config"))
    parts = []
    for key in IDENTITY:
        if key in given:
            parts.append(f"{key}={distinct_name(given[key])}{_commit(config, key)}")
    return f" ({', '.join(parts)})" if parts else ""


def _commit(config: Mapping[str, Any], adapter: str) -> str:
    """Return "@" and the beginning of the commit of an adapter that lm-eval found on the hub."""
    commit = config.get(f"{adapter}_sha")
    return f"@{clip(commit)[:12]}" if isinstance(commit, str) and commit else ""


def loading(data: Mapping[str, Any]) -> dict[str, str]:
    """Return how the weights were quantised and which tokenizer was given."""
    given = model_arguments(data)
    return {key: distinct_name(given[key]) for key in (*LOADED, *TOKENIZER) if key in given}


def deciding_arguments(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments that decide the numbers beside the weights and the window."""
    others = {*NAMES, REVISION, *IDENTITY, *WINDOWS, *PRECISION, *WITHOUT_EFFECT}
    return {key: value for key, value in model_arguments(data).items() if key not in others}


def window(data: Mapping[str, Any]) -> tuple[str | None, bool]:
    """Return the window of the model in tokens, if it is known, and whether an argument sets it."""
    given = model_arguments(data)
    chosen = next((given[key] for key in WINDOWS if key in given), None)
    used = data.get("max_length")
    tokens = str(used) if isinstance(used, int) and used is not True else chosen
    return tokens, chosen is not None


def precision(data: Mapping[str, Any]) -> dict[str, str]:
    """Return how the model was run, as far as it changes numbers by rounding or by random draws."""
    config, given = mapping(data.get("config")), model_arguments(data)
    facts = {key: given[key] for key in (*TOKENIZER, *PRECISION, *TEMPLATE_ARGUMENTS) if key in given}
    for key in RUN:
        if config.get(key) is not None:
            facts[key] = _plain(config[key])
    return facts
