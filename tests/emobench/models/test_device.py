"""`--device auto` comes to a GPU where CUDA is, else to the CPU, and sees no more GPUs than it was given."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from emobench.errors import ConfigError, ModelError
from emobench.models.device import AUTO, VISIBLE, check_device, is_here, resolve_device


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


@pytest.mark.parametrize(("cuda", "expected"), [(True, "cuda"), (False, "cpu")])
def test_auto_is_cuda_where_it_is_and_else_the_cpu(machine: Callable[..., None], cuda: bool, expected: str) -> None:
    machine(cuda=cuda)
    assert resolve_device(AUTO) == expected
    assert is_here(resolve_device(AUTO))


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


def test_a_gpu_elsewhere_is_known_to_be_elsewhere(machine: Callable[..., None]) -> None:
    machine(cuda=False)
    assert resolve_device("cuda") == "cuda"
    assert not is_here("cuda")


@pytest.mark.parametrize("name", [AUTO, "gpu", "mps", "cuda:x"])
def test_what_is_no_device_is_refused_and_auto_never_comes_so_far(name: str) -> None:
    with pytest.raises(ModelError, match="expected auto, cpu, cuda or cuda:0"):
        check_device(name)
