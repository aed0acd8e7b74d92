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
from emobench.models.device import with_float64

# Configuration fields for c in c * tanh(z / c), and for a factor (or divisor) of the head's raw output.
CAP_FIELDS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
SCALE_FIELDS = ("logits_scaling", "logit_scale", "lm_head_multiplier", "output_multiplier")
MAP_FIELDS = (*CAP_FIELDS, *SCALE_FIELDS)
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
        """The linear layer with its bias as a faster product (`models/inference.py`); None if there is none."""
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


def token_texts(tokenizer: Any, count: int) -> list[str]:
    """Return the texts of the first `count` ids as the vocabulary has them, "" for an id without a token.

    A space stands for the mark of a word's beginning.
    """
    texts = [""] * count
    for text, token in tokenizer.get_vocab().items():
        if token < count:
            texts[token] = text.replace("Ġ", " ").replace("▁", " ")
    return texts


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
    rows, weight = linear.out_features, linear.weight
    if weight.is_meta or weight.shape != (rows, linear.in_features):
        problem = f"its weight has shape {tuple(weight.shape)} on device '{weight.device.type}'."
        raise _refusal(bare, problem, f"Load the whole weight, {rows} x {linear.in_features}, first.")
    tokens = rows
    if tokenizer is not None:
        tokens = min(rows, token_count(tokenizer))
    return Head(linear, _measure(bare, linear), None if tokens == rows else tokens, _fields(bare))


def require_unchanged(model: nn.Module, head: Head) -> None:
    """Raise ModelError if a model has another head, or another map to logits, than when `head` was measured.

    A copy of the head that peft trains (`modules_to_save`) is the same head.
    """
    bare = unwrapped(model)
    parts = list(bare.get_output_embeddings().modules())
    problem = ""
    if any(type(part).__module__.startswith("peft.tuners") for part in parts):
        problem = "it has an adapter of peft, whose part of the logits an objective would leave out."
    elif all(part is not head.linear for part in parts):
        problem = "it was replaced or resized after the objective was given the model."
    elif head.declared and head.declared != _fields(bare):
        problem = f"one of {', '.join(MAP_FIELDS)} changed after the objective was given the model."
    if problem:
        raise _refusal(bare, problem, "Change the model first, without adapters on the head, then give it.")


def unwrapped(model: nn.Module) -> Any:
    """Return a model without its wrapper of peft."""
    get_base = getattr(model, "get_base_model", None)
    return get_base() if callable(get_base) else model


def _refusal(
    model: nn.Module, problem: str, advice: str = "Use a causal model with a plain linear head."
) -> ModelError:
    return ModelError(f"The LM head of {type(model).__name__} cannot be used: {problem} {advice}")


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
        kind = f"{type(head).__module__}.{type(head).__name__}"
        raise _refusal(model, f"it is a {kind}, not a torch.nn.Linear.", "Keep adapters and quantisation off the head.")
    return head


