"""The sentences on top of a page, from boards whose verdicts follow from their numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest

from emobench.leaderboard.boards import board_folder
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.store import Leaderboard
from emobench.report.site.data import BoardData

Row = Callable[..., Entry]
LOW, HIGH, SAME = (0.60, 0.61, 0.59), (0.70, 0.711, 0.691), (0.606, 0.596, 0.601)


def found(entries: Sequence[Entry], baseline: str = "mle") -> str:
    (suite,) = BoardData(entries, None, baseline).plain["suites"]
    return suite["finding"]


def test_one_group_names_what_is_better_worse_and_tied_with_its_size(row: Row) -> None:
    metrics = ("toy/accuracy", "toy/mauve", "toy/rouge1")
    mle = row("mle", dict.fromkeys(metrics, LOW))
    emo = row("emo", dict(zip(metrics, (HIGH, [1 - value for value in HIGH], SAME), strict=True)))
    text = found([mle, emo])
    assert text.startswith("Against mle, emo is better on Accuracy (+10.07 points)")
    assert "worse on MAUVE (-30.1 points)" in text
    assert "tied on ROUGE-1." in text
    assert re.search(r"To decide the tie of emo on ROUGE-1, \+0\.1: [\d,]+ seeds \[", text)
    # The other way round the words change places with the baseline.
    turned = found([mle, emo], "emo")
    assert turned.startswith("Against emo, mle is better on MAUVE (+30.1 points); worse on Accuracy (-10.07 points)")


def test_groups_that_disagree_are_counted(row: Row) -> None:
    entries = [row("mle", {"toy/accuracy": LOW}, model=model) for model in ("small", "large")]
    entries += [row("emo", {"toy/accuracy": HIGH}), row("emo", {"toy/accuracy": SAME}, model="large")]
    entries += [row(name, {"toy/accuracy": [0.6]}, model="third") for name in ("mle", "gem")]
    text = found(entries)
    assert text.startswith(
        "Against mle, in 2 of 3 compared groups, emo is better on Accuracy (1 group); tied on Accuracy (1 group)."
    )
    assert "No verdict on gem. To decide" in text


def test_tasks_are_named_and_long_lists_end(row: Row) -> None:
    values = {f"t{place}/accuracy": LOW for place in range(7)}
    high = dict.fromkeys(values, HIGH)
    text = found([row("mle", values), *(row(name, high) for name in ("emo", "gem", "dft", "focal"))])
    assert "emo is better on mean Accuracy (" in text
    assert "t0 Accuracy (" in text
    assert "and 6 more" in text
    assert "1 more objectives have verdicts." in text


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"mle": [0.6], "emo": [0.9]}, "a verdict needs 3"),  # one seed
        ({"mle": LOW}, "No two trained entries"),
        ({"mle": LOW, "pretrained": [0.5]}, "No two trained entries"),
    ],
)
def test_without_a_verdict_there_is_the_reason(row: Row, values: dict[str, Sequence[float]], expected: str) -> None:
    text = found([row(name, {"toy/accuracy": of}) for name, of in values.items()])
    assert expected in text
    assert "better" not in text


def test_published_numbers_have_no_verdict() -> None:
    suites = BoardData(Leaderboard(board_folder("published:")).entries(), None).plain["suites"]
    for suite in suites:
        assert suite["finding"].startswith("No difference from mle has a verdict: ")


def test_pairs_that_a_page_does_not_test_are_no_lack_of_entries(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emobench.report.site.data.BUDGET", 0)
    assert "emobench compare" in found([row("mle", {"toy/accuracy": LOW}), row("emo", {"toy/accuracy": HIGH})])
