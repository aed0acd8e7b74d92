"""Numbers as they are shown, against arithmetic by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from emobench.leaderboard.entry import Entry
from emobench.leaderboard.stats.compare import Contrast
from emobench.report import numbers as figures

MakeEntry = Callable[..., Entry]


def contrast(effect: float, unit: str, log: bool, ci95: tuple[float, float] | None = None) -> Contrast:
    return Contrast(
        candidate="0" * 12,
        baseline="1" * 12,
        metric="a/b",
        tasks=("a",),
        unit=unit,
        higher_is_better=True,
        baseline_mean=1.0,
        candidate_mean=1.0,
        effect=effect,
        log_scale=log,
        verdict=None,
        ci95=ci95,
    )


def test_percent_has_enough_decimals_for_its_smallest_spread(make_row: MakeEntry) -> None:
    """The spreads are 2, 0.2 and 0.02 percent points; a fourth, of 0.0002, ends at 3 decimals, and is not 0."""
    wide, small, smaller, tiny = (
        make_row("emo", {"a/accuracy": [0.9 - step, 0.9, 0.9 + step]}).metrics["a/accuracy"]
        for step in (0.02, 0.002, 0.0002, 0.000002)
    )
    assert [figures.decimals([m]) for m in (wide, small, smaller, tiny)] == [1, 1, 2, 3]
    assert figures.decimals([wide, smaller]) == 2
    assert figures.number(wide, 1) == "90.0 ± 2.0"
    assert figures.number(tiny, 3) == "90.000 ± <0.001"


@pytest.mark.parametrize(
    ("metric", "values", "shown"),
    [
        ("a/ppl", [1.956, 1.956, 1.956], "1.96 ± 0.00"),
        ("a/ppl", [463.264, 463.264004, 463.264001], "463.3 ± 0.0"),
        ("a/kl", [0.436], "0.436"),
        ("a/kl", [0.01234], "0.0123"),
        ("a/kl", [0.0], "0.000"),
        ("a/ppl", [41.26], "41.3"),
        ("a/accuracy", [0.00436], "0.4"),
    ],
)
def test_small_values_keep_three_digits(make_row: MakeEntry, metric: str, values: list[float], shown: str) -> None:
    found = make_row("emo", {metric: values}).metrics[metric]
    assert figures.number(found, figures.decimals([found])) == shown


def test_an_interval_has_enough_decimals_for_its_width() -> None:
    """Half the width is 0.015 percent."""
    ratio = contrast(math.log(1.00004), "perplexity", True, (math.log(0.99989), math.log(1.00019)))
    assert figures.difference(ratio, 1, interval=True) == "0.00 [-0.01, +0.02] %"
    assert figures.difference(ratio, 1) == "0.0 %"
    beyond = replace(contrast(0.00004, "fraction", False), verdict="better")
    assert figures.difference(beyond, 1) == "+0.004"


def test_an_interval_stands_in_the_place_of_the_spread(make_row: MakeEntry) -> None:
    """Over 3 seeds it is the mean -+ 4.3027 s / sqrt(3) (Student's t with 2 degrees of freedom)."""
    metric = make_row("emo", {"a/kl": [1.0, 1.1, 1.2]}).metrics["a/kl"]
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert figures.number(metric, 3, interval=True) == f"1.100 [{1.1 - half:.3f}, {1.1 + half:.3f}]"
    single = make_row("emo", {"a/kl": [1.0]}).metrics["a/kl"]
    assert figures.number(single, 3) == figures.number(single, 3, interval=True) == "1.000"


@pytest.mark.parametrize(
    ("effect", "unit", "log", "shown"),
    [
        (0.1213, "fraction", False, "+12.1"),
        (-0.0301, "fraction", False, "-3.0"),
        (0.00004, "fraction", False, "0.0"),
        (-0.00004, "fraction", False, "0.0"),
        (-1.25, "nats", False, "-1.2"),
        (math.log(1.5), "perplexity", True, "+50.0 %"),
        (math.log(0.25), "perplexity", True, "-75.0 %"),
    ],
)
def test_differences_have_a_sign_and_their_unit(effect: float, unit: str, log: bool, shown: str) -> None:
    assert figures.difference(contrast(effect, unit, log), 1) == shown


def test_an_interval_of_a_difference_is_on_its_scale() -> None:
    points = contrast(0.05, "fraction", False, (0.01, 0.09))
    assert figures.difference(points, 1, interval=True) == "+5.0 [+1.0, +9.0]"
    ratio = contrast(math.log(2), "perplexity", True, (math.log(0.5), math.log(8)))
    assert figures.difference(ratio, 0, interval=True) == "+100 [-50, +700] %"


def test_a_count_that_rounds_to_a_thousand_of_a_unit_is_one_of_the_next() -> None:
    shown = {999_885_952: "1B", 999_400_000: "999M", 124_439_808: "124M", 1000: "1k", 999: "999"}
    assert {count: figures.large(count) for count in shown} == shown


def test_a_value_that_rounds_to_zero_has_no_sign() -> None:
    assert [figures.plain(value, "nats", 3) for value in (-8.67e-17, -0.0, -0.001)] == ["0.000", "0.000", "-0.001"]
    assert [figures.percent(share) for share in (0.9534, -1e-9, None)] == ["95.3 %", "0.0 %", figures.ABSENT]


def test_values_that_are_read_together_have_no_rounding_noise() -> None:
    assert figures.alike([4.3171, 0.00041, -8.67e-17]) == ["4.317", "0.00041", "0"]
    assert figures.alike([-8.67e-17, 1e-18, 0.0]) == ["0", "0", "0"]
    assert figures.alike([123.456, 99.94, 7.0]) == ["123.5", "99.94", "7"]
    assert figures.alike([5e-5, 2.5e-5, 0.0]) == ["5e-05", "2.5e-05", "0"]
    assert figures.alike([float("nan"), 1.5]) == ["nan", "1.5"]
    assert figures.alike([12_345_678.0, 2.0]) == ["1.235e+07", "0"]
