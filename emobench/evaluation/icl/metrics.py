"""Answers and metrics from the losses of prompts."""

from __future__ import annotations

from collections.abc import Sequence

from emobench.evaluation.icl.samples import Sample
from emobench.evaluation.kinds import Scored
from emobench.tasks.icl import IclProtocol
from emobench.tasks.scores import Score


def label_scores(rules: IclProtocol, sample: Sample) -> list[float]:
    """Return the loss of each label by the protocol's rule, in the order of `ties`; the lowest answers."""
    match rules.scorer:
        case "prompt":
            return [nats / tokens for nats, tokens in zip(sample.prompt_nats, sample.prompt_tokens, strict=True)]
        case "label":
            return list(sample.label_nats)
        case "label_token":
            return [nats / tokens for nats, tokens in zip(sample.label_nats, sample.label_tokens, strict=True)]
        case "label_byte":
            return [nats / size for nats, size in zip(sample.label_nats, sample.label_bytes, strict=True)]
        case "calibrated":
            return [nats - free for nats, free in zip(sample.label_nats, sample.content_free_nats, strict=True)]


def icl_scores(rules: IclProtocol, samples: Sequence[Sample]) -> Scored:
    """Return the metrics of a task."""
    found = Scored()
    right = {}
    for sample in samples:
        losses = label_scores(rules, sample)
        right[sample.id] = (float(rules.ties[losses.index(min(losses))] == sample.label), 1.0)
    value = sum(v for v, _ in right.values()) / len(right)
    found.scores["accuracy"] = Score(value=value, n=len(right), higher_is_better=True, unit="fraction", examples=right)
    return found
