"""vLLM from outside: a process of its own, which takes all of its memory with it when it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from emobench.core.errors import MetricError, ModelError

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one process, so that an error gives its cause
    "VLLM_RAISE_ON_LOGIT_NANS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
NOT_FINITE = "NaNs detected in logits"
"""What vLLM says of a logit that is no number."""
SHOWN = 300
"""Characters of an error of vLLM that are shown."""


class Engine:
    """A running vLLM; see `running_engine`."""

    def __init__(self, process: subprocess.Popen[str], name: str) -> None:
        self._process = process
        self._name = name

    def generate(self, params: Mapping[str, Any], requests: Sequence[tuple[Sequence[int], int | None]]) -> list[Any]:
        """Return the new ids of each request (prompt ids, seed), with the one that ended it.

        Raises MetricError for logits that are no numbers, and ModelError for what else stops vLLM.
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
            raise MetricError(
                "The model's logits are not finite, so no text can be decoded; look at its weights or use --dtype "
                "float32."
            )
        raise ModelError(
            f"vLLM cannot generate with {self._name} ({answer['error'][:SHOWN]}); without vllm as the backend, the "
            "harness generates by itself."
        )


@contextmanager
def running_engine(settings: Mapping[str, Any], name: str) -> Iterator[Engine]:
    """Start vLLM with the settings of its `LLM` and `vocabulary`; it is gone at the end. `name` is the model's."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "emobench.inference.vllm.worker"],
            env={**os.environ, **ENVIRONMENT, "TMPDIR": folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            encoding="utf-8",
        )
        try:
            engine = Engine(process, name)
            engine.ask(settings)
            yield engine
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
