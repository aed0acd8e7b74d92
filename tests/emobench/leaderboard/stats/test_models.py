"""Two models on the same examples: what is tested, by which test, and what is refused, against scipy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_scores import score, series, within_seed
from scipy import stats
from statsmodels.stats import contingency_tables
from statsmodels.stats.multitest import multipletests

from emobench.core.errors import ConfigError
from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.run_files import ExamplesReader
from emobench.leaderboard.stats.classical import MCNEMAR_MID_P, mcnemar_exact, mcnemar_interval, mcnemar_mid_p
from emobench.leaderboard.stats.compare import Comparison, Contrast, compare, compare_models, comparisons
from emobench.leaderboard.stats.difference import PAIRED_T, compare_rows
from emobench.leaderboard.stats.random_effects import crossed, unpaired
from emobench.leaderboard.stats.series import Series
from emobench.leaderboard.stats.summary import summarise
from emobench.report import compare_table
from emobench.report import notes as captions
from emobench.tasks.scores import Score

MakeEntry = Callable[..., Entry]
Compared = Callable[..., Comparison]


@pytest.fixture
def compared(entry_of: MakeEntry) -> Compared:
    """Return a function that compares models, given by their scores by metric; the last is the baseline."""

    def of(*models: Mapping[str, Score], unpaired: Mapping[str, str] | None = None) -> Comparison:
        entries, examples = [], {}
        for place, scores in enumerate(models):
            metrics = {metric: to_plain(summarise([one])) for metric, one in scores.items()}
            entry = entry_of("pretrained", metrics=metrics, model={"name": f"m{place}", "source": f"m{place}"})
            entries.append(entry)
            examples[entry.id] = [{metric: one.sampled for metric, one in scores.items()}]
        why = {entries[0].id: unpaired or {}}
        return compare_models(entries[-1], entries[:-1], lambda entry: examples[entry.id], why)

    return of


def only_contrast(comparison: Comparison) -> Contrast:
    (contrast,) = comparison.contrasts
    return contrast


def test_symmetric_scores_are_tested_by_the_paired_t_test(compared: Compared) -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(0, 1, 30)
    half = rng.normal(0.3, 1, 15)
    b = a - 0.2 - np.concatenate([half - half.mean(), half.mean() - half])  # no skewness
    found = only_contrast(compared({"t/score": score(a)}, {"t/score": score(b)}))
    expected = stats.ttest_rel(a, b)
    assert found.p == pytest.approx(float(expected.pvalue))
    assert found.ci95 == pytest.approx(tuple(expected.confidence_interval()))
    assert (found.test, found.items, found.effect) == ("paired t test", 30, pytest.approx((a - b).mean()))


@pytest.mark.parametrize(
    ("left", "right"), [((1, 0, 1, 1), (0, 0, 1, 0)), ((1, 1), (0, 0)), ((1, 0), (0, 1)), ((1, 1), (1, 1))]
)
def test_right_or_wrong_answers_are_tested_by_mcnemars_exact_test(
    left: Sequence[int], right: Sequence[int], compared: Compared
) -> None:
    found = only_contrast(compared({"t/acc": score(left)}, {"t/acc": score(right)}))
    wins, losses = (sum(x > y for x, y in zip(*sides, strict=True)) for sides in ((left, right), (right, left)))
    assert found.p == pytest.approx(stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0)
    assert (found.test, found.items, found.verdict) == ("McNemar's test, exact", len(left), "tied")
    assert found.effect == pytest.approx(np.mean(left) - np.mean(right))


def test_one_side_with_partial_answers_is_no_mcnemar(compared: Compared) -> None:
    right = [1.0, 0.0] * 6
    for partial, test in ((right[::-1], "McNemar's test, exact"), ([0.5, *right[1:-1], 0.75], "paired t test")):
        for sides in ((partial, right), (right, partial)):
            assert only_contrast(compared(*({"t/acc": score(side)} for side in sides))).test == test


def test_few_units_give_no_verdict(compared: Compared) -> None:
    rng = np.random.default_rng(1)
    one, ten = ([1.0], [0.0]), (rng.normal(5, 0.1, 10), rng.normal(0, 0.1, 10))
    found = only_contrast(compared({"t/acc": score(one[0])}, {"t/acc": score(one[1])}))
    assert (found.verdict, found.why) == ("undetermined", "1 sampling units (examples, passages); 2 are needed")
    assert only_contrast(compared(*({"t/score": score(side)} for side in ten))).verdict == "better"
    found = only_contrast(compared(*({"t/score": score(side[:9])} for side in ten)))
    assert (found.verdict, found.why) == ("undetermined", "9 sampling units (examples, passages); 10 are needed")
    units = {str(i): f"text {min(i, 8)}" for i in range(10)}
    found = only_contrast(compared(*({"t/score": score(side, units=units)} for side in ten)))
    assert (found.verdict, (found.why or "")[:16]) == ("undetermined", "9 sampling units")


def test_examples_without_weight_are_not_counted(compared: Compared) -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(0, 1, (2, 40))
    weight_I = np.where(np.arange(40) < 30, 1.0, 0.0)
    whole = only_contrast(compared(*({"t/score": score(v, weight_I)} for v in values)))
    fewer = only_contrast(compared(*({"t/score": score(v[:30])} for v in values)))
    assert whole.items == 30
    assert (whole.effect, whole.p, whole.detectable) == pytest.approx((fewer.effect, fewer.p, fewer.detectable))
    assert whole.ci95 == pytest.approx(fewer.ci95)


def test_perplexities_need_the_same_tokens_and_scores_do_not(compared: Compared) -> None:
    rng = np.random.default_rng(4)
    values = rng.normal(3, 0.2, (2, 40))
    weights = np.full(40, 7.0), np.where(np.arange(40) == 5, 8.0, 7.0)

    def of(unit: str, *given: np.ndarray) -> Contrast:
        return only_contrast(compared(*({"t/s": score(v, w, unit=unit)} for v, w in zip(values, given, strict=True))))

    found = of("perplexity", *weights)
    assert (found.verdict, found.p) == ("undetermined", None)
    assert "other numbers of tokens" in (found.why or "")
    assert of("perplexity", weights[0], weights[0]).p == pytest.approx(stats.ttest_rel(*values).pvalue, rel=0.1)
    assert of("nats", *weights).p == pytest.approx(stats.ttest_rel(*values).pvalue, rel=0.2)


def test_a_perplexity_and_another_score_are_not_of_one_scale(compared: Compared) -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(3, 0.2, (2, 40))
    for units in (("perplexity", "nats"), ("nats", "perplexity")):
        made = [replace(score(v, unit=u), higher_is_better=False) for v, u in zip(values, units, strict=True)]
        found = only_contrast(compared(*({"t/s": one} for one in made)))
        assert (found.verdict, found.p) == ("undetermined", None)


@pytest.mark.parametrize("centre", [0.02, 5.0, 3000.0, -5.0])
@pytest.mark.parametrize("times", [-1.0, 1.0])
def test_float_rounding_of_equal_differences_is_no_noise(centre: float, times: float, compared: Compared) -> None:
    rng = np.random.default_rng(7)
    value_I = centre + centre * rng.normal(0, 0.1, 40)
    dust_I = 1e-7 * centre * rng.uniform(-1, 1, 40)
    found = only_contrast(compared({"t/s": score(value_I + dust_I)}, {"t/s": score(value_I)}))
    assert (found.verdict, found.effect, found.p, found.ci95) == ("tied", 0.0, None, None)
    assert (found.why, found.items) == ("all values are equal", 40)
    shifted_I = value_I + times * 0.01 * abs(centre) + dust_I
    found = only_contrast(compared({"t/s": score(shifted_I)}, {"t/s": score(value_I)}))
    assert (found.verdict, found.p) == ("undetermined", None)
    assert "differs by the same amount" in (found.why or "")
    noise_I = 1e-4 * centre * rng.uniform(-1, 1, 40)
    found = only_contrast(compared({"t/s": score(shifted_I + noise_I)}, {"t/s": score(value_I)}))
    assert found.verdict == ("better" if times > 0 else "worse")


def test_equal_scores_of_0_are_tied(compared: Compared) -> None:
    found = only_contrast(compared(*({"t/s": score(np.zeros(12), np.arange(1, 13))} for _ in range(2))))
    assert (found.verdict, found.effect, found.why) == ("tied", 0.0, "all values are equal")


def test_metrics_of_one_side_are_named_and_p_is_adjusted_for_each_candidate(compared: Compared) -> None:
    rng = np.random.default_rng(9)

    def drawn(*names: str, shift: float = 0.0) -> dict[str, Score]:
        return {f"{name}/score": score(rng.normal(shift, 1, 50)) for name in names}

    baseline = drawn("e", "c", "a", "b")
    first, second = drawn("a", "f", "b", "d", shift=0.5), drawn("e", "c", "a", "b", shift=0.4)
    found = compared(first, second, baseline)
    of = {entry.model.name: found.of(entry) for entry in found.candidates}
    assert [c.metric for c in of["m0"]] == ["a/score", "b/score"]
    assert [c.metric for c in of["m1"]] == [f"{task}/score" for task in "ecab"]
    assert found.missing == {found.candidates[0].id: tuple(f"{task}/score" for task in "ecfd")}
    assert (found.replicates, found.apart) == ("items", {})
    for made in of.values():
        ps = [c.p for c in made]
        assert [c.p_holm for c in made] == pytest.approx(multipletests(ps, method="holm")[1])
        assert {c.tests for c in made} == {len(made)}


def test_examples_that_are_not_the_baselines_give_no_verdict(compared: Compared) -> None:
    rng = np.random.default_rng(10)
    sides = [{f"{t}/score": score(rng.normal(shift, 1, 50)) for t in "ab"} for shift in (3, 0)]
    found = compared(*sides, unpaired={"a/score": "the documents differ"})
    told = {c.metric: (c.verdict, c.why, c.p is None) for c in found.contrasts}
    assert told == {"a/score": (None, "the documents differ", True), "b/score": ("better", None, False)}
    assert found.contrasts[1].tests == 1


# Tests within a seed agree with statsmodels, scipy and enumeration.


def of_values(values_I: np.ndarray, weight_I: np.ndarray | None = None, *, log_scale: bool = False) -> Series:
    weights = np.ones(len(values_I)) if weight_I is None else weight_I
    examples = {str(i): (float(v), float(w)) for i, (v, w) in enumerate(zip(values_I, weights, strict=True))}
    mean = float(np.average(values_I, weights=weights))
    value = float(np.exp(mean)) if log_scale else mean
    return Series(values={0: value}, examples={0: examples}, log_scale=log_scale)


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (1, 0), (5, 5), (3, 11), (40, 22), (300, 260)])
def test_mcnemar_is_the_exact_test_less_half_of_what_was_observed(only_a: int, only_b: int) -> None:
    exact = contingency_tables.mcnemar([[10, only_a], [only_b, 10]], exact=True).pvalue
    observed = stats.binom.pmf(only_a, only_a + only_b, 0.5)
    want = 1.0 if only_a == only_b else exact - observed
    assert mcnemar_mid_p(only_a, only_b) == pytest.approx(want)
    assert mcnemar_mid_p(only_a, only_b) == mcnemar_mid_p(only_b, only_a)


def test_an_accuracy_is_tested_by_mcnemar() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, 200).astype(float), rng.integers(0, 2, 200).astype(float)
    found = within_seed(of_values(a), of_values(b), 0)
    assert found.test == MCNEMAR_MID_P
    assert found.p == mcnemar_mid_p(int((a > b).sum()), int((b > a).sum()))
    assert found.effect == pytest.approx(a.mean() - b.mean())
    assert found.ci95 == pytest.approx(tuple(stats.ttest_rel(a, b).confidence_interval()), abs=0.005)


def corrected_p(delta_I: np.ndarray, freedom: float) -> float:
    """Return the largest p of Hall's corrected t over a grid of skewnesses up to its limit."""
    items, error = len(delta_I), stats.sem(delta_I)
    t, skewness = delta_I.mean() / error, stats.kstat(delta_I, 3) / items**2 / error**3
    r = np.linspace(0, (1.4 + 150 / items**2) * skewness, 20_001)
    corrected = t + r * t**2 / 3 + r**2 * t**3 / 27 + r / 6
    smallest = 0.0 if corrected.min() < 0 < corrected.max() else float(np.abs(corrected).min())
    return float(2 * stats.t.sf(smallest, freedom))


