"""What the terminal shows: progress with rate and time left on stderr, results on stdout, errors as sentences."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TextIO

from rich import progress
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.markup import escape
from rich.segment import Segment
from rich.table import Column
from rich.text import Text

from emobench.cli.terminal.streams import Results, visible, visible_json, visible_lines
from emobench.cli.terminal.tables import TextTable
from emobench.core.settings import to_plain
from emobench.runs.execution.reporter import Progress, Reporter, Silent

SHOWN = {"loss": "loss {:z.3f}", "tokens_per_second": "{:,.0f} tok/s"}
"""Numbers of a training step that fit a line; `log.jsonl` has them all, and `emobench curves` shows them."""

PIPED_WIDTH = 120
SHORT = 1.0
"""Seconds of a piece of work that is not worth a line of its own."""
OFTEN, SELDOM, SHARE = 30.0, 600.0, 0.05
"""Without a terminal, a line of progress comes after 5 % of the work, if that took 30 s; or after 10 min."""


class Terminal(Reporter):
    """Reports on stderr: a bar for each piece of work, and a line where one ends. A file gets lines in between."""

    def __init__(self, bars: Bars | None = None, name: str = "") -> None:
        self._bars = bars or Bars(_console(stderr=True))
        self._prefix = f"[{name}] " if name else ""
        self._values = ""
        self._stage = ""

    def note(self, text: str) -> None:
        # A log has no width: a sentence stays one line.
        soft_wrap = not self._bars.console.is_terminal
        self._bars.console.print(f"{self._prefix}{text}", highlight=False, markup=False, soft_wrap=soft_wrap)

    def stage(self, number: int, total: int) -> None:
        self._stage = f"{number}/{total} "

    @contextmanager
    def work(self, title: str, unit: str) -> Iterator[Progress]:
        began = time.monotonic()
        pace = _Pace()
        with self._bars.shown() as bar:
            self._values = ""
            label = visible(f"{self._prefix}{self._stage}{title}")
            task = bar.add_task(escape(label), total=None, rate="")

            def advance(done: int, total: int) -> None:
                due = pace.is_due(done, total)
                rate = self._values
                if not rate and pace.rate:
                    rate = f"{pace.rate:,.1f} {unit}/s"
                bar.update(task, completed=done, total=total, rate=rate)
                if due and not self._bars.console.is_terminal:
                    left = _clock((total - done) / pace.rate)
                    self.note(f"  {self._stage}{title}: {done:,} of {total:,} {unit}, {rate}, {left} left")

            yield advance
            bar.remove_task(task)
        seconds = time.monotonic() - began
        if seconds >= SHORT:
            self.note(f"  {self._stage}{title}: {_clock(seconds)}")

    def values(self, values: Mapping[str, float]) -> None:
        shown = [text.format(values[name]) for name, text in SHOWN.items() if name in values]
        self._values = ", ".join(shown)

    def worker(self, name: str) -> Terminal:
        return Terminal(self._bars, name)


class _Pace:
    """How fast a piece of work is, and whether a line about it is due."""

    def __init__(self) -> None:
        self.rate = 0.0
        """Units a second since the first report: work that was resumed does not begin at 0."""
        self._first: tuple[int, float] | None = None
        self._last = (0, 0.0)

    def is_due(self, done: int, total: int) -> bool:
        """Note a report, and return whether a line is due."""
        now = time.monotonic()
        if self._first is None:
            self._first = self._last = (done, now)
        first, began = self._first
        if now > began:
            self.rate = (done - first) / (now - began)
        last, shown = self._last
        much = done - last >= SHARE * total and now - shown >= OFTEN
        if not self.rate or done >= total or not (much or now - shown >= SELDOM):
            return False
        self._last = (done, now)
        return True


def _clock(seconds: float) -> str:
    """Return a time as a clock shows it: 01:30, or 2:01:30 with hours."""
    return str(timedelta(seconds=round(seconds))).removeprefix("0:")


class Bars:
    """The bars of all works in progress: a terminal shows one live display at a time."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._works = 0
        self._bars: progress.Progress | None = None

    @contextmanager
    def shown(self) -> Iterator[progress.Progress]:
        """Return the display, which is there while any work is in progress."""
        with self._lock:
            if self._bars is None:
                self._bars = self._new()
                self._bars.start()
            bars = self._bars
            self._works += 1
        try:
            yield bars
        finally:
            with self._lock:
                self._works -= 1
                if not self._works:
                    bars.stop()
                    self._bars = None

    def _new(self) -> progress.Progress:
        title = progress.TextColumn("{task.description}")
        counts = progress.MofNCompleteColumn(table_column=Column(no_wrap=True))
        rate = progress.TextColumn("{task.fields[rate]}")
        remaining = progress.TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True))
        columns = (title, progress.BarColumn(bar_width=6), counts, rate, remaining, _CommandTime(self._began))
        # Without a terminal (CI, a log file) there are lines instead.
        disable = not self.console.is_terminal
        return progress.Progress(*columns, console=self.console, transient=True, disable=disable)


