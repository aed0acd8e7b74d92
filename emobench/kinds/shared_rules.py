"""Rules that several kinds of task share: MAUVE's, those of auxiliary models, and of sampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from emobench.core.errors import ConfigError
from emobench.core.settings import check_settings, setting
from emobench.models.model import AuxiliaryModel
from emobench.tasks.rules import RuleGroup, model_rule, seeds

MAUVE_PACKAGES = ("mauve-text", "faiss-cpu", "scikit-learn")
"""What MAUVE is computed with: the versions of these packages are part of a score stage's key."""

VLLM_TEMPERATURES = (0.01, 2.0)
"""What `vllm.SamplingParams` (0.32) takes: less is raised to it without a word, more is refused."""


def rouge_packages(*, stemming: bool) -> tuple[str, ...]:
    """Return what ROUGE is computed with; the stemmer is nltk's."""
    return ("rouge-score", "nltk") if stemming else ("rouge-score",)


@dataclass(frozen=True, kw_only=True)
class MauveRule(RuleGroup):
    """How MAUVE is computed."""

    EXAMPLE: ClassVar = "featurizer=gpt2-large"

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

    EXAMPLE: ClassVar = "model=gpt2-large"

    model: str | None = model_rule(None)
    """A causal LM; None computes no PPL_oracle."""
    scope: Literal["text", "continuation"] = "text"
    """Whether the tokens of the prefix count, which is human, too (official code: yes)."""


@dataclass(frozen=True, kw_only=True)
class CoherenceRule(RuleGroup):
    """The sentence encoder that compares prefix and continuation."""

    EXAMPLE: ClassVar = "encoder=all-mpnet-base-v2"

    encoder: str | None = model_rule(None)
    """The sentence encoder: an alias, a folder or a hub id. null: coherence is not computed."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How continuations are decoded; everything that determines them besides model and prompts."""

    method: Literal["sample", "greedy", "beam"] = "sample"
    """sample: draw each token. greedy: take the most probable one. beam: beam search."""
    samples: int = setting(1, low=1, high=10_000)
    """Continuations of each prompt."""
    seed: int = 0
    """Belongs to the protocol, so that all objectives are sampled with the same random numbers."""
    suppress_eos: bool = True
    """No end of text before the full length; otherwise a continuation may end early."""
    extra_tokens: int = setting(0, low=0, high=2**20)
    """Tokens beyond the full length, at which EOS is allowed (official code: 1)."""
    temperature: float = setting(1.0, above=0, high=1000)
    """The logits are divided by it."""
    top_k: int = setting(0, low=0, high=10**7)
    """Draw from this many of the most probable tokens. 0 keeps all."""
    top_p: float = setting(1.0, above=0, high=1)
    """Draw from the most probable tokens that together have this probability. 1 keeps all."""
    typical_p: float = setting(1.0, above=0, high=1)
    """Draw from the most typical tokens that together have this probability. 1 keeps all."""
    min_p: float = setting(0.0, low=0, high=1)
    """Sample only tokens with at least this fraction, 0 to 1, of the most likely token's probability. 0: all tokens."""
    beams: int = setting(4, low=1, high=1000)
    """beam: the number of beams."""
    backend: Literal["transformers", "vllm"] = "transformers"
    """Who decodes. transformers: the harness, with transformers' models. vllm: vLLM, which has random numbers of its
    own, so that it makes another protocol; its version is part of the key."""

    def __post_init__(self) -> None:
        check_settings(self)
        seeds("seed", self.seed)
        if self.method != "sample" and self.samples > 1:
            raise ConfigError(
                f"`method` is {self.method}, which gives a prompt the same text every time, and `samples` is "
                f"{self.samples}; expected 1: add --set generation.sampling.samples=1."
            )
        if self.backend == "vllm":
            self._check_vllm()

    def _check_vllm(self) -> None:
        """Raise ConfigError for what vLLM does not do, or does otherwise."""
        low, high = VLLM_TEMPERATURES
        if self.method == "beam":
            raise ConfigError("`backend` is vllm, which has no beam search as the harness does; drop one of them.")
        if self.typical_p < 1:
            raise ConfigError(f"`backend` is vllm, which has no typical sampling; drop typical_p={self.typical_p}.")
        if self.min_p > 0 and self.top_p < 1:
            raise ConfigError(
                f"`backend` is vllm, which cuts by min_p before top_p, and not after it; drop min_p={self.min_p} or "
                f"top_p={self.top_p}."
            )
        if self.method == "sample" and not low <= self.temperature <= high:
            raise ConfigError(
                f"`backend` is vllm, which draws at temperatures from {low} to {high}, and `temperature` is "
                f"{self.temperature}; give one of those."
            )
