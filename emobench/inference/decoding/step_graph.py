"""A step of a model as a CUDA graph: one launch in place of hundreds.

Legend: A rows, V vocabulary.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor
from transformers import Cache

from emobench.core.errors import first_line
from emobench.inference.decoding.shared_cache import FixedLayer

WORTH = 16
"""Steps from which on a graph is recorded: recording takes about three."""


class GraphStep:
    """Gives what `read(ids_A1)` gives, a tensor of (A, V), from a graph that is recorded at the first call.

    The first answer of the graph is compared with that of the model's own step. Where they differ, and where a model
    does what a graph cannot hold, the model's own step is used, and a warning says so. The tensor that is returned is
    the same one at each call.
    """

    def __init__(self, read: Callable[[Tensor], Tensor], cache: Cache) -> None:
        self._read = read
        self._cache = cache
        self._graph: Any = None
        self._ids_A1 = self._scores_AV = torch.empty(0)
        self._refused = False

    @staticmethod
    def is_possible(cache: Cache, steps: int) -> bool:
        """Say whether the cache is on a CUDA device and has one shape for all steps, and these are worth a graph."""
        fixed = all(isinstance(layer, FixedLayer) and layer.device.type == "cuda" for layer in cache.layers)
        return fixed and steps >= WORTH

    def __call__(self, ids_A1: Tensor) -> Tensor:
        if self._graph is None and not self._refused:
            self._ids_A1 = ids_A1.clone()
            self._refused = not self._record()
            return self._read(ids_A1) if self._refused else self._scores_AV
        if self._graph is None or self._refused:
            return self._read(ids_A1)
        self._ids_A1.copy_(ids_A1)
        self._graph.replay()
        return self._scores_AV

    def _record(self) -> bool:
        """Record the step, and take it; False, and none is taken, where that is not possible."""
        positions = [layer.cumulative_length.clone() for layer in self._cache.layers]  # type: ignore[attr-defined]
        why = "it gave other scores"
        try:
            expected_AV = self._own_step(positions)
            self._capture()
            self._graph.replay()
            same = torch.allclose(self._scores_AV, expected_AV, rtol=1e-2, atol=1e-2, equal_nan=True)
        except RuntimeError as error:
            same, why = False, first_line(error)
        if not same:
            self._rewind(positions)
            warnings.warn(f"The model's step is read without a CUDA graph: {why}.", stacklevel=2)
        return same

    def _own_step(self, positions: list[Tensor]) -> Tensor:
        """Return the scores of the model's own step, which is taken back.

        Raises RuntimeError if the step waits for the device, which a graph cannot do; at a first call libraries may.
        """
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            try:
                scores_AV = self._without_waiting(positions)
            except RuntimeError:
                scores_AV = self._without_waiting(positions)
        torch.cuda.current_stream().wait_stream(stream)
        return scores_AV

    def _without_waiting(self, positions: list[Tensor]) -> Tensor:
        try:
            with _no_waiting():
                return self._read(self._ids_A1)
        finally:
            self._rewind(positions)

    def _capture(self) -> None:
        """Record the step. After an error the process is as it was: torch leaves the pool in use.

        Not by `torch.cuda.graph`, which first collects garbage and gives all free memory back.
        """
        current, stream, pool = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        stream.wait_stream(current)
        self._graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.stream(stream):
                self._graph.capture_begin(pool=pool)
                try:
                    self._scores_AV = self._read(self._ids_A1)
                finally:
                    self._graph.capture_end()
        except RuntimeError:
            for give_back in (torch._C._cuda_endAllocateToPool, torch._C._cuda_releasePool):
                with suppress(RuntimeError):
                    give_back(current.device_index, pool)
            raise
        current.wait_stream(stream)

    def _rewind(self, positions: list[Tensor]) -> None:
        for layer, position in zip(self._cache.layers, positions, strict=True):
            layer.cumulative_length.copy_(position)  # type: ignore[attr-defined]


@contextmanager
def _no_waiting() -> Iterator[None]:
    """Raise RuntimeError where the host would wait for the device."""
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls it a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)
