"""A paper's table beside ours: values, differences, tests and what they can tell, against numbers by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from emobench.leaderboard.render.paper_table import SEEDS_NEEDED, TESTED, PaperComparison, cells, grid
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.stats.compare import compare

ITEMS = 40
COLUMNS = ("sst2/accuracy", "trec/accuracy")
EntryOf = Callable[..., Entry]


def metric(*values: float, n: int | None = ITEMS) -> dict[str, Any]:
    mean = sum(values) / len(values)
    std = None
    if len(values) > 1:
        std = (sum((v - mean) ** 2 for v in values) / (len(values) - 1)) ** 0.5
    return {
        "mean": mean,
        "std": std,
        "values": list(values),
        "n": n,
        "ci95": None,
        "ci95_of": None,
        "higher_is_better": True,
        "unit": "fraction",
        "flags": [],
    }


def right(count: int) -> dict[str, tuple[float, float]]:
    """The first `count` of all items are answered rightly."""
    return {f"{i:02d}": (float(i < count), 1.0) for i in range(ITEMS)}


def made(entry_of: EntryOf, counts: Mapping[str, tuple[int, ...]], remarks: tuple[str, ...] = ()) -> PaperComparison:
    """Rows of ours with so many right answers in each seed, beside a paper's."""
    ours = {
        name: entry_of(name, metrics={"sst2/accuracy": metric(*(c / ITEMS for c in of))}) for name, of in counts.items()
    }
    paper = {
        name: entry_of(
            name, kind="published", seeds=[], metrics={c: metric(value, n=None) for c in COLUMNS}, source={"cite": "x"}
        )
        for name, value in {"mle": 0.948, "emo": 0.952, "mixce": 0.95}.items()
    }
    runs = {ours[name].id: [{"sst2/accuracy": right(c)} for c in of] for name, of in counts.items()}
    others = [entry for name, entry in ours.items() if name != "mle"]
    return PaperComparison(
        title="table-3 · tiny",
        columns=COLUMNS,
        published=paper,
        measured=ours,
        baseline="mle",
        comparison=compare(ours["mle"], others, lambda entry: runs[entry.id], anyway=True),
        remarks=remarks,
    )


def by_row(found: PaperComparison) -> dict[str, list[str]]:
    made = grid(found)
    return {
        label.text: [cell.text + "*" * cell.marked for cell in row]
        for label, row in zip(made.rows, made.cells, strict=True)
    }


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
    legend = grid(found).legend
    assert SEEDS_NEEDED in legend
    assert TESTED not in legend


def test_seeds_are_tested_and_what_is_beyond_noise_is_marked(entry_of: EntryOf) -> None:
    found = made(entry_of, {"mle": (4, 5, 4), "emo": (36, 35, 36)})
    cell = by_row(found)["emo · here - mle here"][0]
    assert cell.startswith("+78.3")
    assert cell.endswith("*")
    assert TESTED in grid(found).legend
    assert SEEDS_NEEDED not in grid(found).legend
    plain = {(c["row"], c["metric"]): c for c in cells(found)}
    contrast = plain["emo", "sst2/accuracy"]["against_mle"]
    assert contrast["verdict"] == "better"
    assert contrast["effect"] == pytest.approx((107 - 13) / 3 / ITEMS)
    assert plain["emo", "sst2/accuracy"]["published"] == 0.952
    assert plain["emo", "sst2/accuracy"]["difference"] == pytest.approx(107 / 3 / ITEMS - 0.952)
    assert plain["mixce", "sst2/accuracy"]["measured"] is None
    assert plain["mle", "sst2/accuracy"]["against_mle"] is None


def test_what_one_test_example_is_worth_is_said(entry_of: EntryOf) -> None:
    found = made(entry_of, {"mle": (20,)}, remarks=("Another model.",))
    assert found.resolution() == {"sst2/accuracy": 2.5}
    assert "One test example is, in points: sst2 2.5." in grid(found).legend
    assert grid(found).legend[-1] == "Another model."
    # A MAUVE of 0.51, say, is no number of examples.
    assert made(entry_of, {"mle": (20.4,)}).resolution() == {}  # type: ignore[dict-item]
