"""The rule that decides an answer: from the losses of prompts to answers, and to their metrics and table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from emobench.core.errors import DataError, MetricError
from emobench.kinds.icl.losses import ExampleLosses, read_samples
from emobench.kinds.icl.metrics import (
    accuracy,
    calibration_error,
    class_scores,
    confusion_matrix,
    group_accuracy,
    macro_f1,
    margin,
    margin_of,
)
from emobench.kinds.icl.rules import IclProtocol, Scorer
from emobench.kinds.interface import Scored

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


def label_losses(rules: IclProtocol, example: ExampleLosses) -> list[float]:
    """Return the loss of each label by the protocol's rule, in the order of `ties`; the lowest answers.

    Raises MetricError, naming the example, for a loss that is not finite: the lowest of NaN is any.
    """
    match rules.scorer:
        case "prompt":
            nats, lengths = example.prompt_nats, example.prompt_tokens
        case "label_token":
            nats, lengths = example.label_nats, example.label_tokens
        case "label_byte":
            nats, lengths = example.label_nats, example.label_bytes
        case "label" | "calibrated":
            nats = _summed_losses(rules, example)
            lengths = (1,) * len(nats)
    losses = [total / length for total, length in zip(nats, lengths, strict=True)]
    for name, loss in zip(rules.ties, losses, strict=True):
        if not math.isfinite(loss):
            raise MetricError(
                f"The loss of example {example.id} with the label '{name}' is {loss}; the model's numbers overflow. "
                "Try --dtype float32."
            )
    return losses


def confidence(rules: IclProtocol, example: ExampleLosses, place: int) -> float:
    """Return the posterior of a label: softmax over the labels of minus their summed losses.

    The sums are of whole prompts for the rule `prompt`, and of the labels' own tokens for the others, less the
    content-free ones for `calibrated`. A prompt's sum is its label's plus what the labels share, so that both give
    the same posterior, but for tokens in which label and prompt meet. A rule that divides by a length may answer
    another label than the likeliest.
    """
    nats = _summed_losses(rules, example)
    lowest = min(nats)
    return math.exp(lowest - nats[place]) / sum(math.exp(lowest - value) for value in nats)


def _summed_losses(rules: IclProtocol, example: ExampleLosses) -> Sequence[float]:
    if rules.scorer == "calibrated":
        return [nats - free for nats, free in zip(example.label_nats, example.content_free_nats, strict=True)]
    return example.prompt_nats if rules.scorer == "prompt" else example.label_nats


def answers(
    rules: IclProtocol, examples: Sequence[ExampleLosses], groups: Mapping[str, str] | None = None
) -> list[Answer]:
    """Return the answer to each example; of equal losses the first label wins. Raises MetricError (`label_losses`).

    `groups` names the group of each example, by its id, where the data have groups.
    """

    given, group_of = [], groups or {}
    for example in examples:
        losses = label_losses(rules, example)
        place = losses.index(min(losses))
        given.append(
            Answer(
                id=example.id,
                right=example.label,
                answer=rules.ties[place],
                margin=margin_of(losses),
                confidence=confidence(rules, example, place),
                dropped=example.dropped,
                cut=example.cut,
                group=group_of.get(example.id, ""),
            )
        )
    return given


def icl_scores(
    rules: IclProtocol, examples: Sequence[ExampleLosses], groups: Mapping[str, str] | None = None
) -> Scored:
    """Return the metrics of a task, flagged with what weakens them, and the table of its answers.

    `groups` names the group of each example, by its id, where the data have groups.
    """
    names = (*METRICS, GROUP_ACCURACY) if groups else METRICS
    try:
        given = answers(rules, examples, groups)
    except MetricError as error:
        return Scored(missing=dict.fromkeys(names, str(error)))
    hits = {a.id: a.right == a.answer for a in given}
    margins = {a.id: a.margin for a in given}
    ids, unit = list(hits), UNITS[rules.scorer]
    right, answered, confidences = [a.right for a in given], [a.answer for a in given], [a.confidence for a in given]
    scores = {
        "accuracy": accuracy(hits),
        "macro_f1": macro_f1(right, answered, rules.ties, ids),
        "margin": margin(margins, unit),
        "ece": calibration_error(confidences, list(hits.values()), ids=ids),
    }
    if groups:
        scores[GROUP_ACCURACY] = group_accuracy(hits, groups)
    table = answers_table(rules.ties, unit, given)
    flags = _flags(table, len(given))
    for name, score in scores.items():
        scores[name] = replace(score, flags=(*score.flags, *flags))
    return Scored(scores, files={TABLE: json.dumps(table, ensure_ascii=False) + "\n"})


def answers_table(classes: Sequence[str], unit: str, given: Sequence[Answer]) -> dict[str, Any]:
    """Return what `emobench answers` shows: counts, scores by class and by group, confusions (right x answered)."""
    right, answered = [a.right for a in given], [a.answer for a in given]
    tied = shortened = dropped = cut = 0
    for answer in given:
        tied += answer.margin == 0
        shortened += answer.dropped > 0
        dropped += answer.dropped
        cut += answer.cut > 0
    return {
        "classes": list(classes),
        "unit": unit,
        "tied": tied,
        "shortened": shortened,
        "dropped_shots": dropped,
        "cut": cut,
        "per_class": list(map(asdict, class_scores(right, answered, classes))),
        "confusion": confusion_matrix(right, answered, classes),
        "per_group": _by_group(given),
        "examples": list(map(asdict, given)),
    }


def table_of(rules: IclProtocol, path: Path) -> dict[str, Any]:
    """Return the table of the answers in a file of losses, which tells no groups.

    Raises DataError for a file of another form, MetricError for losses that are not finite (`label_losses`).
    """
    try:
        given = answers(rules, read_samples(path))
    except (ArithmeticError, ValueError) as error:
        raise DataError(f"{path}: its losses are not one of each label, or of no tokens ({error}).") from None
    return answers_table(rules.ties, UNITS[rules.scorer], given)


def pooled_table(tables: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one table of the answers of several runs to one task: their counts are sums over the runs."""
    examples = []
    for table in tables:
        examples += [Answer(**row) for row in table["examples"]]
    return answers_table(tables[0]["classes"], tables[0]["unit"], examples)


def _by_group(given: Sequence[Answer]) -> list[dict[str, Any]]:
    """Return the examples and the accuracy of each group, in the order of their first examples; none without groups."""
    hits: dict[str, list[bool]] = {}
    for answer in given:
        hits.setdefault(answer.group, []).append(answer.right == answer.answer)
    if set(hits) == {""}:
        return []
    return [{"name": name, "n": len(own), "accuracy": sum(own) / len(own)} for name, own in hits.items()]


def _flags(table: Mapping[str, Any], n: int) -> list[str]:
    """Return the warnings of the scores, by the counts of the table."""
    flags = []
    if cut := table["cut"]:
        flags.append(f"{cut} of {n} prompts cut at their end, to make them fit")
    if tied := table["tied"]:
        flags.append(f"{tied} of {n} answers are ties, decided by the order of the labels")
    if shortened := table["shortened"]:
        lost = table["dropped_shots"]
        shots = "1 shot" if lost == 1 else f"{lost} shots"
        fit = "it" if shortened == 1 else "them"
        flags.append(f"{shots} left out of {shortened} of {n} prompts, to make {fit} fit")
    return flags
