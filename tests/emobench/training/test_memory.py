"""How much memory may be kept for speed alone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from emobench.training import memory

GIB = 2**30


def test_a_container_limits_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = memory.keepable_bytes(torch.device("cpu"))
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_CONTAINER", limit)
    for text, expected in (("max\n", whole), (f"{32 << 20}\n", 1 << 20), (f"{1 << 60}\n", whole)):
        limit.write_text(text)
        assert memory.keepable_bytes(torch.device("cpu")) == expected


@pytest.mark.parametrize(("free", "expected"), [(80, 2.5), (16, 2), (0, 0)])
def test_a_gpu_in_use_keeps_less(free: int, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free * GIB, 80 * GIB))
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 1.0)
    assert memory.keepable_bytes(torch.device("cuda")) == expected * GIB


def test_the_peak_of_a_block_is_measured() -> None:
    """A table of 512 MiB is in memory for some readings, and not at the end."""
    with memory.measured_peak(torch.device("cpu")) as before:
        pass
    with memory.measured_peak(torch.device("cpu")) as peak:
        table = torch.ones(GIB // 8)
        time.sleep(10 * memory.PAUSE)
        del table
    with memory.measured_peak(torch.device("cpu")) as after:
        pass
    assert peak.bytes > before.bytes + 0.4 * GIB
    assert after.bytes < peak.bytes - 0.4 * GIB
