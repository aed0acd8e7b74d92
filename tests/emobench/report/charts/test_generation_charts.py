"""Pictures of generated texts: what is drawn are the numbers that were given, and files are PNG and SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import StorageError
from emobench.report.charts.generation_charts import divergence_curves, histograms, scatter
from emobench.report.charts.vega_lite import write_pictures
from emobench.report.palette import GREY, on_paper

POINTS = [
    {"objective": name, "corpus": corpus, "forward": 3.0 + i, "reverse": 4.0 - i, "reverse_low": 3.5 - i}
    for i, name in enumerate(("mle", "emo\x1b[31m"))
    for corpus in ("wikitext2", "webtext")
]
POINTS = [{**point, "reverse_high": point["reverse"] + 0.5} for point in POINTS]


def scales(panel: dict[str, Any], channel: str) -> list[Any]:
    return [layer["encoding"][channel]["scale"] for layer in panel["layer"] if channel in layer["encoding"]]


def test_the_scatter_has_a_panel_for_each_corpus_around_all_intervals() -> None:
    drawn = scatter(POINTS)
    assert [panel["title"]["text"] for panel in drawn["concat"]] == ["wikitext2", "webtext"]
    first = drawn["concat"][0]
    assert [(row["forward"], row["reverse"]) for row in first["data"]["values"]] == [(3.0, 4.0), (4.0, 3.0)]
    (low, high), *same = (scale["domain"] for scale in scales(first, "y"))
    assert low < 2.5
    assert high > 4.5
    assert same == [[low, high]] * 2
    series = ["mle", "emo�[31m"]
    assert {tuple(scale["domain"]) for scale in scales(first, "color")} == {tuple(series)}
    assert scales(first, "color")[0]["range"] == on_paper(scales(first, "color")[0]["domain"])


def test_one_point_without_an_interval_stands_in_the_middle() -> None:
    (panel,) = scatter([{"objective": "emo", "corpus": "ptb", "forward": 2.0, "reverse": 3.0}])["concat"]
    assert scales(panel, "x")[0]["domain"] == pytest.approx([1.98, 2.02])


def test_a_thick_divergence_curve_is_the_mean_of_the_thin_ones() -> None:
    runs = [([[1, 0], [0.5, 0.7], [0, 1]], 0.8), ([[1, 0], [0.7, 0.9], [0, 1]], 0.9)]
    curves = [{"series": "emo", "task": "ptb", "mauve": mauve, "points": points} for points, mauve in runs]
    (panel,) = divergence_curves([*curves, {**curves[0], "series": "mle"}])["concat"]
    means = [row for row in panel["data"]["values"] if row["kind"] == "mean" and row["series"] == "emo"]
    assert [(row["x"], row["y"]) for row in means] == [(1, 0), (pytest.approx(0.6), pytest.approx(0.8)), (0, 1)]
    assert panel["title"]["subtitle"] == ["MAUVE: emo 0.850, mle 0.800"]


def test_a_histogram_counts_every_value_once_in_bars_that_series_have_in_common() -> None:
    samples = [
        {"series": "human", "task": "ptb", "values": [3, 4, 4, 9]},
        {"series": "emo", "task": "ptb", "values": [4, 4, 5, 5, 5]},
    ]
    (panel,) = histograms(samples, title="Length", unit="words", counted="texts", whole=True)["concat"]
    shares = {(row["series"], row["value"] + 0.5): row["share"] for row in panel["data"]["values"]}
    assert {place: share for (name, place), share in shares.items() if name == "human" and share} == {
        3: 25,
        4: 50,
        9: 25,
    }
    assert {place: share for (name, place), share in shares.items() if name == "emo" and share} == {4: 40, 5: 60}
    assert [place for name, place in shares if name == "emo"] == list(range(2, 11))
    assert scales(panel, "color")[0] == {"domain": ["emo", "human"], "range": [*on_paper(["emo"]), GREY.light]}


def test_lengths_begin_at_no_less_than_no_word() -> None:
    sample = {"series": "emo", "task": "ptb", "values": list(range(0, 80, 3))}
    (panel,) = histograms([sample], title="Length", unit="words", counted="texts", whole=True)["concat"]
    rows = panel["data"]["values"]
    assert [(row["value"], row["share"] > 0) for row in rows[:2]] == [(0, False), (0, True)]
    assert sum(row["share"] for row in rows) == pytest.approx(100)


@pytest.mark.parametrize("values", [[2.5] * 4, [0.001, 0.0011, 0.0013], [-1.0, 900.0], [0.1 * i for i in range(40)]])
def test_bars_hold_all_values_whatever_their_span(values: list[float]) -> None:
    sample = {"series": "emo", "task": "ptb", "values": values}
    (panel,) = histograms([sample], title="Entropy", unit="nats", counted="blocks")["concat"]
    rows = panel["data"]["values"]
    assert sum(row["share"] for row in rows) == pytest.approx(100)
    assert len(rows) <= 28
    assert rows[0]["share"] == rows[-1]["share"] == 0
    assert rows[0]["value"] <= min(values)
    assert rows[-1]["value"] >= max(values) - 1e-9


def test_pictures_are_png_and_svg_with_the_text_of_the_axes(tmp_path: Path) -> None:
    png, svg = write_pictures(scatter(POINTS), tmp_path / "new", "scatter")
    assert png.read_bytes().startswith(b"\x89PNG\r\n")
    text = svg.read_text()
    assert text.startswith("<svg")
    axis, note = "forward: −Σ P log Q (nats per token)", "crosses: 95% intervals"
    for part in (axis, note, "webtext", "mle", "emo�[31m"):
        assert part in text
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file.* could not be written: "):
        write_pictures(scatter(POINTS), tmp_path / "file" / "x", "scatter")
