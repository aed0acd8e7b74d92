"""JSON and JSON Lines of other tools, which may be a stranger's: bounded, and read without trust in any field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from emobench.core.errors import DataError
from emobench.core.reading import LineError, numbered_lines, open_file, parse_json, read_bytes
from emobench.exchange.evaluation import EXPECTED
from emobench.tasks.lm_eval_numbers import clip


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def listed(value: Any) -> list[Mapping[str, Any]]:
    return [mapping(one) for one in value] if isinstance(value, list) else []


def read_json(path: Path, content: bytes | None = None) -> tuple[bytes, Mapping[str, Any]]:
    """Return a file's bytes, or those that were read before, and the mapping in them. Raises DataError."""
    try:
        content = read_bytes(path) if content is None else content
        return content, mapping(parse_json(content.decode("utf-8")))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    except ValueError as error:
        cut = path.suffix == ".json"
        mend = "it may be truncated. Copy it again." if cut else f"expected {EXPECTED}, or their folder."
        raise DataError(f"{path}: no JSON that can be read ({clip(str(error), 100)}); {mend}") from None


def json_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place and the content of each row of a file of JSON Lines, or of one JSON list. Raises DataError."""
    try:
        is_list = read_bytes(path, 1) == b"["
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    if not is_list:
        yield from json_lines(path)
        return
    try:
        rows = listed(parse_json(read_bytes(path).decode("utf-8")))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise DataError(f"{path}: no list of samples ({clip(str(error), 80)}); it may be truncated.") from None
    for place, row in enumerate(rows):
        yield f"{path}: row {place}", row


def json_lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place and the content of each line. Raises DataError for a line that is no JSON."""
    count = 0
    try:
        with open_file(path) as file:
            for count, line in numbered_lines(file):
                yield f"{path}:{count}", mapping(parse_json(line.decode("utf-8")))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    except LineError as error:
        raise DataError(f"{path}:{error.number}: a line of {error}; expected a sample.") from None
    except ValueError as error:
        raise DataError(f"{path}:{count}: no JSON of a sample ({clip(str(error), 80)}); it may be truncated.") from None
