"""The group of processes that train one model together: how one of them joins it, by the variables that torchrun sets.

RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say who it is and where the group meets; a launcher's other
variables (ACCELERATE_*, FSDP_*) say how the model is shared out. `GROUP` tells the trainings of one command apart.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from emobench.core.errors import ConfigError

ZERO = {"zero2": "2", "zero3": "3"}
"""The launchers that use DeepSpeed, and their stage of ZeRO."""
LAUNCHERS = ("ddp", "fsdp", *ZERO)
GROUP = "EMOBENCH_GROUP"
TIMEOUT = timedelta(hours=2)
"""The longest wait for the others, such as for the one that writes a large model. A dead one is seen at once."""
FSDP = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",  # the head is probed in every process
}
"""What `accelerate launch --use_fsdp --fsdp_version 2` sets."""
LEFT_OUT = (
    "ACCELERATE_MIXED_PRECISION",
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
    "ACCELERATE_GRADIENT_CLIPPING",
    "ACCELERATE_DYNAMO_BACKEND",
)
"""Variables of accelerate for what the recipe decides."""
LOST = "another process of this training ended, and this one with it"


def world_size() -> int:
    """Return of how many processes a launcher started this one; 1 without a launcher."""
    size = os.environ.get("WORLD_SIZE", "1")
    if not size.isdecimal():
        raise ConfigError(f"WORLD_SIZE is '{size}'; expected the number of processes, as torchrun sets it.")
    return int(size)


def rank() -> int:
    """Return this process's place in its group; 0 where it is alone."""
    import torch.distributed as dist

    return dist.get_rank() if dist.is_initialized() else 0


def is_ours(name: str) -> bool:
    """Return whether an environment variable is one of a launcher's."""
    known = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", GROUP)
    prefixes = ("MASTER_", "ROLE_", "TORCHELASTIC_", "ACCELERATE_", "FSDP_")
    return name in known or name.startswith(prefixes)


def launched_environment(given: Mapping[str, str], launcher: str | None) -> dict[str, str]:
    """Return the environment of one process of a group; without `launcher`, that of the user's own launcher."""
    own = {name: value for name, value in given.items() if name not in LEFT_OUT}
    if launcher is not None:
        own |= {"ACCELERATE_USE_FSDP": "false", "ACCELERATE_USE_DEEPSPEED": "false"}
    if launcher in ZERO:
        own.pop("ACCELERATE_DEEPSPEED_CONFIG_FILE", None)
        own |= {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": ZERO[launcher]}
    if launcher == "fsdp" or own.get("ACCELERATE_USE_FSDP") == "true":
        own = {**FSDP, **own, "FSDP_CPU_RAM_EFFICIENT_LOADING": "false", "ACCELERATE_USE_FSDP": "true"}
    return own


def join_group(device: str) -> None:
    """Meet the other processes, and compute on this one's GPU. Blocks until all are there; once for each process."""
    import torch
    import torch.distributed as dist
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    if dist.is_initialized():
        return
    cuda = device.startswith("cuda")
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(*place, is_master=False, timeout=TIMEOUT, wait_for_workers=False)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if cuda else "gloo",
        store=PrefixStore(f"emobench/{os.environ[GROUP]}", store),
        rank=int(os.environ["RANK"]),
        world_size=world_size(),
        timeout=TIMEOUT,
    )


def is_loss(error: BaseException) -> bool:
    """Return whether an exception only says that another process has gone."""
    import torch.distributed as dist

    said = str(error)
    known: Any = getattr(dist, "DistError", ())
    words = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "gloo/transport", "NCCL")
    return isinstance(error, known) or (isinstance(error, RuntimeError) and any(word in said for word in words))
