"""The LM head of a causal model: where it is, what it is fed, and how its raw output becomes logits.

Names cannot be trusted: `logits_scaling` divides in Granite and multiplies in HyperCLOVAX, and some classes cap their
logits without saying so in their configuration. So `probe_head` measures, and refuses what it cannot explain.

Legend: B batch, T positions, D hidden width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from emobench.errors import ModelError

# Configuration fields that hold c of c * tanh(z / c), and those that scale (or divide) the raw output of the head.
CAP_FIELDS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
SCALE_FIELDS = ("logits_scaling", "logit_scale", "lm_head_multiplier", "output_multiplier")
# Largest |raw logit| of the probe: a cap of up to 1,500 bends the line by more than the tolerance.
PROBE_RAW_MAX = 50.0
# Largest |predicted - seen| / max |seen|, by the precision of the logits.
TOLERANCES = {torch.float64: 2e-4, torch.float32: 2e-4, torch.float16: 4e-3, torch.bfloat16: 2e-2}


@dataclass(frozen=True)
class LogitMap:
    """What a model does to the head's raw output: scale * raw, or cap * tanh(scale * raw / cap)."""

    scale: float = 1.0
    cap: float | None = None

    def apply(self, raw: Tensor) -> Tensor:
        """Return the logits for raw outputs of the head, of any shape; differentiable, in the dtype of `raw`."""
        scaled = raw if self.scale == 1.0 else raw * self.scale
        return scaled if self.cap is None else self.cap * torch.tanh(scaled / self.cap)


@dataclass(frozen=True)
class Head:
    """A model's LM head: logits_NV = logit_map.apply(linear(hidden_ND)); the linear layer may have a bias."""

    linear: nn.Linear
    logit_map: LogitMap = LogitMap()
    vocabulary: int | None = None
    """Rows that stand for tokens; those behind them are padding. None: all of them."""

    @property
    def tokens(self) -> int:
        """The number of tokens that the head tells apart."""
        return self.linear.out_features if self.vocabulary is None else self.vocabulary


def final_hidden(model: nn.Module, **inputs: Any) -> Tensor:
    """Return hidden_BTD, the head's input for `input_ids` (and `attention_mask`), without making logits.

    A PEFT model is looked through: its adapters sit inside the base model.
    """
    return base_outputs(model, **inputs, use_cache=False)[0]


def base_outputs(model: nn.Module, **inputs: Any) -> Any:
    """Return all outputs of the model without its head; the first one is hidden_BTD."""
    return base_model(model)(**inputs)


def base_model(model: nn.Module) -> Any:
    """Return the model without its head. A PEFT model is looked through."""
    return _bare(model).base_model


def token_count(tokenizer: Any) -> int:
    """Return one more than the largest id of a tokenizer: rows of a head from there on are padding."""
    return 1 + max(tokenizer.get_vocab().values())


def probe_head(model: nn.Module, tokenizer: Any = None) -> Head:
    """Find the LM head and the map to logits by running the model once on eight random ids.

    With its tokenizer, rows of the head that stand for no token are found to be padding.

    The head's input is replaced by a random one with raw outputs of up to +-50, so that a cap shows. The weights must
    be loaded and whole (not sharded). Modes, hooks and random states are left as they were.
    Raises ModelError, with the model's class and what was found, unless: the head is a plain nn.Linear, called once, on
    exactly `base_model(...)[0]`; and the logits are one scale, and one cap that the configuration declares, of its
    output (relative error under 2e-4 in float32).
    """
    bare = _bare(model)
    linear = _find_linear(bare)
    probe = _observe(bare, linear)
    rows = linear.out_features
    tokens = rows if tokenizer is None else min(rows, token_count(tokenizer))
    return Head(linear, _fit(bare, linear, probe), None if tokens == rows else tokens)


@dataclass(frozen=True)
class _Probe:
    hidden_BTD: Tensor  # what the head was fed, before it was replaced
    probe_BTD: Tensor  # what it was fed instead
    logits_BTV: Tensor
    base_BTD: Tensor  # base_model(...)[0]


def _bare(model: nn.Module) -> Any:
    get_base = getattr(model, "get_base_model", None)
    return get_base() if callable(get_base) else model


def _config(model: nn.Module) -> Any:
    config: Any = model.config
    return config.get_text_config(decoder=True)


def _refusal(model: nn.Module, found: str, advice: str = "Use a causal model with a plain linear head.") -> ModelError:
    return ModelError(f"The LM head of {type(model).__name__} cannot be used: {found} {advice}")


def _find_linear(model: Any) -> nn.Linear:
    if getattr(model.config, "is_encoder_decoder", False):
        raise _refusal(model, "it is an encoder-decoder model.")
    if getattr(_config(model), "output_router_logits", False):
        raise _refusal(
            model,
            "its configuration asks for a mixture-of-experts auxiliary loss, which an objective would drop.",
            "Set `output_router_logits` to false in its config.json.",
        )
    get_head = getattr(model, "get_output_embeddings", None)
    head: Any = get_head() if callable(get_head) else None
    if head is None:
        raise _refusal(model, "it has no output embeddings.")
    # Exactly Linear: an adapter's or a quantised layer's `.weight` is not what its forward multiplies by.
    if type(head) is not nn.Linear:
        found = f"it is a {type(head).__module__}.{type(head).__name__}, not a torch.nn.Linear."
        raise _refusal(model, found, "Keep adapters and quantisation off the head.")
    if head.weight.is_meta or head.weight.shape != (head.out_features, head.in_features):
        found = f"its weight has shape {tuple(head.weight.shape)} on device '{head.weight.device.type}'."
        raise _refusal(model, found, f"Load the whole weight, {head.out_features} x {head.in_features}, first.")
    return head


