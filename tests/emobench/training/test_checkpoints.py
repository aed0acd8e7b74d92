"""A training that was killed ends in the weights that it would have had, or says why it cannot go on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from emobench.core.errors import ConfigError, StorageError
from emobench.objectives import SetupContext
from emobench.training.checkpoints import last_checkpoint, restore_objective, seal_checkpoint
from emobench.training.train import TrainingSummary, train
from emobench_objectives.emo import Emo
from emobench_objectives.mle import Mle
from emobench_objectives.psft import Psft

DROPOUT = {"resid_pdrop": 0.2, "embd_pdrop": 0.2, "attn_pdrop": 0.2}
RECIPE = {"epochs": 3, "batch": 8, "accumulation": 2, "warmup": 0.2, "schedule": "cosine"}  # 3 epochs of 3 steps


class Killed(Exception):
    """The process is gone."""


def dropout_job(kit: SimpleNamespace, folder: Path, **values: Any) -> Any:
    values = {"objective": Emo(), "recipe": RECIPE} | values
    return kit.job(folder, model=kit.tiny(dtype=torch.float32, **DROPOUT), **values)


def at_step(step: int, act: Callable[[], None]) -> Callable[[dict[str, float]], None]:
    """Return a progress callback that acts once the given step is logged."""
    return lambda line: act() if "loss" in line and line["step"] == step else None


def kill() -> None:
    raise Killed


def flip_bit(path: Path) -> None:
    """Flip a bit in the middle of a file, and leave its size and its time as they were."""
    status, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def whole(kit: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainingSummary]:
    """An uninterrupted training."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, train(dropout_job(kit, folder))


def assert_same(kit: SimpleNamespace, folder: Path, summary: TrainingSummary, whole: Any) -> None:
    expected_folder, expected = whole
    assert (folder / "model/model.safetensors").read_bytes() == (
        expected_folder / "model/model.safetensors"
    ).read_bytes()
    clocks = {"seconds", "tokens_per_second"}
    lines, expected_lines = (
        [{k: v for k, v in line.items() if k not in clocks and "runtime" not in k and "per_second" not in k} for line in
         kit.log_of(f) if "train_loss" not in line]
        for f in (folder, expected_folder)
    )  # fmt: skip
    assert lines == expected_lines
    assert [line["step"] for line in lines if "loss" in line] == list(range(1, 10))
    assert [line["step"] for line in lines if "eval_mle" in line] == [3, 6, 9]
    for name in ("steps", "tokens", "selected_by", "selected_step", "validation_mle"):
        assert getattr(summary, name) == getattr(expected, name)
    assert not (folder / "checkpoints").exists()


CHILD = """
import os, runpy, signal, sys
from pathlib import Path
kit = runpy.run_path({kit!r})["KIT"]
tests = runpy.run_path({tests!r})
from emobench.training.train import train
die = tests["at_step"](5, lambda: os.kill(os.getpid(), signal.SIGKILL))
train(tests["dropout_job"](kit, Path({folder!r}), progress=die))
"""


@pytest.mark.slow
def test_sigkill(kit: SimpleNamespace, tmp_path: Path, whole: Any) -> None:
    code = CHILD.format(kit=str(kit.path), tests=__file__, folder=str(tmp_path))
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["checkpoint-3"]
    assert max(line["step"] for line in kit.log_of(tmp_path)) == 5
    assert_same(kit, tmp_path, train(dropout_job(kit, tmp_path)), whole)


