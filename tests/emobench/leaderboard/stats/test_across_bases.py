"""Across bases a difference is tested against how much bases differ, and entries of several are pooled only then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from shown import compared

from emobench.errors import ConfigError
from emobench.leaderboard.query.references import select
from emobench.leaderboard.render.compare_table import to_json
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.schema.examples import ExamplesReader
from emobench.leaderboard.stats.across_bases import compare_across_bases
from emobench.leaderboard.stats.compare import Comparison, comparisons
from emobench.leaderboard.stats.random_effects import crossed
from emobench.leaderboard.store.board import Leaderboard

MakeEntry = Callable[..., Entry]


def model(base: int, setting: str = "5") -> dict[str, Any]:
    name = f"tiny-oracle(seed={base})" if base else "tiny-oracle"
    pretraining = {"seed": base, "setting": setting * 64}
    return {"name": name, "source": "made", "revision": f"sha256:{base}{setting}", "pretraining": pretraining}


def across(ours: Sequence[Entry], theirs: Sequence[Entry], examples: Any = None) -> Comparison:
    (found,) = compare_across_bases([ours, theirs], None, examples)
    return found


def test_a_value_is_the_mean_over_the_seeds_of_a_base_beside_its_rival_s(make_row: MakeEntry) -> None:
    """Against a paired t test over the bases' means (geometric ones of perplexities)."""
    rng = np.random.default_rng(0)
    rows: dict[str, list[Entry]] = {"mle": [], "emo": []}
    values: dict[str, dict[int, Any]] = {"mle": {}, "emo": {}}
    for base in range(4):
        level = rng.normal(0, 0.05)  # of the base, for both
        for name, gain in (("mle", 0.0), ("emo", 0.03)):
            accuracy, ppl = (
                0.5 + level + gain + rng.normal(0, 0.01, 3),
                np.exp(3 + level - gain + rng.normal(0, 0.01, 3)),
            )
            values[name][base] = accuracy.mean(), np.log(ppl).mean()
            scores = {"lm/accuracy": list(accuracy), "lm/ppl": list(ppl)}
            rows[name].append(make_row(name, scores, model=model(base)))
    found = across(list(reversed(rows["emo"])), rows["mle"])  # in whatever order they were recorded
    for place, metric in enumerate(("lm/accuracy", "lm/ppl")):
        (contrast,) = [c for c in found.contrasts if c.metric == metric]
        ours, theirs = ([values[name][base][place] for base in range(4)] for name in ("emo", "mle"))
        want = stats.ttest_rel(ours, theirs)
        assert (contrast.p, contrast.seeds) == (pytest.approx(want.pvalue), 4)
        assert contrast.ci95 == pytest.approx(tuple(want.confidence_interval()))
        assert contrast.test == "paired t over bases"
    assert found.replicates == "bases"
    assert "tiny-oracle, 4 bases" in compared([found])[0][0].heading
    plain = to_json(found)
    assert plain["replicates"] == "bases"
    assert set(plain["baseline"]["bases"]) == {entry.id for entry in rows["mle"]}


def test_below_three_bases_it_is_undetermined_and_says_why(make_row: MakeEntry) -> None:
    rows = [
        [make_row(name, {"lm/accuracy": [v, v + 0.01, v - 0.01]}, model=model(base)) for base in range(2)]
        for name, v in (("emo", 0.9), ("mle", 0.1))
    ]
    (contrast,) = across(*rows).contrasts
    assert (contrast.verdict, contrast.why, contrast.p) == ("undetermined", "2 common bases; 3 are needed", None)


def test_only_bases_that_both_have_and_that_are_alike_count(make_row: MakeEntry) -> None:
    def rows(name: str, value: float, bases: Sequence[dict[str, Any]], **changes: Any) -> list[Entry]:
        return [
            make_row(name, {"lm/accuracy": [value + n / 99, value, value * (1 + n % 2 / 99)]}, model=one, **changes)
            for n, one in enumerate(bases)
        ]

    ours, theirs = rows("emo", 0.6, [model(n) for n in range(5)]), rows("mle", 0.5, [model(n) for n in range(1, 4)])
    found = across(ours, theirs)
    assert found.contrasts[0].seeds == 3
    sides = [found.members[row.id] for row in (found.baseline, *found.candidates)]
    assert {entry.id for entry in sides[0]} == {entry.id for entry in theirs}
    assert [entry.model for entry in sides[0]] == [entry.model for entry in sides[1]]
    other = rows("mle", 0.5, [model(n, setting="7") for n in range(3)])
    gpt2 = rows("mle", 0.5, [{"name": "gpt2", "source": "gpt2"}])
    recipe = rows("mle", 0.5, [model(n) for n in range(3)], recipe={"name": "lm", "epochs": 9})
    for unlike in (other, gpt2, recipe):
        with pytest.raises(ConfigError, match=r"No base is common to the rows that were named .*: make some with"):
            compare_across_bases([ours, unlike], None)


