"""Losses of prompts on disk, the rule that makes answers of them, and the answers' metrics and table."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from emobench.core.errors import MetricError
from emobench.kinds.icl.rules import IclProtocol, Scorer
from emobench.kinds.interface import Scored
from emobench.metrics.by_prompt import pseudo_values
from emobench.tasks.scores import Measure, Score

BINS = 15
"""Of the expected calibration error."""
MEASURES = {
    "accuracy": Measure(
        True, "fraction", title="Accuracy", definition="The share of examples that the model answers correctly."
    ),
    "group_accuracy": Measure(
        True,
        "fraction",
        secondary=True,
        title="Mean accuracy of groups",
        definition="The mean over groups of examples, such as subjects, of their accuracy.",
    ),
    "macro_f1": Measure(
        True,
        "fraction",
        secondary=True,
        title="Macro F1",
        definition="The mean over classes of F1, the harmonic mean of precision and recall.",
    ),
    "margin": Measure(
        None,
        "loss",
        secondary=True,
        title="Margin",
        definition="The second lowest loss of an example's answers minus the lowest one: how close "
        "another answer is. No better direction.",
    ),
    "ece": Measure(
        False,
        "fraction",
        secondary=True,
        title="Calibration error",
        definition="The mean distance of confidence and accuracy over 15 bins of confidence.",
        source="Guo et al., ICML 2017",
    ),
}
"""The unit of a margin in an entry is that of the task's losses."""
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
class ExampleLosses:
    """The losses of one test example's prompts, one of each label in the order of the protocol's `ties`.

    Losses are sums in nats. A label's own tokens go from the first one of its text to the end of the prompt.
    """

    id: str
    label: str
    """The class that is right."""
    shots: tuple[str, ...]
    dropped: int
    """Shots left out because the prompt was too long."""
    prompt_nats: tuple[float, ...]
    """Empty where the protocol's `scorer` needs the labels' losses alone."""
    prompt_tokens: tuple[int, ...]
    """Tokens other than EOS: what OpenICL divides by, one more than are scored if there is no BOS."""
    label_nats: tuple[float, ...] = ()
    """Empty where the tokenizer gives no offsets; so are the next two."""
    label_tokens: tuple[int, ...] = ()
    label_bytes: tuple[int, ...] = ()
    content_free_nats: tuple[float, ...] = ()
    """The labels' own losses behind a content-free input, the mean over the protocol's inputs; calibrated only."""
    cut: int = 0
    """Tokens that the end of the longest label's prompt lost because it was too long."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to one test example."""

    id: str
    right: str
    answer: str
    margin: float
    """The second lowest loss minus the lowest one (UNITS); 0 where labels tie, and the protocol's `ties` decide."""
    confidence: float
    """The answer's posterior (`label_scores`)."""
    dropped: int
    """Shots left out because the prompt was too long."""
    cut: int = 0
    """Tokens that the end of the prompt lost because it was too long."""
    group: str = ""
    """The group of the example, empty where the data have none."""


def label_scores(rules: IclProtocol, example: ExampleLosses) -> tuple[list[float], list[float]]:
    """Return the loss of each label by the protocol's rule, and its posterior, in the order of `ties`.

    The lowest loss answers. The posterior is the softmax over the labels of minus their summed losses: of whole prompts
    for the rule `prompt`, else of the labels' own tokens, less the content-free ones for `calibrated`. A prompt's sum
    is its label's plus what the labels share, so that both give the same posterior, but for tokens in which label and
    prompt meet. A rule that divides by a length may answer another label than the likeliest.
    Raises MetricError, naming the example, for a loss that is not finite: the lowest of NaN is any.
    """
    sums = list(example.prompt_nats if rules.scorer == "prompt" else example.label_nats)
    if rules.scorer == "calibrated":
        sums = [nats - free for nats, free in zip(sums, example.content_free_nats, strict=True)]
    lengths = {
        "prompt": example.prompt_tokens,
        "label_token": example.label_tokens,
        "label_byte": example.label_bytes,
    }
    divisors = lengths.get(rules.scorer, (1,) * len(sums))
    losses = []
    likelihoods = []
    for name, nats, divisor in zip(rules.ties, sums, divisors, strict=True):
        losses.append(nats / divisor)
        likelihoods.append(math.exp(min(sums) - nats))
        if not math.isfinite(losses[-1]):
            raise MetricError(
                f"The loss of example {example.id} with the label '{name}' is {losses[-1]}; the model's numbers "
                "overflow. Try --dtype float32."
            )
    total = sum(likelihoods)
    return losses, [likelihood / total for likelihood in likelihoods]


