"""The published JSON Schema and the dataclasses say the same of real entries, and of thousands of wrong ones."""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from emobench.core.errors import UserError
from emobench.core.settings import to_plain
from emobench.leaderboard.entry import entry_id, new_entry, read_entry
from emobench.leaderboard.store import Leaderboard

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from speed.boards import made_entries

REPOSITORY = Path(__file__).parents[3]
SCHEMA = json.loads((REPOSITORY / "emobench" / "leaderboard" / "entry.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

WRONG: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 1.5, 1e308, 10**40, "", "x", "0.9", "1", "a/b", "../x", "/etc/passwd", "a/../../b", ".."),
    *("a\\b", "a\nb", "a\0b", "A" * 64, "a" * 64, "0" * 12, "2026-01-31", "sst2/a c"),
    *([], [1], [0.1, 0.2], ["0.1"], [None], {}, {"a": 1}, {"a/b": "c"}, [{"seed": 0, "key": "k"}]),
)
BEYOND = (
    "the file was altered",  # the id is a hash of the rest
    "of its values",  # the mean of the values
    "lower bound first",
    "come together",
    "from two values on",
    "both measured and missing",
    "each seed once",
    "expected a date and time",
    "expected a year from",
    "a trained model has at least one",
    "`runs` has the seeds",
    "but `protocols` has no",
    "expected one for each seed",
    "names where it was taken from",
    "expected metrics of this entry",
    "nested deeper than",
    "the character NUL",
    "is a name of",
    "within the runs folder",
    "expected a whole number",  # 3.0 is an integer of JSON Schema
)
"""What only the dataclasses refuse: what fields say of one another, dates, and how deep settings go."""


def measured() -> dict[str, Any]:
    entries = made_entries(200, seed=3)
    entry = next(e for e in entries if len(e["seeds"]) == 3 and e["suite"]["name"] == "lm-quick" and e["supersedes"])
    metrics = dict(list(entry["metrics"].items())[:2])
    families = {name: family for name, family in entry["families"].items() if name in metrics}
    model = {**entry["model"], "pretraining": {"seed": 1, "setting": "a" * 64}}
    return {**entry, "metrics": metrics, "families": families, "model": model}


def published() -> dict[str, Any]:
    row = {**next(iter(measured()["metrics"].values())), "values": [], "std": None, "ci95": None, "ci95_of": None}
    changes = {
        "kind": "published",
        "seeds": [],
        "runs": [],
        "source": {"cite": "Table 3"},
        "metrics": {"sst2/a": row},
        "families": {},
    }
    given = {**measured(), **changes, "model": {"name": "gpt2", "source": "gpt2"}, "cost": {}}
    return to_plain(new_entry({key: value for key, value in given.items() if key not in ("schema", "id")}))


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of each value within a value; of lists, of the first item only."""
    if place:
        yield place
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*place, key))


def changed(plain: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], Any, dict[str, Any]]]:
    """Yield an entry with each of its values replaced by each wrong one, removed, or joined by an unknown one."""
    for place in places(plain):
        for value in (*WRONG, "removed", "unknown"):
            made = copy.deepcopy(plain)
            inner = made
            for key in place[:-1]:
                inner = inner[key]
            if value == "removed":
                del inner[place[-1]]
            elif value != "unknown":
                inner[place[-1]] = value
            elif isinstance(inner[place[-1]], dict):
                inner[place[-1]]["unknown"] = 1
            else:
                continue
            if place != ("id",):  # no hash stands in the way of other checks
                made["id"] = entry_id(made)
            yield place, value, made


def refusal(plain: dict[str, Any]) -> str | None:
    try:
        read_entry(plain, "file")
    except UserError as error:
        return str(error)
    return None


def test_it_is_a_json_schema() -> None:
    VALIDATOR.check_schema(SCHEMA)


def test_real_entries_are_valid() -> None:
    boards = [REPOSITORY / "leaderboards" / name for name in ("published", "studies/smollm2", "studies/fair")]
    read = [entry for root in boards for entry in Leaderboard(root).entries()]
    assert len(read) > 1
    for plain in (*map(to_plain, read), *made_entries(100)):
        VALIDATOR.validate(json.loads(json.dumps(plain)))


@pytest.mark.parametrize("plain", [measured(), published()], ids=lambda plain: plain["kind"])
def test_the_dataclasses_refuse_all_that_the_schema_refuses_and_only_known_rules_more(plain: dict[str, Any]) -> None:
    assert refusal({**plain, "id": entry_id(plain)}) is None
    counted = {"both refuse": 0, "both accept": 0, "beyond": 0}
    for place, value, given in changed(plain):
        told, valid = refusal(given), VALIDATOR.is_valid(given)
        assert told or valid, f"read, though no entry by the JSON Schema: {value!r} at {place}"
        if told and valid:
            assert any(re.search(rule, told) for rule in BEYOND), f"{value!r} at {place}: {told}"
        counted["both accept" if not told else "beyond" if valid else "both refuse"] += 1
    assert counted["both refuse"] > 700
    assert counted["both accept"] > 200
    assert counted["beyond"] > 20