def pseudo(values_I: np.ndarray, weight_I: np.ndarray) -> np.ndarray:
    """Return the jackknife's pseudo-values of a weighted mean, moved to have it as their mean."""
    items, mean = len(values_I), np.average(values_I, weights=weight_I)
    others = [np.average(np.delete(values_I, i), weights=np.delete(weight_I, i)) for i in range(items)]
    pseudo_I = items * mean - (items - 1) * np.array(others)
    return pseudo_I - pseudo_I.mean() + mean


@pytest.mark.parametrize("log_scale", [False, True])
@pytest.mark.parametrize("items", [10, 39, 40, 150])
def test_other_scores_have_the_t_test_of_result_files(items: int, log_scale: bool) -> None:
    rng = np.random.default_rng([items, log_scale])
    weight_I = rng.integers(10, 60, items).astype(float) if log_scale else np.ones(items)
    a_I = rng.normal(4, 0.3, items)
    b_I = a_I + rng.gamma(4, 0.1, items) - 0.33
    found = within_seed(of_values(a_I, weight_I, log_scale=log_scale), of_values(b_I, weight_I, log_scale=log_scale), 0)
    delta_I = pseudo(a_I, weight_I) - pseudo(b_I, weight_I)
    freedom = weight_I.sum() ** 2 / np.square(weight_I).sum() - 1
    assert (found.test, found.items) == (PAIRED_T, items)
    assert found.effect == pytest.approx(np.average(a_I - b_I, weights=weight_I))
    assert found.p == pytest.approx(corrected_p(delta_I, freedom), rel=1e-3)
    assert found.ci95 is not None
    assert [corrected_p(delta_I - end, freedom) for end in found.ci95] == pytest.approx([0.05, 0.05], rel=1e-2)


