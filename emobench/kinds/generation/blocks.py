"""Pseudo-values of metrics of full sampling runs that are functions of the texts alone: by blocks of prompts left out.

The delete-a-group jackknife (Busing, Meijer & van der Leeden, *Statistics and Computing* 9, 1999): with a share 1 / h
of the prompts in a block, its pseudo-value is h value - (h - 1) (value without the block). A block has full
documents, the units that were sampled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress

import numpy as np

from emobench.core.errors import MetricError
from emobench.kinds.generation.kind import BLOCKS
from emobench.kinds.generation.metric import MetricContext, MetricGroup
from emobench.kinds.generation.samples import GeneratedTexts
from emobench.kinds.interface import Scores
from emobench.models.model import Model
from emobench.tasks.scores import Score


class TextsAlone(MetricContext):
    """A context without models, which would cost too much for each block."""

    def model(self, part: str) -> Model:
        raise MetricError("a block of prompts is not read by a model")

    def embed(self, part: str, texts: Sequence[str], *, keep: bool = False) -> np.ndarray:
        raise MetricError("a block of prompts is not embedded")

    def features(self, texts: Sequence[str], *, keep: bool = False) -> np.ndarray:
        raise MetricError("a block of prompts is not embedded")


def with_blocks(
    metric: MetricGroup,
    texts: GeneratedTexts,
    context: MetricContext,
    scores: Scores,
    units: Mapping[str, str],
) -> Scores:
    """Return scores, those of a corpus with pseudo-values by block; `units` names the unit of a prompt that shares one.

    Those of metrics that ask a model, or that have no value without some block, stay as they are.
    """
    bare = [name for name, score in scores.items() if score.examples is None]
    places = {}
    for key in texts.ids:
        places.setdefault(units.get(key, key), len(places))
    count = min(BLOCKS, len(places))
    if not bare or count < 2:
        return scores
    block_N = np.array([places[units.get(key, key)] * count // len(places) for key in texts.ids])
    alone = TextsAlone(context.subject, context.rules, {})
    without = []
    for block in range(count):
        runs = [list(compress(run, block_N != block)) for run in texts.samples]
        try:
            without.append(metric.score(replace(texts, samples=runs), alone))
        except MetricError:
            return scores
    extended = dict(scores)
    for name in bare:
        values = [rest[name].value for rest in without]
        if np.isfinite(values).all():
            extended[name] = _with_examples(scores[name], values, texts.ids, block_N)
    return extended


def _with_examples(score: Score, without_B: Sequence[float], ids: Sequence[str], block_N: np.ndarray) -> Score:
    """Return a score whose prompts have the pseudo-value of their block, which is their unit."""
    shares_B = np.bincount(block_N) / len(block_N)
    pseudo_B = score.value + (1 / shares_B - 1) * (score.value - np.array(without_B))
    examples = {}
    units = {}
    for key, block in zip(ids, block_N.tolist(), strict=True):
        examples[key] = (float(pseudo_B[block]), 1.0)
        units[key] = f"block {block + 1} of {len(pseudo_B)}"
    return replace(score, examples=examples, units=units, aggregate="jackknife")
