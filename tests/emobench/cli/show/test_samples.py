"""`emobench samples`: the recorded texts of entries, side by side, whatever is in them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emobench.core.settings import file_sha256


def lines_of(board: Any, entry: dict[str, Any], run: int) -> list[dict[str, Any]]:
    text = (board.runs / entry["runs"][run]["samples"][0]["path"]).read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_two_entries_stand_side_by_side_after_the_same_prompts(written: Any) -> None:
    found = written("samples", "mle", "pretrained", "--count", 3, "--sample", 1, "--json").json["samples"]
    (table,) = found
    assert (table["task"], table["sample"]) == ("lm-quick", 1)
    assert [(w["objective"], w["seed"], w["prompts"]) for w in table["writers"]] == [
        ("mle", 0, 24),
        ("pretrained", None, 24),
    ]
    recorded = [
        {line["prompt_id"]: line for line in lines_of(written, entry, 0) if line["sample"] == 1}
        for entry in (written.mle, written.pretrained)
    ]
    assert len(table["rows"]) == 3
    for row in table["rows"]:
        lines = [of[row["prompt"]] for of in recorded]
        assert [one["text"] for one in row["generated"]] == [line["continuation_text"] for line in lines]
        assert row["prefix"] == lines[0]["prefix_text"]
        assert row["prefix"] + row["human"] == lines[0]["reference_text"]
    prompt = lines_of(written, written.mle, 0)[-1]["prompt_id"]
    (table,) = written("samples", "mle", "--prompt", prompt, "--json").json["samples"]
    assert [row["prompt"] for row in table["rows"]] == [prompt]


def test_columns_of_the_terminal_hold_the_texts(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "220")
    shown = written("samples", written.mle["id"], "--seed", 1, "--count", 1).out
    first = lines_of(written, written.mle, 1)[0]
    assert "lm-quick · lm-quick v1 · small · sample 0 · 1 of 24 prompts\n" in shown
    (heading,) = (line for line in shown.splitlines() if "prefix" in line)
    assert heading.split()[0] == "prefix"
    assert f"mle [{written.mle['id'][:6]}], seed 1" in heading
    row = next(line for line in shown.splitlines() if first["prefix_text"] in line)
    assert row.index(first["prefix_text"]) < heading.index("human")
    assert first["prompt_id"] in shown


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--task", "wikitext3"), "wikitext3"),
        (("--seed", 7), "no run of seed 7; its seeds are 0, 1."),
        (("--sample", 2), "lm-quick has no sample 2; expected one of 0 to 1."),
        (("--prompt", "zz"), "lm-quick has no prompt whose id begins zz; the first ones are "),
        (("--runs", "elsewhere"), "there is no such file). Give its --runs DIR, or run again."),
    ],
)
def test_what_is_not_there_is_named(written: Any, given: tuple[Any, ...], said: str) -> None:
    places = ("--leaderboard", written.root, *(() if "--runs" in given else ("--runs", written.runs)))
    written.command("samples", "mle", *given, *places).refused(said)


def test_an_entry_without_texts_and_altered_texts_are_refused(written: Any, tmp_path: Path, entry_of: Any) -> None:
    from emobench.leaderboard.store import Leaderboard

    Leaderboard(tmp_path / "b").append(entry_of("emo", runs=[{"seed": 0, "key": "0" * 16}]))
    written.command("samples", "emo", "--leaderboard", tmp_path / "b").refused(
        "of nlu v1 recorded no generated texts; expected an entry with tasks of kind generation"
    )
    shutil.copytree(written.runs / "generate", tmp_path / "runs/generate")
    with (tmp_path / "runs" / written.mle["runs"][0]["samples"][0]["path"]).open("a") as file:
        file.write("\n")
    written.command("samples", "mle", "--leaderboard", written.root, "--runs", tmp_path / "runs").refused(
        "altered since entry"
    )


def test_texts_move_no_cursor_and_line_breaks_are_marked(
    written: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from emobench.cli.show.samples import _print
    from emobench.leaderboard.query.rows import select
    from emobench.runs.inspect.samples import side_by_side

    (entry,) = select(written.mle["id"], written.root)
    shutil.copytree(written.runs / "generate", tmp_path / "generate")
    file = entry.runs[0].samples[0]
    first, *rest = lines_of(written, written.mle, 0)
    wild = {**first, "continuation_text": " a\x1b[2J\r\x9b1m\u202eb [bold]\nc", "ended": True}
    (tmp_path / file.path).write_text("".join(json.dumps(line) + "\n" for line in (wild, *rest)))
    samples = (replace(file, sha256=file_sha256(tmp_path / file.path)),)
    altered = replace(entry, runs=(replace(entry.runs[0], samples=samples), *entry.runs[1:]))
    (table,) = side_by_side([altered], tmp_path, count=1)
    assert table.rows[0]["generated"] == [{"text": wild["continuation_text"], "ended": True, "preferred": None}]
    _print(table)
    shown = capsys.readouterr().out
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert "a\\x1b[2J\\r\\x9b1m\\u202eb [bold]↵" in shown
    assert "c∎" in shown
