"""Caches of keys and values whose prompts are read once, and whose rows then grow without being copied.

On a GPU, a step of a model over a cache of fixed shape is a CUDA graph: one launch in place of hundreds.

Legend: P prompts, R rows (prompt x sample), A rows that are kept, H heads, T positions, D width of a head,
V vocabulary.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer, LinearAttentionCacheLayerMixin, StaticLayer

from emobench.core.errors import first_line

ALIGNED = 8
"""Positions of a fixed layer are a multiple of this: with 99, attention took 1.5 times as long as with 100 (H200)."""
WORTH = 16
"""Steps from which on a graph is recorded: recording takes about three."""


class ReservedLayer(DynamicLayer):
    """A layer with room for all positions to come; transformers' own concatenates, that is copies, at each step.

    Measured with base-en-7m, 160 rows and 20 + 80 tokens on a CPU: the copies were two fifths of the time. Positions
    are outermost, so that the filled ones lie together in memory: with room behind each row instead, reading the keys
    and values of 60 positions took 1.5 times as long.
    """

    def __init__(self, keys_PHTD: Tensor, values_PHTD: Tensor, samples: int, room: int) -> None:
        super().__init__()
        self.lazy_initialization(keys_PHTD, values_PHTD)
        self.keys_TRHD = _with_room(keys_PHTD, samples, room)
        self.values_TRHD = _with_room(values_PHTD, samples, room)
        self._show(keys_PHTD.shape[-2])

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        self.keys_TRHD[start:end] = key_states.permute(2, 0, 1, 3)
        self.values_TRHD[start:end] = value_states.permute(2, 0, 1, 3)
        return self._show(end)

    def batch_select_indices(self, indices: Tensor) -> None:
        self.keys_TRHD, self.values_TRHD = self.keys_TRHD[:, indices], self.values_TRHD[:, indices]
        self._show(self.get_seq_length())

    def _show(self, positions: int) -> tuple[Tensor, Tensor]:
        self.keys = self.keys_TRHD[:positions].permute(1, 2, 0, 3)
        self.values = self.values_TRHD[:positions].permute(1, 2, 0, 3)
        return self.keys, self.values


class FixedLayer(StaticLayer):
    """A layer whose tensors have one shape and place for all steps, so that a CUDA graph can hold a step."""

    def __init__(self, keys_PHTD: Tensor, values_PHTD: Tensor, samples: int, room: int) -> None:
        positions = keys_PHTD.shape[-2]
        super().__init__(-(-(positions + room) // ALIGNED) * ALIGNED)
        rows = len(keys_PHTD) * samples
        self.lazy_initialization(keys_PHTD[:1].expand(rows, -1, -1, -1), values_PHTD[:1].expand(rows, -1, -1, -1))
        assert self.keys is not None
        assert self.values is not None
        self.keys[:, :, :positions] = keys_PHTD.repeat_interleave(samples, 0)
        self.values[:, :, :positions] = values_PHTD.repeat_interleave(samples, 0)
        self.cumulative_length.fill_(positions)

    def batch_select_indices(self, indices: Tensor) -> None:
        assert self.keys is not None
        assert self.values is not None
        self.keys, self.values = self.keys[indices], self.values[indices]
        self.batch_size = len(indices)


def repeat_cache(cache: Any, samples: int, room: int, *, fixed: bool = False) -> bool:
    """Give each of a cache's prompts `samples` rows with `room` for new positions; False where a layer cannot.

    Layers of another kind than the usual one, such as those of sliding windows, keep their own way to grow; recurrent
    states have no way to be repeated, and those of RWKV are a plain list of tensors.
    """
    if not isinstance(cache, Cache) or not _can(cache, "batch_repeat_interleave"):
        return False
    usual = [type(layer) is DynamicLayer and isinstance(layer.keys, Tensor) for layer in cache.layers]
    kind = FixedLayer if fixed and all(usual) else ReservedLayer
    for place, layer in enumerate(cache.layers):
        if usual[place]:
            cache.layers[place] = kind(layer.keys, layer.values, samples, room)  # type: ignore[arg-type]
        else:
            layer.batch_repeat_interleave(samples)  # type: ignore[attr-defined]
    return True


def keep_rows(cache: Cache, rows_A: Tensor) -> bool:
    """Keep some of the rows; False, and nothing is changed, where a layer cannot."""
    if not _can(cache, "batch_select_indices"):
        return False
    cache.batch_select_indices(rows_A)
    return True


def _can(cache: Cache, name: str) -> bool:
    """Say whether all layers have a method; those with recurrent states inherit some that leave these as they are."""
    return all(hasattr(layer, name) and not isinstance(layer, LinearAttentionCacheLayerMixin) for layer in cache.layers)


def _with_room(states_PHTD: Tensor, samples: int, room: int) -> Tensor:
    prompts, heads, positions, width = states_PHTD.shape
    states_TRHD = states_PHTD.new_empty(positions + room, prompts * samples, heads, width)
    states_TRHD[:positions] = states_PHTD.repeat_interleave(samples, 0).permute(2, 0, 1, 3)
    return states_TRHD


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
        if self._refused:
            return self._read(ids_A1)
        if self._graph is None:
            self._ids_A1 = ids_A1.clone()
            self._refused = not self._record()
            return self._read(ids_A1) if self._refused else self._scores_AV
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
