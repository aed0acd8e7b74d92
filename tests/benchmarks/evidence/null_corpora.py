"""Null comparisons of scores of a whole corpus, whose examples are pseudo-values; see `null_comparisons.py`.

Legend: N prompts, T words of a text.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import numpy as np
from scipy import stats

from emobench.kinds.generation.blocks import with_blocks
from emobench.kinds.generation.built_in import Distinct, Repetition, SelfBleu
from emobench.kinds.generation.metric import MetricContext, MetricGroup
from emobench.kinds.generation.samples import GeneratedSample, GeneratedTexts
from emobench.leaderboard.stats.difference import compare_rows
from emobench.leaderboard.stats.series import Series
from emobench.leaderboard.stats.summary import summarise
from emobench.tasks.scores import Score

PROMPTS, WORDS, VOCABULARY = 40, 14, 300
SHARES_V = 1 / np.arange(1, VOCABULARY + 1) / (1 / np.arange(1, VOCABULARY + 1)).sum()
Scorer: TypeAlias = Callable[[list[str], list[str]], Score]


def by_blocks(group: MetricGroup, name: str) -> Scorer:
    plain = {"prefix_text": "", "reference_text": "", "continuation_ids": [], "ended": True, "sample": 0}
    context = MetricContext(cast(Any, None), cast(Any, None), {})

    def score(texts: list[str], ids: list[str]) -> Score:
        pairs = zip(ids, texts, strict=True)
        run = [GeneratedSample(prompt_id=key, continuation_text=text, **plain) for key, text in pairs]
        given = GeneratedTexts([run], " ")
        return with_blocks(group, given, context, group.score(given, context), {})[name]

    return score


SCORERS: dict[str, Scorer] = {
    "distinct-2": by_blocks(Distinct(), "distinct_2"),
    "diversity": by_blocks(Repetition(), "diversity"),
    "self-BLEU": by_blocks(SelfBleu(), "self_bleu"),
}


def corpora() -> dict[str, Callable[[np.random.Generator], dict[str, bool]]]:
    """Return conditions by name; a draw is compared at once: test -> whether it rejects."""
    found = {f"score of a corpus: {name}, noise of texts": _drawn(scorer, 0.0) for name, scorer in SCORERS.items()}
    for name in ("distinct-2", "diversity"):
        found[f"score of a corpus: {name}, noise of texts and seeds"] = _drawn(SCORERS[name], 0.2)
    return found


def _drawn(scorer: Scorer, seed_sd: float) -> Callable[[np.random.Generator], dict[str, bool]]:
    ids = [f"p{i:03}" for i in range(PROMPTS)]

    def row(rng: np.random.Generator) -> Series:
        """Return a row of three seeds. An objective repeats itself more after some prompts than after others."""
        repeats_N = rng.beta(1, 3, PROMPTS)
        made = []
        for _ in range(3):
            of_seed_N = repeats_N * np.exp(rng.normal(0, seed_sd))
            made.append(scorer([_text(rng, min(share, 0.95)) for share in of_seed_N], ids))
        examples = [score.sampled or {} for score in made]
        return Series.of(summarise(made), [0, 1, 2], examples if all(examples) else None)

    def draw(rng: np.random.Generator) -> dict[str, bool]:
        a, b = row(rng), row(rng)
        found = compare_rows([a], [b])
        differences = [a.values[seed] - b.values[seed] for seed in a.values]
        with warnings.catch_warnings(category=RuntimeWarning, action="ignore"):
            by_t = bool(stats.ttest_1samp(differences, 0).pvalue < 0.05)
        told = isinstance(found, str)
        return {"rejected": not told and found.p < 0.05, "undetermined": told, "t_test": by_t}

    return draw


def _text(rng: np.random.Generator, repeats: float) -> str:
    """Return words of which a share repeats the word two places before."""
    words = rng.choice(VOCABULARY, WORDS, p=SHARES_V).tolist()
    again = rng.random(WORDS) < repeats
    for place in range(2, WORDS):
        if again[place]:
            words[place] = words[place - 2]
    return " ".join(map(str, words))
