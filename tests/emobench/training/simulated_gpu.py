"""A GPU without float64 that lies elsewhere than the CPU's memory, simulated: what a training does there, and compares.

Run as a program, because the device is registered for the whole process. Its tensors wrap tensors of the CPU. An
operation that makes float64, or mixes tensors of two devices, is refused, as on an Apple GPU. Prints JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
from transformers import GPT2Config, GPT2LMHeadModel

from emobench.models import device
from emobench.models.head import probe_head
from emobench.objectives import CostEmbedding
from emobench.registry import load_objective
from emobench.training.attach import attach

NAME = "applegpu"


class OnGpu(torch.Tensor):
    """A tensor of the device."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> OnGpu:
        made = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=torch.device(NAME, 0)
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def computed(func: Any, args: Any, kwargs: Any) -> Any:
    """Return the result of an operation, on the device if its inputs or its `device` are."""
    mine: list[OnGpu] = []
    others: list[torch.Tensor] = []
    name, target = func.overloadpacket.__name__, kwargs.get("device")

    def inner(value: Any) -> Any:
        if isinstance(value, OnGpu):
            mine.append(value)
            return value.inner
        if isinstance(value, torch.Tensor):
            others.append(value)
        return torch.device("cpu") if isinstance(value, torch.device) and value.type == NAME else value

    result = func(*tree_map(inner, args), **tree_map(inner, kwargs))
    if mine and name not in ("_to_copy", "copy_") and any(other.dim() for other in others):
        raise RuntimeError(f"{name}: tensors on two devices")
    known = {id(one.inner): one for one in mine}
    on_gpu = target.type == NAME if isinstance(target, torch.device) else bool(mine)

    def outer(value: Any) -> Any:
        if not on_gpu or not isinstance(value, torch.Tensor):
            return value
        if value.dtype == torch.float64:
            raise TypeError(f"{name}: the device has no float64")
        return known[id(value)] if id(value) in known else OnGpu(value)

    return tree_map(outer, result)


class Simulated(TorchDispatchMode):
    """Lets operations without a tensor, such as torch.zeros, make tensors of the device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def trained(objective: str, place: str) -> dict[str, Any]:
    """Return the loss, gradients, logged sums and validation sums of a step."""
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 37,
        "n_positions": 16,
        "n_embd": 8,
        "n_layer": 1,
        "n_head": 2,
        "bos_token_id": 1,
        "eos_token_id": 1,
    }
    model = GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)).to(place)
    model.tie_weights()  # a copy to the simulated device unties them
    ids_BT = torch.arange(24).reshape(2, 12).remainder(37).to(place)
    loaded = load_objective(objective, {}).objective
    if "expected_cost" in loaded.needs:
        loaded.cost_embedding = CostEmbedding(model.lm_head.weight.detach().clone())  # type: ignore[attr-defined]
    head = probe_head(model)
    attached = attach(model, loaded, head)
    model.train()
    tokens = torch.tensor(22).to(place)
    loss = model(input_ids=ids_BT, labels=ids_BT, num_items_in_batch=tokens).loss
    loss.backward()
    sums = {name: float(value) for sums in attached.window for name, value in sums.items()}
    gradients = [float(weight.grad.cpu().double().norm()) for weight in model.parameters()]
    model.eval()
    with torch.no_grad():
        model(input_ids=ids_BT, labels=ids_BT)
    evaluated = [value.cpu().tolist() for value in attached.evaluated]
    return {
        "device": loss.device.type,
        "loss": float(loss.detach()),
        "sums": sums,
        "gradients": gradients,
        "sequences": evaluated,
    }


if __name__ == "__main__":
    _setup_privateuseone_for_python_backend(NAME)
    torch.get_device_module(NAME).get_amp_supported_dtype = lambda: [torch.float16]
    device.WITHOUT_FLOAT64.add(NAME)
    report = {name: [trained(name, "cpu")] for name in sys.argv[1:]}
    with Simulated():
        for name in sys.argv[1:]:
            report[name].append(trained(name, NAME))
    print(json.dumps(report))
