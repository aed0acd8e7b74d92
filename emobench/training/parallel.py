"""Several processes that train together: with DDP, with FSDP2 (shared weights), or with DeepSpeed (ZeRO-2 and ZeRO-3).

Each row of an epoch is trained on once, in the batches of one process.

Checkpoints of FSDP2 are those of one process: complete weights as safetensors, and the optimizer's state by the place
of each weight. A training therefore continues with another number of processes, with FSDP or without. Checkpoints of
DeepSpeed are its own: a training continues with the number of processes that wrote them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from accelerate import PartialState
from accelerate.data_loader import SeedableRandomSampler
from accelerate.utils import DistributedType, parse_flag_from_env
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils._pytree import tree_map
from torch.utils.data import Sampler
from transformers import Trainer
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from emobench.core.errors import ConfigError, StorageError
from emobench.data.packing import IGNORE
from emobench.training.checkpoints import verify_checkpoint

OPTIMIZER, SCHEDULER, ADAPTERS = "optimizer.pt", "scheduler.pt", "adapter_model.safetensors"
ADAPTER = ".default"
"""The name of the adapter in the names of its weights; files leave it out."""


def process_count() -> int:
    """Return the number of processes that train together: 1 without torchrun."""
    if torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    return int(os.environ.get("WORLD_SIZE", "1"))


def uses_fsdp() -> bool:
    """Return whether this process was started for FSDP, as `accelerate launch --use_fsdp` does."""
    return parse_flag_from_env("ACCELERATE_USE_FSDP")


def uses_deepspeed() -> bool:
    """Return whether this process was started for DeepSpeed, as `accelerate launch --use_deepspeed` does."""
    return parse_flag_from_env("ACCELERATE_USE_DEEPSPEED")


class FilledRows:
    """The rows of a training. From the index `len(rows)` on, they are fillers: rows without a target, of weight 0.

    The last batch of an epoch may have fewer rows than the processes need. accelerate would complete it with rows of
    the first batch, which would be trained on twice.
    """

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self._filler = {**rows[0], "labels": np.full_like(rows[0]["labels"], IGNORE)}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Any:
        if index < len(self._rows):
            return self._rows[index]
        return self._filler


class FilledSampler(Sampler[int]):
    """The order in which one process reads the rows of each epoch, then fillers up to a multiple of `multiple`."""

    def __init__(self, rows: Any, seed: int, multiple: int) -> None:
        self._order = SeedableRandomSampler(rows, generator=torch.Generator(), data_seed=seed)
        self._rows = len(rows)
        self._fillers = -len(rows) % multiple

    def __len__(self) -> int:
        return self._rows + self._fillers

    def __iter__(self) -> Iterator[int]:
        yield from self._order
        yield from [self._rows] * self._fillers

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, which has an order of its own."""
        self._order.set_epoch(epoch)


class Sharded(Trainer):
    """The part of a trainer that FSDP2 needs. Raises ConfigError for FSDP1."""

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

    def gather_weights(self, *, trained_only: bool = False) -> dict[str, Tensor]:
        """Return the complete weights on the main process's CPU; nothing in the others. All processes must call it.

        One of several tied weights is left out.
        """
        options = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=trained_only)
        model: Any = self.model
        weights: Any = get_model_state_dict(model, options=options)
        tied = () if _has_adapters(model) else model.all_tied_weights_keys
        return {name: value for name, value in weights.items() if name not in tied}

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the complete weights, or the adapters."""
        self._save(output_dir, state_dict=self.gather_weights(trained_only=_has_adapters(self.model)))

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        main = self.args.should_save
        optimizer: Any = self.optimizer
        schedule: Any = self.lr_scheduler

        def complete(value: Any) -> Any:
            if isinstance(value, DTensor):
                value = value.full_tensor()  # all processes take part
            if not main:
                return None
            if isinstance(value, Tensor):
                return value.cpu()
            return value

        state = tree_map(complete, optimizer.state_dict())
        if main:
            torch.save(state, Path(output_dir) / OPTIMIZER)
            torch.save(schedule.state_dict(), Path(output_dir) / SCHEDULER)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        optimizer: Any = self.optimizer
        schedule: Any = self.lr_scheduler
        # Mapped: each process reads its own share.
        state = torch.load(Path(checkpoint) / OPTIMIZER, map_location="cpu", weights_only=True, mmap=True)
        parameters = list(chain.from_iterable(group["params"] for group in optimizer.param_groups))
        for place, values in state["state"].items():
            for name, value in values.items():
                values[name] = _share(value, parameters[place])
        optimizer.load_state_dict(state)
        schedule.load_state_dict(torch.load(Path(checkpoint) / SCHEDULER, weights_only=True))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        load_weights(model or self.model, Path(resume_from_checkpoint))

    def _load_best_model(self) -> None:
        best = Path(str(self.state.best_model_checkpoint))
        verify_checkpoint(best)
        load_weights(self.model, best)


def load_weights(model: Any, folder: Path) -> None:
    """Load the complete weights of a checkpoint, or its adapters, into a sharded model. All processes must call it."""
    weights: Any = {}
    if torch.distributed.get_rank() == 0:
        files = [folder / name for name in (ADAPTERS, SAFE_WEIGHTS_NAME) if (folder / name).exists()]
        shards = SAFE_WEIGHTS_INDEX_NAME.replace(".safetensors.index.json", "-*.safetensors")
        for path in files[:1] or sorted(folder.glob(shards)):
            weights |= safetensors.torch.load_file(path)
        if _has_adapters(model):
            names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
            weights = {name: weights[name.replace(ADAPTER, "")] for name in names}
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)
    set_model_state_dict(model, weights, options=options)


def _share(value: Any, parameter: Tensor) -> Any:
    """Return this process's share of a state of a parameter, without communication."""
    if not isinstance(parameter, DTensor) or not isinstance(value, Tensor) or value.shape != parameter.shape:
        return value
    mesh = parameter.device_mesh
    return distribute_tensor(value.to(mesh.device_type), mesh, parameter.placements, src_data_rank=None)


