"""Checkpoints that are complete, unchanged and from the same objective.

A checkpoint is valid only with its seal. The seal is written last and contains the sha256 of every other file. The
digests are compared before the Trainer loads the files (with `weights_only`).
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import safetensors.torch
import torch

from emobench.core.errors import StorageError
from emobench.core.seals import SEAL, Damage, find_damage, write_seal
from emobench.objectives import Objective
from emobench.training.curves import LOG

FROZEN, STATE = "objective.json", "objective.safetensors"


def seal_checkpoint(folder: Path, objective: Objective, log: Path | None = None) -> None:
    """Add the objective's state, a copy of the log and the seal to a checkpoint that the Trainer wrote."""
    state = {name: value.detach().cpu().contiguous().clone() for name, value in objective.state().items()}
    if state:
        safetensors.torch.save_file(state, folder / STATE)
    (folder / FROZEN).write_text(json.dumps(frozen_digests(objective)))
    if log is not None:
        shutil.copyfile(log, folder / LOG)
    write_seal(folder)


def last_checkpoint(folder: Path, note: Callable[[str], None] = lambda text: None) -> Path | None:
    """Return the newest valid checkpoint, and remove the newer ones. `note` receives the reason.

    A checkpoint is also invalid if the best checkpoint before it is damaged: it would select other weights.
    """
    numbered: dict[int, Path] = {}
    for path in folder.glob("checkpoint-*"):
        step = path.name.removeprefix("checkpoint-")
        if step.isdecimal():
            numbered[int(step)] = path
    for _, checkpoint in sorted(numbered.items(), reverse=True):
        damage = _damage(checkpoint)
        if damage is None:
            return checkpoint
        if (checkpoint / SEAL).exists():
            note(f"{damage}: {checkpoint.name} is dropped, and the training continues from the one before it")
        # Every process of a distributed training runs this.
        shutil.rmtree(checkpoint, ignore_errors=True)
    return None


def verify_checkpoint(checkpoint: Path) -> None:
    """Raise StorageError unless each file of a complete checkpoint is unchanged."""
    damage = find_damage(checkpoint, full=True)
    if damage is not None:
        raise StorageError(f"{damage}. Run the same command again: it continues from the checkpoint before it.")


def _damage(checkpoint: Path) -> Damage | None:
    """Return the damage of a checkpoint, or of the best checkpoint before it."""
    damage = find_damage(checkpoint, full=True)
    state = checkpoint / "trainer_state.json"
    if damage is not None or not state.exists():
        return damage
    best = json.loads(state.read_text()).get("best_global_step")
    best_folder = checkpoint.with_name(f"checkpoint-{best}")
    if not best or best_folder == checkpoint:
        return None
    return find_damage(best_folder, full=True)


def restore_objective(checkpoint: Path, objective: Objective) -> None:
    """Restore an objective's state. Raises StorageError if its frozen tensors differ from the checkpoint's."""
    expected = json.loads((checkpoint / FROZEN).read_text())
    actual = frozen_digests(objective)
    changed = [name for name in sorted({*expected, *actual}) if expected.get(name) != actual.get(name)]
    if changed:
        raise StorageError(
            f"{checkpoint}: the objective's {', '.join(changed)} differs from the one that this training began with; "
            f"give the same pre-trained weights, or delete {checkpoint.parent} to train again."
        )
    if (checkpoint / STATE).exists():
        objective.load_state(safetensors.torch.load_file(checkpoint / STATE))


def frozen_digests(objective: Objective) -> dict[str, str]:
    """Return the sha256 of each tensor of `Objective.frozen_state`."""
    digests = {}
    for name, value in objective.frozen_state().items():
        content = value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
        digests[name] = hashlib.sha256(content).hexdigest()
    return digests
