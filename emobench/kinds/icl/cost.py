"""How many tokens an evaluation of kind `icl` reads: counted on some of its data, or estimated by mean lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emobench.data.labelled import Example, LabelledData, LabelledSource
from emobench.kinds.cost import Cost, least
from emobench.kinds.icl.examples import pool_of, questions_of
from emobench.kinds.icl.prompts import Draft, make_prompts
from emobench.kinds.icl.rules import FIELD, LABEL, IclProtocol
from emobench.models.model import Model

SAMPLE = 32
"""Prompts that are tokenized to estimate the others'; their shots are spread over the pool, not retrieved."""


def icl_cost(rules: IclProtocol, source: LabelledSource, data: LabelledData | None, model: Model) -> Cost:
    """Return the tokens of one forward pass an example over its shared prefix and all labels.

    That is prefix + the sum over labels of (suffix - 1); each label's whole prompt where the engine shares nothing.
    """
    if data is not None:
        examples = len(questions_of(rules, data))
    else:
        known = rules.held_out or source.test.rows
        examples = None if known is None else least(known, rules.limit)
    if data is not None and model.is_local:
        counts = _sampled(rules, data, model.tokenizer, model.context)
        per_example = sum(counts) / len(counts)
    else:
        per_example = _by_bytes(rules, source, data, model)
    if examples is None or per_example is None:
        return Cost(examples, None)
    passes = 1 + len(rules.content_free) if rules.scorer == "calibrated" else 1
    return Cost(examples, round(examples * passes * per_example))


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
    drafts = []
    for example in _spread(answered, SAMPLE):
        shots = _spread(groups.get(example.group, []), rules.shots)
        drafts.append(Draft(example=example, shots=tuple(shots)))
    limit = least(rules.max_length, context)
    prompts = make_prompts(drafts, tokenizer, rules, limit, task=data.name)
    counts = []
    for prompt in prompts:
        shared = prompt.shared
        counts.append(_tokens(rules, shared, [len(ids) - shared for ids in prompt.tokens]))
    return counts


def _spread(examples: Sequence[Example], count: int) -> list[Example]:
    """Return so many examples at equal distances, all where there are fewer."""
    if len(examples) <= count:
        return list(examples)
    return [examples[place * len(examples) // count] for place in range(count)]


def _by_bytes(rules: IclProtocol, source: LabelledSource, data: LabelledData | None, model: Model) -> float | None:
    """Return the tokens of an example's prompts from mean bytes of shots and questions, if these are known."""
    asked = source.pool if rules.held_out else source.test
    shot, query = source.pool.text_bytes, asked.text_bytes
    if data is not None:
        shot, query = _mean_bytes(rules, pool_of(rules, data)), _mean_bytes(rules, questions_of(rules, data))
    if shot is None or query is None:
        return None
    before, _, after = rules.template.partition(f"{{{LABEL}}}")
    fixed = len(FIELD.sub("", before).encode())
    labels = [len((text + after).encode()) for text in rules.labels.values()]
    one_shot = fixed + shot + sum(labels) / len(labels) + len(rules.separator)
    prefix = len(FIELD.sub("", rules.header).encode()) + rules.shots * one_shot + fixed + query
    limits = [n for n in (rules.max_length, model.context) if n is not None]
    tokens = min([prefix / model.bytes_per_token, *limits])
    return _tokens(rules, tokens, [size / model.bytes_per_token for size in labels])


def _mean_bytes(rules: IclProtocol, examples: Sequence[Example]) -> float:
    names = [name for name in FIELD.findall(rules.template) if name != LABEL]
    some = _spread(examples, 1000)
    size = 0
    for example in some:
        size += sum(len(example.fields[name].encode()) for name in names)
    return size / max(len(some), 1)