def _has_adapters(model: Any) -> bool:
    return hasattr(model, "peft_config")


class Zero(Trainer):
    """The part of a trainer that DeepSpeed needs: `precision` is the recipe's, by autocast."""

    def __init__(self, *args: Any, precision: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        plugin: Any = self.accelerator.state.deepspeed_plugin
        config = plugin.deepspeed_config
        # The exported model has the weights of all processes.
        config["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] = True
        if precision in ("bfloat16", "float16"):
            # Autocast over float32, as without DeepSpeed. The flags of the arguments would make DeepSpeed round the
            # weights, and so the exported ones; here only the objective's engine reads them.
            self.args.bf16, self.args.fp16 = precision == "bfloat16", precision == "float16"
            for name in ("bf16", "fp16"):
                config.pop(name, None)
            config["torch_autocast"] = {"enabled": True, "dtype": precision}

    def gather_weights(self) -> dict[str, Tensor]:
        """Return the complete weights in the main process, nothing in the others. All processes must call it."""
        weights: Any = self.accelerator.get_state_dict(self.model_wrapped)
        return weights or {}


def refuse_other_checkpoint(checkpoint: Path, trainer: Trainer) -> None:
    """Raise StorageError for a checkpoint that a trainer cannot read: DeepSpeed's are for it alone."""
    before = now = "without DeepSpeed"
    if any(checkpoint.glob("global_step*")):
        count = len(list(checkpoint.glob("global_step*/*_optim_states.pt")))
        before = _writer(count, weights=any(checkpoint.glob("global_step*/*zero_pp_rank_*_model_states.pt")))
    if isinstance(trainer, Zero):
        stage = trainer.accelerator.state.deepspeed_plugin.zero_stage  # type: ignore[union-attr]
        now = _writer(trainer.args.world_size if stage else 0, weights=stage == 3)
    if before != now:
        raise StorageError(
            f"{checkpoint} was written {before}, and this training is run {now}; start it as it was started before, or "
            f"delete {checkpoint.parent} to train again."
        )


def _writer(processes: int, *, weights: bool) -> str:
    """Return the writer of a checkpoint, as far as that decides which processes can read it."""
    if not processes:
        return "by DeepSpeed without ZeRO"
    held = "a share of the weights" if weights else "all weights"
    return f"by DeepSpeed with {processes} processes, each with {held}"


def join_without_gpu() -> None:
    """Configure accelerate's state: with DeepSpeed and no GPU, it would take each process for the only one."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed  # type: ignore[import-not-found]

    # Its own sums in shared memory need a compiler, and a minute of it.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo")
    state = PartialState()
    state.num_processes, state.process_index = torch.distributed.get_world_size(), torch.distributed.get_rank()
    state.local_process_index = state.process_index


@contextmanager
def complete_models() -> Iterator[None]:
    """Let transformers load complete models: after a training with ZeRO-3 it loads shares, with the other processes."""
    from transformers.integrations import deepspeed

    config: Any = deepspeed._hf_deepspeed_config_weak_ref and deepspeed._hf_deepspeed_config_weak_ref()
    deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        if config is not None:
            deepspeed.set_hf_deepspeed_config(config)
