"""How many tokens an evaluation forwards, through which model: counted on some of the data where it is here, else from
mean lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emobench.data.labelled import Example, LabelledData, LabelledSource
from emobench.kinds.icl.examples import pool_of, questions_of
from emobench.pipeline.planning.base_model import BaseModel
from emobench.tasks.generation import GenerationProtocol, OracleProtocol, SurrogateProtocol
from emobench.tasks.icl import FIELD, LABEL, IclProtocol

SAMPLE = 32
"""Prompts that are tokenized to estimate the others'; their shots are spread over the pool, not retrieved."""
TOKENS_PER_WORD = 1.3
BATCH = 16384
"""Tokens of a batch of samples, prefixes included."""


@dataclass(frozen=True)
class Forwarded:
    """The examples that are answered and the tokens that go through the model; None where nobody knows."""

    examples: int | None
    tokens: int | None
    steps: int = 0
    """Of sampling: one after the other, each a token of a whole batch."""
    beside: Mapping[str, int] = field(default_factory=dict)
    """Tokens that go through each model beside the evaluated one, by its part."""


@dataclass(frozen=True)
class SplitSize:
    """The rows and tokens of a split, as far as they are known."""

    rows: int | None
    tokens: int | None


def icl_forwarded(
    rules: IclProtocol,
    source: LabelledSource,
    data: LabelledData | None,
    model: BaseModel | None,
    bytes_per_token: float,
    context: int | None = None,
) -> Forwarded:
    """Return the tokens of one forward pass an example over its shared prefix and all labels.

    That is prefix + the sum over labels of (suffix - 1); each label's whole prompt where the engine shares nothing.
    """
    if data is not None and model is not None:
        counts = _sampled(rules, data, model.tokenizer, model.context)
        per_example = sum(counts) / len(counts)
    else:
        found = _by_bytes(rules, source, data, bytes_per_token, context)
        if found is None:
            return Forwarded(_examples(rules, source, data), None)
        per_example = _tokens(rules, *found)
    examples = _examples(rules, source, data)
    if rules.scorer == "calibrated":
        per_example *= 1 + len(rules.content_free)
    return Forwarded(examples, None if examples is None else round(examples * per_example))


