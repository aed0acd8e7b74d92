"""A stage is on disk whole or not at all: killed, raced, and out of space."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from emobench.core.errors import MetricError, StorageError
from emobench.core.seals import SEAL
from emobench.runs.stages.stage import FACTS, Stage, Stages, require_writable

STAGE = Stage("train", {"seed": 0, "rate": 0.5})

PREAMBLE = """
import sys, time
from pathlib import Path
from emobench.core.errors import StorageError
from emobench.runs.stages.stage import Stage, Stages
root = Path(sys.argv[1])
stage = Stage("train", {"seed": 0, "rate": 0.5})
"""


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    program = PREAMBLE + textwrap.dedent(code)
    return subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True)


def wait_for(path: Path) -> None:
    for _ in range(1000):
        if path.exists():
            return
        time.sleep(0.02)
    raise AssertionError(f"{path} did not appear")


def test_a_stage_is_made_once_and_says_what_it_is(tmp_path: Path) -> None:
    stages, calls = Stages(tmp_path / "runs"), []

    def work(folder: Path) -> None:
        calls.append(folder)
        assert list(folder.iterdir()) == []
        assert not stages.is_finished(STAGE)
        (folder / "out").mkdir()
        (folder / "out" / "x").write_text("made")

    first = stages.make(STAGE, work)
    assert first == stages.folder(STAGE) == tmp_path / "runs" / "train" / STAGE.key
    assert stages.is_finished(STAGE)
    assert json.loads((first / FACTS).read_text()) == STAGE.facts
    before = (first / "out" / "x").stat().st_mtime_ns
    assert stages.make(STAGE, work) == first
    assert len(calls) == 1
    assert (first / "out" / "x").stat().st_mtime_ns == before
    assert [p.name for p in first.parent.iterdir()] == [STAGE.key]


def test_keys_are_those_of_content() -> None:
    assert Stage("train", {"rate": 0.5, "seed": 0}).key == STAGE.key
    assert len({STAGE.key, Stage("score", STAGE.facts).key, Stage("train", {"seed": 1, "rate": 0.5}).key}) == 3
    assert len(STAGE.key) == 16
    assert set(STAGE.key) <= set("0123456789abcdef")


@pytest.mark.parametrize("continues", [False, True])
def test_a_stage_that_fails_is_not_finished_and_can_be_made_again(tmp_path: Path, continues: bool) -> None:
    stages = Stages(tmp_path)

    def fail(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise MetricError("no.")

    with pytest.raises(MetricError):
        stages.make(STAGE, fail, continues=continues)
    assert not stages.is_finished(STAGE)
    assert not stages.folder(STAGE).exists()
    found: list[str] = []
    stages.make(STAGE, lambda folder: found.extend(p.name for p in folder.iterdir()), continues=continues)
    assert found == (["half"] if continues else [])
    assert stages.is_finished(STAGE)


def test_killed_in_the_middle_leaves_nothing_that_looks_finished(tmp_path: Path) -> None:
    process = start(
        """
        def work(folder):
            (folder / "half").write_text("half")
            time.sleep(60)
        Stages(root).make(stage, work)
        """,
        str(tmp_path),
    )
    stages = Stages(tmp_path)
    half = stages.folder(STAGE).with_name(f"{STAGE.key}.part") / "half"
    wait_for(half)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert half.exists()
    assert not stages.is_finished(STAGE)
    assert not stages.folder(STAGE).exists()
    found: list[str] = []
    stages.make(STAGE, lambda folder: found.extend(p.name for p in folder.iterdir()), continues=True)
    assert found == ["half"]
    assert stages.is_finished(STAGE)


def test_two_processes_at_once_make_it_once(tmp_path: Path) -> None:
    code = """
        def work(folder):
            with (root / "calls").open("a") as file:
                file.write("made\\n")
            time.sleep(0.5)
            (folder / "x").write_text("made")
        (root / f"ready{sys.argv[2]}").touch()
        while not (root / "go").exists():
            time.sleep(0.001)
        print(Stages(root).make(stage, work))
    """
    processes = [start(code, str(tmp_path), str(i)) for i in range(3)]
    for i in range(3):
        wait_for(tmp_path / f"ready{i}")
    (tmp_path / "go").touch()
    folders = {process.communicate()[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert folders == {str(Stages(tmp_path).folder(STAGE))}
    assert (tmp_path / "calls").read_text() == "made\n"


def test_a_full_disk_is_a_sentence_in_the_words_of_each_library_and_nothing_is_finished(tmp_path: Path) -> None:
    """A limit on file size is what a process can give itself without a file system of its own.

    safetensors and both formats of torch.save have classes of their own for a write that failed.
    """
    process = start(
        """
        import resource, sys
        sys.dont_write_bytecode = True  # it would be cut, too
        import torch
        from safetensors.torch import save_file
        weights = {"w": torch.zeros(10_000)}
        works = {
            "text": lambda folder: (folder / "x").write_text("x" * 5000),
            "safetensors": lambda folder: save_file(weights, folder / "x"),
            "zip": lambda folder: torch.save(weights, folder / "x"),
            "old": lambda folder: torch.save(weights, folder / "x", _use_new_zipfile_serialization=False),
        }
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        for name, work in works.items():
            try:
                Stages(root / name).make(stage, work)
            except StorageError as error:
                print(error)
        """,
        str(tmp_path),
    )
    lines = process.communicate()[0].splitlines()
    reasons = [line.partition(" could not be written or read: ")[2].partition(". Free")[0] for line in lines]
    cut = "a file was cut short, as on a full disk or at the end of a quota"
    assert reasons == ["File too large", "File too large", cut, "File too large"]
    assert not list(tmp_path.rglob(FACTS))
    stages = Stages(tmp_path / "text")
    assert stages.make(STAGE, lambda folder: None) == stages.folder(STAGE)


def test_an_unwritable_folder_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"/file.* could not be written or read: Not a directory"):
        Stages(tmp_path / "file" / "runs").make(STAGE, lambda folder: None)


def test_an_array_that_a_full_disk_cut_is_a_sentence(tmp_path: Path) -> None:
    def work(folder: Path) -> None:
        raise OSError("5000 requested and 12 written")  # as numpy does

    with pytest.raises(StorageError, match="a file was cut short"):
        Stages(tmp_path).make(STAGE, work)


def test_an_error_that_is_no_disks_keeps_its_traceback(tmp_path: Path) -> None:
    def work(folder: Path) -> None:
        raise OSError("a library's own text, without a number")

    with pytest.raises(OSError, match="a library's own text"):
        Stages(tmp_path).make(STAGE, work)


def test_a_stage_that_is_made_anew_takes_the_old_ones_place_when_it_is_complete(tmp_path: Path) -> None:
    final = Stages(tmp_path).make(STAGE, lambda folder: (folder / "x").write_text("old"))
    other = Stage("features", {})
    kept = Stages(tmp_path).make(other, lambda folder: (folder / "x").write_text("kept"))
    again, calls = Stages(tmp_path, anew=("train",)), []

    def fail(folder: Path) -> None:
        assert (final / "x").read_text() == "old"
        raise MetricError("no.")

    assert not again.is_finished(STAGE)
    assert again.is_finished(other)
    with pytest.raises(MetricError):
        again.make(STAGE, fail)
    assert (final / "x").read_text() == "old"
    assert Stages(tmp_path).is_finished(STAGE)

    def work(folder: Path) -> None:
        calls.append(folder)
        (folder / "x").write_text("new")

    assert again.make(STAGE, work) == again.make(STAGE, work) == final
    assert (final / "x").read_text() == "new"
    assert again.is_finished(STAGE)
    assert again.make(other, work) == kept
    assert len(calls) == 1
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_dir()) == sorted(
        ["train", STAGE.key, "features", other.key]
    )


def test_killed_while_one_stage_takes_anothers_place_the_old_one_comes_back(tmp_path: Path) -> None:
    """The state between two renames, which no signal can be timed to hit."""
    final = Stages(tmp_path).make(STAGE, lambda folder: (folder / "x").write_text("old"))
    final.rename(final.with_name(f"{STAGE.key}.old"))
    (final.with_name(f"{STAGE.key}.part")).mkdir()
    assert Stages(tmp_path).make(STAGE, lambda folder: pytest.fail("it is there")) == final
    assert (final / "x").read_text() == "old"
    assert not final.with_name(f"{STAGE.key}.old").exists()


def flip(path: Path) -> None:
    """Flip a bit, and leave size and time as they were."""
    status, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("name", ["x", FACTS, SEAL, "deep/y"])
@pytest.mark.parametrize("what", ["flipped", "emptied", "gone"])
def test_a_stage_that_was_altered_is_made_anew_and_said(tmp_path: Path, name: str, what: str) -> None:
    def work(folder: Path) -> None:
        (folder / "deep").mkdir()
        (folder / "deep" / "y").write_text("made")
        (folder / "x").write_text("made")

    final, notes = Stages(tmp_path).make(STAGE, work), []
    whole = {path.relative_to(final): path.read_bytes() for path in final.rglob("*") if path.is_file()}
    path = final / name
    {"flipped": flip, "emptied": lambda path: path.write_text(""), "gone": Path.unlink}[what](path)
    stages = Stages(tmp_path, note=notes.append)
    assert not stages.is_finished(STAGE)
    assert stages.make(STAGE, work) == final
    assert {p.relative_to(final): p.read_bytes() for p in final.rglob("*") if p.is_file()}.keys() == whole.keys()
    assert (final / "x").read_text() == "made"
    (note,) = notes
    aside = tmp_path / "damaged" / f"train-{STAGE.key}"
    assert note.startswith(str(final))
    assert note.endswith(f"this train stage runs again; the old one is kept in {aside}")
    assert aside.is_dir()
    assert Stages(tmp_path).is_finished(STAGE)


def test_a_flipped_bit_of_a_large_file_is_found_when_it_is_read(tmp_path: Path) -> None:
    """At a glance a large file is not hashed."""
    final = Stages(tmp_path).make(STAGE, lambda folder: (folder / "x").write_bytes(bytes(2**20 + 1)))
    flip(final / "x")
    calls: list[Path] = []
    stages = Stages(tmp_path)
    assert stages.is_finished(STAGE)
    assert stages.make(STAGE, calls.append, glance=True) == final
    assert calls == []
    assert "x was altered" in str(stages.damage(STAGE, full=True))
    stages.make(STAGE, calls.append)
    assert len(calls) == 1


def test_a_file_that_was_added_is_named_and_nothing_is_lost(tmp_path: Path) -> None:
    final = Stages(tmp_path).make(STAGE, lambda folder: (folder / "x").write_text("made"))
    (final / "adapter_config.json").write_text("{}")
    with pytest.raises(StorageError, match=r"adapter_config\.json was added"):
        Stages(tmp_path).make(STAGE, lambda folder: pytest.fail("it is there"))
    (final / "adapter_config.json").unlink()
    assert Stages(tmp_path).make(STAGE, lambda folder: pytest.fail("it is there")) == final


def test_the_journal_of_what_is_finished_goes_when_it_is_sealed(tmp_path: Path) -> None:
    def work(folder: Path) -> None:
        (folder / "unfinished.jsonl").write_text("kept until now")

    final = Stages(tmp_path).make(STAGE, work, continues=True)
    assert sorted(path.name for path in final.iterdir()) == [SEAL, FACTS]


def test_readers_find_a_stage_at_any_instant_while_it_is_made_anew(tmp_path: Path) -> None:
    """Between two renames it would have no name; 9 of 48 concurrent rescores died there."""
    code = """
        import os
        for number in range(200):
            Stages(root, anew=("train",)).make(stage, lambda folder: (folder / "x").write_text(str(number)))
    """
    stages = Stages(tmp_path)
    final = stages.make(STAGE, lambda folder: (folder / "x").write_text("first"))
    process, reads = start(code, str(tmp_path)), 0
    while process.poll() is None:
        assert (final / "x").read_text()
        reads += 1
    process.communicate()
    assert process.returncode == 0
    assert reads > 1000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
@pytest.mark.parametrize(
    ("mode", "said"),
    [(0o000, "x could not be written or read: Permission"), (None, "could not be written or read: Permission")],
)
def test_what_a_user_may_not_use_is_said_with_the_reason(tmp_path: Path, mode: int | None, said: str) -> None:
    """Roots that are relative, and errors that name absolute paths, are the same place."""
    code = """
        import os
        from emobench.runs.stages.stage import require_writable
        os.chdir(root)
        os.seteuid(65534)
        try:
            if sys.argv[2] == "None":
                require_writable(Path("runs"), "--runs")
            else:
                Stages(Path("runs")).make(stage, lambda folder: None)
        except StorageError as error:
            print(error)
    """
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    final = Stages(tmp_path / "runs").make(STAGE, lambda folder: (folder / "x").write_text("made"))
    (final / "x").chmod(0o644 if mode is None else mode)
    assert said in start(code, str(tmp_path), str(mode)).communicate()[0]


def test_a_lock_that_a_kill_left_beside_a_finished_stage_goes(tmp_path: Path) -> None:
    """A process that is killed between the last rename and the end of its lock leaves the lock's file."""
    stages = Stages(tmp_path)
    folder = stages.make(STAGE, lambda made: None)
    lock = folder.with_name(f"{STAGE.key}.lock")
    lock.touch()
    assert stages.make(STAGE, lambda made: None) == folder
    assert not lock.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
def test_a_folder_that_takes_no_folder() -> None:
    with pytest.raises(StorageError, match=r"/proc/nothing/runs could not be written or read: .* --runs DIR"):
        require_writable(Path("/proc/nothing/runs"), "--runs")
