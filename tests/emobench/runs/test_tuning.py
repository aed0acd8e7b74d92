"""Spaces of tuned settings, and the trials that samplers take from them."""

from __future__ import annotations

import math

import pytest

from emobench.core.errors import ConfigError
from emobench.leaderboard.entry import Trial
from emobench.registry import load_objective, objective_names
from emobench.runs.planning.request import Request, Search
from emobench.runs.tuned import ObjectiveSearch, main_parameter
from emobench.runs.tuning import Dimension, grid_trials, next_tpe_trial, parse_space, random_trials

RATE = "recipe.learning_rate=1e-6..1e-4"


def space(*given: str) -> tuple[Dimension, ...]:
    return parse_space(dict(text.split("=", 1) for text in given))


def test_a_space_is_read_as_it_is_written() -> None:
    rate, epochs, batch, gamma = space(RATE, "recipe.epochs=1..4", "recipe.batch=[16, 32]", "objective.gamma=0.1..0.9")
    assert (rate.name, rate.low, rate.high, rate.log, rate.whole) == ("recipe.learning_rate", 1e-6, 1e-4, True, False)
    assert (epochs.whole, epochs.log) == (True, False)
    assert batch.values == (16, 32)
    assert (gamma.log, gamma.whole) == (False, False)


@pytest.mark.parametrize(
    "text",
    [
        "a=",
        "a=1",
        "a=1..",
        "a=2..1",
        "a=1..1",
        "a=nan..1",
        "a=0..inf",
        "a=[1]",
        "a=[1, 1]",
        "a=low..high",
        "a=0..1",
        "a=0..5e-324",
        "a=-1e308..1e308",
    ],
)
def test_a_space_without_two_values_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--tune a="):
        space(text)


def test_a_grid_has_both_ends_and_equal_steps() -> None:
    trials = grid_trials(space(RATE), 5)
    assert trials == [{"recipe.learning_rate": value} for value in (1e-6, 3.16e-6, 1e-5, 3.16e-5, 1e-4)]


@pytest.mark.parametrize(("trials", "counts"), [(8, (4, 2)), (9, (3, 3)), (6, (3, 2)), (12, (4, 3))])
def test_a_grid_of_two_settings_has_exactly_the_trials(trials: int, counts: tuple[int, int]) -> None:
    points = grid_trials(space(RATE, "objective.gamma=0.1..0.9"), trials)
    assert len({tuple(point.items()) for point in points}) == trials
    for name, count in zip(("recipe.learning_rate", "objective.gamma"), counts, strict=True):
        assert len({point[name] for point in points}) == count


@pytest.mark.parametrize("trials", [5, 7, 11])
def test_a_number_that_no_grid_has_is_refused(trials: int) -> None:
    with pytest.raises(ConfigError, match=f"--trials {trials}"):
        grid_trials(space(RATE, "objective.gamma=0.1..0.9"), trials)
    with pytest.raises(ConfigError):
        grid_trials(space("recipe.epochs=1..3"), trials)


def test_a_grid_has_all_values_of_a_list() -> None:
    points = grid_trials(space(RATE, "b=[8, 16, 32, 64]"), 8)
    assert {point["b"] for point in points} == {8, 16, 32, 64}
    with pytest.raises(ConfigError):
        grid_trials(space("b=[8, 16, 32]"), 2)


@pytest.mark.parametrize("text", ["a=1e-300..1e300", "a=-1e300..1e300", "a=-1.0..1.0", "a=1e-320..1e-310"])
def test_a_range_of_any_size_has_values_inside(text: str) -> None:
    (dimension,) = space(text)
    for value in dimension.grid(9):
        assert dimension.low <= value <= dimension.high
        assert str(value) != "-0.0"


def test_values_of_a_list_that_yaml_reads_as_text_are_numbers() -> None:
    (rate,) = space("a=[1e-6, 1e-5, 1e-4]")
    assert rate.values == (1e-6, 1e-5, 1e-4)
    (schedule,) = space("a=[cosine, linear]")
    assert schedule.values == ("cosine", "linear")


