"""Families of tests keep their error rate and their power: the benchmark, with fewer draws."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from evidence.families import (
    EVERYTHING,
    GAINS,
    OUT,
    TEXTS,
    Condition,
    conditions,
    critical,
    detectable,
    found,
    holm,
    places,
    wrong,
)

from emobench.leaderboard.entry import Entry
from emobench.leaderboard.stats import classical as package
from emobench.leaderboard.stats.classical import ALPHA
from emobench.leaderboard.stats.compare import family_of
from emobench.leaderboard.stats.random_effects import Uncertainty, exponent
from emobench.tasks.families import PRIMARY

DRAWS = 1500


@pytest.fixture(scope="module")
def recorded() -> Any:
    return json.loads(OUT.read_text())


def about(share: float) -> Any:
    """Return what a share of DRAWS may be that is `share` of many."""
    return pytest.approx(share, abs=4 * np.sqrt(max(share * (1 - share), 0.01) / DRAWS))


def test_the_benchmark_tests_as_the_package_does() -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        parts = [((float(v), 2), (1.0, TEXTS - 1)) for v in 0.5 * rng.chisquare(2, 6)]
        given, effects = [Uncertainty(of, "seeds and items") for of in parts], 4 * rng.normal(size=6)
        adjusted = package.holm([u.p_value(effect) for u, effect in zip(given, effects, strict=True)])
        t = np.abs(effects) / [u.standard_error for u in given]
        share = np.array([of[0][0] / (of[0][0] + 1) for of in parts])
        limits = [critical(share, 2, TEXTS - 1, ALPHA / k, exponent(ALPHA / k, 2)) for k in range(1, 7)]
        survived = np.sum([t > limit for limit in limits], axis=0)
        assert holm(survived[None])[0].tolist() == [p <= ALPHA for p in adjusted]


@pytest.mark.parametrize("name", ["independent", "tasks correlated .9", "seeds alone", "seeds most, correlated .45"])
def test_a_family_errs_in_5_percent_of_comparisons_at_most(name: str, recorded: Any) -> None:
    for title, differing in (("wrong", ()), ("wrong, half of the tasks differ", (0, 2, 4))):
        shares = recorded[title][name]
        assert shares.keys() == places().keys()
        assert max(share for family, share in shares.items() if family != EVERYTHING) <= 0.054
        now = wrong(conditions()[name], DRAWS, seed=7, differing=differing)
        assert now == {family: about(share) for family, share in shares.items()}


def test_the_gains_of_the_paper_are_found(recorded: Any) -> None:
    shares, now = recorded["found"]["3 seeds"], found(Condition(), DRAWS, seed=8)
    assert now == {name: [about(share) for share in of] for name, of in shares.items()}
    assert shares[PRIMARY] == [1.0]
    for place in range(len(GAINS)):
        assert shares["unadjusted"][place] > shares["mauve"][place]
        assert 2 <= shares["mauve"][place] / shares[EVERYTHING][place] <= 5.1  # as the README says


def test_the_median_of_detectable_is_what_is_detected_with_a_power_of_80_percent(recorded: Any) -> None:
    for name, told in recorded["detectable"].items():
        assert told["now: median"] == pytest.approx(told["true"], rel=0.1), name
        assert 0.76 <= told["now: power at the median"] <= 0.84, name
        assert 0.92 <= told["now: covered"] <= 0.98, name
    assert max(told["before: median"] / told["true"] for told in recorded["detectable"].values()) > 1.4
    now = detectable(Condition(), DRAWS, seed=9)
    told = recorded["detectable"]["3 seeds, noise of seeds 1.0, of texts 1.0"]
    assert now["true"] == pytest.approx(told["true"], rel=0.05)
    assert now["now: median"] == pytest.approx(told["now: median"], rel=0.1)


def test_a_row_has_the_family_that_both_sides_name(entry_of: Callable[..., Entry]) -> None:
    plain = {"mean": 0.5, "std": None, "values": [0.5], "n": 9, "ci95": None, "ci95_of": None, "unit": "fraction"}
    metric = {**plain, "higher_is_better": True, "ci95_missing": "one seed", "flags": []}
    entry = entry_of("emo", metrics={"a/x": metric, "b/x": metric})

    def family(ours: Mapping[str, str], theirs: Mapping[str, str], *columns: str) -> str | None:
        sides = [replace(entry, families=named, primary=None) for named in (ours, theirs)]
        return family_of(sides[0], sides[1], columns[0], columns)

    both, one, other = {"a/x": "x", "b/x": "x"}, {"a/x": "x"}, {"a/x": "x", "b/x": "y"}
    assert family(both, both, "a/x") == "x"
    assert family(both, {}, "a/x") is None
    assert family({}, both, "a/x") is None
    assert family(both, other, "b/x") is None
    assert family(both, both, "a/x", "b/x") == "x"
    assert family(one, both, "a/x", "b/x") is None
    assert family(other, other, "a/x", "b/x") is None
    sides = [replace(entry, families=both, primary="a/x") for _ in range(2)]
    assert family_of(sides[0], sides[1], "a/x", ["a/x"]) == PRIMARY
    assert family_of(sides[0], replace(sides[1], primary="b/x"), "a/x", ["a/x"]) == "x"
