"""Losses of prompts on disk: one JSON object a line, for each test example. Answers and metrics are made from these."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from emobench.core.errors import ConfigError, DataError, UnknownNameError
from emobench.core.reading import parse_mapping
from emobench.core.settings import build


@dataclass(frozen=True, kw_only=True)
class ExampleLosses:
    """The losses of one test example's prompts, one of each label in the order of the protocol's `ties`.

    Losses are sums in nats. A label's own tokens go from the first one of its text to the end of the prompt.
    """

    id: str
    label: str
    """The class that is right."""
    shots: tuple[str, ...]
    dropped: int
    """Shots left out because the prompt was too long."""
    prompt_nats: tuple[float, ...]
    """Empty where the protocol's `scorer` needs the labels' losses alone."""
    prompt_tokens: tuple[int, ...]
    """Tokens other than EOS: what OpenICL divides by, one more than are scored if there is no BOS."""
    label_nats: tuple[float, ...] = ()
    """Empty where the tokenizer gives no offsets; so are the next two."""
    label_tokens: tuple[int, ...] = ()
    label_bytes: tuple[int, ...] = ()
    content_free_nats: tuple[float, ...] = ()
    """The labels' own losses behind a content-free input, the mean over the protocol's inputs; calibrated only."""
    cut: int = 0
    """Tokens that the end of the longest label's prompt lost because it was too long."""


def sample_line(losses: ExampleLosses) -> str:
    """Return losses as a line of JSON."""
    return json.dumps(asdict(losses), ensure_ascii=False)


def parse_sample(line: str, where: str) -> ExampleLosses:
    """Return the losses of a line; DataError, which begins with `where`, for a line that cannot be read."""
    try:
        return build(ExampleLosses, parse_mapping(line), where)
    except (ValueError, ConfigError, UnknownNameError) as error:
        raise DataError(f"{where} holds no losses of a prompt, or was altered ({error}); score again.") from None


def write_samples(path: Path, losses: Iterable[ExampleLosses]) -> None:
    """Write losses as JSON Lines (UTF-8)."""
    path.write_text("".join(f"{sample_line(example)}\n" for example in losses), encoding="utf-8")


def read_samples(path: Path) -> list[ExampleLosses]:
    """Read losses; DataError for a line that cannot be read."""
    try:
        with path.open(encoding="utf-8") as file:
            return [parse_sample(line, f"{path}:{number}") for number, line in enumerate(file, start=1)]
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 ({error}); score again.") from None