@pytest.mark.parametrize(
    "text", ["a=1..10", "a=1..1000", "a=0.0..1.0", "a=0.999..0.9999", "a=-5e-7..5e-7", "a=[1, 2, 5]"]
)
@pytest.mark.parametrize("trials", range(2, 20))
def test_no_trial_of_a_grid_is_another_one(text: str, trials: int) -> None:
    try:
        points = grid_trials(space(text), trials)
    except ConfigError:
        assert text in ("a=1..10", "a=1..1000", "a=[1, 2, 5]")
        return
    assert len({point["a"] for point in points}) == trials


def test_the_main_parameter_of_each_objective_has_a_valid_range() -> None:
    known = {}
    for name in objective_names():
        for setting, values in main_parameter(name).items():
            (dimension,) = space(f"{setting}={values}")
            known[name] = dimension
            for share in (0.0, 0.3, 1.0):
                load_objective(name, {setting.removeprefix("objective."): dimension.at(share)})
    assert known["tailr"].at(0.3) == 0.3
    assert (known["psft"].low, known["psft"].whole) == (1, True)


@pytest.mark.parametrize(("higher", "best"), [(True, 2), (False, 0)])
def test_a_search_of_lists_is_recorded(higher: bool, best: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that cannot be hashed have no edge."""
    monkeypatch.setattr("emobench.runs.tuned.metric_of", lambda request: ("mauve", higher, "fraction"))
    request = Request(suite="lm-quick", model="tiny-lm")
    search = ObjectiveSearch(request, "mle", Search(space={}, trials=3), space("a=[[q], [q, v], [k]]"))
    for value, targets in zip((0.1, 0.2, 0.3), search.space[0].values, strict=True):
        search.trials.append(Trial(settings={"a": targets}, value=value))
    tuning = search.tuning()
    assert (tuning.chosen, tuning.edge) == (best, ())


def test_random_trials_of_a_setting_do_not_depend_on_the_others() -> None:
    alone = random_trials(space(RATE), 40, seed=3)
    both = random_trials(space("objective.gamma=0.1..0.9", RATE), 40, seed=3)
    name = "recipe.learning_rate"
    assert [trial[name] for trial in alone] == [trial[name] for trial in both]
    assert alone != random_trials(space(RATE), 40, seed=4)
    rates = [trial[name] for trial in alone]
    assert all(1e-6 <= rate <= 1e-4 for rate in rates)
    assert 10 <= sum(rate < 1e-5 for rate in rates) <= 30  # half of a log scale


def test_tpe_goes_on_as_it_would_have_and_finds_the_best_region() -> None:
    pytest.importorskip("optuna")
    tuned = space(RATE, "recipe.epochs=1..4", "recipe.batch=[16, 32]")

    def search(count: int, finished: list[tuple[dict[str, object], float | None]]) -> None:
        while len(finished) < count:
            point = next_tpe_trial(tuned, finished, seed=5, maximise=False)
            rate = float(point["recipe.learning_rate"])
            value = (math.log10(rate) + 4.5) ** 2 + abs(point["recipe.epochs"] - 2)
            finished.append((point, None if len(finished) == 3 else value))

    whole: list[tuple[dict[str, object], float | None]] = []
    search(30, whole)
    resumed = whole[:12]
    search(30, resumed)
    assert resumed == whole
    assert all(point["recipe.batch"] in (16, 32) for point, _ in whole)
    best, _ = min((trial for trial in whole if trial[1] is not None), key=lambda trial: trial[1])
    assert best["recipe.epochs"] == 2
    assert 1e-5 < best["recipe.learning_rate"] < 1e-4


def test_the_smallest_and_the_largest_value_tried_are_edges() -> None:
    rate = Dimension("rate", low=1e-6, high=1e-4)
    tried = rate.grid(5)
    assert [rate.is_edge(value, tried) for value in tried] == [True, False, False, False, True]
    assert not rate.is_edge(1e-6, [1e-6, 1e-4]), "of two values both are ends"
    assert not Dimension("schedule", values=("cosine", "linear", "flat")).is_edge(
        "cosine", ["cosine", "linear", "flat"]
    )
