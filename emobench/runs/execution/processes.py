"""Worker processes: `python -m emobench.runs.worker` on a device, which makes stages by their keys.

What a worker works at is shown by the reporter of the process that started it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from emobench.core.errors import EmobenchError, RunError, UserError
from emobench.runs.execution.reporter import Progress, Reporter

LAST_LINES = 15
"""Of what a worker printed, in the error about its end."""


class WorkerProcess:
    """A worker: one line with a key goes in, and lines of JSON come out until the stage is made."""

    def __init__(self, name: str, runs: Path, environment: Mapping[str, str]) -> None:
        self._name = name
        command = [sys.executable, "-m", "emobench.runs.worker", str(runs)]
        # A session of its own: Ctrl-C reaches this process alone, which then stops the workers.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=dict(environment),
            start_new_session=True,
        )
        keys, answers, errors = self._process.stdin, self._process.stdout, self._process.stderr
        assert keys is not None
        assert answers is not None
        assert errors is not None
        self._keys, self._answers, self._errors = keys, answers, errors
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def make(self, key: str, what: str, reporter: Reporter) -> EmobenchError | None:
        """Make a stage, telling the reporter what the worker tells; return the error if it failed.

        `what` begins the error: the stage, as it is shown.
        """
        with suppress(OSError):  # it has ended, which is seen below
            self._keys.write(f"{key}\n")
            self._keys.flush()
        with _Shown(reporter) as shown:
            for event in self._events():
                match event.pop("event"):
                    case "made":
                        return None
                    case "failed":
                        kind = UserError if event["code"] == UserError.exit_code else RunError
                        return kind(f"{what}: {event['text']}")
                    case name:
                        shown.show(name, event)
        return self._death(what)

    def terminate(self) -> None:
        """Let it stop as at Ctrl-C."""
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def end(self, seconds: float) -> None:
        """Let it end, as it has nothing to do, and kill it if it takes longer than `seconds`."""
        with suppress(OSError):
            self._keys.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def finish(self) -> None:
        """Let it end, as it has nothing to do, and close its pipes."""
        with suppress(OSError):
            self._keys.close()
        self._process.wait()
        self._reader.join()
        self._answers.close()
        self._errors.close()

    def _events(self) -> Iterator[dict[str, Any]]:
        for line in self._answers:
            with suppress(ValueError):  # a line that was cut off
                yield json.loads(line)

    def _read_errors(self) -> None:
        for line in self._errors:
            self._last.append(line.rstrip())

    def _death(self, what: str) -> EmobenchError:
        code = self._process.wait()
        self._reader.join(1.0)
        if code < 0:
            how = f"ended with signal {signal.Signals(-code).name}"
        else:
            how = f"ended with exit code {code}" if code else "was stopped"
        memory = " It may have run out of memory." if code == -signal.SIGKILL else ""
        last = "".join(f"\n  {line}" for line in self._last)
        return RunError(
            f"{what}: the process on {self._name} {how}.{memory} What it finished is "
            f"kept; give the same command again.{f' The last lines that it printed:{last}' if last else ''}"
        )


class _Shown:
    """Shows the works of a worker until it has made its stage."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._open: dict[int, tuple[ExitStack, Progress]] = {}

    def __enter__(self) -> _Shown:
        return self

    def __exit__(self, *_: object) -> None:
        for stack, _progress in self._open.values():
            stack.close()

    def show(self, name: str, event: Mapping[str, Any]) -> None:
        match name:
            case "begin":
                stack = ExitStack()
                progress = stack.enter_context(self._reporter.work(event["title"], event["unit"]))
                self._open[event["work"]] = (stack, progress)
            case "progress":
                self._open[event["work"]][1](event["done"], event["total"])
            case "end":
                self._open.pop(event["work"])[0].close()
            case "values":
                self._reporter.values(event["values"])
            case "note":
                self._reporter.note(event["text"])
