"""Filters keep what is meant, and a name that nothing has gets the nearest that exist."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import ConfigError, UnknownNameError
from emobench.leaderboard.query.rows import Filters
from emobench.leaderboard.store import Row

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


def row(name: str, **changes: Any) -> Row:
    given = {
        "id": name,
        "path": Path(name),
        "kind": "measured",
        "suite": "nlu",
        "suite_version": 1,
        "model": "gpt2",
        "objective": name.partition("(")[0],
        "label": name,
        "created": "2026-03-09T12:00:00+00:00",
        "comparison_key": "k",
        "metrics": ("sst2/accuracy", "mmlu/accuracy"),
        "supersedes": None,
        "runs": (),
    }
    return Row(**{**given, **changes})


ROWS = [
    row("mle"),
    row("tailr(gamma=0.1)"),
    row("tailr(gamma=0.2)", model="opt-125m", created="2026-03-10T11:30:00"),
    row("emo", suite_version=2, created="2026-01-01T00:00:00+00:00"),
    row("pretrained", suite="lm-quick", metrics=("lm-quick/ppl_test",), kind="published"),
]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"model": "gpt2"}, [0, 1, 3, 4]),
        ({"objectives": ("tailr",)}, [1, 2]),
        ({"objectives": ("tailr(gamma=0.2)", "mle")}, [0, 2]),
        ({"suite": "nlu"}, [0, 1, 2, 3]),
        ({"suite": "nlu@2"}, [3]),
        ({"metrics": ("ppl_test",)}, [4]),
        ({"metrics": ("sst2/*",)}, [0, 1, 2, 3]),
        ({"metrics": ("sst2*",)}, [0, 1, 2, 3]),
        ({"metrics": ("ppl*",)}, [4]),
        ({"metrics": ("*quick*test",)}, [4]),
        ({"kind": "published"}, [4]),
        ({"since": "2026-03-09"}, [0, 1, 2, 4]),
        ({"since": "1h"}, [2]),
        ({"since": "1d"}, [0, 1, 2, 4]),
        ({"since": "10w"}, [0, 1, 2, 3, 4]),
        ({"model": "gpt2", "objectives": ("tailr",), "since": "7d"}, [1]),
    ],
)
def test_rows_that_are_meant_are_kept_in_order(given: dict[str, Any], kept: list[int]) -> None:
    assert Filters(**given).of(ROWS, NOW) == [ROWS[index] for index in kept]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"model": "gtp2"}, "no entry of the model 'gtp2'; did you mean 'gpt2'"),
        ({"objectives": ("emo", "tailer")}, "no entry of the objective 'tailer'; did you mean 'tailr'"),
        ({"suite": "nlu@3"}, "no entry of the suite 'nlu@3'; did you mean 'nlu@"),
        ({"metrics": ("acuracy",)}, "no entry of the metric 'acuracy'; did you mean 'accuracy'"),
        ({"metrics": ("sst3/accuracy",)}, "did you mean 'sst2/accuracy'"),
        ({"kind": "imported"}, "Known: measured, published"),
    ],
)
def test_an_unknown_name_gets_the_nearest(given: dict[str, Any], told: str) -> None:
    with pytest.raises(UnknownNameError, match=told):
        Filters(**given).of(ROWS, NOW)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"since": "yesterday"}, "expected a date such as 2026-01-31, or an age such as 7d"),
        ({"since": "999999w"}, "an age such as 7d"),
        ({"since": "5m"}, "No entry has all of --since 5m"),
        ({"suite": "lm-quick", "objectives": ("emo",)}, "No entry has all of --objective emo, --suite lm-quick"),
    ],
)
def test_what_leaves_nothing_gets_a_sentence(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Filters(**given).of(ROWS, NOW)


def test_of_many_names_only_the_nearest_are_listed() -> None:
    rows = [row(f"objective-{number}") for number in range(100)]
    with pytest.raises(UnknownNameError, match="These are the nearest of 100") as caught:
        Filters(objectives=("objectve-42",)).of(rows, NOW)
    assert "objective-42" in str(caught.value)
    assert str(caught.value).count("objective-") <= 21
