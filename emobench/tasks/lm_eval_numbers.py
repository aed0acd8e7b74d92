"""The numbers of lm-evaluation-harness: their names and units, and the values of examples behind them.

In its results a number stands under "<metric>,<filter>"; a file of results may be a stranger's.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from emobench.core.reading import number_of
from emobench.data.sampling_units import content_digest, joined_units, text_digest
from emobench.tasks.scores import Measure

Values = dict[str, tuple[float, float]]
"""Example -> (value, weight)."""

PASSAGES = ("passage", "paragraph", "article", "story", "context", "premise", "sentence1")
"""Words in the names of fields that several examples may have in common: of RACE, MultiRC, DROP, SQuAD, Belebele, MNLI
and others."""
NUMBERED = "passage number "
"""The beginning of the name of a passage that only a number stands for, which says nothing outside of its data set."""
_WORD = re.compile(r"[A-Z]?[a-z]+\d*|[A-Z]+\d*")

_IDENTIFIER = re.compile(
    r"_*(?i:(.+[_-])?(id|idx|index|uid|uuid|guid|qid|pid|docid)(_level_\d+)?)_*|.*[a-z](Id|ID|Idx)"
)
"""Fields that number a document: two documents that differ in these alone are copies."""

NO_QUESTION = {
    *("label", "labels", "answer", "answers", "target", "targets", "gold", "choices", "options", "class", "category"),
    *("image", "images", "audio", "video", "subject", "source", "split", "language"),
}
"""Words in the names of fields that do not tell what a document asks: two documents may agree in all of them."""

LONGEST = 500
"""Characters of a text that is taken over."""

BYPASS = "bypass"
"""The metric of lm-eval's --predict_only, which is 999 whatever a model answers."""
_FACTS = ("name", "alias", "sample_len", "sample_count")
_SHARES = {
    *("acc", "acc_norm", "acc_bytes", "acc_all", "acc_mutual_info", "pass@1", "pass_at_1"),
    *("prompt_level_strict_acc", "prompt_level_loose_acc", "inst_level_strict_acc", "inst_level_loose_acc"),
}
"""Metrics that lm-eval gives from 0 to 1 in every task."""
_SHARES_OR_PERCENT = {"exact_match", "em", "f1", "rouge1", "rouge2", "rougeL", "rougeLsum"}
"""Metrics that it gives from 0 to 1, and in some tasks in percent, which is then a score and no fraction."""


HARNESS = "lm-evaluation-harness"
MEASURES = {
    "acc": Measure(
        True,
        "fraction",
        title="Accuracy",
        definition="The share of examples whose most likely choice is the right one.",
        source=HARNESS,
    ),
    "acc_norm": Measure(
        True,
        "fraction",
        title="Normalized accuracy",
        definition="The share of examples whose most likely choice by byte of its text is the right one.",
        source=HARNESS,
    ),
    "exact_match": Measure(
        True,
        "fraction",
        title="Exact match",
        definition="The share of answers that equal the right one after the task's own clean-up.",
        source=HARNESS,
    ),
    "word_perplexity": Measure(
        False,
        "perplexity",
        title="Perplexity per word",
        definition="The exponential of the negative log-likelihood of the texts divided by their words.",
        source=HARNESS,
    ),
    "byte_perplexity": Measure(
        False,
        "perplexity",
        title="Perplexity per byte",
        definition="The exponential of the negative log-likelihood of the texts divided by their bytes.",
        source=HARNESS,
    ),
    "bits_per_byte": Measure(
        False,
        "bits per byte",
        title="Bits per byte",
        definition="The negative log-likelihood of the texts in bits, divided by their bytes.",
        source=HARNESS,
    ),
}


@dataclass(frozen=True)
class LmEvalNumber:
    """One number of a task or group. `value` is None where there is none, and `text` is what stands in its place."""

    task: str
    metric: str
    filter: str
    value: float | None = None
    text: str = ""
    stderr: float | None = None

    @property
    def shown(self) -> str:
        """The metric, with the filter behind a comma unless it is "none"."""
        name = self.metric if self.filter == "none" else self.key
        return re.sub(r"\s", "_", clip(name))

    @property
    def name(self) -> str:
        """The task, a slash, and the metric."""
        return f"{task_name(self.task)}/{self.shown}"

    @property
    def key(self) -> str:
        return f"{self.metric},{self.filter}"

    @property
    def absent(self) -> str:
        """Why there is no value."""
        return "not scored (--predict_only)" if self.metric == BYPASS else f"lm-eval has {self.text}"

    @property
    def unit(self) -> str:
        if self.metric.endswith("perplexity"):
            return "perplexity"
        if self.metric == "bits_per_byte":
            return "bits per byte"
        share = self.metric in _SHARES_OR_PERCENT and self.value is not None and 0 <= self.value <= 1
        return "fraction" if share or self.metric in _SHARES else "score"


def numbers_of(task: str, values: Mapping[str, Any]) -> Iterator[LmEvalNumber]:
    """Yield every number that `results` has for a task or group, in its order.

    Its keys are "METRIC,FILTER", and "METRIC_stderr,FILTER" for the standard error; a filter may be missing.
    """
    for key, value in values.items():
        metric, comma, chosen = key.partition(",")
        if key in _FACTS or not metric.strip() or metric.endswith("_stderr"):
            continue
        error = number(values.get(f"{metric}_stderr{comma}{chosen}"))
        text = clip(json.dumps(value, ensure_ascii=False), 40)
        amount = None if metric == BYPASS else number(value)
        yield LmEvalNumber(task, metric, chosen or "none", amount, text, error)


