"""Without a GPU, Triton kernels run in Triton's interpreter: to be said before triton is imported anywhere."""

import os

import hypothesis
import torch

# No test is timed: a busy machine is no failure.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
