"""Checks of objectives that run in the engine.

Legend: N tokens, V vocabulary, D width.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from emobench.core.conformance import Broken, Skipped, check
from emobench.objectives import IGNORED, StatisticsObjective
from emobench.testing.derivative_checks import gradients, loss_call, slopes, tolerance
from emobench.testing.subject import CheckedObjective, EngineResult, distance

PRECISIONS = {torch.float32: (1e-5, 1e-5), torch.bfloat16: (1e-3, 1e-2), torch.float16: (1e-3, 5e-3)}
"""Relative errors of the losses and of the gradients, compared with float64 on the same rounded inputs. With half
precision, losses are float32 and only gradients are rounded (8 bits in bfloat16, a relative error of 4e-3)."""
FAR = 1000.0
"""Length of a hidden state along its target's row for which the probability is exactly 1, or 0, in float32."""
RESERVED = {"loss", "tokens", "mle", "grew", "shrank", "alternatives"}
"""Names that training logs for every objective."""


class NewTensors(TorchDispatchMode):
    """Records the largest tensor with new memory (not views or in-place results), except for some shapes."""

    def __init__(self, except_shapes: set[tuple[int, ...]]) -> None:
        super().__init__()
        self.except_shapes = except_shapes
        self.largest: tuple[int, ...] = ()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        results = out if isinstance(out, (tuple, list)) else (out,)
        for result, declared in zip(results, func._schema.returns, strict=False):
            if isinstance(result, Tensor) and declared.alias_info is None:
                shape = tuple(result.shape)
                if shape not in self.except_shapes and result.numel() > torch.Size(self.largest).numel():
                    self.largest = shape
        return out


@check("", gate=True)
def side_data(subject: CheckedObjective) -> None:
    """Side data in `needs` is made by `side_data`, or shown by `example_side`."""
    if names := " and ".join(f"'{name}'" for name in subject.invented):
        raise Skipped(
            f"{names}: not a statistic, and not from `side_data`; random numbers are used, and a run needs a column of "
            "that name in its corpus"
        )
    subject.side_of(subject.ready)  # their shapes


@check(
    "Return a vector with one loss for each token and no mean; keep arguments of log, sqrt and divisions away from 0.",
    gate=True,
)
def loss(subject: CheckedObjective) -> None:
    """One finite loss for each token, and finite parts."""
    _check_finite(subject.run(impl="reference"), "on random logits")


@check(
    "The loss of a token reads other tokens (a mean, a rank, a neighbour), or changes from call to call (a "
    "counter, a random number).",
)
def engine(subject: CheckedObjective) -> None:
    """The chunked engine gives the losses and gradients of plain autograd."""
    _same(subject, "the chunked engine and the reference", subject.run(), subject.run(impl="reference"))


@check("`total_weight` counts labels other than -100, without the first column; the loss keeps nothing between calls.")
def masking(subject: CheckedObjective) -> None:
    """Tokens with label -100 have no loss, no gradient and no influence."""
    before = subject.run()
    ignored_N = subject.labels_N == IGNORED
    for name in ("loss", "gradient of the hidden states"):
        if before.values[name][ignored_N].any():
            raise Broken(f"tokens with label -100 have a {name}")
    moved_ND = torch.where(ignored_N[:, None], subject.hidden_ND.flip(0) + 3, subject.hidden_ND)
    words = "with other hidden states where the label is -100 and before"
    _same(subject, words, subject.run(hidden_ND=moved_ND), before)
    total = subject.ready.total_weight(subject.batch)
    padded = {name: torch.cat([v, torch.zeros_like(v[:, :3])], dim=1) for name, v in subject.batch.items()}
    padded["labels"][:, -3:] = IGNORED
    if float(subject.ready.total_weight(padded)) != float(total):
        raise Broken("its total_weight counts padding")


@check("With no token a mean is 0/0 and a maximum has no value; work token by token.")
def empty_batch(subject: CheckedObjective) -> None:
    """A batch without targets has loss 0 and gradients of 0."""
    found = subject.run(labels_N=torch.full_like(subject.labels_N, IGNORED))
    for name, value in found.values.items():
        if value.any():
            raise Broken(f"a batch without targets has a {name}")


@check(
    "`loss` sees a chunk, not a batch: nothing may be averaged, sorted or normalised over it, nor divided by len(s)."
)
def chunks(subject: CheckedObjective) -> None:
    """Losses and gradients do not depend on how tokens are cut into chunks."""
    expected = subject.run(impl="reference")
    for rows in (1, 2, 3, 7):
        _same(subject, f"chunks of size {rows} and the reference", subject.run(chunk_rows=rows), expected)


@check("`loss` uses a token's place in the chunk; what belongs to a place goes through side data.")
def order(subject: CheckedObjective) -> None:
    """Tokens in another order have the same losses in that order."""
    # Few distinct targets: the engine sorts tokens by target and keeps the order of equal targets only.
    labels_N = torch.where(subject.labels_N == IGNORED, IGNORED, subject.labels_N % 2)
    expected = subject.run(labels_N=labels_N)
    rows = torch.randperm(subject.tokens, generator=torch.Generator().manual_seed(subject.seed))
    found = subject.run(labels_N=labels_N, rows=rows)
    for name in ("loss", "gradient of the hidden states"):
        found.values[name] = found.values[name][rows.argsort()]
    _same(subject, "tokens in another order and before", found, expected)


