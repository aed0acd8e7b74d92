"""Across bases a difference is tested against how much bases differ, and entries of several are pooled only then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from shown import compared

from emobench.core.errors import ConfigError
from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.query.rows import select
from emobench.leaderboard.stats.across_bases import compare_across_bases
from emobench.leaderboard.stats.compare import Comparison, comparisons
from emobench.leaderboard.stats.random_effects import crossed
from emobench.leaderboard.stats.summary import summarise
from emobench.leaderboard.store import Leaderboard
from emobench.report.compare_table import to_json
from emobench.tasks.scores import Score

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
        with pytest.raises(ConfigError, match="no pre-trained model in common"):
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


def test_of_three_choices_the_last_is_the_baseline(make_row: MakeEntry) -> None:
    rows = [
        [make_row(name, {"lm/accuracy": [v, v + 0.01 * base, v]}, model=model(base)) for base in range(3)]
        for name, v in (("emo", 0.9), ("tailr", 0.5), ("mle", 0.1))
    ]
    found = compare_across_bases(rows, None)
    assert {(one.candidates[0].objective.name, one.baseline.objective.name) for one in found} == {
        ("emo", "mle"),
        ("tailr", "mle"),
    }


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_entries_of_one_base_the_newest_counts(make_row: MakeEntry, order: int) -> None:
    mle = [make_row("mle", {"lm/accuracy": [0.1, 0.12, 0.11]}, model=model(base)) for base in range(3)]
    emo = [make_row("emo", {"lm/accuracy": [0.5, 0.52, 0.51]}, model=model(base)) for base in range(3)]
    again = make_row("emo", {"lm/accuracy": [0.8, 0.82, 0.81]}, model=model(1), created="2026-03-01T12:00:00")
    before = make_row("emo", {"lm/accuracy": [0.2, 0.22, 0.21]}, model=model(2), created="2025-03-01T12:00:00")
    found = across([*emo, again, before][::order], mle)
    assert found.contrasts[0].candidate_mean == pytest.approx((0.51 + 0.81 + 0.51) / 3)
    assert again in found.members[found.candidates[0].id]
    assert before not in found.members[found.candidates[0].id]


def test_one_base_is_one(make_row: MakeEntry) -> None:
    rows = [
        [make_row(name, {"lm/accuracy": [v, v + 0.01, v + 0.03]}, model=model(4))]
        for name, v in (("emo", 0.9), ("mle", 0.1))
    ]
    found = across(*rows)
    assert found.contrasts[0].verdict == "undetermined"
    assert "bases in common: 1" in (found.contrasts[0].why or "")
    assert found.baseline.model.name == "tiny-oracle, 1 bases"
    assert found.baseline.metrics["lm/accuracy"].std is None


def test_a_row_has_the_metrics_of_all_its_bases_with_the_means_over_seeds(make_row: MakeEntry) -> None:
    rng = np.random.default_rng(4)
    values = {
        name: [(rng.uniform(0.2, 0.8, 3), np.exp(rng.normal(3, 0.5, 3))) for _ in range(3)] for name in ("emo", "mle")
    }
    rows = {}
    for name, of_bases in values.items():
        made = [{"lm/accuracy": list(a), "lm/ppl": list(p), "qa/accuracy": list(a / 2)} for a, p in of_bases]
        made[1]["lm/kl"] = [1.0, 2.0, 4.0]
        del made[2]["qa/accuracy"]
        rows[name] = [make_row(name, of, model=model(base), protocols=dict.fromkeys(("lm", "qa"), "paper@1"))
                      for base, of in enumerate(made)]  # fmt: skip
    found = across(rows["emo"], rows["mle"])
    assert [contrast.metric for contrast in found.contrasts] == ["lm/accuracy", "lm/ppl"]
    for row, name in ((found.candidates[0], "emo"), (found.baseline, "mle")):
        accuracy = [float(a.mean()) for a, _ in values[name]]
        ppl = [float(stats.gmean(p)) for _, p in values[name]]
        for metric, of_bases in (("lm/accuracy", accuracy), ("lm/ppl", ppl)):
            summary = row.metrics[metric]
            assert summary.values == pytest.approx(of_bases)
            assert (summary.mean, summary.std) == pytest.approx((np.mean(of_bases), np.std(of_bases, ddof=1)))
        assert row.seeds == (0, 1, 2)
        assert row.missing == dict.fromkeys(["lm/kl", "qa/accuracy"], "not measured on every base")
        assert row.families.keys() == row.metrics.keys() == {"lm/accuracy", "lm/ppl"}
    contrast = found.contrasts[1]
    assert contrast.effect == pytest.approx(
        np.mean([np.log(p).mean() for _, p in values["emo"]]) - np.mean([np.log(p).mean() for _, p in values["mle"]])
    )


Drawn = dict[str, list[np.ndarray]]
"""Task -> (S, I) values of each base."""


def sampled(entry_of: MakeEntry, sides: Mapping[str, Drawn], lost: Any = ()) -> tuple[list[list[Entry]], Any]:
    """Return the entries of rows, and what returns their examples, which files have in any order.

    `lost` has (side, base, task) of entries whose file does not have the task.
    """
    rows, examples, rng = [], {}, np.random.default_rng(9)
    for side, drawn in sides.items():
        rows.append([])
        for base in range(len(next(iter(drawn.values())))):
            seeds = len(next(iter(drawn.values()))[base])
            runs: list[dict[str, Any]] = [{} for _ in range(seeds)]
            metrics = {}
            for task, of_bases in drawn.items():
                made = []
                for seed, value_I in enumerate(of_bases[base]):
                    kept = [i for i in rng.permutation(len(value_I)) if np.isfinite(value_I[i])]
                    given = {f"{i}": (float(value_I[i]), 1.0) for i in kept}
                    mean = float(np.mean([value for value, _ in given.values()]))
                    made.append(Score(value=mean, n=len(kept), higher_is_better=True, unit="nats", examples=given))
                    if (side, base, task) not in lost:
                        runs[seed][f"{task}/score"] = given
                metrics[f"{task}/score"] = to_plain(summarise(made))
            entry = entry_of(side, metrics=metrics, model=model(base))
            rows[-1].append(entry)
            examples[entry.id] = runs
    return rows, lambda entry: examples[entry.id]


def drawn_rows(seeds: int, tasks: Mapping[str, int]) -> dict[str, Drawn]:
    rng = np.random.default_rng(5)
    found: dict[str, Drawn] = {"emo": {}, "mle": {}}
    for task, items in tasks.items():
        common_I = rng.normal(0, 1, items)
        for of in found.values():
            inclined_I = rng.normal(0, 0.5, items)
            of[task] = [
                common_I + inclined_I + rng.normal(0, 0.1) + rng.normal(0, 0.3, (seeds, items)) for _ in range(3)
            ]
    return found


@pytest.mark.parametrize("seeds", [1, 2])
def test_items_of_bases_are_paired_whatever_their_order_in_files(entry_of: MakeEntry, seeds: int) -> None:
    sides = drawn_rows(seeds, {"t": 30})
    rows, examples_of = sampled(entry_of, sides)
    (contrast,) = across(*rows, examples_of).contrasts
    delta_BI = np.stack([a.mean(0) - b.mean(0) for a, b in zip(sides["emo"]["t"], sides["mle"]["t"], strict=True)])
    expected = crossed(delta_BI)
    effect = float(delta_BI.mean())
    assert (contrast.items, contrast.seeds, contrast.effect) == (30, 3, pytest.approx(effect))
    assert contrast.p == pytest.approx(expected.p_value(effect), rel=1e-6)
    assert contrast.common_examples is None


def test_examples_of_all_tasks_are_counted_if_one_lacks_some(entry_of: MakeEntry) -> None:
    sides = drawn_rows(2, {"t": 30, "u": 40})
    sides["mle"]["u"][1][0, 7] = np.nan
    rows, examples_of = sampled(entry_of, sides)
    found = {c.metric: c for c in across(*rows, examples_of).contrasts}
    counts = {metric: (c.items, c.common_examples, c.all_examples) for metric, c in found.items()}
    assert counts == {"t/score": (30, None, None), "u/score": (39, 39, 40), "mean/score": (69, 69, 70)}
    kept = np.arange(40) != 7
    tasks = {"t": np.arange(30) >= 0, "u": kept}
    deltas = [
        np.stack([
            a[:, keep].mean(0) - b[:, keep].mean(0)
            for a, b in zip(sides["emo"][task], sides["mle"][task], strict=True)
        ])
        for task, keep in tasks.items()
    ]  # fmt: skip
    expected = crossed(*deltas)
    effect = float(np.mean([delta.mean() for delta in deltas]))
    assert found["mean/score"].p == pytest.approx(expected.p_value(effect), rel=1e-6)


@pytest.mark.parametrize("place", [("emo", 0), ("emo", 2), ("mle", 1)])
def test_a_base_without_its_examples_gives_no_verdict(entry_of: MakeEntry, place: tuple[str, int]) -> None:
    sides = drawn_rows(2, {"t": 30, "u": 40})
    sides["mle"]["t"][0][0, 7] = np.nan
    rows, examples_of = sampled(entry_of, sides, lost=[(*place, "t")])
    found = {c.metric: c for c in across(*rows, examples_of).contrasts}
    for metric in ("t/score", "mean/score"):
        assert (found[metric].verdict, found[metric].common_examples) == ("undetermined", None)
        assert "not available for the same examples" in (found[metric].why or "")
    assert found["u/score"].verdict in ("better", "worse", "tied")
