"""Losses of prompts on disk: one JSON object a line, for each test example. Answers and metrics are made from these."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from emobench.config import build
from emobench.errors import ConfigError, DataError, UnknownNameError


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The losses of one test example's prompts, one of each label in the order of the protocol's `ties`.

    Losses are sums in nats. A label's own tokens go from the first one of its text to the end of the prompt.
    """

    id: str
    label: str
    """The class that is right."""
    shots: tuple[str, ...]
    dropped: int
    prompt_nats: tuple[float, ...]
    prompt_tokens: tuple[int, ...]
    """Tokens that are no EOS: what OpenICL divides by, one more than are scored where no BOS is."""
    label_nats: tuple[float, ...] = ()
    """Empty where the tokenizer gives no offsets; so are the next two."""
    label_tokens: tuple[int, ...] = ()
    label_bytes: tuple[int, ...] = ()
    content_free_nats: tuple[float, ...] = ()
    """The labels' own losses behind a content-free input, the mean over the protocol's inputs; calibrated only."""


def append_samples(path: Path, samples: Iterable[Sample]) -> None:
    """Append samples as JSON Lines (UTF-8), in one write."""
    text = "".join(json.dumps(asdict(sample), ensure_ascii=False) + "\n" for sample in samples)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def resume_samples(path: Path) -> list[Sample]:
    """Return the samples that an interrupted attempt left, after cutting off a last line that it did not finish."""
    if not path.is_file():
        return []
    with path.open("r+b") as file:
        file.truncate(file.read().rfind(b"\n") + 1)
    return read_samples(path)


def read_samples(path: Path) -> list[Sample]:
    """Read samples; DataError for a line that is none."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        where = f"{path}:{number}"
        try:
            found.append(build(Sample, json.loads(line), where))
        except (ValueError, ConfigError, UnknownNameError) as error:
            raise DataError(f"{where} holds no losses of a prompt, or was altered ({error}); score again.") from None
    return found
