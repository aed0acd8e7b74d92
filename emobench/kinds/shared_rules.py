"""Rules that several kinds of task share: MAUVE's, and those of auxiliary models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emobench.core.settings import check_settings, setting
from emobench.models.model import AuxiliaryModel
from emobench.tasks.rules import RuleGroup, model_rule, seeds

MAUVE_PACKAGES = ("mauve-text", "faiss-cpu", "scikit-learn")
"""What MAUVE is computed with: the versions of these packages are part of a score stage's key."""


def rouge_packages(*, stemming: bool) -> tuple[str, ...]:
    """Return what ROUGE is computed with; the stemmer is nltk's."""
    return ("rouge-score", "nltk") if stemming else ("rouge-score",)


@dataclass(frozen=True, kw_only=True)
class MauveRule(RuleGroup):
    """How MAUVE is computed."""

    featurizer: str = model_rule("pretrained")
    """A causal LM or an encoder: an alias, folder or hub id; "pretrained" is the evaluated model before training."""
    pooling: Literal["mean", "last", "auto"] = "mean"
    """The mean of the final hidden states, or the last token's (mauve-text with GPT-2-large). "auto" is the last
    token's of a causal model, the only one that has read the whole text, and the mean of an encoder's."""
    max_length: int = setting(256, low=1, high=2**20)
    """Tokens of the featurizer that are read of a text, at most."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Of k-means; the score is the mean over them."""

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
    """Whether the tokens of the prefix count, which is human, too (official code: yes)."""


@dataclass(frozen=True, kw_only=True)
class CoherenceRule(RuleGroup):
    """The sentence encoder that compares prefix and continuation."""

    encoder: str | None = model_rule(None)
    """The sentence encoder: an alias, a folder or a hub id. null: coherence is not computed."""
