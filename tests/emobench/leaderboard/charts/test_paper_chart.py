"""A table and ours as a picture: what stands where, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.errors import ConfigError, StorageError
from emobench.leaderboard.charts.paper_chart import HERE, PAPER, dots, points, write
from emobench.leaderboard.render.paper_table import INTERVAL, PaperComparison, cells, grid
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.stats.compare import compare

EntryOf = Callable[..., Entry]


def metric(mean: float, unit: str = "fraction", ci95: list[float] | None = None) -> dict[str, Any]:
    covers = None if ci95 is None else "seeds and items"
    shown = {"mean": mean, "std": None, "values": [mean], "n": 5, "ci95": ci95, "ci95_of": covers}
    return {**shown, "higher_is_better": True, "unit": unit, "flags": []}


def made(entry_of: EntryOf, metrics: dict[str, dict[str, Any]], *, published: bool = True) -> PaperComparison:
    """Two rows of ours with the same metrics, and one number of a paper."""
    ours = {name: entry_of(name, metrics=metrics) for name in ("mle", "emo")}
    first = next(iter(metrics))
    paper = {
        name: entry_of(name, kind="published", seeds=[], metrics={first: metric(0.775)}, source={"cite": "x"})
        for name in (ours if published else ())
    }
    return PaperComparison(
        title="table-1 · tiny",
        columns=tuple(metrics),
        published=paper,
        measured=ours,
        baseline="mle",
        comparison=compare(ours["mle"], [ours["emo"]], anyway=True),
    )


def test_published_and_measured_values_and_intervals_are_drawn_as_shown(entry_of: EntryOf) -> None:
    found = made(entry_of, {"sst2/mauve": metric(0.5, ci95=[0.4, 0.6]), "sst2/ppl": metric(70.0, "perplexity")})
    first, second = dots([found])["concat"]
    assert first["title"]["text"] == "sst2 · mauve"
    assert first["data"]["values"] == [
        {"row": row, "measured": 50.0, "published": 77.5, "low": 40.0, "high": 60.0} for row in ("mle", "emo")
    ]
    assert second["data"]["values"][0] == {"row": "mle", "measured": 70.0, "published": None, "low": None, "high": None}
    drawn = {layer["encoding"]["color"]["datum"] for layer in first["layer"]}
    assert drawn == {PAPER, HERE}
    alone = made(entry_of, {"sst2/mauve": metric(0.5)}, published=False)
    assert {layer["encoding"]["color"]["datum"] for layer in dots([alone])["concat"][0]["layer"]} == {HERE}


def test_two_cross_entropies_are_a_point_for_each_row_and_corpus(entry_of: EntryOf) -> None:
    metrics = {
        f"{corpus}/{name}_cross_entropy": metric(value, "nats", [value - 1, value + 1])
        for corpus, shift in (("wikitext2", 0.0), ("webtext", 10.0))
        for name, value in (("forward", 3.0 + shift), ("reverse", 4.0 + shift))
    }
    spec = points([made(entry_of, metrics, published=False)])
    assert [panel["title"]["text"] for panel in spec["concat"]] == ["wikitext2", "webtext"]
    row = spec["concat"][1]["data"]["values"][0]
    assert (row["objective"], row["forward"], row["reverse"]) == ("mle", 13.0, 14.0)
    assert (row["forward_low"], row["reverse_high"]) == (12.0, 15.0)


@pytest.mark.parametrize(("name", "begins"), [("a.svg", b"<svg"), ("a.PNG", b"\x89PNG")])
def test_a_picture_is_written_by_its_names_end(entry_of: EntryOf, tmp_path: Path, name: str, begins: bytes) -> None:
    write([made(entry_of, {"sst2/mauve": metric(0.5, ci95=[0.4, 0.6])})], tmp_path / name, scatter=False)
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_what_cannot_be_drawn_is_said(entry_of: EntryOf, tmp_path: Path) -> None:
    found, file = made(entry_of, {"sst2/mauve": metric(0.5)}), tmp_path / "file"
    file.write_text("")
    with pytest.raises(StorageError, match=r"could not be written: .* Name another file with --plot"):
        write([found], file / "a.svg", scatter=False)
    nothing = PaperComparison(**{**vars(found), "columns": ()})
    with pytest.raises(ConfigError, match="was not drawn: no metric of the table was measured"):
        write([nothing], tmp_path / "a.svg", scatter=False)


def test_our_interval_has_a_line_of_its_own(entry_of: EntryOf) -> None:
    found = made(entry_of, {"sst2/mauve": metric(0.5, ci95=[0.412, 0.6])})
    shown = {
        label.text: [cell.text for cell in row] for label, row in zip(grid(found).rows, grid(found).cells, strict=True)
    }
    assert shown[f"mle · {INTERVAL}"] == ["[41.2, 60.0]"]
    assert f"{INTERVAL}: of the mean, over seeds and items." in grid(found).legend
    assert cells(found)[0]["interval"] == [0.412, 0.6]
    assert INTERVAL not in str(grid(made(entry_of, {"sst2/mauve": metric(0.5)})))


def test_ours_stand_alone_where_nothing_is_published(entry_of: EntryOf) -> None:
    found = made(entry_of, {"sst2/mauve": metric(0.5)}, published=False)
    assert found.rows == ("mle", "emo")
    assert [label.text for label in grid(found).rows] == ["mle · here", "emo · here", "emo · here - mle here"]
    assert "paper" not in " ".join(grid(found).legend)
    assert [cell["published"] for cell in cells(found)] == [None, None]
