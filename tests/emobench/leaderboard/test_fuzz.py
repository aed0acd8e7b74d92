"""Whatever a file of a board holds, its reader returns or says in a sentence what is wrong, soon.

Each reader's file is changed at random, by a fixed seed; `--rounds` of `tests/benchmarks faults.fuzz` tries more.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from emobench.core.reading import parse_mapping

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from faults.fuzz import READERS, fuzz


@pytest.mark.parametrize("reader", READERS)
def test_a_changed_file_is_read_or_refused(reader: str, tmp_path: Path) -> None:
    assert fuzz(reader, tmp_path, rounds=150, seed=0) == []


@pytest.mark.parametrize("text", [r'{"a": "\ud800"}', r'{"\udc00": 1}', r'{"a": [{"b": "x\ud800y"}]}'])
def test_half_a_surrogate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="half a surrogate"):
        parse_mapping(text)


def test_a_whole_surrogate_pair_is_a_character() -> None:
    assert parse_mapping(r'{"a": "\ud83d\ude00"}') == {"a": "\U0001f600"}
