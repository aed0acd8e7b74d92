"""The LM head of a causal model: its module, its input, and the map from its raw output to logits.

The names in a configuration are not reliable: `logits_scaling` divides in Granite and multiplies in HyperCLOVAX, and
some classes cap their logits without a configuration field. So `probe_head` runs the model and measures the map. It
refuses a model that it cannot explain.

Legend: B batch, T positions, D hidden width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from emobench.core.errors import ModelError

# Configuration fields for c in c * tanh(z / c), and for a factor (or divisor) of the head's raw output.
CAP_FIELDS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
SCALE_FIELDS = ("logits_scaling", "logit_scale", "lm_head_multiplier", "output_multiplier")
# Largest |raw logit| of the probe. A cap of up to 1,500 then changes the logits by more than the tolerance.
PROBE_RAW_MAX = 50.0
# Largest |predicted - measured| / max |measured|, by the precision of the logits.
TOLERANCES = {torch.float64: 2e-4, torch.float32: 2e-4, torch.float16: 4e-3, torch.bfloat16: 2e-2}

# Largest difference of hidden states that a later token may make, relative to their norm: rounding.
FUTURE_TOLERANCES = {torch.float16: 2e-3, torch.bfloat16: 1e-2}


@dataclass(frozen=True)
class LogitMap:
    """The map from the head's raw output to logits: scale * raw, or cap * tanh(scale * raw / cap)."""

    scale: float = 1.0
    cap: float | None = None

    def apply(self, raw: Tensor) -> Tensor:
        """Return the logits for raw outputs of any shape, in the dtype of `raw`. Differentiable."""
        scaled = raw if self.scale == 1.0 else raw * self.scale
        return scaled if self.cap is None else self.cap * torch.tanh(scaled / self.cap)


@dataclass(frozen=True)
class Head:
    """A model's LM head: logits_NV = logit_map.apply(linear(hidden_ND)). The linear layer may have a bias."""

    linear: nn.Linear
    logit_map: LogitMap = LogitMap()
    vocabulary: int | None = None
    """Number of rows that are tokens; the rows after them are padding. None: all rows are tokens."""
    declared: tuple[Any, ...] = ()
    """The values of the configuration's fields for the map to logits when it was measured; see `require_unchanged`."""

    @property
    def packed_product(self) -> Callable[[Tensor], Tensor] | None:
        """The linear layer with its bias as a faster product (`models/inference.py`); None where there is none."""
        return getattr(self.linear, "packed_product", None)

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return self.linear.out_features if self.vocabulary is None else self.vocabulary


def final_hidden(model: nn.Module, **inputs: Any) -> Tensor:
    """Return hidden_BTD, the head's input for `input_ids` (and `attention_mask`), without computing logits."""
    return base_model(model)(**inputs, use_cache=False)[0]


def base_model(model: nn.Module) -> Any:
    """Return the model without its head, whose first output is hidden_BTD. Of a PEFT model it has the adapters."""
    bare = unwrapped(model)
    if bare.base_model is not bare:
        return bare.base_model
    # The prefix in the class of Llama 4 names a part that only its multimodal model has.
    bodies = [child for child in bare.children() if hasattr(child, "base_model_prefix")]
    return bodies[0] if len(bodies) == 1 else bare


def token_count(tokenizer: Any) -> int:
    """Return the largest id of a tokenizer plus one. Rows of a head from there on are padding."""
    return 1 + max(tokenizer.get_vocab().values())


def probe_head(model: nn.Module, tokenizer: Any = None) -> Head:
    """Find the LM head and the map to logits by running the model on two sequences of eight random ids.

    If `tokenizer` is given, rows of the head without a token count as padding. The head's input is replaced by a random
    one with raw outputs of up to +-50, so that a cap has an effect. The weights must be loaded and not sharded. Modes,
    hooks and random states do not change.

    Raises ModelError unless the head is a plain nn.Linear, called once, with `base_model(...)[0]` as its input (times a
    number, if it has no bias), and the logits are its output times a scale, with at most a cap that the configuration
    declares (relative error below 2e-4 in float32); and if tokens see those after them.
    """
    bare = unwrapped(model)
    linear = find_linear(bare)
    _require_weight(bare, linear)
    rows = linear.out_features
    tokens = rows if tokenizer is None else min(rows, token_count(tokenizer))
    factor, probe_BTD, logits_BTV = _observe(bare, linear)
    fitted = _fit(bare, linear, probe_BTD, logits_BTV)
    logit_map = replace(fitted, scale=factor * fitted.scale)
    return Head(linear, logit_map, None if tokens == rows else tokens, _map_fields(bare))


