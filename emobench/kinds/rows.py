"""Rows of results on disk: one JSON object a line, and generation whose finished batches survive a kill."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from emobench.core.errors import ConfigError, DataError, UnknownNameError
from emobench.core.reading import LineError, json_rows
from emobench.core.settings import build
from emobench.kinds.interface import Subject
from emobench.kinds.journal import UNFINISHED, Journal

if TYPE_CHECKING:
    from emobench.inference.decoding.request import Continuation, Decoding

T = TypeVar("T")
R = TypeVar("R", bound="Row")


class Row(Protocol):
    """A dataclass of one continuation."""

    @property
    def key(self) -> tuple[str, int]:
        """The key of the prompt, and the number of the continuation."""
        ...


def row_line(row: Any) -> str:
    """Return a dataclass as a line of JSON, without its end."""
    return json.dumps(asdict(row), ensure_ascii=False)


def write_rows(path: Path, rows: Iterable[Any]) -> None:
    """Write dataclasses as JSON Lines (UTF-8)."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{row_line(row)}\n" for row in rows)


def read_rows(cls: type[T], path: Path) -> list[T]:
    """Read the dataclasses that `write_rows` wrote; a line without one is a DataError with file and line."""
    rows = []
    try:
        for number, row in json_rows(path):
            rows.append(build(cls, row, f"{path}:{number}"))
    except LineError as error:
        raise DataError(f"{path}:{error.number}: {error}; generate again.") from None
    except (ConfigError, UnknownNameError) as error:
        raise DataError(f"{error} The file holds other rows, or was altered; generate again.") from None
    return rows


def generate_rows(
    subject: Subject,
    cls: type[R],
    folder: Path,
    prompts: Mapping[str, Sequence[int]],
    decoding: Decoding,
    rows_of: Callable[[int, Sequence[Continuation]], Iterable[R]],
    title: str,
    unit: str,
    ends: tuple[int, ...] = (),
) -> list[R]:
    """Return the rows of all continuations of prompts, in order; `folder` may hold those of an interrupted attempt.

    Batches are kept in a journal as they end. `rows_of` makes the rows of a prompt, by its place. `title` and `unit`
    name the work.
    """
    from emobench.inference.decoding.continuations import iter_continuations
    from emobench.models.head import token_count

    journal = Journal(folder / UNFINISHED)
    rows: dict[tuple[str, int], R] = {}
    for line in journal.read():
        row = build(cls, json.loads(line), UNFINISHED)
        rows[row.key] = row
    keys = list(prompts)
    samples = decoding.rule.samples
    counts = Counter(key for key, _ in rows)
    done = {index for index, key in enumerate(keys) if counts[key] == samples}
    with subject.work(title, unit) as progress:
        for batch in iter_continuations(
            subject.files or subject.model,
            list(prompts.values()),
            prompt_keys=keys,
            decoding=decoding,
            ends=ends,
            vocabulary=token_count(subject.tokenizer),
            done=frozenset(done),
        ):
            made = []
            for index, continuations in batch:
                if index not in done:
                    made += rows_of(index, continuations)
                    done.add(index)
            journal.append(map(row_line, made))
            for row in made:
                rows[row.key] = row
            progress(len(done), len(keys))
    return [rows[key, sample] for key in keys for sample in range(samples)]
