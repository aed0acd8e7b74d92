"""Sharded models train as whole ones: FSDP2 and ZeRO-3 gather the head where the loss runs.

Two processes that share out the parameters give the weights of one process that holds them all. On a CPU accelerate
would ignore FSDP without a word, so each sharded training here checks first that its parameters are shares.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from emobench.core.errors import ModelError, RunError
from emobench.data.packing import RowCollator
from emobench.models.head import probe_head
from emobench.training.attach import attach
from emobench.training.context import TrainingContext
from emobench.training.recipe import Lora
from emobench.training.train import train
from emobench_objectives.emo import Emo
from emobench_objectives.emo_official import Emo1Adaptive
from emobench_objectives.mle import Mle

OBJECTIVES = {"mle": Mle, "emo": Emo, "emo-1-adaptive": Emo1Adaptive}
# Tied; untied; untied and with a bias.
FSDP_CASES = [("gpt2", name, torch.float64) for name in OBJECTIVES]
FSDP_CASES += [("phi", "emo", torch.float64), ("llama", "emo", torch.float32)]
# DeepSpeed has no float64.
ZERO_CASES = [("gpt2", name, torch.float32) for name in OBJECTIVES] + [("llama", "emo-1-adaptive", torch.float32)]
STEPS, BATCH = 3, 8
FSDP = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP"}

TRAININGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "tied": ("gpt2", "emo", {"epochs": 2, "accumulation": 2, "select": "objective"}),
    "clipped": ("llama", "emo-1-adaptive", {"epochs": 2, "accumulation": 2, "clip": 0.5, "select": "last"}),
    "lora": ("llama", "emo", {"epochs": 2, "lora": Lora(rank=4, dropout=0.0)}),
}
NUMBERS = ("loss", "grad_norm", "eval_mle")
"""Of a line of the log."""
STOPPED = ("tied", "lora")
"""Those that are also stopped by one number of processes, and go on with the other."""

CHILD = """
import runpy, sys
from pathlib import Path
kit = runpy.run_path(sys.argv[1])["KIT"]
runpy.run_path(sys.argv[2])[sys.argv[3]](kit, Path(sys.argv[4]))
"""


@pytest.mark.slow
def test_fsdp_trains_as_one_whole_process(kit: SimpleNamespace, tmp_path: Path) -> None:
    for name in STOPPED:
        interrupt(kit, tmp_path / "written-whole", name)
    in_two_processes(kit, "under_fsdp", tmp_path, **FSDP)
    compare(kit, FSDP_CASES, tmp_path)
    for name in STOPPED:
        assert (tmp_path / "written-sharded" / name / "checkpoints").is_dir()
        train(job(kit, tmp_path / "written-sharded" / name, name))
    for name in TRAININGS:
        train(job(kit, tmp_path / "whole" / name, name))
    for folder in (tmp_path / "sharded", tmp_path / "written-whole", tmp_path / "written-sharded"):
        for name in TRAININGS if folder.name == "sharded" else STOPPED:
            whole = tmp_path / "whole" / name
            assert kit.difference(kit.saved(folder / name), kit.saved(whole)) < 1e-9, (folder, name)
            lines, expected = kit.log_of(folder / name), kit.log_of(whole)
            assert len(lines) == len(expected)
            for line, expected_line in zip(lines, expected, strict=True):
                found, wanted = ({key: one[key] for key in NUMBERS if key in one} for one in (line, expected_line))
                assert found == pytest.approx(wanted, rel=1e-9), (folder, name, line)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed")
def test_zero3_trains_as_one_whole_process(kit: SimpleNamespace, tmp_path: Path) -> None:
    in_two_processes(kit, "under_zero3", tmp_path, DS_ACCELERATOR="cpu")
    compare(kit, ZERO_CASES, tmp_path)
    train(job(kit, tmp_path / "whole", "clipped", dtype=torch.float32))
    # Adam divides by the gradient's own size: rounding weighs more than in the steps above.
    assert kit.difference(kit.saved(tmp_path / "zero3"), kit.saved(tmp_path / "whole")) < 1e-5


def compare(kit: Any, cases: list[tuple[str, str, torch.dtype]], folder: Path) -> None:
    """Hold what two processes saved against one process that holds everything."""
    heads: dict[tuple[str, str, torch.dtype], Tensor] = {}
    for case in cases:
        kind, name, dtype = case
        model, attached = prepared(kit, *case)
        expected = taught(kit, model, attached, torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9))
        expected |= model.state_dict()
        if name == "emo":
            head_VD = kit.tiny(kind, dtype=dtype).get_output_embeddings().weight.detach()
            torch.testing.assert_close(expected["cost_VD"], F.normalize(head_VD))
        found = load_file(folder / f"{kind}-{name}-{dtype}.safetensors")
        assert kit.difference(found, expected) < (1e-6 if dtype == torch.float32 else 1e-13), case
        heads[case] = found["lm_head.weight"]
    # Equal for a reason: another objective gives other weights.
    for one, other in combinations(heads, 2):
        if (one[0], one[2]) == (other[0], other[2]):
            assert float((heads[one] - heads[other]).abs().max()) > 1e-4, (one, other)


def in_two_processes(kit: Any, function: str, folder: Path, **environment: str) -> None:
    """Run `function(kit, folder)` of this file in two processes that know of each other."""
    kit.in_two_processes("-c", CHILD, kit.path, __file__, function, folder, **environment)


def refuse(name: str) -> Tensor:
    raise AssertionError(f"The head of {name} is not needed.")


def prepared(kit: Any, kind: str, name: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """Return a model that holds all its weights, with the objective attached."""
    model = kit.tiny(kind, dtype=dtype)
    head = probe_head(model)
    objective = OBJECTIVES[name]()
    objective.setup(TrainingContext(head, STEPS, True, refuse, model))
    return model.train(), attach(model, objective, head, evaluate_loss=True)


def micro_batches(kit: Any, step: int) -> Iterator[dict[str, Tensor]]:
    """Yield this process's micro-batches of a step: two of a quarter each, or one of the whole where it is alone."""
    rows = kit.ragged(STEPS * BATCH)[step * BATCH : (step + 1) * BATCH]
    count = torch.tensor(sum(int((row["labels"][1:] != -100).sum()) for row in rows))
    for part in [rows] if processes() == 1 else [rows[dist.get_rank() + i :: 4] for i in (0, 2)]:
        yield {n: v for n, v in RowCollator(0)(part).items() if n != "row"} | {"num_items_in_batch": count}


