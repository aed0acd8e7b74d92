"""Choice of the implementation of the elementwise passes: Triton kernels on a GPU, PyTorch elsewhere."""

from __future__ import annotations

import os
from typing import Protocol

import torch
from torch import Tensor

from emobench.errors import UserError
from emobench.models.head import LogitMap
from emobench.objectives.engine.coefficients import Coefficients
from emobench.objectives.engine.cost_rows import CostRows
from emobench.objectives.engine.products import has_triton
from emobench.objectives.engine.torch_rows import TorchRows

IMPLEMENTATIONS = ("chunked", "torch", "triton", "reference")
"""chunked: Triton or PyTorch, depending on the device. reference: plain autograd on whole logits."""


class Rows(Protocol):
    """The two elementwise passes over the logits of a chunk. `torch_rows.py` documents each method."""

    row_multiple: int

    def logits_dtype(self, dtype: torch.dtype) -> torch.dtype: ...
    def cost_dtype(self, dtype: torch.dtype) -> torch.dtype: ...
    def make_logits(
        self, hidden_CD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, map_: LogitMap, out_CV: Tensor
    ) -> None: ...
    def reduce(
        self, logits_CV: Tensor, targets_C: Tensor, costs: CostRows | None, needs: frozenset[str], map_: LogitMap
    ) -> dict[str, Tensor]: ...
    def differentiate(
        self,
        logits_CV: Tensor,
        targets_C: Tensor,
        costs: CostRows | None,
        log_partition_C: Tensor,
        numbers: Coefficients,
        map_: LogitMap,
    ) -> Tensor: ...


def rows_for(impl: str, device: torch.device, dtype: torch.dtype) -> Rows:
    """Return the passes of an implementation other than "reference". Raises UserError if it cannot run."""
    if impl == "torch" or (impl == "chunked" and not _kernels_run(device, dtype)):
        return TorchRows()
    if impl == "triton" and not _kernels_run(device, dtype, interpreted=True):
        raise UserError(
            f"impl is 'triton' for {dtype} on '{device.type}'; its kernels take float32, bfloat16 or float16 on a CUDA "
            "device, with triton installed. Take impl='torch', or set TRITON_INTERPRET=1 before the start to try them."
        )
    from emobench.objectives.engine.triton_rows import TritonRows

    return TritonRows()


def _kernels_run(device: torch.device, dtype: torch.dtype, *, interpreted: bool = False) -> bool:
    if dtype == torch.float64 or not has_triton():
        return False
    return device.type == "cuda" or (interpreted and os.environ.get("TRITON_INTERPRET") == "1")
