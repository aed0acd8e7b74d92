"""`emobench compare` as it is typed, on the papers' board and on a small one."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PAPER = "published:emo-table3/llama-7b"
EMO, MLE, TAILR = f"{PAPER}/emo", f"{PAPER}/mle", f"{PAPER}/tailr"

# EMO minus MLE for LLaMA-7B, subtracted by hand from Table 3 as printed.
BY_HAND = {
    "tweet_emotion": 12.1,
    "sst2": 0.4,
    "trec": 4.4,
    "subj": 4.7,
    "cr": 0.0,
    "rotten_tomatoes": 0.3,
    "ag_news": 3.9,
    "mmlu": 2.9,
}


def test_the_papers_differences_per_task(command: Callable[..., Any]) -> None:
    done = command("compare", EMO, MLE).ok()
    for task, points in BY_HAND.items():
        (line,) = [line for line in done.out.splitlines() if line.startswith(f"{task}/")]
        assert (f" {points:+.1f} " if points else " 0.0 ") in line
        assert "undetermined" in line
    assert "Published rows have no values by seed or example" in done.out


def test_every_output_has_the_same_numbers(command: Callable[..., Any], tmp_path: Path) -> None:
    plain = command("compare", EMO, MLE, "--json").json["comparisons"][0]
    by_task = {c["metric"].split("/")[0]: 100 * c["effect"] for c in plain["contrasts"]}
    assert by_task == pytest.approx({**BY_HAND, "mean": sum(BY_HAND.values()) / 8})
    rows = list(csv.DictReader(io.StringIO(command("compare", EMO, MLE, "--csv").out)))
    assert [float(row["effect"]) for row in rows] == [c["effect"] for c in plain["contrasts"]]
    assert "| tweet\\_emotion/accuracy (%) ↑ | 53.5 | 65.6 | +12.1 |" in command("compare", EMO, MLE, "--markdown").out
    assert (
        "tweet\\_emotion/accuracy (\\%) $\\uparrow$ & 53.5 & 65.6 & +12.1 &"
        in command("compare", EMO, MLE, "--latex").out
    )
    picture = tmp_path / "differences.png"
    assert command("compare", EMO, MLE, "--plot", picture).code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_baseline_and_the_metrics_can_be_named(command: Callable[..., Any]) -> None:
    done = command("compare", MLE, EMO, TAILR, "--baseline", MLE, "--metric", "trec/*", "--json").json["comparisons"]
    assert [len(comparison["contrasts"]) for comparison in done] == [2]
    assert {c["metric"] for c in done[0]["contrasts"]} == {"trec/accuracy"}
    assert " · llama-7b · " in done[0]["baseline"]["title"]
    assert done[0]["baseline"]["title"].startswith("mle")


def test_a_suite_leaves_out_the_entries_of_others(command: Callable[..., Any]) -> None:
    names = ("published:model=llama-7b,emo", "published:model=llama-7b,mle")
    everything = command("compare", *names, "--json", "--all").ok().json["comparisons"]
    (one,) = command("compare", *names, "--suite", "emo-table3", "--json").ok().json["comparisons"]
    assert len(everything) > 1
    assert one in everything
    assert command("compare", *names, "--suite", "emo-table3@1", "--json").ok().json["comparisons"] == [one]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((EMO,), "Name two or more, such as `emobench compare emo mle`"),
        ((EMO, EMO), "Name two or more"),
        ((EMO, f"{PAPER}/mel"), "did you mean 'mle'?"),
        ((EMO, "published:emo-table3/opt-2.7b/mle"), "There is no entry of the model 'opt-2.7b'"),
        ((EMO, "published:emo-table6/llama2-7b/mle"), "Add --anyway"),
        ((EMO, MLE, "--metric", "acuracy"), "There is no metric 'acuracy'"),
        ((EMO, MLE, "--csv", "--json"), "are one choice"),
        ((EMO, MLE, "--suite", "emo-table4"), f"{EMO}: There is no suite 'emo-table4'"),
        ((__file__, __file__, "--suite", "nlu"), "--suite chooses among entries of a board"),
        ((EMO, MLE, "--plot", "/dev/null/all.png"), "/dev/null/all.png could not be written"),
        ((EMO, "mle", "--leaderboard", "nowhere"), "nowhere"),
    ],
)
def test_bad_input(words: tuple[str, ...], told: str, command: Callable[..., Any]) -> None:
    done = command("compare", *words)
    assert done.code in (1, 2)
    assert told in done.err
    assert "Traceback" not in done.err


def test_anyway_shows_what_is_not_comparable_without_a_verdict(command: Callable[..., Any]) -> None:
    done = command("compare", EMO, "published:emo-table6/llama2-7b/mle", "--anyway", "--json").ok()
    (found,) = done.json["comparisons"]
    assert {c["verdict"] for c in found["contrasts"]} == {None}
    assert any("model" in text for texts in found["apart"].values() for text in texts)