def _observe(model: Any, linear: nn.Linear) -> _Probe:
    """Run the base model, and the model with the head's input replaced, in eval mode without gradients."""
    seen: list[tuple[Tensor, Tensor]] = []
    generator = torch.Generator().manual_seed(0)
    device = linear.weight.device

    def replace(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        hidden = args[0]
        probe = _large_input(model, linear, hidden, generator)
        seen.append((hidden, probe))
        return (probe, *args[1:])

    rows = model.get_input_embeddings().weight.shape[0]
    ids_BT = torch.randint(rows, (1, 8), generator=generator).to(device)
    devices = [device] if device.type == "cuda" else []
    with torch.no_grad(), torch.random.fork_rng(devices), _eval_mode(model):
        base_BTD = final_hidden(model, input_ids=ids_BT)
        handle = linear.register_forward_pre_hook(replace)
        try:
            logits_BTV = model(input_ids=ids_BT, use_cache=False).logits
        finally:
            handle.remove()
    if len(seen) != 1:
        raise _refusal(model, f"one forward pass called it {len(seen)} times, not once.")
    return _Probe(*seen[0], logits_BTV, base_BTD)


def _large_input(model: Any, linear: nn.Linear, hidden: Tensor, generator: torch.Generator) -> Tensor:
    """Return a random input of the head, shaped as `hidden`, whose largest |raw output| is about 50."""
    unit = torch.randn(hidden.shape, generator=generator).to(hidden)
    largest = F.linear(unit, linear.weight).abs().max().item()
    if not largest > 0:
        raise _refusal(model, "its weight is all zeros or not finite.", "Load trained weights.")
    return unit * (PROBE_RAW_MAX / largest)


def _fit(model: Any, linear: nn.Linear, probe: _Probe) -> LogitMap:
    tolerance = TOLERANCES.get(linear.weight.dtype, 2e-4)
    if not probe.hidden_BTD.isfinite().all():
        advice = "Its training diverged, or it needs --dtype float32."
        raise _refusal(model, "what the model feeds it is not finite.", advice)
    if not _same(probe.hidden_BTD, probe.base_BTD, tolerance):
        raise _refusal(model, "its input is not the first output of the base model, `base_model(...)[0]`.")
    raw = F.linear(probe.probe_BTD, linear.weight, linear.bias).detach().double()
    seen = probe.logits_BTV.detach().double()
    if raw.shape != seen.shape:
        shapes = f"{tuple(raw.shape)} raw outputs become {tuple(seen.shape)} logits."
        raise _refusal(model, f"its output is cut or reshaped: {shapes}")
    errors: dict[LogitMap, float] = {}
    for cap in (*_declared(model, CAP_FIELDS), None):
        logit_map = LogitMap(_fit_scale(model, raw, seen, cap, tolerance), cap)
        errors[logit_map] = ((logit_map.apply(raw) - seen).abs().max() / seen.abs().max()).item()
        if errors[logit_map] < tolerance:
            return logit_map
    nearest = min(errors, key=lambda m: errors[m])
    raise _refusal(
        model,
        f"its logits are no scaled and declared-capped output of the head (nearest: scale {nearest.scale:.6g}, cap "
        f"{nearest.cap}, relative error {errors[nearest]:.1e}, allowed {tolerance:.0e}).",
        "It seems to change its logits in a way that its configuration does not declare.",
    )


def _fit_scale(model: Any, raw: Tensor, seen: Tensor, cap: float | None, tolerance: float) -> float:
    """Return the least-squares s of cap * tanh(s * raw / cap) = seen; a declared value where it is as near."""
    if cap is not None:
        open_ = seen.abs() < 0.95 * cap  # the inverse loses all digits near the cap
        raw, seen = raw[open_], cap * torch.atanh(seen[open_] / cap)
    scale = ((seen * raw).sum() / raw.square().sum().clamp_min(1e-30)).item()
    declared = [1.0]
    for value in _declared(model, SCALE_FIELDS):
        declared += [value, 1 / value]
    nearest = min(declared, key=lambda value: abs(value - scale))
    return nearest if abs(nearest - scale) <= tolerance * abs(nearest) else scale


def _declared(model: Any, fields: tuple[str, ...]) -> list[float]:
    values = (getattr(_config(model), field, None) for field in fields)
    return [float(value) for value in values if isinstance(value, (int, float)) and value > 0]


def _same(a: Tensor, b: Tensor, tolerance: float) -> bool:
    # Not torch.equal: some GPU kernels add in an order of their own.
    return a.shape == b.shape and bool((a.double() - b.double()).abs().max() <= tolerance * b.abs().max())


@contextmanager
def _eval_mode(model: nn.Module) -> Iterator[None]:
    """Put every module in eval mode, then back into the mode that each one had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
