"""Parser for a combination of objectives, such as `0.5*emo + linear(1, 0)*tailr(gamma=0.2)`. It never evaluates code.

    combination  =  term { "+" term }
    term         =  [ weight "*" ] call
    call         =  name | name(key=value, ...) | path.py:Class | path.py:Class(key=value, ...)
    weight       =  number | constant(a) | linear(a, b) | cosine(a, b) | step(a, b, at=0.3)

Weights are at least 0, and there is no subtraction: a subtracted loss would be maximised and has no minimum.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from emobench.core.errors import ConfigError, UserError
from emobench.core.settings import parse_arguments
from emobench.objectives.combination.schedules import Schedule, make_schedule

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
    name, values = (match["schedule"], match["values"]) if match["schedule"] else ("constant", f"({match['number']})")
    try:
        return Term(match["weighted"].strip(), make_schedule(name, *parse_arguments(values)))
    except (UserError, ValueError) as error:
        raise _error(text, match.start(), f"the weight: {str(error).rstrip('.')}") from None


def _error(text: str, position: int, what: str) -> ConfigError:
    position += len(text[position:]) - len(text[position:].lstrip())
    return ConfigError(f"--objective '{text}', character {position + 1}: {what}. Write {EXAMPLE}.")
