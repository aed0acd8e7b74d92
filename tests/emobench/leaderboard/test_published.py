"""The published board holds every number of the papers' tables, and says of none more than was printed."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import pytest

from emobench.core.errors import UserError
from emobench.core.settings import to_plain
from emobench.leaderboard.comparable import differences, groups
from emobench.leaderboard.entry import Entry, new_entry
from emobench.leaderboard.store import Leaderboard

CHECKOUT = Path(__file__).parents[3] / "leaderboards" / "published"
sys.path.insert(0, str(CHECKOUT.parent))

from transcribe import paper_fields, publish, read_paper  # noqa: E402

# Summed from the tables, in what is printed: table -> cells, the sum of each objective's rows, of each column.
# A number in another row, in another column or with another digit changes one of them.
SUMS = """
1|48|mle=942.3 tailr=943.0 mixce=945.9 emo=1005.4|640.0 622.2 613.7 639.8 676.7 644.2
2|20|mle=326.50 tailr=311.16 mixce=297.83 emo=282.69|292.9 344.99 316.7 142.22 121.37
3|80|pretrained=1223.6 mle=1226.3 tailr=1243.0 mixce=1260.5 emo=1285.0|604.5 952.7 811.0 778.2 919.5 914.8 863.0 394.7
6|40|pretrained=617.9 mle=616.0 tailr=631.0 mixce=640.8 emo=645.7|313.0 478.8 377.2 397.4 466.3 461.1 435.7 221.9
7|40|pretrained=640.5 mle=640.5 tailr=643.4 mixce=652.4 emo=670.3|318.1 479.4 411.2 419.5 456.0 452.3 436.9 273.7
8|40|pretrained=601.5 mle=588.3 tailr=607.0 mixce=608.6 emo=615.5|335.5 461.3 350.0 433.5 462.2 429.4 424.4 124.6
9|8|mle=256.2 emo=292.0|548.2
10|4|mle=135.1 emo=141.8|155.0 121.9
11|20|mle=641 emo=668|184 155 168 116 128 76 156 100 142 84
"""
TABLES = {int(table): sums for table, *sums in (line.split("|") for line in SUMS.strip().splitlines())}


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    board = Leaderboard(CHECKOUT)
    found = board.entries()
    assert board.problems == []
    return found


def printed(entry: Entry) -> dict[str, Decimal]:
    """Return an entry's numbers as the paper prints them."""
    scale = {"fraction": 100, "perplexity": 1}
    return {key: Decimal(str(m.mean)) * scale[m.unit] for key, m in entry.metrics.items()}


@pytest.mark.parametrize("table", TABLES)
def test_every_number_of_a_table_is_there(table: int, entries: list[Entry]) -> None:
    cells, objectives, columns = TABLES[table]
    by_objective = dict(text.split("=") for text in objectives.split())
    rows = [entry for entry in entries if entry.suite.name == f"emo-table{table}"]
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for entry in rows:
        for key, number in printed(entry).items():
            sums[entry.objective.name] += number
            sums[key] += number
    assert sum(len(entry.metrics) for entry in rows) == int(cells)
    assert {name: sums[name] for name in by_objective} == {name: Decimal(text) for name, text in by_objective.items()}
    assert [sums[key] for key in rows[0].metrics] == [Decimal(text) for text in columns.split()]
    assert len({(entry.model.name, entry.objective.name) for entry in rows}) == len(rows)


def test_the_board_is_these_tables_and_no_more(entries: list[Entry]) -> None:
    assert {entry.suite.name for entry in entries} == {f"emo-table{table}" for table in TABLES}
    assert sum(len(entry.metrics) for entry in entries) == 300
    assert len(entries) == 49


