"""Without a GPU, Triton kernels run in Triton's interpreter: to be said before triton is imported anywhere."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
