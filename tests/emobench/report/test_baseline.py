"""The objective that others are compared with where nobody names one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emobench.leaderboard.entry import Entry
from emobench.report.baseline import default_baseline


@pytest.mark.parametrize(
    ("suite", "objectives", "expected"),
    [
        ("nlu", "emo tailr mle", "mle"),
        ("nlu-tiny", "emo mixce tailr", "tailr"),  # mle, tailr, mixce, emo
        ("unknown", "tailr emo", "emo"),
        ("nlu", "pretrained", None),
    ],
)
def test_no_order_of_recording_decides(
    suite: str, objectives: str, expected: str | None, entry_of: Callable[..., Entry]
) -> None:
    entries = []
    for day, name in enumerate(objectives.split(), 1):
        created = f"2026-01-0{day}T00:00:00"
        entries.append(entry_of(name, suite={"name": suite, "version": 1}, created=created))
    assert default_baseline(entries) == default_baseline(entries[::-1]) == expected