def test_a_row_without_seeds_stands_beside_any_seed() -> None:
    rng = np.random.default_rng(4)
    a, plain = of_values(rng.normal(0, 1, 50)), of_values(rng.normal(0, 1, 50))
    without = Series(**{**vars(plain), "values": {None: plain.values[0]}, "examples": {None: plain.examples[0]}})
    assert within_seed(a, without, 0) == within_seed(a, plain, 0)


def test_the_interval_beside_a_mid_p_is_of_mid_p() -> None:
    """Five answers to none: mid-p is .031, and the exact p .0625."""
    left = np.array([1.0] * 5 + [0.0] * 7)
    found = within_seed(of_values(left), of_values(np.zeros(12)), 0)
    assert found.p == pytest.approx(1 / 32)
    assert found.ci95[0] > 0


# An interval and the p beside it are of one test: it excludes 0 exactly where p is at most 5 %.


def agree(p: float, interval: tuple[float, float]) -> bool:
    return (p <= 0.05) == (not interval[0] <= 0 <= interval[1])


@pytest.mark.parametrize("questions", [1, 2, 6, 9, 40])
def test_an_interval_of_accuracies_agrees_with_mcnemars_tests(questions: int) -> None:
    counts = [(a, b) for a in range(questions + 1) for b in range(questions + 1 - a)]
    for only_a, only_b in counts if questions < 9 else [*counts[:8], *counts[200:206], *counts[-8:]]:
        effect = (only_a - only_b) / questions
        exact = mcnemar_interval(only_a, only_b, questions)
        mid = mcnemar_interval(only_a, only_b, questions, mid_p=True)
        assert agree(mcnemar_exact(only_a, only_b), exact)
        assert agree(mcnemar_mid_p(only_a, only_b), mid)
        assert -1 <= exact[0] <= mid[0] + 1e-3 <= effect + 2e-3
        assert effect <= mid[1] + 1e-3 <= exact[1] + 2e-3 <= 1 + 3e-3
        turned = mcnemar_interval(only_b, only_a, questions)
        assert exact == pytest.approx((-turned[1], -turned[0]), abs=1e-6)


