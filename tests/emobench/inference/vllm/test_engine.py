"""The process in which vLLM runs: what ends it, and how its errors arrive."""

from __future__ import annotations

import subprocess
import sys

import pytest

from emobench.core.errors import ModelError
from emobench.inference.vllm.engine import running_engine
from emobench.inference.vllm.package import installed_package

SETTINGS = {"model": "nowhere", "dtype": "float32", "max_model_len": 8, "vocabulary": 8, "texts": False}


def test_the_process_ends_with_its_input() -> None:
    worker = [sys.executable, "-m", "emobench.inference.vllm.worker"]
    done = subprocess.run(worker, input="", capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.skipif(installed_package() is not None, reason="vLLM is installed")
def test_an_error_of_the_process_names_the_model() -> None:
    error = r"vLLM cannot generate with toy \(ModuleNotFoundError: No module named 'vllm'\)"
    with pytest.raises(ModelError, match=error), running_engine(SETTINGS, "toy"):
        pass
