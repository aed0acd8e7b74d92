"""Which rows a text means."""

from __future__ import annotations

import pytest

from emobench.core.errors import ConfigError
from emobench.leaderboard.labels import is_meant, is_row

LABEL = "tailr(gamma=0.2, floor=0.0, cost=gpt2-large)"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("tailr", True),
        (LABEL, True),
        ("tailr(gamma=0.2)", True),
        ("tailr(floor=0, gamma=0.20)", True),
        ("tailr(cost=gpt2-large)", True),
        ("tailr(gamma=0.1)", False),
        ("tailr(gamma=0.2, nats=1)", False),
        ("tail", False),
        ("mixce(gamma=0.2)", False),
    ],
)
def test_a_name_means_every_setting_and_a_setting_those_that_have_it(text: str, meant: bool) -> None:
    assert is_meant(text, "tailr", LABEL) is meant


@pytest.mark.parametrize(
    ("text", "meant"), [("012345", True), ("0123456789ab", True), ("01234", False), ("123456", False), ("tailr", True)]
)
def test_an_id_means_its_row(text: str, meant: bool) -> None:
    assert is_row(text, "0123456789ab", "tailr", LABEL) is meant


def test_a_sum_of_objectives_is_meant_by_its_whole_name() -> None:
    name = "0.5*emo + 0.5*tailr(gamma=0.2)"
    assert is_meant(name, name, name)
    assert not is_meant("tailr(gamma=0.2)", name, name)
    assert not is_meant("emo", name, name)


def test_text_that_is_no_objective_gets_a_sentence() -> None:
    with pytest.raises(ConfigError, match="'tailr\\(gamma' could not be read"):
        is_meant("tailr(gamma", "tailr", LABEL)
