"""The process in which vLLM runs: `python -m emobench.inference.vllm.worker`, with JSON on lines.

The first line that it reads has the engine's settings, each other one a batch of requests. It answers each line with
one: {"ready": true}, {"outputs": [ids, ...]} in the order of the requests, or {"error": "..."}, after which it ends. It
also ends with its input, within a batch, too: nothing is left of it, on the GPU either, when who started it is gone.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import Any

CPU_CACHE = 4 * 2**30
"""Bytes of keys and values on a CPU, at most."""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it ends it
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print goes to stderr

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    lines = _lines()
    try:
        engine = Engine(**next(lines))
        answer(ready=True)
        for batch in lines:
            answer(outputs=engine.generate(**batch))
    except Exception as error:
        answer(error=" ".join(f"{type(error).__name__}: {error}".split()))
        os._exit(1)  # a thread still reads


def _lines() -> Iterator[Any]:
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield json.loads(lines.get())


class Engine:
    """vLLM with one model. Ids from `vocabulary` on are padding of the head, and never sampled.

    With `texts`, it has the model's tokenizer, so that a request may end at a string.
    """

    def __init__(self, *, vocabulary: int, texts: bool, **settings: Any) -> None:
        self._vllm: Any = import_module("vllm")  # is not installed where types are checked
        self._llm = self._vllm.LLM(
            **settings,
            **_memory(),
            skip_tokenizer_init=not texts,  # prompts and continuations are ids
            generation_config="vllm",  # the model's own settings of sampling do not act
            seed=0,  # each request has its own
        )
        self._llm.apply_model(lambda model: _mask_padding(model, vocabulary))

    def generate(self, *, params: dict[str, Any], requests: list[tuple[list[int], int | None]]) -> list[list[int]]:
        """Return the new ids of each request (prompt ids, seed), with the one that ended it."""
        prompts, sampling = [], []
        for ids, seed in requests:
            prompts.append({"prompt_token_ids": ids})
            sampling.append(self._vllm.SamplingParams(**params, seed=seed))
        replies = self._llm.generate(prompts, sampling, use_tqdm=False)
        return [list(reply.outputs[0].token_ids) for reply in replies]


def _mask_padding(model: Any, vocabulary: int) -> None:
    compute = model.compute_logits

    def compute_logits(*args: Any, **kwargs: Any) -> Any:
        logits_RV = compute(*args, **kwargs)
        logits_RV[:, vocabulary:] = -float("inf")
        return logits_RV

    model.compute_logits = compute_logits


def _memory() -> dict[str, Any]:
    """Return vLLM's share of the free memory: other models of the run are in the device's memory, too."""
    import torch

    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        return {"gpu_memory_utilization": 0.9 * free / total}
    import psutil

    # Compiling takes longer than most evaluations on a CPU.
    return {"kv_cache_memory_bytes": min(CPU_CACHE, psutil.virtual_memory().available // 2), "enforce_eager": True}


if __name__ == "__main__":
    main()
