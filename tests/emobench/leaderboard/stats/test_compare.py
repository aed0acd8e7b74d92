"""Verdicts follow from the tests, what is not comparable is refused, and every output says the same."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from shown import compared, printed
from statsmodels.stats.multitest import multipletests

from emobench.core.errors import ConfigError
from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.run_files import ExamplesReader
from emobench.leaderboard.stats.compare import Comparison, compare, comparisons
from emobench.report import compare_table
from emobench.report.charts.compare_chart import specification, write
from emobench.report.compare_table import noise_tables, to_csv, to_json

TASKS = ("sst2", "trec", "cr")


def answers(rng: np.random.Generator, share: float, seeds: int = 3, items: int = 200) -> np.ndarray:
    """Return (S, I) right or wrong answers."""
    return (rng.random((seeds, items)) < share).astype(float)


@pytest.fixture
def pair(make_entry: Callable[..., Entry]) -> tuple[Entry, Entry]:
    """A baseline, and a candidate that is better on sst2 and as good on the rest."""
    rng = np.random.default_rng(0)
    mle = make_entry("mle", {task: answers(rng, 0.7) for task in TASKS})
    shares = {"sst2": 0.95, "trec": 0.7, "cr": 0.7}
    return mle, make_entry("emo", {task: answers(rng, share) for task, share in shares.items()})


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
    assert "3 are needed" in (found.why or "")
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
