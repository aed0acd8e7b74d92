"""Which examples of a data set a protocol uses: its share of the pool, its first test examples."""

from __future__ import annotations

from collections.abc import Sequence

from emobench.data.labelled import Example, LabelledData
from emobench.tasks.icl import IclProtocol


def pool_of(rules: IclProtocol, data: LabelledData) -> Sequence[Example]:
    """Return the share of the pool that shots are taken from, rounded as datasets does in `train[:30%]`."""
    return data.pool[: max(1, round(rules.pool * len(data.pool)))]


def test_of(rules: IclProtocol, data: LabelledData) -> Sequence[Example]:
    """Return the test examples that are answered."""
    return data.test if rules.limit is None else data.test[: rules.limit]
