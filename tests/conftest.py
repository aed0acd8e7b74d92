"""What holds for every test, whatever the shell and the machine."""

import gc
import os
import signal

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


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # some libraries complain of objects that are alive at the end