def example_values(of: LmEvalNumber, rows: Mapping[str, Any]) -> Values | None:
    """Return (value, weight) of each example, on a scale on which their mean gives the number.

    None where it gives another (F1, BLEU). A row of a perplexity, or of bits per byte, may be a pair: a text's
    log-likelihood in nats, and its words or bytes.
    """
    is_perplexity, is_bits = of.unit == "perplexity", of.metric == "bits_per_byte"
    values: Values = {}
    for example, value in rows.items():
        size: Any = 1
        if (is_perplexity or is_bits) and isinstance(value, list) and len(value) == 2:
            value, size = value
        amount, weight = _number_or_flag(value), _number_or_flag(size)
        if amount is None or weight is None or weight <= 0:
            return None
        if is_bits:
            amount *= -1 / (weight * math.log(2))
        elif is_perplexity:
            amount *= -1 / weight
        values[example] = (amount, weight)
    return values if gives(of, values) else None


def _number_or_flag(value: Any) -> float | None:
    return float(value) if isinstance(value, bool) else number(value)


def gives(of: LmEvalNumber, values: Values) -> bool:
    """Return whether the weighted mean of examples (its exponential for a perplexity) is the number."""
    total = math.fsum(weight for _, weight in values.values())
    if not total or of.value is None:
        return False
    mean = math.fsum(value * weight for value, weight in values.values()) / total
    try:
        value = math.exp(mean) if of.unit == "perplexity" else mean
    except OverflowError:
        return False
    return math.isclose(value, of.value, rel_tol=1e-6, abs_tol=1e-9)


def example_id(sample: Mapping[str, Any]) -> str:
    """Return an example's number and the hash of its document, so that two documents are never taken for one."""
    parts = [str(sample.get("doc_id")), str(sample.get("doc_hash") or "")[:12]]
    return clip("-".join(filter(None, parts)), 60)


def sampling_units(documents: Mapping[str, Any], contents: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Return the unit of each example that was sampled with others, by the documents and contents of all examples.

    Equal contents (`sample_contents`) are one unit, and so are examples of one `named_units`.
    """
    return joined_units(contents, named_units(documents))


def named_units(documents: Mapping[str, Any]) -> dict[str, str]:
    """Return the units that documents name: subjects of examination questions (MMLU), if several, or else passages."""
    subjects, passages = {}, {}
    for example, document in documents.items():
        if not isinstance(document, Mapping):
            continue
        if isinstance(document.get("subject"), str):
            subjects[example] = document["subject"]
        if passage := _passage(document):
            passages[example] = passage
    if len(subjects) == len(documents) and len(set(subjects.values())) > 1:
        return {example: f"subject {clip(subject, 60)}" for example, subject in subjects.items()}
    return passages


def sample_contents(sample: Mapping[str, Any]) -> list[str]:
    """Return digests of a sample's document and of all that the model read, as far as the sample has them.

    A document counts as a whole, by its hash, and without the fields that number it, if these are not all that tells
    what it asks: in a prompt with other shots, or under another id, a copy is still a copy.
    """
    document = sample.get("doc")
    contents = [sample.get("doc_hash") or document, _without_identifiers(document), sample.get("arguments")]
    return [content_digest(content) for content in contents if content]


def _without_identifiers(document: Any) -> Any:
    """Return a document without the fields that number it; None if nothing is left that tells what it asks."""
    if not isinstance(document, Mapping):
        return document
    rest, asks = {}, False
    for name, value in document.items():
        if not _IDENTIFIER.fullmatch(str(name)):
            rest[name] = value
            asks |= value not in (None, "", [], {}) and NO_QUESTION.isdisjoint(_words(str(name)))
    return rest if asks else None


def _passage(document: Mapping[str, Any]) -> str | None:
    """Return the unit that the first passage of a document names: by its text, or else by its id in the data."""
    for word in PASSAGES:
        for name, value in document.items():
            if _is_text_of(word, name, value):
                return f"passage {text_digest(value)}"
        for name, value in document.items():
            if _is_id_of(word, name, value):
                if str(value).isdecimal():
                    return f"{NUMBERED}{value}"
                return f"passage {text_digest(str(value))}"
    return None


def _is_text_of(word: str, name: str, value: Any) -> bool:
    """Return whether a field is a passage: "flores_passage" and "passage_text", and not "context_condition"."""
    words = _words(name)
    if words[-1:] == ["text"]:
        words = words[:-1]
    return words[-1:] == [word] and isinstance(value, str) and bool(value.strip())


def _is_id_of(word: str, name: str, value: Any) -> bool:
    """Return whether a field is the number or the name of a passage, such as "story_id"."""
    named = word in _words(name) and _IDENTIFIER.fullmatch(name) is not None
    return named and type(value) in (str, int) and value != ""


def _words(name: str) -> list[str]:
    """Return the words of a field's name in lower case: of "flores_passage", "passageText" and "Passage"."""
    return [word.lower() for word in _WORD.findall(name)]


def task_name(task: str) -> str:
    return re.sub(r"[/\s]", "_", clip(task)) or "_"


def number(value: Any) -> float | None:
    """Return a finite number; None for anything else, such as NaN and lm-eval's "N/A"."""
    try:
        amount = number_of(value)
    except ValueError:
        return None
    return amount if math.isfinite(amount) else None


def clip(text: str, longest: int = LONGEST) -> str:
    """Return text that can be written as UTF-8, of a bounded length."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= longest else text[: longest - 3] + "..."
