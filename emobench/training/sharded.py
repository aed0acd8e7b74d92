"""Training with FSDP2, which shares out a model's weights among the processes.

Its checkpoints are those of one process: whole weights as safetensors, and the optimizer's state by the place of each
weight. A training therefore goes on with another number of processes, with FSDP or without.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from accelerate import PartialState
from accelerate.utils import DistributedType, parse_flag_from_env
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils._pytree import tree_map
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from emobench.core.errors import ConfigError
from emobench.training.checkpoints import verify_checkpoint
from emobench.training.trainer import ObjectiveTrainer

OPTIMIZER, SCHEDULER, ADAPTERS = "optimizer.pt", "scheduler.pt", "adapter_model.safetensors"
ADAPTER = ".default"
"""The name of the adapter in the names of its weights; files leave it out."""


class ShardedTrainer(ObjectiveTrainer):
    """Trains a model that FSDP2 shards. Raises ConfigError for FSDP1."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        plugin: Any = self.accelerator.state.fsdp_plugin
        if plugin.fsdp_version != 2:
            raise ConfigError("FSDP version 1 is not supported; set fsdp_version to 2, or start with --launch fsdp.")

    def create_accelerator_and_postprocess(self) -> None:
        # accelerate leaves FSDP out on a CPU, and would train with DDP without a word.
        if PartialState().distributed_type == DistributedType.MULTI_CPU:
            PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
        super().create_accelerator_and_postprocess()

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the whole weights, or those of the adapters."""
        weights = gather_weights(self.model, trained_only=_has_adapters(self.model))
        self._save(output_dir, state_dict=weights)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        main, optimizer, schedule = self.args.should_save, *self._schedule()

        def whole(value: Any) -> Any:
            value = value.full_tensor() if isinstance(value, DTensor) else value  # all processes take part
            return value.cpu() if main and isinstance(value, Tensor) else value if main else None

        state = tree_map(whole, optimizer.state_dict())
        if main:
            torch.save(state, Path(output_dir) / OPTIMIZER)
            torch.save(schedule.state_dict(), Path(output_dir) / SCHEDULER)

    def _schedule(self) -> tuple[Any, Any]:
        return self.optimizer, self.lr_scheduler

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        optimizer, schedule = self._schedule()
        # Mapped: each process reads its own share.
        state = torch.load(Path(checkpoint) / OPTIMIZER, map_location="cpu", weights_only=True, mmap=True)
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for place, values in state["state"].items():
            state["state"][place] = {name: _share(value, parameters[place]) for name, value in values.items()}
        optimizer.load_state_dict(state)
        schedule.load_state_dict(torch.load(Path(checkpoint) / SCHEDULER, weights_only=True))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        load_weights(self.model if model is None else model, Path(resume_from_checkpoint))

    def _load_best_model(self) -> None:
        best = Path(str(self.state.best_model_checkpoint))
        verify_checkpoint(best)
        load_weights(self.model, best)


def uses_fsdp() -> bool:
    """Return whether this process was started for FSDP, as `accelerate launch --use_fsdp` does."""
    return parse_flag_from_env("ACCELERATE_USE_FSDP")


def gather_weights(model: Any, *, trained_only: bool = False) -> dict[str, Tensor]:
    """Return the whole weights of a sharded model in the main process, on the CPU, and nothing in the others.

    Of tied weights, one is left out. All processes must call it.
    """
    options = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=trained_only)
    weights: Any = get_model_state_dict(model, options=options)
    tied = () if _has_adapters(model) else model.all_tied_weights_keys
    return {name: value for name, value in weights.items() if name not in tied}


def load_weights(model: Any, folder: Path) -> None:
    """Load the whole weights of a checkpoint, or its adapters, into a sharded model. All processes must call it."""
    main = torch.distributed.get_rank() == 0
    weights: Any = _read(folder) if main else {}
    if _has_adapters(model):
        names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        weights = {name: weights[name.replace(ADAPTER, "")] for name in names} if main else {}
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)
    set_model_state_dict(model, weights, options=options)


def _read(folder: Path) -> dict[str, Tensor]:
    for name in (ADAPTERS, SAFE_WEIGHTS_NAME):
        if (folder / name).exists():
            return safetensors.torch.load_file(folder / name)
    pattern = SAFE_WEIGHTS_INDEX_NAME.replace(".safetensors.index.json", "-*.safetensors")
    return {n: v for path in sorted(folder.glob(pattern)) for n, v in safetensors.torch.load_file(path).items()}


def _share(value: Any, parameter: Tensor) -> Any:
    """Return this process's share of a state of a parameter, without communication."""
    if not isinstance(parameter, DTensor) or not isinstance(value, Tensor) or value.shape != parameter.shape:
        return value
    mesh = parameter.device_mesh
    return distribute_tensor(value.to(mesh.device_type), mesh, parameter.placements, src_data_rank=None)


def _has_adapters(model: Any) -> bool:
    return hasattr(model, "peft_config")
