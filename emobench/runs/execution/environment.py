"""The environment of a stage: packages, hardware with its driver, threads, torch's flags of determinism and precision.

Each training and each evaluation has a file of it, written by the process that computes. A run's entry names one file
that joins them, and has the short facts itself, so that a rerun can name differences.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

from emobench.core.settings import content_hash

ENVIRONMENT = "environment.json"
_VARIABLES = ("CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
"""Variables that change the results of a GPU."""


def machine_facts(device: str) -> dict[str, str]:
    """Return the facts of a device besides the packages, each as a short text."""
    import torch
    import torch.distributed as dist

    switch, deterministic = {False: "off", True: "on"}, "off"
    if torch.are_deterministic_algorithms_enabled():
        deterministic = "warns" if torch.is_deterministic_algorithms_warn_only_enabled() else "on"
    facts = {
        "system": f"{platform.system()} {platform.release()}, {' '.join(platform.libc_ver()).strip()}",
        "processor": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": f"{torch.get_num_threads()}, {torch.get_num_interop_threads()} between operators",
        "deterministic": deterministic,
        "float32 matmul": torch.get_float32_matmul_precision(),
    }
    if device.startswith("cuda"):
        flags = torch.backends.cudnn
        facts |= {
            "device": torch.cuda.get_device_name(device),
            "driver": _driver(),
            "cuda": str(torch.version.cuda),
            "cudnn": f"{flags.version()}, benchmark {switch[flags.benchmark]}, TF32 {switch[flags.allow_tf32]}",
        }
    if dist.is_initialized() and dist.get_world_size() > 1:
        from emobench.training.parallel import uses_deepspeed, uses_fsdp

        engine = "DDP"
        if uses_fsdp():
            engine = "FSDP2"
        elif uses_deepspeed():
            engine = f"DeepSpeed {version('deepspeed')}"
        facts["processes"] = f"{dist.get_world_size()}, with {engine}"
    return facts | {name: os.environ[name] for name in _VARIABLES if name in os.environ}


@cache  # reading all their metadata takes half a second
def installed() -> Mapping[str, str]:
    """Return the version of every installed distribution, by its name in lower case: a lock of the packages."""
    versions: dict[str, str] = {}
    for package in distributions():
        if name := package.metadata["Name"]:
            versions.setdefault(re.sub(r"[-_.]+", "-", name).lower(), package.version)  # the first one is imported
    return dict(sorted(versions.items()))


def write_environment(folder: Path, device: str) -> None:
    """Write the environment of this process to a file in the folder of a stage."""
    _write(folder, {**machine_facts(device), "python": platform.python_version(), "packages": installed()})


def read_environment(folder: Path) -> dict[str, Any] | None:
    """Return the environment of a finished stage; None without its file."""
    with suppress(OSError, ValueError):
        return dict(json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8")))
    return None


def join_environments(folder: Path, stages: Iterable[Path]) -> None:
    """Write one file of a run: each environment once, with the stages that it computed."""
    joined: dict[str, dict[str, Any]] = {}
    for stage in stages:
        environment = read_environment(stage)
        if environment is not None:
            alike = joined.setdefault(content_hash(environment), {"stages": [], **environment})
            alike["stages"].append(f"{stage.parent.name}/{stage.name}")
    if joined:
        _write(folder, {"environments": list(joined.values())})


def _write(folder: Path, content: Mapping[str, Any]) -> None:
    (folder / ENVIRONMENT).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@cache
def _driver() -> str:
    """Return the version of the GPU's driver."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
        return done.stdout.split("\n")[0].strip()
    return "unknown"
