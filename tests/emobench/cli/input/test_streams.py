"""Standard streams that are full, closed, unread or without UTF-8, and text that would act on a terminal."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.cli.terminal.console import Terminal, print_json, print_lines, print_out, print_table
from emobench.cli.terminal.streams import fail, print_text, remark, visible_json
from emobench.core.errors import ConfigError

PUBLISHED = Path(__file__).parents[4] / "leaderboards" / "published"
SHOW = ("leaderboard", "show", "--leaderboard", str(PUBLISHED))
EVIL = "\x1b[31mred \x1b]8;;http://x\x1b\\link\x07 \x9b2J back\b\b\b cr\rover \u202etxt \u2066 \u200b end"
ACTS = ("\x1b", "\x07", "\x9b", "\b", "\r", "\u202e", "\u2066", "\u200b")

ACCURACY = {
    "mean": 0.5,
    "std": None,
    "values": [0.5],
    "n": 10,
    "ci95": None,
    "ci95_of": None,
    "ci95_missing": "no examples",
    "higher_is_better": True,
    "unit": "fraction",
}


def started(*words: str, shell: str = "", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a process of its own, with redirections of a shell."""
    given = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "PYTHONIOENCODING")}
    return subprocess.run(
        ["bash", "-c", f'"$@" {shell}', "bash", sys.executable, "-m", "emobench", *words],
        env={**given, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        timeout=120,
    )


@pytest.mark.parametrize("words", [("suites", "list"), ("models", "list", "--json")])
@pytest.mark.parametrize(
    ("shell", "said"), [("> /dev/full", b"cannot be written: No space left on device"), (">&-", b"is closed")]
)
def test_an_output_that_takes_nothing_is_a_sentence(words: tuple[str, ...], shell: str, said: bytes) -> None:
    done = started(*words, shell=shell)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: The standard output " + said), done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("words", [("suites", "list"), ("models", "list", "--json")])
def test_a_reader_that_leaves_is_told_nothing(words: tuple[str, ...]) -> None:
    done = started(*words, shell="| true; exit ${PIPESTATUS[0]}")
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_closed_error_stream_is_no_reason_to_stop() -> None:
    closed, full = started(*SHOW, shell="2>&-"), started(*SHOW, shell="2> /dev/full")
    whole = started(*SHOW)
    assert closed.stdout == full.stdout == whole.stdout != b""
    assert closed.returncode == full.returncode == 0


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_the_encoding_lacks_are_replaced(encoding: str, tmp_path: Path, entry_of: Any) -> None:
    from emobench.leaderboard.store import Leaderboard

    Leaderboard(tmp_path).append(entry_of("λ→±", metrics={"sst2/accuracy": ACCURACY}))
    shown = started("leaderboard", "show", "--leaderboard", str(tmp_path), PYTHONIOENCODING=encoding)
    assert (shown.returncode, shown.stderr) == (0, b"")
    plain = "???" if encoding == "ascii" else "??±"
    assert plain in shown.stdout.decode(encoding)
    listed = started("leaderboard", "show", "--leaderboard", str(tmp_path), "--json", PYTHONIOENCODING=encoding)
    assert "λ→±" in listed.stdout.decode()
    json.loads(listed.stdout)


@pytest.mark.parametrize("columns", ["0", "", "²", "99999999999"])
def test_a_width_that_is_none_is_not_used(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert "emo" in command(*SHOW).ok().out


def test_a_terminal_finds_nothing_to_act_on(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    from rich.table import Table
    from rich.text import Text

    monkeypatch.setenv("COLUMNS", "1000")
    table = Table("head")
    table.add_row(Text(EVIL, style="red"))
    terminal = Terminal()
    terminal.note(EVIL)
    with terminal.work(EVIL, "steps") as progress:
        progress(1, 2)
    print_out(EVIL, Text(EVIL), table)
    print_lines(EVIL, Text(EVIL))
    print_text(EVIL)
    print_table(EVIL, [EVIL], [[EVIL]])
    remark(EVIL)
    assert fail(ConfigError(EVIL)) == 2
    print_json({EVIL: EVIL})
    out, err = capsys.readouterr()
    for text in (out, err):
        assert not [c for c in ACTS if c in text]
        assert "\\x1b[31mred" in text
        assert "\\u202etxt" in text


def test_styles_of_our_own_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.text import Text

    file = io.StringIO()
    monkeypatch.setattr("sys.stdout", file)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    print_lines(Text(f"a{EVIL}", style="red"))
    assert file.getvalue().startswith("\x1b[31ma\\x1b[31mred")
    assert file.getvalue().endswith("end\x1b[0m\n")
    assert file.getvalue().count("\x1b") == 2


@pytest.mark.parametrize("text", [EVIL, "\ud800", "\U000e0041", "a\u00a0b\u3000c", "\u2028", "é λ"])
def test_json_stays_the_same_json(text: str) -> None:
    shown = visible_json(json.dumps({"a": text}, indent=1, ensure_ascii=False))
    assert json.loads(shown) == {"a": text}
    assert not [c for c in ACTS if c in shown]


def test_what_strangers_wrote_is_shown_with_its_escapes(
    command: Callable[..., Any], small_model: Path, tmp_path: Path, entry_of: Any
) -> None:
    from emobench.leaderboard.store import Leaderboard

    board = Leaderboard(tmp_path / "board")
    said = {
        "metrics": {"sst2/accuracy": ACCURACY},
        "missing": {"sst2/other": EVIL},
        "model": {"name": EVIL, "source": EVIL},
    }
    for name in (EVIL, "emo"):
        board.append(entry_of(name, **said, changes={"sst2": {EVIL: EVIL}}, recipe={"name": EVIL}))
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / f"sst2.train{EVIL.replace('/', '')}.jsonl").write_text("")
    (tmp_path / "evil" / "wikitext2.train.jsonl").write_text(EVIL.replace("\r", " "))
    run = ("run", "--suite", "lm-quick", "--objective", "mle", "--model", small_model, "--offline", "--dry-run")
    for words in (
        *(("leaderboard", verb, "--leaderboard", board.root) for verb in ("show", "export", "verify")),
        ("leaderboard", "show", "--leaderboard", board.root, "--markdown"),
        ("leaderboard", "export", "--to", "csv", "--leaderboard", board.root),
        ("compare", "emo", EVIL, "--leaderboard", board.root),
        ("leaderboard", "show", "--leaderboard", board.root, "--json"),
        ("leaderboard", "show", "--leaderboard", board.root, "--objective", EVIL),
        (*run, "--data-dir", tmp_path / "evil"),
        (*run, "--data-dir", tmp_path / EVIL.replace("/", "")),
        (*run, "--set", f"corpus={EVIL}"),
    ):
        done = command(*words)
        assert not [c for c in ACTS if c in done.out + done.err], (words, done)
        assert len(done.out + done.err) > 20
