"""What happens at Ctrl-C, and at the signals of a scheduler or a lost terminal."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from emobench.cli.terminal.streams import remark

EXIT_CODE = 130
"""The exit code after Ctrl-C, as shells have it."""


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Let a scheduler's SIGTERM and a lost terminal's SIGHUP end a command as Ctrl-C does: by `KeyboardInterrupt`."""
    stops = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]
    try:
        for number in stops:
            signal.signal(number, signal.default_int_handler)
    except ValueError:  # not the main thread: nothing to catch
        stops = []
    try:
        yield
    finally:
        for number in stops:
            signal.signal(number, signal.SIG_DFL)


def explain_interrupt() -> int:
    """Print how to go on after Ctrl-C, and return the exit code."""
    with suppress(OSError):  # the terminal may be what was lost
        remark("", "Stopped. Run the same command again to go on from the last finished stage or checkpoint.")
    return EXIT_CODE
