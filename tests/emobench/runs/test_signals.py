"""Signals end a command by `KeyboardInterrupt`."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from emobench.runs.signals import require_uninterrupted, signals_interrupt, was_interrupted
from emobench.runs.stages.stage import Stage, Stages


class Dying:
    """Gets a signal while it is deleted."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def test_an_interrupt_that_python_forgets_comes_again() -> None:
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        wait_beside_a_death()
    assert time.monotonic() - began < 15


def wait_beside_a_death() -> None:
    with signals_interrupt():
        dying = Dying()
        del dying
        time.sleep(20)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_that_a_library_catches_ends_the_stage(tmp_path: Path, number: int) -> None:
    def work(folder: Path) -> None:
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), number)
            time.sleep(20)

    with signals_interrupt(), pytest.raises(KeyboardInterrupt):
        Stages(tmp_path).make(Stage("generate", {}), work)
    assert not list(tmp_path.rglob("stage.json"))
    require_uninterrupted()  # the next command of this process


def test_an_error_that_an_interrupt_became_is_known() -> None:
    became = RuntimeError("Error calling __set_name__")
    became.__cause__ = KeyboardInterrupt()
    assert was_interrupted(became)
    assert was_interrupted(KeyboardInterrupt())
    assert not was_interrupted(RuntimeError("another"))


def test_a_command_that_began_with_nohup_is_not_ended_by_a_lost_connection() -> None:
    before = signal.getsignal(signal.SIGHUP)
    try:
        for handler in (signal.SIG_IGN, signal.SIG_DFL):
            signal.signal(signal.SIGHUP, handler)
            with signals_interrupt():
                assert (signal.getsignal(signal.SIGHUP) == handler) is (handler == signal.SIG_IGN)
            assert signal.getsignal(signal.SIGHUP) == handler
    finally:
        signal.signal(signal.SIGHUP, before)
