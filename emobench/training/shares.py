"""How several processes share the rows of an epoch: each row is trained on once, in the batches of one process.

The last batch of an epoch may have fewer rows than the processes need. It is completed with fillers: rows without a
target, which weigh nothing. accelerate would take rows of the first batch for a second time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from accelerate.data_loader import SeedableRandomSampler
from torch.utils.data import Sampler

from emobench.data.packing import IGNORE


class FilledRows:
    """The rows of a training. From the index `len(rows)` on, they are fillers."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self._filler = {**rows[0], "labels": np.full_like(rows[0]["labels"], IGNORE)}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Any:
        return self._rows[index] if index < len(self._rows) else self._filler


class FilledSampler(Sampler[int]):
    """The order in which one process reads the rows of each epoch, then fillers up to a multiple of `multiple`."""

    def __init__(self, rows: Any, seed: int, multiple: int) -> None:
        self._order = SeedableRandomSampler(rows, generator=torch.Generator(), data_seed=seed)
        self._rows, self._fillers = len(rows), -len(rows) % multiple

    def __len__(self) -> int:
        return self._rows + self._fillers

    def __iter__(self) -> Iterator[int]:
        yield from self._order
        yield from [self._rows] * self._fillers

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, which has an order of its own."""
        self._order.set_epoch(epoch)