@check(
    "The loss is divided by a number of tokens, or keeps a running mean: update that in `begin_step`; the trainer "
    "divides.",
)
def accumulation(subject: CheckedObjective) -> None:
    """Two halves of a batch, one after the other, add up to the whole."""
    whole, middle = subject.run(), subject.tokens // 2
    halves = [subject.run(rows=slice(0, middle)), subject.run(rows=slice(middle, None))]
    first, second = (half.values for half in halves)
    head = "gradient of the head"
    joined = {name: torch.cat([first[name], second[name]]) for name in first if name != head}
    joined[head] = first[head] + second[head]
    _same(subject, "the sum of two halves and the whole", EngineResult(joined, {}), whole)


@check(
    "Random numbers: draw them in `side_data` or `setup` from a seeded generator; or `loss` keeps something "
    "between calls.",
    gate=True,
)
def determinism(subject: CheckedObjective) -> None:
    """The same inputs give the same bits."""
    one, two = subject.run(), subject.run()
    for name, value in one.values.items():
        if not torch.equal(value, two.values[name]):
            raise Broken(f"the same inputs twice give two values of the {name}")


@check(
    "A difference of nearly equal numbers (1 - exp(x) is -expm1(x), log(1 + x) is log1p(x)), or a cast to half "
    "precision inside the loss: statistics come in float32 and stay there.",
)
def precisions(subject: CheckedObjective) -> None:
    """float32, bfloat16 and float16 are close to float64 on the same inputs."""
    for dtype, tolerances in PRECISIONS.items():
        hidden_ND, weight_VD = subject.hidden_ND.to(dtype), subject.weight_VD.to(dtype)
        found = subject.run(hidden_ND=hidden_ND, weight_VD=weight_VD, dtype=dtype)
        expected = subject.run(hidden_ND=hidden_ND, weight_VD=weight_VD)
        name = str(dtype).removeprefix("torch.")
        _check_finite(found, f"in {name}")
        for what, value in found.values.items():
            error = distance(value, expected.values[what])
            if not error < tolerances[what != "loss"]:
                raise Broken(f"in {name} the {what} is off by {error:.1e}")


@check(
    "log(1 - q) at q = 1, log q at q = 0, 0 * inf or x / 0: use -expm1 and log1p, bound what goes into a "
    "logarithm, and mind that torch.where passes NaN gradients of the branch that is not taken.",
)
def hard_rows(subject: CheckedObjective) -> None:
    """Losses and gradients are finite where the model is certain, hopelessly wrong, or says nothing."""
    unit_VD = subject.weight_VD / subject.weight_VD.norm(dim=1, keepdim=True)
    targets_ND = unit_VD[subject.labels_N.clamp(min=0)]
    for scale, words in (
        (FAR, "where the target has probability 1"),
        (-FAR, "where the target has probability 0"),
        (0.0, "where all tokens are equally likely"),
    ):
        for dtype in (torch.float32, torch.float64):
            found = subject.run(hidden_ND=scale * targets_ND, weight_VD=unit_VD, dtype=dtype)
            _check_finite(found, words + (" (float32)" if dtype == torch.float32 else " (float64)"))


@check(
    "A dense target for each token as side data, or a V x V matrix: pass what makes it (teacher states, state "
    "probabilities), and make the rows of a chunk in `loss`.",
)
def memory(subject: CheckedObjective) -> None:
    """No tensor of tokens x vocabulary or more is made."""
    if not subject.given_side:
        subject = dataclasses.replace(subject, tokens=64, vocabulary=127)
    count, words = subject.tokens * subject.vocabulary, f"{subject.tokens} tokens and {subject.vocabulary} words"
    for name, value in subject.side.items():
        if value.numel() >= count:
            raise Broken(f"its side data '{name}' holds {tuple(value.shape)} numbers for {words}")
    with NewTensors(except_shapes={tuple(subject.weight_VD.shape)}) as tensors:
        subject.run(chunk_rows=max(1, subject.tokens // 8))
    if torch.Size(tensors.largest).numel() >= count:
        raise Broken(f"with {words} it makes a tensor of shape {tensors.largest}")


@check("`parts` returns vectors (N,), as `loss` does, and names none of them loss or tokens.")
def parts(subject: CheckedObjective) -> None:
    """What is logged is one number for each token, whatever the chunks and the batch."""
    call = loss_call(subject)
    if isinstance(call.objective, StatisticsObjective):
        names = set(call.objective.parts(call.statistics({n: leaf.detach() for n, leaf in call.leaves.items()})))
        for name in sorted(names & RESERVED):
            raise Broken(f"its part '{name}' takes the place of the trainer's own")
    whole, small, middle = subject.run().parts, subject.run(chunk_rows=2).parts, subject.tokens // 2
    names = set(whole) - RESERVED
    if not names:
        raise Skipped("it logs nothing in addition to its loss")
    halves = [subject.run(rows=rows).parts for rows in (slice(0, middle), slice(middle, None))]
    for name in sorted(names):
        for other in (small[name], halves[0][name] + halves[1][name]):
            if not torch.allclose(whole[name], other, rtol=tolerance(subject), atol=1e-12):
                raise Broken(f"its part '{name}' depends on the other tokens of its chunk or batch")


def _check_finite(found: EngineResult, where: str) -> None:
    parts = {f"part '{name}'": value for name, value in found.parts.items()}
    for name, value in {**found.values, **parts}.items():
        if not torch.isfinite(value).all():
            raise Broken(f"its {name} is not finite {where}")


def _same(subject: CheckedObjective, what: str, found: EngineResult, expected: EngineResult) -> None:
    for name, value in found.values.items():
        error = distance(value, expected.values[name])
        if not error < tolerance(subject):
            raise Broken(f"{what} differ in the {name} by {error:.1e}")


TOKEN_CHECKS = (
    side_data, loss, determinism, chunks, accumulation, order, engine, gradients, slopes, masking, empty_batch,
    precisions, hard_rows, memory, parts,
)  # fmt: skip
