"""The rules of tasks that read or continue texts: `generation`, `oracle` and `surrogate`.

A group of rules, such as `mauve`, has a `--set` of its own: `--set mauve.featurizer=X` reaches every task that has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emobench.config import check_ranges, ranged
from emobench.errors import ConfigError
from emobench.tasks.checks import seeds

GROUPS = ("mauve", "oracle", "coherence")
"""Groups of rules that `--set` names without the kind of task before them."""


@dataclass(frozen=True, kw_only=True)
class MauveRule:
    """How MAUVE is computed."""

    featurizer: str = "pretrained"
    """A causal LM or an encoder: an alias, folder or hub id; "pretrained" is the evaluated model before training."""
    pooling: Literal["mean", "last", "auto"] = "mean"
    """The mean of the final hidden states, or the last token's (mauve-text with GPT-2-large). "auto" is the last
    token's of a causal model, the only one that has read the whole text, and the mean of an encoder's."""
    max_length: int = ranged(256, low=1, high=2**20)
    """Tokens of the featurizer that are read of a text, at most."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Of k-means; the score is the mean over them."""

    def __post_init__(self) -> None:
        check_ranges(self)
        seeds("seeds", *self.seeds)


@dataclass(frozen=True, kw_only=True)
class OracleRule:
    """The model whose perplexity of the generated texts is PPL_oracle (EMO paper, 4.1.3)."""

    model: str | None = None
    """A causal LM; None computes no PPL_oracle."""
    scope: Literal["text", "continuation"] = "text"
    """Whether the tokens of the prefix count, which is human, too (official code: yes)."""


@dataclass(frozen=True, kw_only=True)
class CoherenceRule:
    """The sentence encoder that compares prefix and continuation."""

    encoder: str | None = None
    """None computes no coherence."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How continuations are decoded; everything that determines them besides model and prompts."""

    method: Literal["sample", "greedy", "beam"] = "sample"
    samples: int = ranged(1, low=1, high=10_000)
    """Continuations of each prompt."""
    seed: int = 0
    """Belongs to the protocol, so that all objectives are sampled with the same random numbers."""
    suppress_eos: bool = True
    """No end of text before the full length; otherwise a continuation may end early."""
    extra_tokens: int = ranged(0, low=0, high=2**20)
    """Tokens beyond the full length, at which EOS is allowed (official code: 1)."""
    temperature: float = ranged(1.0, above=0, high=1000)
    top_k: int = ranged(0, low=0, high=10**7)
    """0 keeps all, as 1 does for the next two."""
    top_p: float = ranged(1.0, above=0, high=1)
    typical_p: float = ranged(1.0, above=0, high=1)
    min_p: float = ranged(0.0, low=0, high=1)
    beams: int = ranged(4, low=1, high=1000)
    """Of `beam`."""
    backend: Literal["transformers", "continuous"] = "transformers"
    """transformers' `generate`, or its continuous batching, whose random numbers are others."""

    def __post_init__(self) -> None:
        check_ranges(self)
        seeds("seed", self.seed)
        if self.method != "sample" and self.samples > 1:
            raise ConfigError(
                f"`method` is {self.method}, which gives a prompt the same text every time, and `samples` is "
                f"{self.samples}; expected 1: add --set generation.sampling.samples=1."
            )
        if self.backend == "continuous":
            self._check_continuous()

    def _check_continuous(self) -> None:
        if self.method == "beam":
            raise ConfigError("`backend` is continuous, which has no beam search; expected backend=transformers.")
        if self.suppress_eos and self.extra_tokens:
            raise ConfigError(
                f"`backend` is continuous, which cannot suppress EOS for the full length and allow it at "
                f"`extra_tokens`, {self.extra_tokens} here; expected backend=transformers, extra_tokens=0 or "
                "suppress_eos=false."
            )


