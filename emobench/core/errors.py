"""Every error that emobench raises on purpose.

    EmobenchError
    ├── UserError               the input is wrong: exit code 2
    │   ├── UnknownNameError    no such objective, model, suite, task, dataset or parameter
    │   ├── ConfigError         a value, a file or an override that cannot be used
    │   ├── DataError           a corpus or a file of examples that cannot be read or used
    │   ├── ModelError          a model or tokenizer that cannot be used
    │   ├── Missing             a file or a program that is not on this machine
    │   └── PluginError         a plugin that does not import or does not keep the contract
    └── RunError                a run failed: exit code 1
        ├── NonFiniteLossError  a loss became NaN or infinite
        ├── MetricError         a metric could not be computed
        └── StorageError        a disk is full, a folder cannot be written, a file was altered

The message is a sentence for the person who can fix the problem: what was given, what was expected, what to type next.
It is printed without a traceback. Any other exception is a bug in emobench and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def first_line(error: BaseException) -> str:
    """Return the first line of another library's message, or the name of its type if it is empty."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


class EmobenchError(Exception):
    """Base of all errors that emobench raises on purpose."""

    exit_code = 1


class UserError(EmobenchError):
    """The user's input is wrong."""

    exit_code = 2


class UnknownNameError(UserError):
    """An unknown name. The message suggests the most similar name.

    >>> str(UnknownNameError("objective", "emoo", ["emo", "mle"], hint="See `emobench objectives list`."))
    "There is no objective 'emoo'; did you mean 'emo'? Known: emo, mle. See `emobench objectives list`."
    """

    def __init__(self, kind: str, given: str, known: Iterable[str], *, where: str = "", hint: str = "") -> None:
        names = sorted(known)
        by_case = {name.casefold(): name for name in reversed(names)}
        near = difflib.get_close_matches(given.casefold(), by_case, n=1, cutoff=0.6)
        sentence = f"{where}There is no {kind} '{given}'"
        sentence += f"; did you mean '{by_case[near[0]]}'?" if near else "."
        sentence += f" Known: {', '.join(names)}." if names else f" There is no {kind} at all."
        super().__init__(f"{sentence} {hint}".strip())


class ConfigError(UserError):
    """A value, a file or an override that cannot be used."""


class DataError(UserError):
    """A corpus or a file of examples that cannot be read or used."""


class ModelError(UserError):
    """A model or tokenizer that cannot be used."""


class Missing(UserError):
    """A file or a program that is not on this machine.

    `source` is the place that has it, None if a run cannot download it; `size` is its rough size in bytes, None if
    unknown. `by_hand`: a download alone would not help, and `how` says what to do.

    >>> str(Missing("model gpt2", "openai-community/gpt2", 500_000_000, "Run once without --offline."))
    'Not on this machine: model gpt2. Run once without --offline.'
    """

    def __init__(self, item: str, source: str | None, size: int | None, how: str, *, by_hand: bool = False) -> None:
        super().__init__(f"Not on this machine: {item}. {how}")
        self.item = item
        self.source = source
        self.size = size
        self.how = how
        self.by_hand = by_hand

    def named(self, item: str, *, source: str | None = None, size: int | None = None, advice: str = "") -> Missing:
        """Return the same error under the name that the user gave, with more advice."""
        return Missing(item, source or self.source, size, f"{self.how} {advice}".strip(), by_hand=self.by_hand)


class PluginError(UserError):
    """A plugin that does not import or does not keep the contract."""


class RunError(EmobenchError):
    """A run failed."""


class NonFiniteLossError(RunError):
    """A loss became NaN or infinite."""


class MetricError(RunError):
    """A metric could not be computed."""


class StorageError(RunError):
    """A disk is full, a folder cannot be written, or a file was altered."""
