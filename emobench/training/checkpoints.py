"""Checkpoints that can be trusted: complete, unaltered, and of the same objective.

A checkpoint counts only with its `digests.json`, which is written last and holds the sha256 of every other file.
The Trainer loads its own files with `weights_only`; here they are compared with their digests before that.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from emobench.config import file_sha256
from emobench.errors import StorageError
from emobench.objectives import Objective

DIGESTS, FROZEN, STATE = "digests.json", "objective.json", "objective.safetensors"


def seal_checkpoint(folder: Path, objective: Objective) -> None:
    """Add the objective's state to a checkpoint that the Trainer wrote, then its digests."""
    state = {name: value.detach().cpu().contiguous().clone() for name, value in objective.state().items()}
    if state:
        safetensors.torch.save_file(state, folder / STATE)
    (folder / FROZEN).write_text(json.dumps(frozen_digests(objective)))
    digests = {str(p.relative_to(folder)): file_sha256(p) for p in sorted(folder.rglob("*")) if p.is_file()}
    part = folder / f"{DIGESTS}.part"
    part.write_text(json.dumps(digests, indent=1))
    part.replace(folder / DIGESTS)


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint, and remove newer incomplete ones.

    Raises StorageError if a complete checkpoint was altered.
    """
    found = sorted(folder.glob("checkpoint-*"), key=_step, reverse=True)
    for checkpoint in found:
        if not (checkpoint / DIGESTS).exists():
            # Every process of a distributed training comes by here.
            shutil.rmtree(checkpoint, ignore_errors=True)
            continue
        verify_checkpoint(checkpoint)
        return checkpoint
    return None


def verify_checkpoint(checkpoint: Path) -> None:
    """Raise StorageError unless each file of a complete checkpoint is as it was written."""
    for name, digest in _read_digests(checkpoint).items():
        if not (checkpoint / name).is_file() or file_sha256(checkpoint / name) != digest:
            raise _altered(checkpoint, name)


def restore_objective(checkpoint: Path, objective: Objective) -> None:
    """Give an objective its state back, and make sure that its costs are those that the checkpoint was trained with."""
    expected, found = json.loads((checkpoint / FROZEN).read_text()), frozen_digests(objective)
    if expected != found:
        changed = ", ".join(sorted(k for k in expected.keys() | found.keys() if expected.get(k) != found.get(k)))
        raise StorageError(
            f"{checkpoint}: the objective's {changed} differs from the one that this training began with; "
            f"give the same pre-trained weights, or delete {checkpoint.parent} to train again."
        )
    if (checkpoint / STATE).exists():
        objective.load_state(safetensors.torch.load_file(checkpoint / STATE))


def frozen_digests(objective: Objective) -> dict[str, str]:
    """Return the sha256 of each tensor that `setup` made from the pre-trained weights."""
    return {name: _tensor_sha256(value) for name, value in objective.frozen_state().items()}


def _read_digests(checkpoint: Path) -> dict[str, str]:
    try:
        return json.loads((checkpoint / DIGESTS).read_text())
    except (OSError, ValueError):
        raise _altered(checkpoint, DIGESTS) from None


def _altered(checkpoint: Path, name: str) -> StorageError:
    return StorageError(
        f"{checkpoint / name} is not as it was written; the checkpoint cannot be trusted. "
        f"Delete {checkpoint} to continue from the one before, or {checkpoint.parent} to train again."
    )


def _tensor_sha256(value: Tensor) -> str:
    return hashlib.sha256(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()


def _step(path: Path) -> int:
    found = re.fullmatch(r"checkpoint-(\d+)", path.name)
    return int(found[1]) if found else -1
