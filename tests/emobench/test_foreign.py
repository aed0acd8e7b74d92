"""Losses of other programs in the conformance kit: how they are called, and faults that were found in the field.

The faults are written anew after their descriptions; `like` names the objective that a loss should equal.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.loss.loss_utils import ForCausalLMLoss

from emobench.core.errors import ConfigError, PluginError
from emobench.testing import Outcome, check_plugin, plugin_checks, run_checks
from emobench.testing.foreign import ForeignLoss, foreign_loss


def read(function: Callable[..., Any], **options: Any) -> ForeignLoss:
    return foreign_loss(function, getattr(function, "__name__", "loss"), **options)


def found(function: Callable[..., Any], **options: Any) -> dict[str, Outcome]:
    return {outcome.name: outcome for outcome in run_checks(read(function, **options))}


def failed(function: Callable[..., Any], **options: Any) -> set[str]:
    return {name for name, outcome in found(function, **options).items() if outcome.status == "failed"}


def next_tokens(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss of each target and the row of logits that predicts it."""
    targets = labels[:, 1:].flatten()
    rows = logits[:, :-1].flatten(0, 1)[targets != -100]
    return F.cross_entropy(rows, targets[targets != -100], reduction="none"), rows


# Losses without a fault, in all forms.


def shifted(pred: Tensor, labels: Tensor) -> Tensor:
    """As torchtitan: a sum, of labels that are shifted."""
    return F.cross_entropy(pred.flatten(0, 1), labels.flatten(), reduction="sum")


def own_mean(logits: Tensor, labels: Tensor) -> Tensor:
    loss, rows = next_tokens(logits, labels)
    return loss.mean() if len(loss) else rows.sum()