@pytest.mark.parametrize(("step", "saved"), [(4, 5), (5, 6), (8, 9)])
def test_ctrl_c_saves_a_checkpoint_first(
    kit: SimpleNamespace, tmp_path: Path, whole: Any, step: int, saved: int
) -> None:
    """Within an epoch, before the last step of one, and before the very last step."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(dropout_job(kit, tmp_path, progress=at_step(step, interrupt)))
    assert signal.getsignal(signal.SIGINT) is before
    checkpoint = last_checkpoint(tmp_path / "checkpoints")
    assert checkpoint is not None
    assert checkpoint.name == f"checkpoint-{saved}"
    assert_same(kit, tmp_path, train(dropout_job(kit, tmp_path)), whole)


@pytest.mark.parametrize("lora", [False, True])
def test_a_copy_of_the_model_survives(kit: SimpleNamespace, tmp_path: Path, lora: bool) -> None:
    """Interrupted at step 5 of 9, with copies of steps 0, 4 and 8: that of step 4 is in the checkpoint."""
    values = {"recipe": RECIPE | {"lora": lora, "select": "last"}}
    whole = tmp_path / "whole", train(dropout_job(kit, tmp_path / "whole", objective=Psft(every=4), **values))
    parts = dropout_job(kit, tmp_path / "parts", objective=Psft(every=4), progress=at_step(5, interrupt), **values)
    with pytest.raises(KeyboardInterrupt):
        train(parts)
    checkpoint = last_checkpoint(tmp_path / "parts/checkpoints")
    assert checkpoint is not None
    names = set(load_file(checkpoint / "objective.safetensors"))
    assert names
    assert all("lora" in name for name in names) is lora
    resumed = dropout_job(kit, tmp_path / "parts", objective=Psft(every=4), **values)
    assert_same(kit, tmp_path / "parts", train(resumed), whole)
    clipped = [line["clipped"] for line in kit.log_of(tmp_path / "whole") if "clipped" in line]
    assert len(set(clipped)) > 1


def test_a_copy_of_a_sharded_model_is_refused(
    kit: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ConfigError, match="psft copies the model's weights"):
        train(dropout_job(kit, tmp_path, objective=Psft()))


def test_killed_twice_and_moved(kit: SimpleNamespace, tmp_path: Path, whole: Any) -> None:
    """The second time, a torn line is at the end of the log; and the folder is moved after the last checkpoint."""
    first, second = tmp_path / "first", tmp_path / "second"
    with pytest.raises(Killed):
        train(dropout_job(kit, first, progress=at_step(4, kill)))
    with (first / "log.jsonl").open("a") as log:
        log.write('{"loss": 4.1')

    def at_the_end(line: dict[str, float]) -> None:
        if "train_loss" in line:
            raise Killed

    with pytest.raises(Killed):
        train(dropout_job(kit, first, progress=at_the_end))
    first.rename(second)
    assert_same(kit, second, train(dropout_job(kit, second)), whole)


@pytest.mark.parametrize("lost", ["altered", "gone"])
def test_a_best_checkpoint_that_is_lost_takes_those_with_it_that_led_from_it(
    kit: SimpleNamespace, tmp_path: Path, whole: Any, lost: str
) -> None:
    """Without the weights of step 3, what goes on from step 6 would end in others: the training begins again."""
    assert whole[1].selected_step == 3
    with pytest.raises(Killed):
        train(dropout_job(kit, tmp_path, progress=at_step(8, kill)))
    best = tmp_path / "checkpoints/checkpoint-3"
    if lost == "gone":
        shutil.rmtree(best)
    else:
        (best / "model.safetensors").write_bytes(b"other")
    notes: list[str] = []
    assert_same(kit, tmp_path, train(dropout_job(kit, tmp_path, note=notes.append)), whole)
    assert "checkpoint-6 is dropped" in notes[0]
    assert "checkpoint-3" in notes[0]


def test_a_best_checkpoint_that_is_altered_while_training_goes_on_is_an_error(
    kit: SimpleNamespace, tmp_path: Path, whole: Any
) -> None:
    def flip() -> None:
        flip_bit(tmp_path / "checkpoints/checkpoint-3/model.safetensors")

    with pytest.raises(StorageError, match=r"checkpoint-3/model.safetensors was altered .*Run the same command again"):
        train(dropout_job(kit, tmp_path, progress=at_step(8, flip)))
    assert_same(kit, tmp_path, train(dropout_job(kit, tmp_path)), whole)


@pytest.fixture(scope="module")
def stopped(kit: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that was killed after its first checkpoint; to be copied."""
    folder = tmp_path_factory.mktemp("stopped")
    with pytest.raises(Killed):
        train(dropout_job(kit, folder, progress=at_step(4, kill)))
    return folder


@pytest.fixture
def copy(tmp_path: Path, stopped: Path) -> Path:
    """A copy of that training."""
    return shutil.copytree(stopped, tmp_path / "copy")


NAMES = ["model.safetensors", "trainer_state.json", "seal.json"]


@pytest.mark.parametrize("name", NAMES)
def test_an_altered_checkpoint_is_dropped_and_said(kit: SimpleNamespace, copy: Path, whole: Any, name: str) -> None:
    flip_bit(copy / "checkpoints/checkpoint-3" / name)
    notes: list[str] = []
    assert_same(kit, copy, train(dropout_job(kit, copy, note=notes.append)), whole)
    (note,) = notes
    assert note.startswith(str(copy / "checkpoints/checkpoint-3" / name))
    assert "checkpoint-3 is dropped, and the training continues from the one before it" in note


