"""How many tokens an evaluation of kind `icl` reads: counted on some of its data, or estimated by mean lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emobench.data.labelled import Example, LabelledData, LabelledSource
from emobench.kinds.auxiliary import AuxiliaryModel
from emobench.kinds.cost import Cost, Embedding, EvaluatedModel
from emobench.kinds.icl.examples import pool_of, questions_of
from emobench.kinds.icl.prompts import Draft, make_prompts
from emobench.kinds.icl.rules import FIELD, LABEL, IclProtocol

SAMPLE = 32
"""Prompts that are tokenized to estimate the others'; their shots are spread over the pool, not retrieved."""
BYTES_PER_TOKEN = 4.0
"""Of a sentence encoder."""


def icl_cost(rules: IclProtocol, source: LabelledSource, data: LabelledData | None, model: EvaluatedModel) -> Cost:
    """Return the tokens of one forward pass an example over its shared prefix and all labels.

    That is prefix + the sum over labels of (suffix - 1); each label's whole prompt where the engine shares nothing.
    """
    if data is not None and model.base is not None:
        counts = _sampled(rules, data, model.base.tokenizer, model.base.context)
        per_example = sum(counts) / len(counts)
    else:
        found = _by_bytes(rules, source, data, model.bytes_per_token, model.context)
        if found is None:
            return Cost(_examples(rules, source, data), None)
        per_example = _tokens(rules, *found)
    examples = _examples(rules, source, data)
    if rules.scorer == "calibrated":
        per_example *= 1 + len(rules.content_free)
    return Cost(examples, None if examples is None else round(examples * per_example))


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
    rules: IclProtocol, source: LabelledSource, data: LabelledData | None, bytes_per_token: float, context: int | None
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


def embedding_of(source: LabelledSource, data: LabelledData | None, encoder: AuxiliaryModel) -> Embedding:
    """Return the texts of pool and test split, which the encoder reads once for all rows."""
    sides = [(source.pool, None if data is None else data.pool), (source.test, None if data is None else data.test)]
    texts = [part.rows if read is None else len(read) for part, read in sides]
    known = [count for count in texts if count is not None]
    sizes = [part.text_bytes for part, _ in sides]
    tokens = None
    if known == texts and all(sizes):
        tokens = round(sum(n * (size or 0) for n, size in zip(known, sizes, strict=True)) / BYTES_PER_TOKEN)
    return Embedding(encoder, "pool and test", "pools and test splits", sum(known) if known == texts else None, tokens)