class _CommandTime(progress.ProgressColumn):
    """The time since the command began."""

    def __init__(self, began: float) -> None:
        super().__init__(Column(no_wrap=True))
        self._began = began

    def render(self, task: progress.Task) -> Text:
        return Text(f"{_clock(time.monotonic() - self._began)} in all")


def reporter(quiet: bool) -> Reporter:
    """Return where progress goes: stderr, or nowhere."""
    return Silent() if quiet else Terminal()


_json_out: TextIO | None = None


@contextmanager
def stdout_for_json_alone() -> Iterator[None]:
    """Let only `print_json` write to stdout; what libraries print, also from C, goes to stderr."""
    global _json_out
    if sys.stdout is not sys.__stdout__:  # captured within this process already
        yield
        return
    sys.stdout.flush()
    with Results(os.fdopen(os.dup(1), "wb"), encoding="utf-8") as stream:  # as JSON is everywhere
        _json_out = stream
        os.dup2(2, 1)
        try:
            yield
        finally:
            sys.stdout.flush()
            stream.flush()
            os.dup2(stream.fileno(), 1)
            _json_out = None


def print_json(value: Any) -> None:
    """Print one JSON document on stdout."""
    print_json_text(json.dumps(to_plain(value), indent=2, ensure_ascii=False, allow_nan=False))


def print_json_text(text: str) -> None:
    """Print JSON, or lines of it, on stdout."""
    out = _json_out or sys.stdout
    out.write(visible_json(text.removesuffix("\n")) + "\n")
    out.flush()


def print_out(*renderables: Any) -> None:
    """Print results on stdout; text is never read as markup."""
    for renderable in renderables:
        _stdout().print(renderable)


def print_lines(*lines: Any) -> None:
    """Print lines on stdout unchanged: the terminal breaks long ones."""
    for line in lines:
        _stdout().print(line, soft_wrap=True)


def _stdout() -> Console:
    width = None
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        width = PIPED_WIDTH  # a file or a pipe has no width of its own: wide enough for a table in one piece
    return _console(markup=False, highlight=False, width=width)


class _Visible:
    def __init__(self, inner: ConsoleRenderable) -> None:
        self.inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for text, style, control in console.render(self.inner, options):
            yield Segment(text if control else visible_lines(text), style, control)


class _EscapeAll(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Visible(renderable) for renderable in renderables]


def _console(**settings: Any) -> Console:
    """Return a console that escapes anything that a terminal would act on, except its own styles."""
    console = Console(**settings)
    console.push_render_hook(_EscapeAll())
    return console


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], unbroken: Sequence[str] = ()) -> None:
    """Print a plain table on stdout; columns in `unbroken` are never wrapped."""
    print_out(TextTable(title, header, rows, unbroken))
