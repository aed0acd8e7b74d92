"""What a finished folder held is known to the byte."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from emobench.core.seals import SEAL, SMALL, find_damage, write_seal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sealed folder with a small file, a large one in a subfolder, and a hidden one."""
    made = tmp_path / "made"
    (made / "model").mkdir(parents=True)
    (made / "facts.json").write_text('{"seed": 0}')
    (made / "model" / "weights").write_bytes(bytes(SMALL + 1))
    (made / ".nfs0001").write_text("a file system's own")
    write_seal(made)
    return made


def flip(path: Path) -> None:
    """Flip a bit, and leave size and time as they were."""
    status, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("full", [False, True])
def test_a_folder_is_whole_as_it_was_sealed(folder: Path, full: bool) -> None:
    assert set(json.loads((folder / SEAL).read_text())) == {"facts.json", "model/weights"}
    assert find_damage(folder, full=full) is None
    (folder / ".DS_Store").write_text("")
    assert find_damage(folder, full=full) is None


@pytest.mark.parametrize("full", [False, True])
def test_a_copy_with_other_times_is_whole(folder: Path, tmp_path: Path, full: bool) -> None:
    shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile)
    assert find_damage(tmp_path / "copy", full=full) is None


def test_a_flipped_bit_is_found_by_its_digest_alone(folder: Path) -> None:
    flip(folder / "model/weights")
    assert find_damage(folder, full=False) is None
    assert str(find_damage(folder, full=True)) == f"{folder / 'model/weights'} was altered after it was written"
    assert find_damage(folder, full=True, only="facts.json") is None
    flip(folder / "facts.json")
    assert str(find_damage(folder, full=False)) == f"{folder / 'facts.json'} was altered after it was written"


def to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "longer": (lambda folder: os.truncate(folder / "model/weights", SMALL + 2), "model/weights was altered after"),
    "cut": (lambda folder: os.truncate(folder / "model/weights", SMALL), "model/weights was altered after"),
    "emptied": (lambda folder: (folder / "facts.json").write_text(""), "facts.json was altered after"),
    "touched by another": (lambda folder: (folder / "facts.json").write_text('{"seed": 1}'), "facts.json was altered"),
    "gone": (lambda folder: (folder / "facts.json").unlink(), "facts.json is gone"),
    "a folder now": (lambda folder: to_folder(folder / "facts.json"), "facts.json is not a file any more"),
    "a folder gone": (lambda folder: shutil.rmtree(folder / "model"), "model/weights is gone"),
    "seal gone": (lambda folder: (folder / SEAL).unlink(), "seal.json is not there"),
    "seal cut": (lambda folder: (folder / SEAL).write_text('{"facts.js'), "seal.json cannot be understood"),
    "seal of a list": (lambda folder: (folder / SEAL).write_text("[]"), "seal.json cannot be understood"),
    "seal nested": (lambda folder: (folder / SEAL).write_text("[" * 500_000), "seal.json cannot be understood"),
    "seal no text": (lambda folder: (folder / SEAL).write_bytes(b"\xff\xfe"), "seal.json cannot be understood"),
    "added": (lambda folder: (folder / "model/adapter_config.json").touch(), "adapter_config.json was added"),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("full", [False, True])
def test_every_other_change_is_found_at_a_glance(folder: Path, name: str, full: bool) -> None:
    change, said = CHANGES[name]
    change(folder)
    found = find_damage(folder, full=full)
    assert found is not None
    assert said in str(found)
    assert found.foreign == (name == "added")


def test_a_seal_leaves_out_a_subfolder_and_a_later_one_takes_digests_over(folder: Path) -> None:
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "x").touch()
    assert find_damage(folder, full=True, leave_out="checkpoints") is None
    assert "checkpoints/x was added" in str(find_damage(folder, full=True))
    flip(folder / "model/weights")
    write_seal(folder, leave_out="checkpoints")
    assert "model/weights was altered" in str(find_damage(folder, full=True, leave_out="checkpoints"))
