"""No entry, and nothing that is made of it, names a folder of the machine; no stranger's Python runs unasked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SECRET = "me-and-my-secret-place"
LOSS = '''
import emobench

class Mine(emobench.StatisticsObjective):
    """MLE."""
    def loss(self, s):
        return -s.log_prob
'''


def test_an_entry_names_no_folder_of_the_machine(
    command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    home = tmp_path / SECRET
    home.mkdir()
    shutil.copytree(small_model, home / "models" / "small")
    shutil.copytree(small_data, home / "private-data")
    (home / "loss.py").write_text(LOSS)
    monkeypatch.chdir(home)
    small = f"{home}/models/small"
    command(
        *("run", "--suite", "lm-quick", "--limit", "15", "--offline", "--quiet", "--seed", "0", "--model", small),
        *("--set", "recipe.max_length=32", "--set", "recipe.max_tokens=320", "--set", "generation.max_length=32"),
        *("--set", "generation.prefix=4", "--set", "generation.continuation=8", "--set", "mauve.seeds=[0]"),
        *("--set", f"oracle.model={small}", "--set", "mauve.featurizer=models/small", "--set", "mauve.max_length=40"),
        *("--objective", f"{home}/loss.py:Mine", "--objective", f"emo(cost='{small}')"),
        *("--objective", "0.5*emo(cost='./models/small') + 0.5*./loss.py:Mine"),
        *("--data-dir", home / "private-data", f"--runs={home}/runs", "--leaderboard", "board"),
    ).ok()
    entries = [json.loads(path.read_text()) for path in Path("board").rglob("*.json")]
    assert len(entries) == 3
    (said,) = {entry["source"]["command"] for entry in entries}
    assert "--set recipe.max_tokens=320" in said
    assert "--objective ./loss.py:Mine" in said
    assert "--model ./small --set" in said
    assert "--data-dir DIR --runs=DIR --leaderboard DIR" in said
    for to in ("csv", "model-card", "every-eval-ever"):
        command("leaderboard", "export", "--leaderboard", "board", "--to", to, "--out", f"out/{to}").ok()
    command("leaderboard", "site", "out/site", "--leaderboard", "board", "--runs", "runs").ok()
    files = [path for folder in ("board", "out") for path in Path(folder).rglob("*") if path.is_file()]
    assert len(files) > 8
    for path in files:
        for word in (SECRET, "private-data", str(tmp_path), "models/small"):
            assert word.encode() not in path.read_bytes(), (path, word)


CODE = "from pathlib import Path\n\nPath({mark!r}).write_text('')\n\ndef text(doc):\n    return ''\n"
TASK = "task: mmlu_anatomy\ndataset_path: json\ntest_split: test\ndoc_to_text: !function code.text\n"


@pytest.mark.parametrize("more", [["--dry-run"], []])
def test_a_folder_of_lm_eval_runs_python_where_it_is_trusted_alone(
    command: Callable[..., Any], small_model: Path, tmp_path: Path, more: list[str]
) -> None:
    folder, mark = tmp_path / "own", tmp_path / "mark"
    folder.mkdir()
    (folder / "code.py").write_text(CODE.format(mark=str(mark)))
    (folder / "mine.yaml").write_text(TASK)
    given = ("run", "--suite", "mmlu", "--objective", "mle", "--model", small_model, "--offline", *more)
    given += ("--set", "recipe.max_length=32", "--set", f"lm_eval.include={folder}", "--runs", tmp_path / "runs")
    command(*given).refused(
        "lm-eval runs the Python that YAML in this folder names, also in a dry run.",
        "add --trust-remote-code if you trust it.",
    )
    assert not mark.exists()
    assert "--trust-remote-code" not in command(*given, "--trust-remote-code").err
