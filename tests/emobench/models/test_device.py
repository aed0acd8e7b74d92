"""`--device auto` comes to a GPU where CUDA is, else to the CPU, and sees no more GPUs than it was given."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch

from emobench.core.errors import ConfigError, ModelError
from emobench.models.device import (
    AUTO,
    THREADS,
    VISIBLE,
    check_device,
    free_memory,
    is_here,
    quick_collections,
    resolve_device,
    several_devices,
    several_processes,
)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what makes a machine with or without CUDA, and with a list of GPUs that this process may see."""

    def make(*, cuda: bool, visible: str | None = None) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
        monkeypatch.setenv(VISIBLE, "")  # so that it is as it was when the test ends
        if visible is None:
            monkeypatch.delenv(VISIBLE)
        else:
            monkeypatch.setenv(VISIBLE, visible)

    return make


@pytest.mark.parametrize(
    ("name", "visible", "expected", "seen"),
    [
        ("auto", None, "cuda", "0"),
        ("auto", "2,3", "cuda", "2"),
        ("auto", "GPU-8932f937,GPU-4564", "cuda", "GPU-8932f937"),
        ("cuda", None, "cuda", "0"),
        ("cuda:1", None, "cuda", "1"),
        ("cuda:1", "2,3", "cuda", "3"),
        ("cuda", "", "cuda", ""),  # whoever hides all GPUs gets none of them
        ("auto", "", "cuda", ""),
        ("cpu", "2,3", "cpu", "2,3"),
        ("gpu", None, "gpu", None),  # is refused by check_device
    ],
)
def test_one_gpu_is_seen_of_those_that_are_allowed(
    machine: Callable[..., None], name: str, visible: str | None, expected: str, seen: str | None
) -> None:
    import os

    machine(cuda=True, visible=visible)
    assert resolve_device(name) == expected
    assert os.environ.get(VISIBLE) == seen


@pytest.mark.parametrize("visible", ["2", ""])
def test_a_gpu_that_is_hidden_is_not_taken(machine: Callable[..., None], visible: str) -> None:
    machine(cuda=True, visible=visible)
    with pytest.raises(ConfigError, match=f"cuda:1: {VISIBLE} is '{visible}', which leaves {len(visible)} to this"):
        resolve_device("cuda:1")


def test_a_machine_without_a_gpu(machine: Callable[..., None]) -> None:
    machine(cuda=False)
    assert (resolve_device(AUTO), resolve_device("cuda")) == ("cpu", "cuda")
    assert (is_here("cpu"), is_here("cuda")) == (True, False)


@pytest.mark.parametrize("name", [AUTO, "gpu", "mps:1", "cuda:x"])
def test_what_is_no_device_is_refused_and_auto_never_comes_so_far(name: str) -> None:
    with pytest.raises(ModelError, match="expected auto, cpu, cuda, cuda:0 or mps"):
        check_device(name)


@pytest.mark.parametrize(
    ("names", "visible", "expected"),
    [
        ("0,1", None, {"cuda:0": "0", "cuda:1": "1"}),
        ("cuda:1, cuda:0", None, {"cuda:1": "1", "cuda:0": "0"}),
        ("0,1", "2,5,7", {"cuda:0": "2", "cuda:1": "5"}),
        ("1", "GPU-8932f937,GPU-4564", {"cuda:1": "GPU-4564"}),
        ("auto", "2,5,7", {"cuda:0": "2", "cuda:1": "5", "cuda:2": "7"}),
    ],
)
def test_each_process_sees_one_of_the_gpus_that_are_allowed(
    machine: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    names: str,
    visible: str | None,
    expected: dict[str, str],
) -> None:
    machine(cuda=True, visible=visible)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    places = several_devices(names)
    assert {place.name: place.environment[VISIBLE] for place in places} == expected
    assert [place.device for place in places] == list(expected)


@pytest.mark.parametrize(
    ("names", "visible", "sentence"),
    [
        ("auto", None, "--devices is auto; expected auto"),
        ("0,2", "0,1", "cuda:2: CUDA_VISIBLE_DEVICES is '0,1', which leaves 2"),
        ("0,,1", None, "GPUs such as 0,1,2,3"),
        ("cpu", None, "--devices is cpu"),
    ],
)
def test_devices_that_cannot_be_used(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch, names: str, visible: str | None, sentence: str
) -> None:
    machine(cuda=False, visible=visible)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ConfigError, match=sentence):
        several_devices(names)


def test_processes_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(THREADS, raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(8)))
    assert [place.environment for place in several_processes(3)] == [{THREADS: "2"}] * 3
    assert several_processes(16)[15].environment == {THREADS: "1"}
    monkeypatch.setenv(THREADS, "5")
    assert several_processes(2)[0].environment == {}


class _Own:
    """Refers to itself, as a model does whose `forward` is a method of its own."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture
def all_collected() -> None:
    """Undo what the tests themselves leave out."""
    gc.unfreeze()


@pytest.mark.usefixtures("all_collected")
def test_collections_go_over_what_is_new_alone() -> None:
    before = _Own()
    old = weakref.ref(before)
    with quick_collections():
        assert gc.get_freeze_count() > 10_000
        new = weakref.ref(_Own())
        del before
        free_memory()
        assert new() is None
        assert old() is not None
    assert gc.get_freeze_count() == 0
    free_memory()
    assert old() is None


@pytest.mark.usefixtures("all_collected")
def test_what_a_user_left_out_of_collections_stays_so() -> None:
    gc.freeze()
    try:
        with quick_collections():
            pass
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()
