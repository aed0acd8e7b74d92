"""Verdicts follow from the tests, what is not comparable is refused, and every output says the same."""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from shown import board_text, compared, printed
from statsmodels.stats.multitest import multipletests

from emobench.core.errors import ConfigError
from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry, Trial, Tuning
from emobench.leaderboard.query.standings import View
from emobench.leaderboard.run_files import ExamplesReader
from emobench.leaderboard.stats.compare import (
    NO_VERDICT,
    Comparison,
    Contrast,
    PairContrasts,
    compare,
    comparisons,
    family_of,
    plain_contrast,
    series_reader,
)
from emobench.leaderboard.stats.power import detectable_with
from emobench.leaderboard.store import Leaderboard
from emobench.report import compare_table
from emobench.report.board_table import to_json as board_json
from emobench.report.charts.compare_chart import specification, write
from emobench.report.compare_table import noise_tables, to_csv, to_json
from emobench.report.site.data import board_groups
from emobench.tasks.families import PRIMARY, SECONDARIES
from emobench.tasks.scores import SECONDARY

TASKS = ("sst2", "trec", "cr")


def answers(rng: np.random.Generator, share: float, seeds: int = 3, items: int = 200) -> np.ndarray:
    """Return (S, I) right or wrong answers."""
    return (rng.random((seeds, items)) < share).astype(float)


def contrasts_of(baseline: Entry, candidate: Entry, runs: Path) -> dict[str, Contrast]:
    reader = ExamplesReader(runs)
    return {contrast.metric: contrast for contrast in compare(baseline, [candidate], reader).contrasts}


@pytest.fixture
def pair(make_entry: Callable[..., Entry]) -> tuple[Entry, Entry]:
    """A baseline, and a candidate that is better on sst2 and as good on the rest."""
    rng = np.random.default_rng(0)
    mle = make_entry("mle", {task: answers(rng, 0.7) for task in TASKS})
    shares = {"sst2": 0.95, "trec": 0.7, "cr": 0.7}
    return mle, make_entry("emo", {task: answers(rng, share) for task, share in shares.items()})


def test_the_choice_of_tuned_settings_widens_the_metric_that_decided(pair: tuple[Entry, Entry], runs: Path) -> None:
    """And no other one; more seeds and examples do not reduce it."""
    trials = tuple(Trial(settings={"recipe.epochs": k}, value=0.9 - 0.05 * k, half_width=0.15) for k in range(4))
    tuned = []
    for entry in pair:
        tuning = Tuning(
            asked={"recipe.epochs": "1..4"},
            space={"recipe.epochs": "1..4"},
            sampler="grid",
            seeds=(1_000_000,),
            metric="accuracy",
            unit="fraction",
            higher_is_better=True,
            validation={"sst2": "paper@1"},
            trials=trials,
            chosen=0,
        )
        tuned.append(replace(entry, tuning=tuning))
    before, after = contrasts_of(*pair, runs), contrasts_of(*tuned, runs)
    for metric, plain in before.items():
        wider = after[metric]
        assert wider.effect == plain.effect
        if metric != "sst2/accuracy":
            assert wider == replace(plain, p_holm=wider.p_holm, level=wider.level, verdict=wider.verdict)
            continue
        assert plain.noise
        assert wider.noise
        assert plain.ci95
        assert wider.ci95
        assert wider.noise.parts[:-1] == plain.noise.parts
        assert wider.ci95[0] < plain.ci95[0] < plain.ci95[1] < wider.ci95[1]
        assert wider.p > plain.p
        many = detectable_with(wider.noise, seeds=1e6, items=1e6)
        assert many > 2 * math.sqrt(wider.noise.parts[-1][0])
        assert detectable_with(plain.noise, seeds=1e6, items=1e6) < 0.01 * many


def test_a_contrast_for_each_task_and_for_their_mean(pair: tuple[Entry, Entry], runs: Path) -> None:
    mle, emo = pair
    found = compare(mle, [emo], ExamplesReader(runs))
    assert [c.metric for c in found.contrasts] == ["sst2/accuracy", "trec/accuracy", "cr/accuracy", "mean/accuracy"]
    sst2, trec, cr, mean = found.contrasts
    assert not any(contrast.within for contrast in found.contrasts)  # three seeds say it
    assert sst2.effect == pytest.approx(emo.metrics["sst2/accuracy"].mean - mle.metrics["sst2/accuracy"].mean)
    assert mean.effect == pytest.approx((sst2.effect + trec.effect + cr.effect) / 3)
    assert mean.tasks == TASKS
    assert (sst2.verdict, trec.verdict, cr.verdict) == ("better", "tied", "tied")
    assert (sst2.seeds, sst2.items, mean.items) == (3, 200, 600)
    ps = [c.p for c in found.contrasts]
    assert [c.p_holm for c in found.contrasts] == pytest.approx(multipletests(ps, method="holm")[1])


def test_what_is_shown_changes_no_verdict(pair: tuple[Entry, Entry], runs: Path) -> None:
    mle, emo = pair
    every = {c.metric: c for c in compare(mle, [emo], ExamplesReader(runs)).contrasts}
    found = compare(mle, [emo], ExamplesReader(runs), metrics=["trec/accuracy"])
    assert found.contrasts == (every["trec/accuracy"],)
    assert (found.contrasts[0].family, found.contrasts[0].tests) == ("accuracy", 4)
    (line,) = compared([found])[0][0].lines
    assert line.metric.startswith("trec/accuracy")  # the task is named where the entries have several


