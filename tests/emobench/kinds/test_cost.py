"""Tokens that an evaluation forwards, against a count by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from emobench.data.labelled import Example, LabelledData, LabelledSource, LabelledSplit
from emobench.inference.decoding.request import Sampling
from emobench.kinds.cost import Cost, SplitSize
from emobench.kinds.generation.evaluate import generation_cost
from emobench.kinds.generation.rules import GenerationProtocol
from emobench.kinds.icl import evaluate as icl
from emobench.kinds.icl.rules import IclProtocol
from emobench.kinds.oracle import evaluate as oracle
from emobench.kinds.oracle.kind import OracleProtocol
from emobench.kinds.shared_rules import CoherenceRule, MauveRule, OracleRule
from emobench.kinds.surrogate.evaluate import surrogate_cost
from emobench.kinds.surrogate.kind import SurrogateProtocol
from emobench.runs.planning.ingredients import base_model
from emobench.runs.planning.request import Request

SOURCE = LabelledSource(
    name="made",
    classes=("a", "b"),
    repo="some/where",
    pool=LabelledSplit(split="train", rows=100, text_bytes=20),
    test=LabelledSplit(split="test", rows=50, text_bytes=10),
)


def missing_model(bytes_per_token: float, context: int | None = None) -> Any:
    """A model whose files are not on this machine."""
    return SimpleNamespace(is_local=False, context=context, bytes_per_token=bytes_per_token)


A_BYTE = missing_model(1.0)
# Of one byte a token: a shot is `"` + 20 + `" is ` + label + `.` + separator.
FIXED, LABELS, TAIL = len('"" is '), {"a": "good", "b": "bad"}, 1
SHOT = FIXED + 20 + (4 + 3) / 2 + TAIL + 1
PREFIX = 8 * SHOT + FIXED + 10
SUFFIXES = (4 + TAIL, 3 + TAIL)


def rules(**changes: Any) -> IclProtocol:
    return IclProtocol(**{"template": '"{text}" is {label}.', "labels": LABELS, **changes})


def task_of(rules: Any, source: LabelledSource | None = None) -> Any:
    return SimpleNamespace(dataset=source, protocol_as=lambda cls: rules)


def icl_cost(rules: IclProtocol, source: LabelledSource, data: LabelledData | None, model: Any) -> Cost:
    return icl.cost(task_of(rules, source), data, model)


def per_example(**changes: Any) -> float:
    found = icl_cost(rules(**changes), SOURCE, None, A_BYTE)
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
    short = icl_cost(rules(limit=1), SOURCE, None, missing_model(1.0, context=100))
    assert short.tokens == 100 + sum(s - 1 for s in SUFFIXES)
    halved = icl_cost(rules(), SOURCE, None, missing_model(2.0))
    assert halved == Cost(50, round(50 * (PREFIX / 2 + sum(s / 2 - 1 for s in SUFFIXES))))


def test_what_is_answered_and_what_nobody_knows() -> None:
    assert icl_cost(rules(limit=7), SOURCE, None, A_BYTE).examples == 7
    assert icl_cost(rules(held_out=20), SOURCE, None, A_BYTE).examples == 20
    unknown = replace(SOURCE, test=LabelledSplit(split="test", rows=50))
    assert icl_cost(rules(), unknown, None, A_BYTE) == Cost(50, None)
    assert icl_cost(rules(), replace(SOURCE, test=LabelledSplit(split="test")), None, A_BYTE).examples is None


def test_data_that_is_here_is_counted(byte_model: Path) -> None:
    """Texts of 20 and 10 bytes, so that any shots give the same number; the byte tokenizer adds nothing."""

    def made(split: str, size: int, count: int) -> list[Example]:
        return [Example(f"{split}-{i}", {"text": f"{i:0{size}d}"}, "a") for i in range(count)]

    data = LabelledData("made", made("train", 20, 100), made("test", 10, 50), {})
    model = base_model(str(byte_model), Request(suite="nlu", offline=True))
    expected = round(50 * (PREFIX + sum(s - 1 for s in SUFFIXES)))
    assert icl_cost(rules(), SOURCE, data, model) == Cost(50, expected)
    assert icl_cost(rules(limit=5), SOURCE, data, model) == Cost(5, expected // 10)
    # Without a tokenizer, by the catalog's bytes of a token.
    assert icl_cost(rules(limit=5), SOURCE, data, A_BYTE).tokens == 5 * (PREFIX + sum(s - 1 for s in SUFFIXES))


def rule(**changes: Any) -> GenerationProtocol:
    given = {"prefix": 20, "continuation": 80, "limit": 10, "test_blocks": 4, "sampling": Sampling(samples=5)}
    return GenerationProtocol(**{**given, **changes})


def test_a_prefix_is_read_once_a_prompt_and_each_sample_once_by_each_model_beside() -> None:
    found = generation_cost(rule(), SplitSize(None, None))
    assert (found.examples, found.tokens) == (10, 10 * (20 + 5 * 80) + 4 * 256)
    assert found.auxiliary_tokens == {"featurizer": 10 * 6 * 100}  # and the human texts
    assert found.steps == 80  # one batch: 10 * 5 * 100 tokens
    beside = {"oracle": OracleRule(model="gpt2-large"), "coherence": CoherenceRule(encoder="all-mpnet-base-v2")}
    assert generation_cost(rule(**beside), SplitSize(None, None)).auxiliary_tokens == {
        "featurizer": 10 * 6 * 100,
        "oracle": 10 * 5 * 100,
        "coherence": 10 * (20 + 5 * 80),
    }
    short = generation_cost(rule(mauve=MauveRule(max_length=64)), SplitSize(None, None))
    assert short.auxiliary_tokens["featurizer"] == 10 * 6 * 64


def test_there_are_no_more_prompts_than_rows_and_than_tokens_for_them() -> None:
    def prompts(rows: int | None, tokens: int | None, **changes: Any) -> int | None:
        return generation_cost(rule(limit=None, **changes), SplitSize(rows, tokens)).examples

    assert prompts(7, 10_000) == 7
    assert prompts(None, 10_000) == 100
    assert prompts(1000, 10_000) == 100
    assert prompts(1000, 10_000, margin=25, unit="words") == 62  # of 125 words, each of 1.3 tokens
    found = generation_cost(rule(limit=None, test_blocks=None), SplitSize(1000, 500_000))
    assert found.tokens == 1000 * (20 + 5 * 80) + 500_000
    assert found.steps == 80 * 31  # 1000 * 5 * 100 tokens in batches of 16,384
    assert generation_cost(rule(limit=None), SplitSize(None, None)) == Cost(None, None)


def test_words_are_tokens_and_the_official_code_samples_one_more() -> None:
    official = rule(unit="words", sampling=Sampling(samples=5, extra_tokens=1))
    assert generation_cost(official, SplitSize(None, None)).tokens == 10 * (26 + 5 * 81) + 4 * 256


def test_a_surrogate_reads_what_the_model_reads() -> None:
    rules = SurrogateProtocol(max_tokens=500)
    assert surrogate_cost(rules, SplitSize(10, 1000)) == Cost(10, 1000, auxiliary_tokens={"surrogate": 1000})
    assert surrogate_cost(rules, SplitSize(10, 100_000)).tokens == 5000
    assert surrogate_cost(replace(rules, limit=3), SplitSize(10, 100_000)).tokens == 1500
    assert surrogate_cost(rules, SplitSize(None, None)) == Cost(None, None)


def test_samples_of_the_language_are_compared_with_as_many_texts() -> None:
    rules = OracleProtocol(texts=10, length=20, prefix=2, continuation=4)
    assert oracle.cost(task_of(rules), None, A_BYTE) == Cost(10, 10 * 92)