@pytest.mark.parametrize("damage", ["a file gone", "a file more", "a seal of a list", "half a seal"])
def test_a_checkpoint_of_other_files_than_its_seal_names_is_dropped(copy: Path, damage: str) -> None:
    checkpoint = copy / "checkpoints/checkpoint-3"
    if damage == "a file gone":
        (checkpoint / "scheduler.pt").unlink()
    elif damage == "a file more":
        (checkpoint / "adapter_config.json").write_text("{}")
    else:
        (checkpoint / "seal.json").write_text({"a seal of a list": "[]", "half a seal": '{"model.safe'}[damage])
    assert last_checkpoint(copy / "checkpoints") is None
    assert not checkpoint.exists()


def test_what_is_no_checkpoint_is_left_alone(kit: SimpleNamespace, copy: Path, whole: Any) -> None:
    for name in ("checkpoint-abc", "checkpoint-"):
        (copy / "checkpoints" / name).mkdir()
    notes: list[str] = []
    assert_same(kit, copy, train(dropout_job(kit, copy, note=notes.append)), whole)
    assert notes == ["  going on from the checkpoint of step 3"]


@pytest.mark.parametrize("text", ["garbage", '{"step": 1, "loss": 9e9, "tokens": 77}\n'])
def test_the_log_goes_on_from_what_the_checkpoint_kept(kit: SimpleNamespace, copy: Path, whole: Any, text: str) -> None:
    (copy / "log.jsonl").write_text(text)
    assert_same(kit, copy, train(dropout_job(kit, copy)), whole)


@pytest.mark.parametrize("name", ["model/model.safetensors", "training.json"])
def test_a_finished_training_is_trained_again_only_if_it_was_altered(
    kit: SimpleNamespace, tmp_path: Path, whole: Any, name: str
) -> None:
    """Killed when all is written, before the folder is taken away."""
    shutil.copytree(whole[0], tmp_path / "copy")
    assert train(dropout_job(kit, tmp_path / "copy", progress=lambda line: kill())) == whole[1]
    flip_bit(tmp_path / "copy" / name)
    assert_same(kit, tmp_path / "copy", train(dropout_job(kit, tmp_path / "copy")), whole)


def test_other_pretrained_weights_are_refused(kit: SimpleNamespace, copy: Path) -> None:
    other = kit.tiny(dtype=torch.float32, seed=1, **DROPOUT)
    job = kit.job(copy, model=other, objective=Emo(), recipe=RECIPE)
    with pytest.raises(StorageError, match=r"the objective's cost_embedding differs.*same pre-trained weights"):
        train(job)
    assert (copy / "checkpoints/checkpoint-3").exists()


class Counting(Mle):
    """Remembers how often it was called, and a scalar of the head that it was set up with."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = torch.zeros((), dtype=torch.int64)

    def setup(self, context: SetupContext) -> None:
        self.head = context.head_weight()
        self.largest = self.head.abs().max()

    def frozen_state(self) -> Mapping[str, Tensor]:
        return {"largest": self.largest, "head": self.head}

    def state(self) -> Mapping[str, Tensor]:
        return {"calls": self.calls, "twice": self.calls}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.calls = state["calls"]

    def loss(self, s: Any) -> Tensor:
        self.calls = self.calls + 1
        return super().loss(s)


def test_an_objective_gets_its_state_back(kit: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        train(dropout_job(kit, tmp_path, objective=Counting(), progress=at_step(4, kill)))
    objective = Counting()
    train(dropout_job(kit, tmp_path, objective=objective))
    assert int(objective.calls) == 18  # 9 steps of 2 micro-batches, not the 2 calls that were lost


def test_state_is_restored_from_a_sealed_folder_only(tmp_path: Path) -> None:
    saved, loaded = Counting(), Counting()
    for objective in (saved, loaded):
        objective.head, objective.largest = torch.eye(3), torch.tensor(1.0)
    saved.calls += 7
    folder = tmp_path / "checkpoint-4"
    folder.mkdir()
    assert last_checkpoint(tmp_path / "nowhere") is None
    seal_checkpoint(folder, saved)
    restore_objective(folder, loaded)
    assert int(loaded.calls) == 7
    assert last_checkpoint(tmp_path) == folder
    loaded.head = torch.eye(3) + 1
    with pytest.raises(StorageError, match="the objective's head differs"):
        restore_objective(folder, loaded)