def processes() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def taught(
    kit: Any, model: Any, attached: Any, optimizer: Any, backward: Callable[[Tensor], Any] = Tensor.backward
) -> dict[str, Tensor]:
    """Take steps with validations between them; return the last validation's sums and the cost embedding."""
    validation = {n: v for n, v in RowCollator(0)(kit.ragged(6, seed=1)).items() if n != "row"}
    for step in range(STEPS):
        for batch in micro_batches(kit, step):
            backward(model(**batch).loss * processes())  # as the Trainer does: gradients are means over processes
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            model(**validation)
        model.train()
    sums, cost = attached.evaluated, getattr(attached.objective, "cost_embedding", None)
    found = {"mle_B": sums.mle_B, "loss_B": sums.loss_B, "tokens_B": sums.tokens_B}
    return found if cost is None else found | {"cost_VD": cost.rows_VE}


def save(found: Mapping[str, Any], path: Path) -> None:
    if dist.get_rank() == 0:
        save_file({n: v.detach().clone() for n, v in found.items()}, path)


def under_fsdp(kit: Any, folder: Path) -> None:
    dist.init_process_group("gloo")
    for kind, name, dtype in FSDP_CASES:
        model, attached = prepared(kit, kind, name, dtype)
        shard(model)
        found = taught(kit, model, attached, torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9))
        found |= get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        save(found, folder / f"{kind}-{name}-{dtype}.safetensors")
    under_trainer(kit, folder)


def shard(model: Any) -> None:
    """Share out the parameters: a group for each layer, one for an untied head, and the root's with the rest."""
    base, head = model.base_model, model.get_output_embeddings()
    for layer in base.h if hasattr(base, "h") else base.layers:
        fully_shard(layer)
    if head.weight is not model.get_input_embeddings().weight:
        fully_shard(head)
    fully_shard(model)
    check_shares(model)


def check_shares(model: Any) -> None:
    whole = [n for n, p in model.named_parameters() if not isinstance(p, DTensor) or p.to_local().numel() == p.numel()]
    assert not whole, f"not sharded: {whole}"


