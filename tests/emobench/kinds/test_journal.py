"""What an interrupted attempt left is read as it was written, or not at all."""

from __future__ import annotations

import random
from pathlib import Path

from emobench.kinds.journal import Journal

LINES = ['{"id": "größe", "nats": [1.25]}', "two\u2028\x85 lines to some", "", "last"]


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    assert journal.read() == []
    journal.append(LINES[:1])
    journal.append([])
    journal.append(LINES[1:])
    assert journal.read() == Journal(tmp_path / "journal").read() == LINES


def test_a_torn_line_is_cut_off_and_the_next_one_stands_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    Journal(path).append(LINES)
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        kept = Journal(path).read()
        assert kept == LINES[: whole[:end].count(b"\n")]
        Journal(path).append(["next"])
        assert Journal(path).read() == [*kept, "next"]


def test_a_flipped_bit_drops_its_line_alone(tmp_path: Path) -> None:
    path, draw = tmp_path / "journal", random.Random(0)
    Journal(path).append(LINES)
    whole = path.read_bytes()
    for _ in range(200):
        data = bytearray(whole)
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
        kept = Journal(path).read()
        assert kept != LINES
        assert len(kept) >= len(LINES) - 2  # a lost end of line joins two
        assert set(kept) <= set(LINES)