def generation_forwarded(rules: GenerationProtocol, split: SplitSize) -> Forwarded:
    """Return the tokens of prefixes (once a prompt), of samples and of PPL_test's text, at most.

    What is sampled is read once more by the featurizer, by the oracle and by the sentence encoder, where there are any.
    The human texts, which are read once for all runs, count for each.
    """
    words = TOKENS_PER_WORD if rules.unit == "words" else 1
    # No more texts are long enough than the split has tokens for.
    enough = None if split.tokens is None else max(round(split.tokens / (rules.shortest * words)), 1)
    prompts = _least(rules.limit, split.rows, enough)
    read = _least(None if rules.test_blocks is None else rules.test_blocks * rules.max_length, split.tokens)
    if prompts is None or read is None:
        return Forwarded(prompts, None)
    prefix, new, samples = (
        rules.prefix * words,
        rules.continuation + rules.sampling.extra_tokens,
        rules.sampling.samples,
    )
    text = prefix + new
    batches = max(-(-prompts * samples * text // BATCH), 1)
    beside = {"featurizer": prompts * (samples + 1) * min(text, rules.mauve.max_length)}
    if rules.oracle.model is not None:
        beside["oracle"] = prompts * samples * text
    if rules.coherence.encoder is not None:
        beside["coherence"] = prompts * (prefix + samples * new)
    return Forwarded(
        prompts,
        round(prompts * (prefix + samples * new) + read),
        steps=round(batches * new),
        beside={part: round(tokens) for part, tokens in beside.items()},
    )


def surrogate_forwarded(rules: SurrogateProtocol, split: SplitSize) -> Forwarded:
    """Return the tokens of the texts that are read by both models, at most."""
    texts = _least(rules.limit, split.rows)
    tokens = _least(split.tokens, None if texts is None else texts * rules.max_tokens)
    return Forwarded(texts, tokens, beside={} if tokens is None else {"surrogate": tokens})


def oracle_forwarded(rules: OracleProtocol) -> Forwarded:
    """Return the tokens of samples and continuations, and of their comparison with as many texts of the language."""
    texts = min(rules.texts, rules.limit or rules.texts)
    return Forwarded(texts, round(texts * (4 * rules.length + 2 * (rules.prefix + rules.continuation))))


def _least(*numbers: int | None) -> int | None:
    """Return the least of what is known."""
    return min((number for number in numbers if number is not None), default=None)


def _examples(rules: IclProtocol, source: LabelledSource, data: LabelledData | None) -> int | None:
    if data is not None:
        return len(questions_of(rules, data))
    there = rules.held_out or source.test.rows
    return there if there is None or rules.limit is None else min(there, rules.limit)


def _tokens(rules: IclProtocol, prefix: float, suffixes: Sequence[float]) -> float:
    if rules.engine in ("plain", "openicl"):
        return sum(prefix + suffix for suffix in suffixes)
    return prefix + sum(max(suffix - 1, 0) for suffix in suffixes)


def _sampled(rules: IclProtocol, data: LabelledData, tokenizer: Any, context: int | None) -> list[float]:
    """Return the tokens of some examples' prompts, by the tokenizer."""
    from emobench.kinds.icl.prompts.prompts import Draft, make_prompts

    pool, answered = pool_of(rules, data), questions_of(rules, data)
    groups: dict[str, list[Example]] = {}
    for example in pool:
        groups.setdefault(example.group, []).append(example)
    drafts = [
        Draft(example=example, shots=tuple(_spread(groups.get(example.group, []), rules.shots)))
        for example in _spread(answered, SAMPLE)
    ]
    limit = min((n for n in (rules.max_length, context) if n is not None), default=None)
    prompts = make_prompts(drafts, tokenizer, rules, limit, task=data.name)
    return [_tokens(rules, p.shared, [len(ids) - p.shared for ids in p.tokens]) for p in prompts]


def _spread(examples: Sequence[Example], count: int) -> list[Example]:
    """Return so many examples at equal distances, all where there are fewer."""
    if len(examples) <= count:
        return list(examples)
    return [examples[place * len(examples) // count] for place in range(count)]


def _by_bytes(
    rules: IclProtocol,
    source: LabelledSource,
    data: LabelledData | None,
    bytes_per_token: float,
    context: int | None,
) -> tuple[float, list[float]] | None:
    """Return the prefix's and the labels' tokens from mean bytes; None where no mean is known."""
    if data is not None:
        shot, query = (_mean_bytes(rules, examples) for examples in (pool_of(rules, data), questions_of(rules, data)))
    elif source.pool.text_bytes is None or source.test.text_bytes is None:
        return None
    else:
        shot, query = float(source.pool.text_bytes), float(source.test.text_bytes)
        query = shot if rules.held_out else query
    before, _, after = rules.template.partition(f"{{{LABEL}}}")
    fixed = len(FIELD.sub("", before).encode())
    labels = [len((text + after).encode()) for text in rules.labels.values()]
    one_shot = fixed + shot + sum(labels) / len(labels) + len(rules.separator)
    prefix = len(FIELD.sub("", rules.header).encode()) + rules.shots * one_shot + fixed + query
    limits = [n for n in (rules.max_length, context) if n is not None]
    return min([prefix / bytes_per_token, *limits]), [size / bytes_per_token for size in labels]


def _mean_bytes(rules: IclProtocol, examples: Sequence[Example]) -> float:
    names = [name for name in FIELD.findall(rules.template) if name != LABEL]
    some = _spread(examples, 1000)
    return sum(len(e.fields[name].encode()) for e in some for name in names) / max(len(some), 1)
