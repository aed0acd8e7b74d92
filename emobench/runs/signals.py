"""Signals that end a command."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from emobench.runs.execution.reporter import Progress

AGAIN = 0.05
"""Seconds after which a lost interrupt is sent once more."""
_received: list[int] = []


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Let a scheduler's SIGTERM and a lost terminal's SIGHUP end a command as Ctrl-C does: by `KeyboardInterrupt`.

    Python prints and forgets an exception where it calls a function by itself, such as a `__del__`; an interrupt that
    arrives there is sent again. A library may drop one without a word: see `require_uninterrupted`.
    """
    before: dict[int, Any] = {}
    explain = sys.unraisablehook

    def interrupt(number: int, frame: Any) -> None:
        _received.append(number)
        raise KeyboardInterrupt

    def keep_interrupt(forgotten: Any) -> None:
        if not isinstance(forgotten.exc_value, KeyboardInterrupt):
            explain(forgotten)
            return
        timer = threading.Timer(AGAIN, os.kill, (os.getpid(), signal.SIGTERM))
        timer.daemon = True
        timer.start()

    if threading.current_thread() is threading.main_thread():  # only there can signals be handled
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handler = signal.getsignal(number)
            if handler in (signal.SIG_DFL, signal.default_int_handler):  # nohup ignores SIGHUP
                before[number] = signal.signal(number, interrupt)
        sys.unraisablehook = keep_interrupt
    try:
        yield
    finally:
        sys.unraisablehook = explain
        _received.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


def require_uninterrupted() -> None:
    """Raise KeyboardInterrupt if a signal came, also where a library caught its exception.

    Long work calls this between its batches, and before it is finished.
    """
    if _received:
        raise KeyboardInterrupt


def interruptible(progress: Progress) -> Progress:
    """Return a progress callback that ends the work after a signal."""

    def checked(done: int, total: int) -> None:
        require_uninterrupted()
        progress(done, total)

    return checked


def was_interrupted(error: BaseException) -> bool:
    """Say whether an error came of an interrupt: Python 3.11 wraps one that arrives while a class is made."""
    before = error.__cause__ or error.__context__
    return isinstance(error, KeyboardInterrupt) or (before is not None and was_interrupted(before))
