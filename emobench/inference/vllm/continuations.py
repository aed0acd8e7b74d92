"""Continuations of prompts by vLLM, a batch of requests at a time."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from transformers import AutoConfig, GenerationConfig

from emobench.core.errors import ConfigError, ModelError
from emobench.inference.decoding.request import Continuation, Decoding, eos_ids
from emobench.inference.vllm.engine import running_engine
from emobench.inference.vllm.requests import request_seeds, sampling_params
from emobench.models.model import Model

ROWS = 1024
"""Requests between two writes. vLLM itself decides how many are in a step."""


def iter_vllm_continuations(
    files: Model,
    prompts_ids: Sequence[Sequence[int]],
    *,
    prompt_keys: Sequence[str],
    decoding: Decoding,
    vocabulary: int,
    ends: Sequence[int] = (),
    done: Container[int] = (),
) -> Iterator[list[tuple[int, list[Continuation]]]]:
    """Yield (prompt index, its continuations) of each batch as it ends, in the order of the prompts.

    The arguments are those of `decoding.continuations.iter_continuations`. Raises ModelError for an empty prompt, and
    for what vLLM does not take; MetricError for a logit that is no number.
    """
    if len(prompt_keys) != len(prompts_ids):
        raise ConfigError(f"{len(prompts_ids)} prompts came with {len(prompt_keys)} keys; give one key for each.")
    lengths = [len(ids) for ids in prompts_ids]
    if 0 in lengths:
        raise ModelError(f"Prompt {lengths.index(0)} has no token; use bos: one, or a prefix of at least one token.")
    samples, eos = decoding.rule.samples, tuple(dict.fromkeys((*end_ids(files), *ends)))
    size = max(ROWS // samples, 1)
    batches = [range(start, min(start + size, len(lengths))) for start in range(0, len(lengths), size)]
    left = [members for members in batches if not all(index in done for index in members)]
    if not left:
        return
    params = sampling_params(decoding, eos)
    with running_engine(engine_settings(files, max(lengths) + decoding.new_tokens, vocabulary), files.name) as engine:
        for members in left:
            asked = [(prompts_ids[i], seed) for i in members for seed in request_seeds(decoding, prompt_keys[i])]
            rows = [decoding.cut(ids, eos) for ids in engine.generate(params, asked)]
            yield [(i, rows[place * samples : (place + 1) * samples]) for place, i in enumerate(members)]


def engine_settings(files: Model, longest: int, vocabulary: int, *, texts: bool = False) -> dict[str, Any]:
    """Return the settings of a worker whose requests have at most `longest` tokens, new ones among them.

    With `texts`, requests may end at strings.
    """
    options = files.options
    return {
        "model": str(files.folder),
        "dtype": options.dtype,
        "trust_remote_code": options.trust_remote_code,
        "max_model_len": longest,
        "vocabulary": vocabulary,
        "texts": texts,
    }


def end_ids(files: Model) -> tuple[int, ...]:
    """Return the ids that end a text, as the loaded model would name them."""
    trusted = files.options.trust_remote_code
    config = AutoConfig.from_pretrained(files.folder, local_files_only=True, trust_remote_code=trusted)
    try:
        generation = GenerationConfig.from_pretrained(files.folder, local_files_only=True)
    except OSError:  # the folder has no such file
        generation = GenerationConfig.from_model_config(config)
    return eos_ids(SimpleNamespace(generation_config=generation, config=config))
