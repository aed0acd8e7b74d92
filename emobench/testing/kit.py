"""What a check is, and how checks are run: one after the other, each with a sentence for what it found."""

from __future__ import annotations

import traceback
import unittest
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from emobench.errors import EmobenchError, PluginError
from emobench.testing.subject import Broken, Explained, Skipped, Subject

LIBRARY = Path(__file__).parents[1]


@dataclass(frozen=True)
class Check:
    """One promise of the contract, and the function that looks whether an objective keeps it.

    The function raises Broken with what it found, or Skipped where there is nothing to look at.
    """

    name: str
    usually: str
    """What it usually means that the check finds the promise broken, and the fix."""
    function: Callable[[Subject], None]
    """Its docstring is the promise."""
    gate: bool = False
    """Whether the checks behind it say nothing more where it fails."""

    @property
    def promise(self) -> str:
        return (self.function.__doc__ or "").partition("\n")[0].rstrip(".")


@dataclass(frozen=True)
class Outcome:
    """What came of a check; `status` is "ok", "failed" or "skipped"."""

    name: str
    promise: str
    status: str
    found: str = ""
    usually: str = ""


@dataclass(frozen=True)
class BoundCheck:
    """A check of one objective, to be called from a test: see `objective_checks`."""

    check: Check
    subject: Subject

    def __call__(self) -> None:
        """Raise PluginError where the promise is broken, and unittest.SkipTest where there is nothing to check."""
        try:
            self.check.function(self.subject)
        except Skipped as reason:
            raise unittest.SkipTest(str(reason)) from None
        except Broken as found:
            words = f"{self.subject.objective.name} does not keep the contract: {found}. {_usually(self.check, found)}"
            raise PluginError(words.rstrip()) from None

    def __str__(self) -> str:
        return self.check.name


def outcomes(checks: Iterable[Check], subject: Subject) -> Iterator[Outcome]:
    """Run checks and yield what came of each; whatever the objective's own code raises is a failure of its check."""
    closed = ""
    for check in checks:
        if closed:
            yield Outcome(check.name, check.promise, "skipped", f"`{closed}` failed")
            continue
        try:
            check.function(subject)
            yield Outcome(check.name, check.promise, "ok")
        except Skipped as reason:
            yield Outcome(check.name, check.promise, "skipped", str(reason))
        except Exception as error:  # a stranger's code
            closed = check.name if check.gate else ""
            yield Outcome(check.name, check.promise, "failed", _sentence(error), _usually(check, error))


def _usually(check: Check, error: Exception) -> str:
    """Return what a check's own finding usually means; an error of another kind speaks for itself."""
    return check.usually if isinstance(error, Broken) and not isinstance(error, Explained) else ""


def _sentence(error: Exception) -> str:
    if isinstance(error, Broken):
        text = str(error)
    elif isinstance(error, EmobenchError):
        return str(error)
    else:
        frames = traceback.extract_tb(error.__traceback__)
        strange = [frame for frame in frames if not Path(frame.filename).is_relative_to(LIBRARY)]
        at = (strange or frames)[-1]
        text = f"it raises {type(error).__name__}: {str(error).rstrip('.')} ({at.filename}:{at.lineno})"
    return text[0].upper() + text[1:] + "."
