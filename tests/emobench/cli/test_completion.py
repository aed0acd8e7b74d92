"""The shell completes names, quickly and without a word on what it cannot read."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.cli import app


@pytest.fixture
def completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """What returns the words by which bash completes the last word of a command."""

    def complete(*words: object) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", " ".join(map(str, ["emobench", *words])))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        monkeypatch.setenv("_EMOBENCH_COMPLETE", "complete_bash")
        with pytest.raises(SystemExit):
            app([], prog_name="emobench")
        shown = capsys.readouterr()
        assert shown.err == ""
        return shown.out.split()

    return complete


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["run", "--objective", "mi"], ["mixce"]),
        (["train", "--objective", "pretr"], ["pretrained"]),
        (["run", "--suite", "lm-q"], ["lm-quick"]),
        (["suites", "show", "lm-q"], ["lm-quick"]),
        (["evaluate", "--model", "gpt2-l"], ["gpt2-large"]),
        (["run", "--set", "recipe.ep"], ["recipe.epochs="]),
        (["settings", "recipe.ep"], ["recipe.epochs"]),
        (["compare", "mixce", "--baseline", "mi"], ["mixce"]),
        (["rerun", "mi"], ["mixce"]),
        (["run", "--device", "x"], []),
    ],
    ids=" ".join,
)
def test_names_are_completed(completed: Callable[..., list[str]], words: list[str], names: list[str]) -> None:
    assert completed(*words) == names


def test_entries_and_metrics_of_a_board_are_completed(completed: Callable[..., list[str]], written: Any) -> None:
    board = ("compare", "--leaderboard", written.root)
    assert completed(*board, written.mle["id"][:6]) == [written.mle["id"]]
    assert completed(*board, "--metric", "ppl") == ["ppl_test"]
    assert completed(*board, "--metric", "lm-quick/ppl") == ["lm-quick/ppl_test"]


def test_what_cannot_be_read_completes_nothing(completed: Callable[..., list[str]], tmp_path: Path) -> None:
    (tmp_path / "nlu-v1").mkdir()
    (tmp_path / "nlu-v1" / "broken.json").write_text("{")
    assert completed("compare", "--leaderboard", tmp_path, "--metric", "") == []
    assert completed("compare", "--leaderboard", tmp_path / "none", "--metric", "") == []


def test_a_name_that_fails_completes_nothing(
    completed: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emobench.registry.suite_names", lambda: 1 / 0)
    assert completed("run", "--suite", "") == []


def test_completion_imports_no_torch() -> None:
    code = "import sys, contextlib\nfrom emobench.cli import app\n"
    code += "with contextlib.suppress(SystemExit): app(prog_name='emobench')\n"
    code += "print({'torch', 'transformers', 'scipy', 'pandas'} & sys.modules.keys())"
    words = {"COMP_WORDS": "emobench run --set recipe.ep", "COMP_CWORD": "3", "_EMOBENCH_COMPLETE": "complete_bash"}
    program = f"import sys\nsys.argv = ['emobench']\n{code}"
    environment = {**os.environ, **words}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split("\n")[:2] == ["recipe.epochs=", "set()"]
