"""A table and ours as a picture: what stands where, and what is refused."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from paper_rows import EntryOf, metric, paper_comparison

from emobench.core.errors import ConfigError, StorageError
from emobench.report.charts.generation_charts import cross_entropy_points, scatter
from emobench.report.charts.paper_chart import write_scatter
from emobench.report.paper_table import PaperComparison

BOTH = {f"ptb/{name}_cross_entropy": metric(3.0, unit="nats") for name in ("forward", "reverse")}


def made(entry_of: EntryOf, metrics: dict[str, dict[str, Any]]) -> PaperComparison:
    """Two rows of ours with the same metrics, and none of the paper."""
    return paper_comparison(entry_of, dict.fromkeys(("mle", "emo"), metrics), {}, list(metrics))


def test_two_cross_entropies_are_a_point_for_each_row_and_corpus(entry_of: EntryOf) -> None:
    metrics = {
        f"{corpus}/{name}_cross_entropy": metric(value, unit="nats", ci95=[value - 1, value + 1])
        for corpus, shift in (("wikitext2", 0.0), ("webtext", 10.0))
        for name, value in (("forward", 3.0 + shift), ("reverse", 4.0 + shift))
    }
    found = made(entry_of, metrics)
    drawn = [cross_entropy_points(row, entry) for row, entry in found.measured.items()]
    spec = scatter(list(chain.from_iterable(drawn)))
    assert [panel["title"]["text"] for panel in spec["concat"]] == ["wikitext2", "webtext"]
    row = spec["concat"][1]["data"]["values"][0]
    assert (row["objective"], row["forward"], row["reverse"]) == ("mle", 13.0, 14.0)
    assert (row["forward_low"], row["reverse_high"]) == (12.0, 15.0)


@pytest.mark.parametrize(("name", "begins"), [("a.svg", b"<svg"), ("a.PNG", b"\x89PNG"), ("a.pdf", b"%PDF")])
def test_a_picture_is_written_by_its_names_end(entry_of: EntryOf, tmp_path: Path, name: str, begins: bytes) -> None:
    write_scatter([made(entry_of, BOTH)], tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_what_cannot_be_drawn_is_said(entry_of: EntryOf, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StorageError, match="could not be written"):
        write_scatter([made(entry_of, BOTH)], file / "a.svg")
    with pytest.raises(ConfigError, match="was not drawn"):
        write_scatter([made(entry_of, {"sst2/mauve": metric(0.5)})], tmp_path / "a.svg")
