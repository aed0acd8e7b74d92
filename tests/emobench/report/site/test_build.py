"""What is written and what is refused: files, determinism, runs' files, empty and large boards, the command."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from emobench.core.errors import ConfigError
from emobench.core.settings import file_sha256
from emobench.kinds.views import WrittenText
from emobench.leaderboard.entry import Entry, File, Run, read_entry
from emobench.leaderboard.store import Leaderboard
from emobench.report.site.build import Board, write_site
from emobench.report.site.runs import POINTS, RunFiles

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from speed.boards import made_entries

Opened = Callable[..., Page]
PageOf = Callable[..., Path]
Row = Callable[..., Entry]


@pytest.fixture
def one(row: Row) -> Entry:
    return row("mle", {"sst2/accuracy": [0.60, 0.61, 0.59]})


def test_the_same_board_gives_the_same_bytes(page_of: PageOf, one: Entry, row: Row, tmp_path: Path) -> None:
    entries = [one, row("emo", {"sst2/accuracy": [0.7, 0.71, 0.69]})]
    written = [page_of(tmp_path / name, entries, tmp_path).read_bytes() for name in ("a", "b")]
    assert written[0] == written[1]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["index.html", "measured.html"]
    index = (tmp_path / "a" / "index.html").read_text()
    assert '<a href="measured.html#/?suite=toy%20v1">toy v1</a>' in index
    assert "entries: 2 · suites: 1 · models: 1 · objectives: 2" in index


def test_our_own_page_is_replaced_and_a_foreign_file_is_not(page_of: PageOf, one: Entry, tmp_path: Path) -> None:
    page = page_of(tmp_path, [], tmp_path)
    assert page_of(tmp_path, [one], tmp_path) == page
    (tmp_path / "CNAME").write_text("results.example")
    (tmp_path / "index.html").write_text("<h1>My own page</h1>")
    before = page.read_bytes()
    with pytest.raises(ConfigError, match=r"index\.html was not written by `emobench leaderboard site`"):
        page_of(tmp_path, [], tmp_path)
    assert page.read_bytes() == before
    assert (tmp_path / "CNAME").read_text() == "results.example"


def test_boards_of_one_name_have_pages_of_their_own(one: Entry, tmp_path: Path) -> None:
    names = ["measured", "measured", "../../etc/<b>", "index", "measured-2"]
    boards = [Board(name=name, entries=[one]) for name in names]
    written = write_site(boards, tmp_path / "out", lambda _: None, reader(tmp_path))
    assert len({*written}) == len(written) == 6
    assert {path.parent for path in written} == {tmp_path / "out"}


def test_an_empty_board_says_what_to_type(command: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = command("leaderboard", "site", tmp_path / "out", "--leaderboard", tmp_path / "empty").ok()
    assert "emobench run" in done.err
    assert "<code>emobench run</code> records some" in (tmp_path / "out" / "empty.html").read_text()


def test_the_command_writes_the_papers_board_too(command: Callable[..., Any], one: Entry, tmp_path: Path) -> None:
    (Leaderboard(tmp_path / "mine").append(one).parent / "0123456789ab.json").write_text('{"schema": <b>')
    out = tmp_path / "out"
    done = command("leaderboard", "site", str(out), "--leaderboard", str(tmp_path / "mine"))
    assert done.code == 0
    assert done.out.strip() == str(out / "index.html")
    assert f"the board mine: {out / 'mine.html'}\n" in done.err
    text = (out / "mine.html").read_text()
    assert "mine leaderboard" in text
    assert "Skipped files: 1" in text
    assert "<li>toy-v1/0123456789ab.json: " in text
    assert str(tmp_path) not in text
    assert "skipped: " in done.err
    other = command("leaderboard", "site", str(out), "--leaderboard", str(tmp_path / "mine"), "--baseline", "ml")
    assert other.code == 2
    assert "did you mean 'mle'?" in other.err
    missing = command("leaderboard", "site", str(out), "--leaderboard", str(tmp_path / "mistyped"))
    assert missing.code == 2
    assert "mistyped" in missing.err


def reader(root: Path, texts: Sequence[WrittenText] = ()) -> RunFiles:
    return RunFiles(root, (), lambda entry, run: {"toy": texts})


def with_files(entry: Entry, **files: tuple[File, ...]) -> Entry:
    """Return the entry with these files of its first run."""
    return replace(entry, runs=(Run(seed=0, key="0", **files), Run(seed=1, key="1"), Run(seed=2, key="2")))


def log(folder: Path, steps: Mapping[int, float]) -> File:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"step": step, "steps": max(steps), "loss": value}) for step, value in steps.items()]
    (folder / "log.jsonl").write_text("\n".join(lines) + "\n")
    return File(path=f"{folder.name}/log.jsonl", sha256=file_sha256(folder / "log.jsonl"))


def test_long_curves_are_averaged_in_blocks(one: Entry, tmp_path: Path) -> None:
    file = log(tmp_path / "long", {step: float(step) for step in range(1, 5 * POINTS + 1)})
    found = reader(tmp_path).of(with_files(one, curves=(file,)))
    curve = found["curves"][0]["parts"]["loss"]["mean"]
    # By hand: blocks of 5 steps, 1 to 5 first, whose mean is 3.
    assert curve["steps"] == list(range(5, 5 * POINTS + 1, 5))
    assert curve["values"][:2] == [3.0, 8.0]
    assert found["problems"] == []


def test_files_that_cannot_be_used_become_sentences(one: Entry, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    good = log(runs / "good", {1: 3.0, 2: 2.0})
    altered = log(runs / "altered", {1: 3.0})
    (runs / "altered" / "log.jsonl").write_text("{}")
    unread = log(runs / "unread", {1: 3.0})
    (runs / "unread" / "log.jsonl").write_text("no JSON\nat all\n")
    unread = replace(unread, sha256=file_sha256(runs / "unread" / "log.jsonl"))
    (tmp_path / "secret.jsonl").write_text('{"prefix_text": "secret", "continuation_text": "secret"}\n')
    (runs / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
    digests = {name: file_sha256(runs / name) for name in ("link.jsonl",)} | {"gone.jsonl": "0" * 64}
    files = [File(path=name, sha256=digest) for name, digest in digests.items()]
    found = reader(runs).of(with_files(one, curves=(good, altered, unread), samples=tuple(files)))
    assert [list(training["parts"]) for training in found["curves"]] == [["loss"]]
    assert found["samples"] == []
    problems = "\n".join(found["problems"])
    assert "altered/log.jsonl: altered since the entry was recorded" in problems
    assert "unread/log.jsonl: cannot be read (" in problems
    assert "link.jsonl: lies outside the runs folder" in problems
    assert "gone.jsonl: not in the runs folder" in problems
    assert str(tmp_path) not in problems


def test_samples_are_all_of_the_first_prompts_of_each_run(one: Entry, tmp_path: Path) -> None:
    same = {"human": None, "ended": True, "preferred": 0.5}
    texts = [WrittenText(prompt=str(n // 2), sample=n % 2, prefix=None, generated=f"c{n}", **same) for n in range(200)]
    runs = reader(tmp_path, texts).of(one)["samples"]
    assert [run["seed"] for run in runs] == [0, 1, 2]
    assert [text["text"] for text in runs[0]["texts"]] == [f"c{n}" for n in range(100)]
    first = {"prompt": "0", "sample": 1, "scores": {}, "text": "c1"}  # nothing stands for a missing prefix or reference
    assert runs[0]["texts"][1] == {**first, "verdict": "A judge sees a tie with the reference."}


def test_the_author_of_a_page_says_what_it_is(command: Callable[..., Any], one: Entry, tmp_path: Path) -> None:
    board = Leaderboard(tmp_path / "mine")
    board.append(one)
    notes = tmp_path / "notes.md"
    notes.write_text(
        "# Why\n\n<script>alert(1)</script> [x](javascript:alert(2)) ![y](https://y.org/z.png)\n\n|a|\n|-:|\n|b|\n"
    )
    given = (
        "leaderboard",
        "site",
        tmp_path / "out",
        "--leaderboard",
        board.root,
        "--title",
        "Ours <b>",
        "--author",
        "A. N.",
    )
    command(*given, "--notes", notes).ok()
    for name in ("mine.html", "index.html"):
        text = (tmp_path / "out" / name).read_text()
        assert "<h1" in text
        assert "Ours &lt;b&gt;</h1>" in text
        assert '<p class="lead">A. N.</p>' in text
        body = text.partition('aria-label="Notes">')[2].partition("</section>")[0]
        assert "<h2>Why</h2>" in body
        assert "<td>b</td>" in body
        assert set(re.findall(r"<(\w+)", body)) == {"h2", "p", "a", "table", "thead", "tbody", "tr", "th", "td"}
        assert re.findall(r'href="(.*?)"', body) == ["https://y.org/z.png"]
    notes.write_bytes(b"x" * 100_001)
    command(*given, "--notes", notes).refused("notes.md", "100,000")
    notes.write_bytes(b"\xff")
    command(*given, "--notes", notes).refused("notes.md")


@pytest.mark.slow
def test_a_thousand_entries_paint_within_a_second(opened: Opened, page_of: PageOf, tmp_path: Path) -> None:
    entries = [read_entry(plain, "made") for plain in made_entries(1_000)]
    page = opened(page_of(tmp_path, entries, tmp_path))
    paints = page.evaluate("performance.getEntriesByType('paint').map((paint) => [paint.name, paint.startTime])")
    assert dict(paints)["first-contentful-paint"] < 1000
    suites = len({str(entry.suite) for entry in entries})
    assert page.get_by_label("Suite", exact=True).locator("option").count() == suites
    assert re.fullmatch(r"1 to 50 of [\d,]+ rows", page.locator(".dt-info").inner_text())
    assert page.evaluate("performance.now()") < 10_000
