"""Rules and prompts for decoding, and the continuations that it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from emobench.core.errors import ConfigError, MetricError
from emobench.core.settings import check_settings, setting
from emobench.tasks.rules import seeds

VLLM_TEMPERATURES = (0.01, 2.0)
"""The range of `vllm.SamplingParams` (0.32): lower ones are raised to it without a word, higher ones are refused."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How continuations are decoded; everything that determines them except model and prompts."""

    method: Literal["sample", "greedy", "beam"] = "sample"
    """sample: draw each token. greedy: take the most probable one. beam: beam search."""
    samples: int = setting(1, low=1, high=10_000)
    """Continuations of each prompt."""
    seed: int = 0
    """Sampling seed, shared by all objectives. It is part of the protocol."""
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
    """The decoding backend. transformers: the harness, with transformers' models. vllm: vLLM, whose random numbers are
    its own, so that it makes another protocol; its version is part of the key."""

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


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How continuations are decoded; everything but `token_budget` decides what they are."""

    rule: Sampling
    length: int
    """Tokens of a full continuation, without `rule.extra_tokens`."""
    token_budget: int | None = None
    """rows x (prefix + new tokens) of a batch, at most, where a single prompt does not need more; by default what fits
    the device's memory."""

    def __post_init__(self) -> None:
        if self.length < 1 or (self.token_budget is not None and self.token_budget < 1):
            raise ConfigError("length and token_budget must be at least 1.")

    @property
    def new_tokens(self) -> int:
        return self.length + self.rule.extra_tokens

    @property
    def suppressed_steps(self) -> int:
        """Steps, from the first, at which EOS gets no mass (official code: `min_new_tokens`)."""
        return self.length if self.rule.suppress_eos else 0

    @property
    def rows(self) -> int:
        """Rows of a batch that one prompt takes."""
        return self.rule.beams if self.rule.method == "beam" else self.rule.samples

    def ends(self, eos: tuple[int, ...]) -> tuple[int, ...]:
        """Return the ids that may end a text; none where EOS is suppressed to the last step."""
        return eos if self.suppressed_steps < self.new_tokens else ()

    def cut(self, ids: list[int], eos: tuple[int, ...]) -> Continuation:
        """Cut new ids at the first EOS; those before the full length cannot exist, those after it end the text."""
        ends = self.ends(eos)
        for place, token in enumerate(ids):
            if token in ends:
                return Continuation(ids[:place], True)
        return Continuation(ids, False)


class Continuation(NamedTuple):
    """New token ids, without the EOS that ended them, and whether one did."""

    ids: list[int]
    ended: bool


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Prompts that are decoded together."""

    prompts_ids: Sequence[Sequence[int]]
    keys: Sequence[str]
    """The prompts' ids: with the seed and the sample's index they fix the randomness of a row."""
    eos: tuple[int, ...]
    vocabulary: int | None = None
    """Ids from it on are padding of the head, and never decoded."""
    decoding: Decoding

    @property
    def ends(self) -> tuple[int, ...]:
        """The ids that may end a text."""
        return self.decoding.ends(self.eos)


def not_finite() -> MetricError:
    """Return the error for logits that are not finite."""
    return MetricError(
        "The model's logits are not finite, so no text can be decoded; look at its weights or use --dtype float32."
    )


def eos_ids(model: Any) -> tuple[int, ...]:
    """Return the ids that end a text, from the model's generation configuration or else its configuration."""
    for config in (getattr(model, "generation_config", None), model.config):
        value = getattr(config, "eos_token_id", None)
        if value is not None:
            return tuple(value) if isinstance(value, (list, tuple)) else (int(value),)
    return ()
