"""The device for `--device`, what `auto` means on this machine, and how the models of a run are loaded."""

from __future__ import annotations

import os
from dataclasses import dataclass

from emobench.errors import ConfigError, ModelError

AUTO = "auto"
DTYPES = ("float32", "bfloat16", "float16", "float64")
"""Precisions of weights."""
VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Where a model is read from and computes, and in which precision."""

    device: str = "cpu"
    dtype: str = "float32"
    """Of the weights: float32, bfloat16 or float16."""
    offline: bool = False
    trust_remote_code: bool = False
    from_scratch: bool = False
    """Draw the weights at random, in the place of those of the model."""


def resolve_device(name: str) -> str:
    """Return "cpu" or "cuda" for a value of `--device`. `auto` is a GPU if this machine has one.

    Only this function knows `auto`: keys, entries and estimates contain its result. The process then sees only this
    GPU, because the Trainer would use all of them; so call it before CUDA is used. `check_device` checks that the
    device exists; a dry run for another machine does not. Raises ConfigError for a GPU that CUDA_VISIBLE_DEVICES hides.
    """
    kind, _, index = name.partition(":")
    if name == AUTO:
        _see_one(0)
        return "cuda" if _has_cuda() else "cpu"
    if kind == "cuda" and (index.isdecimal() or not index):
        _see_one(int(index or 0))
        return "cuda"
    return name


def resolve_dtype(name: str) -> str:
    """Return the data type of weights for a value of `--dtype`. `auto` is float32."""
    return "float32" if name == AUTO else name


def check_device(device: str) -> None:
    """Raise ModelError unless this machine has the device."""
    import torch

    kind = device.partition(":")[0]
    try:
        if kind not in ("cpu", "cuda"):  # "mps" has no float64, which sums need
            raise ValueError
        torch.device(device)
    except (RuntimeError, ValueError):
        raise ModelError(f"--device {device} is unknown; expected auto, cpu, cuda or cuda:0.") from None
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ModelError(
            f"--device {device}: no {kind.upper()} device is available ({reason}); give --device cpu. "
            "See `emobench doctor`."
        ) from None


def is_here(device: str) -> bool:
    """Return whether this machine has the device. A dry run may be for the GPU of another machine."""
    return not device.startswith("cuda") or _has_cuda()


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _see_one(place: int) -> None:
    """Hide all GPUs except one from this process, among those that CUDA_VISIBLE_DEVICES allows."""
    if VISIBLE not in os.environ:
        os.environ[VISIBLE] = str(place)
        return
    allowed = [name for name in os.environ[VISIBLE].split(",") if name.strip()]
    if place < len(allowed):
        os.environ[VISIBLE] = allowed[place]
    elif place:
        raise ConfigError(
            f"--device cuda:{place}: {VISIBLE} is '{os.environ[VISIBLE]}', which leaves {len(allowed)} to this "
            f"process; expected cuda:N with N below {len(allowed)}, or another {VISIBLE}."
        )