def below_of_beta(a: int, b: int, value_Q: np.ndarray) -> np.ndarray:
    """Return the probabilities of at most each value; of a = 0 all is at 0, and of b = 0 at 1."""
    return 1.0 * (value_Q >= (b == 0)) if a == 0 or b == 0 else stats.beta.cdf(value_Q, a, b)


COUNTS = [(12, 2, 60), (10, 3, 60), (9, 2, 200), (3, 11, 40), (12, 0, 30), (0, 6, 20), (7, 0, 7), (5, 2, 7)]


@pytest.mark.parametrize(("only_a", "only_b", "questions"), COUNTS)
@pytest.mark.parametrize("mid_p", [False, True])
def test_a_limit_is_where_a_melded_distribution_has_2_5_percent(
    only_a: int, only_b: int, questions: int, mid_p: bool
) -> None:
    """By numerical integration over the share of the questions that a alone answers rightly."""
    discordant = only_a + only_b
    level_Q = (np.arange(20_011) + 0.5) / 20_011

    def below(limit: float, side: int) -> float:
        a, b = only_a + side, only_b + 1 - side
        share_Q = np.full(20_011, float(b == 0)) if a == 0 or b == 0 else stats.beta.ppf(level_Q, a, b)
        near, far = ((discordant + more, questions - discordant + 1 - more) for more in (side, 1 - side))
        ratio_Q = limit / np.where(share_Q == 0.5, 1e-12, 2 * share_Q - 1)
        return float(np.where(share_Q > 0.5, below_of_beta(*near, ratio_Q), 1 - below_of_beta(*far, ratio_Q)).mean())

    sides = (0, 1) if mid_p else (0,)
    limit, _ = mcnemar_interval(only_a, only_b, questions, mid_p=mid_p)
    under, over = (sum(below(limit + step, side) for side in sides) / len(sides) for step in (-5e-4, 5e-4))
    assert under < 0.025 < over
    assert over - under < 0.05


