"""Commands in a process that finds the packages of strangers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

COMMANDS = """
import contextlib, io, json, sys
from emobench import cli

for arguments in json.load(sys.stdin):
    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv = ["emobench", *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main()
        except SystemExit as stopped:
            code = stopped.code or 0
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""
"""Importing emobench takes longer than most commands."""


@dataclass
class Done:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


@pytest.fixture(scope="session")
def commands() -> Callable[..., list[Done]]:
    """What runs commands one after the other in one process, with packages from a folder on its path."""

    def run(site: Path, *lines: Sequence[object], cwd: Path | None = None) -> list[Done]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "500"}
        environment["PYTHONPATH"] = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
        given = json.dumps([[str(word) for word in line] for line in lines])
        command = [sys.executable, "-c", COMMANDS]
        done = subprocess.run(command, input=given, env=environment, cwd=cwd or site, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return [Done(*json.loads(line)) for line in done.stdout.splitlines()]

    return run
