"""`emobench leaderboard view`: a server of this machine alone, whose pages follow the board."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

BOARD = Path(__file__).parents[4] / "leaderboards" / "published"
SUITE = "emo-table10-v1"


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """A board with one entry, and a sweep with a finished stage of two."""
    folder = tmp_path / "board" / SUITE
    folder.mkdir(parents=True)
    shutil.copy(min((BOARD / SUITE).iterdir()), folder)
    (tmp_path / "runs" / "sweeps").mkdir(parents=True)
    keys = ["train/0123456789abcdef", "score/fedcba9876543210"]
    (tmp_path / "runs" / "sweeps" / "abcdef0123456789.json").write_text(json.dumps([{"stages": keys}]))
    (tmp_path / "runs" / keys[0]).mkdir(parents=True)
    return tmp_path / "board"


@pytest.fixture
def server(board: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    given = ["--leaderboard", str(board), "--runs", str(board.parent / "runs"), "--port", "0"]
    command = [sys.executable, "-m", "emobench", "leaderboard", "view", *given]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address.startswith("http://127.0.0.1:")
    assert address.endswith("/view.html")
    yield process, int(address.split(":")[2].partition("/")[0])
    process.kill()
    process.wait()
    process.stdout.close()


def get(port: int, path: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    content = response.read().decode()
    connection.close()
    return response.status, content


def state(port: int) -> dict[str, Any]:
    return json.loads(get(port, "/state.json")[1])


def test_the_pages_follow_the_board_until_ctrl_c(
    server: tuple[subprocess.Popen[str], int], board: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, port = server
    assert state(port) == {"written": 1, "sweeps": "Sweep abcdef: 1 of 2 stages are finished."}
    assert "index.html" in get(port, "/view.html")[1]
    assert "entries: 1" in get(port, "/index.html")[1]
    shutil.copy(max((BOARD / SUITE).iterdir()), board / SUITE)
    (board.parent / "runs" / "score" / "fedcba9876543210").mkdir(parents=True)
    until = time.monotonic() + 60
    while state(port)["written"] == 1 and time.monotonic() < until:
        time.sleep(0.2)
    assert state(port) == {"written": 2, "sweeps": ""}
    assert "entries: 2" in get(port, "/index.html")[1]
    # A web page elsewhere cannot read it through a name of its own, and no other machine can.
    assert get(port, "/index.html", Host="evil.example")[0] == 403
    addresses = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in addresses - {"127.0.0.1"}:
        with pytest.raises(OSError):  # noqa: PT011
            socket.create_connection((str(address), port), timeout=5).close()
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(30) == 0


def test_a_port_that_is_taken_is_refused(board: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = ["--leaderboard", str(board), "--port", str(taken.getsockname()[1])]
        command = [sys.executable, "-m", "emobench", "leaderboard", "view", *given]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--port" in done.stderr


def test_the_first_page_is_there_while_it_is_built(
    board: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., Any]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    pages = []

    def build(*_: object, **__: object) -> None:
        pages.append(get(port, "/"))
        raise KeyboardInterrupt

    monkeypatch.setattr("emobench.cli.leaderboard.view.site", build)
    assert command("leaderboard", "view", "--leaderboard", board, "--port", port).code == 0
    ((status, page),) = pages
    assert status == 200
    assert "Building" in page
    assert "Directory listing" not in page
