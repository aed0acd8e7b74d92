"""The contract of objectives: checks of the loss at its level, and of setup, parameters, state and documentation."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from emobench.core.conformance import Broken, Check, Skipped, check, docstrings, require_source
from emobench.core.errors import ConfigError
from emobench.objectives import ModelObjective, Objective
from emobench.testing import model_checks, token_checks
from emobench.testing.subject import CheckedObjective, level

EQUATION = re.compile(r"[-+*/^=].*\b\w?[a-z]?(log|q|p|z|MLE|loss)|\b(log|exp|sum|max|KL|H)\b ?[(\w]")
LIBRARY = "emobench.objectives."
STEPS = 3


@check(
    "Write the equation in the class's docstring, such as -log q_t, and its source: a paper with its year, an "
    'address, or "Own."',
)
def documentation(subject: CheckedObjective) -> None:
    """The docstring of the class or its module has an equation, and a source."""
    _skip_combinations(subject)
    written = "\n".join(docstrings(type(subject.objective)))
    if written and not EQUATION.search(written):
        raise Broken("its docstring shows no equation")
    require_source(type(subject.objective))


@check(
    "Return the names of the models that `setup` reads from the property `reads`: they belong to a run's key. Draw "
    "random numbers from a generator with a seed of its own; a resume compares the frozen state's digest.",
    gate=True,
)
def setup(subject: CheckedObjective) -> None:
    """`setup` runs, reads only models that `reads` names, and makes the same frozen state each time."""
    (one, context), (two, _) = subject.fresh(), subject.fresh()
    for name in sorted(context.read - set(subject.objective.reads)):
        raise Broken(f"setup reads the model '{name}', which `reads` does not name")
    first, second = one.frozen_state(), two.frozen_state()
    if first.keys() != second.keys() or not all(torch.equal(v, second[n]) for n, v in first.items()):
        raise Broken("setup twice makes two frozen states")


@check(
    "What changes during training (in `begin_step`) belongs into `state()` as tensors, and `load_state` restores "
    "it; or compute it from the step alone.",
)
def state(subject: CheckedObjective) -> None:
    """What `state` returns is enough to go on after a resume, with the same losses."""
    trained, context = subject.fresh()
    for step in range(STEPS):
        trained.begin_step(step, context.total_steps)
        losses(subject, trained)
    kept = {name: value.clone() for name, value in trained.state().items()}
    resumed, _ = subject.fresh()
    if kept:
        resumed.load_state(kept)
    for name, value in resumed.state().items():
        if name not in kept or not torch.equal(value, kept[name]):
            raise Broken(f"load_state does not take back '{name}' of state()")
    for objective in (trained, resumed):
        objective.begin_step(STEPS, context.total_steps)
    if not torch.equal(losses(subject, trained), losses(subject, resumed)):
        raise Broken(f"after {STEPS} steps its losses and those of a resumed copy differ")


@check(
    "Call super().__post_init__() where you override it; give `emobench.param` the range in which the formula has "
    "a value, or treat its ends apart: 0/0 and log 0 stand there.",
)
def parameters(subject: CheckedObjective) -> None:
    """Defaults are allowed, what is out of range is refused, and the loss is finite at both ends."""
    fields = {f.name: f for f in dataclasses.fields(subject.objective)}  # type: ignore[arg-type]
    if not fields:
        raise Skipped("it has no parameters")
    _skip_combinations(subject)
    cls = type(subject.objective)
    required = {name: subject.objective.params[name] for name, f in fields.items() if f.default is dataclasses.MISSING}
    _build(cls, required, "its defaults are refused")
    for name, field in fields.items():
        for value in _outside(field.metadata, subject.objective.params[name]):
            with contextlib.suppress(ConfigError):
                cls(**{**subject.objective.params, name: value})
                raise Broken(f"the value {name}={value} is out of range, and not refused")
        for value in _ends(field.metadata):
            words = f"{name}={value}, an end of its range,"
            objective = _build(cls, {**subject.objective.params, name: value}, f"{words} is refused")
            if not torch.isfinite(losses(subject, subject.fresh(objective)[0])).all():
                raise Broken(f"with {words} its loss is not finite")


def losses(subject: CheckedObjective, objective: Objective) -> Tensor:
    """Return the losses of the tokens or units of a subject's batch. The objective must be set up."""
    if isinstance(objective, ModelObjective):
        return model_checks.losses(subject, objective)
    return subject.run(objective=objective).loss_N


def _skip_combinations(subject: CheckedObjective) -> None:
    if type(subject.objective).__module__.startswith(LIBRARY):
        raise Skipped("it is made of other objectives: check them")


def _build(cls: type[Objective], values: Mapping[str, Any], words: str) -> Objective:
    try:
        return cls(**values)
    except ConfigError as error:
        raise Broken(f"{words}: {str(error).rstrip('.')}") from None


def _ends(rules: Mapping[str, Any]) -> Iterator[Any]:
    yield from (rules[end] for end in ("low", "high") if rules.get(end) is not None)
    yield from rules.get("choices", ())


def _outside(rules: Mapping[str, Any], value: object) -> Iterator[Any]:
    if isinstance(value, float):
        yield math.nan
    if rules.get("low") is not None:
        yield type(rules["low"])(rules["low"] - 1)
    if rules.get("high") is not None:
        yield type(rules["high"])(rules["high"] + 1)


def checks(
    objective: Objective, *, side: Mapping[str, Tensor] | None = None, **sizes: Any
) -> tuple[Sequence[Check], CheckedObjective]:
    """Return the checks of an objective and their subject. Later checks depend on earlier ones."""
    own = model_checks.MODEL_CHECKS if level(objective) == "model" else token_checks.TOKEN_CHECKS
    chosen = []
    for one in (setup, *own, parameters, state, documentation):
        if one is not token_checks.side_data or objective.side_names:
            chosen.append(one)
    return chosen, CheckedObjective(objective, given_side=dict(side or {}), **sizes)
