"""A KV cache whose prompts are read once, and whose rows then grow without being copied.

Legend: P prompts, R rows (prompt x sample), H heads, T positions, D width of a head.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer


class ReservedLayer(DynamicLayer):
    """A layer with room for all positions to come; transformers' own concatenates, that is copies, at each step.

    Measured with base-en-7m, 160 rows and 20 + 80 tokens on a CPU: the copies were two fifths of the time.
    """

    def __init__(self, keys_PHTD: Tensor, values_PHTD: Tensor, samples: int, room: int) -> None:
        super().__init__()
        self.lazy_initialization(keys_PHTD, values_PHTD)
        self.keys_RHTD = _with_room(keys_PHTD, samples, room)
        self.values_RHTD = _with_room(values_PHTD, samples, room)
        self._show(keys_PHTD.shape[-2])

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        self.keys_RHTD[:, :, start:end] = key_states
        self.values_RHTD[:, :, start:end] = value_states
        return self._show(end)

    def _show(self, positions: int) -> tuple[Tensor, Tensor]:
        self.keys, self.values = self.keys_RHTD[:, :, :positions], self.values_RHTD[:, :, :positions]
        return self.keys, self.values


def repeat_cache(cache: Any, samples: int, room: int) -> bool:
    """Give each of a cache's prompts `samples` rows with `room` for new positions; False where a layer cannot.

    Layers of another kind than the usual one, such as those of sliding windows, keep their own way to grow; recurrent
    states have no way to be repeated, and those of RWKV are a plain list of tensors.
    """
    if not isinstance(cache, Cache) or not all(hasattr(layer, "batch_repeat_interleave") for layer in cache.layers):
        return False
    for place, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer and layer.keys is not None and layer.values is not None:
            cache.layers[place] = ReservedLayer(layer.keys, layer.values, samples, room)
        else:
            layer.batch_repeat_interleave(samples)  # type: ignore[attr-defined]
    return True


def _with_room(states_PHTD: Tensor, samples: int, room: int) -> Tensor:
    prompts, heads, positions, width = states_PHTD.shape
    states_RHTD = states_PHTD.new_empty(prompts * samples, heads, positions + room, width)
    states_RHTD[:, :, :positions] = states_PHTD.repeat_interleave(samples, 0)
    return states_RHTD
