"""Files and folders that this user may not read: a sentence that names them, exit code 2."""

from __future__ import annotations

import ctypes
import inspect
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import emobench_tasks
from emobench import registry
from emobench.registry import task_files

OVERRIDES = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH (capabilities(7)): with these, root reads everything."""
pytestmark = [
    pytest.mark.usefixtures("ordinary_user"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="of Linux"),
]


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


@pytest.fixture
def ordinary_user() -> Iterator[None]:
    """Rights count for this thread, also where the tests are run by root."""
    libc, header, data = ctypes.CDLL(None, use_errno=True), _Header(0x20080522, 0), (_Data * 2)()
    assert libc.capget(ctypes.byref(header), data) == 0, os.strerror(ctypes.get_errno())
    before = data[0].effective
    data[0].effective = before & ~OVERRIDES
    assert libc.capset(ctypes.byref(header), data) == 0, os.strerror(ctypes.get_errno())
    yield
    data[0].effective = before
    assert libc.capset(ctypes.byref(header), data) == 0, os.strerror(ctypes.get_errno())


def refused(done: Any, *texts: object) -> None:
    done.refused(*texts, "Permission denied")


def test_objective(dry: Callable[..., Any], tmp_path: Path) -> None:
    made = type(registry.load_objective("mle").objective)
    folder = tmp_path / "mine"
    folder.mkdir()
    file = Path(shutil.copy(inspect.getfile(made), folder))
    given = f"{file}:{made.__name__}"
    assert dry(objective=given).code == 0
    file.chmod(0)
    refused(dry(objective=given), file)
    file.chmod(0o600)
    folder.chmod(0)
    refused(dry(objective=given), file)
    folder.chmod(0o700)


@pytest.mark.parametrize(
    "file",
    [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "modeling.py",
        "model.safetensors.index.json",
    ],
)
def test_file_of_a_model(dry: Callable[..., Any], small_model: Path, tmp_path: Path, file: str) -> None:
    model = shutil.copytree(small_model, tmp_path / "m")
    (model / file).parent.mkdir(exist_ok=True)
    (model / file).touch()
    (model / file).chmod(0)
    if file == "model.safetensors.index.json":
        (model / "model.safetensors").unlink()
    refused(dry(model=model), model / file)


@pytest.mark.parametrize("rights", [0, 0o400])
def test_folder_of_a_model(dry: Callable[..., Any], small_model: Path, tmp_path: Path, rights: int) -> None:
    model = shutil.copytree(small_model, tmp_path / "inner" / "m")
    model.chmod(rights)
    refused(dry(model=model), model)
    model.chmod(0o700)
    (tmp_path / "inner").chmod(rights & 0o600)
    refused(dry(model=model), model)
    (tmp_path / "inner").chmod(0o700)


@pytest.mark.parametrize("rights", [0, 0o300, 0o400])
@pytest.mark.parametrize("place", ["", "suites/lm-quick.yaml", "tasks"])
def test_files_of_a_tasks_plugin(
    dry: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str, rights: int
) -> None:
    mine = shutil.copytree(Path(emobench_tasks.__file__).parent, tmp_path / "plugin")
    monkeypatch.setattr(task_files, "_tasks_plugins", lambda: {"mine": [mine]})
    (mine / place).chmod(rights & 0o300 if (mine / place).is_file() else rights)
    done = dry()
    if place == "" and rights == 0o300:  # only its folders are listed
        assert done.code == 0
    else:
        refused(done, mine / place)
    (mine / place).chmod(0o700)


@pytest.mark.parametrize("place", ["", "wikitext2.test.jsonl"])
def test_data(dry: Callable[..., Any], small_data: Path, tmp_path: Path, place: str) -> None:
    data = shutil.copytree(small_data, tmp_path / "data")
    (data / place).chmod(0)
    refused(dry(data_dir=data), data / place)
    (data / place).chmod(0o700)


def test_board_and_files_to_import(command: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    (folder / "board").mkdir(parents=True)
    (folder / "results_1.json").write_text("{}")
    folder.chmod(0)
    for words in (("show",), ("verify",), ("export",), ("site", tmp_path / "out")):
        refused(command("leaderboard", *words, "--leaderboard", folder / "board"), folder)
    refused(command("leaderboard", "import", folder / "results_1.json", "--leaderboard", tmp_path / "b"), folder)
    folder.chmod(0o700)
