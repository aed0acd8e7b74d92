"""Whatever a file of a board holds, its reader returns or says in a sentence what is wrong, soon.

Each reader's file is changed at random, by a fixed seed; `--rounds` of `tests/benchmarks faults.fuzz` tries more.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from faults.fuzz import READERS, fuzz


@pytest.mark.parametrize("reader", READERS)
def test_a_changed_file_is_read_or_refused(reader: str, tmp_path: Path) -> None:
    assert fuzz(reader, tmp_path, rounds=150, seed=0) == []
