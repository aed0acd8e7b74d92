"""Samples on disk, one JSON object a line for each (prompt, sample), and as metrics read them: by sampling run.

Metrics can be computed again from this file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, DataError, UnknownNameError
from emobench.core.reading import parse_mapping
from emobench.core.settings import build
from emobench.inference.decoding.request import Continuation
from emobench.kinds.generation.prompts import ContinuationPrompt, decode


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
        return [[sample.continuation_text for sample in run] for run in self.samples]

    @property
    def token_ids(self) -> list[list[list[int]]]:
        """The generated tokens of the evaluated tokenizer, without EOS, (R, N) lists."""
        return [[sample.continuation_ids for sample in run] for run in self.samples]

    @property
    def pairs(self) -> list[list[tuple[str, str]]]:
        """Prefix with joiner, and continuation, (R, N)."""
        pairs = []
        for run in self.samples:
            pairs.append([(sample.prefix_text + self.joiner, sample.continuation_text) for sample in run])
        return pairs

    @property
    def texts(self) -> list[list[str]]:
        """Prefix and continuation, (R, N)."""
        return [[prefix + continuation for prefix, continuation in run] for run in self.pairs]


def sampling_runs(samples: Sequence[GeneratedSample], joiner: str) -> GeneratedTexts:
    """Group samples, in whatever order they stand; raises DataError unless each prompt has each run's sample once."""
    order: dict[str, int] = {}
    by_prompt: dict[int, dict[str, GeneratedSample]] = {}
    for sample in samples:
        order.setdefault(sample.prompt_id, len(order))
        by_prompt.setdefault(sample.sample, {})[sample.prompt_id] = sample
    runs = []
    for _, run in sorted(by_prompt.items()):
        runs.append(sorted(run.values(), key=lambda sample: order[sample.prompt_id]))
    if len(samples) != len(order) * len(runs) or any(len(run) != len(order) for run in runs):
        raise DataError(
            f"{len(samples)} samples of {len(order)} prompts are not {len(runs)} of each: the file of samples was "
            "altered. Remove its folder and generate again."
        )
    return GeneratedTexts(runs, joiner)


def make_samples(
    prompt: ContinuationPrompt, continuations: Sequence[Continuation], tokenizer: Any
) -> list[GeneratedSample]:
    """Return the samples of one prompt, with the continuations as text."""
    return [
        GeneratedSample(
            prompt_id=prompt.id,
            sample=index,
            prefix_text=prompt.prefix_text,
            reference_text=prompt.reference_text,
            continuation_ids=list(continuation.ids),
            continuation_text=_continuation_text(prompt.prefix_ids, continuation.ids, tokenizer),
            ended=continuation.ended,
        )
        for index, continuation in enumerate(continuations)
    ]


def write_samples(path: Path, samples: Iterable[GeneratedSample]) -> None:
    """Write samples as JSONL (UTF-8)."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{sample_line(sample)}\n" for sample in samples)


def sample_line(sample: GeneratedSample) -> str:
    """Return a sample as a line of JSON."""
    return json.dumps(asdict(sample), ensure_ascii=False)


def read_samples(path: Path) -> list[GeneratedSample]:
    """Read what `write_samples` wrote; a line without a sample is a DataError with file and line."""
    try:
        with path.open(encoding="utf-8") as file:
            return [parse_sample(line, f"{path}:{number}") for number, line in enumerate(file, start=1)]
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 ({error}); generate again.") from None


def parse_sample(line: str, where: str) -> GeneratedSample:
    """Return the sample of a line; DataError, which begins with `where`, for a line without one."""
    try:
        return build(GeneratedSample, parse_mapping(line), where)
    except ValueError as error:
        raise DataError(f"{where}: expected one JSON object a line, got {line[:40]!r} ({error}).") from None
    except (ConfigError, UnknownNameError) as error:
        raise DataError(f"{error} The file holds no samples, or was altered; generate again.") from None


def _continuation_text(prefix_ids: Sequence[int], ids: Sequence[int], tokenizer: Any) -> str:
    """Decode after the prefix, its BOS too: alone, sentencepiece would drop the space that the first token holds.

    Special tokens keep their names, as those of prefix and reference do: with LLaMA, `<unk>` is one of them.
    """
    before, after = decode(prefix_ids, tokenizer), decode([*prefix_ids, *ids], tokenizer)
    return after[len(before) :] if after.startswith(before) else decode(ids, tokenizer)
