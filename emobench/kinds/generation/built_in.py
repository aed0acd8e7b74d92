"""The built-in metrics of generated texts, which every task of kind `generation` computes; the equations are in
`emobench.metrics`."""

from __future__ import annotations

from itertools import chain
from typing import ClassVar

import numpy as np

from emobench.core.hooks import hookimpl
from emobench.kinds.generation.metric import MetricContext, MetricGroup
from emobench.kinds.generation.rules import GenerationProtocol
from emobench.kinds.generation.samples import GeneratedTexts
from emobench.kinds.interface import Scores
from emobench.kinds.shared_rules import MAUVE_PACKAGES, rouge_packages
from emobench.metrics.coherence import COHERENCE, coherence
from emobench.metrics.mauve import MAUVE, MAUVE_RUNS, mauve_scores
from emobench.metrics.perplexity import PPL_ORACLE
from emobench.metrics.repetition import DISTINCTNESS, REPETITION, SELF_BLEU, distinct, repetition, self_bleu
from emobench.metrics.rouge import ROUGE, rouge
from emobench.metrics.token_pass import oracle_perplexity


class Mauve(MetricGroup):
    """How close the distribution of generated texts is to that of human texts (Pillutla et al., NeurIPS 2021)."""

    name = "mauve"
    measures = MAUVE
    packages = MAUVE_PACKAGES

    def score(self, texts: GeneratedTexts, context: MetricContext) -> Scores:
        human_ND = context.features(texts.references, keep=True)
        generated_MD = context.features(list(chain.from_iterable(texts.texts)))
        runs_MD = np.split(generated_MD, len(texts.samples))
        scores, runs = mauve_scores(human_ND, runs_MD, seeds=context.rules.mauve.seeds, ids=texts.ids)
        context.files[MAUVE_RUNS] = runs
        return scores


class OraclePerplexity(MetricGroup):
    """Perplexity of the generated texts under another model, that of the rule `oracle.model` (EMO paper, 4.1.3)."""

    name = "ppl-oracle"
    measures: ClassVar = {"ppl_oracle": PPL_ORACLE}

    def score(self, texts: GeneratedTexts, context: MetricContext) -> Scores:
        oracle, scope = context.model("oracle"), context.rules.oracle.scope
        given = (texts.pairs, texts.ids, oracle.model, oracle.tokenizer)
        with context.work("perplexity under the oracle", "texts") as progress:
            return {"ppl_oracle": oracle_perplexity(*given, scope=scope, progress=progress)}


class Rouge(MetricGroup):
    """Overlap of words with the human text, F1 (Lin, 2004)."""

    name = "rouge"
    measures = ROUGE
    packages = rouge_packages(stemming=False)

    def score(self, texts: GeneratedTexts, context: MetricContext) -> Scores:
        with context.work("ROUGE", "prompts") as progress:
            return rouge(texts.texts, texts.references, texts.ids, stemming=context.rules.stemming, progress=progress)


class Repetition(MetricGroup):
    """Repeated n-grams within a text (Su et al., NeurIPS 2022)."""

    name = "repetition"
    measures = REPETITION

    def score(self, texts: GeneratedTexts, context: MetricContext) -> Scores:
        return repetition(texts.continuations, texts.ids)


class Distinct(MetricGroup):
    """Different n-grams over all words of a sampling run (Li et al., NAACL 2016)."""

    name = "distinct"
    measures = DISTINCTNESS

    def score(self, texts: GeneratedTexts, context: MetricContext) -> Scores:
        return distinct(texts.continuations)


class SelfBleu(MetricGroup):
    """How similar the texts of a sampling run are to one another (Zhu et al., SIGIR 2018)."""

    name = "self-bleu"
    measures: ClassVar = {"self_bleu": SELF_BLEU}

    def score(self, texts: GeneratedTexts, context: MetricContext) -> Scores:
        return {"self_bleu": self_bleu(texts.continuations)}


class Coherence(MetricGroup):
    """Cosine of the sentence embeddings of prefix and continuation (Su et al., NeurIPS 2022).

    The encoder is that of the rule `coherence.encoder`.
    """

    name = "coherence"
    measures: ClassVar = {"coherence": COHERENCE}
    packages = ("sentence-transformers",)

    def score(self, texts: GeneratedTexts, context: MetricContext) -> Scores:
        prefixes_ND = context.embed("coherence", texts.prefixes, keep=True)
        score = coherence(prefixes_ND, texts.continuations, texts.ids, lambda texts: context.embed("coherence", texts))
        return {"coherence": score}


BUILT_IN: tuple[type[MetricGroup], ...] = (Mauve, OraclePerplexity, Rouge, Repetition, Distinct, SelfBleu, Coherence)


@hookimpl
def emobench_metrics() -> list[type[MetricGroup]]:
    return list(BUILT_IN)


def built_in(rules: GenerationProtocol) -> list[MetricGroup]:
    """Return the metrics that a task computes without naming them."""
    without = {OraclePerplexity: rules.oracle.model is None, Coherence: rules.coherence.encoder is None}
    return [cls() for cls in BUILT_IN if not without.get(cls)]
