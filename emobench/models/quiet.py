"""Suppress the progress bars and warnings of libraries: emobench prints its own."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Suppress the progress bars and warnings of transformers inside this context."""
    from transformers.utils import logging as transformers_logging

    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity(logging.ERROR)
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()


@contextmanager
def silent_libraries() -> Iterator[None]:
    """Suppress what `quiet_libraries` does, and Python's warnings."""
    with quiet_libraries(), warnings.catch_warnings(action="ignore"):
        yield
