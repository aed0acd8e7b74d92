"""Caches of keys and values whose prompts are read once, and whose rows then grow without being copied.

Legend: P prompts, R rows (prompt x sample), H heads, T positions, D width of a head, A rows that are kept.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer, LinearAttentionCacheLayerMixin, StaticLayer

ALIGNED = 8
"""Positions of a fixed layer are a multiple of this: with 99, attention took 1.5 times as long as with 100 (H200)."""


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