def require_unchanged(model: nn.Module, head: Head) -> None:
    """Raise ModelError if a model has another head, or another map to logits, than when `head` was measured.

    A copy of the head that peft trains (`modules_to_save`) is the same head.
    """
    bare = unwrapped(model)
    found = bare.get_output_embeddings()
    parts = list(found.modules())
    if any(type(part).__module__.startswith("peft.tuners") for part in parts):
        raise ModelError(
            f"The LM head of {type(bare).__name__} has an adapter of peft, whose part of the logits an objective would "
            "leave out. Name the layers with adapters in `target_modules`, without the head."
        )
    if not any(part is head.linear for part in parts):
        raise ModelError(
            f"The LM head of {type(bare).__name__} was replaced after the objective was given the model, such as by "
            "resize_token_embeddings. Replace or resize it first, then give the objective the model."
        )
    if head.declared and head.declared != _map_fields(bare):
        fields = ", ".join((*CAP_FIELDS, *SCALE_FIELDS))
        raise ModelError(
            f"The configuration of {type(bare).__name__} changed after the objective was given the model: one of "
            f"{fields}. Change it first, then give the objective the model."
        )


def unwrapped(model: nn.Module) -> Any:
    """Return a model without its wrapper of peft."""
    get_base = getattr(model, "get_base_model", None)
    return get_base() if callable(get_base) else model


def _config(model: nn.Module) -> Any:
    config: Any = model.config
    return config.get_text_config(decoder=True)


def _refusal(model: nn.Module, found: str, advice: str = "Use a causal model with a plain linear head.") -> ModelError:
    return ModelError(f"The LM head of {type(model).__name__} cannot be used: {found} {advice}")


def find_linear(model: Any) -> nn.Linear:
    """Return the LM head of a model, whose weights may not be loaded. Raises ModelError unless it is an nn.Linear."""
    if getattr(model.config, "is_encoder_decoder", False):
        raise _refusal(model, "it is an encoder-decoder model.")
    get_head = getattr(model, "get_output_embeddings", None)
    head: Any = get_head() if callable(get_head) else None
    copies = getattr(head, "modules_to_save", None)  # of peft, which trains one of them
    if copies:
        active = head.active_adapters
        head = copies[active[0]] if active else head.original_module
    if head is None:
        raise _refusal(model, "it has no output embeddings.")
    # Exactly Linear: the forward of an adapter or a quantised layer does not multiply by its `.weight`.
    if type(head) is not nn.Linear:
        found = f"it is a {type(head).__module__}.{type(head).__name__}, not a torch.nn.Linear."
        raise _refusal(model, found, "Keep adapters and quantisation off the head.")
    return head


def _require_weight(model: Any, head: nn.Linear) -> None:
    if head.weight.is_meta or head.weight.shape != (head.out_features, head.in_features):
        found = f"its weight has shape {tuple(head.weight.shape)} on device '{head.weight.device.type}'."
        raise _refusal(model, found, f"Load the whole weight, {head.out_features} x {head.in_features}, first.")


