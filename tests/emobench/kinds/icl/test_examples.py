"""Which examples are answered, and which can be shots: never one that is both."""

from __future__ import annotations

import hashlib

import pytest

from emobench.core.errors import ConfigError
from emobench.data.labelled import Example, LabelledData
from emobench.kinds.icl.retrieval import shots as which
from emobench.kinds.icl.rules import IclProtocol


def rules(**changes: object) -> IclProtocol:
    return IclProtocol(template="{text} {label}", labels={"a": "yes", "b": "no"}, **changes)  # type: ignore[arg-type]


def made(prefix: str, count: int) -> list[Example]:
    texts = [f"{prefix} {place}" for place in range(count)]
    digests = [hashlib.sha256(text.encode()).hexdigest()[:12] for text in texts]
    return [Example(f"{d}-{i}", {"text": t}, "a") for i, (d, t) in enumerate(zip(digests, texts, strict=True))]


DATA = LabelledData("made", made("pool", 40), made("test", 10), {})


def test_the_test_split_is_answered_from_the_pool() -> None:
    assert which.questions_of(rules(), DATA) == DATA.test
    assert which.questions_of(rules(limit=3), DATA) == DATA.test[:3]
    assert which.pool_of(rules(), DATA) == DATA.pool
    assert which.pool_of(rules(pool=0.3), DATA) == DATA.pool[:12]


def test_held_out_examples_are_answered_and_are_no_shots() -> None:
    held, pool = which.questions_of(rules(held_out=15), DATA), which.pool_of(rules(held_out=15), DATA)
    assert [e.id for e in held] == sorted(e.id for e in DATA.pool)[:15]
    assert {e.id for e in held} | {e.id for e in pool} == {e.id for e in DATA.pool}
    assert len(pool) == 25
    assert which.questions_of(rules(held_out=15, limit=4), DATA) == held[:4]
    assert len(which.pool_of(rules(held_out=15, limit=4), DATA)) == 25


def test_the_order_of_the_file_does_not_choose_what_is_held_out() -> None:
    turned = LabelledData("made", DATA.pool[::-1], DATA.test, {})
    assert which.questions_of(rules(held_out=5), turned) == which.questions_of(rules(held_out=5), DATA)


def test_holding_out_the_whole_pool_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"held_out is 40; expected fewer than the 40 examples of made's pool"):
        which.pool_of(rules(held_out=40), DATA)
    with pytest.raises(ConfigError, match="`held_out` is -1; expected at least 0"):
        rules(held_out=-1)