def test_two_questions_are_no_evidence() -> None:
    """A t interval of two equal differences has no width: it excluded 0 beside p = .5."""
    a, b = (
        Series(values={0: value}, examples={0: dict.fromkeys("ab", (value, 1.0))}, log_scale=False)
        for value in (1.0, 0.0)
    )
    found = within_seed(a, b, 0)
    assert (found.effect, found.p) == (1.0, 0.25)
    assert found.ci95[0] < 0


def test_an_interval_beside_an_adjusted_p_says_that_it_is_not_adjusted(make_row: Callable[..., Entry]) -> None:
    base = np.array([0.500, 0.504, 0.498])
    mle = make_row("mle", {f"{task}/accuracy": list(base) for task in "abcd"})
    gain, noise = np.array([0.010, 0.014, 0.018]), np.array([0.004, -0.005, 0.003])
    emo = make_row("emo", {f"{task}/accuracy": list(base + (gain if task == "a" else noise)) for task in "abcd"})
    compared = compare(mle, [emo])
    contrasts = {contrast.metric: contrast for contrast in compared.contrasts}
    first = contrasts["a/accuracy"]
    assert first.p == pytest.approx(float(stats.ttest_1samp(gain, 0)[1]))
    assert (first.verdict, first.p < 0.05, first.ci95[0] > 0) == ("tied", True, True)
    told = [contrast.metric for contrast in contrasts.values() if any("is not" in note for note in contrast.notes)]
    assert told == ["a/accuracy"]
    (table,) = compare_table.report([compared]).tables
    assert [row[0].text for row in table.rows if "[" in row[-1].text] == ["a/accuracy (%) ↑"]


# Items of unequal weight have fewer degrees of freedom in the verdict's own test, of boards and of result files.

