"""Tasks of kind `surrogate`, where data and models are read: loading, checks, and scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, DataError
from emobench.core.settings import PRETRAINED
from emobench.data.sampling_units import joined_units, text_digest
from emobench.data.texts import Texts, load_texts
from emobench.kinds.cost import Cost, SplitSize, least, split_size
from emobench.kinds.generation.evaluate import require_context
from emobench.kinds.interface import Scored, Scores, Subject
from emobench.kinds.surrogate.kind import SurrogateProtocol
from emobench.kinds.views import TestSize
from emobench.metrics.distances import COLUMNS, MEASURES, PRIMARY
from emobench.metrics.distribution_distances import surrogate_distances
from emobench.models.model import Model
from emobench.tasks.scores import Measure
from emobench.tasks.spec import Task

TEXTS_A_TIME = 256


def load(task: Task, *, data_dirs: Sequence[Path], offline: bool) -> Texts:
    split = task.protocol_as(SurrogateProtocol).split
    return load_texts(task.corpus, split, data_dirs=data_dirs, offline=offline)


def cost(task: Task, data: Texts | None, model: Model) -> Cost:
    rules = task.protocol_as(SurrogateProtocol)
    return surrogate_cost(rules, split_size(task.corpus, rules.split, data, model.bytes_per_token))


def surrogate_cost(rules: SurrogateProtocol, split: SplitSize) -> Cost:
    """Return the tokens of the texts that are read by both models, at most."""
    texts = least(rules.limit, split.rows)
    tokens = split.tokens
    if texts is not None:
        tokens = least(tokens, texts * rules.max_tokens)
    return Cost(texts, tokens, auxiliary_tokens={} if tokens is None else {"surrogate": tokens})


def metrics(task: Task) -> dict[str, Measure]:
    """Return the metrics that decide something."""
    return {name: MEASURES[name] for name in PRIMARY}


def test_size(task: Task, metric: str, data: Texts | None) -> TestSize:
    rules = task.protocol_as(SurrogateProtocol)
    rows = split_size(task.corpus, rules.split, data, 4.0).rows
    units = None if data is None else least(rules.limit, len(set(data.units)))
    return TestSize(least(rules.limit, rows), units)


def check(task: Task, texts: Texts, model: Model) -> None:
    rules = task.protocol_as(SurrogateProtocol)
    surrogate = model.other(rules.auxiliary)
    for one in (model, surrogate):
        way = f"add --set surrogate.max_tokens={one.context}, which skips longer texts"
        require_context(task, one, rules.max_tokens, "a text", way)
    own = model.tokenizer.get_vocab()
    other = surrogate.tokenizer.get_vocab()
    differing = sorted(token for token in own.keys() | other.keys() if own.get(token) != other.get(token))
    if differing:
        token = differing[0]
        raise ConfigError(
            f"Task {task.name} compares distributions over the same tokens, and the surrogate {rules.model} has others "
            f"than {model.name}: {len(differing)} differ, such as {token!r} (id {own.get(token)} and "
            f"{other.get(token)}). Give a model with the same tokenizer, --set surrogate.model=MODEL, such as a larger "
            f"one of its family, or '--set surrogate.model={PRETRAINED}', the model before training."
        )
    usable_texts(texts, model.tokenizer, rules, limit=1)


def generate(subject: Subject, task: Task, texts: Texts, folder: Path) -> None:
    """Write nothing: human texts are read, and nothing is generated."""


def score(subject: Subject, task: Task, texts: Texts, folder: Path) -> Scored:
    rules = task.protocol_as(SurrogateProtocol)
    rows = usable_texts(texts, subject.tokenizer, rules, limit=rules.limit)
    surrogate = subject.other(rules.auxiliary).model
    scored = Scored()

    def distances() -> Scores:
        with subject.work("distances to the surrogate", "texts") as progress:
            tokens = list(rows.values())
            ids = list(rows)
            return surrogate_distances(surrogate, subject.model, subject.tokenizer, tokens, ids, progress=progress)

    scored.add(COLUMNS, distances)
    contents = {}
    documents = {}
    for row in rows:
        contents[row] = [text_digest(texts.texts[int(row)])]
        documents[row] = texts.units[int(row)]
    units = joined_units(contents, documents)
    for name, value in scored.scores.items():
        scored.scores[name] = replace(value, units=units)
    return scored


def usable_texts(texts: Texts, tokenizer: Any, rules: SurrogateProtocol, limit: int | None) -> dict[str, list[int]]:
    """Return the token ids of the first `limit` usable texts, by their row in the split.

    Words are split at single spaces, and tokens are those that the tokenizer gives, with its special ones, as in the
    official code. A text of one token predicts nothing. Raises DataError if no text is usable.
    """
    rows = {}
    for start in range(0, len(texts), TEXTS_A_TIME):
        part = list(texts.texts[start : start + TEXTS_A_TIME])
        # verbose=False: a text that is longer than the context is skipped below.
        for i, (text, ids) in enumerate(zip(part, tokenizer(part, verbose=False)["input_ids"], strict=True), start):
            if len(rows) == limit:
                return rows
            if len(text.split(" ")) >= rules.min_words and 2 <= len(ids) <= rules.max_tokens:
                rows[str(i)] = ids
    if not rows:
        raise DataError(
            f"None of the {len(texts)} texts of {texts.corpus}.{texts.split} has at least {rules.min_words} words and "
            f"2 to {rules.max_tokens} tokens. Use other texts, or --set surrogate.min_words=N and --set "
            "surrogate.max_tokens=N."
        )
    return rows
