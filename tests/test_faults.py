"""The benchmarks of faults, in short: the whole ones take from ten minutes to an hour."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent / "benchmarks"


@pytest.mark.parametrize(
    ("script", "option", "count", "counted"),
    [
        ("corruption", "--cases", 12, "cases"),
        ("interrupted", "--kills", 6, "kills"),
        ("concurrency", "--rounds", 1, "rounds"),
    ],
)
def test_nothing_goes_wrong_in_a_few_cases(tmp_path: Path, script: str, option: str, count: int, counted: str) -> None:
    out = tmp_path / "found.json"
    words = [option, str(count), "--folder", str(tmp_path / "work"), "--out", str(out)]
    done = subprocess.run(
        [sys.executable, str(FOLDER), f"faults.{script}", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert found["wrong"] == []
    assert found[counted] == count
