"""From the losses of prompts to answers, and from answers to metrics and their table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from emobench.errors import MetricError
from emobench.kinds.icl.losses import Sample
from emobench.kinds.icl.metrics.accuracy import accuracy, group_accuracy
from emobench.kinds.icl.metrics.calibration import calibration_error
from emobench.kinds.icl.metrics.macro_f1 import class_scores, confusion_matrix, macro_f1
from emobench.kinds.icl.metrics.margin import margin, margin_of
from emobench.kinds.icl.rules import IclProtocol, Scorer
from emobench.kinds.interface import Scored
from emobench.tasks.scores import Score

METRICS = ("accuracy", "macro_f1", "margin", "ece")
GROUP_ACCURACY = "group_accuracy"
"""One more, of data whose examples are in groups, such as MMLU's subjects."""
TABLE = "answers.json"
UNITS: dict[Scorer, str] = {
    "prompt": "nats/token",
    "label": "nats",
    "label_token": "nats/token",
    "label_byte": "nats/byte",
    "calibrated": "nats",
}
"""Of a rule's losses, and so of the margin."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to one test example."""

    id: str
    right: str
    answer: str
    margin: float
    """In the rule's unit (UNITS); 0 where labels tie, and the protocol's `ties` decide."""
    confidence: float
    """See `confidence`."""
    dropped: int
    """Shots left out because the prompt was too long."""
    cut: int = 0
    """Tokens that the end of the prompt lost because it was too long."""
    group: str = ""
    """The group of the example, empty where the data have none."""


def label_losses(rules: IclProtocol, sample: Sample) -> list[float]:
    """Return the loss of each label by the protocol's rule, in the order of `ties`; the lowest answers.

    Raises MetricError, naming the example, for a loss that is not finite: the lowest of NaN is any.
    """
    match rules.scorer:
        case "prompt":
            found = [nats / tokens for nats, tokens in zip(sample.prompt_nats, sample.prompt_tokens, strict=True)]
        case "label":
            found = list(sample.label_nats)
        case "label_token":
            found = [nats / tokens for nats, tokens in zip(sample.label_nats, sample.label_tokens, strict=True)]
        case "label_byte":
            found = [nats / size for nats, size in zip(sample.label_nats, sample.label_bytes, strict=True)]
        case "calibrated":
            found = _calibrated(sample)
    for name, loss in zip(rules.ties, found, strict=True):
        if not math.isfinite(loss):
            raise MetricError(
                f"The loss of example {sample.id} with the label '{name}' is {loss}; the model's numbers overflow. "
                "Try --dtype float32."
            )
    return found


def confidence(rules: IclProtocol, sample: Sample, place: int) -> float:
    """Return the posterior of a label: softmax over the labels of minus their summed losses.

    The sums are of whole prompts for the rule `prompt`, and of the labels' own tokens for the others, less the
    content-free ones for `calibrated`. A prompt's sum is its label's plus what the labels share, so that both give
    the same posterior, but for tokens in which label and prompt meet. A rule that divides by a length may answer
    another label than the likeliest.
    """
    match rules.scorer:
        case "prompt":
            nats = list(sample.prompt_nats)
        case "calibrated":
            nats = _calibrated(sample)
        case _:
            nats = list(sample.label_nats)
    lowest = min(nats)
    return math.exp(lowest - nats[place]) / sum(math.exp(lowest - value) for value in nats)


def answers(rules: IclProtocol, samples: Sequence[Sample], groups: Mapping[str, str] | None = None) -> list[Answer]:
    """Return the answer to each example; of equal losses the first label wins. Raises MetricError (`label_losses`).

    `groups` names the group of each example, by its id, where the data have groups.
    """
    found = []
    for sample in samples:
        losses = label_losses(rules, sample)
        place = losses.index(min(losses))
        found.append(
            Answer(
                id=sample.id,
                right=sample.label,
                answer=rules.ties[place],
                margin=margin_of(losses),
                confidence=confidence(rules, sample, place),
                dropped=sample.dropped,
                cut=sample.cut,
                group=(groups or {}).get(sample.id, ""),
            )
        )
    return found


