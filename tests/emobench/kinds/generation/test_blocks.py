"""Metrics of whole sampling runs have pseudo-values by blocks of documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pytest

from emobench.core.errors import MetricError
from emobench.kinds.generation.blocks import BLOCKS, with_blocks
from emobench.kinds.generation.built_in import Distinct, Repetition, SelfBleu
from emobench.kinds.generation.metric import Metric, MetricContext, MetricGroup
from emobench.kinds.generation.samples import GeneratedSample, GeneratedTexts
from emobench.tasks.scores import Score, by_unit


class Words(Metric):
    """Different words of a sampling run. Own."""

    name, higher_is_better, unit, aggregate = "words", True, "words", "corpus"

    def values(self, texts: GeneratedTexts, context: MetricContext) -> np.ndarray:
        return np.array([len({word for text in run for word in text.split()}) for run in texts.continuations], float)


class Asking(Words):
    """The same, after a look at embeddings. Own."""

    name = "asking"

    def values(self, texts: GeneratedTexts, context: MetricContext) -> np.ndarray:
        context.features(texts.references)
        return super().values(texts, context)


class Needy(Words):
    """The same, where the first prompt is present. Own."""

    name = "needy"

    def values(self, texts: GeneratedTexts, context: MetricContext) -> np.ndarray:
        if "p0" not in texts.ids:
            raise MetricError("the first prompt is missing")
        return super().values(texts, context)


class Context(MetricContext):
    """Has features, as a context of a real model has."""

    def features(self, texts: Any, *, keep: bool = False) -> np.ndarray:
        return np.zeros((len(texts), 2))


CONTEXT = Context(cast(Any, None), cast(Any, None), {})


def drawn(prompts: int, runs: int = 2) -> GeneratedTexts:
    rng = np.random.default_rng(prompts)
    samples = []
    for run in range(runs):
        samples.append([])
        for i in range(prompts):
            text = " ".join(map(str, rng.integers(0, 300, 12)))
            texts = {"prefix_text": "", "reference_text": "", "continuation_text": text}
            samples[-1].append(GeneratedSample(prompt_id=f"p{i}", sample=run, continuation_ids=[], ended=True, **texts))
    return GeneratedTexts(samples, " ")


def scored(metric: Metric, texts: GeneratedTexts, units: Mapping[str, str]) -> Score:
    return with_blocks(metric, texts, CONTEXT, metric.score(texts, CONTEXT), units)[metric.name]


def test_a_block_is_of_whole_documents_and_left_out_at_once() -> None:
    texts = drawn(70)
    units = {f"p{i}": f"document {i // 2}" for i in range(50)}
    score = scored(Words(), texts, units)
    assert score.aggregate == "jackknife"
    assert score.examples is not None
    assert score.units is not None
    assert len(set(score.units.values())) == BLOCKS == 20
    for i in range(0, 50, 2):
        assert score.units[f"p{i}"] == score.units[f"p{i + 1}"]
    pseudo = by_unit(score.examples, score.units)
    for block in pseudo:
        kept = [i for i in range(70) if score.units[f"p{i}"] != block]
        without = np.mean([len({w for i in kept for w in run[i].split()}) for run in texts.continuations])
        share = 1 - len(kept) / 70
        assert pseudo[block] == (pytest.approx(score.value / share - (1 / share - 1) * without), 70 - len(kept))


@pytest.mark.parametrize("group", [Distinct(), Repetition(), SelfBleu()])
def test_built_in_scores_of_a_corpus_have_blocks_and_others_keep_their_examples(group: MetricGroup) -> None:
    texts = drawn(40)
    plain = group.score(texts, CONTEXT)
    for name, score in with_blocks(group, texts, CONTEXT, plain, {}).items():
        if plain[name].aggregate == "mean":
            assert score == plain[name]
        else:
            assert (score.value, score.aggregate) == (plain[name].value, "jackknife")
            assert len(set((score.units or {}).values())) == BLOCKS


def test_few_documents_are_as_many_blocks() -> None:
    assert len(set((scored(Words(), drawn(12), {}).units or {}).values())) == 12
    assert scored(Words(), drawn(5), {f"p{i}": "one" for i in range(5)}).examples is None


@pytest.mark.parametrize("metric", [Asking(), Needy()])
def test_a_metric_that_cannot_be_computed_again_keeps_its_score(metric: Metric) -> None:
    texts = drawn(30)
    score = scored(metric, texts, {})
    assert (score.examples, score.units, score.aggregate) == (None, None, "corpus")
    assert score == metric.score(texts, CONTEXT)[metric.name]
