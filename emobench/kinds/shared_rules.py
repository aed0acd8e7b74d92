"""Rules that several kinds of task share: MAUVE's, and those of auxiliary models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emobench.core.settings import check_settings, setting
from emobench.models.model import AuxiliaryModel
from emobench.tasks.rules import RuleGroup, model_rule, seeds

MAUVE_PACKAGES = ("mauve-text", "faiss-cpu", "scikit-learn")
"""Packages that compute MAUVE; their versions are part of a score stage's key."""


def rouge_packages(*, stemming: bool) -> tuple[str, ...]:
    """Return the packages that compute ROUGE; the stemmer is nltk's."""
    return ("rouge-score", "nltk") if stemming else ("rouge-score",)


@dataclass(frozen=True, kw_only=True)
class MauveRule(RuleGroup):
    """How MAUVE is computed."""

    featurizer: str = model_rule("pretrained")
    """A causal LM or an encoder: an alias, folder or hub id; "pretrained" is the evaluated model before training."""
    pooling: Literal["mean", "last", "auto"] = "mean"
    """Features of a text. mean: the mean of the final hidden states. last: the last token's hidden state (mauve-text
    with GPT-2-large). auto: last for a causal model, mean for an encoder."""
    max_length: int = setting(256, low=1, high=2**20)
    """Maximum tokens of a text for the featurizer; the rest is cut."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """k-means seeds; the score is the mean over them."""

    def __post_init__(self) -> None:
        check_settings(self)
        seeds("seeds", *self.seeds)

    @property
    def model(self) -> AuxiliaryModel:
        """The featurizer."""
        return AuxiliaryModel(self.featurizer, "features", setting="mauve.featurizer")


@dataclass(frozen=True, kw_only=True)
class OracleRule(RuleGroup):
    """The model whose perplexity of the generated texts is PPL_oracle (EMO paper, 4.1.3)."""

    model: str | None = model_rule(None)
    """A causal LM; None computes no PPL_oracle."""
    scope: Literal["text", "continuation"] = "text"
    """Tokens that count. text: those of the human prefix, too (official code). continuation: the generated ones."""


@dataclass(frozen=True, kw_only=True)
class CoherenceRule(RuleGroup):
    """The sentence encoder that compares prefix and continuation."""

    encoder: str | None = model_rule(None)
    """The sentence encoder: an alias, a folder or a hub id. null: coherence is not computed."""