def dft(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
    loss, _ = next_tokens(outputs.logits, labels)
    return (loss * (-loss).exp().detach()).sum() / num_items_in_batch


def weighted_head(weight: Tensor, hidden: Tensor, labels: Tensor, token_weights: Tensor) -> Tensor:
    losses = []
    for rows, targets, weights in zip(hidden.split(8), labels.split(8), token_weights.split(8), strict=True):
        loss = F.cross_entropy(rows @ weight.T, targets, reduction="none")
        losses.append((loss * weights).sum())
    return torch.stack(losses).sum()


@pytest.mark.parametrize(
    ("function", "like", "flat", "shifts", "reduction"),
    [
        (shifted, "mle", False, False, "sum"),
        (own_mean, "mle", False, True, "mean"),
        (dft, "dft", False, True, "global"),
        (ForCausalLMLoss, "mle", False, True, "global"),
        (torch.nn.CrossEntropyLoss(reduction="none"), "mle", True, False, "none"),
        (weighted_head, "mle", True, False, "sum"),
    ],
)
def test_every_form_is_recognised_and_passes(
    function: Callable[..., Any], like: str, flat: bool, shifts: bool, reduction: str
) -> None:
    loss = read(function, like=like)
    assert (loss.flat, loss.shifts, loss.reduction) == (flat, shifts, reduction)
    check_plugin(loss)
    skipped = {name: outcome.found for name, outcome in found(function, like=like).items()}
    assert all(skipped[name] for name in ("setup", "chunks", "engine", "slopes", "parts", "parameters", "state"))


def test_the_form_can_be_stated() -> None:
    def loss(a: Any, b: Tensor) -> Tensor:
        return shifted(a.logits[:, :-1], b[:, 1:])

    with pytest.raises(PluginError):
        read(loss)
    assert read(loss, form="outputs").shifts


def test_liger_and_trl() -> None:
    """Some checks only: Triton's interpreter is slow."""
    liger = pytest.importorskip("liger_kernel.transformers")
    trl = pytest.importorskip("trl.kernels")

    def trl_head(weight: Tensor, hidden: Tensor, labels: Tensor) -> Tensor:
        given = (1.0, 16, None, 1.0, ("log_probs",))
        log_probs = trl.ChunkedLogProbFunction.apply(hidden, weight, None, labels.clamp(min=0), *given)[0]
        return -log_probs.masked_fill(labels == -100, 0)

    liger_head = liger.LigerFusedLinearCrossEntropyLoss(reduction="none")
    for function in (trl_head, liger_head):
        for bound in plugin_checks(read(function, like="mle")):
            if str(bound) in ("gradients", "gradient", "scale", "weighted"):
                bound()


# Faults of the field.


def eaft(divisor: float) -> Callable[..., Tensor]:
    """EAFT with the entropy of the 20 most likely tokens, divided by a number."""

    def loss(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        loss, rows = next_tokens(outputs["logits"], labels)
        log_q = rows.detach().float().topk(20).values.log_softmax(-1)
        entropy = -(log_q.exp() * log_q).sum(-1)
        return (loss * entropy / divisor).sum() / num_items_in_batch

    return loss


def test_a_constant_factor_is_named() -> None:
    """LLaMA-Factory divides EAFT's entropy by 3, axolotl does not. The authors' number is ln 20 = 2.9957."""
    assert failed(eaft(3.0), like="eaft-top-k") == {"scale"}
    assert "1.0014 times smaller" in found(eaft(3.0), like="eaft-top-k")["scale"].found
    assert failed(eaft(1.0), like="eaft-top-k") == {"scale"}
    assert "2.9957 times larger" in found(eaft(1.0), like="eaft-top-k")["scale"].found
    assert (
        "3.0000 times larger" in found(lambda logits, labels: 3 * own_mean(logits, labels), like="mle")["scale"].found
    )


def test_a_factor_of_the_value_alone_is_named() -> None:
    """Of the value a user reads, whatever autograd does."""

    def doubled(logits: Tensor, labels: Tensor) -> Tensor:
        loss = own_mean(logits, labels)
        return loss + loss.detach()

    assert "2.0000 times larger" in found(doubled, like="mle")["scale"].found

    def nothing(logits: Tensor, labels: Tensor) -> Tensor:
        loss = own_mean(logits, labels)
        return loss - loss.detach()

    assert {"value", "scale"} <= failed(nothing, like="mle")


def test_a_loss_that_writes_into_its_labels_is_checked_on_the_labels() -> None:
    def written(logits: Tensor, labels: Tensor) -> Tensor:
        mask = labels != -100
        labels[~mask] = 0
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        return (loss * mask.flatten()).sum()

    assert failed(written, like="mle") == set()

    def unwritten(logits: Tensor, labels: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    def mean(logits: Tensor, labels: Tensor) -> Tensor:
        count = (labels != -100).sum()
        return written(logits, labels) / count

    assert failed(mean, like="mle") == failed(unwritten, like="mle")

    def counted(logits: Tensor, labels: Tensor) -> Tensor:
        labels[labels == -100] = 0
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")

    assert {"value", "gradient", "masking"} <= failed(counted, like="mle")


def asft(outputs: Any, labels: Tensor, ref_logits: Tensor, alpha: float = 0.1) -> Tensor:
    """LLaMA-Factory's ASFT: means over the micro-batch, whatever the number of targets of the whole batch."""
    loss, rows = next_tokens(outputs.logits, labels)
    _, reference = next_tokens(ref_logits, labels)
    divergence = F.kl_div(rows.log_softmax(-1), reference.log_softmax(-1), reduction="batchmean", log_target=True)
    return (loss * (-loss).exp().detach()).mean() + alpha * divergence


def test_a_loss_that_divides_by_its_own_targets_is_found() -> None:
    outcomes = found(asft, like="asft")
    assert {name for name in ("value", "gradient", "scale") if outcomes[name].status == "ok"} == {
        "value",
        "gradient",
        "scale",
    }
    assert {"accumulation", "accumulated"} <= failed(asft, like="asft")


def sequence_means(logits: Tensor, labels: Tensor) -> Tensor:
    """A mean of means: over sequences, of the means over their targets."""
    return torch.stack([own_mean(logits[i : i + 1], labels[i : i + 1]) for i in range(len(logits))]).mean()


def test_a_mean_of_means_is_found() -> None:
    assert "accumulation" in failed(sequence_means)


class SavedGradient(torch.autograd.Function):
    """A head whose forward pass saves the gradients of all tokens, added up, as Liger's did until July 2026.

    Its losses are of each token, and its backward pass multiplies everything with the weight of the first token.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, hidden: Tensor, labels: Tensor) -> Tensor:  # type: ignore[override]
        log_q = (hidden @ weight.T).log_softmax(-1)
        kept = labels != -100
        one_hot = F.one_hot(labels.clamp(min=0), len(weight))
        slope = (log_q.exp() - one_hot) * kept[:, None]
        ctx.save_for_backward(slope.T @ hidden, slope @ weight)
        return -(log_q * one_hot).sum(-1) * kept

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        of_weight, of_hidden = ctx.saved_tensors
        return of_weight * gradient[0], of_hidden * gradient[0], None


def saved(weight: Tensor, hidden: Tensor, labels: Tensor) -> Tensor:
    return SavedGradient.apply(weight, hidden, labels)  # type: ignore[return-value]


class ValueAlone(SavedGradient):
    """The weights of tokens are in the value, and not in the saved gradient."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, hidden: Tensor, labels: Tensor, weights: Tensor) -> Tensor:  # type: ignore[override]
        return (SavedGradient.forward(ctx, weight, hidden, labels) * weights).sum()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:  # type: ignore[override]
        return *SavedGradient.backward(ctx, gradient[None]), None


def value_alone(weight: Tensor, hidden: Tensor, labels: Tensor, token_weights: Tensor) -> Tensor:
    return ValueAlone.apply(weight, hidden, labels, token_weights)  # type: ignore[return-value]


def twice(weight: Tensor, hidden: Tensor, labels: Tensor, token_weights: Tensor) -> Tensor:
    return weighted_head(weight, hidden, labels, token_weights**2)


@pytest.mark.parametrize("function", [saved, value_alone])
def test_a_gradient_without_the_weights_of_tokens_is_found(function: Callable[..., Any]) -> None:
    assert {"gradients", "weighted"} <= failed(function, like="mle")
    assert found(function, like="mle")["value"].status == "ok"


def test_weights_that_are_applied_twice_are_found() -> None:
    assert "weighted" in failed(twice, like="mle")


def test_a_gradient_that_is_cut_in_part_is_found() -> None:
    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        loss, _ = next_tokens(logits, labels)
        return (loss * torch.tensor((-loss).tolist()).exp()).sum()

    def trained_weight(logits: Tensor, labels: Tensor) -> Tensor:
        loss, _ = next_tokens(logits, labels)
        return (loss * (-loss).exp()).sum()

    assert "gradients" in failed(loss)
    assert "gradient" in failed(trained_weight, like="dft")
    assert found(trained_weight, like="dft")["value"].status == "ok"


def test_padding_in_the_mean_is_found() -> None:
    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return shifted(logits[:, :-1], labels[:, 1:]) / labels.numel()

    assert {"masking", "accumulation"} <= failed(loss)


# Bad input.


def scaled_by_batch(logits: Tensor, labels: Tensor) -> Tensor:
    return own_mean(logits, labels) * len(logits) ** 0.5


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda logits, labels: own_mean(logits, labels) * float("nan"), PluginError),
        (lambda logits, labels: own_mean(logits, labels).detach(), PluginError),
        (lambda logits, labels: own_mean(logits, labels).item(), PluginError),
        (lambda logits, labels: 1 / 0, PluginError),
        (scaled_by_batch, PluginError),
        (lambda outputs, labels, num_items_in_batch: shifted(outputs.logits, labels) / num_items_in_batch, PluginError),
        (lambda logits, labels, reward: own_mean(logits, labels), ConfigError),
        (lambda logits: logits.sum(), ConfigError),
        (torch.logsumexp, ConfigError),
        (dict, ConfigError),
        (7, ConfigError),
    ],
)
def test_a_loss_that_cannot_be_checked_is_refused(function: Callable[..., Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        read(function)


FILE = """
import torch
import torch.nn.functional as F

def mean(logits, labels):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

class Scaled:
    def __init__(self, factor=1.0):
        self.factor = factor

    def __call__(self, logits, labels):
        return self.factor * mean(logits, labels)

constant = 3
"""


def test_the_command_checks_functions_and_classes(command: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "theirs.py"
    file.write_text(FILE)
    report = command("objectives", "check", f"{file}:Scaled(factor=4)", "--like", "mle", "--json").json
    assert not report["ok"]
    outcomes = {check["name"]: check for check in report["checks"]}
    assert "4.0000 times larger" in outcomes["scale"]["found"]
    assert "mean over its own targets" in report["note"]
    shown = command("objectives", "check", "torch.nn.functional:cross_entropy(reduction=sum)")
    assert "(N, ...)" in shown.out
    assert shown.code == 0
    for given in (f"{file}:means", f"{file}:constant", "no_such_module:loss", f"{file}:Scaled(power=2)", "mle"):
        command("objectives", "check", given, "--like", "mle").refused("")
    command("objectives", "check", f"{file}:mean", "--like", "mlee").refused("did you mean 'mle'?")
    command("objectives", "check", f"{file}:mean", "--form", "rows").refused("form")
