"""What a file is written over: a file, and nothing else."""

import errno
import os
import stat
from pathlib import Path

import pytest

from emobench.core.errors import StorageError
from emobench.core.files import write_whole


def test_a_device_is_written_to_and_stays_one() -> None:
    """As root a rename would put a regular file in the place of /dev/null, for all programs of the machine."""
    reader, writer = os.openpty()
    try:
        terminal = Path(os.ttyname(writer))
        write_whole(terminal, "text", "The export", "")
        assert os.read(reader, 100) == b"text"
        assert stat.S_ISCHR(terminal.stat().st_mode)
    finally:
        os.close(writer)
        os.close(reader)
    write_whole(Path(os.devnull), "text", "The export", "")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "text", "The export", "")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="Is a directory"):
        write_whole(tmp_path, "text", "The export", "")


@pytest.mark.parametrize(
    ("number", "begins"),
    [
        (errno.ENOSPC, "Free space"),
        (errno.EDQUOT, "Free space"),
        (errno.EACCES, "Change its rights"),
        (errno.EPERM, "Change its rights"),
        (errno.EROFS, "Change its rights"),
        (errno.ENOTDIR, "Give a place that can be written"),
        (errno.ENAMETOOLONG, "Give a place that can be written"),
    ],
)
def test_only_a_full_disk_is_told_to_free_space(
    number: int, begins: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("emobench.core.files._write_file", fail)
    for hint in ("Free space, and push again.", "Free some space or choose another.", "Free space there, then again."):
        with pytest.raises(StorageError) as raised:
            write_whole(tmp_path / "x", "text", "The file", hint)
        assert ("Free" in str(raised.value)) is begins.startswith("Free")
        assert ("rights" in str(raised.value)) is ("rights" in begins)
