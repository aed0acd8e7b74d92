"""Progress on stderr: lines at a sensible pace without a terminal, and the place among the command's stages."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from emobench.cli.terminal import console
from emobench.cli.terminal.console import Terminal


class Clock:
    """A clock that the test sets, in seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(console, "time", clock)
    return clock


@pytest.fixture
def shown() -> tuple[Terminal, Callable[[], list[str]]]:
    """A terminal reporter whose stderr is a file of 80 columns, and the lines in the file."""
    out = io.StringIO()
    terminal = Terminal(console.Bars(Console(file=out, width=80)))
    return terminal, lambda: out.getvalue().splitlines()


def advance(terminal: Terminal, clock: Clock, seconds: float, steps: int, start: int = 0, every: int = 1) -> None:
    """Report a training of `steps` steps that takes `seconds`."""
    with terminal.work("train emo seed 0", "steps") as progress:
        progress(start, steps)
        for step in range(start + every, steps + 1, every):
            clock.now += seconds * every / (steps - start)
            terminal.values({"loss": 3.21, "tokens_per_second": 1234.0})
            progress(step, steps)


@pytest.mark.parametrize(
    ("seconds", "steps", "expected"),
    [
        (20, 400, 0),  # shorter than the time between two lines
        (120, 400, 3),  # every 30 s
        (3600, 400, 19),  # every 5 %
        (3600, 4, 3),  # few steps
        (36_000, 100_000, 59),  # every 10 min: 5 % would be half an hour
    ],
)
def test_a_file_gets_a_line_every_5_percent_but_none_within_30_seconds(
    seconds: float, steps: int, expected: int, clock: Clock, shown: tuple[Terminal, Callable[[], list[str]]]
) -> None:
    terminal, lines = shown
    advance(terminal, clock, seconds, steps)
    assert sum(" left" in line for line in lines()) == expected
    assert len(lines()) == expected + 1  # and one at the end


def test_a_line_has_step_loss_speed_time_left_and_stage(
    clock: Clock, shown: tuple[Terminal, Callable[[], list[str]]]
) -> None:
    terminal, lines = shown
    terminal.stage(3, 12)
    advance(terminal, clock, 120, 200, start=100)  # a training that was resumed at step 100
    first = lines()[0]
    for word in ("3/12", "train emo seed 0", "125 of 200 steps", "loss 3.210", "1,234 tok/s", "01:30 left"):
        assert word in first
    with terminal.work("ROUGE", "prompts") as progress:
        for done in range(101):
            clock.now += 1
            progress(done, 100)
    assert "60 of 100 prompts, 1.0 prompts/s" in " ".join(lines())
    assert "loss" not in lines()[-2]


def test_lines_of_workers_are_whole_and_named(clock: Clock, shown: tuple[Terminal, Callable[[], list[str]]]) -> None:
    terminal, lines = shown

    def work(place: int) -> None:
        worker = terminal.worker(f"cuda:{place}")
        with worker.work(f"train objective-of-worker-{place} seed {place}", "steps") as progress:
            for step in range(400):
                if place == 0:
                    clock.now += 5
                progress(step, 400)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for line in lines():
        place = line[len("[cuda:")]
        assert line.startswith(f"[cuda:{place}]   train objective-of-worker-{place} seed {place}: ")


def test_a_terminal_shows_the_stage_and_the_time_of_the_whole_command(clock: Clock) -> None:
    out = io.StringIO()
    settings: dict[str, Any] = {"force_terminal": True, "width": 120, "color_system": None, "legacy_windows": False}
    terminal = Terminal(console.Bars(Console(file=out, **settings)))
    clock.now += 65
    terminal.stage(2, 5)
    advance(terminal, clock, 61, 10)
    assert "2/5 train emo seed 0" in out.getvalue()
    assert "01:05 in all" in out.getvalue()
    assert " left" not in out.getvalue()
