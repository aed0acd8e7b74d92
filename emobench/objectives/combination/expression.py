"""Parser for a combination of objectives, such as `0.5*emo + linear(1, 0)*tailr(gamma=0.2)`. It never evaluates code.

    combination  =  term { "+" term }
    term         =  [ weight "*" ] call
    call         =  name | name(key=value, ...) | path.py:Class | path.py:Class(key=value, ...)
    weight       =  number | constant(a) | linear(a, b) | cosine(a, b) | step(a, b, at=0.3)

Weights are at least 0, and there is no subtraction: a subtracted loss would be maximised and has no minimum.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from emobench.config import parse_arguments
from emobench.errors import ConfigError, UserError
from emobench.objectives.combination.schedules import Schedule, make_schedule

MOST_TERMS = 32
LONGEST = 200
"""Number of characters of a combination that an error message shows."""
EXAMPLE = '"0.5*emo + 0.5*mle" or "linear(1, 0)*mle + linear(0, 1)*emo"'

_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?=\s*(?:[*+]|$))")
# A name ends before a bracket, an operator or the end. A path may contain spaces, dashes and operators.
_NAME = re.compile(r"\w[\w.-]*(?=\s*(?:[(*+]|$))")
_PATH = re.compile(r"[^()]*?\.py:\w+(?=\s*(?:[(*+]|$))")
_QUOTED_OR_ONE = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|.""", re.DOTALL)


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
    if not {"+", "*"} & set(_outside_brackets(text)):
        return [Term(text.strip(), None)]
    reader = _Reader(text)
    terms = [reader.term()]
    while reader.take("+"):
        terms.append(reader.term())
        if len(terms) > MOST_TERMS:
            raise reader.error(f"a combination has {MOST_TERMS} terms at most")
    if reader.peek():
        raise reader.error("expected `+` and another term, or the end")
    return terms


class _Reader:
    """Reads a combination from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def peek(self) -> str:
        """Return the next character that is not a space, or an empty string at the end."""
        self.position += len(self.text[self.position :]) - len(self.text[self.position :].lstrip())
        return self.text[self.position : self.position + 1]

    def take(self, sign: str) -> bool:
        """Skip a sign if it is next. Return whether it was next."""
        matches = self.peek() == sign
        self.position += matches
        return matches

    def term(self) -> Term:
        if self.peek() == "-":
            raise self.error("a weight is at least 0, and nothing is subtracted")
        begin = self.position
        if number := self._match(_NUMBER):
            weight: Schedule | None = self._schedule(begin, "constant", f"({number})")
            if not self.take("*"):
                raise self.error(f"{number} weighs nothing; expected {number}*NAME", begin)
            return Term(self._call(), weight)
        call = self._call()
        if not self.take("*"):
            return Term(call, None)
        name, bracket, arguments = call.partition("(")
        if not bracket:
            raise self.error(f"'{name}' is no weight; the weight stands in front of the name, as in 0.5*{name}", begin)
        weight = self._schedule(begin, name.strip(), bracket + arguments)
        return Term(self._call(), weight)

    def error(self, what: str, position: int | None = None) -> ConfigError:
        return ConfigError(f"{self._location(self.position if position is None else position)}{what}. Write {EXAMPLE}.")

    def _call(self) -> str:
        begin = self.position
        if not (self._match(_NAME) or self._match(_PATH)):
            raise self.error("expected an objective, a name or ./file.py:Class")
        if self.peek() == "(":
            self.position = self._after_bracket()
        return self.text[begin : self.position].strip()

    def _schedule(self, begin: int, name: str, arguments: str) -> Schedule:
        try:
            return make_schedule(name, *parse_arguments(arguments))
        except (UserError, ValueError) as error:
            raise ConfigError(f"{self._location(begin)}the weight: {str(error).rstrip('.')}.") from None

    def _match(self, pattern: re.Pattern[str]) -> str:
        """Skip the text that a pattern matches and return it. Return an empty string if it does not match."""
        matched = pattern.match(self.text, self.position) if self.peek() else None
        if matched is None:
            return ""
        self.position = matched.end()
        return matched[0]

    def _after_bracket(self) -> int:
        depth = 0
        for position, sign in _signs(self.text, self.position):
            depth += (sign in "([{") - (sign in ")]}")
            if depth == 0:
                return position + 1
        raise self.error("this bracket is never closed")

    def _location(self, position: int) -> str:
        shown = self.text if len(self.text) <= LONGEST else f"{self.text[:LONGEST]}..."
        return f"--objective '{shown}', character {position + 1}: "


def _signs(text: str, begin: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the position and the text of each character outside quotes."""
    for match in _QUOTED_OR_ONE.finditer(text, begin):
        if len(match[0]) == 1:
            yield match.start(), match[0]


def _outside_brackets(text: str) -> str:
    depth, kept = 0, []
    for _, sign in _signs(text):
        depth += (sign in "([{") - (sign in ")]}")
        if depth == 0:
            kept.append(sign)
    return "".join(kept)
