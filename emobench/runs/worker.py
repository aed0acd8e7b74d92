"""A worker process: `python -m emobench.runs.worker RUNS` makes the planned stages whose keys it reads.

It reads one key a line and answers with lines of JSON: its progress, and "made" or "failed" at the end of a stage. When
its input ends, so does it, also within a stage: the process that started it is gone. With the variables of a group
(`execution.launch`) it takes part in trainings that the group makes together, whose stages are locked for it.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from emobench.core.errors import EmobenchError, NonFiniteLossError
from emobench.runs.execution.launch import GROUP, LOST, is_loss
from emobench.runs.execution.reporter import Progress, Reporter, Silent
from emobench.runs.run import DescribedStages
from emobench.runs.signals import signals_interrupt, was_interrupted

INTERVAL = 0.2
"""Seconds between two reports of progress."""


class Events(Reporter):
    """A reporter that writes lines of JSON. The process that gives out the stages counts them."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._works = 0

    def send(self, event: str, **values: Any) -> None:
        with suppress(OSError):  # who reads it is gone, and a checkpoint is still to be written
            self._out.write(json.dumps({"event": event, **values}) + "\n")
            self._out.flush()

    @contextmanager
    def work(self, title: str, unit: str) -> Iterator[Progress]:
        self._works += 1
        number, last = self._works, 0.0

        def progress(done: int, total: int) -> None:
            nonlocal last
            if time.monotonic() - last >= INTERVAL or done == total:
                last = time.monotonic()
                self.send("progress", work=number, done=done, total=total)

        self.send("begin", work=number, title=title, unit=unit)
        try:
            yield progress
        finally:
            self.send("end", work=number)

    def values(self, values: Mapping[str, float]) -> None:
        self.send("values", values={name: value for name, value in values.items() if isinstance(value, (int, float))})

    def note(self, text: str) -> None:
        self.send("note", text=text)


def main() -> None:
    """Make the stages, in the order in which their keys come, until the input ends."""
    keys: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    busy = threading.Event()  # a stage is being made

    def read() -> None:
        for line in sys.stdin:
            keys.put(line.strip())
        keys.put(None)
        if busy.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    events = Events(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)  # what libraries print goes to stderr
    together = GROUP in os.environ
    leads = os.environ.get("RANK", "0") == "0"
    maker = DescribedStages(Path(sys.argv[1]), events if leads else Silent())
    threading.Thread(target=read, daemon=True).start()
    # With it, Slurm tells a job that its time ends; the process of the job then stops this one.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    with suppress(KeyboardInterrupt), signals_interrupt():
        while (key := keys.get()) is not None:
            busy.set()
            try:
                maker.make(key, together=together)
            except EmobenchError as error:
                diverged = isinstance(error, NonFiniteLossError)
                events.send("failed", text=str(error), code=error.exit_code, diverged=diverged)
            except Exception as error:
                if was_interrupted(error):
                    break
                text = f"{LOST}." if together and is_loss(error) else traceback.format_exc()
                events.send("failed", text=text, code=1)
            else:
                events.send("made")
            busy.clear()
    # Threads of libraries may still run, and nothing is left to be written.
    os._exit(0)


if __name__ == "__main__":
    main()
