"""What decides a tie, and what a larger study shows, against statsmodels and the variances that a sample has."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from statsmodels.stats.power import TTestPower

from emobench.leaderboard.entry import Entry
from emobench.leaderboard.run_files import ExamplesReader
from emobench.leaderboard.stats.compare import Contrast, compare
from emobench.leaderboard.stats.power import detectable_with, seeds_needed, what_decides
from emobench.leaderboard.stats.random_effects import Uncertainty, crossed, over_items, over_seeds, unpaired
from emobench.report import board_table, compare_table
from emobench.report.notes import deciding_text

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.mark.parametrize("seeds", [3, 5, 12, 60])
@pytest.mark.parametrize("level", [0.05, 0.01])
def test_from_well_known_noise_the_power_is_that_of_a_t_test(seeds: int, level: float) -> None:
    pilot = Uncertainty(((1 / 50_000, 49_999),), "seeds")
    effect = detectable_with(pilot, seeds=seeds / 50_000, level=level)
    assert TTestPower().power(effect, nobs=seeds, alpha=level) == pytest.approx(0.8, abs=0.002)


@pytest.mark.parametrize("pilot_seeds", [3, 5, 10])
def test_the_power_is_80_percent_on_average_over_pilots(pilot_seeds: int) -> None:
    rng, found = np.random.default_rng(pilot_seeds), []
    for _ in range(400):
        noise = over_seeds(rng.normal(0, 1, pilot_seeds))
        seeds = seeds_needed(noise, 0.5, pilot_seeds).count
        found.append(TTestPower().power(0.5, nobs=seeds, alpha=0.05))
    assert 0.77 <= np.nan_to_num(found, nan=1.0).mean() <= 0.83  # nan: of 300 seeds and more


def test_simulated_plans_have_the_promised_power() -> None:
    results = json.loads((BENCHMARKS / "results/evidence/planned_power.json").read_text())
    kept = [name for name, one in results["conditions"].items() if 0.75 <= one["power"] <= 0.9]
    assert len(kept) >= 12
    assert any("right or wrong" in name for name in kept)


def values(seeds: int, items: int) -> np.ndarray:
    """Return (S, I) values whose variances are .09 of seeds, .25 of items and 1 of the residual."""
    rng = np.random.default_rng(3)
    return rng.normal(0, 0.3, (seeds, 1)) + rng.normal(0, 0.5, items) + rng.normal(0, 1, (seeds, items))


@pytest.mark.parametrize(("seeds", "items"), [(1, 1), (0.1, 1), (1, 0.1), (0.05, 0.02)])
@pytest.mark.parametrize("paired", [True, False])
def test_each_variance_is_divided_by_its_own_numbers(seeds: float, items: float, paired: bool) -> None:
    left, right = values(400, 1000), np.zeros((400, 1000))
    noise = crossed(left) if paired else unpaired((left, right))
    assert noise is not None
    variance = 0.09 / (400 * seeds) + 0.25 / (1000 * items) + 1 / (400 * seeds * 1000 * items)
    # The normal distribution's 1.96 + 0.84, as 20 seeds and 20 items make it or a little more.
    ratio = detectable_with(noise, seeds=seeds, items=items) / math.sqrt(variance)
    assert 2.8 * 0.93 <= ratio <= 2.95 * 1.07


@pytest.fixture
def entries(make_entry: Callable[..., Entry]) -> tuple[Entry, Entry]:
    """Two objectives whose differences vary by seed and by item."""
    rng = np.random.default_rng(7)
    item = rng.normal(0, 0.5, 60)
    item -= item.mean()
    made = []
    for name, sign in (("mle", 1), ("emo", -1)):
        values_SI = rng.normal(0, 0.1, (3, 1)) + sign * (item / 2 - 0.03) + rng.normal(0, 0.3, (3, 60))
        made.append(make_entry(name, {"nli": values_SI}, unit="score", primary="nli/accuracy"))
    return made[0], made[1]


@pytest.fixture
def tie(entries: tuple[Entry, Entry], runs: Path) -> Contrast:
    mle, emo = entries
    (contrast,) = compare(mle, [emo], ExamplesReader(runs)).contrasts
    assert contrast.verdict == "tied"
    return replace(contrast, effect=3 * contrast.noise.standard_error)


def test_more_seeds_or_more_items_decide_a_tie(tie: Contrast) -> None:
    decision = what_decides(tie)
    for name, now in (("seeds", 3), ("items", 60)):
        number = getattr(decision, name)
        low, high = number.ci95
        assert now < low <= number.count
        assert high is None or number.count <= high
        enough = {name: number.count / now}
        before = {name: (number.count - 1) / now}
        assert detectable_with(tie.noise, **enough) <= tie.effect < detectable_with(tie.noise, **before)
    stricter = what_decides(replace(tie, level=0.025))
    assert stricter.seeds.count > decision.seeds.count


def test_no_number_of_seeds_decides_where_items_dominate(tie: Contrast) -> None:
    noise = replace(tie.noise, parts=((1e-9, 2), (1e-2, 59)))
    decision = what_decides(replace(tie, noise=noise, effect=0.2))
    assert decision.seeds.count is decision.seeds.ci95[1] is None
    assert 60 < decision.items.count < 200


def test_only_what_was_sampled_is_counted(tie: Contrast) -> None:
    of_items = over_items(np.random.default_rng(0).normal(0, 1, 40))
    decision = what_decides(replace(tie, noise=of_items, seeds=None, items=40, effect=0.3))
    assert decision.seeds is None
    assert decision.items.count > 40
    of_seeds = over_seeds(np.array([0.1, -0.1, 0.05]))
    decision = what_decides(replace(tie, noise=of_seeds, seeds=3, items=None, effect=0.1))
    assert decision.items is None
    assert decision.seeds.count > 3


def test_nothing_decides_what_is_no_tie(tie: Contrast) -> None:
    for changed in ({"verdict": "better"}, {"verdict": "undetermined"}, {"noise": None}, {"effect": 0.0}):
        assert what_decides(replace(tie, **changed)) is None


def test_a_difference_of_about_0_is_left_out(tie: Contrast, entries: tuple[Entry, Entry]) -> None:
    noise = replace(tie.noise, parts=((1e-2, 2), (1e-2, 59)), residual=0.0)
    assert deciding_text(replace(tie, noise=noise, effect=0.003), entries[0]) == ""
    neither = deciding_text(replace(tie, noise=noise, effect=0.2), entries[0])
    assert neither.count("alone will not decide it") == 2


def test_tables_say_what_decides_a_tie(entries: tuple[Entry, Entry], runs: Path) -> None:
    mle, emo = entries
    comparison = compare(mle, [emo], ExamplesReader(runs))
    (contrast,) = comparison.contrasts
    text = deciding_text(contrast, mle)
    assert "seeds" in text
    assert text in compare_table.report([comparison]).markdown()
    assert text.partition(":")[2] in board_table.report([mle, emo], ExamplesReader(runs)).markdown()
    (plain,) = compare_table.to_json(comparison)["contrasts"]
    assert plain["decided_by"]["seeds"]["count"] == what_decides(contrast).seeds.count
