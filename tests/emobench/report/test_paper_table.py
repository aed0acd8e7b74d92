"""A paper's table beside ours: values, differences, tests and what they can tell, against numbers by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from paper_rows import EntryOf, metric, paper_comparison

from emobench.leaderboard.entry import Entry
from emobench.report.notes import SEEDS_NEEDED, TESTED
from emobench.report.paper_table import INTERVAL, PaperComparison, cells, paper_table

ITEMS = 40
COLUMNS = ("sst2/accuracy", "trec/accuracy")


def right(count: int) -> dict[str, tuple[float, float]]:
    """The first `count` of all items are answered rightly."""
    return {f"{i:02d}": (float(i < count), 1.0) for i in range(ITEMS)}


def made(entry_of: EntryOf, counts: Mapping[str, tuple[int, ...]], remarks: tuple[str, ...] = ()) -> PaperComparison:
    """Rows of ours with so many right answers in each seed, beside a paper's."""
    ours = {name: {"sst2/accuracy": metric(*(c / ITEMS for c in of))} for name, of in counts.items()}
    values = {"mle": 0.948, "emo": 0.952, "mixce": 0.95}
    paper = {name: {column: metric(value, n=None) for column in COLUMNS} for name, value in values.items()}

    def runs(entry: Entry) -> list[dict[str, Any]]:
        return [{"sst2/accuracy": right(count)} for count in counts[entry.objective.name]]

    return paper_comparison(entry_of, ours, paper, COLUMNS, runs, remarks)


def of_one_metric(entry_of: EntryOf, summary: dict[str, Any], paper: tuple[str, ...]) -> PaperComparison:
    """Two rows of ours with the same value, and the paper's rows."""
    of_paper = {name: {"sst2/mauve": metric(0.775)} for name in paper}
    ours = {name: {"sst2/mauve": summary} for name in ("mle", "emo")}
    return paper_comparison(entry_of, ours, of_paper, ["sst2/mauve"])


def by_row(found: PaperComparison) -> dict[str, list[str]]:
    return {row[0].text: [cell.text for cell in row[1:]] for row in paper_table(found).rows}


def test_each_row_of_the_paper_has_ours_and_the_differences(entry_of: EntryOf) -> None:
    found = made(entry_of, {"mle": (20,), "emo": (30,)})
    shown = by_row(found)
    assert shown["mle · paper"] == ["94.8", "94.8"]
    assert shown["mle · here"] == ["50.0", "–"]
    assert shown["mle · here - paper"] == ["-44.8", "–"]
    assert shown["emo · here - paper"] == ["-20.2", "–"]
    # Ten answers that only EMO has right: mid-p of McNemar's test, 2 * 2**-10 - 2**-10.
    assert shown["emo · here - mle here"] == ["+25.0 p=<.001", "–"]
    assert "mle · here - mle here" not in shown
    assert [label for label in shown if label.startswith("mixce")] == ["mixce · paper"]


def test_one_seed_says_something_of_two_models_only(entry_of: EntryOf) -> None:
    found = made(entry_of, {"mle": (20,), "emo": (22,)})
    # Two answers: 2 * 2**-2 - 2**-2.
    assert by_row(found)["emo · here - mle here"] == ["+5.0 p=.250", "–"]
    legend = paper_table(found).below
    assert SEEDS_NEEDED in legend
    assert TESTED not in legend


def test_seeds_are_tested_and_what_is_beyond_noise_is_marked(entry_of: EntryOf) -> None:
    found = made(entry_of, {"mle": (4, 5, 4), "emo": (36, 35, 36)})
    cell = by_row(found)["emo · here - mle here"][0]
    assert cell.startswith("+78.3")
    assert cell.endswith("*")
    assert TESTED in paper_table(found).below
    assert SEEDS_NEEDED not in paper_table(found).below
    plain = {(c["row"], c["metric"]): c for c in cells(found)}
    contrast = plain["emo", "sst2/accuracy"]["against_mle"]
    assert contrast["verdict"] == "better"
    assert contrast["effect"] == pytest.approx((107 - 13) / 3 / ITEMS)
    assert plain["emo", "sst2/accuracy"]["published"] == 0.952
    assert plain["emo", "sst2/accuracy"]["difference"] == pytest.approx(107 / 3 / ITEMS - 0.952)
    assert plain["mixce", "sst2/accuracy"]["measured"] is None
    assert plain["mle", "sst2/accuracy"]["against_mle"] is None


def test_our_interval_has_a_line_of_its_own(entry_of: EntryOf) -> None:
    found = of_one_metric(entry_of, metric(0.5, ci95=[0.412, 0.6]), ("mle", "emo"))
    assert by_row(found)[f"mle · {INTERVAL}"] == ["[41.2, 60.0]"]
    assert f"{INTERVAL}: of the mean, over seeds and items." in paper_table(found).below
    assert cells(found)[0]["interval"] == [0.412, 0.6]
    assert INTERVAL not in str(paper_table(of_one_metric(entry_of, metric(0.5), ("mle", "emo"))))


def test_ours_stand_alone_where_nothing_is_published(entry_of: EntryOf) -> None:
    found = of_one_metric(entry_of, metric(0.5), ())
    assert found.rows == ("mle", "emo")
    assert list(by_row(found)) == ["mle · here", "emo · here", "emo · here - mle here"]
    assert "paper" not in " ".join(paper_table(found).below)
    assert [cell["published"] for cell in cells(found)] == [None, None]
