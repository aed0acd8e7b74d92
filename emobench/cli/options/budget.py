"""What a command may use at most: tokens, hours, memory."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from emobench.cli.terminal.streams import remark
from emobench.core.errors import ConfigError
from emobench.runs.dry_run.make_outline import Read, make_outline
from emobench.runs.planning.request import Request

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """Limits of a command; none by default. They decide no result."""

    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            help="Begin nothing if what is to be trained has more target tokens, in all epochs, objectives and seeds.",
            min=1,
            show_default=False,
        ),
    ] = None
    max_hours: Annotated[
        float | None,
        typer.Option(
            "--max-hours",
            help="Stop after so many hours, as at Ctrl-C: with a checkpoint. The same command again goes on.",
            show_default=False,
        ),
    ] = None
    max_memory: Annotated[
        str | None,
        typer.Option(
            "--max-memory",
            help="The most that each process may hold of its GPU, such as 16GB. A training that needs more goes on "
            "with smaller micro-batches.",
            show_default=False,
        ),
    ] = None

    @property
    def memory(self) -> int | None:
        """Bytes of --max-memory."""
        if self.max_memory is None:
            return None
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?\s*", self.max_memory.upper())
        size = 0 if found is None else int(float(found[1]) * UNITS[found[2] or ""])
        if not 0 < size < 2**60:
            raise ConfigError(f"--max-memory is {self.max_memory}; expected a size, such as 16GB or 500MB.")
        return size

    def check_tokens(self, requests: Sequence[Request]) -> None:
        """Raise ConfigError where what is not finished of these requests trains on more than --max-tokens."""
        if self.max_tokens is None:
            return
        read = Read()
        totals = [make_outline(request, read=read).totals() for request in requests]
        tokens = sum(total.tokens["train"] for total in totals)
        if tokens > self.max_tokens:
            raise ConfigError(
                f"This would train on {tokens:,} target tokens, and --max-tokens is {self.max_tokens:,}. Train on less "
                "with --set recipe.max_tokens=N, which is for each training, or with fewer objectives and seeds."
            )

    @contextmanager
    def in_time(self) -> Iterator[None]:
        """End the command after --max-hours, as a scheduler's signal does."""
        if self.max_hours is None:
            yield
            return
        if not 0 < self.max_hours < 10**6:
            raise ConfigError(f"--max-hours is {self.max_hours:g}; expected a number above 0.")

        def stop() -> None:
            remark(f"The {self.max_hours:g} hours of --max-hours are over.")
            os.kill(os.getpid(), signal.SIGTERM)

        timer = threading.Timer(3600 * self.max_hours, stop)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
