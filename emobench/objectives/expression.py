"""Parser for a combination of objectives, such as `0.5*emo + linear(1, 0)*tailr(gamma=0.2)`. It never evaluates code.

    combination  =  term { "+" term }
    term         =  [ weight "*" ] call
    call         =  name | name(key=value, ...) | path.py:Class | path.py:Class(key=value, ...)
    weight       =  number | constant(a) | linear(a, b) | cosine(a, b) | step(a, b, at=0.3)

Weights are at least 0, and there is no subtraction: a subtracted loss would be maximised and has no minimum.

A weight may depend on the progress p of the training, which is 0 at the first optimizer step and 1 at the last one:
p = step / (total_steps - 1), where steps count from 0. A training of one step has p = 0.
"""

from __future__ import annotations

import inspect
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from emobench.core.errors import ConfigError, UnknownNameError, UserError
from emobench.core.settings import parse_arguments

HEAVIEST = 10**9
"""The largest weight that is allowed. A weight of 1e38 would overflow a float32."""
MOST_TERMS = 32
EXAMPLE = '"0.5*emo + 0.5*mle" or "linear(1, 0)*mle + linear(0, 1)*emo"'

# Python's own parser cannot read this: names contain dashes, and paths are not expressions.
_BRACKETS = r"""\((?:[^()'"]|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")*\)"""
_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_NAME_OR_PATH = r"(?:[^\W\d][\w.-]*|[^()]*?\.py:\w+)(?=\s*(?:[(*+]|$))"  # a path may contain spaces and operators
_TERM = re.compile(
    rf"\s*(?:(?P<number>{_NUMBER})|(?P<schedule>\w+)\s*(?P<values>{_BRACKETS}))\s*\*\s*(?P<weighted>{_NAME_OR_PATH}"
    rf"\s*(?:{_BRACKETS})?)\s*|\s*(?P<alone>{_NAME_OR_PATH}\s*(?:{_BRACKETS})?)\s*",
    re.DOTALL,
)


@dataclass(frozen=True)
class Term:
    """One term of the text."""

    call: str
    weight: Schedule | None
    """None if the text gives no weight."""


def parse_terms(text: str) -> list[Term]:
    """Split a combination into its terms. Text without `+` and `*` is a single term without a weight.

    Raises UserError with the position of the part that cannot be read.

    >>> [(str(term.weight), term.call) for term in parse_terms("0.50*emo+tailr(gamma=0.2)")]
    [('0.5', 'emo'), ('None', 'tailr(gamma=0.2)')]
    """
    if not {"+", "*"} & set(re.sub(_BRACKETS, "", text)):
        return [Term(text.strip(), None)]
    terms: list[Term] = []
    position = 0
    while position <= len(text):
        if len(terms) == MOST_TERMS:
            raise _error(text, position, f"a combination has {MOST_TERMS} terms at most")
        match = _TERM.match(text, position)
        if match is None:
            raise _error(text, position, "expected NAME or WEIGHT*NAME, with a weight of at least 0")
        terms.append(_term(text, match))
        position = match.end() + 1
        if match.end() < len(text) and text[match.end()] != "+":
            raise _error(text, match.end(), "expected `+` and another term, or the end; a weight stands before a name")
    return terms


def _term(text: str, match: re.Match[str]) -> Term:
    if match["alone"]:
        return Term(match["alone"].strip(), None)
    name, values = "constant", f"({match['number']})"
    if match["schedule"]:
        name, values = match["schedule"], match["values"]
    try:
        return Term(match["weighted"].strip(), make_schedule(name, *parse_arguments(values)))
    except (UserError, ValueError) as error:
        raise _error(text, match.start(), f"the weight: {str(error).rstrip('.')}") from None


def _error(text: str, position: int, what: str) -> ConfigError:
    position += len(text[position:]) - len(text[position:].lstrip())
    return ConfigError(f"--objective '{text}', character {position + 1}: {what}. Write {EXAMPLE}.")


@dataclass(frozen=True)
class Schedule(ABC):
    """A weight of at least 0 for each p in [0, 1]. `str()` returns the text that a user types."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ConfigError(f"`{field.name}` is {value!r}; expected a number.")
            if not 0 <= value <= HEAVIEST:
                raise ConfigError(f"`{field.name}` is {value}; expected at least 0, at most {HEAVIEST:,}.")
            object.__setattr__(self, field.name, float(value))

    @abstractmethod
    def __call__(self, progress: float) -> float:
        """Return the weight at p."""

    def __str__(self) -> str:
        values = [number(getattr(self, field.name)) for field in fields(self)]
        return f"{type(self).__name__.lower()}({', '.join(values)})"


@dataclass(frozen=True)
class Constant(Schedule):
    """c"""

    value: float

    def __call__(self, progress: float) -> float:
        return self.value

    def __str__(self) -> str:
        return number(self.value)


@dataclass(frozen=True)
class Linear(Schedule):
    """(1 - p) a + p b"""

    first: float
    last: float

    def __call__(self, progress: float) -> float:
        return (1 - progress) * self.first + progress * self.last


@dataclass(frozen=True)
class Cosine(Linear):
    """(1 - f) a + f b with f = (1 - cos(pi p)) / 2: half a wave, flat at both ends"""

    def __call__(self, progress: float) -> float:
        return super().__call__((1 - math.cos(math.pi * progress)) / 2)


@dataclass(frozen=True)
class Step(Schedule):
    """a where p < at, then b"""

    first: float
    last: float
    at: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.at > 1:
            raise ConfigError(f"`at` is {number(self.at)}; expected a share of the training, from 0 to 1.")

    def __call__(self, progress: float) -> float:
        return self.first if progress < self.at else self.last

    def __str__(self) -> str:
        return f"step({number(self.first)}, {number(self.last)}, at={number(self.at)})"


SCHEDULES: dict[str, type[Schedule]] = {"constant": Constant, "linear": Linear, "cosine": Cosine, "step": Step}
EXAMPLES = "constant(0.5), linear(1, 0), cosine(1, 0), step(1, 0, at=0.3)"


def make_schedule(name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> Schedule:
    """Return the schedule for `name(1, 0)`. Equal ends give a Constant. Raises UserError."""
    if name not in SCHEDULES:
        raise UnknownNameError("schedule", name, SCHEDULES, hint="A weight is written before a name, as in 0.5*NAME.")
    try:
        arguments = inspect.signature(SCHEDULES[name]).bind(*positional, **named)
    except TypeError as error:
        raise ConfigError(f"{name}: {error}; expected one of {EXAMPLES}.") from None
    schedule = SCHEDULES[name](*arguments.args, **arguments.kwargs)
    if isinstance(schedule, (Linear, Step)) and schedule.first == schedule.last:
        return Constant(schedule.first)
    return schedule


def number(value: float) -> str:
    """Return a number with all its digits, without a final `.0`."""
    return repr(float(value)).removesuffix(".0")