ITEMS = 40


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (S, I) values of two sides, and weights of which few have most."""
    rng = np.random.default_rng(seed)
    weight_I = rng.lognormal(0, 1.3, ITEMS)
    common_I = rng.normal(0, 1, ITEMS)
    sides = [common_I + rng.normal(0, 0.5, ITEMS) + rng.normal(0, 0.3, (3, ITEMS)) for _ in range(2)]
    return sides[0], sides[1], weight_I


def freedom(weight_I: np.ndarray) -> float:
    return float(weight_I.sum() ** 2 / np.square(weight_I).sum() - 1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("paired", [True, False])
def test_a_verdict_of_a_board(seed: int, paired: bool) -> None:
    a_SI, b_SI, weight_I = drawn(seed)
    found = compare_rows(
        [series([score(value_I, weight_I) for value_I in a_SI])],
        [series([score(value_I, weight_I) for value_I in b_SI], [0, 1, 2] if paired else [5, 6, 7])],
    )
    left_SI, right_SI = (np.stack([pseudo(value_I, weight_I) for value_I in of]) for of in (a_SI, b_SI))
    units = freedom(weight_I) + 1
    assert units < ITEMS / 2
    if paired:
        expected, plain = crossed(left_SI - right_SI, effective=[units]), crossed(left_SI - right_SI)
    else:
        expected, plain = unpaired((left_SI, right_SI), effective=[units]), unpaired((left_SI, right_SI))
    assert expected.parts[1][1] == pytest.approx(freedom(weight_I))
    assert plain.parts[1][1] == ITEMS - 1
    effect = float(left_SI.mean() - right_SI.mean())
    assert found.effect == pytest.approx(effect)
    assert found.p == pytest.approx(expected.p_value(effect), rel=1e-6)
    assert found.ci95 == pytest.approx(expected.interval(effect))
    assert expected.critical() > plain.critical()


@pytest.mark.parametrize("place", range(6))
def test_the_seed_with_the_fewest_equal_items_counts(place: int) -> None:
    """One of six runs has its weight on few items, as of texts that a model ended early."""
    rng = np.random.default_rng(5)
    values_RI = rng.normal(0, 1, ITEMS) + rng.normal(0, 0.5, (6, ITEMS))
    heavy_I = np.where(np.arange(ITEMS) < 4, 30.0, 1.0)
    weights = [heavy_I if run == place else np.ones(ITEMS) for run in range(6)]
    made = [score(*pair) for pair in zip(values_RI, weights, strict=True)]
    found = compare_rows([series(made[:3])], [series(made[3:])])
    pseudo_RI = [pseudo(*pair) for pair in zip(values_RI, weights, strict=True)]
    delta_SI = np.stack(pseudo_RI[:3]) - np.stack(pseudo_RI[3:])
    expected = crossed(delta_SI, effective=[freedom(heavy_I) + 1])
    assert expected.parts[1][1] < 10
    assert found.detectable == pytest.approx(expected.detectable)
    assert found.p == pytest.approx(expected.p_value(float(delta_SI.mean())), rel=1e-6)


def test_a_mean_over_tasks_has_those_of_each() -> None:
    rng = np.random.default_rng(4)
    tasks = [rng.normal(0, 1, items) + rng.normal(0, 1, (3, items)) for items in (20, 30)]
    found = crossed(*tasks, effective=[7.5, 12.0])
    assert [df for _, df in found.parts] == [2, 6.5, 11.0]
    found = unpaired(*((task, -task[::-1]) for task in tasks), effective=[7.5, 12.0])
    assert [df for _, df in found.parts[1:]] == [6.5, 11.0]


@pytest.fixture
def boards_of(make_entry: MakeEntry, runs: Path) -> Callable[..., list[Comparison]]:
    """Return a function that compares two entries of single models, given their accuracies by example and changes."""

    def of(left: np.ndarray, right: np.ndarray, **changes: Any) -> list[Comparison]:
        model = {"name": "b", "source": "local folder", "revision": "sha256:b"}
        one = make_entry("emo", {"t": left[None]}, seeds=[3], recipe={"name": "sft", "declared": True})
        other = make_entry("pretrained", {"t": right[None]}, seeds=[], **{"model": model, **changes})
        return comparisons([[one], [other]], None, ExamplesReader(runs, []))

    return of


def test_entries_of_two_models_are_tested_as_result_files_are(boards_of: Callable[..., list[Comparison]]) -> None:
    rng = np.random.default_rng(0)
    left, right = (rng.random(60) < 0.8).astype(float), (rng.random(60) < 0.4).astype(float)
    (comparison,) = boards_of(left, right)
    found = only_contrast(comparison)
    assert comparison.replicates == "items"
    assert found.p == pytest.approx(mcnemar_exact(int((left > right).sum()), int((right > left).sum())))
    assert (found.verdict, found.items) == ("better", 60)
    report = compare_table.report([comparison])
    assert report.tables[0].title.startswith("emo of tiny against b")
    assert {captions.ONE_PAIR, captions.DECLARED} <= set(report.notes)


def test_entries_of_two_models_with_one_example_in_common_are_refused(
    boards_of: Callable[..., list[Comparison]],
) -> None:
    with pytest.raises(ConfigError, match="example by example"):
        boards_of(np.ones(1), np.array([0.0, 1.0, 1.0, 0.0]))
    with pytest.raises(ConfigError, match="protocol of t"):
        boards_of(np.ones(20), np.zeros(20), protocols={"t": "paper@2"})
