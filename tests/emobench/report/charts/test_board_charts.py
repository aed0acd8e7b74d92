"""The page's charts are valid Vega-Lite once they are filled in, and draw what they are given."""

from __future__ import annotations

from typing import Any

import pytest
import vl_convert

from emobench.report.charts.board_charts import PAGE_VERDICTS, page_charts

NAMES = {"names": ["mle", "emo"], "colours": ["var(--series-1)", "var(--series-2)"]}
BARS = [
    {"name": "mle", "mean": 60.0, "low": 59.0, "high": 61.0, "end": 61.0, "text": "60.0", "interval": "59.0 to 61.0"},
    {"name": "emo", "mean": 70.1, "end": 70.1, "text": "70.1", "interval": "–"},
]
FILLED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "metric": (
        {"rows": BARS, "title": "sst2 (%)", "height": 52, "fraction": True, "domain": [0, 100], **NAMES},
        ["sst2 (%)", "70.1"],
    ),
    "curves": (
        {
            "rows": [
                {"name": name, "seed": seed, "step": step, "value": 5 - step / 10}
                for name in ("mle", "emo")
                for seed in ("0", "mean")
                for step in (1, 2)
            ],
            "title": "loss",
            "point": {"size": 50},
            **NAMES,
        },
        ["optimizer step", "loss"],
    ),
    "scaling": (
        {
            "rows": [{**bar, "x": 10**size, "shown": "", "model": ""} for bar in BARS for size in (8, 10)],
            "x": "parameters",
            "y": "sst2 (%)",
            "line_opacity": 1,
            **NAMES,
        },
        ["parameters", "10B"],
    ),
    "trade_off": (
        {
            "rows": [
                {
                    "name": name,
                    "shown": f"{name} here",
                    "x": x,
                    "x_low": x - 1,
                    "x_high": x + 1,
                    "y": 50.0,
                    "y_text": "",
                }
                for name, x in (("mle", 70.0), ("emo", 90.0))
            ],
            "x": "Perplexity",
            "y": "MAUVE (%)",
            "x_type": "log",
            "x_zero": None,
            "y_type": "linear",
            "y_zero": False,
            **NAMES,
        },
        ["Perplexity", "MAUVE (%)", "mle here", "emo here"],
    ),
    "forest": (
        {
            "rows": [{"metric": "a", "effect": 2.0, "low": 1.0, "high": 3.0, "verdict": "better", "label": "better"}],
            "unit": "percentage points",
            "height": 24,
        },
        ["difference, 95 % interval (percentage points)", PAGE_VERDICTS["better"]],
    ),
}


def fill(template: Any, values: dict[str, Any]) -> Any:
    """Fill in a template as `draw` in the page's script does."""
    if isinstance(template, dict):
        return {key: fill(item, values) for key, item in template.items()}
    if isinstance(template, list):
        return [fill(item, values) for item in template]
    if isinstance(template, str):
        if template[:1] == "$" and template[1:] in values:
            return values[template[1:]]
        for name, value in values.items():
            template = template.replace(f"${name}", str(value))
    return template


@pytest.mark.parametrize("name", FILLED)
def test_a_chart_draws_what_it_is_given(name: str) -> None:
    charts = page_charts()
    values, shown = FILLED[name]
    spec = {**fill(charts[name], values), "config": charts["config"], "width": 600}
    svg = vl_convert.vegalite_to_svg(spec)
    assert "$" not in svg
    for text in shown:
        assert text in svg


def test_every_chart_of_the_page_is_drawn_here() -> None:
    assert set(page_charts()) == {*FILLED, "config"}
