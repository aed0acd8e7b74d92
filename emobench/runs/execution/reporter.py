"""Reports of long work: the command line shows them, a script may ignore them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

Progress = Callable[[int, int], None]
"""Called with (done, total)."""


class Reporter:
    """Receives the progress of the pipeline. This one says nothing; others override what they show."""

    def work(self, title: str, unit: str) -> AbstractContextManager[Progress]:
        """Begin a piece of work of countable units; the context gives its progress callback."""
        return nullcontext(lambda done, total: None)

    def values(self, values: Mapping[str, float]) -> None:
        """Show the latest numbers of the work in progress, such as a training step's loss."""

    def note(self, text: str) -> None:
        """Say one sentence."""

    def stage(self, number: int, total: int) -> None:
        """Show that the next work belongs to stage `number` of the `total` that the command makes."""

    def worker(self, name: str) -> Reporter:
        """Return a reporter for a worker process; its lines begin with the name."""
        return self


class Silent(Reporter):
    """Says nothing."""
