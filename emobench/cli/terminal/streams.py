"""The standard streams, which may be closed, full, without UTF-8 or an unread pipe, and text that is safe to print.

Everything that commands print goes through `visible`, because strangers may have written the text.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from emobench.core.errors import EmobenchError, RunError

EXIT_CODE = 130
"""The exit code after Ctrl-C, as shells have it."""
UNREAD = 141
"""The exit code after the reader of a pipe has gone, as shells have it: 128 and the number of SIGPIPE."""
_COLUMNS = re.compile(r"[2-9]\d|[1-9]\d{2,3}")
"""Widths of a terminal that a table fits; another value is ignored, because nothing would be printed."""
_ENDLESS = re.compile(r".{1500,}")
"""A line of an error that repeats a long value, which is printed in part."""


class OutputError(RunError):
    """Standard output cannot be written."""


class UnreadError(OutputError):
    """Standard output is a pipe whose reader has ended; no message is printed."""

    exit_code = UNREAD


def visible(text: str) -> str:
    """Return a line with anything that a terminal would act on as its escape, such as `\\x1b`."""
    return "".join(map(_visible_character, text))


def _visible_character(character: str) -> str:
    if _is_harmless(character):
        return character
    return character.encode("unicode_escape").decode()


def visible_lines(text: str) -> str:
    """Return `visible` of each line."""
    return text if text.isprintable() else "\n".join(map(visible, text.split("\n")))


def visible_json(text: str) -> str:
    """Return the same JSON, with characters escaped that a terminal would act on."""
    if text.isascii():
        return text
    return "".join(map(_json_character, text))


def _is_harmless(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _json_character(character: str) -> str:
    if character == "\n" or _is_harmless(character):
        return character
    return json.dumps(character)[1:-1]


class Results(io.TextIOWrapper):
    """Standard output: what cannot be written to it is an OutputError, not a traceback."""

    def write(self, text: str, /) -> int:
        with _as_sentence():
            return super().write(text)

    def flush(self) -> None:
        with _as_sentence():
            super().flush()


class Remarks(io.TextIOWrapper):
    """Standard error: progress that cannot be written is no reason to stop."""

    def write(self, text: str, /) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


@contextmanager
def _as_sentence() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        _discard()
        raise UnreadError("The reader of the standard output has ended.") from None
    except OSError as error:
        _discard()
        why = "is closed" if error.errno == errno.EBADF else f"cannot be written: {error.strerror}"
        raise OutputError(
            f"The standard output {why}. Recorded entries and written files are complete; print them again to a place "
            "with room."
        ) from None


def _discard() -> None:
    """Let the rest of the output go nowhere: Python writes it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


@contextmanager
def standard_streams() -> Iterator[None]:
    """Make the standard streams safe while a command runs; the streams of a test do not change."""
    if os.environ.get("COLUMNS") is not None and not _COLUMNS.fullmatch(os.environ["COLUMNS"]):
        del os.environ["COLUMNS"]
    if sys.stdout is not sys.__stdout__:
        yield
        return
    # A closed stream's number would be given to the next file that is opened, and what libraries print go there.
    _open_if_closed(1, os.O_RDONLY)  # writing to it fails, as it should
    _open_if_closed(2, os.O_WRONLY)
    sys.stdout = sys.__stdout__ = _remade(Results, sys.stdout, 1)
    sys.stderr = sys.__stderr__ = _remade(Remarks, sys.stderr, 2)
    try:
        yield
    finally:
        sys.stdout.flush()


def _open_if_closed(number: int, flags: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, flags)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)


def _remade(cls: type[io.TextIOWrapper], stream: Any, number: int) -> Any:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    if stream is not None:
        stream.flush()
    lines = number == 2 or os.isatty(number)
    return cls(open(number, "wb", closefd=False), encoding=encoding, errors="replace", line_buffering=lines)


def print_text(text: str) -> None:
    """Print lines of text on stdout as they are, such as Markdown."""
    sys.stdout.write(visible_lines(text.removesuffix("\n")) + "\n")


def remark(*lines: str) -> None:
    """Print lines on stderr, which is for everything but results."""
    for line in lines:
        sys.stderr.write(visible_lines(line) + "\n")


def fail(error: EmobenchError) -> int:
    """Print an error of ours as a sentence, and return its exit code."""
    if not isinstance(error, UnreadError):
        message = _ENDLESS.sub(lambda line: f"{line[0][:600]} ... {line[0][-300:]}", str(error))
        remark(f"error: {message}")
    return error.exit_code


def explain_interrupt() -> int:
    """Print how to continue after Ctrl-C or a signal like it, and return the exit code."""
    with suppress(OSError):  # the terminal may be what was lost
        remark("", "Stopped. Run the same command again to go on from the last finished stage or checkpoint.")
    return EXIT_CODE
