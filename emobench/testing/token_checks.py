"""Checks of objectives that run in the engine.

Legend: N tokens, V vocabulary, D width.
"""

from __future__ import annotations

import dataclasses
import difflib

import torch

from emobench.objectives import IGNORED, STATISTICS, StatisticsObjective
from emobench.testing.calls import loss_call, tolerance
from emobench.testing.modes import NewTensors
from emobench.testing.subject import Broken, EngineResult, Explained, Skipped, Subject, distance

PRECISIONS = {torch.float32: (1e-5, 1e-5), torch.bfloat16: (1e-3, 1e-2), torch.float16: (1e-3, 5e-3)}
"""Relative errors of the losses and of the gradients, compared with float64 on the same rounded inputs. With half
precision, losses are float32 and only gradients are rounded (8 bits in bfloat16, a relative error of 4e-3)."""
FAR = 1000.0
"""Length of a hidden state along its target's row for which the probability is exactly 1, or 0, in float32."""
RESERVED = {"loss", "tokens", "mle", "grew", "shrank", "alternatives"}
"""Names that training logs for every objective."""
SLIP = 0.85
"""Similarity from which a name counts as a misspelt statistic: 'entorpy' does, 'ref_log_prob' does not."""


def side_data(subject: Subject) -> None:
    """Side data in `needs` is made by `side_data`, or shown by `example_side`."""
    reasons = []
    for name in subject.invented:
        what = f"'{name}' is no statistic, and `side_data` does not make it"
        near = difflib.get_close_matches(name, STATISTICS, n=1, cutoff=SLIP)
        if near and near[0] not in name:
            raise Explained(f"{what}; did you mean '{near[0]}'? A column of that name is shown by `example_side`")
        reasons.append(f"{what}: random numbers stood in; a run needs a column of that name in its corpus")
    if reasons:
        raise Skipped("; ".join(reasons))
    subject.side_of(subject.ready)  # their shapes


def finite(subject: Subject) -> None:
    """One finite loss for each token, and finite parts."""
    _check_finite(subject.run(impl="reference"), "on random logits")


def reference(subject: Subject) -> None:
    """The chunked engine gives the losses and gradients of plain autograd."""
    _same(subject, "the chunked engine and the reference", subject.run(), subject.run(impl="reference"))


def masking(subject: Subject) -> None:
    """Tokens with label -100 have no loss, no gradient and no influence."""
    before = subject.run()
    ignored_N = subject.labels_N == IGNORED
    for name in ("loss", "gradient of the hidden states"):
        if before.values[name][ignored_N].any():
            raise Broken(f"tokens with label -100 have a {name}")
    moved_ND = torch.where(ignored_N[:, None], subject.hidden_ND.flip(0) + 3, subject.hidden_ND)
    _same(
        subject,
        "with other hidden states where the label is -100 and before",
        subject.run(hidden_ND=moved_ND),
        before,
    )
    total = subject.ready.total_weight(subject.batch)
    padded = {name: torch.cat([v, torch.zeros_like(v[:, :3])], dim=1) for name, v in subject.batch.items()}
    padded["labels"][:, -3:] = IGNORED
    if float(subject.ready.total_weight(padded)) != float(total):
        raise Broken("its total_weight counts padding")


def empty(subject: Subject) -> None:
    """A batch without targets has loss 0 and gradients of 0."""
    found = subject.run(labels_N=torch.full_like(subject.labels_N, IGNORED))
    for name, value in found.values.items():
        if value.any():
            raise Broken(f"a batch without targets has a {name}")


def chunks(subject: Subject) -> None:
    """Losses and gradients do not depend on how tokens are cut into chunks."""
    expected = subject.run(impl="reference")
    for rows in (1, 2, 3, 7):
        words = {1: "one row", 2: "two rows"}.get(rows, f"{rows} rows")
        _same(
            subject,
            f"the chunked engine with chunks of {words} and the reference",
            subject.run(chunk_rows=rows),
            expected,
        )


def order(subject: Subject) -> None:
    """Tokens in another order have the same losses in that order."""
    # Few distinct targets: the engine sorts tokens by target and keeps the order of equal targets only.
    labels_N = torch.where(subject.labels_N == IGNORED, IGNORED, subject.labels_N % 2)
    expected = subject.run(labels_N=labels_N)
    rows = torch.randperm(subject.tokens, generator=torch.Generator().manual_seed(subject.seed))
    found = subject.run(labels_N=labels_N, rows=rows)
    for name in ("loss", "gradient of the hidden states"):
        found.values[name] = found.values[name][rows.argsort()]
    _same(subject, "tokens in another order and before", found, expected)


def accumulation(subject: Subject) -> None:
    """Two halves of a batch, one after the other, add up to the whole."""
    whole, middle = subject.run(), subject.tokens // 2
    halves = [subject.run(rows=slice(0, middle)), subject.run(rows=slice(middle, None))]
    first, second = (half.values for half in halves)
    head = "gradient of the head"
    joined = {name: torch.cat([first[name], second[name]]) for name in first if name != head}
    _same(
        subject,
        "the sum of two halves and the whole",
        EngineResult({**joined, head: first[head] + second[head]}, {}),
        whole,
    )


def determinism(subject: Subject) -> None:
    """The same inputs give the same bits."""
    one, two = subject.run(), subject.run()
    for name, value in one.values.items():
        if not torch.equal(value, two.values[name]):
            raise Broken(f"the same inputs twice give two values of the {name}")


def precisions(subject: Subject) -> None:
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


def hard_rows(subject: Subject) -> None:
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


def memory(subject: Subject) -> None:
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


def parts(subject: Subject) -> None:
    """What is logged is one number for each token, whatever the chunks and the batch."""
    call = loss_call(subject)
    if isinstance(call.objective, StatisticsObjective):
        names = set(call.objective.parts(call.statistics({n: leaf.detach() for n, leaf in call.leaves.items()})))
        for name in sorted(names & RESERVED):
            raise Broken(f"its part '{name}' takes the place of the trainer's own")
    whole, small, middle = subject.run().parts, subject.run(chunk_rows=2).parts, subject.tokens // 2
    names = set(whole) - RESERVED
    if not names:
        raise Skipped("it logs nothing beside its loss")
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


def _same(subject: Subject, what: str, found: EngineResult, expected: EngineResult) -> None:
    for name, value in found.values.items():
        error = distance(value, expected.values[name])
        if not error < tolerance(subject):
            raise Broken(f"{what} differ in the {name} by {error:.1e}")
