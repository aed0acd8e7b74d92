"""Tables of scores, as files and as data frames: the tests of result files and of entries, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import emobench
from emobench.core.errors import ConfigError, UserError
from emobench.leaderboard.stats.compare import Contrast
from emobench.leaderboard.stats.random_effects import crossed

N = 60


def frame(rate: float, *, seeds: Sequence[int] = (), binary: bool = True, **columns: Any) -> pd.DataFrame:
    """Scores of N examples, which are as difficult in every table."""
    frames = []
    difficulty = np.random.default_rng(0).random(N)
    for seed in seeds or (0,):
        noise = np.random.default_rng([seed, int(1000 * rate)]).random(N)
        score = rate - 0.6 * difficulty - 0.4 * noise
        values: dict[str, Any] = {"example": range(N), "score": (score > 0) * 1 if binary else score}
        if seeds:
            values["seed"] = seed
        frames.append(pd.DataFrame(values | columns))
    return pd.concat(frames, ignore_index=True)


def contrast(*given: Any, **options: Any) -> Contrast:
    (comparison,) = emobench.compare(*given, **options).comparisons
    (one,) = comparison.contrasts
    return one


def test_right_and_wrong_answers_get_mcnemar_s_test_and_other_scores_a_paired_t() -> None:
    left, right = frame(0.7), frame(0.4)
    one = contrast(left, right)
    only_left = int(((left.score == 1) & (right.score == 0)).sum())
    only_right = int(((left.score == 0) & (right.score == 1)).sum())
    assert one.p == pytest.approx(stats.binomtest(only_left, only_left + only_right).pvalue)
    assert (one.effect, one.verdict, one.unit) == (pytest.approx((only_left - only_right) / N), "better", "fraction")
    swapped = contrast(left, right, baseline=left)
    assert (swapped.effect, swapped.verdict) == (pytest.approx(-one.effect), "worse")
    graded = contrast(frame(0.7, binary=False), frame(0.4, binary=False))
    assert (graded.test, graded.verdict, graded.items) == ("paired t test", "better", N)


def test_several_seeds_are_compared_as_those_of_entries(tmp_path: Path) -> None:
    sides = [frame(rate, seeds=[0, 1, 2], binary=False) for rate in (0.7, 0.4)]
    one = contrast(*sides)
    values_SI = [side.score.to_numpy().reshape(3, N) for side in sides]
    noise = crossed(values_SI[0] - values_SI[1], effective=[N])
    assert noise is not None
    assert one.p == pytest.approx(noise.p_value(one.effect))
    assert (one.seeds, one.items, one.verdict) == (3, N, "better")
    two = contrast(*[side[side.seed < 2] for side in sides])
    assert (two.verdict, two.p) == ("undetermined", None)
    assert contrast(*[side[side.seed == 0] for side in sides]).test == "paired t test"
    with pytest.raises(ConfigError, match=r"table 1 .*table 2 .*`seed`"):
        emobench.compare(sides[0], frame(0.4))


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_file_is_compared_as_the_data_frame_that_it_holds(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {}
    for name, rate in (("after", 0.7), ("before", 0.4)):
        table = frame(rate, task="quiz", metric="acc", unit=[f"text {i // 2}" for i in range(N)])
        given[name] = table.sample(frac=1, random_state=1)
        if suffix == "csv":
            table.to_csv(f"{name}.csv", index=False)
        elif suffix == "jsonl":
            table.to_json(f"{name}.jsonl", orient="records", lines=True)
        else:
            table.to_parquet(f"{name}.parquet")
    of_frames = contrast(*given.values())
    printed = command("compare", f"after.{suffix}", f"before.{suffix}", "--json").ok().json["comparisons"][0]
    (row,) = printed["contrasts"]
    assert (row["metric"], row["verdict"], row["items"]) == ("quiz/acc", "better", N // 2)
    assert (row["effect"], row["p"]) == pytest.approx((of_frames.effect, of_frames.p))
    assert contrast(f"after.{suffix}", given["before"]).effect == pytest.approx(of_frames.effect)


def test_the_direction_follows_from_the_metric_s_name() -> None:
    verdicts = {}
    for metric in ("score", "accuracy", "loss", "frobs"):
        verdicts[metric] = contrast(frame(0.7, metric=metric), frame(0.4, metric=metric)).verdict
    assert verdicts == {"score": "better", "accuracy": "better", "loss": "worse", "frobs": None}


def test_a_longer_side_of_an_interval_is_explained() -> None:
    noise_I = np.random.default_rng(1).normal(0, 1.2, N)
    for scores_I, is_skewed in ((noise_I, False), (np.exp(noise_I), True)):
        left = frame(0.7).assign(score=scores_I)
        notes = emobench.compare(left, left.assign(score=0.0)).notes
        assert any("skewness" in note and note.endswith(": score.") for note in notes) == is_skewed


GOOD = "example,score,seed\na,1,0\nb,0,0\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ["example and score"]),
        ("example,score\n", ["example and score"]),
        ("id,score\na,1\n", [":2", '"example"', "id, score"]),
        ("example,value\na,1\n", [":2", '"score"', "example, value"]),
        ('example,score\na,1\n"b,0\n', [":3"]),
        ("example,score\na\n", [":2", "2 fields"]),
        ("example,score\na,high\n", [":2", "high"]),
        ("example,score\na,nan\n", [":2", "nan"]),
        ("example,score\na,\n", [":2"]),
        ("example,score\na,1e999\n", [":2"]),
        ("example,score\n,1\n", [":2", '"example"']),
        ("example,score\na,1\nb,1\na,0\n", [":4", "'a'", "`seed`"]),
        (GOOD + "b,1,0\n", [":4", "'b'"]),
        (GOOD + "b,1,\n", [":4", '"seed"']),
        (GOOD + "b,1,-1\n", [":4", "-1"]),
        ("example,score,unit,metric\na,1,u,m\na,1,v,n\n", [":3", "'a'", "units"]),
        (b"example,score\n\xe9,1\n", ["UTF-8"]),
    ],
)
def test_a_table_that_cannot_be_compared_is_named_in_one_sentence(
    content: str | bytes, words: list[str], tmp_path: Path
) -> None:
    bad, good = tmp_path / "bad.csv", tmp_path / "good.csv"
    good.write_text(GOOD)
    bad.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UserError) as refused:
        emobench.compare(str(good), str(bad))
    message = str(refused.value)
    assert all(word in message for word in ["bad.csv", *words]), message


def test_what_is_no_table_or_has_other_examples_is_refused() -> None:
    with pytest.raises(ConfigError, match="table 2 is of type list"):
        emobench.compare(frame(0.4), [1, 2])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="not available for the same examples"):
        emobench.compare(frame(0.7), frame(0.4).assign(example=range(N, 2 * N)))
    for name in ("no.csv", "no.jsonl", "no.parquet"):
        with pytest.raises(UserError, match=f"^{name} could not be read: No such file or directory"):
            emobench.compare(name, frame(0.4))
    with pytest.raises(ConfigError, match="--suite"):
        emobench.compare(frame(0.7), frame(0.4), suite="nlu")