def under_zero3(kit: Any, folder: Path) -> None:
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # a minute to compile, and gloo does
    dist.init_process_group("gloo")
    deepspeed.init_distributed("gloo")
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": BATCH // 4,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 0.0,  # the default clips
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    for kind, name, dtype in ZERO_CASES:
        model, attached = prepared(kit, kind, name, dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config, dist_init_required=False)
        parameters: list[Any] = list(model.parameters())
        assert all(p.numel() == 0 and p.ds_tensor.numel() < p.ds_numel for p in parameters), "not sharded"

        def backward(loss: Tensor, engine: Any = engine) -> None:
            engine.backward(loss, scale_wrt_gas=False)
            engine.step()

        found = taught(kit, engine, attached, None, backward)
        with deepspeed.zero.GatheredParameters(parameters):
            save(found | model.state_dict(), folder / f"{kind}-{name}-{dtype}.safetensors")
    zero3_under_trainer(kit, folder, config)
    dist.destroy_process_group()


def zero3_under_trainer(kit: Any, folder: Path, config: dict[str, Any]) -> None:
    sharded = job(kit, folder / "zero3", "clipped", dtype=torch.float32)
    sizes = {"train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"}
    path = folder / f"deepspeed-{dist.get_rank()}.json"
    path.write_text(json.dumps(config | dict.fromkeys(sizes, "auto")))
    os.environ |= {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_CONFIG_FILE": str(path)}
    train(sharded)
    assert all(p.numel() == 0 and p.ds_numel > 0 for p in sharded.model.parameters()), "not sharded"
    # From here on transformers makes models in shares, whose head is no whole one.
    with pytest.raises(ModelError, match=r"its weight has shape \(0,\).* Load the whole weight, 61 x 16, first"):
        train(job(kit, folder / "shares", "clipped", dtype=torch.float32))


def job(kit: Any, folder: Path, name: str, dtype: torch.dtype = torch.float64, **values: Any) -> Any:
    kind, objective, recipe = TRAININGS[name]
    recipe = recipe | values.pop("recipe", {})
    return kit.job(
        folder, model=kit.tiny(kind, dtype=dtype), objective=OBJECTIVES[objective](), recipe=recipe, **values
    )


def interrupt(kit: Any, folder: Path, name: str, watch: Callable[[Any], None] = lambda model: None) -> None:
    """Stop a training in its second epoch, after five steps of six, as Ctrl-C after the fourth does."""

    def progress(line: dict[str, float]) -> None:
        if "loss" in line:  # after a validation, the last unit is whole until the next backward
            watch(stopped.model)
        if line["step"] == 4 and "loss" in line:
            signal.raise_signal(signal.SIGINT)

    stopped = job(kit, folder / name, name, progress=progress)
    try:
        train(stopped)
    except KeyboardInterrupt:
        return
    raise AssertionError("not interrupted")


class Communication(TorchDispatchMode):
    """Counts the calls that exchange tensors between processes."""

    calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += func.namespace in ("c10d", "_c10d_functional")
        return func(*args, **(kwargs or {}))


def under_trainer(kit: Any, folder: Path) -> None:
    for name in STOPPED:
        interrupt(kit, folder / "written-sharded", name, watch=check_shares)
        train(job(kit, folder / "written-whole" / name, name))
    calls = {}
    for name in TRAININGS:
        train(job(kit, folder / "sharded" / name, name))
    for objective in ("mle", "emo"):
        model = kit.tiny("llama")
        values = {"objective": OBJECTIVES[objective](), "recipe": {"select": "last"}, "train": kit.ragged(8)}
        with Communication() as counter:
            train(kit.job(folder / objective, model=model, **values))
        calls[objective] = counter.calls
    # The cost rows are there before the weights are shared out: EMO communicates as often as MLE.
    assert calls["emo"] == calls["mle"] > 0, calls

    # What was trained is lost between the last step and the file: the training does not end.
    lossy = job(kit, folder / "lossy", "clipped")
    lossy.model.save_pretrained = lambda place, **_: kit.tiny("llama").save_pretrained(place)
    error, message = (
        (RunError, "does not hold the model that was trained") if dist.get_rank() == 0 else (Exception, None)
    )
    with pytest.raises(error, match=message):
        train(lossy)
    os._exit(0)  # the others are still waiting
