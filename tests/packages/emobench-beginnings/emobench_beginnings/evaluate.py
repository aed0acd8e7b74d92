"""Tasks of kind `beginnings`, where data and models are read."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import emobench
from emobench_beginnings.kind import BeginningsProtocol
from emobench_beginnings.weighting import WEIGHTINGS

LOSSES = "losses.json"
"""Text -> (nats, predicted tokens), both weighted."""


def load(task: emobench.Task, *, data_dirs: Sequence[Path], offline: bool) -> Any:
    return emobench.load_texts(task.corpus, "test", data_dirs=data_dirs, offline=offline)


def cost(task: emobench.Task, texts: Any, model: Any) -> emobench.Cost:
    rules = task.protocol_as(BeginningsProtocol)
    count = rules.limit if texts is None else len(texts.texts[: rules.limit])
    return emobench.Cost(count, None if count is None else count * rules.tokens)


def check(task: emobench.Task, texts: Any, model: Any) -> None:
    """Nothing can fail later."""


def generate(subject: emobench.Subject, task: emobench.Task, texts: Any, folder: Path) -> None:
    """Write the loss of each text's beginning."""
    rules = task.protocol_as(BeginningsProtocol)
    weighting = WEIGHTINGS.load(rules.weighting).plugin
    losses = {}
    for place, text in enumerate(texts.texts[: rules.limit]):
        ids = torch.tensor([subject.tokenizer(text)["input_ids"][: rules.tokens]])
        if ids.shape[1] > 1:
            with torch.no_grad():
                log_probs = subject.model(ids).logits[0, :-1].log_softmax(-1)
            nats = -log_probs.gather(1, ids[0, 1:, None])[:, 0]
            weights = torch.tensor([weighting.weight(place) for place in range(len(nats))])
            losses[str(place)] = (float((weights * nats).sum()), float(weights.sum()))
    (folder / LOSSES).write_text(json.dumps(losses))


def score(subject: emobench.Subject, task: emobench.Task, texts: Any, folder: Path) -> emobench.Scored:
    """Return the perplexity of beginnings; each text is an example, weighted by its tokens."""
    losses: dict[str, tuple[float, float]] = json.loads((folder / LOSSES).read_text())
    examples = {text: (nats / tokens, tokens) for text, (nats, tokens) in losses.items()}
    total, tokens = (math.fsum(pair[place] for pair in losses.values()) for place in (0, 1))
    found = emobench.Score(
        value=math.exp(total / tokens),
        n=len(examples),
        higher_is_better=False,
        unit="perplexity",
        examples=examples,
        aggregate="exp_mean",
    )
    return emobench.Scored(scores={"ppl_beginning": found})
