"""The picture in the README and the guide is of the present page; `picture.py` says how to take it again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emobench.leaderboard.schema.entry import Entry
from emobench.metrics.catalog import describe
from emobench.report.site.data import BoardData

sys.path.insert(0, str(Path(__file__).parent))

from picture import PICTURE, SHOWN, digest, digest_of

AGAIN = "The picture is of another page. Take it again: python tests/emobench/report/site/picture.py"


def data() -> dict[str, Any]:
    return json.loads(SHOWN.read_text(encoding="utf-8"))


def test_the_picture_is_of_the_present_page() -> None:
    assert digest_of(PICTURE) == digest(data()), AGAIN


def test_what_it_shows_has_the_present_form_and_names(row: Callable[..., Entry]) -> None:
    """Else the board has to be read again: python tests/emobench/report/site/picture.py leaderboards/measured"""
    values = {"toy/accuracy": [0.6, 0.7, 0.8], "toy/ppl": [20.0, 21.0, 22.0]}
    now = BoardData([row(name, values) for name in ("mle", "emo")], None).plain
    index = data()["index"]
    assert index.keys() == now.keys() - {"charts"}
    assert tuple(index["fields"]) == now["fields"]
    for part in ("suites", "groups", "entries"):
        assert index[part][0].keys() == now[part][0].keys()
    assert index["suites"][0]["metrics"][0].keys() == now["suites"][0]["metrics"][0].keys()
    for metric in index["suites"][0]["metrics"]:
        known = describe(metric["key"].split("/", 1)[1])
        assert (metric["name"], known.definition in metric["about"]) == (known.title, True)


def test_another_page_has_another_digest() -> None:
    one = data()
    assert digest(one) == digest(data())
    one["index"]["entries"][0]["objective"] += "2"
    assert digest(one) != digest(data())
