"""What a series takes of a summary and of an entry, and its linearised values, against leaving each item out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from emobench.core.errors import MetricError
from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.stats.difference import compare_rows
from emobench.leaderboard.stats.series import Common, Series, effective, is_log, linearise, mean, weighted_mean
from emobench.leaderboard.stats.summary import summarise
from emobench.tasks.scores import Examples, Score


def examples_of(value_I: Any, weight_I: Any = None) -> Examples:
    weights = np.ones(len(value_I)) if weight_I is None else np.asarray(weight_I, dtype=float)
    pairs = zip(np.asarray(value_I, dtype=float).tolist(), weights.tolist(), strict=True)
    return {f"{i:03}": pair for i, pair in enumerate(pairs)}


def score(examples: Examples, unit: str = "nats", value: float | None = None, aggregate: Any = "mean") -> Score:
    centre = weighted_mean(examples) if value is None else value
    return Score(
        value=centre, n=len(examples), higher_is_better=True, unit=unit, examples=examples, aggregate=aggregate
    )


@pytest.mark.parametrize("centre", [None, 40.0])
@pytest.mark.parametrize("times", [1.0, 1e-4, 1e6])
def test_linearised_values_are_pseudo_values_around_the_score(centre: float | None, times: float) -> None:
    """Whatever unit the weights have."""
    rng = np.random.default_rng(0)
    value_I, weight_I = rng.normal(3, 1, 15), times * rng.lognormal(0, 1, 15)
    weight_I[4] = 0.0
    whole = np.average(value_I, weights=weight_I)
    without = [np.average(np.delete(value_I, i), weights=np.delete(weight_I, i)) for i in range(15)]
    pseudo_I = 15 * whole - 14 * np.array(without)
    around = whole if centre is None else centre
    given = examples_of(value_I, weight_I)
    found = linearise(given, sorted(given), float(around))
    assert found == pytest.approx(pseudo_I - pseudo_I.mean() + around)
    assert effective(given) == pytest.approx(weight_I.sum() ** 2 / np.square(weight_I).sum())
    assert weighted_mean(given) == pytest.approx(whole)


def test_one_item_with_all_of_the_weight_shows_no_spread() -> None:
    given = examples_of([5.0, 1.0, 2.0], [3.0, 0.0, 0.0])
    assert linearise(given, sorted(given), 5.0).tolist() == [5.0] * 3
    with pytest.raises(MetricError, match="sum to 0"):
        weighted_mean(examples_of([5.0, 1.0], [0.0, 0.0]))


def test_a_mean_of_perplexities_is_geometric() -> None:
    assert mean([10.0, 1000.0], log=True) == pytest.approx(100)
    assert mean([10.0, 1000.0], log=False) == 505


def test_examples_are_logarithms_if_their_mean_is_the_scores_within_a_thousandth() -> None:
    nats = examples_of([2.0, 4.0], [1.0, 1.0])
    for times, found in ((1.0, True), (1.0009, True), (0.9991, True), (1.0012, False), (0.9988, False)):
        assert is_log(nats, times * math.exp(3)) == found
    assert not is_log(nats, 3.0)
    assert not is_log(examples_of([1e4, 1e4]), 20.0)


@pytest.mark.parametrize(
    ("unit", "values", "reach"),
    [
        ("fraction", (0.5, 0.5), 1.0),
        ("fraction", (0.5004, 0.5), 1.0),  # within a thousandth of the mean of its examples
        ("fraction", (0.502, 0.5), 0.0),  # pseudo-values of one seed
        ("fraction", (0.5, 0.502), 0.0),
        ("points", (0.5, 0.5), math.inf),
        ("perplexity", (math.exp(0.5), math.exp(0.5)), math.inf),
        ("perplexity", (math.exp(0.5), 7.0), 0.0),
    ],
)
def test_how_far_an_item_can_reach(unit: str, values: Sequence[float], reach: float) -> None:
    given = [examples_of([0.0, 1.0]), examples_of([0.25, 0.75])]
    made = [score(e, unit, v, "jackknife") for e, v in zip(given, values, strict=True)]
    row = Series.of(summarise(made), [0, 1], given)
    assert row.reach == reach
    assert row.log_scale == (unit == "perplexity")


def test_examples_of_a_perplexity_that_are_no_logarithms_are_on_the_scores_scale() -> None:
    given = examples_of([4.0, 6.0])
    summary = summarise([score(given, "perplexity", 5.0, "jackknife")])
    assert Series.of(summary, [0], None).log_scale
    assert not Series.of(summary, [0], [given]).log_scale
    assert Series.of(summary, [0], [examples_of([math.log(5)] * 2)]).log_scale


def plain(values: Sequence[float], n: int = 9) -> dict[str, Any]:
    made = [Score(value=v, n=n, higher_is_better=True, unit="nats", aggregate="corpus") for v in values]
    return to_plain(summarise(made))


def test_the_values_of_an_entry_have_its_seeds(entry_of: Callable[..., Entry]) -> None:
    row = Series.of_entry(entry_of("emo", metrics={"t/x": plain([1.0, 2.0, 4.0])}, seeds=[3, 5, 8]), "t/x", None)
    assert (row.values, row.examples, row.of_examples) == ({3: 1.0, 5: 2.0, 8: 4.0}, None, True)
    assert Series.of_entry(entry_of("emo", metrics={"t/x": plain([1.0])}), "t/y", None) is None
    row = Series.of_entry(entry_of("emo", metrics={"t/x": plain([1.0], n=1)}, seeds=[3]), "t/x", None)
    assert (row.values, row.of_examples) == ({3: 1.0}, False)
    row = Series.of_entry(entry_of("pretrained", metrics={"t/x": plain([1.0])}), "t/x", None)
    assert row.values == {None: 1.0}


def test_a_number_taken_from_elsewhere_has_one_value_or_its_seeds(entry_of: Callable[..., Entry]) -> None:
    taken = {"kind": "imported", "source": {"cite": "a paper"}}

    def values(seeds: Sequence[int], values: Sequence[float]) -> Mapping[int | None, float] | None:
        metrics = {"t/x": plain(values)}
        row = Series.of_entry(entry_of("emo", metrics=metrics, seeds=list(seeds), **taken), "t/x", None)
        return None if row is None else row.values

    assert values([0, 1, 2], [5.0]) == {None: 5.0}  # the mean of three seeds, of which each is not known
    assert values([4], [5.0]) == {4: 5.0}
    assert values([], [5.0]) == {None: 5.0}
    assert values([0, 1], [5.0, 6.0]) == {0: 5.0, 1: 6.0}
    assert values([0, 1, 2], [5.0, 6.0]) is None
    assert values([], [5.0, 6.0]) is None


@pytest.mark.parametrize("seeds", [[], [5], [1, 2]])
def test_one_imported_training_is_no_base_for_a_verdict(seeds: list[int], entry_of: Callable[..., Entry]) -> None:
    """Three seeds against one number of a trained model: its own seed is one of many, too."""
    draw = np.random.default_rng(0)
    of_seeds = [examples_of(list(draw.normal(mean, 1, 40))) for mean in (2, 2, 2, 0)]
    metrics = [{"t/x": to_plain(summarise([score(one) for one in of]))} for of in (of_seeds[:3], of_seeds[3:])]
    taken = {"kind": "imported", "source": {"cite": "a file"}}
    rows = {
        "emo": (metrics[0], [0, 1, 2], of_seeds[:3]),
        "mle": (metrics[1], seeds, of_seeds[3:]),
        "pretrained": (metrics[1], [], of_seeds[3:]),
    }
    made = []
    for name, (of, own, examples) in rows.items():
        entry = entry_of(name, metrics=of, seeds=own, **taken)
        made.append(Series.of_entry(entry, "t/x", [{"t/x": one} for one in examples]))
    emo, mle, pretrained = (row for row in made if row is not None)
    for sides in (([emo], [mle]), ([mle], [emo])):
        assert isinstance(compare_rows(*sides), str)
    assert not isinstance(compare_rows([emo], [pretrained]), str)


def test_examples_are_taken_if_every_run_has_them(entry_of: Callable[..., Entry]) -> None:
    given = [examples_of([1.0, 2.0]), examples_of([3.0, 5.0])]
    entry = entry_of("emo", metrics={"t/x": to_plain(summarise([score(e) for e in given]))}, seeds=[0, 1])
    runs = [{"t/x": examples} for examples in given]
    row = Series.of_entry(entry, "t/x", runs)
    assert row.examples == dict(enumerate(given))
    for fewer in ([runs[0], {}], runs[:1], [{}, runs[1]], [], [{"t/y": given[0]}] * 2):
        row = Series.of_entry(entry, "t/x", fewer)
        assert (row.examples, row.of_examples) == (None, True)


def test_the_score_of_fewer_examples_is_their_mean_or_moves_with_it() -> None:
    """As of a mean, of a perplexity, and of pseudo-values around another score."""
    value_I, weight_I = np.array([1.0, 2.0, 4.0, 9.0]), np.array([1.0, 2.0, 1.0, 4.0])
    given = examples_of(value_I, weight_I)
    whole, kept = np.average(value_I, weights=weight_I), np.average(value_I[:3], weights=weight_I[:3])
    common = Common(frozenset(sorted(given)[:3]), 4, {})
    for value, log, expected in (
        (whole, False, kept),
        (whole + 3, False, kept + 3),
        (math.exp(whole), True, math.exp(kept)),
        (math.exp(whole + 1), True, math.exp(kept + 1)),
    ):
        row = Series(values={7: value}, examples={7: given}, log_scale=log)
        found = row.only(common, [7])
        assert found.value(7) == pytest.approx(expected)
        assert found.examples == {7: {key: given[key] for key in sorted(given)[:3]}}
        assert found.centre(7) == pytest.approx(math.log(expected) if log else expected)
    complete = Common(frozenset(given), 4, None)
    assert row.only(complete, [7]) is row


def test_items_are_in_the_order_of_their_ids_whatever_that_of_a_file() -> None:
    given = {"b": (2.0, 1.0), "10": (1.0, 1.0), "9": (5.0, 1.0), "a": (4.0, 1.0)}
    turned = dict(reversed(given.items()))
    row = Series(values={0: 3.0, 1: 3.0}, examples={0: given, 1: turned}, log_scale=False)
    assert row.linearised_values([0, 1]).tolist() == [[1.0, 5.0, 4.0, 2.0]] * 2


def test_a_row_without_seeds_gives_its_one_value_for_every_seed() -> None:
    given = examples_of([1.0, 3.0], [1.0, 0.0])
    row = Series(values={None: 1.0}, examples={None: given}, log_scale=False)
    assert (row.value(4), row.centre(None), row.examples_of(9)) == (1.0, 1.0, given)
    assert row.linearised_values([1, 2]).shape == (2, 2)
    assert [run.ids for run in row.scored_by([1, 2])] == [{"000"}] * 2  # what has no weight is in no score
    of_seeds = Series(values={0: 1.0, 1: 1.0}, examples={0: given}, log_scale=False)
    assert [run.ids for run in of_seeds.scored_by([0])] == [{"000"}]
    assert of_seeds.scored_by([0, 1]) == []
