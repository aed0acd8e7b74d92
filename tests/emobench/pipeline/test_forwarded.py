"""Tokens that an evaluation forwards, against a count by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from emobench.data.labelled import Example, LabelledData, LabelledSource, LabelledSplit
from emobench.pipeline.base_model import find_base_model
from emobench.pipeline.forwarded import Forwarded, generation_forwarded, icl_forwarded, oracle_forwarded
from emobench.pipeline.request import Request
from emobench.tasks.icl import IclProtocol
from emobench.tasks.spec import GenerationProtocol, OracleProtocol, Sampling

SOURCE = LabelledSource(
    name="made",
    classes=("a", "b"),
    repo="some/where",
    pool=LabelledSplit(split="train", rows=100, text_bytes=20),
    test=LabelledSplit(split="test", rows=50, text_bytes=10),
)
# Of one byte a token: a shot is `"` + 20 + `" is ` + label + `.` + separator.
FIXED, LABELS, TAIL = len('"" is '), {"a": "good", "b": "bad"}, 1
SHOT = FIXED + 20 + (4 + 3) / 2 + TAIL + 1
PREFIX = 8 * SHOT + FIXED + 10
SUFFIXES = (4 + TAIL, 3 + TAIL)


def rules(**changes: Any) -> IclProtocol:
    return IclProtocol(**{"template": '"{text}" is {label}.', "labels": LABELS, **changes})


def per_example(**changes: Any) -> float:
    found = icl_forwarded(rules(**changes), SOURCE, None, None, 1.0)
    assert found.examples
    assert found.tokens is not None
    return found.tokens / found.examples


def test_a_prompt_is_its_shared_prefix_and_each_labels_suffix_less_one_token() -> None:
    assert per_example() == PREFIX + sum(s - 1 for s in SUFFIXES)
    assert per_example(engine="plain") == sum(PREFIX + s for s in SUFFIXES)
    assert per_example(shots=0) == FIXED + 10 + sum(s - 1 for s in SUFFIXES)
    assert per_example(header="12345") == PREFIX + 5 + sum(s - 1 for s in SUFFIXES)
    assert per_example(scorer="calibrated") == 2 * per_example()
    assert per_example(max_length=100) == 100 + sum(s - 1 for s in SUFFIXES)
    short = icl_forwarded(rules(limit=1), SOURCE, None, None, 1.0, 100)  # a model that reads 100 tokens
    assert short.tokens == 100 + sum(s - 1 for s in SUFFIXES)
    halved = icl_forwarded(rules(), SOURCE, None, None, 2.0)
    assert halved == Forwarded(50, round(50 * (PREFIX / 2 + sum(s / 2 - 1 for s in SUFFIXES))))


def test_what_is_answered_and_what_nobody_knows() -> None:
    assert icl_forwarded(rules(limit=7), SOURCE, None, None, 1.0).examples == 7
    assert icl_forwarded(rules(held_out=20), SOURCE, None, None, 1.0).examples == 20
    unknown = replace(SOURCE, test=LabelledSplit(split="test", rows=50))
    assert icl_forwarded(rules(), unknown, None, None, 1.0) == Forwarded(50, None)
    assert icl_forwarded(rules(), replace(SOURCE, test=LabelledSplit(split="test")), None, None, 1.0).examples is None


def test_data_that_is_here_is_counted(byte_model: Path) -> None:
    """Texts of 20 and 10 bytes, so that any shots give the same number; the byte tokenizer adds nothing."""

    def made(split: str, size: int, count: int) -> list[Example]:
        return [Example(f"{split}-{i}", {"text": f"{i:0{size}d}"}, "a") for i in range(count)]

    data = LabelledData("made", made("train", 20, 100), made("test", 10, 50), {})
    model = find_base_model(str(byte_model), Request(suite="nlu", offline=True))
    shot = FIXED + 20 + 4 + TAIL + 1  # all are of the class "a"
    expected = 50 * (8 * shot + FIXED + 10 + sum(s - 1 for s in SUFFIXES))
    assert icl_forwarded(rules(), SOURCE, data, model, 4.0) == Forwarded(50, expected)
    assert icl_forwarded(rules(limit=5), SOURCE, data, model, 4.0) == Forwarded(5, expected // 10)
    # Without a tokenizer, from the bytes of the data that is here, and the labels' mean.
    assert icl_forwarded(rules(limit=5), SOURCE, data, None, 1.0).tokens == 5 * (PREFIX + sum(s - 1 for s in SUFFIXES))


def test_samples_are_read_once_more_to_be_compared() -> None:
    made = GenerationProtocol(prefix=20, continuation=80, limit=10, test_blocks=4, sampling=Sampling(samples=5))
    assert generation_forwarded(made, None, None) == Forwarded(10, 10 * 100 * 11 + 4 * 256)
    assert generation_forwarded(replace(made, test_blocks=None), None, 500) == Forwarded(10, 10 * 100 * 11 + 500)
    assert generation_forwarded(replace(made, limit=None), None, 500).tokens is None
    assert oracle_forwarded(OracleProtocol(texts=10, length=20, prefix=2, continuation=4)) == Forwarded(10, 10 * 92)
