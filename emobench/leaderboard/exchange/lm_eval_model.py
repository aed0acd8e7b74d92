"""The model of a results file of lm-evaluation-harness: its name, what distinguishes its weights, and its arguments.

The arguments are those of lm-eval's model classes (`lm_eval/models/` of 0.4.13): `--model_args`, as text or a mapping.
`data` is the content of a results file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from emobench.leaderboard.exchange.json_files import mapping
from emobench.reading import parse_json
from emobench.tasks.lm_eval_numbers import clip

NAMES = ("pretrained", "model", "path")
REVISION = "revision"
DEFAULT_REVISIONS = ("main", "master")
WEIGHTS = (
    *("subfolder", "model_path", "peft", "delta", "lora_local_path", "gguf_file", "filename"),
    *("load_in_8bit", "load_in_4bit", "bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "llm_int8_threshold"),
    *("quantization", "quantization_config", "autogptq", "gptqmodel", "gptq", "awq"),
)
"""Arguments that distinguish models beside name and revision; they are part of a row's name."""
WINDOWS = ("max_length", "max_model_len", "context_length")
"""The window in tokens, as the classes call it."""
PRECISION = (
    *("dtype", "softmax_dtype", "mixed_precision_dtype", "bnb_4bit_compute_dtype", "kv_cache_dtype"),
    *("attn_implementation", "attn_backend", "seed"),
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
DEFAULTS = {"truncation": "False", "backend": "default", "use_fast_tokenizer": "True"}


def model_arguments(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments of the model as text, without those that are None or have their default value."""
    given = mapping(data.get("config")).get("model_args")
    pairs: Iterator[tuple[str, Any]] = iter(())
    if isinstance(given, Mapping):
        pairs = ((str(key), value) for key, value in given.items())
    elif isinstance(given, str):
        pairs = _pairs(given)
    found = {clip(key.strip(), 60): _plain(value) for key, value in pairs}
    own = {**DEFAULTS, "tokenizer": found.get("pretrained")}
    return {key: value for key, value in found.items() if key and value not in ("None", own.get(key))}


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
            return clip(value)
    if isinstance(value, (Mapping, list)):
        return clip(json.dumps(value, sort_keys=True))
    text = clip(str(value)).strip().strip("\"'")
    words = {"true": "True", "false": "False", "none": "None", "": "None"}
    return words.get(text.lower(), text)


def model_name(data: Mapping[str, Any]) -> str:
    """Return what a file calls its model."""
    given = model_arguments(data)
    named = next((given[key] for key in NAMES if key in given), None)
    own = data.get("model_name")
    return clip(own) if isinstance(own, str) and own.strip() else named or "unnamed"


def variant(data: Mapping[str, Any]) -> str:
    """Return what distinguishes a model from others of its name, such as "@step1000 (load_in_4bit=True)"."""
    given = model_arguments(data)
    revision = given.get(REVISION) or _plain(mapping(data.get("config")).get("model_revision"))
    at = "" if revision in ("None", *DEFAULT_REVISIONS) else f"@{revision}"
    parts = [f"{key}={_last(given[key])}" for key in WEIGHTS if given.get(key) not in (None, "False")]
    return f"{at} ({', '.join(parts)})" if parts else at


def _last(value: str) -> str:
    """Return the last part of a path, which may be private."""
    return value.rstrip("/").rpartition("/")[2] or value


def deciding_arguments(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments that decide the numbers beside the weights and the window."""
    others = {*NAMES, REVISION, *WEIGHTS, *WINDOWS, *PRECISION, *WITHOUT_EFFECT}
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
    found = {key: given[key] for key in PRECISION if key in given}
    return found | {key: _plain(config[key]) for key in RUN if config.get(key) is not None}
