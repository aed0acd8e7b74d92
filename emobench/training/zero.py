"""Training with DeepSpeed, which shares out the optimizer's state and the gradients (ZeRO-2) and the weights (ZeRO-3).

Its checkpoints are its own: a training goes on with the number of processes that wrote them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import parse_flag_from_env
from torch import Tensor

from emobench.training.trainer import ObjectiveTrainer

ALONE = "without DeepSpeed"


class ZeroTrainer(ObjectiveTrainer):
    """Trains a model with DeepSpeed."""

    def __init__(self, *args: Any, precision: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        plugin: Any = self.accelerator.state.deepspeed_plugin
        config = plugin.deepspeed_config
        # The exported model has the weights of all processes.
        config["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] = True
        if precision in ("bfloat16", "float16"):
            # Autocast over float32, as the other engines. The flags of the arguments would make DeepSpeed round the
            # weights, and so the exported ones; here only the objective's engine reads them.
            self.args.bf16, self.args.fp16 = precision == "bfloat16", precision == "float16"
            for name in ("bf16", "fp16"):
                config.pop(name, None)
            config["torch_autocast"] = {"enabled": True, "dtype": precision}

    @property
    def writer(self) -> str:
        """What `writer_of` its checkpoints says."""
        stage = self.accelerator.state.deepspeed_plugin.zero_stage  # type: ignore[union-attr]
        return _shared(self.args.world_size if stage else 0, stage == 3)

    def gather_weights(self) -> dict[str, Tensor]:
        """Return the whole weights in the main process, and nothing in the others. All processes must call it."""
        weights: Any = self.accelerator.get_state_dict(self.model_wrapped)
        return weights or {}


def writer_of(checkpoint: Path) -> str:
    """Return what wrote a checkpoint, as far as that decides what can read it."""
    if not any(checkpoint.glob("global_step*")):
        return ALONE
    count = len(list(checkpoint.glob("global_step*/*_optim_states.pt")))
    return _shared(count, any(checkpoint.glob("global_step*/*zero_pp_rank_*_model_states.pt")))


def _shared(processes: int, weights: bool) -> str:
    if not processes:
        return "by DeepSpeed without ZeRO"
    held = "a share of the weights" if weights else "all weights"
    return f"by DeepSpeed with {processes} processes, each with {held}"


def uses_deepspeed() -> bool:
    """Return whether this process was started for DeepSpeed, as `accelerate launch --use_deepspeed` does."""
    return parse_flag_from_env("ACCELERATE_USE_DEEPSPEED")


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
def whole_models() -> Iterator[None]:
    """Let transformers load whole models here: after a training with ZeRO-3 it loads shares, with the others."""
    from transformers.integrations import deepspeed

    config: Any = deepspeed._hf_deepspeed_config_weak_ref and deepspeed._hf_deepspeed_config_weak_ref()
    deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        if config is not None:
            deepspeed.set_hf_deepspeed_config(config)