def test_without_the_option_entries_of_several_bases_are_never_pooled(make_row: MakeEntry) -> None:
    ours, theirs = (
        [make_row(name, {"lm/accuracy": [v, v + 0.01, v - 0.01]}, model=model(base)) for base in range(3)]
        for name, v in (("emo", 0.9), ("mle", 0.1))
    )
    found = comparisons([ours, theirs], None)
    assert [[c.model.name for c in one.candidates] for one in found] == [[e.model.name] for e in theirs]
    with pytest.raises(ConfigError, match="differs in model"):
        comparisons([[ours[0]], [theirs[1]]], None)


def answers(rng: np.random.Generator, level_I: np.ndarray, gain: float) -> np.ndarray:
    return (rng.random((2, len(level_I))) < np.clip(level_I + gain, 0, 1)).astype(float)


def test_examples_are_crossed_with_bases(make_entry: MakeEntry, runs: Path) -> None:
    rng = np.random.default_rng(1)
    level_I = rng.random(80)
    rows: dict[str, list[Entry]] = {}
    for name, gain in (("mle", -0.2), ("emo", 0.2)):
        given = [answers(rng, level_I, gain) for _ in range(3)]
        rows[name] = [make_entry(name, {"t": v}, seeds=(0, 1), model=model(base)) for base, v in enumerate(given)]
    (contrast,) = across(rows["emo"], rows["mle"], ExamplesReader(runs)).contrasts
    assert (contrast.test, contrast.items, contrast.seeds) == ("random effects of bases and items", 80, 3)
    assert contrast.verdict == "better"
    without = across(rows["emo"], rows["mle"]).contrasts[0]
    assert (without.verdict, without.within) == ("undetermined", ())


def test_equal_objectives_are_told_apart_in_5_percent_of_comparisons(make_row: MakeEntry) -> None:
    """A base moves an objective by .03, a seed by .01: over the seeds of one base, most comparisons would be wrong."""
    rng, wrong, wrong_of_one = np.random.default_rng(2), 0, 0
    for _ in range(250):
        rows = []
        for name in ("emo", "mle"):
            moved = 0.5 + rng.normal(0, 0.03, 3)
            of_bases = [list(m + rng.normal(0, 0.01, 3)) for m in moved]
            rows.append([make_row(name, {"lm/accuracy": v}, model=model(base)) for base, v in enumerate(of_bases)])
        wrong += across(*rows).contrasts[0].beyond_noise
        (one,) = comparisons([rows[0][:1], rows[1][:1]], None)
        wrong_of_one += one.contrasts[0].beyond_noise
    assert wrong <= 23  # 5 % of 250 and 3 standard deviations
    assert wrong_of_one > 75


def test_the_command_compares_over_bases(make_row: MakeEntry, command: Callable[..., Any], tmp_path: Path) -> None:
    board = Leaderboard(tmp_path / "board")
    for name, value in (("mle", 0.5), ("emo", 0.6)):
        for base in range(3):
            of_seeds = [value + base / 50, value + base / 49, value + base / 48 + 0.001]
            board.append(make_row(name, {"lm/accuracy": of_seeds}, model=model(base)))
    assert len(select("emo", board.root)) == 3
    places = ("--leaderboard", board.root, "--runs", tmp_path)
    done = command("compare", "emo", "mle", "--across-bases", "--json", *places)
    assert done.code == 0, done.err
    (found,) = done.json["comparisons"]
    assert found["replicates"] == "bases"
    assert len(found["candidates"][0]["bases"]) == 3
    refused = command("compare", "emo", "mle", "--across-bases", "--anyway", *places)
    assert (refused.code, "drop --anyway" in refused.err) == (2, True)


def test_an_item_s_value_is_the_mean_over_the_seeds_of_a_base(make_entry: MakeEntry, runs: Path) -> None:
    """Of three seeds of which one differs much: a median would be another number."""
    rng = np.random.default_rng(3)
    common_I = rng.random(30)
    rows: dict[str, list[Entry]] = {}
    means: dict[str, list[np.ndarray]] = {}
    for name in ("mle", "emo"):
        inclined_I = rng.normal(0, 0.1, 30)
        given = []
        for _ in range(4):
            seed_S1 = np.array([[0.0], [0.02], [0.4]]) * rng.random()
            given.append(common_I + inclined_I + seed_S1 + rng.normal(0, 0.05, (3, 30)))
        made = [make_entry(name, {"t": v}, unit="points", model=model(base)) for base, v in enumerate(given)]
        rows[name], means[name] = made, [of_base.mean(0) for of_base in given]
    (contrast,) = across(rows["emo"], rows["mle"], ExamplesReader(runs)).contrasts
    delta_BI = np.stack(means["emo"]) - np.stack(means["mle"])
    expected = crossed(delta_BI)
    assert expected is not None
    assert contrast.effect == pytest.approx(delta_BI.mean())
    assert contrast.p == pytest.approx(expected.p_value(float(delta_BI.mean())), rel=1e-6)
    assert contrast.ci95 == pytest.approx(expected.interval(float(delta_BI.mean())))
