"""The text of a combination: what is read, what is refused and where, and the weights that it names."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emobench.core.errors import ConfigError, UserError
from emobench.objectives.expression import Constant, Cosine, Linear, Schedule, Step, parse_terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.5*emo + 0.5*mle", [(Constant(0.5), "emo"), (Constant(0.5), "mle")]),
        (" .50 * emo+mle ", [(Constant(0.5), "emo"), (None, "mle")]),
        ("1e-3*emo-1-adaptive + 2.*mle\n", [(Constant(0.001), "emo-1-adaptive"), (Constant(2), "mle")]),
        ("linear(1, 0)*mle + cosine(0,1)*emo", [(Linear(1, 0), "mle"), (Cosine(0, 1), "emo")]),
        ("step(1, 0, at=0.3)*mle + step(0,1)*x", [(Step(1, 0, at=0.3), "mle"), (Step(0, 1, at=0.5), "x")]),
        ("constant(0.5)*mle", [(Constant(0.5), "mle")]),
        ("linear(0.5, 0.5)*mle", [(Constant(0.5), "mle")]),
        ("linear(1, 0) * linear(a=1)", [(Linear(1, 0), "linear(a=1)")]),
        ("0.5*tailr(gamma = 0.2) + x(a='b)+*c', d=[1, 2])", [(Constant(0.5), "tailr(gamma = 0.2)"),
                                                             (None, "x(a='b)+*c', d=[1, 2])")]),
        ("0.5*./my - loss.v2.py:A(k=1) + .5*../c++/b.py:B", [(Constant(0.5), "./my - loss.v2.py:A(k=1)"),
                                                            (Constant(0.5), "../c++/b.py:B")]),
    ],
)  # fmt: skip
def test_a_combination_is_split(text: str, expected: list[tuple[Schedule | None, str]]) -> None:
    assert [(term.weight, term.call) for term in parse_terms(text)] == expected


@pytest.mark.parametrize(
    "text",
    ["emo", " tailr(gamma=0.2) ", "x(a='1+2*3')", "./c++/my-loss.py:A", "tailr(gamma=0.2", "a - b", "x(a=1)(b=2)", ""],
)
def test_a_single_call_is_left_as_it_is(text: str) -> None:
    assert [(term.weight, term.call) for term in parse_terms(text)] == [(None, text.strip())]


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("0.5*emo + 0.5*tailr(gamma=1", 20, "expected `+` and another term, or the end"),
        ("-0.5*mle + emo", 1, "expected NAME or WEIGHT*NAME, with a weight of at least 0"),
        *((text, place, "expected NAME or WEIGHT*NAME") for text, place in
          [("mle + -1*emo", 7), ("0.5 + mle", 1), ("mle +", 6), ("mle ++ emo", 6), ("0.5*(emo + mle)", 1)]),
        ("mle*0.5", 4, "expected `+` and another term, or the end; a weight stands before a name"),
        ("mle + 0.5*0.5*mle", 7, "expected NAME or WEIGHT*NAME"),
        ("mle + tailr(gamma=1) mle", 22, "expected `+` and another term"),
        ("mle + lineer(1, 0)*emo", 7, "There is no schedule 'lineer'; did you mean 'linear'?"),
        ("tailr(gamma=1)*mle", 1, "There is no schedule 'tailr'. Known: constant, cosine, linear, step."),
        ("linear(1)*mle", 1, "linear: missing a required argument: 'last'; expected one of constant(0.5), linear"),
        ("linear(1, 0, 2)*mle", 1, "too many positional arguments"),
        ("linear(1, x)*mle", 1, "`last` is 'x'; expected a number"),
        ("linear(true, 0)*mle", 1, "`first` is True; expected a number"),
        ("linear(-1, 0)*mle", 1, "`first` is -1; expected at least 0, at most 1,000,000,000"),
        ("step(1, 0, at=2)*mle", 1, "`at` is 2; expected a share of the training, from 0 to 1"),
        ("1e999*mle", 1, "`value` is inf; expected at least 0, at most 1,000,000,000"),
        ("linear(open, [0])*mle", 1, "`first` is 'open'; expected a number"),
        ("linear(1 - 1, 0)*mle", 1, "a value is a number, true, false, a word, or text in quotes"),
        ("+".join(["mle"] * 40), 129, "a combination has 32 terms at most"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_with_its_place(text: str, place: int, reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_terms(text)
    assert str(error.value).startswith(f"--objective '{text}', character {place}: ")
    assert reason in str(error.value)


@given(st.text(alphabet="0.5*e+-()='\" a,/:py\\\n", max_size=30) | st.text())
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    with suppress(UserError):  # any other exception would be a traceback
        assert parse_terms(text)


numbers = st.floats(min_value=0, max_value=1e6, allow_subnormal=False)
schedules = (
    st.builds(Constant, numbers)
    | st.builds(Linear, numbers, numbers)
    | st.builds(Cosine, numbers, numbers)
    | st.builds(Step, numbers, numbers, at=st.floats(min_value=0, max_value=1))
)


@given(schedules)
def test_a_weight_is_read_back_as_it_was_written(schedule: Schedule) -> None:
    (term,) = parse_terms(f"{schedule}*mle")
    assert term.weight is not None
    for progress in (0.0, 0.25, 0.5, 1.0):
        assert term.weight(progress) == pytest.approx(schedule(progress), rel=1e-14)


def test_weights_at_the_first_middle_and_last_step() -> None:
    def values(schedule: Schedule) -> list[float]:
        return [schedule(progress) for progress in (0.0, 0.25, 0.5, 1.0)]

    assert values(Constant(0.3)) == [0.3] * 4
    assert values(Linear(1, 0)) == [1.0, 0.75, 0.5, 0.0]
    assert values(Linear(0.1, 0.3)) == [0.1, pytest.approx(0.15), pytest.approx(0.2), 0.3]
    # Half a wave: cos(pi / 4) = sqrt(1/2) at a quarter.
    assert values(Cosine(1, 0)) == [1.0, pytest.approx((1 + math.sqrt(0.5)) / 2), pytest.approx(0.5), 0.0]
    assert values(Cosine(0.1, 0.3))[::3] == [0.1, 0.3]  # exact at both ends
    assert values(Step(1, 0.2, at=0.5)) == [1.0, 1.0, 0.2, 0.2]
    assert values(Step(1, 0.2, at=0)) == [0.2] * 4
