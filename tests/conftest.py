"""What holds for every test, whatever the shell and the machine."""

import gc
import json
import os
import signal
from pathlib import Path

import hypothesis
import pytest
import torch

# No test is timed: a busy machine is no failure.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# A shell starts a job in the background with SIGINT ignored, and nohup one with SIGHUP ignored. The processes of the
# tests would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Without a GPU, Triton kernels run in Triton's interpreter. It must be set before triton is imported anywhere.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="module", autouse=True)
def _old_objects_are_out_of_collections() -> None:
    """Trainers collect garbage again and again. That took half of their tests' time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def real_files() -> Path:
    """Real data and models, which lie beside a checkout and are no part of it. A test that needs them takes this."""
    folder = Path(__file__).parents[2] / "shared"
    if not (folder / "data").is_dir() or not (folder / "models").is_dir():
        pytest.skip("needs real data and models in ../shared")
    return folder


@pytest.fixture(scope="session")
def real_model(real_files: Path) -> Path:
    """A model of 7M parameters that was trained on English."""
    return real_files / "models" / "base-en-7m"


@pytest.fixture(scope="session")
def wikitext(real_files: Path) -> list[str]:
    """The texts of WikiText-2's test split."""
    lines = (real_files / "data" / "lm" / "wikitext2.test.jsonl").read_text(encoding="utf-8").strip().split("\n")
    return [json.loads(line)["text"] for line in lines]


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # some libraries complain of objects that are alive at the end