def test_every_number_is_the_one_of_the_second_transcription(entries: list[Entry], real_files: Path) -> None:
    ours = {
        (entry.suite.name, entry.model.name, entry.objective.name, key): metric.mean
        for entry in entries
        for key, metric in entry.metrics.items()
    }
    theirs = {}
    for table in TABLES:
        with (real_files / "published" / f"table{table}.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                scale = 1 if row["metric"] in ("ppl_test", "ppl_oracle") else 100
                address = (f"emo-table{table}", row["model"], row["objective"], f"{row['task']}/{row['metric']}")
                theirs[address] = float(Decimal(row["value"]) / scale)
    assert ours == theirs


def test_an_entry_claims_no_spread_that_was_not_printed(entries: list[Entry]) -> None:
    for entry in entries:
        assert (entry.kind, entry.seeds, entry.runs, entry.missing) == ("published", (), (), {})
        for metric in entry.metrics.values():
            assert (metric.values, metric.std, metric.ci95) == ((metric.mean,), None, None)
    of_seeds = {e.suite.name for e in entries for m in e.metrics.values() if any("3_seeds" in f for f in m.flags)}
    assert of_seeds == {"emo-table1", "emo-table2"}


def test_a_published_protocol_is_no_measured_one(entries: list[Entry]) -> None:
    """A measured protocol id is `name@digest`, and a data fingerprint belongs to it."""
    assert not any("@" in protocol for entry in entries for protocol in entry.protocols.values())


def test_rows_of_one_table_and_model_stand_together(entries: list[Entry]) -> None:
    row = {(e.suite.name, e.model.name, e.objective.name): e for e in entries}
    table3 = [e for e in entries if e.suite.name == "emo-table3"]
    assert sorted(len(group) for group in groups(table3)) == [5, 5]
    assert differences(row["emo-table3", "llama-7b", "emo"], row["emo-table3", "llama-7b", "mle"]) == []
    assert differences(row["emo-table3", "llama-7b", "emo"], row["emo-table3", "llama-7b", "pretrained"]) == []
    assert differences(row["emo-table3", "llama-7b", "emo"], row["emo-table3", "llama-13b", "emo"])


def test_the_entries_are_what_the_transcription_makes(entries: list[Entry], tmp_path: Path) -> None:
    made = [new_entry({**fields, "supersedes": None}) for fields in paper_fields(read_paper(CHECKOUT / "emo.toml"))]
    without = [{**to_plain(e), "id": None, "supersedes": None} for e in (*made, *entries)]
    assert sorted(map(json.dumps, without[: len(made)])) == sorted(map(json.dumps, without[len(made) :]))
    copied = tmp_path / "board"
    shutil.copytree(CHECKOUT, copied)
    assert publish(copied) == 0


def test_a_corrected_number_supersedes_the_wrong_one(tmp_path: Path) -> None:
    text = (CHECKOUT / "emo.toml").read_text()
    (tmp_path / "emo.toml").write_text(text.replace("[53.5, 94.8,", "[35.5, 94.8,"))
    assert publish(tmp_path) == 49
    (tmp_path / "emo.toml").write_text(text)
    assert publish(tmp_path) == 1
    assert publish(tmp_path) == 0
    board = Leaderboard(tmp_path)
    found = [e for e in board.entries() if (e.suite.name, e.objective.name) == ("emo-table3", "mle")]
    assert sorted(e.metrics["tweet_emotion/accuracy"].mean for e in found) == [0.535, 0.586]
    assert len(board.entries(superseded=True)) == 50


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"gpt2/mle"       = [77.5, ', '"gpt2/mle"       = [', "table 1, row 'gpt2/mle': 5 numbers; expected"),
        ('"gpt2/mle"       = [77.5,', '"gpt2/mle"       = [775.0,', "7.75, no fraction"),
        ("venue =", "venues =", "There is no setting 'venues'; did you mean 'venue'?"),
        ("2026-11-21T00:00:00Z", "'today'", "`transcribed` is 'today'; expected datetime"),
        ("[[experiments]]", "[[experiments]", "no TOML that can be read"),
    ],
)
def test_a_slip_in_a_transcription_is_named(old: str, new: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "emo.toml").write_text((CHECKOUT / "emo.toml").read_text().replace(old, new, 1))
    with pytest.raises(UserError, match=re.escape(said)) as raised:
        publish(tmp_path)
    assert str(tmp_path / "emo.toml") in str(raised.value)