def test_lost_per_example_results_leave_it_undetermined(pair: tuple[Entry, Entry], tmp_path: Path) -> None:
    mle, emo = pair
    reader = ExamplesReader(tmp_path / "nowhere")
    found = compare(mle, [emo], reader)
    assert {c.verdict for c in found.contrasts} == {"undetermined"}
    assert {c.why for c in found.contrasts} == {
        "the per-example results of both sides are not available for the same examples"
    }
    assert reader.problems


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_few_seeds_are_undetermined_and_tested_within(
    seeds: tuple[int, ...], make_entry: Callable[..., Entry], runs: Path
) -> None:
    rng = np.random.default_rng(1)
    mle, emo = (
        make_entry(n, {"sst2": answers(rng, s, len(seeds))}, seeds=seeds) for n, s in (("mle", 0.5), ("emo", 0.9))
    )
    comparison = compare(mle, [emo], ExamplesReader(runs))
    (found,) = comparison.contrasts
    assert (found.verdict, found.p, found.p_holm, found.ci95) == ("undetermined", None, None, None)
    assert "a verdict needs 3" in (found.why or "")
    assert [seed for seed, _ in found.within] == list(seeds)
    assert all(test.test == "McNemar, mid-p" and test.p < 0.001 for _, test in found.within)


def test_a_perplexity_is_a_ratio(make_entry: Callable[..., Entry], runs: Path) -> None:
    rng = np.random.default_rng(2)
    nats_SI = rng.normal(4, 0.5, 100) + rng.normal(0, 0.01, (3, 100))
    mle = make_entry("mle", {"lm": nats_SI}, metric="ppl", unit="perplexity")
    emo = make_entry("emo", {"lm": nats_SI + 0.1 + rng.normal(0, 0.01, (3, 1))}, metric="ppl", unit="perplexity")
    (found,) = compare(mle, [emo], ExamplesReader(runs)).contrasts
    assert found.log_scale
    ratios = [a / b for a, b in zip(emo.metrics["lm/ppl"].values, mle.metrics["lm/ppl"].values, strict=True)]
    assert found.effect == pytest.approx(math.log(stats.gmean(ratios)))
    assert found.verdict == "worse"
    (line,) = compared([compare(mle, [emo], ExamplesReader(runs))])[0][0].lines
    assert line.difference == f"{100 * (stats.gmean(ratios) - 1):+.1f} %"


def test_a_difference_that_is_float_rounding_shows_as_zero(make_row: Callable[..., Entry]) -> None:
    values = [0.31, 0.32, 0.34]
    other = [0.34, 0.31, 0.32]  # the same mean, but for the order of its sum
    mle, emo = make_row("mle", {"lm/accuracy": values}), make_row("emo", {"lm/accuracy": [v + 1e-16 for v in other]})
    comparison = compare(mle, [emo])
    assert 0 < abs(comparison.contrasts[0].effect) < 1e-15
    (line,) = compared([comparison])[0][0].lines
    assert line.difference == "0.0"
    (plain,) = to_json(comparison)["contrasts"]
    assert plain["effect"] == comparison.contrasts[0].effect  # as it is, for programs


def of_small_n(make_entry: Callable[..., Entry]) -> list[Entry]:
    """Two entries whose sst2 is flagged, and whose trec is not."""
    rng, entries = np.random.default_rng(3), []
    for name, share in (("mle", 0.1), ("emo", 0.9)):
        tasks = {task: answers(rng, share) for task in ("sst2", "trec")}
        entry = make_entry(name, tasks)
        flagged = {**to_plain(entry.metrics["sst2/accuracy"]), "flags": ["small_n"]}
        metrics = {**to_plain(entry.metrics), "sst2/accuracy": flagged}
        entries.append(make_entry(name, tasks, metrics=metrics))
    return entries


def test_small_n_is_tested_and_not_judged(make_entry: Callable[..., Entry], runs: Path) -> None:
    mle, emo = of_small_n(make_entry)
    comparison = compare(mle, [emo], ExamplesReader(runs))
    sst2, trec, mean = comparison.contrasts
    assert [(c.verdict, c.small_n) for c in (sst2, trec, mean)] == [
        ("undetermined", True),
        ("better", False),
        ("undetermined", True),
    ]
    assert sst2.why == "small n: too few examples for a verdict"
    assert sst2.ci95 is not None
    assert not sst2.beyond_noise
    # It is adjusted for all three, and costs the metric that decides nothing.
    every = np.asarray(multipletests([c.p for c in comparison.contrasts], method="holm")[1])
    assert sst2.p_holm == pytest.approx(every[0])
    assert trec.p_holm == trec.p
    assert (sst2.tests, trec.tests) == (3, 1)
    (line, *_) = compared([comparison])[0][0].lines
    assert (line.verdict, line.p, line.interval != "–") == ("undetermined [1]", ".003", True)


def test_a_missing_task_leaves_no_mean(make_entry: Callable[..., Entry], runs: Path) -> None:
    rng = np.random.default_rng(4)
    mle = make_entry("mle", {task: answers(rng, 0.7) for task in TASKS})
    emo = make_entry("emo", {task: answers(rng, 0.7) for task in TASKS[:2]}, protocols=mle.protocols)
    found = compare(mle, [emo], ExamplesReader(runs))
    assert [c.metric for c in found.contrasts] == ["sst2/accuracy", "trec/accuracy"]
    assert found.missing == {emo.id: ("cr/accuracy",)}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"recipe": {"name": "lm", "epochs": 3}}, "recipe.epochs: 3 and none"),
        ({"model": {"name": "large", "source": "large"}}, r"model: large \(large\) and tiny \(tiny\)"),
        ({"protocols": dict.fromkeys(TASKS, "paper@2")}, "protocol of sst2, trec, cr: paper@2 and paper@1"),
        ({"suite": {"name": "nlu", "version": 2}}, "suite: nlu v2 and nlu v1"),
    ],
)
def test_what_is_not_comparable_is_refused_with_what_differs(
    change: dict[str, Any], told: str, make_entry: Callable[..., Entry], runs: Path
) -> None:
    rng = np.random.default_rng(5)
    mle = make_entry("mle", {task: answers(rng, 0.7) for task in TASKS})
    emo = make_entry("emo", {task: answers(rng, 0.7) for task in TASKS}, **change)
    with pytest.raises(ConfigError, match=told) as refusal:
        compare(mle, [emo], ExamplesReader(runs))
    assert "--anyway" in str(refusal.value)
    found = compare(mle, [emo], ExamplesReader(runs), anyway=True)
    assert {(c.verdict, c.p, c.ci95) for c in found.contrasts} == {(None, None, None)}
    assert found.apart[emo.id]