def _observe(model: Any, linear: nn.Linear) -> tuple[float, Tensor, Tensor]:
    """Return the factor from the base model's output to the head's input, a random input (B, T, D) and its logits.

    Runs the base model, and the model with a replaced head input, in eval mode without gradients. The logits (B, T, V)
    are those of the random input. Raises ModelError unless the original input is the first output of the base model,
    times a number if the head has no bias.
    """
    given: list[Tensor] = []
    inputs: list[tuple[Tensor, Tensor]] = []
    generator = torch.Generator().manual_seed(0)
    device = linear.weight.device

    def enlarge(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        inputs.append((args[0], _large_input(model, linear, args[0], generator)))
        return (inputs[-1][1], *args[1:])

    rows = model.get_input_embeddings().weight.shape[0]
    ids_BT = torch.randint(rows, (1, 8), generator=generator).repeat(2, 1).to(device)
    ids_BT[1, -1] = (ids_BT[1, -1] + 1) % rows
    devices = [device] if device.type == "cuda" else []
    with torch.no_grad(), torch.random.fork_rng(devices), eval_mode(model):
        base_BTD = final_hidden(model, input_ids=ids_BT)
        first = linear.register_forward_pre_hook(lambda _module, args: given.append(args[0]), prepend=True)
        last = linear.register_forward_pre_hook(enlarge)
        try:
            logits_BTV = model(input_ids=ids_BT, use_cache=False).logits
        finally:
            first.remove()
            last.remove()
    _require_causal(model, base_BTD)
    if len(inputs) != 1:
        raise _refusal(model, f"one forward pass called it {len(inputs)} times, not once.")
    ((hidden_BTD, probe_BTD),) = inputs
    if hidden_BTD is not given[0]:
        raise _refusal(model, "a hook changes its input, which is then not the first output of the base model.")
    if not hidden_BTD.isfinite().all():
        raise _refusal(
            model, "what the model feeds it is not finite.", "Its training diverged, or it needs --dtype float32."
        )
    return _input_factor(model, linear, base_BTD, hidden_BTD), probe_BTD, logits_BTV


def _require_causal(model: Any, base_BTD: Tensor) -> None:
    """Raise ModelError if the hidden states of two sequences that differ in their last token differ before it."""
    before_BTD = base_BTD[:, :-1].double()
    difference = (before_BTD[0] - before_BTD[1]).norm() / before_BTD.norm()
    if difference > FUTURE_TOLERANCES.get(base_BTD.dtype, 1e-5):
        raise ModelError(
            f"{type(model).__name__} sees the tokens after each one, and would be asked for what it sees; expected a "
            "causal LM, such as gpt2."
        )


def _input_factor(model: Any, linear: nn.Linear, base_BTD: Tensor, hidden_BTD: Tensor) -> float:
    """Return the number by which a model multiplies its base model's output before the head, such as MiniCPM3."""
    if hidden_BTD.shape == base_BTD.shape:
        hidden, base = hidden_BTD.double(), base_BTD.double()
        tolerance = _tolerance(linear)
        factor = 1.0
        if linear.bias is None:
            factor = _nearest_declared(model, _least_squares(base, hidden), tolerance)
        # Not torch.equal: some GPU kernels add in another order.
        if torch.allclose(hidden, factor * base, 0, tolerance * hidden.abs().max().item()):
            return factor
    raise _refusal(model, "its input is not the first output of the base model, `base_model(...)[0]`.")


def _large_input(model: Any, linear: nn.Linear, hidden: Tensor, generator: torch.Generator) -> Tensor:
    """Return a random input of the head, of the shape of `hidden`, with a largest |raw output| of about 50."""
    unit = torch.randn(hidden.shape, generator=generator).to(hidden)
    largest = F.linear(unit, linear.weight).abs().max().item()
    if not largest > 0:
        raise _refusal(model, "its weight is all zeros or not finite.", "Load trained weights.")
    return unit * (PROBE_RAW_MAX / largest)


def _fit(model: Any, linear: nn.Linear, probe_BTD: Tensor, logits_BTV: Tensor) -> LogitMap:
    tolerance = _tolerance(linear)
    raw = F.linear(probe_BTD, linear.weight, linear.bias).detach().double()
    measured = logits_BTV.detach().double()
    if raw.shape != measured.shape:
        shapes = f"{tuple(raw.shape)} raw outputs become {tuple(measured.shape)} logits."
        raise _refusal(model, f"its output is cut or reshaped: {shapes}")
    errors: dict[LogitMap, float] = {}
    for cap in (*_declared(model, CAP_FIELDS), None):
        logit_map = LogitMap(_fit_scale(model, raw, measured, cap, tolerance), cap)
        errors[logit_map] = ((logit_map.apply(raw) - measured).abs().max() / measured.abs().max()).item()
        if errors[logit_map] < tolerance:
            return logit_map
    nearest = min(errors, key=lambda m: errors[m])
    raise _refusal(
        model,
        f"its logits are not a scaled and declared-capped output of the head (nearest: scale {nearest.scale:.6g}, cap "
        f"{nearest.cap}, relative error {errors[nearest]:.1e}, allowed {tolerance:.0e}).",
        "It seems to change its logits in a way that its configuration does not declare.",
    )


def _tolerance(linear: nn.Linear) -> float:
    return TOLERANCES.get(linear.weight.dtype, 2e-4)


def _fit_scale(model: Any, raw: Tensor, measured: Tensor, cap: float | None, tolerance: float) -> float:
    """Return the least-squares s of cap * tanh(s * raw / cap) = measured, or a declared value within the tolerance."""
    if cap is not None:
        below = measured.abs() < 0.95 * cap  # the inverse loses all digits near the cap
        raw, measured = raw[below], cap * torch.atanh(measured[below] / cap)
    return _nearest_declared(model, _least_squares(raw, measured), tolerance)


def _least_squares(given: Tensor, measured: Tensor) -> float:
    """Return the s with the smallest sum of squares of s * given - measured."""
    return ((measured * given).sum() / given.square().sum().clamp_min(1e-30)).item()


def _nearest_declared(model: Any, scale: float, tolerance: float) -> float:
    """Return 1, or a factor that the configuration declares, if it is within the tolerance of a measured one."""
    scales = _declared(model, SCALE_FIELDS)
    nearest = min([1.0, *scales, *(1 / value for value in scales)], key=lambda value: abs(value - scale))
    return nearest if abs(nearest - scale) <= tolerance * abs(nearest) else scale


def _declared(model: Any, fields: tuple[str, ...]) -> list[float]:
    values = (getattr(_config(model), field, None) for field in fields)
    return [float(value) for value in values if isinstance(value, (int, float)) and value > 0]


def _map_fields(model: Any) -> tuple[Any, ...]:
    """Return what the configuration declares about the map to logits."""
    return tuple(getattr(_config(model), field, None) for field in (*CAP_FIELDS, *SCALE_FIELDS))


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put every module in eval mode, then restore the mode of each one."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