def answers(rules: IclProtocol, examples: Sequence[ExampleLosses], groups: Mapping[str, str]) -> list[Answer]:
    """Return the answer to each example; of equal losses the first label wins. Raises MetricError (`label_scores`).

    `groups` names the group of each example, by its id, where the data have groups.
    """
    given = []
    for example in examples:
        losses, posteriors = label_scores(rules, example)
        lowest, second = sorted(losses)[:2]
        place = losses.index(lowest)
        answer = Answer(
            id=example.id,
            right=example.label,
            answer=rules.ties[place],
            margin=second - lowest,
            confidence=posteriors[place],
            dropped=example.dropped,
            cut=example.cut,
            group=groups.get(example.id, ""),
        )
        given.append(answer)
    return given


def icl_scores(rules: IclProtocol, examples: Sequence[ExampleLosses], groups: Mapping[str, str]) -> Scored:
    """Return the metrics of a task, flagged with what weakens them, and the table of its answers.

    `groups` names the group of each example, by its id, where the data have groups. Group accuracy counts each group
    the same, so that an example weighs 1 / (examples of its group): of MMLU's 57 subjects it is OpenCompass' `mmlu`.
    """
    names = (*METRICS, GROUP_ACCURACY) if groups else METRICS
    try:
        given = answers(rules, examples, groups)
    except MetricError as error:
        return Scored(missing=dict.fromkeys(names, str(error)))
    n = len(given)
    unit = UNITS[rules.scorer]
    hits = {}
    margins = {}
    confidences = []
    pairs: list[tuple[str, str]] = []
    for answer in given:
        hits[answer.id] = float(answer.right == answer.answer)
        margins[answer.id] = answer.margin
        confidences.append(answer.confidence)
        pairs.append((answer.right, answer.answer))
    ids, equal_weights = list(hits), dict.fromkeys(hits, 1.0)
    margin = replace(MEASURES["margin"], unit=unit)
    scores = {
        "accuracy": _mean(MEASURES["accuracy"], hits, equal_weights, n),
        "macro_f1": macro_f1(pairs, rules.ties, ids),
        "margin": _mean(margin, margins, equal_weights, n),
    }
    scores["ece"] = calibration_error(confidences, list(hits.values()), ids)
    if groups:
        sizes = Counter(map(groups.__getitem__, ids))
        weights = {}
        for example in ids:
            weights[example] = 1 / sizes[groups[example]]
        scores[GROUP_ACCURACY] = _mean(MEASURES[GROUP_ACCURACY], hits, weights, len(sizes))
    table = answers_table(rules.ties, unit, given)
    flags = _flags(table, n)
    for name, score in scores.items():
        scores[name] = replace(score, flags=(*score.flags, *flags))
    return Scored(scores, files={TABLE: json.dumps(table, ensure_ascii=False) + "\n"})


def _flags(table: Mapping[str, Any], n: int) -> list[str]:
    """Return what weakens the answers of a table to `n` prompts."""
    flags = []
    if table["cut"]:
        flags.append(f"{table['cut']} of {n} prompts cut at their end, to make them fit")
    if table["tied"]:
        flags.append(f"{table['tied']} of {n} answers are ties, decided by the order of the labels")
    if table["shortened"]:
        lost = table["dropped_shots"]
        shortened = table["shortened"]
        flags.append(f"{lost} shots left out of {shortened} of {n} prompts, to make them fit")
    return flags


def _mean(measure: Measure, values: Mapping[str, float], weights: Mapping[str, float], total: int) -> Score:
    examples = {}
    weighted = []
    for example, value in values.items():
        weight = weights[example]
        examples[example] = (value, weight)
        weighted.append(value * weight)
    return measure.score(sum(weighted) / total, len(values), examples=examples)