def test_two_trained_models_are_tested_on_the_same_items_without_a_verdict(
    make_entry: Callable[..., Entry], runs: Path
) -> None:
    rng = np.random.default_rng(8)
    small, large = (
        make_entry("pretrained", {"sst2": answers(rng, share, 1)}, seeds=(), model={"name": name, "source": name})
        for name, share in (("small", 0.5), ("large", 0.9))
    )
    (found,) = compare(small, [large], ExamplesReader(runs), anyway=True).contrasts
    assert (found.verdict, found.p) == (None, None)
    assert [(seed, test.test) for seed, test in found.within] == [(None, "McNemar, mid-p")]
    other = make_entry("pretrained", {"sst2": answers(rng, 0.9, 1)}, seeds=(), protocols={"sst2": "paper@2"})
    (found,) = compare(small, [other], ExamplesReader(runs), anyway=True).contrasts
    assert found.within == ()


def test_choices_of_several_models_are_compared_model_by_model(make_entry: Callable[..., Entry]) -> None:
    rng = np.random.default_rng(6)

    def of(objective: str, model: str) -> Entry:
        return make_entry(objective, {"sst2": answers(rng, 0.7)}, model={"name": model, "source": model})

    emos, mles = [of("emo", "small"), of("emo", "large")], [of("mle", "large"), of("mle", "small"), of("mle", "huge")]
    found = comparisons([emos, mles], None)
    assert [(c.baseline, c.candidates) for c in found] == [(mles[0], (emos[1],)), (mles[1], (emos[0],))]
    with pytest.raises(ConfigError, match="Not comparable"):
        comparisons([[emos[0]], [mles[0]]], None)
    small, large = of("emo", "small"), of("tailr", "large")
    (found,) = comparisons([[small], emos, [mles[1]]], None)
    assert (found.candidates, found.left_out) == ((small, emos[0]), (emos[1],))
    with pytest.raises(ConfigError, match="Not comparable"):  # chosen by itself
        comparisons([[large], [emos[0]], [mles[1]]], None)
    with pytest.raises(ConfigError, match="nothing to compare with it"):
        comparisons([mles], None)


def test_every_output_has_every_contrast(pair: tuple[Entry, Entry], runs: Path) -> None:
    found = compare(pair[0], [pair[1]], ExamplesReader(runs))
    rows = list(csv.DictReader(io.StringIO(to_csv([found]))))
    assert [float(row["effect"]) for row in rows] == [c.effect for c in found.contrasts]
    assert [float(row["ci95_low"]) for row in rows] == [c.ci95[0] for c in found.contrasts if c.ci95]
    plain = to_json(found)
    assert [c["p_holm"] for c in plain["contrasts"]] == [c.p_holm for c in found.contrasts]
    assert plain["baseline"]["id"] == found.baseline.id
    (panel,) = specification([found])["vconcat"]
    effects = [row["effect"] for row in panel["data"]["values"]]
    assert effects == pytest.approx([100 * c.effect for c in found.contrasts], rel=1e-5)


