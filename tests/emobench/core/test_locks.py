"""A lock is held by one process at a time, however they come and go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from emobench.core.errors import StorageError
from emobench.core.locks import locked, open_locked, remove_abandoned

COUNTERS = """
import sys
from pathlib import Path
from emobench.core.locks import locked
root = Path(sys.argv[1])
for _ in range(int(sys.argv[2])):
    with locked(root / "lock"):
        inside = root / "inside"
        with inside.open("x"):  # fails where another one is inside
            count = int((root / "count").read_text())
            (root / "count").write_text(str(count + 1))
        inside.unlink()
"""


def test_twelve_processes_that_take_turns_are_never_inside_together(tmp_path: Path) -> None:
    """Where the file was removed for those who wait for it, two were inside at once."""
    (tmp_path / "count").write_text("0")
    command = [sys.executable, "-c", COUNTERS, str(tmp_path), "150"]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(12)]
    errors = [process.communicate()[1] for process in processes]
    assert errors == [""] * 12
    assert (tmp_path / "count").read_text() == str(12 * 150)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["count"]


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = "import sys, time; from pathlib import Path; from emobench.core.locks import locked\n"
    code += "with locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    path = tmp_path / "lock"
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert path.exists()
    began = time.monotonic()
    with locked(path):
        assert time.monotonic() - began < 5
    assert not path.exists()


def test_an_error_gives_the_lock_up(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "lock"):
        raise ZeroDivisionError
    assert not (tmp_path / "lock").exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"), open_locked(tmp_path / "lock"):
        pass
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_file_system_without_locks_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*arguments: object) -> None:
        raise OSError(37, os.strerror(37))

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(StorageError, match="is on a file system without locks"), locked(tmp_path / "lock"):
        pass


def test_only_the_lock_of_a_process_that_was_killed_is_removed(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    remove_abandoned(lock)  # there is none
    lock.touch()
    remove_abandoned(lock)
    assert not lock.exists()
    with locked(lock):
        remove_abandoned(lock)
        assert lock.exists()
