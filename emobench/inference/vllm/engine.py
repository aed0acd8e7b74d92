"""vLLM from outside: a process of its own, whose memory is free when it ends, and its answers to batches of prompts.

The parameters of requests are those of `vllm.SamplingParams` (0.32). Its order of steps is ours: EOS and padding are
masked, the logits are divided by the temperature, then min-p, top-k and top-p cut. Ours has min-p last, which is the
same unless top-p cuts, too; `Sampling` refuses the two together.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from transformers import AutoConfig, GenerationConfig

from emobench.core.errors import ModelError
from emobench.inference.decoding.request import Continuation, Decoding, eos_ids, not_finite
from emobench.models.folder import tokenizer_folder
from emobench.models.model import Model

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one process, so that an error gives its cause
    "VLLM_RAISE_ON_LOGIT_NANS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
NOT_FINITE = "NaNs detected in logits"
"""In vLLM's error for a logit that is not a number."""
SHOWN = 300
"""Characters of an error of vLLM that are shown."""
ROWS = 1024
"""Requests between two writes. vLLM itself decides how many are in a step."""


class Engine:
    """A running vLLM; see `running_engine`."""

    def __init__(self, process: subprocess.Popen[str], name: str) -> None:
        self._process = process
        self._name = name

    def generate(self, params: Mapping[str, Any], requests: Sequence[tuple[Sequence[int], int | None]]) -> list[Any]:
        """Return the new ids of each request (prompt ids, seed), with the one that ended it.

        Raises MetricError for logits that are not finite, and ModelError for any other error of vLLM.
        """
        return self.ask({"params": params, "requests": requests})["outputs"]

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the worker's answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer = json.loads(line) if line else {"error": f"its process ended with code {self._process.wait()}"}
        if "error" not in answer:
            return answer
        if NOT_FINITE in answer["error"]:
            raise not_finite()
        raise ModelError(
            f"vLLM cannot generate with {self._name} ({answer['error'][:SHOWN]}); without vllm as the backend, the "
            "harness generates by itself."
        )


@contextmanager
def running_engine(settings: Mapping[str, Any], name: str) -> Iterator[Engine]:
    """Start vLLM with the settings of its `LLM` and `vocabulary`; it is gone at the end. `name` is the model's."""
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            [sys.executable, "-m", "emobench.inference.vllm.worker"],
            env={**os.environ, **ENVIRONMENT, "TMPDIR": folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            encoding="utf-8",
        ) as process,
    ):
        try:
            engine = Engine(process, name)
            engine.ask(settings)
            yield engine
        finally:
            process.kill()


def vllm_continuations(
    files: Model,
    prompts_ids: Sequence[Sequence[int]],
    *,
    prompt_keys: Sequence[str],
    decoding: Decoding,
    vocabulary: int | None,
    ends: Sequence[int],
    done: Container[int],
) -> Iterator[list[tuple[int, list[Continuation]]]]:
    """Yield (prompt index, its continuations) of each batch as it ends, in the order of the prompts.

    See `decoding.continuations.iter_continuations`. Raises ModelError for any error of vLLM, and MetricError for a
    logit that is not a number.
    """
    samples, eos = decoding.rule.samples, tuple(dict.fromkeys((*end_ids(files), *ends)))
    size = max(ROWS // samples, 1)
    left: list[range] = []
    for start in range(0, len(prompts_ids), size):
        members = range(start, min(start + size, len(prompts_ids)))
        if not all(index in done for index in members):
            left.append(members)
    if not left:
        return
    params = sampling_params(decoding, eos)
    longest = max(map(len, prompts_ids)) + decoding.new_tokens
    with running_engine(engine_settings(files, longest, vocabulary), files.name) as engine:
        for members in left:
            requests = []
            for i in members:
                requests += [(prompts_ids[i], seed) for seed in request_seeds(decoding, prompt_keys[i])]
            rows = [decoding.cut(ids, eos) for ids in engine.generate(params, requests)]
            yield [(i, rows[place * samples : (place + 1) * samples]) for place, i in enumerate(members)]


def sampling_params(decoding: Decoding, ends: Sequence[int]) -> dict[str, Any]:
    """Return the parameters that all requests share; `ends` are the ids that end a text.

    vLLM gives these ids no mass in the first `min_tokens` steps. Its own idea of EOS is switched off, and so is its
    tokenizer.
    """
    rule = decoding.rule
    params: dict[str, Any] = {
        "max_tokens": decoding.new_tokens,
        "min_tokens": decoding.suppressed_steps,
        "stop_token_ids": list(ends),
        "ignore_eos": True,
        "detokenize": False,
        "temperature": 0.0,
    }
    if rule.method == "sample":
        params |= {"temperature": rule.temperature, "top_k": rule.top_k, "top_p": rule.top_p, "min_p": rule.min_p}
    return params


def request_seeds(decoding: Decoding, prompt_key: str) -> list[int | None]:
    """Return the seeds of a prompt's requests, one for each sample; None if nothing is drawn.

    A seed depends on (seed, prompt id, sample index) only, so that a text does not depend on the order of prompts. It
    is from 0 to 2**63 - 1: vLLM takes -1 for none.
    """
    rule = decoding.rule
    if rule.method == "greedy":
        return [None]
    seeds: list[int | None] = []
    for sample in range(rule.samples):
        digest = hashlib.sha256(f"{rule.seed}\n{prompt_key}\n{sample}".encode()).digest()
        seeds.append(int.from_bytes(digest[:8], "little") >> 1)
    return seeds


def engine_settings(files: Model, longest: int, vocabulary: int | None, *, texts: bool = False) -> dict[str, Any]:
    """Return the settings of a worker whose requests have at most `longest` tokens, including new ones.

    With `texts`, requests may end at strings.
    """
    settings = {
        "model": str(files.folder),
        "dtype": files.options.dtype,
        "trust_remote_code": files.options.trust_remote_code,
        "max_model_len": longest,
        "vocabulary": vocabulary,
        "texts": texts,
    }
    if files.options.tokenizer is not None:
        settings["tokenizer"] = str(tokenizer_folder(files.folder, files.options))
    return settings


def end_ids(files: Model) -> tuple[int, ...]:
    """Return the ids that end a text, as the loaded model would name them."""
    trusted = files.options.trust_remote_code
    config = AutoConfig.from_pretrained(files.folder, local_files_only=True, trust_remote_code=trusted)
    try:
        generation = GenerationConfig.from_pretrained(files.folder, local_files_only=True)
    except OSError:  # the folder has no such file
        generation = GenerationConfig.from_model_config(config)
    return eos_ids(SimpleNamespace(generation_config=generation, config=config))