def test_hostile_names_stay_text(make_entry: Callable[..., Entry], runs: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    evil = "e[bold]|*vil*\x1b[31m\n$x$_&%{}"
    mle = make_entry("mle", {"sst2": answers(rng, 0.7)})
    emo = make_entry("emo", {"sst2": answers(rng, 0.7)}, objective={"name": evil, "version": "1", "params": {}})
    made = compare(mle, [emo], ExamplesReader(runs))
    report = compare_table.report([made])
    for text, shown in (
        (printed(report, 120), "e[bold]|*vil*"),
        (report.markdown(), "e\\[bold\\]\\|\\*vil\\*"),
        (report.latex(), "\\$x\\$\\_\\&\\%\\{\\}"),
    ):
        assert "\x1b[31m" not in text
        assert shown in text
    write([made], tmp_path / "made.svg")
    assert "\x1b" not in (tmp_path / "made.svg").read_text()


def with_components(entry: Entry, make_entry: Callable[..., Entry], times: float, seeds: int) -> Entry:
    """Return an entry like one, of which sst2 says where its noise comes from."""
    sds = {"training seed": 0.006, "sampling": 0.004, "k-means": 0.003, "texts": 0.011}
    draws = {"training seed": seeds, "sampling": 5, "k-means": 5, "texts": 200}
    parts = {name: {"sd": times * sd, "sd_of_mean": times * sd / 2, "draws": draws[name]} for name, sd in sds.items()}
    metrics = to_plain(entry.metrics)
    for summary in metrics.values():  # a spread over seeds would be left, too
        summary |= {"values": [summary["mean"]] * len(summary["values"]), "std": 0.0}
    metrics["sst2/accuracy"]["components"] = parts
    metrics["cr/accuracy"]["components"] = {"k-means": {"sd": 0.0, "sd_of_mean": 0.0, "draws": 5}}
    rng = np.random.default_rng(0)
    return make_entry(entry.objective.name, {task: answers(rng, 0.7) for task in TASKS}, metrics=metrics)


def noise(comparison: Comparison) -> dict[str, list[str]]:
    (table,) = noise_tables([comparison])
    return {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}


def test_where_the_noise_comes_from(pair: tuple[Entry, Entry], make_entry: Callable[..., Entry], runs: Path) -> None:
    mle, emo = (with_components(e, make_entry, t, n) for e, t, n in zip(pair, (1.0, 7**0.5), (3, 4), strict=True))
    comparison = compare(mle, [emo], ExamplesReader(runs))
    # The root of the mean of 1 and 7 is 2; left: 2 sqrt(.6^2 + .4^2 + .3^2 + 1.1^2) / 2.
    assert noise(comparison) == {
        "sst2/accuracy (points)": ["1.2", "0.8", "0.6", "2.2", "3-4 x 5 x 5", "1.3"],
        "cr/accuracy (points)": ["–", "–", "0", "–", "5", "0"],
    }
    plain = to_json(comparison)["components"]
    assert set(plain) == {"sst2/accuracy", "cr/accuracy"}
    assert plain["sst2/accuracy"][mle.id]["texts"] == {"sd": 0.011, "sd_of_mean": 0.0055, "draws": 200}
    without = compare(pair[0], [pair[1]], ExamplesReader(runs))
    assert noise_tables([without]) == []
    assert to_json(without)["components"] == {}


SPREAD = {"lm/mauve": [0.45, 0.41, 0.50], "lm/ppl": [45.0, 41.0, 50.0]}
LEFT = {
    "lm/mauve": 100 * np.std(SPREAD["lm/mauve"], ddof=1) / 3**0.5,
    "lm/ppl": 100 * math.expm1(np.std(np.log(SPREAD["lm/ppl"]), ddof=1) / 3**0.5),
}


@pytest.mark.parametrize(
    ("metric", "values", "part", "shown"),
    [
        ("lm/ppl", [30.0, 31.0, 32.0], (math.log(1.05), math.log(1.02)), ["5", "2"]),
        ("lm/ppl", [30.0, 30.0, 30.0], (9e-7, 2e-6), ["0", "0.0002"]),  # float rounding
        # No less is left than the spread over seeds shows.
        *((metric, SPREAD[metric], (0.01, 0.0045), ["1", f"{LEFT[metric]:.2g}"]) for metric in LEFT),
    ],
)
def test_the_noise_of_one_source(
    make_row: Callable[..., Entry], metric: str, values: list[float], part: tuple[float, float], shown: list[str]
) -> None:
    rows = []
    for name in ("mle", "emo"):
        plain = to_plain(make_row(name, {metric: values}).metrics[metric])
        plain["components"] = {"sampling": {"sd": part[0], "sd_of_mean": part[1], "draws": 5}}
        rows.append(make_row(name, {metric: values}, metrics={metric: plain}))
    unit = "%" if metric == "lm/ppl" else "points"
    assert noise(compare(rows[0], rows[1:])) == {f"{metric} ({unit})": ["–", shown[0], "–", "–", "5", shown[1]]}


def test_the_primary_endpoint_comes_first(make_row: Callable[..., Entry]) -> None:
    rng = np.random.default_rng(9)
    scores = {f"{task}/{name}": list(rng.random(3)) for task in "ab" for name in ("mauve", "accuracy")}
    for primary in ("mean/accuracy", "b/mauve"):
        rows = [make_row(name, scores, primary=primary) for name in ("mle", "emo")]
        found = compare(rows[0], rows[1:])
        assert found.contrasts[0].metric == primary
        others = [*scores, "mean/mauve", "mean/accuracy"]
        assert [c.metric for c in found.contrasts[1:]] == [name for name in others if name != primary]
        assert found.missing == {}


def test_a_refusal_names_the_entries_that_differ(make_row: Callable[..., Entry]) -> None:
    mle, alike = (make_row(name, {"a/accuracy": [0.5, 0.6, 0.7]}) for name in ("mle", "alike"))
    other = make_row("other", {"a/accuracy": [0.5, 0.6, 0.7]}, recipe={"name": "lm", "epochs": 9})
    with pytest.raises(ConfigError) as refused:
        compare(mle, [alike, other])
    assert [name in str(refused.value) for name in ("other", "alike", "mle")] == [True, False, True]


# What a contrast says where there is no test, and its words and notes.

MakeEntry = Callable[..., Entry]


def test_a_metric_without_a_direction_describes(make_row: MakeEntry) -> None:
    rows = [make_row(name, {"t/entropy": [v, v + 0.1, v + 0.3]}) for name, v in (("mle", 3.0), ("emo", 5.0))]
    (found,) = compare(rows[0], rows[1:]).contrasts
    assert (found.verdict, found.p, found.detectable, found.word) == (None, None, None, NO_VERDICT)
    assert "no known better direction" in (found.why or "")
    other = make_row("emo", {"t/entropy": [5.0, 5.1, 5.2]}, recipe={"name": "lm", "epochs": 7})
    (found,) = compare(rows[0], [other], anyway=True).contrasts
    assert (found.word, found.why, found.ci95) == (None, None, None)


def test_entries_that_disagree_on_the_better_direction_have_no_family(make_row: MakeEntry) -> None:
    mle, emo = (make_row(name, {"t/kl": [1.0, 2.0, 4.0]}, primary="t/kl") for name in ("mle", "emo"))
    assert family_of(emo, mle, "t/kl", ["t/kl"]) is not None
    for direction in (True, None):
        turned = replace(emo, metrics={"t/kl": replace(emo.metrics["t/kl"], higher_is_better=direction)})
        assert family_of(turned, mle, "t/kl", ["t/kl"]) is None
        assert family_of(mle, turned, "t/kl", ["t/kl"]) is None


def test_an_effect_without_a_test_is_of_geometric_means(make_row: MakeEntry) -> None:
    """Of two seeds, which are too few; and of a mean whose seeds are not known."""
    values = {"mle": {"a": [10.0, 90.0], "b": [4.0, 4.0]}, "emo": {"a": [50.0, 60.0], "b": [2.0, 8.0]}}
    rows = [make_row(n, {f"{task}/ppl": v for task, v in of.items()}) for n, of in values.items()]
    found = {c.metric: c for c in compare(rows[0], rows[1:]).contrasts}
    means = {n: {task: np.log(v).mean() for task, v in of.items()} for n, of in values.items()}
    differences = {task: means["emo"][task] - means["mle"][task] for task in "ab"}
    assert found["a/ppl"].effect == pytest.approx(differences["a"])
    assert found["mean/ppl"].effect == pytest.approx(sum(differences.values()) / 2)
    assert {c.verdict for c in found.values()} == {"undetermined"}
    # The means that are shown are those of the entries: of two perplexities the arithmetic one.
    assert (found["a/ppl"].baseline_mean, found["a/ppl"].candidate_mean) == pytest.approx((50.0, 55.0))
    assert found["mean/ppl"].baseline_mean == pytest.approx(math.sqrt(50 * 4))

    unknown = to_plain(rows[1].metrics["a/ppl"]) | {"values": [], "std": None, "mean": 40.0}
    taken = make_row("emo", {}, metrics={"a/ppl": unknown}, seeds=[], kind="imported", source={"cite": "a paper"},
                     protocols=rows[0].protocols)  # fmt: skip
    (contrast,) = compare(rows[0], [taken]).contrasts
    assert contrast.effect == pytest.approx(math.log(40) - means["mle"]["a"])


@pytest.mark.parametrize(
    ("ours", "theirs", "tested"),
    [((0, 1), (1, 2), [1]), ((5,), (5,), [5]), ((0, 1), (2, 3), []), ((), (3, 4), [3, 4]), ((3, 4), (), [3, 4])],
)
def test_the_tests_within_seeds_are_of_common_ones(
    make_entry: MakeEntry, runs: Path, ours: tuple[int, ...], theirs: tuple[int, ...], tested: list[int]
) -> None:
    """A model without seeds stands beside each of its rival's."""
    rng = np.random.default_rng(0)
    rows = []
    for name, seeds in (("emo", ours), ("mle", theirs)):
        answers_SI = (rng.random((max(len(seeds), 1), 60)) < 0.6).astype(float)
        rows.append(make_entry(name if seeds else "pretrained", {"t": answers_SI}, seeds=seeds))
    (found,) = compare(rows[1], rows[:1], ExamplesReader(runs)).contrasts
    assert found.verdict == "undetermined"
    assert [seed for seed, _ in found.within] == tested


def test_a_seed_that_cannot_be_tested_is_left_out(make_entry: MakeEntry, runs: Path) -> None:
    rng = np.random.default_rng(1)
    kept, rows = rng.random((2, 60)), []
    for name in ("emo", "mle"):
        rows.append(make_entry(name, {"t": kept + rng.normal(0, 0.1, (2, 60))}, seeds=(0, 1), unit="nats"))
    read = ExamplesReader(runs)

    def without_most(entry: Entry) -> Any:
        found = read(entry)
        if found is None or entry is rows[1]:
            return found
        examples = found[0]["t/accuracy"]
        return [{"t/accuracy": dict(list(examples.items())[:9])}, found[1]]

    (found,) = compare(rows[1], rows[:1], without_most).contrasts
    assert [seed for seed, _ in found.within] == [1]


def test_a_metric_that_repeats_another_says_which(make_row: MakeEntry) -> None:
    both = {"t/mauve": [0.1, 0.2, 0.4], "t/mauve_star": [0.2, 0.3, 0.5]}
    rows = [make_row(name, both) for name in ("mle", "emo")]
    found = {c.metric: c for c in compare(rows[0], rows[1:]).contrasts}
    assert (found["t/mauve_star"].verdict, found["t/mauve_star"].word) == (None, NO_VERDICT)
    assert "it repeats mauve" in (found["t/mauve_star"].why or "")
    assert found["t/mauve"].word != NO_VERDICT
    one = make_row("emo", both, families={"t/mauve": "another"})
    found = {c.metric: c for c in compare(rows[0], [one]).contrasts}
    assert "no common family" in (found["t/mauve"].why or "")


def test_a_metric_that_one_side_calls_secondary_or_small_is_so(make_row: MakeEntry) -> None:
    mle, emo = (make_row(name, {"t/kl": [1.0, 2.0, 4.0]}) for name in ("mle", "emo"))
    for flag in (SECONDARY, "small_n"):
        changed = replace(emo, metrics={"t/kl": replace(emo.metrics["t/kl"], flags=(flag,))})
        for sides in ((changed, mle), (mle, changed)):
            found = plain_contrast(*sides, "t/kl", ["t/kl"])
            assert (found.secondary, found.small_n) == (flag == SECONDARY, flag == "small_n")


# A mark on a board says what `emobench compare` says of each pair.

MakeEntry = Callable[..., Entry]


def pairs() -> PairContrasts:
    return PairContrasts(series_reader(None))


def best(rows: Sequence[Entry], metric: str) -> str | None:
    top, _ = pairs().best(rows, metric)
    return next((entry.objective.name for entry in rows if entry.id == top), None)


def named(make_row: MakeEntry, scores: Mapping[str, Mapping[str, Sequence[float]]], **changes: Any) -> list[Entry]:
    return [make_row(name, values, **changes) for name, values in scores.items()]


def noisy(rng: np.random.Generator, mean: float, spread: float = 0.002, seeds: int = 3) -> list[float]:
    return list(mean + spread * rng.standard_normal(seeds))


def test_a_star_is_a_better_verdict_against_every_rival(make_row: MakeEntry) -> None:
    """Over 30 boards of four objectives whose means are near each other: neither says more than the other."""
    rng, seen = np.random.default_rng(0), set()
    for _ in range(30):
        means = {name: 0.5 + 0.03 * rng.random(2) for name in ("mle", "emo", "tailr", "mixce")}
        scores = {
            name: {f"{task}/accuracy": noisy(rng, mean[i]) for i, task in enumerate("ab")}
            for name, mean in means.items()
        }
        entries = named(make_row, scores, primary="mean/accuracy")
        (group,) = board_json(entries)["groups"]
        verdicts = {
            (candidate.id, contrast.metric, baseline.id): contrast.verdict
            for candidate, baseline in itertools.permutations(entries, 2)
            for contrast in compare(baseline, [candidate]).contrasts
        }
        for metric in ("a/accuracy", "b/accuracy", "mean/accuracy"):
            ahead = [
                e.id
                for e in entries
                if all(verdicts[e.id, metric, other.id] == "better" for other in entries if other is not e)
            ]
            assert [group["best"][metric]] == (ahead or [None])
            seen.add((metric, bool(ahead)))
    assert len(seen) == 6  # with and without a star, for each


def test_an_exact_copy_on_a_merged_board_takes_no_star_away(make_row: MakeEntry, tmp_path: Path) -> None:
    """Side by side, the two are rivals of which neither is better."""

    def of(name: str, values: Sequence[float], *, second: int = 0, key: str | None = None) -> Entry:
        runs = [{"seed": seed, "key": f"{key or name}-{seed}", "examples": None} for seed in range(3)]
        scores = {f"{task}/accuracy": values for task in "ab"}
        return make_row(name, scores, runs=runs, created=f"2026-01-31T12:00:0{second}")

    mine, theirs = Leaderboard(tmp_path / "mine"), Leaderboard(tmp_path / "theirs")
    better = (0.6, 0.603, 0.604)
    mle, emo, copy = of("mle", (0.5, 0.502, 0.499)), of("emo", better), of("emo", better, second=1)
    for board, entry in ((mine, mle), (mine, emo), (theirs, mle), (theirs, copy)):
        board.append(entry)
    view = View(baseline="mle")
    before = board_json(mine.entries(), view=view)
    assert before["groups"][0]["best"] == dict.fromkeys(("a/accuracy", "b/accuracy", "mean/accuracy"), emo.id)
    assert before["groups"][0]["ranks"]["places"] == {emo.id: 1, mle.id: 2}
    shutil.copytree(theirs.root, mine.root, dirs_exist_ok=True)
    assert len(mine.entries(superseded=True)) == 3
    assert board_json(mine.entries(), view=view) == before
    (group,) = board_json([mle, emo, copy], view=view)["groups"]
    assert set(group["best"].values()) == {None}
    mine.append(of("emo", better, second=2, key="again"))  # other runs are other evidence, whatever their values
    assert len(mine.entries()) == 3


def test_a_test_that_is_one_of_a_family_marks_nothing_alone(make_row: MakeEntry) -> None:
    """p is .04 on a task, which is one of two beside their mean."""
    scores = {
        "emo": {"a/accuracy": [0.850, 0.853, 0.825], "b/accuracy": [0.600, 0.603, 0.599]},
        "mle": {"a/accuracy": [0.800, 0.803, 0.801], "b/accuracy": [0.601, 0.600, 0.604]},
    }
    entries = named(make_row, scores)
    found = pairs()(entries[0], entries[1], "a/accuracy")
    assert 0.03 < found.p < 0.05
    assert best(entries, "a/accuracy") is None
    alone = named(make_row, {name: {"a/accuracy": of["a/accuracy"]} for name, of in scores.items()})
    assert best(alone, "a/accuracy") == "emo"


def test_lower_is_better_and_a_near_rival_takes_the_mark_away(make_row: MakeEntry) -> None:
    scores = {"a": {"lm/kl": [5.0, 5.1, 5.2]}, "b": {"lm/kl": [2.0, 2.1, 2.2]}, "c": {"lm/kl": [9.0, 9.2, 9.3]}}
    noise = np.random.default_rng(1)
    rows = [make_row(n, {"lm/kl": list(np.array(of["lm/kl"]) + 0.01 * noise.random(3))}) for n, of in scores.items()]
    assert best(rows, "lm/kl") == "b"
    near = named(make_row, {"d": {"lm/kl": [2.1, 2.0, 2.2]}})
    assert best([*rows, *near], "lm/kl") is None
    assert best(rows[:1], "lm/kl") is None


def test_the_best_mean_of_perplexities_is_the_lowest_geometric_one(make_row: MakeEntry) -> None:
    noise = np.array([0.999, 1.0, 1.002])
    scores = {
        "a": {"x/ppl": list(10 * noise[::-1]), "y/ppl": list(1000 * noise[::-1])},  # geometric mean 100, arithmetic 505
        "b": {"x/ppl": list(200 * noise), "y/ppl": list(200 * noise * noise)},
    }
    rows = named(make_row, scores, primary="mean/ppl")
    assert best(rows, "mean/ppl") == "a"
    assert best(rows, "x/ppl") == "a"
    assert best(rows, "y/ppl") == "b"
    # Of seeds that differ much, each with the mean 10 over tasks: the mean over seeds is geometric, too.
    wild = {
        "c": {"x/ppl": [1.0, 100.0, 10.01], "y/ppl": [100.0, 1.001, 10.0]},
        "d": {"x/ppl": list(11 * noise), "y/ppl": list(11 * noise[::-1])},
    }
    rows = named(make_row, wild, primary="mean/ppl")
    assert best(rows, "mean/ppl") == "c"


def test_a_row_without_a_metric_is_not_beaten_and_a_reason_is_given(make_row: MakeEntry) -> None:
    noise = np.array([0.0, 0.002, 0.001])
    both = {
        "high": {"x/accuracy": list(0.9 + noise), "y/accuracy": list(0.9 + noise)},
        "mid": {"x/accuracy": list(0.5 + 2 * noise), "y/accuracy": list(0.6 + 2 * noise)},
    }
    lacking = {"missing": {"y/accuracy": "the disk was full"}}
    rows = named(make_row, both) + named(make_row, {"low": {"x/accuracy": list(0.3 - noise)}}, **lacking)
    high, mid, low = rows
    assert pairs().best(rows[:2], "y/accuracy") == (high.id, None)
    assert pairs().best(rows, "y/accuracy") == (None, None)
    assert pairs().best([low, high, mid], "y/accuracy") == (None, None)
    assert pairs()(high, mid, "z/accuracy") is None
    assert pairs()(high, low, "y/accuracy") is None
    assert pairs()(high, low, "y/accuracy") is None
    assert pairs().best(rows, "x/accuracy") == (high.id, None)
    rows += named(make_row, {"two": {"x/accuracy": [0.1, 0.2]}}, **lacking)
    top, why = pairs().best(rows, "x/accuracy")
    assert (top, (why or "")[:18]) == (None, "seeds in common: 2")
    near = [low, *named(make_row, {"near": {"x/accuracy": [0.301, 0.299, 0.302]}}, **lacking)]
    assert pairs().best(near, "x/accuracy") == (None, None)  # tied, and so nothing is undetermined


@pytest.mark.parametrize("change", [{"flags": ["small_n"]}, {"higher_is_better": None}])
def test_what_decides_nothing_marks_nothing(make_row: MakeEntry, change: dict[str, Any]) -> None:
    scores = {"good": {"a/accuracy": [0.9, 0.91, 0.93]}, "bad": {"a/accuracy": [0.1, 0.12, 0.11]}}
    rows = named(make_row, scores)
    assert best(rows, "a/accuracy") == "good"
    changed = []
    for row in rows:
        summary = {**to_plain(row.metrics["a/accuracy"]), **change}
        changed.append(make_row(row.objective.name, scores[row.objective.name], metrics={"a/accuracy": summary}))
    assert best(changed, "a/accuracy") is None


@pytest.mark.parametrize(
    ("ours", "theirs", "family"),
    [
        ("mean/accuracy", "mean/accuracy", PRIMARY),
        ("mean/accuracy", None, PRIMARY),  # imported: its suite has the same endpoint
        (None, "mean/accuracy", PRIMARY),
        (None, None, "accuracy"),
        ("mean/accuracy", "a/accuracy", "accuracy"),
    ],
)
def test_two_entries_have_one_primary_endpoint_or_none(
    make_row: MakeEntry, ours: str | None, theirs: str | None, family: str
) -> None:
    rng = np.random.default_rng(0)
    scores = {f"{task}/accuracy": noisy(rng, 0.5) for task in "ab"}
    emo, mle = make_row("emo", scores, primary=ours), make_row("mle", scores, primary=theirs)
    for contrast in compare(mle, [emo]).contrasts:
        assert contrast.family == (family if contrast.metric == "mean/accuracy" else "accuracy")
    told = [line for line in compare_table.report([compare(mle, [emo])]).notes if "primary endpoint is not" in line]
    assert bool(told) == (ours == "mean/accuracy" and theirs == "a/accuracy")


def test_a_missing_task_leaves_the_primary_endpoint_without_a_test(make_row: MakeEntry) -> None:
    rng = np.random.default_rng(0)
    scores = {f"{task}/accuracy": noisy(rng, 0.5) for task in "ab"}
    mle = make_row("mle", scores, primary="mean/accuracy")
    emo = make_row(
        "emo", {"a/accuracy": noisy(rng, 0.5)}, primary="mean/accuracy", missing={"b/accuracy": "the disk was full"},
        protocols=dict(mle.protocols),
    )  # fmt: skip
    compared = compare(mle, [emo])
    assert [contrast.family for contrast in compared.contrasts] == ["accuracy"]
    assert any("mean/accuracy, is not tested" in line for line in compare_table.report([compared]).notes)


# Runs with the weights of their base, or of another seed, are no replicates: no verdict rests on them.

MakeEntry = Callable[..., Entry]
MLE, BETTER = [0.50, 0.51, 0.52], [0.80, 0.82, 0.81]


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def runs(name: str, trained: Sequence[str], tasks: Sequence[str] = ("a",)) -> list[dict[str, Any]]:
    """Return runs with these weights for the tasks, and others of their own for the task b."""
    found = []
    for seed, weights in enumerate(trained):
        of_tasks = {"tasks": list(tasks), "base": sha("base"), "trained": sha(weights)}
        of_b = {"tasks": ["b"], "base": sha("base"), "trained": sha(f"b{seed}")}
        found.append({"seed": seed, "key": f"{name}{seed}", "weights": [of_tasks, of_b]})
    return found


def verdicts(entry: Entry, baseline: Entry) -> dict[str, tuple[str | None, str | None]]:
    return {c.metric: (c.verdict, c.why) for c in compare(baseline, [entry]).contrasts}


@pytest.mark.parametrize(
    ("trained", "why"),
    [
        (["base", "x", "y"], "the training of seed 0 changed no weight"),
        (["x", "y", "base"], "the training of seed 2 changed no weight"),
        (["base", "base", "base"], "the training of seed 0 changed no weight"),
        (["x", "y", "x"], "seeds 0 and 2 have the same weights"),
        (["x", "x", "x"], "seeds 0 and 1 have the same weights"),
    ],
)
def test_equal_weights_are_no_replicates(make_row: MakeEntry, trained: list[str], why: str) -> None:
    scores = {"a/kl": BETTER, "b/kl": BETTER}
    moved = make_row("mle", {"a/kl": MLE, "b/kl": MLE}, runs=runs("m", "xyz"))
    unmoved = make_row("emo", scores, runs=runs("e", trained))
    assert verdicts(make_row("emo", scores, runs=runs("e", "uvw")), moved)["a/kl"][0] == "worse"
    for entry, baseline in ((unmoved, moved), (moved, unmoved)):
        found = verdicts(entry, baseline)
        assert found["a/kl"] == ("undetermined", why)
        assert found["mean/kl"] == ("undetermined", why)
        assert found["b/kl"][0] in ("better", "worse")


def test_equal_values_of_weights_that_did_not_move_are_not_tied(make_row: MakeEntry) -> None:
    rows = [make_row(name, {"a/kl": MLE}, runs=runs(name, ["base"] * 3)) for name in ("emo", "mle")]
    assert verdicts(*rows)["a/kl"] == ("undetermined", "the training of seed 0 changed no weight")


def test_objectives_that_train_the_same_weights_are_tied(make_row: MakeEntry) -> None:
    rows = [make_row(name, {"a/kl": MLE}, runs=runs(name, "xyz")) for name in ("emo", "mle")]
    assert verdicts(*rows)["a/kl"][0] == "tied"


# Secondary metrics are shown where they are asked for, and cost the main ones nothing.

MAIN = ("sst2/accuracy", "trec/accuracy")
VALUES = {"mle": (0.700, 0.704, 0.701), "emo": (0.720, 0.723, 0.722), "tailr": (0.711, 0.709, 0.712)}


@pytest.fixture
def rows(make_row: Callable[..., Entry]) -> dict[str, Entry]:
    """Three objectives with an accuracy and a secondary macro-F1 on two tasks; the F1 is noisier."""
    found = {}
    for place, (name, values) in enumerate(VALUES.items()):
        noisy = [value + 0.002 * place * (-1) ** i for i, value in enumerate(values)]
        scores: dict[str, Sequence[float]] = {}
        for task in ("sst2", "trec"):
            scores |= {f"{task}/accuracy": values, f"{task}/macro_f1": noisy}
        metrics = {
            metric: replace(summary, flags=(SECONDARY,)) if metric.endswith("f1") else summary
            for metric, summary in make_row(name, scores).metrics.items()
        }
        found[name] = make_row(name, scores, metrics=to_plain(metrics))
    return found


def test_a_table_has_the_main_metrics_and_their_mean_and_others_on_request(rows: dict[str, Entry]) -> None:
    def shown(**view: Any) -> str:
        return printed(board_text(list(rows.values()), view=View(**view)), 400)

    plain, asked, both = shown(), shown(metrics=("macro_f1",)), shown(metrics=("*",))
    assert ("macro_f1" in plain, SECONDARY in plain, "mean" in plain) == (False, False, True)
    assert ("macro_f1" in asked, "accuracy" in asked) == (True, False)
    assert "accuracy" in both
    assert "macro_f1" in both
    assert "macro_f1" in shown(sort="macro_f1")


def test_secondary_metrics_are_a_family_of_their_own(rows: dict[str, Entry]) -> None:
    def of_emo(**given: Any) -> Any:
        return compare(rows["mle"], [rows["emo"]], **given)

    main = of_emo()
    assert [c.metric for c in main.contrasts] == [*MAIN, "mean/accuracy"]
    assert {(c.family, c.tests) for c in main.contrasts} == {("accuracy", 3)}
    ps = [c.p for c in main.contrasts]
    assert [c.p_holm for c in main.contrasts] == pytest.approx(multipletests(ps, method="holm")[1])
    every = of_emo(metrics=list(rows["emo"].metrics))
    assert [c for c in every.contrasts if not c.secondary] == list(main.contrasts)
    second = [c for c in every.contrasts if c.secondary]
    assert {(c.family, c.tests) for c in second} == {(SECONDARIES, 3)}
    assert [c.p_holm for c in second] == pytest.approx(multipletests([c.p for c in second], method="holm")[1])


def test_a_table_of_differences_has_the_metrics_that_are_asked_for(rows: dict[str, Entry]) -> None:
    view = View(baseline="mle", metrics=("macro_f1",))
    (group,) = board_json(list(rows.values()), view=view)["groups"]
    assert set(group["differences"][rows["emo"].id]) == {"sst2/macro_f1", "trec/macro_f1", "mean"}


def test_a_page_has_the_main_metrics_before_the_secondary_ones(rows: dict[str, Entry]) -> None:
    (group,) = board_groups(list(rows.values()), None)
    main = len(MAIN) + 1
    assert set(group.metrics[:main]) == {*MAIN, "mean/accuracy"}
    assert set(group.metrics[main:]) == {"sst2/macro_f1", "trec/macro_f1"}