def icl_scores(rules: IclProtocol, samples: Sequence[Sample], groups: Mapping[str, str] | None = None) -> Scored:
    """Return the metrics of a task, flagged with what weakens them, and the table of its answers.

    `groups` names the group of each example, by its id, where the data have groups.
    """
    scored = Scored()
    names = (*METRICS, GROUP_ACCURACY) if groups else METRICS
    try:
        found = answers(rules, samples, groups)
    except MetricError as error:
        scored.missing.update(dict.fromkeys(names, str(error)))
        return scored
    right, given = [a.right for a in found], [a.answer for a in found]
    hits = {a.id: a.right == a.answer for a in found}
    scores = [
        accuracy(hits),
        macro_f1(right, given, rules.ties),
        margin({a.id: a.margin for a in found}, UNITS[rules.scorer]),
        calibration_error([a.confidence for a in found], list(hits.values())),
    ]
    if groups:
        scores.append(group_accuracy(hits, groups))
    scored.scores.update(zip(names, (_flagged(score, found) for score in scores), strict=True))
    scored.files[TABLE] = json.dumps(answers_table(rules.ties, UNITS[rules.scorer], found), ensure_ascii=False) + "\n"
    return scored


def answers_table(classes: Sequence[str], unit: str, found: Sequence[Answer]) -> dict[str, Any]:
    """Return what `emobench answers` shows: counts, scores by class and by group, confusions (right x answered)."""
    right, given = [a.right for a in found], [a.answer for a in found]
    return {
        "classes": list(classes),
        "unit": unit,
        "tied": sum(a.margin == 0 for a in found),
        "shortened": sum(a.dropped > 0 for a in found),
        "dropped_shots": sum(a.dropped for a in found),
        "cut": sum(a.cut > 0 for a in found),
        "per_class": [asdict(scores) for scores in class_scores(right, given, classes)],
        "confusion": confusion_matrix(right, given, classes),
        "per_group": _by_group(found),
        "examples": [asdict(answer) for answer in found],
    }


def pooled_table(tables: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one table of the answers of several runs to one task: their counts are sums over the runs."""
    examples = [Answer(**row) for table in tables for row in table["examples"]]
    return answers_table(tables[0]["classes"], tables[0]["unit"], examples)


def _by_group(found: Sequence[Answer]) -> list[dict[str, Any]]:
    """Return the examples and the accuracy of each group, in the order of their first examples; none without groups."""
    hits: dict[str, list[bool]] = {}
    for answer in found:
        hits.setdefault(answer.group, []).append(answer.right == answer.answer)
    rows = [{"name": name, "n": len(own), "accuracy": sum(own) / len(own)} for name, own in hits.items()]
    return [] if set(hits) == {""} else rows


def _flagged(score: Score, found: Sequence[Answer]) -> Score:
    tied, shortened = sum(a.margin == 0 for a in found), sum(a.dropped > 0 for a in found)
    cut = sum(a.cut > 0 for a in found)
    flags = [f"{cut} of {len(found)} prompts cut at their end, to make them fit"] if cut else []
    if tied:
        flags.append(f"{tied} of {len(found)} answers are ties, decided by the order of the labels")
    if shortened:
        lost = sum(a.dropped for a in found)
        shots, fit = "shot" if lost == 1 else "shots", "it" if shortened == 1 else "them"
        flags.append(f"{lost} {shots} left out of {shortened} of {len(found)} prompts, to make {fit} fit")
    return replace(score, flags=(*score.flags, *flags))


def _calibrated(sample: Sample) -> list[float]:
    return [nats - free for nats, free in zip(sample.label_nats, sample.content_free_nats, strict=True)]
