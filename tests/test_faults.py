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
    ("script", "counted", "count", "more"),
    [
        ("corruption", "cases", 2, ["--job", "generation"]),
        ("interrupted", "count", 1, ["--job", "generation"]),
        ("concurrency", "rounds", 1, []),
    ],
)
def test_nothing_goes_wrong_in_a_few_cases(
    tmp_path: Path, script: str, counted: str, count: int, more: list[str]
) -> None:
    out = tmp_path / "found.json"
    words = [f"--{counted}", str(count), *more, "--folder", str(tmp_path / "work"), "--out", str(out)]
    done = subprocess.run(
        [sys.executable, str(FOLDER), f"faults.{script}", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert found["wrong"] == []
    assert found[counted] == count
