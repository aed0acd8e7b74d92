"""Checks of a plugin's contract, and how they run: one after the other, each with a sentence about its result."""

from __future__ import annotations

import inspect
import re
import traceback
import unittest
from abc import ABC
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from emobench.core.errors import EmobenchError, PluginError

LIBRARY = Path(__file__).parents[1]
SOURCE = re.compile(
    r"https?://|arxiv|et al\b|\b(19|20)\d\d\b|\bEq\. ?\d|\b(paper|repository|package)\b"
    r"|(?i:\bmine\b|(?<!its\s)(?<!their\s)(?<!'s\s)(?<!s'\s)\bown\b)"
)
"""What a docstring that names a source has."""


class Broken(Exception):
    """A broken promise. The message is the end of a sentence, without a full stop."""


class Explained(Broken):
    """A broken promise whose message already says what to fix. The usual cause of the check does not apply."""


class Skipped(Exception):
    """A check that does not apply. The message is the reason."""


@dataclass(frozen=True)
class Check:
    """One promise of the contract, and the function that checks it.

    The function raises Broken with the problem, or Skipped if the check does not apply. Its docstring is the promise.
    """

    function: Callable[[Any], None]
    usually: str
    """The usual cause of a failure, and its fix."""
    gate: bool
    """Whether the later checks are skipped if this one fails."""

    @property
    def name(self) -> str:
        return self.function.__name__.replace("_", " ")

    @property
    def promise(self) -> str:
        return (self.function.__doc__ or "").partition("\n")[0].rstrip(".")


def check(usually: str, *, gate: bool = False) -> Callable[[Callable[[Any], None]], Check]:
    """Make a Check of a function; see `Check`."""
    return lambda function: Check(function, usually, gate)


@dataclass(frozen=True)
class Outcome:
    """The result of a check. `status` is "ok", "failed" or "skipped"."""

    name: str
    promise: str
    status: str
    found: str = ""
    usually: str = ""


@dataclass(frozen=True)
class BoundCheck:
    """A check of one plugin. A test calls it."""

    check: Check
    subject: Any

    def __call__(self) -> None:
        """Raise PluginError if the promise is broken, and unittest.SkipTest if the check does not apply."""
        try:
            self.check.function(self.subject)
        except Skipped as reason:
            raise unittest.SkipTest(str(reason)) from None
        except Broken as problem:
            text = f"{self.subject.name} does not keep the contract: {problem}. "
            raise PluginError((text + _usual_cause(self.check, problem)).rstrip()) from None

    def __str__(self) -> str:
        return self.check.name


def outcomes(checks: Iterable[Check], subject: Any) -> Iterator[Outcome]:
    """Run checks and yield their outcomes. An exception in the plugin's code is a failure."""
    failed_gate = ""
    for check in checks:
        outcome = partial(Outcome, check.name, check.promise)
        if failed_gate:
            yield outcome("skipped", f"`{failed_gate}` failed")
            continue
        try:
            check.function(subject)
            yield outcome("ok")
        except Skipped as reason:
            yield outcome("skipped", str(reason))
        except Exception as error:  # the plugin's code may raise anything
            failed_gate = check.name if check.gate else ""
            yield outcome("failed", _sentence(error), _usual_cause(check, error))


def _usual_cause(check: Check, error: Exception) -> str:
    """Return the usual cause of a failure, or nothing for an error that explains itself."""
    return check.usually if isinstance(error, Broken) and not isinstance(error, Explained) else ""


def _sentence(error: Exception) -> str:
    if isinstance(error, Broken):
        text = str(error)
    elif isinstance(error, EmobenchError):
        return str(error)
    else:
        frames = traceback.extract_tb(error.__traceback__)
        outside = [frame for frame in frames if not Path(frame.filename).is_relative_to(LIBRARY)]
        last = (outside or frames)[-1]
        text = f"it raises {type(error).__name__}: {str(error).rstrip('.')} ({last.filename}:{last.lineno})"
    return text[0].upper() + text[1:] + "."


def require_source(cls: type) -> None:
    """Raise Broken unless the docstring of a plugin's class or its module names a source."""
    written = "\n".join(docstrings(cls))
    if not SOURCE.search(written):
        raise Broken("its docstring names no source" if written else "it has no docstring")


def docstrings(cls: type) -> list[str]:
    """Return the docstrings of a class, of its bases outside the library, and of its module."""
    texts = []
    for base in cls.__mro__:
        text = base.__dict__.get("__doc__") or ""
        outside = base is cls or not base.__module__.startswith("emobench.")
        # Without a docstring, dataclasses insert the signature.
        if text and outside and base not in (object, ABC) and not text.startswith(f"{base.__name__}("):
            texts.append(text)
    module = inspect.getmodule(cls)
    if module is not None and module.__doc__:
        texts.append(module.__doc__)
    return [inspect.cleandoc(text) for text in texts]
