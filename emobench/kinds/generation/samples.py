"""Samples, one for each (prompt, sample) in a file of rows, and as metrics read them: by sampling run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from emobench.core.errors import DataError
from emobench.inference.decoding.request import Continuation
from emobench.kinds.generation.prompts import ContinuationPrompt, decode

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class GeneratedSample:
    """One continuation of one prompt."""

    prompt_id: str
    sample: int  # index among the prompt's samples
    prefix_text: str
    reference_text: str
    continuation_ids: list[int]
    continuation_text: str
    ended: bool  # by EOS, which is not among the ids

    @property
    def key(self) -> tuple[str, int]:
        return self.prompt_id, self.sample


@dataclass(frozen=True)
class GeneratedTexts:
    """The samples of all prompts: R sampling runs of N prompts. Run r holds sample r of each prompt."""

    samples: Sequence[Sequence[GeneratedSample]]
    """(R, N), each run in the order of `ids`."""
    joiner: str
    """Between prefix and continuation."""

    @property
    def ids(self) -> list[str]:
        """The prompts' ids, (N,)."""
        return [sample.prompt_id for sample in self.samples[0]]

    @property
    def prefixes(self) -> list[str]:
        """The prompts as text, (N,)."""
        return [sample.prefix_text for sample in self.samples[0]]

    @property
    def references(self) -> list[str]:
        """The human texts, prefix and human continuation, (N,)."""
        return [sample.reference_text for sample in self.samples[0]]

    @property
    def continuations(self) -> list[list[str]]:
        """The generated texts, without the prefix, (R, N)."""
        return self._of_each(lambda sample: sample.continuation_text)

    @property
    def token_ids(self) -> list[list[list[int]]]:
        """The generated tokens of the evaluated tokenizer, without EOS, (R, N) lists."""
        return self._of_each(lambda sample: sample.continuation_ids)

    @property
    def pairs(self) -> list[list[tuple[str, str]]]:
        """Prefix with joiner, and continuation, (R, N)."""
        return self._of_each(lambda sample: (sample.prefix_text + self.joiner, sample.continuation_text))

    @property
    def texts(self) -> list[list[str]]:
        """Prefix and continuation, (R, N)."""
        return self._of_each(lambda sample: sample.prefix_text + self.joiner + sample.continuation_text)

    def _of_each(self, read: Callable[[GeneratedSample], T]) -> list[list[T]]:
        return [list(map(read, run)) for run in self.samples]


def sampling_runs(samples: Sequence[GeneratedSample], joiner: str) -> GeneratedTexts:
    """Group samples, in whatever order they stand; raises DataError unless each prompt has each run's sample once."""
    ids = list(dict.fromkeys(sample.prompt_id for sample in samples))
    by_key = {(sample.sample, sample.prompt_id): sample for sample in samples}
    runs = []
    for run in sorted({sample.sample for sample in samples}):
        runs.append([by_key[run, key] for key in ids if (run, key) in by_key])
    if len(samples) != len(by_key) or len(samples) != len(ids) * len(runs):
        raise DataError(
            f"{len(samples)} samples of {len(ids)} prompts are not {len(runs)} of each: the file of samples was "
            "altered. Remove its folder and generate again."
        )
    return GeneratedTexts(runs, joiner)


def make_samples(
    prompt: ContinuationPrompt, continuations: Sequence[Continuation], tokenizer: Any
) -> list[GeneratedSample]:
    """Return the samples of one prompt, with the continuations as text.

    Decodes after the prefix, its BOS too: alone, sentencepiece would drop the space that the first token holds.
    Special tokens keep their names, as those of prefix and reference do: with LLaMA, `<unk>` is one of them.
    """
    before = decode(prompt.prefix_ids, tokenizer)
    samples = []
    for index, continuation in enumerate(continuations):
        ids = list(continuation.ids)
        full = decode([*prompt.prefix_ids, *ids], tokenizer)
        sample = GeneratedSample(
            prompt_id=prompt.id,
            sample=index,
            prefix_text=prompt.prefix_text,
            reference_text=prompt.reference_text,
            continuation_ids=ids,
            continuation_text=full[len(before) :] if full.startswith(before) else decode(ids, tokenizer),
            ended=continuation.ended,
        )
        samples.append(sample)
    return samples
