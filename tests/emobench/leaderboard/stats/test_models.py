"""Two models on the same examples: what is tested, by which test, and what is refused, against scipy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from made_scores import score
from scipy import stats
from statsmodels.stats.multitest import multipletests

from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.stats.compare import Comparison, Contrast, compare_models
from emobench.leaderboard.stats.summary import summarise
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
    assert found.missing == {found.candidates[0].id: tuple(f"{task}/score" for task in "cdef")}
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