def macro_f1(pairs: Sequence[tuple[str, str]], classes: Sequence[str], ids: Sequence[str]) -> Score:
    """Return the mean of F1 over the classes of (right, answer) pairs, as scikit-learn does.

    It has pseudo-values of the examples `ids`, if there are several.
    """
    hits = Counter()
    counts = Counter()
    for right, answer in pairs:
        hits[right] += right == answer
        counts.update((right, answer))

    def mean(left_out: Sequence[str] = ()) -> float:
        f1s = []
        for name in classes:
            count = counts[name] - left_out.count(name)
            if count:
                f1s.append(2 * (hits[name] - (left_out.count(name) == 2)) / count)
        return sum(f1s) / len(f1s) if f1s else math.nan

    without = {pair: mean(pair) for pair in set(pairs)}
    return _jackknife("macro_f1", mean(), ids, list(map(without.__getitem__, pairs)))


def calibration_error(confidences: Sequence[float], hits: Sequence[float], ids: Sequence[str]) -> Score:
    """Return the expected calibration error: how far confidence is from accuracy (Guo et al., ICML 2017, Eq. 3).

    It is the mean distance of accuracy and mean confidence over bins of equal width, weighted by their examples. Bin m
    of M holds confidences in ((m - 1) / M, m / M], the first one 0, too. A fraction; lower is better.
    It has pseudo-values of the examples `ids`, if there are several.
    """
    totals = [0.0] * BINS  # of each bin: its confidences minus its right answers
    gaps = []
    for confidence, hit in zip(confidences, hits, strict=True):
        place = min(max(math.ceil(confidence * BINS), 1), BINS) - 1
        gap = confidence - hit
        gaps.append((place, gap))
        totals[place] += gap
    distance = math.fsum(map(abs, totals))
    without = []
    for place, gap in gaps:
        change = abs(totals[place] - gap) - abs(totals[place])
        without.append((distance + change) / max(len(ids) - 1, 1))
    return _jackknife("ece", distance / len(ids), ids, without)


def _jackknife(name: str, value: float, ids: Sequence[str], without: Sequence[float]) -> Score:
    examples = pseudo_values(value, ids, without)
    aggregate = "corpus" if examples is None else "jackknife"
    return MEASURES[name].score(value, len(ids), examples=examples, aggregate=aggregate)


def answers_table(classes: Sequence[str], unit: str, given: Sequence[Answer]) -> dict[str, Any]:
    """Return what `emobench answers` shows: counts, scores by class and by group, confusions (right x answered).

    Precision, recall and F1 are fractions, None if the divisor is 0: no precision of a class that is never answered.
    """
    counts, right, answered = Counter[tuple[str, str]](), Counter[str](), Counter[str]()
    by_group: dict[str, list[bool]] = {}
    tied = shortened = dropped = cut = 0
    for answer in given:
        counts[answer.right, answer.answer] += 1
        right[answer.right] += 1
        answered[answer.answer] += 1
        if answer.group:
            by_group.setdefault(answer.group, []).append(answer.right == answer.answer)
        tied += answer.margin == 0
        shortened += answer.dropped > 0
        dropped += answer.dropped
        cut += answer.cut > 0
    per_class, confusion, per_group = [], [], []
    for name in classes:
        confusion.append([counts[name, column] for column in classes])
        hits, support, count = counts[name, name], right[name], answered[name]
        row = {"name": name, "precision": _share(hits, count), "recall": _share(hits, support)}
        per_class.append({**row, "f1": _share(2 * hits, count + support), "support": support})
    for group, own in by_group.items():
        per_group.append({"name": group, "n": len(own), "accuracy": sum(own) / len(own)})
    return {
        "classes": list(classes),
        "unit": unit,
        "tied": tied,
        "shortened": shortened,
        "dropped_shots": dropped,
        "cut": cut,
        "per_class": per_class,
        "confusion": confusion,
        "per_group": per_group,
        "examples": list(map(asdict, given)),
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def pooled_table(tables: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one table of the answers of several runs to one task: their counts are sums over the runs."""
    examples = []
    for table in tables:
        for row in table["examples"]:
            examples.append(Answer(**row))
    return answers_table(tables[0]["classes"], tables[0]["unit"], examples)
