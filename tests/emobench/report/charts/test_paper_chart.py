"""A table and ours as a picture: what stands where, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from paper_rows import EntryOf, metric, paper_comparison

from emobench.core.errors import ConfigError, StorageError
from emobench.report.charts.paper_chart import HERE, PAPER, dots, points, write
from emobench.report.paper_table import PaperComparison


def made(entry_of: EntryOf, metrics: dict[str, dict[str, Any]], *, published: bool = True) -> PaperComparison:
    """Two rows of ours with the same metrics, and one number of a paper."""
    names = ("mle", "emo")
    paper = {name: {next(iter(metrics)): metric(0.775)} for name in names} if published else {}
    return paper_comparison(entry_of, dict.fromkeys(names, metrics), paper, list(metrics))


def test_published_and_measured_values_and_intervals_are_drawn_as_shown(entry_of: EntryOf) -> None:
    found = made(entry_of, {"sst2/mauve": metric(0.5, ci95=[0.4, 0.6]), "sst2/ppl": metric(70.0, unit="perplexity")})
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
        f"{corpus}/{name}_cross_entropy": metric(value, unit="nats", ci95=[value - 1, value + 1])
        for corpus, shift in (("wikitext2", 0.0), ("webtext", 10.0))
        for name, value in (("forward", 3.0 + shift), ("reverse", 4.0 + shift))
    }
    spec = points([made(entry_of, metrics, published=False)])
    assert [panel["title"]["text"] for panel in spec["concat"]] == ["wikitext2", "webtext"]
    row = spec["concat"][1]["data"]["values"][0]
    assert (row["objective"], row["forward"], row["reverse"]) == ("mle", 13.0, 14.0)
    assert (row["forward_low"], row["reverse_high"]) == (12.0, 15.0)


@pytest.mark.parametrize(("name", "begins"), [("a.svg", b"<svg"), ("a.PNG", b"\x89PNG"), ("a.pdf", b"%PDF")])
def test_a_picture_is_written_by_its_names_end(entry_of: EntryOf, tmp_path: Path, name: str, begins: bytes) -> None:
    write([made(entry_of, {"sst2/mauve": metric(0.5, ci95=[0.4, 0.6])})], tmp_path / name, scatter=False)
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_what_cannot_be_drawn_is_said(entry_of: EntryOf, tmp_path: Path) -> None:
    found, file = made(entry_of, {"sst2/mauve": metric(0.5)}), tmp_path / "file"
    file.write_text("")
    with pytest.raises(StorageError, match="could not be written"):
        write([found], file / "a.svg", scatter=False)
    nothing = PaperComparison(**{**vars(found), "columns": ()})
    with pytest.raises(ConfigError, match="was not drawn: no metric of the table was measured"):
        write([nothing], tmp_path / "a.svg", scatter=False)
