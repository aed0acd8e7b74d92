"""What is said at Ctrl-C, and at the signals that end a command like it."""

from __future__ import annotations

from contextlib import suppress

from emobench.cli.terminal.streams import remark

EXIT_CODE = 130
"""The exit code after Ctrl-C, as shells have it."""


def explain_interrupt() -> int:
    """Print how to go on after Ctrl-C, and return the exit code."""
    with suppress(OSError):  # the terminal may be what was lost
        remark("", "Stopped. Run the same command again to go on from the last finished stage or checkpoint.")
    return EXIT_CODE
