"""The checks of each level of objectives, in the order in which they run. Later checks depend on earlier ones.

Each check has a text on the usual cause of a failure, and its fix.
"""

from __future__ import annotations

from emobench.objectives import ModelObjective, Objective
from emobench.testing import derivative_checks, model_checks, object_checks, token_checks
from emobench.testing.kit import Check

DOCUMENTATION = "documentation"
SIDE_DATA = "side data"


def checks_of(objective: Objective) -> list[Check]:
    """Return the checks of an objective's level."""
    if isinstance(objective, ModelObjective):
        return MODEL
    return [check for check in TOKEN if check.name != SIDE_DATA or objective.side_names]


_FIRST = [
    Check(
        "setup",
        "Return the names of the models that `setup` reads from the property `reads`: they belong to a run's key. "
        "Draw random numbers from a generator with a seed of its own; a resume compares the frozen state's "
        "digest.",
        object_checks.setup,
        gate=True,
    ),
]
_LAST = [
    Check(
        "parameters",
        "Call super().__post_init__() where you override it; give `emobench.param` the range in which the formula "
        "has a value, or treat its ends apart: 0/0 and log 0 stand there.",
        object_checks.parameters,
    ),
    Check(
        "state",
        "What changes during training (in `begin_step`) belongs into `state()` as tensors, and `load_state` restores "
        "it; or compute it from the step alone.",
        object_checks.state,
    ),
    Check(
        DOCUMENTATION,
        "Write the equation in the class's docstring, such as -log q_t, and its source: a paper "
        'with its year, an address, or "Own."',
        object_checks.documentation,
    ),
]
TOKEN = [
    *_FIRST,
    Check(
        SIDE_DATA,
        "",
        token_checks.side_data,
        gate=True,
    ),
    Check(
        "loss",
        "Return a vector with one loss for each token and no mean; keep arguments of log, sqrt and divisions away "
        "from 0.",
        token_checks.finite,
        gate=True,
    ),
    Check(
        "determinism",
        "Random numbers: draw them in `side_data` or `setup` from a seeded generator; or `loss` keeps something "
        "between calls.",
        token_checks.determinism,
        gate=True,
    ),
    Check(
        "chunks",
        "`loss` sees a chunk, not a batch: nothing may be averaged, sorted or normalised over it, nor divided by "
        "len(s).",
        token_checks.chunks,
    ),
    Check(
        "accumulation",
        "The loss is divided by a number of tokens, or keeps a running mean: update that in `begin_step`; the "
        "trainer divides.",
        token_checks.accumulation,
    ),
    Check(
        "order",
        "`loss` uses a token's place in the chunk; what belongs to a place goes through side data.",
        token_checks.order,
    ),
    Check(
        "engine",
        "The loss of a token reads other tokens (a mean, a rank, a neighbour), or changes from call to call (a "
        "counter, a random number).",
        token_checks.reference,
    ),
    Check(
        "gradients",
        "A part of the loss is cut from autograd without `.detach()`: a tensor made anew, `.item()`, rounding, or "
        "a custom backward that is another function's. Constants are marked by `.detach()` or torch.no_grad(); or a "
        "token's loss reads other tokens.",
        derivative_checks.differences,
    ),
    Check(
        "slopes",
        "Differentiate again: parts under `.detach()` are constants; a statistic that is left out has slope 0.",
        derivative_checks.closed_form,
    ),
    Check(
        "masking",
        "`total_weight` counts labels other than -100, without the first column; the loss keeps nothing between calls.",
        token_checks.masking,
    ),
    Check(
        "empty batch",
        "With no token a mean is 0/0 and a maximum has no value; work token by token.",
        token_checks.empty,
    ),
    Check(
        "precisions",
        "A difference of nearly equal numbers (1 - exp(x) is -expm1(x), log(1 + x) is log1p(x)), or a cast to "
        "half precision inside the loss: statistics come in float32 and stay there.",
        token_checks.precisions,
    ),
    Check(
        "hard rows",
        "log(1 - q) at q = 1, log q at q = 0, 0 * inf or x / 0: use -expm1 and log1p, bound what goes into a "
        "logarithm, and mind that torch.where passes NaN gradients of the branch that is not taken.",
        token_checks.hard_rows,
    ),
    Check(
        "memory",
        "A dense target for each token as side data, or a V x V matrix: pass what makes it (teacher states, state "
        "probabilities), and make the rows of a chunk in `loss`.",
        token_checks.memory,
    ),
    Check(
        "parts",
        "`parts` returns vectors (N,), as `loss` does, and names none of them loss or tokens.",
        token_checks.parts,
    ),
    *_LAST,
]
MODEL = [
    *_FIRST,
    Check(
        "units",
        "Return UnitLosses of two vectors; override `total_weight(batch)` where units are not target tokens, so "
        "that it is the sum of the weights, known before the model runs.",
        model_checks.units,
        gate=True,
    ),
    Check(
        "determinism",
        "Random numbers: draw them from a generator that is seeded by the step; or `loss` keeps something between "
        "calls.",
        model_checks.determinism,
        gate=True,
    ),
    Check(
        "accumulation",
        "A mean over the batch, or a comparison of its sequences: return losses and weights; the trainer divides.",
        model_checks.accumulation,
    ),
    Check(
        "order",
        "The loss uses a sequence's place in the batch.",
        model_checks.order,
    ),
    Check(
        "gradients",
        "Something between logits and loss is cut from autograd (`.item()`, argmax, torch.tensor), or a custom "
        "backward is another function's. Constants are marked by `.detach()` or torch.no_grad().",
        model_checks.gradients,
    ),
    Check(
        "padding",
        "Pass `attention_mask` to the model, and leave out positions whose next label is -100, before any mean.",
        model_checks.padding,
    ),
    Check(
        "empty batch",
        "Divide by the number of targets with .clamp(min=1), and keep the loss a function of the logits (times 0).",
        model_checks.empty,
    ),
    Check(
        "precisions",
        "Work on logits.float(): sums over the vocabulary need its precision.",
        model_checks.precisions,
    ),
    *_LAST,
]
