"""Samples on disk: one JSON object a line, for each (prompt, sample). Metrics can be computed again from this file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from emobench.config import build
from emobench.errors import ConfigError, DataError, UnknownNameError
from emobench.kinds.generation.decoding.request import Continuation
from emobench.kinds.generation.prompts import Prompt


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One continuation of one prompt."""

    prompt_id: str
    sample: int  # index among the prompt's samples
    prefix_text: str
    reference_text: str
    continuation_ids: list[int]
    continuation_text: str
    ended: bool  # by EOS, which is not among the ids

    def full_text(self, joiner: str = "") -> str:
        """Return what MAUVE and ROUGE see: prefix, the rule's joiner, continuation."""
        return self.prefix_text + joiner + self.continuation_text


def make_samples(prompt: Prompt, continuations: Sequence[Continuation], tokenizer: Any) -> list[Sample]:
    """Return the samples of one prompt, with the continuations as text."""
    return [
        Sample(
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


def write_samples(path: Path, samples: Iterable[Sample]) -> None:
    """Write samples as JSONL (UTF-8)."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{sample_line(sample)}\n" for sample in samples)


def sample_line(sample: Sample) -> str:
    """Return a sample as a line of JSON."""
    return json.dumps(asdict(sample), ensure_ascii=False)


def read_samples(path: Path) -> list[Sample]:
    """Read what `write_samples` wrote; a line that is no sample is a DataError with file and line."""
    with path.open(encoding="utf-8") as file:
        return [parse_sample(line, f"{path}:{number}") for number, line in enumerate(file, start=1)]


def parse_sample(line: str, where: str) -> Sample:
    """Return the sample of a line; DataError, which begins with `where`, for a line that is none."""
    try:
        return build(Sample, json.loads(line), where)
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: expected one JSON object a line, got {line[:40]!r} ({error}).") from None
    except (ConfigError, UnknownNameError) as error:
        raise DataError(f"{error} The file holds no samples, or was altered; generate again.") from None


def _continuation_text(prefix_ids: Sequence[int], ids: Sequence[int], tokenizer: Any) -> str:
    """Decode after the prefix, its BOS too: alone, sentencepiece would drop the space that the first token holds.

    Special tokens keep their names, as those of prefix and reference do: with LLaMA, `<unk>` is one of them.
    """
    before, after = _decode(prefix_ids, tokenizer), _decode([*prefix_ids, *ids], tokenizer)
    return after[len(before) :] if after.startswith(before) else _decode(ids, tokenizer)


def _decode(ids: Sequence[int], tokenizer: Any) -> str:
    return tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
