"""Searches in words and tables: who is ahead, ties, and searches that do not compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from emobench.leaderboard.entry import Entry, Trial, Tuning
from emobench.report.tuning import tuning_tables


@pytest.fixture
def tuned(make_entry: Callable[..., Entry]) -> Callable[..., Entry]:
    def tuned(name: str, values: Sequence[float | None], metric: str = "accuracy", unit: str = "fraction") -> Entry:
        known = [value for value in values if value is not None]
        trials = [Trial(settings={"recipe.epochs": place}, value=value) for place, value in enumerate(values)]
        tuning = Tuning(
            asked={"recipe.epochs": "0..9"},
            space={"recipe.epochs": "0..9"},
            sampler="random",
            seeds=(1_000_000,),
            metric=metric,
            unit=unit,
            higher_is_better=True,
            validation={"sst2": "paper@1"},
            trials=tuple(trials),
            chosen=list(values).index(max(known)),
        )
        return replace(make_entry(name, {"sst2": np.eye(3)}), tuning=tuning)

    return tuned


@pytest.mark.parametrize(
    ("mle", "emo", "said"),
    [
        ([0.5, 0.7, 0.6], [0.1, 0.8, 0.2], "mle from 1, emo from 3"),
        ([0.5, 0.7, 0.6], [0.6, 0.5, 0.7], "mle and emo from 1"),
        ([0.5, 0.7, 0.6], [0.1, 0.7, 0.2], "mle from 1, mle and emo from 3"),
        ([None, 0.7, 0.6], [0.5, 0.5, 0.4], "emo from 1, mle from 2"),
        ([None, None, 0.6], [None, 0.5, 0.5], "emo from 2, mle from 3"),
    ],
)
def test_who_is_ahead(mle: list[float | None], emo: list[float | None], said: str, tuned: Callable[..., Entry]) -> None:
    *_, best = tuning_tables([tuned("mle", mle), tuned("emo", emo)])
    assert best.below[0].endswith(f": {said}.")
    assert len(best.rows) == 3


def test_searches_that_do_not_compare_have_no_table_in_common(tuned: Callable[..., Entry]) -> None:
    entries = [tuned("mle", [0.5, 0.7]), tuned("emo", [2.0, 20.0], "ppl", "nats")]
    assert len(tuning_tables(entries)) == 2
    assert len(tuning_tables([entries[0], tuned("emo", [0.5, 0.7])])) == 3