def _measure(model: Any, linear: nn.Linear) -> LogitMap:
    """Return the map from the base model's output to the logits.

    Runs the base model, and the model with a random head input, in eval mode without gradients. Raises ModelError
    unless the original input is the first output of the base model, times a number if the head has no bias.
    """
    given: list[Tensor] = []
    inputs: list[tuple[Tensor, Tensor]] = []
    generator = torch.Generator().manual_seed(0)
    device = linear.weight.device

    def enlarge(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Replace the input by a random one, with a largest |raw output| of about 50."""
        unit = torch.randn(args[0].shape, generator=generator).to(args[0])
        largest = F.linear(unit, linear.weight).abs().max().item()
        if not largest > 0:
            raise _refusal(model, "its weight is all zeros or not finite.", "Load trained weights.")
        inputs.append((args[0], unit * (PROBE_RAW_MAX / largest)))
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
    rounding = FUTURE_TOLERANCES.get(base_BTD.dtype, 1e-5)
    base_BTD = with_float64(base_BTD).double()
    before_BTD = base_BTD[:, :-1]
    if (before_BTD[0] - before_BTD[1]).norm() / before_BTD.norm() > rounding:
        raise ModelError(
            f"{type(model).__name__} sees the tokens after each one, and would be asked for what it sees; expected a "
            "causal LM, such as gpt2."
        )
    if len(inputs) != 1:
        raise _refusal(model, f"one forward pass called it {len(inputs)} times, not once.")
    ((hidden_BTD, probe_BTD),) = inputs
    if hidden_BTD is not given[0]:
        raise _refusal(model, "a hook changes its input, which is then not the first output of the base model.")
    if not hidden_BTD.isfinite().all():
        raise _refusal(model, "its input is not finite.", "Its training diverged, or it needs --dtype float32.")
    tolerance = TOLERANCES.get(linear.weight.dtype, 2e-4)
    factor, hidden_BTD = 1.0, with_float64(hidden_BTD).double()
    if hidden_BTD.shape == base_BTD.shape and linear.bias is None:  # a model may multiply, such as MiniCPM3
        factor = _fit_scale(model, base_BTD, hidden_BTD, tolerance)
    # Not torch.equal: some GPU kernels add in another order.
    margin = tolerance * hidden_BTD.abs().max().item()
    if hidden_BTD.shape != base_BTD.shape or not torch.allclose(hidden_BTD, factor * base_BTD, 0, margin):
        raise _refusal(model, "its input is not the first output of the base model, `base_model(...)[0]`.")
    raw_BTV = with_float64(F.linear(probe_BTD, linear.weight, linear.bias).detach()).double()
    logit_map = _fit_map(model, raw_BTV, with_float64(logits_BTV.detach()).double(), tolerance)
    return replace(logit_map, scale=factor * logit_map.scale)


def _fit_map(model: Any, raw: Tensor, measured: Tensor, tolerance: float) -> LogitMap:
    """Return the map from raw outputs to measured logits, with the values that the configuration declares."""
    if raw.shape != measured.shape:
        shapes = f"{tuple(raw.shape)} raw outputs become {tuple(measured.shape)} logits."
        raise _refusal(model, f"its output is cut or reshaped: {shapes}")
    errors: dict[LogitMap, float] = {}
    for cap in (*_declared(model, CAP_FIELDS), None):
        below, inverse = raw, measured
        if cap is not None:
            inside = measured.abs() < 0.95 * cap  # the inverse loses all digits near the cap
            below, inverse = raw[inside], cap * torch.atanh(measured[inside] / cap)
        logit_map = LogitMap(_fit_scale(model, below, inverse, tolerance), cap)
        errors[logit_map] = ((logit_map.apply(raw) - measured).abs().max() / measured.abs().max()).item()
        if errors[logit_map] < tolerance:
            return logit_map
    nearest = min(errors, key=lambda logit_map: errors[logit_map])
    raise _refusal(
        model,
        f"its logits are not a scaled and declared-capped output of the head (nearest: scale {nearest.scale:.6g}, cap "
        f"{nearest.cap}, relative error {errors[nearest]:.1e}, allowed {tolerance:.0e}).",
        "It seems to change its logits in a way that its configuration does not declare.",
    )


def _fit_scale(model: Any, given: Tensor, measured: Tensor, tolerance: float) -> float:
    """Return the least-squares s of s * given = measured; 1 or a declared factor within the tolerance of it."""
    scale = ((measured * given).sum() / given.square().sum().clamp_min(1e-30)).item()
    factors = [1.0]
    for value in _declared(model, SCALE_FIELDS):
        factors += [value, 1 / value]
    nearest = min(factors, key=lambda factor: abs(factor - scale))
    return nearest if abs(nearest - scale) <= tolerance * abs(nearest) else scale


def _declared(model: Any, fields: tuple[str, ...]) -> list[float]:
    """Return the positive numbers in fields of the configuration."""
    values = _fields(model, fields)
    return [float(value) for value in values if isinstance(value, (int, float)) and value > 0]


def _fields(model: Any, fields: tuple[str, ...] = MAP_FIELDS) -> tuple[Any, ...]:
    config = model.config.get_text_config(decoder=True)
    return tuple(getattr(config, field, None) for field in fields)


def context_of(model: nn.Module) -> int | None:
    """Return the most tokens that a model reads; None if its configuration names no limit."""
    config: Any = model.config
    context = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    return None if context is None or context < 1 else context  # XLNet says -1: no limit


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
