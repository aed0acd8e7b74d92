"""What a file is written over: a file, and nothing else."""

import os
import stat
from pathlib import Path

import pytest

from emobench.errors import StorageError
from emobench.files import write_whole


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
