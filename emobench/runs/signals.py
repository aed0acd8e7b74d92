"""Signals that end a command."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

AGAIN = 0.05
"""Seconds after which a lost interrupt is sent once more."""


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Let a scheduler's SIGTERM and a lost terminal's SIGHUP end a command as Ctrl-C does: by `KeyboardInterrupt`.

    Python prints and forgets an exception where it calls a function by itself, such as a `__del__`; an interrupt that
    arrives there is sent again.
    """
    stops = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]
    explain = sys.unraisablehook

    def keep_interrupt(forgotten: Any) -> None:
        if not isinstance(forgotten.exc_value, KeyboardInterrupt):
            explain(forgotten)
            return
        timer = threading.Timer(AGAIN, os.kill, (os.getpid(), signal.SIGTERM))
        timer.daemon = True
        timer.start()

    try:
        for number in stops:
            signal.signal(number, signal.default_int_handler)
    except ValueError:  # not the main thread: nothing to catch
        stops = []
    else:
        sys.unraisablehook = keep_interrupt
    try:
        yield
    finally:
        sys.unraisablehook = explain
        for number in stops:
            signal.signal(number, signal.SIG_DFL)


def was_interrupted(error: BaseException) -> bool:
    """Say whether an error came of an interrupt: Python 3.11 wraps one that arrives while a class is made."""
    before = error.__cause__ or error.__context__
    return isinstance(error, KeyboardInterrupt) or (before is not None and was_interrupted(before))