@dataclass(frozen=True, kw_only=True)
class PromptRule:
    """How prompts are cut from texts.

    A text is used if it holds at least prefix + continuation + margin units and `min_characters` characters, and none
    of the strings in `without`. A BOS counts as no unit.
    """

    split: Literal["test", "validation"] = "test"
    unit: Literal["tokens", "words"] = "tokens"
    """What the lengths count: tokens of the evaluated tokenizer, or words split on single spaces (official code)."""
    prefix: int = ranged(20, low=1, high=2**20)
    continuation: int = ranged(80, low=1, high=2**20)
    margin: int = ranged(0, low=0, high=10**9)
    min_characters: int = ranged(0, low=0, high=10**9)
    without: tuple[str, ...] = ()
    first_texts: int | None = ranged(None, low=1, high=10**12)
    """Only the first texts of the split are looked at."""
    bos: Literal["tokenizer", "none", "one"] = "none"
    """Whether each prompt begins with a beginning-of-text token: "tokenizer" if the tokenizer adds one by itself."""
    joiner: str = ""
    """Between prefix and continuation, in the texts that MAUVE and ROUGE see."""

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def shortest(self) -> int:
        """Units that a text must hold to be used."""
        return self.prefix + self.continuation + self.margin


@dataclass(frozen=True, kw_only=True)
class GenerationProtocol(PromptRule):
    """Continuations of prefixes of real texts (EMO paper, 4.1)."""

    sampling: Sampling = Sampling()
    mauve: MauveRule = MauveRule()
    oracle: OracleRule = OracleRule()
    coherence: CoherenceRule = CoherenceRule()
    stemming: bool = False
    """Whether ROUGE stems words."""
    max_length: int = ranged(256, low=1, high=2**20)
    """Block length of the split's text for PPL_test."""
    test_blocks: int | None = ranged(None, low=1, high=10**12)
    """Blocks of it that PPL_test reads at most; None reads all."""
    limit: int | None = ranged(None, low=1, high=10**12)
    """Prompts at most; None takes all that are long enough."""

    @property
    def text_tokens(self) -> int | None:
        """The most tokens of a compared text, by the evaluated tokenizer; None where lengths are in words."""
        return self.prefix + self.continuation + self.sampling.extra_tokens if self.unit == "tokens" else None


@dataclass(frozen=True, kw_only=True)
class OracleProtocol:
    """Exact comparison with the oracle language, and samples from the model alone."""

    domain: Literal["source", "target"] = "target"
    texts: int = ranged(1000, low=1, high=10**6)
    """Texts sampled from the model, and texts of P that they are compared with."""
    length: int = ranged(63, low=1, high=2**20)
    """Words and end-of-text that a sample may have, and that are read of each test text."""
    prefix: int = ranged(8, low=1, high=2**20)
    """Words of the prefix of the continuations that ROUGE compares."""
    continuation: int = ranged(16, low=1, high=2**20)
    seed: int = 0
    mauve: MauveRule = MauveRule()
    limit: int | None = ranged(None, low=1, high=10**12)
    """Test texts, samples and prompts at most."""

    def __post_init__(self) -> None:
        check_ranges(self)
        seeds("seed", self.seed)

    @property
    def text_tokens(self) -> int | None:
        """The most symbols of a compared text."""
        return self.length


@dataclass(frozen=True, kw_only=True)
class SurrogateProtocol:
    """Token by token, the model against a larger one of the same tokenizer on human texts (EMO paper, A.4.1)."""

    model: str = "gpt-neo-1.3b"
    """The surrogate of the data's distribution."""
    split: Literal["test", "validation"] = "validation"
    min_words: int = ranged(20, low=0, high=10**9)
    max_tokens: int = ranged(500, low=1, high=2**20)
    """Texts of fewer words or more tokens are skipped, as in the official code."""
    limit: int | None = ranged(None, low=1, high=10**12)
    """Texts at most."""

    def __post_init__(self) -> None:
        check_ranges(self)
