"""The rules of tasks that read or continue texts: `generation`, `oracle` and `surrogate`.

A group of rules, such as `mauve`, has a `--set` of its own: `--set mauve.featurizer=X` reaches every task that has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emobench.errors import ConfigError
from emobench.tasks.checks import at_least, positive, seeds

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
    max_length: int = 256
    """Tokens of the featurizer that are read of a text, at most."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Of k-means; the score is the mean over them."""

    def __post_init__(self) -> None:
        positive(self, "max_length")
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
    samples: int = 1
    """Continuations of each prompt."""
    seed: int = 0
    """Belongs to the protocol, so that all objectives are sampled with the same random numbers."""
    suppress_eos: bool = True
    """No end of text before the full length; otherwise a continuation may end early."""
    extra_tokens: int = 0
    """Tokens beyond the full length, at which EOS is allowed (official code: 1)."""
    temperature: float = 1.0
    top_k: int = 0
    """0 keeps all, as 1 does for the next two."""
    top_p: float = 1.0
    typical_p: float = 1.0
    min_p: float = 0.0
    beams: int = 4
    """Of `beam`."""
    backend: Literal["transformers", "continuous"] = "transformers"
    """transformers' `generate`, or its continuous batching, whose random numbers are others."""

    def __post_init__(self) -> None:
        positive(self, "samples", "beams")
        seeds("seed", self.seed)
        at_least(self, 0, "extra_tokens", "top_k", "min_p")
        for name in ("temperature", "top_p", "typical_p"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"`{name}` is {getattr(self, name)}; expected a number above 0.")
        for name in ("top_p", "typical_p", "min_p"):
            if getattr(self, name) > 1:
                raise ConfigError(f"`{name}` is {getattr(self, name)}; expected at most 1.")
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
    prefix: int = 20
    continuation: int = 80
    margin: int = 0
    min_characters: int = 0
    without: tuple[str, ...] = ()
    first_texts: int | None = None
    """Only the first texts of the split are looked at."""
    bos: Literal["tokenizer", "none", "one"] = "none"
    """Whether each prompt begins with a beginning-of-text token: "tokenizer" if the tokenizer adds one by itself."""
    joiner: str = ""
    """Between prefix and continuation, in the texts that MAUVE and ROUGE see."""

    def __post_init__(self) -> None:
        positive(self, "prefix", "continuation", "first_texts")
        at_least(self, 0, "margin", "min_characters")

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
    max_length: int = 256
    """Block length of the split's text for PPL_test."""
    test_blocks: int | None = None
    """Blocks of it that PPL_test reads at most; None reads all."""
    limit: int | None = None
    """Prompts at most; None takes all that are long enough."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "max_length", "limit", "test_blocks")

    @property
    def text_tokens(self) -> int | None:
        """The most tokens of a compared text, by the evaluated tokenizer; None where lengths are in words."""
        return self.prefix + self.continuation + self.sampling.extra_tokens if self.unit == "tokens" else None


@dataclass(frozen=True, kw_only=True)
class OracleProtocol:
    """Exact comparison with the oracle language, and samples from the model alone."""

    domain: Literal["source", "target"] = "target"
    texts: int = 1000
    """Texts sampled from the model, and texts of P that they are compared with."""
    length: int = 63
    """Words and end-of-text that a sample may have, and that are read of each test text."""
    prefix: int = 8
    """Words of the prefix of the continuations that ROUGE compares."""
    continuation: int = 16
    seed: int = 0
    mauve: MauveRule = MauveRule()
    limit: int | None = None
    """Test texts, samples and prompts at most."""

    def __post_init__(self) -> None:
        positive(self, "texts", "length", "prefix", "continuation", "limit")
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
    min_words: int = 20
    max_tokens: int = 500
    """Texts of fewer words or more tokens are skipped, as in the official code."""
    limit: int | None = None
    """Texts at most."""

    def __post_init__(self) -> None:
        positive(self, "max_tokens", "limit")
        at_least(self, 0, "min_words")
